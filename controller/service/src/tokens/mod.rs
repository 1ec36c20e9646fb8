//! Agents that prove by a ServiceAccount token which node they are on.
//!
//! `judge` decides what an API server's answer proves, purely; `claims` reads what a token says of itself, unverified, to refuse
//! what cannot be good without asking; `kubernetes` asks the API server; `review` remembers what was asked, and asks no more at a
//! time than an API server bears when a whole fleet reconnects; `session` renews the proof of a session.

mod claims;
mod error;
mod judge;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod review;
mod session;

pub use claims::Claims;
pub use error::{NotProven, Unavailable};
pub use judge::{Answer, Expected};
#[cfg(feature = "kubernetes")]
pub use kubernetes::ApiServer;
pub use review::{Proven, Review, Tokens};
pub(crate) use session::{prove, until_unproven};
