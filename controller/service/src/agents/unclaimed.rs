//! Volumes that no PersistentVolume names: left over by a create in doubt, or by a PersistentVolume that was lost.
//!
//! Found only if an orchestrator's PersistentVolumes are read. A volume that is being created is named by none yet, so a
//! volume counts after some minutes.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::Agents;
use crate::{
    catalog::{Key, Node},
    inventory::Inventory,
};

/// Time after which a volume without a PersistentVolume counts. A provisioner that was refused or restarted retries within it.
pub const UNCLAIMED_AFTER: Duration = Duration::from_secs(10 * 60);
/// Interval between two scans of the catalog.
const EVERY: Duration = Duration::from_secs(60);
/// Volumes read from the catalog at a time.
const STRIDE: usize = 1000;

/// Volumes without a PersistentVolume, each with the time since which it has none.
#[derive(Debug, Default)]
pub struct Unclaimed {
    since: Mutex<BTreeMap<Key, Instant>>,
}

impl Unclaimed {
    /// Replaces the set of volumes without a PersistentVolume. Known ones keep their time.
    fn update(&self, now_unclaimed: Vec<Key>, now: Instant) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *since);
        *since = now_unclaimed
            .into_iter()
            .map(|key| {
                let at = before.get(&key).copied().unwrap_or(now);
                (key, at)
            })
            .collect();
    }

    /// Returns for how long the volume has had no PersistentVolume; None if the last scan did not find it without one.
    pub fn of(&self, key: &Key) -> Option<Duration> {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        since.get(key).map(Instant::elapsed)
    }

    /// Returns the number of volumes that count, by node.
    pub fn counts(&self) -> BTreeMap<Node, u64> {
        let since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        for (key, at) in since.iter() {
            if at.elapsed() >= UNCLAIMED_AFTER {
                *counts.entry(key.node.clone()).or_default() += 1;
            }
        }
        counts
    }
}

/// Scans for such volumes until `stop`.
pub async fn follow(agents: Agents, stop: CancellationToken) {
    loop {
        scan(&agents).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn scan(agents: &Agents) {
    if !agents.expected().complete() {
        return;
    }
    let (mut volumes, mut from) = (Vec::new(), None::<Key>);
    while let Some(unclaimed) = next(agents, &mut from) {
        volumes.extend(unclaimed);
        tokio::task::yield_now().await;
    }
    agents.unclaimed().update(volumes, Instant::now());
}

/// Returns those among the next volumes after `from`, and advances it; None at the end of the catalog.
fn next(agents: &Agents, from: &mut Option<Key>) -> Option<Vec<Key>> {
    let page = agents
        .catalog()
        .after(from.as_ref(), STRIDE, |_, marks| marks.listed);
    let (last, _) = page.last()?;
    *from = Some(last.clone());
    let expected = agents.expected();
    let page = page.into_iter();
    // A manually created volume needs no claim.
    let by_csi = page.filter(|(_, entry)| !entry.brief().manual);
    let mut keys: Vec<Key> = by_csi.map(|(key, _)| key).collect();
    keys.retain(|key| !expected.names(key.uuid));
    drop(expected);
    // The current volumes of a disconnected node are unknown.
    keys.retain(|key| {
        let agent = agents.get(&key.node);
        agent.is_some_and(|agent| agent.read_inventory(Inventory::complete))
    });
    Some(keys)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_volume_counts_when_none_has_named_it_for_long() {
        let key = |n| Key {
            uuid: Uuid::from_u128(n),
            node: "n1".into(),
        };
        let unclaimed = Unclaimed::default();
        let long_ago = Instant::now() - UNCLAIMED_AFTER;
        unclaimed.update(vec![key(1)], long_ago);
        unclaimed.update(vec![key(1), key(2)], Instant::now());
        assert_eq!(unclaimed.counts(), [("n1".into(), 1)].into());
        assert!(unclaimed.of(&key(1)) >= Some(UNCLAIMED_AFTER) && unclaimed.of(&key(2)).is_some());
        // Claimed in between, so its time starts again.
        unclaimed.update(vec![key(2)], Instant::now());
        unclaimed.update(vec![key(1), key(2)], Instant::now());
        assert!(unclaimed.counts().is_empty());
    }
}
