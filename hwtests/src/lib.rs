//! Harness of the tests that need root: shelves of loop drives, a real agent, a CSI client, and checks that nothing is left behind.
//!
//! Everything here is for tests and for the demo. It may block, run tools, and panic with a message when the machine is not as expected.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a harness runs tools, waits and fails loudly; the bans are for the product"
)]

pub mod agent;
pub mod attacker;
pub mod authority;
pub mod balancer;
pub mod browser;

pub mod children;
pub mod cluster;
pub mod csi;
pub mod digest;
pub mod each;
pub mod faults;
pub mod fixtures;
pub mod fleet;
pub mod hang;
pub mod kube;
pub mod lab;
pub mod memory;
pub mod need;
pub mod netns;
pub mod node;
pub mod pair;
pub mod program;
pub mod replay;
pub mod rig;
pub mod scrape;
pub mod settings;
pub mod shelf;
pub mod slow_traces;
pub mod stage;
pub mod starts;
pub mod tools;
pub mod tree;
pub mod trouble;
pub mod used_drives;
pub mod wait;

pub use agent::Agent;
pub use csi::Csi;
pub use node::Node;
pub use rig::Rig;
pub use settings::Settings;
pub use shelf::{Drive, DriveSpec, Shelf};
pub use trouble::Trouble;

/// 1024² bytes.
pub const MIB: u64 = 1024 * 1024;
/// 1024³ bytes.
pub const GIB: u64 = 1024 * MIB;
