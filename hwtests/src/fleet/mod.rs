//! A simulated fleet: nodes with real sessions to controllers (`drivebay_agent::uplink`, mutual TLS) and simulated drives. It runs in its
//! own process, `drivebay-fleet`, beside the real controller.
//!
//! `contents` is the state of a node's drives and `feed` its inventory updates, `machine` owns the drives, `node` is an agent on it and
//! `service` its gRPC service; `seats` runs many of them, `change` makes random changes, and `journal` persists the drives when the fleet
//! is killed. `command` has the commands for a running fleet; `process` and `controller` control the two processes from a test, `measure`
//! evaluates calls, and `certs` creates certificates for both.

pub mod certs;
pub mod change;
pub mod command;
pub mod contents;
pub mod controller;
pub mod feed;
pub mod journal;
pub mod machine;
pub mod measure;
pub mod node;
pub mod plan;
pub mod process;
pub mod seats;
mod service;

pub use command::Command;
pub use contents::Contents;
pub use controller::Controller;
pub use machine::Machine;
pub use measure::{Listing, Times};
pub use node::SimNode;
pub use plan::Plan;
pub use process::{Fleet, FleetOptions, Place};
pub use seats::Seats;
