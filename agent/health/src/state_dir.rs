//! Publishes faults of the agent's own state files as findings of the host.

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use drivebay_node::{
    state::{TRY_EVERY, dir},
    volumes::Volumes,
};

/// Follows the state directory until `stop`: its faults, whether files that were moved aside still exist, and whether the
/// list of manual mounts, which no other task reads, can be read by now.
pub async fn run(volumes: Volumes, stop: CancellationToken) {
    let state_dir = volumes.node().state_dir().clone();
    let mut troubles = state_dir.subscribe();
    let mut ticks = interval(TRY_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let findings = dir::findings(&troubles.borrow_and_update());
        volumes
            .node()
            .inventory()
            .update(|state| state.state_files = findings);
        tokio::select! {
            () = stop.cancelled() => return,
            changed = troubles.changed() => if changed.is_err() { return },
            _ = ticks.tick() => {
                volumes.read_hand_mounts_again().await;
                if let Err(error) = state_dir.list_set_aside().await {
                    tracing::debug!(%error, "cannot list the state directory");
                }
            }
        }
    }
}
