//! The page: a read-only view of drives and volumes over HTTP, for a cluster in the controller and for one host in a headless agent.
//!
//! [`Page`] answers requests from a [`Source`]; [`AgentsSource`] is the one over `drivebay_service::Agents`. `live` reads the fleet while
//! a page is open and computes its changes, `access` decides who may read what, `http` bounds and checks requests. The API is in
//! `README.md`.

#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

pub mod access;
mod agents;
mod events;
mod findings;
pub mod http;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
mod live;
pub mod model;
mod render;
mod renderings;
pub mod source;
#[cfg(test)]
mod testing;
mod wire;

pub use access::Access;
pub use agents::AgentsSource;
pub use http::{ListenError, Page, PageListen};
pub use source::Source;
