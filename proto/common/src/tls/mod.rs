//! TLS between agents and controllers, for both sides: own credentials, trusted CAs, and explanations for operators if the two do not
//! match.
//!
//! TLS 1.3 only, always mutual, and one private CA for both sides. A controller's certificate is for servers,
//! with the names that agents dial; a node's is for clients, with its node id in a URI name
//! ([`node_id`]). Neither serves in the other's place.
//! Certificates are replaced without a restart: [`Credentials::follow`] polls the files, new handshakes use the credentials in force, and
//! code that holds connections watches [`Credentials::trust_changes`] to end those whose CA was removed ([`Credentials::still_trusts`]).
//! There is no session resumption, so that no ticket outlives its certificate.

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
