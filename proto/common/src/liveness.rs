//! Liveness of this process: it answers its own CSI socket. systemd's watchdog and an orchestrator's liveness probe restart the process
//! otherwise, and both use this check.

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

/// A younger result is reused, so that requests from the network cost at most one call per second.
const FRESH: Duration = Duration::from_secs(1);

/// Reason for which the process does not count as alive.
type Reason = String;
type Check = dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), Reason>> + Send>> + Send + Sync;

/// Liveness check of this process. Clones share the last result.
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
    /// `socket`: the CSI socket that this process serves. `also`: a further check that must succeed.
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

    /// Calls Probe on the CSI socket over a new connection, then the further check, within `limit` in total. Ignores the answer's `ready`:
    /// a restart would not make drives answer faster. Logs a failure and returns its reason.
    pub async fn check(&self, limit: Duration) -> Result<(), Reason> {
        let answers = async {
            // A new connection, so that a server that accepts no more is noticed.
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

    /// Like [`check`](Self::check), for untrusted callers: one check at a time, and at most one per `FRESH`; otherwise the last result.
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
