//! How full snapshots are, asked of the kernel while there are any.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::volumes::Volumes;
use drivebay_layout::jobs::{Look, ReadUsage, SnapshotUsage};
use drivebay_model::{DriveId, DriveRef, PlacedSnapshot, Snapshot, cause::chain};
use drivebay_worker::{Lane, Slot, WorkerKey};

/// How often. A write of 1 GB/s fills a reserve of 20 GB in 20 s, and no interval catches that.
const EVERY: Duration = Duration::from_secs(10);
/// The kernel answers at once, unless it waits for the drive.
const DEADLINE: Duration = Duration::from_secs(5);
/// What is shown changes by so many hundredths of a reserve: each change is sent to all controllers.
const HUNDREDTHS: u64 = 1;

/// The active snapshots of each drive that is here. Pure.
fn active(snapshot: &Snapshot) -> BTreeMap<DriveId, Vec<PlacedSnapshot>> {
    let mut all: BTreeMap<DriveId, Vec<PlacedSnapshot>> = BTreeMap::new();
    for volume in snapshot.volumes.values() {
        let active = volume.placed.snapshots.iter();
        let active = active.filter(|one| one.device.is_some() && one.ambiguous.is_none());
        for one in active {
            all.entry(volume.drive.clone())
                .or_default()
                .push(one.clone());
        }
    }
    all
}

/// As it is shown: whole hundredths of the reserve. Pure.
fn rounded(used_bytes: u64, reserve_bytes: u64) -> u64 {
    let step = (reserve_bytes / 100).saturating_mul(HUNDREDTHS).max(1);
    used_bytes / step * step
}

impl Volumes {
    /// Follows them until stopped.
    pub async fn watch_snapshots(&self, stop: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let snapshot = self.node.inventory().current();
            let mut usage = BTreeMap::new();
            for (drive, taken) in active(&snapshot) {
                let Some(of) = snapshot.drives.get(&drive) else {
                    continue;
                };
                usage.extend(self.read_usage(&DriveRef::from(&of.facts), &taken).await);
            }
            let is_same = snapshot
                .volumes
                .values()
                .flat_map(|volume| &volume.snapshot_usage)
                .eq(usage.iter());
            if !is_same {
                self.node
                    .inventory()
                    .update(|known| known.snapshot_usage = usage);
            }
        }
    }

    /// Bytes that are used, by snapshot. What is lost is read from the drive again, so that everybody knows.
    async fn read_usage(&self, drive: &DriveRef, taken: &[PlacedSnapshot]) -> Vec<(Uuid, u64)> {
        let ids = taken
            .iter()
            .map(|one| (one.record.uuid, one.dm_uuid.clone()));
        let job = ReadUsage {
            snapshots: ids.collect(),
        };
        let worker = WorkerKey::from((&drive.id, Slot::Foreground)).on(Lane::Number(1));
        let answered: Vec<SnapshotUsage> = match self.node.run(worker, job, DEADLINE).await {
            Ok(answered) => answered,
            Err(error) => {
                tracing::debug!(drive = %drive.id, error = %chain(&error), "cannot read how full snapshots are");
                return Vec::new();
            }
        };
        let of = |uuid: Uuid| taken.iter().find(|one| one.record.uuid == uuid);
        let is_news = answered.iter().any(|usage| {
            let known = of(usage.uuid).is_some_and(|one| one.is_overflowed);
            usage.used_bytes.is_none() && !known
        });
        if is_news {
            let job = Look {
                drive: drive.clone(),
                repair: false,
            };
            match self
                .node
                .run((&drive.id, Slot::Foreground), job, super::DEADLINE)
                .await
            {
                Ok(contents) => {
                    tracing::error!(drive = %drive.id, "a snapshot is lost: more was written to its volume than it had room for; the volume is not affected");
                    self.node.inventory().put_contents(&drive.id, contents);
                }
                Err(error) => {
                    tracing::warn!(drive = %drive.id, error = %chain(&error), "cannot read a drive with a lost snapshot; will retry");
                }
            }
        }
        let used = answered.into_iter().filter_map(|usage| {
            let reserve = of(usage.uuid)?.reserve_bytes;
            Some((usage.uuid, rounded(usage.used_bytes?, reserve)))
        });
        used.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, RecordState, samples};

    #[test]
    fn usage_changes_by_hundredths_of_the_reserve() {
        assert_eq!(rounded(0, 1000), 0);
        assert_eq!([9, 10, 19].map(|used| rounded(used, 1000)), [0, 10, 10]);
        assert_eq!(rounded(7, 10), 7);
    }

    #[test]
    fn only_what_the_kernel_has_is_asked_for() {
        let drive = samples::drive("sda", DriveState::Claimed, None);
        let mut placed = samples::placed(2, RecordState::Block);
        let ready = samples::snapshot(1, 2);
        let inactive = PlacedSnapshot {
            device: None,
            ..samples::snapshot(3, 2)
        };
        placed.snapshots = vec![ready.clone(), inactive];
        let volume = samples::volume(&drive, placed);
        let mut snapshot = Snapshot::default();
        snapshot.volumes.insert(volume.uuid, volume);
        let found = active(&snapshot);
        assert_eq!(found, BTreeMap::from([(drive.id, vec![ready])]));
    }
}
