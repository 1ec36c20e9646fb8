//! Whether this process answers its own CSI socket. systemd's watchdog and an orchestrator's liveness probe restart it
//! when it does not, and both use this judgment.

use std::{
    fmt,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use drivebay_proto::csi::{ProbeRequest, identity_client::IdentityClient};
use tokio::{sync::Mutex, time::timeout};

use crate::dial;

/// A result that is younger is not asked for again, so that requests from the network cost one call per second.
const FRESH: Duration = Duration::from_secs(1);

/// Why the process does not count as alive.
type Reason = String;
type Check = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), Reason>> + Send>> + Send + Sync;

/// The liveness check of this process.
#[derive(Clone)]
pub struct Liveness {
    inner: Arc<Inner>,
}

struct Inner {
    socket: PathBuf,
    also: Box<Check>,
    last: Mutex<Option<(Instant, Result<(), Reason>)>>,
}

impl fmt::Debug for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liveness")
            .field("socket", &self.inner.socket)
            .finish_non_exhaustive()
    }
}

impl Liveness {
    /// `socket`: the CSI socket that this process serves. `also`: what else must succeed.
    pub fn new<F>(socket: PathBuf, also: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Reason>> + Send + 'static,
    {
        Self {
            inner: Arc::new(Inner {
                socket,
                also: Box::new(move || Box::pin(also())),
                last: Mutex::new(None),
            }),
        }
    }

    /// Calls Probe on the CSI socket. The answer's `ready` does not matter: a restart would not make drives
    /// answer faster.
    pub async fn check(&self, limit: Duration) -> Result<(), Reason> {
        let answers = async {
            // As any other client would: a new connection, so that a server which accepts no more is noticed.
            let channel = dial::once(&self.inner.socket)
                .await
                .map_err(|error| error.to_string())?;
            let probed = IdentityClient::new(channel).probe(ProbeRequest {}).await;
            probed.map_err(|status| status.to_string())?;
            (self.inner.also)().await
        };
        let result = timeout(limit, answers)
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs_f64())));
        if let Err(reason) = &result {
            tracing::error!(
                socket = %self.inner.socket.display(),
                reason,
                "liveness check failed: this process does not answer its own CSI calls"
            );
        }
        result
    }

    /// The same for callers that cannot be trusted: one check at a time, and at most one per `FRESH`.
    pub async fn check_shared(&self, limit: Duration) -> Result<(), Reason> {
        let mut last = self.inner.last.lock().await;
        if let Some((at, result)) = &*last
            && at.elapsed() < FRESH
        {
            return result.clone();
        }
        let result = self.check(limit).await;
        *last = Some((Instant::now(), result.clone()));
        result
    }
}
