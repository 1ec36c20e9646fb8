//! Errors of creating and loading certificates.

use std::{io, path::PathBuf};

use drivebay_common::{
    tls::{NODE_URI, NotACertificate, UtcTime},
    units::count,
};

/// A certificate cannot be made, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// The file exists and is not overwritten.
    #[error("{path} already exists and is not overwritten; {instead}")]
    Exists {
        path: PathBuf,
        /// The operator's next step.
        instead: &'static str,
    },
    /// A certificate exists without its key or the reverse, after a crash or a deletion.
    #[error(
        "{there} exists and {missing} does not; restore it, or create both again (drivebay-controller certs node or controller, with --renew)"
    )]
    HalfAPair {
        /// Path of the certificate or of the key; the other one is `missing`.
        there: PathBuf,
        missing: PathBuf,
    },
    /// --renew without an existing certificate.
    #[error(
        "there is no {path} to renew; see that the directory is the right one, or leave out --renew"
    )]
    NothingToRenew {
        /// Path of the certificate.
        path: PathBuf,
    },
    /// The directory has neither the CA's certificate nor its key.
    #[error(
        "there is no CA in {dir}; see that --dir is the CA's directory, or make one (drivebay-controller certs init)"
    )]
    NoCa {
        /// Directory in which the CA was expected.
        dir: PathBuf,
    },
    /// The CA's certificate exists without its key.
    #[error(
        "the CA's key {path} is missing: restore it from its backup, or go to where it is kept. A new CA would cut off every node that has a certificate of this one"
    )]
    CaKeyMissing {
        /// Path of the key.
        path: PathBuf,
    },
    /// The CA's key exists without its certificate.
    #[error(
        "{path} is missing, but its key exists: restore it from any node or controller. If no certificate was ever made with this key, remove the key and run certs init"
    )]
    CaCertificateMissing {
        /// Path of the certificate.
        path: PathBuf,
    },
    /// No certificate of the CA's file belongs to its key.
    #[error(
        "none of the CA certificates in {path} belongs to the key {key}; put the right one back"
    )]
    NotTheCasKey {
        /// Path of the certificates.
        path: PathBuf,
        /// Path of the key.
        key: PathBuf,
    },
    /// The CA has expired.
    #[error(
        "the CA in {path} expired at {until}; make a new one in another directory, and exchange every certificate"
    )]
    CaExpired {
        /// Path of the certificate.
        path: PathBuf,
        /// Last second of its validity.
        until: UtcTime,
    },
    /// A directory's ca.pem does not contain the signing CA.
    #[error(
        "{path} already exists and does not contain the signing CA ({ca}); append that CA if both are to be trusted, else remove the file first"
    )]
    AnotherCa { path: PathBuf, ca: PathBuf },
    /// --renew of a certificate that is another node's, or no node's.
    #[error(
        "{path} is not the certificate of node {node} ({NODE_URI}{node}) but {subject}; choose another --out, or remove it first"
    )]
    AnotherNode {
        /// Path of the certificate.
        path: PathBuf,
        /// Node id in the command.
        node: String,
        /// Subject of the certificate, or why it has none.
        subject: String,
    },
    /// The names of a certificate to be renewed cannot be read, so they cannot be kept.
    #[error("the names in {path} cannot be read; give them with --name")]
    NoNames {
        /// Path of the certificate.
        path: PathBuf,
        /// Parse error, if it is damaged.
        #[source]
        source: Option<NotACertificate>,
    },
    /// The file holds no usable certificate or key.
    #[error("{path} cannot be used: {why}; put it back from its backup")]
    Damaged { path: PathBuf, why: String },
    #[error("cannot read {path}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {path}; see that its directory may be written and has room")]
    Write {
        /// The file or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Generating a key or signing a certificate failed.
    #[error("the certificate cannot be made")]
    Make(#[source] rcgen::Error),
    /// A validity beyond the last date that a certificate can hold.
    #[error("{} from now is further than a certificate can reach; choose fewer --days", count(*days, "day"))]
    TooLong {
        /// Validity asked for, days.
        days: u32,
    },
}

impl CertsError {
    pub(super) fn init_again(path: PathBuf) -> Self {
        let instead = "to renew it: drivebay-controller certs controller --renew";
        Self::Exists { path, instead }
    }

    pub(super) fn needs_renew(path: PathBuf) -> Self {
        let instead = "to replace it by a new one: --renew";
        Self::Exists { path, instead }
    }

    pub(super) fn controller_of_another_ca(path: PathBuf) -> Self {
        let instead = "and its CA is not: put ca.pem and ca-key.pem back, or make the new CA in another directory";
        Self::Exists { path, instead }
    }
}
