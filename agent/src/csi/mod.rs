//! The CSI Node service, and the gRPC codes of every error. Thin: validate, call, map.
//!
//! Identity and Controller are the controller crate's.

pub mod health;
pub mod node;
pub mod status;
pub mod validate;
