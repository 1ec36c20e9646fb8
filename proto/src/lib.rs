//! The protocols Drivebay speaks, and the names that its parts share.
//!
//! `csi`, `agent` and `registration` are generated from the `.proto` files
//! beside this crate; the rest is written by hand: volume ids, topology keys,
//! StorageClass parameters.

pub mod condition;
pub mod names;
pub mod volume_id;

pub use volume_id::{ParseVolumeIdError, VolumeId};

/// CSI 1.12 complete, with the health RPCs of 1.13.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// What an agent serves to controllers and to the command line.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod agent {
    tonic::include_proto!("drivebay.agent.v1");
}

/// What a controller serves to its command line.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod controller {
    include!(concat!(
        env!("OUT_DIR"),
        "/over_agents/drivebay.controller.v1.rs"
    ));
}

/// What is logged, seen and changed while a program runs.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod log {
    tonic::include_proto!("drivebay.log.v1");
}

/// The kubelet's plugin registration, version 1.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
