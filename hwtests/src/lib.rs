//! The harness of the tests that need root: loop shelves, faulty drives, CSI clients.
