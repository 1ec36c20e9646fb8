//! What can keep certificates from being made.

use std::{io, path::PathBuf};

use drivebay_common::{
    tls::{NODE_URI, NotACertificate, UtcTime},
    units::count,
};

/// No certificate was made, or not all of them.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// It is there, and nothing is overwritten.
    #[error("{path} already exists and is not overwritten; {instead}")]
    Exists {
        path: PathBuf,
        /// What to do.
        instead: &'static str,
    },
    /// A certificate without its key or the reverse, after a crash or a deletion.
    #[error(
        "{there} exists and {missing} does not; restore it, or create both again (drivebay-controller certs node or controller, with --renew)"
    )]
    HalfAPair {
        /// The file that is there.
        there: PathBuf,
        /// The file that is not.
        missing: PathBuf,
    },
    /// --renew of what is not there.
    #[error(
        "there is no {path} to renew; see that the directory is the right one, or leave out --renew"
    )]
    NothingToRenew {
        /// The certificate's file.
        path: PathBuf,
    },
    /// No CA at all.
    #[error(
        "there is no CA in {dir}; see that --dir is the CA's directory, or make one (drivebay-controller certs init)"
    )]
    NoCa {
        /// Where it was sought.
        dir: PathBuf,
    },
    /// A CA without its key.
    #[error(
        "the CA's key {path} is missing: restore it from its backup, or go to where it is kept. A new CA would cut off every node that has a certificate of this one"
    )]
    CaKeyMissing {
        /// The key's file.
        path: PathBuf,
    },
    /// The key of a CA without it.
    #[error(
        "{path} is missing, but its key exists: restore it from any node or controller. If no certificate was ever made with this key, remove the key and run certs init"
    )]
    CaCertificateMissing {
        /// The certificate's file.
        path: PathBuf,
    },
    /// Key and certificates of different CAs.
    #[error(
        "none of the CA certificates in {path} belongs to the key {key}; put the right one back"
    )]
    NotTheCasKey {
        /// The certificates' file.
        path: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The CA is over.
    #[error(
        "the CA in {path} expired at {until}; make a new one in another directory, and exchange every certificate"
    )]
    CaExpired {
        /// The certificate's file.
        path: PathBuf,
        /// Its last second.
        until: UtcTime,
    },
    /// A directory's ca.pem is of another CA.
    #[error(
        "{path} already exists and does not contain the signing CA ({ca}); append that CA if both are to be trusted, else remove the file first"
    )]
    AnotherCa { path: PathBuf, ca: PathBuf },
    /// --renew of a certificate that is not this node's.
    #[error(
        "{path} is not the certificate of node {node} ({NODE_URI}{node}) but {found}; choose another --out, or remove it first"
    )]
    AnotherNode {
        /// The certificate's file.
        path: PathBuf,
        /// The node that was asked for.
        node: String,
        /// What it is.
        found: String,
    },
    /// The names of the certificate that is to be renewed cannot be kept.
    #[error("the names in {path} cannot be read; give them with --name")]
    NoNames {
        /// The certificate's file.
        path: PathBuf,
        /// Why, if it is damaged.
        #[source]
        source: Option<NotACertificate>,
    },
    /// A file that is no certificate or key.
    #[error("{path} cannot be used: {why}; put it back from its backup")]
    Damaged { path: PathBuf, why: String },
    /// Reading failed.
    #[error("cannot read {path}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write {path}; see that its directory may be written and has room")]
    Write {
        /// The file or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Making a key or certificate failed.
    #[error("the certificate cannot be made")]
    Make(#[source] rcgen::Error),
    /// A validity beyond what a certificate can say.
    #[error("{} from now is further than a certificate can reach; choose fewer --days", count(*days, "day"))]
    TooLong {
        /// What was asked for.
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
