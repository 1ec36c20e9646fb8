//! Notifications for the service manager (sd_notify): ready, stopping, and the watchdog, as long as
//! they are. Without a manager all of it does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{files, liveness::Liveness};

/// A manager that does not take a line for this long is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Says READY once `ready` is true; a manager that orders others behind this service waits for it. `before` and
/// `after` are what the status says until then and from then on.
pub async fn say_ready(
    mut ready: watch::Receiver<bool>,
    before: &'static str,
    after: String,
    stop: CancellationToken,
) {
    tell(move || sd_notify::notify(&[NotifyState::Status(before)])).await;
    tokio::select! {
        () = stop.cancelled() => {}
        seen = async { ready.wait_for(|ready| *ready).await.is_ok() } => if seen {
            tell(move || sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&after)])).await;
        },
    }
}

/// Says STOPPING.
pub async fn say_stopping() {
    tell(|| sd_notify::notify(&[NotifyState::Stopping])).await;
}

/// Notifies the manager's watchdog, if this process has one, three times in its period for as long as the liveness check
/// succeeds. A process whose check fails is restarted by the manager when the period ends: mounts and volumes stay.
pub async fn keep_alive(liveness: Liveness, stop: CancellationToken) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    let turn = period / 3;
    let mut turns = tokio::time::interval(turn);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = turns.tick() => {}
        }
        // The check logs why it fails.
        if liveness.check(turn).await.is_ok() {
            tell(|| sd_notify::notify(&[NotifyState::Watchdog])).await;
        }
    }
}

/// One datagram on the manager's socket, whose queue may be full: not on an async worker.
async fn tell(send: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
    if let Err(error) = files::work(PATIENCE, send).await {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
