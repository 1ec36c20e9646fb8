//! A simulated fleet: nodes whose sessions with controllers are real (`drivebay_agent::uplink`, mutual TLS) and
//! whose drives are made up. It runs in a process of its own, `drivebay-fleet`, beside the real controller.
//!
//! `contents` is what is on a node's drives, `node` the agent's service over it, `feed` how it is told, `seats`
//! runs many of them, `journal` lets drives outlive a killed fleet, `command` is what a test may ask while they run; `process` and `controller` are the
//! test's ends.

pub mod certs;
pub mod change;
pub mod command;
pub mod contents;
pub mod controller;
pub mod feed;
pub mod journal;
pub mod measure;
pub mod node;
pub mod plan;
pub mod process;
pub mod seats;

pub use command::Command;
pub use contents::Contents;
pub use controller::Controller;
pub use measure::{Listing, Times};
pub use node::{Machine, SimNode};
pub use plan::Plan;
pub use process::{Fleet, FleetOptions, Place};
pub use seats::Seats;
