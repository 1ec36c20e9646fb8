//! TLS between agents and controllers, both sides of it: who one is, whom one trusts, and what an operator is
//! told when the two do not fit.
//!
//! TLS 1.3 only, always mutual, and one private CA for both sides. A controller's certificate is for servers,
//! with the names that agents dial; a node's is for clients, with its node id in a URI name
//! ([`node_id`]). Neither serves in the other's place.
//!
//! Certificates are exchanged without a restart: [`Credentials::follow`] polls the files, new handshakes use
//! what is in force, and whoever holds connections watches [`Credentials::trust_changes`] to end those whose
//! CA was taken away ([`Credentials::still_trusts`]). There is no session resumption, so that nothing outlives
//! its certificate in a ticket.

mod cert;
mod checks;
mod credentials;
mod error;
mod explain;
mod files;
mod follow;

pub use cert::parse;
pub use cert::{
    KeyFingerprint, NODE_URI, NoNodeId, NotACertificate, UtcTime, Validity, expires,
    key_fingerprint, node_id, validity,
};
pub use checks::Role;
pub use credentials::Credentials;
pub use error::TlsError;
pub use explain::explain;
pub use files::{OwnFiles, TlsFiles, TlsSource};
