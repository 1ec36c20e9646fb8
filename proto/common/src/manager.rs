//! Notifications for the service manager (sd_notify): ready, stopping and watchdog. Without a manager all of it does nothing.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{files, liveness::Liveness};

/// Longest time to wait for the manager to accept a notification.
const PATIENCE: Duration = Duration::from_secs(2);

/// Notifies READY once `ready` is true; a manager starts dependent services only then. `before` and `after` are the status texts until and
/// after that.
pub async fn notify_ready(
    mut ready: watch::Receiver<bool>,
    before: &'static str,
    after: String,
    stop: CancellationToken,
) {
    notify_manager(move || sd_notify::notify(&[NotifyState::Status(before)])).await;
    tokio::select! {
        () = stop.cancelled() => {}
        is_ready = async { ready.wait_for(|ready| *ready).await.is_ok() } => if is_ready {
            notify_manager(move || sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(&after)])).await;
        },
    }
}

/// Notifies STOPPING: the process shuts down. Waits at most 2 s; a failure is logged and not returned.
pub async fn notify_stopping() {
    notify_manager(|| sd_notify::notify(&[NotifyState::Stopping])).await;
}

/// Notifies the manager's watchdog, if there is one, three times per period as long as the liveness check succeeds. If the check fails, the
/// manager restarts the process after the period; mounts and volumes stay.
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
        // The check logs its failures.
        if liveness.check(turn).await.is_ok() {
            notify_manager(|| sd_notify::notify(&[NotifyState::Watchdog])).await;
        }
    }
}

/// Sends one datagram to the manager. Off the async workers: the queue of its socket may be full.
async fn notify_manager(send: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
    if let Err(error) = files::work(PATIENCE, send).await {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
