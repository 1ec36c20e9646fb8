//! What can be wrong with the files, or with a peer's certificate that is checked once more.

use std::{io, path::PathBuf};

use super::{
    cert::{NoNodeId, NotACertificate, UtcTime},
    checks::Role,
    explain,
    files::MAX_BYTES,
};
use crate::units::human_size;

/// The files cannot be used for TLS, or a peer is not trusted. Messages name the file and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("cannot read {path}; check that it exists and that this process's user may read it")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Too long for what it should be.
    #[error(
        "{path} has more than {}, more than any certificates or key; is it the right file?",
        human_size(MAX_BYTES)
    )]
    TooLong { path: PathBuf },
    /// Nothing in it, or something else.
    #[error("{path} holds no {wanted} in PEM form (-----BEGIN ...); is it the right file?")]
    NoPem {
        path: PathBuf,
        /// What was sought.
        wanted: &'static str,
    },
    /// PEM that is damaged.
    #[error("{path} is damaged: {why}; restore it from its source, or create it again")]
    Damaged {
        path: PathBuf,
        /// What does not parse.
        why: String,
    },
    /// One of its certificates is damaged.
    #[error("{path} is damaged; restore it from its source, or create it again")]
    NotACertificate {
        path: PathBuf,
        /// What does not parse.
        #[source]
        source: NotACertificate,
    },
    /// A key that rustls cannot use.
    #[error(
        "the private key in {path} cannot be used: it must be an unencrypted ECDSA (P-256, P-384), Ed25519 or RSA key"
    )]
    UnusableKey {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    /// Key and certificate are not a pair.
    #[error(
        "the key in {key} is not the one of the certificate in {certificate}: they must be replaced together"
    )]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// Own certificate, expired.
    #[error(
        "the certificate in {path} expired at {until}; renew it (drivebay-controller certs ... --renew)"
    )]
    Expired {
        path: PathBuf,
        /// Its last second.
        until: UtcTime,
    },
    /// Own certificate, not yet valid.
    #[error(
        "the certificate in {path} is valid only from {from}; see that this host's clock is right"
    )]
    NotYetValid {
        path: PathBuf,
        /// Its first second.
        from: UtcTime,
    },
    /// A certificate in the CA's file that may sign none.
    #[error(
        "certificate {number} in {path} is not a CA's; that file must hold CA certificates only (ca.pem)"
    )]
    NotACa {
        path: PathBuf,
        /// Which one, from 1.
        number: usize,
    },
    /// Own certificate, of another CA.
    #[error(
        "the certificate in {certificate} is not signed by the CA in {ca}: peers would refuse it"
    )]
    NotSignedByCa {
        /// The certificate's file.
        certificate: PathBuf,
        /// The CA's file.
        ca: PathBuf,
        /// What its verification said.
        #[source]
        source: rustls::Error,
    },
    /// Own certificate, for the other side.
    #[error("the certificate in {path} is not meant for {role}; {}", role.purpose())]
    WrongRole {
        path: PathBuf,
        /// What it should be for.
        role: Role,
        /// What its verification said.
        #[source]
        source: rustls::Error,
    },
    /// Own certificate, refused for another reason.
    #[error("the certificate in {path} cannot be used")]
    UnusableCertificate {
        path: PathBuf,
        /// What its verification said.
        #[source]
        source: rustls::Error,
    },
    /// An agent's certificate without its node id.
    #[error("the certificate in {path} is no node's; make one with drivebay-controller certs node")]
    NoNodeId {
        path: PathBuf,
        /// What is missing.
        #[source]
        source: NoNodeId,
    },
    /// The files were replaced by another node's.
    #[error(
        "the certificate in {path} is now node {found}'s, and this is node {expected}; put back its own, or restart the agent as that node"
    )]
    OtherNode {
        path: PathBuf,
        /// The node that this process is.
        expected: String,
        /// The node in the file.
        found: String,
    },
    /// rustls refuses to work with these files.
    #[error("TLS cannot be set up with the certificates in {path}")]
    Setup {
        /// The certificate's file.
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    /// A peer's chain is not trusted (any more).
    #[error("{}", explain::of_rustls(source))]
    NotTrusted {
        /// What its verification said.
        #[source]
        source: rustls::Error,
    },
    /// A peer without a certificate.
    #[error("the peer presented no certificate")]
    NoChain,
}

/// An error and its causes in one line.
pub(super) fn in_one_line(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
