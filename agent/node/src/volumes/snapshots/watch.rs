//! Polls the kernel for how full snapshots are, while there are any. A snapshot that it has invalidated is recorded as lost on its drive.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::volumes::{Volumes, rest::Rest};
use drivebay_layout::jobs::{ReadDrive, ReadUsage, SnapshotUsage};
use drivebay_model::{DriveId, DriveRef, PlacedSnapshot, Snapshot, cause::chain};
use drivebay_worker::{Lane, Slot, WorkerKey};

/// Interval of polls. A write of 1 GB/s fills a reserve of 20 GB in 20 s, and no interval catches that.
pub(super) const EVERY: Duration = Duration::from_secs(10);
/// The kernel answers at once, unless it waits for the drive.
const DEADLINE: Duration = Duration::from_secs(5);
/// Recording losses reads the drive and writes its LVM metadata. Polls of other drives wait for it.
const READ_DEADLINE: Duration = Duration::from_secs(60);

/// Backoff after failed attempts to record losses on a drive.
const RETRY: Rest = Rest {
    first: EVERY,
    most: Duration::from_secs(15 * 60),
};

/// Failed attempts to record losses on a drive.
struct Failure {
    snapshots: BTreeSet<Uuid>,
    /// Number of consecutive failures.
    count: u32,
    rest_until: Instant,
}

/// Returns the active snapshots by drive. Leaves out ambiguous ones, and incomplete ones, which may be being restarted. Pure.
fn active(snapshot: &Snapshot) -> BTreeMap<DriveId, Vec<PlacedSnapshot>> {
    let mut all: BTreeMap<DriveId, Vec<PlacedSnapshot>> = BTreeMap::new();
    for volume in snapshot.volumes.values() {
        let active = volume.placed.snapshots.iter();
        let active = active.filter(|one| {
            one.device.is_some() && one.ambiguous.is_none() && one.record.is_complete
        });
        for one in active {
            all.entry(volume.drive.clone())
                .or_default()
                .push(one.clone());
        }
    }
    all
}

/// Returns the snapshots that the kernel has invalidated and that are not recorded as lost. Pure.
fn unrecorded<'t>(
    taken: &'t [PlacedSnapshot],
    answered: &[SnapshotUsage],
) -> Vec<&'t PlacedSnapshot> {
    let is_lost = |uuid: Uuid| {
        let mut lost = answered.iter().filter(|usage| usage.used_bytes.is_none());
        lost.any(|usage| usage.uuid == uuid)
    };
    let unrecorded = taken.iter().filter(|one| !one.record.is_lost);
    unrecorded.filter(|one| is_lost(one.record.uuid)).collect()
}

/// Rounds down to whole hundredths of the reserve, since each change is sent to all controllers. Pure.
fn rounded(used_bytes: u64, reserve_bytes: u64) -> u64 {
    let step = (reserve_bytes / 100).max(1);
    used_bytes / step * step
}

impl Volumes {
    /// Polls the usage of snapshots and deletes those that are due, until stopped.
    pub async fn watch_snapshots(&self, stop: CancellationToken) {
        tokio::join!(
            self.follow_usage(stop.clone()),
            self.delete_due_snapshots(stop)
        );
    }

    async fn follow_usage(&self, stop: CancellationToken) {
        let mut failures: BTreeMap<DriveId, Failure> = BTreeMap::new();
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let snapshot = self.node.inventory().current();
            let shown = snapshot.volumes.values();
            let shown = shown.flat_map(|volume| volume.snapshot_usage.clone());
            let shown: BTreeMap<Uuid, u64> = shown.collect();
            let mut usage = BTreeMap::new();
            for (drive, taken) in active(&snapshot) {
                let Some(of) = snapshot.drives.get(&drive) else {
                    continue;
                };
                let drive = DriveRef::from(&of.facts);
                match self.read_usage(&drive, &taken).await {
                    Some(read) => {
                        self.record_losses(&drive, &unrecorded(&taken, &read), &mut failures)
                            .await;
                        usage.extend(used(&taken, read));
                    }
                    // The last values are kept until the next successful poll.
                    None => usage.extend(taken.iter().filter_map(|one| {
                        let uuid = one.record.uuid;
                        Some((uuid, *shown.get(&uuid)?))
                    })),
                }
            }
            if shown != usage {
                self.node
                    .inventory()
                    .update(|state| state.snapshot_usage = usage);
            }
        }
    }

    /// Returns the usage of these snapshots; None if it cannot be read now.
    async fn read_usage(
        &self,
        drive: &DriveRef,
        taken: &[PlacedSnapshot],
    ) -> Option<Vec<SnapshotUsage>> {
        let ids = taken
            .iter()
            .map(|one| (one.record.uuid, one.dm_uuid.clone()));
        let job = ReadUsage {
            snapshots: ids.collect(),
        };
        let worker = WorkerKey::from((&drive.id, Slot::Foreground)).on(Lane::Number(1));
        match self.node.run(worker, job, DEADLINE).await {
            Ok(answered) => Some(answered),
            Err(error) => {
                tracing::debug!(drive = %drive.id, error = %chain(&error), "cannot read how full snapshots are");
                None
            }
        }
    }

    /// Records snapshots that the kernel has invalidated as lost on their drive, by a `ReadDrive` with repair, and updates the inventory. Backs
    /// off after failures.
    async fn record_losses(
        &self,
        drive: &DriveRef,
        lost: &[&PlacedSnapshot],
        failures: &mut BTreeMap<DriveId, Failure>,
    ) {
        let before = failures.remove(&drive.id);
        if lost.is_empty() {
            return;
        }
        let (tried, count) = match before {
            Some(failure) => {
                let is_tried = |one: &&PlacedSnapshot| failure.snapshots.contains(&one.record.uuid);
                if failure.rest_until > Instant::now() && lost.iter().all(is_tried) {
                    failures.insert(drive.id.clone(), failure);
                    return;
                }
                (failure.snapshots, failure.count)
            }
            None => (BTreeSet::new(), 0),
        };
        let is_news =
            |one: &PlacedSnapshot| !one.is_overflowed && !tried.contains(&one.record.uuid);
        for one in lost.iter().filter(|one| is_news(one)) {
            tracing::error!(drive = %drive.id, volume = %one.record.volume, snapshot = %one.record.uuid, name = one.record.name, "a snapshot is lost: its reserve was full, or its store could not be written; the volume is not affected");
        }
        let job = ReadDrive {
            drive: drive.clone(),
            repair: true,
        };
        let worker = (&drive.id, Slot::Foreground);
        let snapshots: BTreeSet<Uuid> = lost.iter().map(|one| one.record.uuid).collect();
        match self.node.run(worker, job, READ_DEADLINE).await {
            Ok(contents) => {
                let mut all = contents.volumes.iter().flat_map(|placed| &placed.snapshots);
                let is_left =
                    all.any(|one| snapshots.contains(&one.record.uuid) && !one.record.is_lost);
                self.node.inventory().put_contents(&drive.id, contents);
                if !is_left {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(drive = %drive.id, error = %chain(&error), "cannot read a drive with a lost snapshot; will retry");
            }
        }
        let failure = Failure {
            snapshots,
            count: count.saturating_add(1),
            rest_until: Instant::now() + RETRY.after(count),
        };
        failures.insert(drive.id.clone(), failure);
    }
}

/// Returns the used bytes, rounded, of the snapshots that are not lost. Pure.
fn used(taken: &[PlacedSnapshot], answered: Vec<SnapshotUsage>) -> Vec<(Uuid, u64)> {
    let used = answered.into_iter().filter_map(|usage| {
        let of = taken.iter().find(|one| one.record.uuid == usage.uuid)?;
        let bytes = rounded(usage.used_bytes?, of.reserve_bytes);
        Some((usage.uuid, bytes))
    });
    used.collect()
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
    fn a_loss_is_to_be_recorded_until_the_record_has_it() {
        let usage = |number, used_bytes| SnapshotUsage {
            uuid: Uuid::from_u128(number),
            used_bytes,
        };
        let valid = samples::snapshot(1, 2);
        let mut shown = samples::snapshot(3, 2);
        shown.is_overflowed = true;
        let mut recorded = samples::snapshot(4, 2);
        recorded.record.is_lost = true;
        let taken = [valid, samples::snapshot(2, 2), shown, recorded];
        let answered = vec![
            usage(1, Some(5 << 20)),
            usage(2, None),
            usage(3, None),
            usage(4, None),
        ];
        let lost = unrecorded(&taken, &answered);
        let lost: Vec<u128> = lost.iter().map(|one| one.record.uuid.as_u128()).collect();
        assert_eq!(lost, [2, 3]);
        // A snapshot whose status could not be read is not in the response.
        assert!(unrecorded(&taken, &[]).is_empty());
        let step = taken[0].reserve_bytes / 100;
        let bytes = (5 << 20) / step * step;
        assert_eq!(used(&taken, answered), [(Uuid::from_u128(1), bytes)]);
    }

    #[test]
    fn only_what_the_kernel_has_and_is_complete_is_queried() {
        let drive = samples::drive("sda", DriveState::Claimed, None);
        let mut placed = samples::placed(2, RecordState::Block);
        let ready = samples::snapshot(1, 2);
        let inactive = PlacedSnapshot {
            device: None,
            ..samples::snapshot(3, 2)
        };
        let mut incomplete = samples::snapshot(4, 2);
        incomplete.record.is_complete = false;
        placed.snapshots = vec![ready.clone(), inactive, incomplete];
        let volume = samples::volume(&drive, placed);
        let mut snapshot = Snapshot::default();
        snapshot.volumes.insert(volume.uuid, volume);
        let queried = active(&snapshot);
        assert_eq!(queried, BTreeMap::from([(drive.id, vec![ready])]));
    }
}
