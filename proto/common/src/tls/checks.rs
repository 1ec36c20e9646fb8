//! Checks of the files' contents, and the TLS configurations made of them: a mistake is found at the start and on the host it was made on,
//! not as a peer's refusal.

use std::{fmt, path::Path, sync::Arc, time::SystemTime};

use rustls::{
    CertificateError, ClientConfig, Error, InconsistentKeys, RootCertStore, ServerConfig,
    client::{Resumption, verify_server_cert_signed_by_trust_anchor},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage, ParsedCertificate, ResolvesServerCertUsingSni,
        VerifierBuilderError, WebPkiClientVerifier, danger::ClientCertVerifier,
    },
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};

use super::{
    cert::{self, UtcTime, Validity},
    error::TlsError,
    files::{self, Contents, OwnContents, OwnFiles, TlsSource},
};

/// ALPN protocol of HTTP/2, the only one of these connections.
const ALPN: &[u8] = b"h2";

/// Side that the own certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A controller: its certificate is for servers, with the names that agents dial.
    Controller,
    /// A node: its certificate is for clients, with its node id.
    Agent,
}

impl Role {
    pub(super) fn purpose(self) -> &'static str {
        match self {
            Self::Controller => {
                "a controller needs one for servers (drivebay-controller certs controller)"
            }
            Self::Agent => {
                "an agent needs its node's, which is for clients (drivebay-controller certs node)"
            }
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "a controller",
            Self::Agent => "an agent",
        })
    }
}

/// Result of reading and checking the files once.
pub(super) struct Checked {
    pub(super) contents: Contents,
    pub(super) own: Option<Own>,
    pub(super) roots: Arc<RootCertStore>,
    pub(super) clients: Arc<dyn ClientCertVerifier>,
    pub(super) server: Arc<ServerConfig>,
    /// Like `server`, for clients that may have no certificate.
    pub(super) open_server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
}

/// The own certificate and key.
pub(super) struct Own {
    pub(super) leaf: CertificateDer<'static>,
    pub(super) validity: Validity,
    /// Node id; None for a controller.
    pub(super) node: Option<String>,
    pair: Arc<SingleCertAndKey>,
}

impl Checked {
    pub(super) fn new(files: &TlsSource, role: Role, contents: Contents) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let setup = |source| TlsError::Setup {
            path: files.first().to_owned(),
            source,
        };
        let roots = Arc::new(trusted(&files.ca, &contents.ca)?);
        let verifier =
            || WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let unbuilt = |error: VerifierBuilderError| setup(Error::General(error.to_string()));
        let clients = verifier().build().map_err(unbuilt)?;
        let any_client = verifier().allow_unauthenticated().build();
        let own = match (&files.own, &contents.own) {
            (Some(own_files), Some(contents)) => {
                let pair = pair(own_files, contents, &provider)?;
                let [leaf, intermediates @ ..] = pair.cert.as_slice() else {
                    return Err(setup(Error::NoCertificatesPresented));
                };
                let leaf = leaf.clone();
                let validity = valid_now(own_files, &leaf)?;
                let verified = match role {
                    Role::Controller => verify_controller(&roots, &leaf, intermediates),
                    Role::Agent => clients
                        .verify_client_cert(&leaf, intermediates, UnixTime::now())
                        .map(|_| ()),
                };
                verified.map_err(|source| refused(own_files, &files.ca, role, source))?;
                let node = match role {
                    Role::Controller => None,
                    Role::Agent => {
                        Some(cert::node_id(&leaf).map_err(|source| TlsError::NoNodeId {
                            path: own_files.cert.clone(),
                            source,
                        })?)
                    }
                };
                Some(Own {
                    leaf,
                    validity,
                    node,
                    pair: Arc::new(SingleCertAndKey::from(pair)),
                })
            }
            _ => None,
        };
        let server = |clients| -> Result<Arc<ServerConfig>, TlsError> {
            let builder = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[&TLS13])
                .map_err(setup)?
                .with_client_cert_verifier(clients);
            let mut server = match &own {
                Some(own) => builder.with_cert_resolver(own.pair.clone()),
                // Refuses every handshake: there is no certificate.
                None => builder.with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new())),
            };
            server.alpn_protocols = vec![ALPN.to_vec()];
            server.session_storage = Arc::new(NoServerSessionStorage {});
            server.send_tls13_tickets = 0;
            Ok(Arc::new(server))
        };
        let (open_server, server) = (
            server(any_client.map_err(unbuilt)?)?,
            server(clients.clone())?,
        );
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(setup)?
            .with_root_certificates(roots.clone());
        let mut client = match &own {
            Some(own) => client.with_client_cert_resolver(own.pair.clone()),
            None => client.with_no_client_auth(),
        };
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        Ok(Self {
            contents,
            own,
            roots,
            clients,
            server,
            open_server,
            client: Arc::new(client),
        })
    }

    /// Returns the node id in the own certificate of an agent.
    pub(super) fn node(&self) -> Option<&str> {
        self.own.as_ref()?.node.as_deref()
    }
}

/// Verifies a controller's certificate against `roots` now, for any name.
pub(super) fn verify_controller(
    roots: &RootCertStore,
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> Result<(), Error> {
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        roots,
        intermediates,
        UnixTime::now(),
        algorithms.all,
    )
}

/// Reads the trusted CAs. Errs if a certificate is not a CA's, since it would be trusted as one. Does not check the CAs' own validity, as
/// TLS does not: none of the certificates that `drivebay-controller certs` makes outlives its CA.
fn trusted(path: &Path, bytes: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (index, der) in files::certificates(path, bytes)?.into_iter().enumerate() {
        let is_ca = cert::parse(&der)
            .map_err(|source| TlsError::NotACertificate {
                path: path.to_owned(),
                source,
            })?
            .is_ca();
        if !is_ca {
            return Err(TlsError::NotACa {
                path: path.to_owned(),
                number: index + 1,
            });
        }
        roots
            .add(der)
            .map_err(|source| TlsError::UnusableCertificate {
                path: path.to_owned(),
                source,
            })?;
    }
    Ok(roots)
}

fn pair(
    files: &OwnFiles,
    contents: &OwnContents,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = files::certificates(&files.cert, &contents.cert)?;
    for der in &chain {
        cert::parse(der).map_err(|source| TlsError::NotACertificate {
            path: files.cert.clone(),
            source,
        })?;
    }
    let key = files::private_key(&files.key, &contents.key)?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|source| TlsError::UnusableKey {
            path: files.key.clone(),
            source,
        })?;
    let own = CertifiedKey::new(chain, key);
    match own.keys_match() {
        Ok(()) => Ok(own),
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(TlsError::KeyMismatch {
            certificate: files.cert.clone(),
            key: files.key.clone(),
        }),
        Err(source) => Err(TlsError::Setup {
            path: files.cert.clone(),
            source,
        }),
    }
}

fn valid_now(files: &OwnFiles, leaf: &CertificateDer<'_>) -> Result<Validity, TlsError> {
    let path = || files.cert.clone();
    let validity = cert::validity(leaf).map_err(|source| TlsError::NotACertificate {
        path: path(),
        source,
    })?;
    let now = SystemTime::now();
    if validity.until < now {
        return Err(TlsError::Expired {
            path: path(),
            until: UtcTime(validity.until),
        });
    }
    if now < validity.from {
        return Err(TlsError::NotYetValid {
            path: path(),
            from: UtcTime(validity.from),
        });
    }
    Ok(validity)
}

fn refused(files: &OwnFiles, ca: &Path, role: Role, source: Error) -> TlsError {
    let path = files.cert.clone();
    match &source {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => TlsError::NotSignedByCa {
            certificate: path,
            ca: ca.to_owned(),
            source,
        },
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        ) => TlsError::WrongRole { path, role, source },
        _ => TlsError::UnusableCertificate { path, source },
    }
}
