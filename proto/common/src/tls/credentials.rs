//! Credentials of this process in TLS, and the CAs it trusts, replaced while it runs.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use rustls::{
    ClientConfig, ServerConfig,
    pki_types::{CertificateDer, UnixTime},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    cert::{self, Validity},
    checks::{Checked, Role, verify_controller},
    error::TlsError,
    files::TlsSource,
    follow,
};

/// Longest pause between two comparisons of an expiry with the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// Certificate, key and trusted CAs, as of the last time that the files were read completely and were valid. Clones share them.
#[derive(Clone)]
pub struct Credentials {
    shared: Arc<Shared>,
}

struct Shared {
    files: TlsSource,
    role: Role,
    in_force: watch::Sender<Arc<Checked>>,
    trust: watch::Sender<u64>,
}

/// Files that changed since the last reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) own: bool,
    pub(super) trust: bool,
}

impl Change {
    pub(super) fn any(self) -> bool {
        self.own || self.trust
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("files", &self.shared.files)
            .field("role", &self.shared.role)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Reads and checks the files: complete, key and certificate a pair, valid now, signed by one of the CAs and for this role; an agent's
    /// certificate must have a node id. Logs a warning for a key that other users can read.
    ///
    /// # Errors
    /// [`TlsError`] of the first check that fails.
    pub async fn load(files: impl Into<TlsSource>, role: Role) -> Result<Self, TlsError> {
        let files = files.into();
        let contents = files.read().await?;
        let checked = Checked::new(&files, role, contents)?;
        files.warn_if_exposed().await;
        Ok(Self {
            shared: Arc::new(Shared {
                files,
                role,
                in_force: watch::Sender::new(Arc::new(checked)),
                trust: watch::Sender::new(0),
            }),
        })
    }

    /// Reads the files again. Returns true if they have changed; their new contents are in force then.
    ///
    /// A certificate and a key that are not a pair, while only one of them is replaced, are an error like any other; the caller should
    /// retry.
    ///
    /// # Errors
    /// [`TlsError`]; everything stays in force then, including the CAs: one that was removed stays trusted until all files are valid.
    pub async fn refresh(&self) -> Result<bool, TlsError> {
        self.reread().await.map(Change::any)
    }

    /// Refreshes every `every` until `stop`. Logs, once each: changes, errors of the files, and (daily) that the own certificate expires
    /// soon.
    pub async fn follow(self, every: Duration, stop: CancellationToken) {
        follow::run(self, every, stop).await;
    }

    pub(super) async fn reread(&self) -> Result<Change, TlsError> {
        let shared = &*self.shared;
        let contents = shared.files.read().await?;
        let former = self.checked();
        if contents == former.contents {
            return Ok(Change::default());
        }
        let checked = Checked::new(&shared.files, shared.role, contents)?;
        if let (Some(expected), Some(actual)) = (former.node(), checked.node())
            && expected != actual
        {
            return Err(TlsError::OtherNode {
                path: shared.files.first().to_owned(),
                expected: expected.to_owned(),
                actual: actual.to_owned(),
            });
        }
        let checked = Arc::new(checked);
        let former = shared.in_force.send_replace(checked.clone());
        let (former, now) = (&former.contents, &checked.contents);
        let change = Change {
            own: former.own != now.own,
            trust: former.ca != now.ca,
        };
        // After the replacement: tasks that this wakes must find the new CAs in force.
        if change.trust {
            shared.trust.send_modify(|count| *count += 1);
        }
        if change.own {
            shared.files.warn_if_exposed().await;
        }
        Ok(change)
    }

    /// Returns the configuration for accepting connections: TLS 1.3, a client certificate that is signed by a CA and for clients is
    /// required, ALPN h2, no resumption. Must be requested again for every connection.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.checked().server.clone()
    }

    /// The same for clients that may have no certificate; the caller must authenticate those in another way.
    pub fn open_server_config(&self) -> Arc<ServerConfig> {
        self.checked().open_server.clone()
    }

    /// Returns the configuration for dialling: TLS 1.3, the server's certificate must be signed by a CA, be for servers and have the
    /// dialled name; ALPN h2, no resumption. Must be requested again for every connection.
    ///
    /// In TLS 1.3 the client completes the handshake before the server has verified its certificate: a refusal is an error of the first
    /// read, which [`super::explain()`] explains too.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        self.checked().client.clone()
    }

    /// Returns a counter of changes of the CA file. Subscribe before accepting, and call [`Self::still_trusts`] for every session at each
    /// change, and once when the session is registered: a handshake during the change may have used the former CAs.
    /// [`Self::until_distrusted`] does all that.
    pub fn trust_changes(&self) -> watch::Receiver<u64> {
        self.shared.trust.subscribe()
    }

    /// Verifies the chain of a peer of this role (its own certificate first, as in TLS) against the CAs in force, now.
    ///
    /// # Errors
    /// [`TlsError::NotTrusted`] or [`TlsError::NoChain`], with messages for an operator.
    pub fn still_trusts(&self, chain: &[CertificateDer<'_>], peer: Role) -> Result<(), TlsError> {
        let [leaf, intermediates @ ..] = chain else {
            return Err(TlsError::NoChain);
        };
        let checked = self.checked();
        let verified = match peer {
            Role::Agent => checked
                .clients
                .verify_client_cert(leaf, intermediates, UnixTime::now())
                .map(|_| ()),
            Role::Controller => verify_controller(&checked.roots, leaf, intermediates),
        };
        verified.map_err(|source| TlsError::NotTrusted { source })
    }

    /// Waits until a session with a peer of this role and this chain must end, and returns the reason: its certificate expired or its CA
    /// was removed, possibly before this call.
    pub async fn until_distrusted(&self, chain: &[CertificateDer<'_>], peer: Role) -> String {
        let mut changes = self.trust_changes();
        loop {
            if let Err(error) = self.still_trusts(chain, peer) {
                return error.to_string();
            }
            let until = chain.first().map(cert::expires);
            let left = match until {
                Some(Ok(until)) => until.duration_since(SystemTime::now()).unwrap_or_default(),
                Some(Err(error)) => return error.to_string(),
                None => return TlsError::NoChain.to_string(),
            };
            // At most `CLOCK_INTERVAL`, since the clock may be set. A certificate is valid until the end of its last second.
            let wait = (left + SECOND).min(CLOCK_INTERVAL);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = changes.changed() => {
                    // Never: `self` holds the sender.
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// Returns the own certificate, if there is one.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.checked().own.as_ref().map(|own| own.leaf.clone())
    }

    /// Returns the node id in an agent's own certificate, which never changes; None for a controller.
    pub fn own_node(&self) -> Option<String> {
        self.checked().node().map(str::to_owned)
    }

    /// Returns the last second in which the own certificate is valid, if there is one.
    pub fn valid_until(&self) -> Option<SystemTime> {
        self.own_validity().map(|validity| validity.until)
    }

    /// Returns the paths of the files.
    pub fn files(&self) -> &TlsSource {
        &self.shared.files
    }

    /// Returns the period in which the own certificate is valid, if there is one.
    pub fn own_validity(&self) -> Option<Validity> {
        self.checked().own.as_ref().map(|own| own.validity)
    }

    fn checked(&self) -> Arc<Checked> {
        self.shared.in_force.borrow().clone()
    }
}
