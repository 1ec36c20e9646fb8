//! The harness of the tests that need root: loop shelves, faulty drives, CSI clients.

pub mod hang;
pub mod program;
