//! A CA for a test's cluster, created by `drivebay-controller certs` like an operator's, and certificates that expire at once, which that
//! command cannot create.

use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use drivebay_common::tls::{NODE_URI, TlsFiles};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};

use crate::{Trouble, program, tools};

/// Directory of a CA.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
}

impl Authority {
    /// Creates a CA in this directory, and a certificate for controllers at these addresses.
    ///
    /// # Errors
    /// The command failed.
    pub fn new(dir: &Path, controllers: &[IpAddr]) -> Result<Self, Trouble> {
        let authority = Self {
            dir: dir.to_owned(),
        };
        let addresses: Vec<String> = controllers.iter().map(IpAddr::to_string).collect();
        let mut words = vec!["init"];
        for address in &addresses {
            words.extend(["--name", address]);
        }
        authority.certs(&words)?;
        Ok(authority)
    }

    fn certs(&self, words: &[&str]) -> Result<(), Trouble> {
        let program = program::controller()?;
        let dir = self.dir.display().to_string();
        let mut args = vec!["certs"];
        args.extend(words);
        args.extend(["--dir", &dir]);
        tools::run(&program.display().to_string(), &args).map(drop)
    }

    /// Returns the CA's directory, with `nodes/NODE` for each node.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the controllers' files.
    pub fn controller(&self) -> TlsFiles {
        TlsFiles {
            ca: self.file("ca.pem"),
            cert: self.file("controller.pem"),
            key: self.file("controller-key.pem"),
        }
    }

    /// Returns a node's files; creates them if they do not exist.
    ///
    /// # Errors
    /// The command failed.
    pub fn node(&self, node: &str) -> Result<TlsFiles, Trouble> {
        let dir = self.dir.join("nodes").join(node);
        if !dir.exists() {
            self.certs(&["node", node])?;
        }
        Ok(TlsFiles {
            ca: dir.join("ca.pem"),
            cert: dir.join("node.pem"),
            key: dir.join("node-key.pem"),
        })
    }

    /// Replaces a node's certificate and key by new ones.
    ///
    /// # Errors
    /// The command failed.
    pub fn renew(&self, node: &str) -> Result<(), Trouble> {
        self.certs(&["node", node, "--renew"])
    }

    /// Replaces the controllers' certificate and key by new ones.
    ///
    /// # Errors
    /// The command failed.
    pub fn renew_controller(&self) -> Result<(), Trouble> {
        self.certs(&["controller", "--renew"])
    }

    /// Replaces a node's certificate by one that expires after this time.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn shorten(&self, node: &str, lasts: Duration) {
        let files = self.node(node).unwrap();
        let key = fs::read_to_string(self.file("ca-key.pem")).unwrap();
        let ca = fs::read_to_string(self.file("ca.pem")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&ca, KeyPair::from_pem(&key).unwrap()).unwrap();
        let now = SystemTime::now();
        let mut params = CertificateParams::default();
        params.not_before = (now - Duration::from_secs(3600)).into();
        params.not_after = (now + lasts).into();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let uri = format!("{NODE_URI}{node}");
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        replace(&files.key, key.serialize_pem());
        replace(&files.cert, certificate.pem());
    }
}

/// Replaces a file atomically.
///
/// # Panics
/// When it cannot be written.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    fs::write(&new, contents).unwrap();
    fs::rename(&new, path).unwrap();
}
