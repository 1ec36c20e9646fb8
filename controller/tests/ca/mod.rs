//! A CA made by the command line in a temporary directory, and certificates that the command line would not make.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use clap::Parser;
use drivebay_common::tls::{Credentials, Role, TlsError, TlsFiles};
use drivebay_controller::{
    certs::{self, CertsError},
    config::{Certs, Cli, Command},
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs `drivebay-controller certs ...`.
pub fn certs(args: &[&str]) -> Result<String, CertsError> {
    let args = ["drivebay-controller", "certs"].iter().chain(args);
    match Cli::try_parse_from(args).unwrap().command {
        Command::Certs(Certs::Files(command)) => certs::run(&command),
        other => panic!("{other:?}"),
    }
}

/// A CA's directory, with a controller at `localhost` and node `n1`.
pub struct Ca {
    pub dir: tempfile::TempDir,
}

/// A certificate with its key.
pub struct Issued {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Ca {
    pub fn new() -> Self {
        let ca = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        let dir = ca.path_text();
        certs(&["init", "--dir", dir, "--name", "localhost"]).unwrap();
        certs(&["node", "n1", "--dir", dir]).unwrap();
        ca
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub fn path_text(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    pub fn controller_files(&self) -> TlsFiles {
        TlsFiles {
            ca: self.path("ca.pem"),
            cert: self.path("controller.pem"),
            key: self.path("controller-key.pem"),
        }
    }

    pub fn node_files(&self, node: &str) -> TlsFiles {
        let dir = self.path("nodes").join(node);
        TlsFiles {
            ca: dir.join("ca.pem"),
            cert: dir.join("node.pem"),
            key: dir.join("node-key.pem"),
        }
    }

    pub async fn controller(&self) -> Credentials {
        Credentials::load(self.controller_files(), Role::Controller)
            .await
            .unwrap()
    }

    pub async fn agent(&self) -> Credentials {
        Credentials::load(self.node_files("n1"), Role::Agent)
            .await
            .unwrap()
    }

    /// Reads a certificate made by the command line.
    pub fn read(files: &TlsFiles) -> Issued {
        Issued::of(
            fs::read_to_string(&files.cert).unwrap(),
            fs::read_to_string(&files.key).unwrap(),
        )
    }

    /// Signs a certificate with this CA, without any checks.
    pub fn issue(
        &self,
        from: SystemTime,
        until: SystemTime,
        purpose: ExtendedKeyUsagePurpose,
        name: &str,
    ) -> Issued {
        let key = KeyPair::from_pem(&fs::read_to_string(self.path("ca-key.pem")).unwrap()).unwrap();
        let ca = fs::read_to_string(self.path("ca.pem")).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&ca, key).unwrap();
        let mut params = CertificateParams::default();
        params.not_before = from.into();
        params.not_after = until.into();
        params.extended_key_usages = vec![purpose];
        params.subject_alt_names = vec![if name.contains("://") {
            SanType::URI(name.try_into().unwrap())
        } else {
            SanType::DnsName(name.try_into().unwrap())
        }];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Issued::of(certificate.pem(), key.serialize_pem())
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        let pem = fs::read(self.path("ca.pem")).unwrap();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.unwrap()).unwrap();
        }
        Arc::new(roots)
    }

    /// Returns a client that presents a certificate no agent would, or none.
    pub fn raw_client(&self, own: Option<Issued>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots());
        Arc::new(match own {
            Some(own) => builder.with_client_auth_cert(own.chain, own.key).unwrap(),
            None => builder.with_no_client_auth(),
        })
    }

    /// Returns a server that presents a certificate no controller would.
    pub fn raw_server(&self, own: Issued) -> Arc<ServerConfig> {
        let clients = WebPkiClientVerifier::builder_with_provider(self.roots(), provider())
            .build()
            .unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(own.chain, own.key)
            .unwrap();
        Arc::new(config)
    }
}

impl Issued {
    fn of(certificate_pem: String, key_pem: String) -> Self {
        Self {
            chain: CertificateDer::pem_slice_iter(certificate_pem.as_bytes())
                .collect::<Result<_, _>>()
                .unwrap(),
            key: PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).unwrap(),
            certificate_pem,
            key_pem,
        }
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Replaces a file's contents atomically, as tools do.
pub fn put(path: &Path, contents: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    fs::write(&new, contents).unwrap();
    fs::rename(&new, path).unwrap();
}

pub async fn load_error(files: &TlsFiles, role: Role) -> TlsError {
    match Credentials::load(files.clone(), role).await {
        Ok(_) => panic!("loaded"),
        Err(error) => error,
    }
}
