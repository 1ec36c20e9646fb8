//! What the service manager is told (systemd's sd_notify): ready after the first look at the drives, and
//! stopping. Without a manager all of it does nothing.

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Says READY once the agent can answer; a manager that orders the kubelet behind it waits for this.
pub async fn say_ready(mut ready: watch::Receiver<bool>, node: String, stop: CancellationToken) {
    tell(&[NotifyState::Status("looking at the drives")]);
    tokio::select! {
        () = stop.cancelled() => {}
        seen = async { ready.wait_for(|ready| *ready).await.is_ok() } => if seen {
            tell(&[
                NotifyState::Ready,
                NotifyState::Status(&format!("serving node {node}")),
            ]);
        },
    }
}

/// Says STOPPING.
pub fn say_stopping() {
    tell(&[NotifyState::Stopping]);
}

/// One datagram on the manager's socket.
fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
