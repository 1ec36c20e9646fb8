//! Who this process is in TLS and whom it trusts, exchanged while it runs.

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

/// How often an expiry is compared with the clock.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// Certificate, key and trusted CAs, as they were when the files were last read whole and in order. Clones share
/// them.
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

/// What a reading of the files has changed.
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
    /// Reads and checks the files: whole, key and certificate a pair, valid now, signed by one of the CAs and
    /// meant for this role; an agent's certificate names its node. A key that other users can read is warned of
    /// in the log.
    ///
    /// # Errors
    /// [`TlsError`]: the first thing that is wrong.
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

    /// Reads the files again; `true` if they have changed and what is in them is in force now.
    ///
    /// A certificate and a key that are not a pair (one of them is replaced already, the other not yet) are an
    /// error like any other; ask again a little later.
    ///
    /// # Errors
    /// [`TlsError`]; all that was in force stays so, the trusted CAs too: a CA that should be trusted no longer
    /// still is until the files are in order.
    pub async fn refresh(&self) -> Result<bool, TlsError> {
        self.reread().await.map(Change::any)
    }

    /// Refreshes every so often until `stop`, and says in the log, once each: what changed, what is wrong with
    /// the files, and (daily) that the own certificate expires soon.
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
        if let (Some(expected), Some(found)) = (former.node(), checked.node())
            && expected != found
        {
            return Err(TlsError::OtherNode {
                path: shared.files.first().to_owned(),
                expected: expected.to_owned(),
                found: found.to_owned(),
            });
        }
        let checked = Arc::new(checked);
        let former = shared.in_force.send_replace(checked.clone());
        let (former, now) = (&former.contents, &checked.contents);
        let change = Change {
            own: former.own != now.own,
            trust: former.ca != now.ca,
        };
        // After the exchange: whoever wakes up finds the new CAs in force.
        if change.trust {
            shared.trust.send_modify(|count| *count += 1);
        }
        if change.own {
            shared.files.warn_if_exposed().await;
        }
        Ok(change)
    }

    /// For accepting connections: TLS 1.3, a client certificate signed by the CA and meant for clients is
    /// required, ALPN h2, no resumption. Take it anew for every connection.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.checked().server.clone()
    }

    /// The same, for clients that may have no certificate and show otherwise who they are.
    pub fn open_server_config(&self) -> Arc<ServerConfig> {
        self.checked().open_server.clone()
    }

    /// For dialling: TLS 1.3, the server's certificate must be signed by the CA, be meant for servers and have
    /// the name dialled; ALPN h2, no resumption. Take it anew for every connection.
    ///
    /// In TLS 1.3 the client is done before the server has seen its certificate: a refusal comes as an error of
    /// the first read, which [`super::explain()`] puts into words too.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        self.checked().client.clone()
    }

    /// Counts changes of the CA file. Take the receiver before accepting, and ask [`Self::still_trusts`] about
    /// every session at each change, and once when a session is entered where changes are acted on: a handshake
    /// that was under way at the change may have ended under the former CAs. [`Self::until_distrusted`] does all that.
    pub fn trust_changes(&self) -> watch::Receiver<u64> {
        self.shared.trust.subscribe()
    }

    /// Whether a peer of this role with this chain (its own certificate first, as TLS gives it) would be believed now.
    ///
    /// # Errors
    /// [`TlsError::NotTrusted`] or [`TlsError::NoChain`], in an operator's words.
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

    /// Waits until a session with a peer of this role and this chain has to end: its certificate has expired, or its
    /// CA was taken away, also before this was called. Says why.
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
            // Looked at anew each time, since the clock may be set. Certificates count in whole seconds, and are good
            // for the whole of their last one.
            let look = (left + SECOND).min(LOOK_AT_CLOCK);
            tokio::select! {
                () = tokio::time::sleep(look) => {}
                changed = changes.changed() => {
                    // The sender is in this.
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    /// The own certificate, if there is one.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.checked().own.as_ref().map(|own| own.leaf.clone())
    }

    /// The node id in an agent's own certificate; it stays the same for as long as this lives. None for a
    /// controller.
    pub fn own_node(&self) -> Option<String> {
        self.checked().node().map(str::to_owned)
    }

    /// When the own certificate expires, if there is one.
    pub fn valid_until(&self) -> Option<SystemTime> {
        self.own_validity().map(|validity| validity.until)
    }

    /// Where all this was read from.
    pub fn files(&self) -> &TlsSource {
        &self.shared.files
    }

    /// From when until when the own certificate is valid, if there is one.
    pub fn own_validity(&self) -> Option<Validity> {
        self.checked().own.as_ref().map(|own| own.validity)
    }

    fn checked(&self) -> Arc<Checked> {
        self.shared.in_force.borrow().clone()
    }
}
