//! The harness of the tests that need root: loop shelves, faulty drives, CSI clients.

pub mod fixtures;
pub mod used_drives;
