//! The CSI Node service, and the gRPC codes of every error. Thin: validate, call, map.
//!
//! The Identity and Controller services are in other crates.

pub mod health;
pub mod node;
pub mod status;
pub mod validate;
