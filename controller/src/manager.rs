//! What the service manager is told (systemd's sd_notify): ready, stopping, and that calls are answered, for as long as
//! they are. Without a manager all of it does nothing.

use std::{path::PathBuf, time::Duration};

use drivebay_proto::csi::{ProbeRequest, identity_client::IdentityClient};
use sd_notify::NotifyState;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{dial, files};

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

/// Tells the manager's watchdog, if it has one for this process, three times in its period that a call to the process's
/// own CSI socket was just answered and that `alive` was. What does not answer is not told of, and started anew by the
/// manager when the period is over: that harms no mount and no volume.
pub async fn keep_alive<F: Future<Output = Result<(), String>>>(
    socket: PathBuf,
    alive: impl Fn() -> F,
    stop: CancellationToken,
) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return;
    };
    let turn = period / 3;
    // As anybody else would: a connection each time, so that it is seen when none is accepted any more.
    let answers = async || {
        let channel = dial::once(&socket).await.map_err(|e| e.to_string())?;
        let probed = IdentityClient::new(channel).probe(ProbeRequest {}).await;
        probed.map_err(|status| status.to_string())?;
        alive().await
    };
    let mut turns = tokio::time::interval(turn);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = turns.tick() => {}
        }
        let why = match timeout(turn, answers()).await {
            Ok(Ok(())) => {
                tell(|| sd_notify::notify(&[NotifyState::Watchdog])).await;
                continue;
            }
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {} s", turn.as_secs_f64()),
        };
        tracing::error!(
            socket = %socket.display(),
            "this process does not answer its own calls ({why}); the service manager starts it anew unless that ends"
        );
    }
}

/// One datagram on the manager's socket, whose queue may be full: not on an async worker.
async fn tell(send: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
    if let Err(error) = files::work(PATIENCE, send).await {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
