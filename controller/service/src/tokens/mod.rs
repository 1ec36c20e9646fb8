//! Agents that prove their node by a ServiceAccount token.
//!
//! `judge` decides purely what an API server's answer proves; `claims` reads a token's unverified claims, to refuse unsuitable
//! ones without a review; `kubernetes` calls the API server; `review` caches reviews and limits their rate, for a fleet that
//! reconnects at once; `session` renews the proof during a session.

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
