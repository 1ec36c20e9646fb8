//! Publishes what is wrong with the agent's own state files as findings of the host.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use drivebay_node::{state::dir, volumes::Volumes};

/// How often it is looked whether files that were moved aside are still there.
const EVERY: Duration = Duration::from_secs(60);

/// Follows the state directory until `stop`.
pub async fn run(volumes: Volumes, stop: CancellationToken) {
    let state_dir = volumes.state_dir().clone();
    let mut troubles = state_dir.subscribe();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let found = dir::findings(&troubles.borrow_and_update());
        volumes
            .inventory()
            .update(|known| known.state_files = found);
        tokio::select! {
            () = stop.cancelled() => return,
            changed = troubles.changed() => if changed.is_err() { return },
            _ = ticks.tick() => if let Err(error) = state_dir.look_for_lost().await {
                tracing::debug!(%error, "cannot list the state directory");
            },
        }
    }
}
