//! Errors of the certificate files, and of peers' certificates that are verified again.

use std::{io, path::PathBuf};

use super::{
    cert::{NoNodeId, NotACertificate, UtcTime},
    checks::Role,
    explain,
    files::MAX_BYTES,
};
use crate::units::human_size;

/// The files cannot be used for TLS, or a peer is not trusted. Messages name the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}; check that it exists and that this process's user may read it")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} has more than {}, more than any certificates or key; is it the right file?",
        human_size(MAX_BYTES)
    )]
    TooLong { path: PathBuf },
    /// The file is empty or has other contents.
    #[error("{path} holds no {wanted} in PEM form (-----BEGIN ...); is it the right file?")]
    NoPem {
        path: PathBuf,
        /// Kind of the PEM section that is missing.
        wanted: &'static str,
    },
    /// The PEM encoding is damaged.
    #[error("{path} is damaged: {why}; restore it from its source, or create it again")]
    Damaged {
        path: PathBuf,
        /// Error of parsing; never has the file's contents.
        why: String,
    },
    #[error("{path} is damaged; restore it from its source, or create it again")]
    NotACertificate {
        path: PathBuf,
        #[source]
        source: NotACertificate,
    },
    #[error(
        "the private key in {path} cannot be used: it must be an unencrypted ECDSA (P-256, P-384), Ed25519 or RSA key"
    )]
    UnusableKey {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error(
        "the key in {key} is not the one of the certificate in {certificate}: they must be replaced together"
    )]
    KeyMismatch {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    #[error(
        "the certificate in {path} expired at {until}; renew it (drivebay-controller certs ... --renew)"
    )]
    Expired {
        path: PathBuf,
        /// Last second of validity.
        until: UtcTime,
    },
    #[error(
        "the certificate in {path} is valid only from {from}; see that this host's clock is right"
    )]
    NotYetValid {
        path: PathBuf,
        /// First second of validity.
        from: UtcTime,
    },
    #[error(
        "certificate {number} in {path} is not a CA's; that file must hold CA certificates only (ca.pem)"
    )]
    NotACa {
        path: PathBuf,
        /// Position in the file, from 1.
        number: usize,
    },
    #[error(
        "the certificate in {certificate} is not signed by the CA in {ca}: peers would refuse it"
    )]
    NotSignedByCa {
        certificate: PathBuf,
        ca: PathBuf,
        /// Error of the verification.
        #[source]
        source: rustls::Error,
    },
    /// The own certificate is for the other role.
    #[error("the certificate in {path} is not meant for {role}; {}", role.purpose())]
    WrongRole {
        path: PathBuf,
        /// Role that it must be for.
        role: Role,
        /// Error of the verification.
        #[source]
        source: rustls::Error,
    },
    /// The own certificate failed verification for another reason.
    #[error("the certificate in {path} cannot be used")]
    UnusableCertificate {
        path: PathBuf,
        /// Error of the verification.
        #[source]
        source: rustls::Error,
    },
    #[error("the certificate in {path} is no node's; make one with drivebay-controller certs node")]
    NoNodeId {
        path: PathBuf,
        #[source]
        source: NoNodeId,
    },
    /// The new files have the certificate of another node.
    #[error(
        "the certificate in {path} is now node {actual}'s, and this is node {expected}; put back its own, or restart the agent as that node"
    )]
    OtherNode {
        path: PathBuf,
        /// Node id of this process.
        expected: String,
        /// Node id in the file.
        actual: String,
    },
    /// rustls refused the files.
    #[error("TLS cannot be set up with the certificates in {path}")]
    Setup {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    /// A peer's chain is not trusted, or no longer.
    #[error("{}", explain::of_rustls(source))]
    NotTrusted {
        /// Error of the verification.
        #[source]
        source: rustls::Error,
    },
    #[error("the peer presented no certificate")]
    NoChain,
}

/// Returns an error and its sources in one line.
pub(super) fn in_one_line(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
