//! A simulated fleet: nodes whose sessions with controllers are real (`drivebay_agent::uplink`, mutual TLS) and
//! whose drives are made up. It runs in a process of its own, `drivebay-fleet`, beside the real controller.
//!
//! `contents` is what is on a node's drives and `feed` how it is told, `machine` has the drives, `node` is an agent
//! on it and `service` what that answers; `seats` runs many of them, `change` is what happens to them, and `journal`
//! lets their drives outlive a killed fleet. `command` is what a test may ask of a running fleet; `process` and
//! `controller` are the test's ends of the two processes, `measure` is what it looks at, `certs` what both need.

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
