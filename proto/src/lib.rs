//! The protocols of Drivebay, and the names that its parts share.
//!
//! `csi`, `agent` and `registration` are generated from the `.proto` files
//! beside this crate; the rest is written by hand: volume ids, topology keys,
//! StorageClass parameters.

pub mod condition;
pub mod health;
mod json;
mod known;
pub mod names;
pub mod volume_id;
pub mod words;

pub use volume_id::{ParseVolumeIdError, VolumeId};

/// CSI 1.12 complete, with the health RPCs of 1.13.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod csi {
    tonic::include_proto!("csi.v1");
}

/// CSI's Controller service for a server that encodes the entries of lists itself; its bytes on the wire are those of [`csi`].
pub mod encoded {
    use prost::{Message, bytes::Bytes};

    pub use service::controller_server;

    /// One page of ListVolumes.
    #[derive(Clone, PartialEq, Eq, Message)]
    pub struct ListVolumesResponse {
        /// Encoded [`csi::list_volumes_response::Entry`](crate::csi::list_volumes_response::Entry) messages.
        #[prost(bytes = "bytes", repeated, tag = "1")]
        pub entries: Vec<Bytes>,
        /// Start of the next page; empty on the last one.
        #[prost(string, tag = "2")]
        pub next_token: String,
    }

    impl ListVolumesResponse {
        /// Decodes the response as a client does.
        ///
        /// # Errors
        /// An entry cannot be decoded.
        pub fn decode_entries(
            &self,
        ) -> Result<crate::csi::ListVolumesResponse, prost::DecodeError> {
            Message::decode(&*self.encode_to_vec())
        }
    }

    #[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
    mod service {
        include!(concat!(env!("OUT_DIR"), "/encoded/csi.v1.rs"));
    }
}

/// Services of an agent, for controllers and the command line.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod agent {
    tonic::include_proto!("drivebay.agent.v1");
}

/// Services of a controller, for its command line.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod controller {
    include!(concat!(
        env!("OUT_DIR"),
        "/over_agents/drivebay.controller.v1.rs"
    ));
}

/// Service that reads and changes the log filter at run time.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod log {
    tonic::include_proto!("drivebay.log.v1");
}

/// The kubelet's plugin registration, version 1.
#[allow(missing_docs, clippy::all, clippy::disallowed_methods, rustdoc::all)]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}
