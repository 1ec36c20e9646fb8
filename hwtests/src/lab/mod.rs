//! The lab: a Debian guest under qemu, with systemd, udevd, device-mapper and emulated drives,
//! in which tests run the product against hardware that this machine does not have.
//! A [`Machine`] is one guest and its drives, a [`Guest`] the connection to it, a [`LabRig`] a machine with an agent and a client. Nothing
//! outlives a test: its processes are killed with the test's, and its files are in one directory, which is removed, or kept if the test
//! failed.

pub mod agent;
pub mod drives;
pub mod guest;
pub mod image;
pub mod inside;
pub mod killer;
pub mod letters;
pub mod machine;
pub mod nbd;
pub mod progress;
pub mod qemu;
pub mod qmp;
pub mod rig;
pub mod rundir;
pub mod service;
pub mod shared;
pub mod snapshot;
pub mod ssh;
pub mod starts;
pub mod tpm;
pub mod writer;

pub use agent::LabAgent;
pub use drives::{DriveError, DriveSpec, Kind, LabDrive};
pub use guest::{Guest, Ran};
pub use machine::{Machine, MachineSpec};
pub use nbd::{NbdDrive, NbdOptions};
pub use qmp::{Qmp, QmpError};
pub use rig::LabRig;
pub use shared::{Held, shared};
pub use starts::LvmStarts;
pub use tpm::Tpm;
pub use writer::{Events, Writer};
