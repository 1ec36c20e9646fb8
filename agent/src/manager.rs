//! What the service manager is told (systemd's sd_notify): ready after the first look at the drives, and
//! stopping. Without a manager all of it does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::sys::offload::offload;

/// A manager that does not take a line for this long is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Says READY once the agent can answer; a manager that orders the kubelet behind it waits for this.
pub async fn say_ready(mut ready: watch::Receiver<bool>, node: String, stop: CancellationToken) {
    tell(|| sd_notify::notify(&[NotifyState::Status("looking at the drives")])).await;
    tokio::select! {
        () = stop.cancelled() => {}
        seen = async { ready.wait_for(|ready| *ready).await.is_ok() } => if seen {
            tell(move || {
                let status = format!("serving node {node}");
                sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&status)])
            })
            .await;
        },
    }
}

/// Says STOPPING.
pub async fn say_stopping() {
    tell(|| sd_notify::notify(&[NotifyState::Stopping])).await;
}

/// One datagram on the manager's socket, whose queue may be full: not on an async worker.
async fn tell(send: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
    let sent = offload("notify", PATIENCE, send).await;
    if let Err(error) = sent.and_then(|sent| sent) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
