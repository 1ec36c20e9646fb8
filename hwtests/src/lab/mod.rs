//! The lab: virtual machines with drives of every kind, whose faults a test controls.

pub mod drives;
pub mod nbd;
pub mod qmp;

pub use drives::{DriveError, DriveSpec, Kind, LabDrive};
pub use nbd::{NbdDrive, NbdOptions};
pub use qmp::{Qmp, QmpError};
