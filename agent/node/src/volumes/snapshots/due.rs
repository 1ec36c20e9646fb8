//! Snapshots that the agent deletes on its own: expired ones, and members of group snapshots that were never completed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{copied_to, find, watch::EVERY};
use crate::{
    inventory::is_reachable,
    volumes::{Caller, VolumeError, Volumes, rest::Rest},
};
use drivebay_model::{Snapshot, SnapshotRecord, cause::chain};
use drivebay_sys::clock::unix_seconds;

/// Backoff after failed attempts to delete a snapshot.
const RETRY: Rest = Rest {
    first: Duration::from_secs(10),
    most: Duration::from_secs(15 * 60),
};

/// Limit of waiting for one deletion, which continues after it: a drive that does not answer delays deletions on other drives no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reason why a snapshot is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Expired,
    /// Member of a group that was never completed.
    Incomplete,
}

/// A snapshot that is to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    volume: Uuid,
    snapshot: Uuid,
    cause: Cause,
}

/// A deletion that failed.
struct Failure {
    why: String,
    /// Number of consecutive failures.
    count: u32,
    rest_until: Instant,
}

/// Returns the uuid of what expires as a whole: the group, or a snapshot that was taken alone.
fn unit(record: &SnapshotRecord) -> Uuid {
    record
        .group
        .as_ref()
        .map_or(record.uuid, |group| group.uuid)
}

/// Returns the snapshots that are due, on reachable drives. While a snapshot is being copied to a volume, neither it nor its group expires.
/// Before the first scan is complete nothing is due, since the copy may be on a drive that was not scanned. `now`: seconds since 1970, by
/// the host's clock. Pure.
fn due(snapshot: &Snapshot, now: u64) -> Vec<Due> {
    if !snapshot.ready {
        return Vec::new();
    }
    let records = || {
        let volumes = snapshot.volumes.values();
        volumes.flat_map(|volume| volume.placed.snapshots.iter().map(|one| &one.record))
    };
    let is_copied = |of: Uuid| {
        let mut of_unit = records().filter(|record| unit(record) == of);
        of_unit.any(|record| copied_to(snapshot, record.uuid).is_some())
    };
    // Groups that were never acknowledged: their members are completed before the answer, and stay complete.
    let unfinished: BTreeSet<Uuid> = records()
        .filter(|record| record.group.is_some() && !record.is_complete)
        .map(unit)
        .collect();
    let has_complete = |of: Uuid| {
        let mut of_unit = records().filter(|record| unit(record) == of);
        of_unit.any(|record| record.is_complete)
    };
    let mut due = Vec::new();
    for volume in snapshot.volumes.values() {
        if !snapshot.drives.get(&volume.drive).is_some_and(is_reachable) {
            continue;
        }
        for one in &volume.placed.snapshots {
            let record = &one.record;
            let is_expired = record.expires_at.is_some_and(|at| at <= now);
            let cause = if one.ambiguous.is_some() || record.is_internal() {
                continue;
            } else if unfinished.contains(&unit(record)) {
                // An incomplete member goes last: it is the only record that the group was never acknowledged.
                if is_copied(unit(record)) || (!record.is_complete && has_complete(unit(record))) {
                    continue;
                }
                Cause::Incomplete
            } else if is_expired && !is_copied(unit(record)) {
                Cause::Expired
            } else {
                continue;
            };
            due.push(Due {
                volume: volume.uuid,
                snapshot: record.uuid,
                cause,
            });
        }
    }
    due
}

impl Volumes {
    /// Deletes snapshots that are due, until stopped.
    pub(super) async fn delete_due_snapshots(&self, stop: CancellationToken) {
        let mut failures: BTreeMap<Uuid, Failure> = BTreeMap::new();
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let all = due(&self.node.inventory().current(), unix_seconds());
            failures.retain(|uuid, _| all.iter().any(|one| one.snapshot == *uuid));
            for one in all {
                let before = failures.get(&one.snapshot);
                if before.is_some_and(|failure| failure.rest_until > Instant::now()) {
                    continue;
                }
                // A deletion that has begun continues as a task; `drain` waits for it.
                let deleted = tokio::select! {
                    () = stop.cancelled() => return,
                    deleted = timeout(PATIENCE, self.delete_one(one)) => deleted,
                };
                match deleted {
                    // The deletion continues, or another call changes the volume, e.g. takes its group.
                    Err(_) | Ok(Ok(()) | Err(VolumeError::Pending { .. })) => {}
                    Ok(Err(error)) => {
                        let (why, count) = (chain(&error), before.map_or(0, |one| one.count));
                        if before.is_none_or(|one| one.why != why) {
                            tracing::warn!(volume = %one.volume, snapshot = %one.snapshot, cause = ?one.cause, error = why, "cannot delete a snapshot that is due; will retry");
                        }
                        let failure = Failure {
                            why,
                            rest_until: Instant::now() + RETRY.after(count),
                            count: count.saturating_add(1),
                        };
                        failures.insert(one.snapshot, failure);
                    }
                }
            }
        }
    }

    /// Deletes the snapshot if it is still due once its volume is guarded: its group may have been completed meanwhile.
    async fn delete_one(&self, one: Due) -> Result<(), VolumeError> {
        let what = format!("volume {}", one.volume);
        self.changing_volume(one.volume, &what, Caller::Mover, |this, held| async move {
            let current = this.node.inventory().current();
            let entry = find(&current, |record| record.uuid == one.snapshot);
            let Some((volume, placed)) = entry.filter(|_| due(&current, unix_seconds()).contains(&one))
            else {
                return Ok(());
            };
            let name = &placed.record.name;
            this.drop_held(&held, volume, one.snapshot).await?;
            match one.cause {
                Cause::Expired => {
                    this.inner.snapshots.expired.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(volume = %one.volume, snapshot = %one.snapshot, name, expires_at = placed.record.expires_at, "snapshot expired; deleted");
                }
                Cause::Incomplete => {
                    tracing::warn!(volume = %one.volume, snapshot = %one.snapshot, name, "member of a group snapshot that was never completed; deleted");
                }
            }
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{
        CopySource, Drive, DriveState, RecordState, Volume, VolumeState, samples,
        volume_snapshot::SnapshotGroup,
    };

    /// Returns a node with a volume of each number n, whose snapshot has number 10 n and expires at 1000.
    fn node(volumes: impl IntoIterator<Item = u128>) -> Snapshot {
        let drive = samples::drive("sda", DriveState::Claimed, None);
        let mut snapshot = Snapshot {
            ready: true,
            ..Snapshot::default()
        };
        for number in volumes {
            let mut placed = samples::placed(number, RecordState::Block);
            let mut one = samples::snapshot(10 * number, number);
            one.record.expires_at = Some(1000);
            placed.snapshots = vec![one];
            let volume = samples::volume(&drive, placed);
            snapshot.volumes.insert(volume.uuid, volume);
        }
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot
    }

    /// Returns the numbers of the snapshots that are due, with the reason.
    fn numbers(snapshot: &Snapshot, now: u64) -> Vec<(u128, Cause)> {
        let due = due(snapshot, now).into_iter();
        due.map(|one| (one.snapshot.as_u128(), one.cause)).collect()
    }

    fn record(node: &mut Snapshot, volume: u128) -> &mut SnapshotRecord {
        let volume = node.volumes.get_mut(&Uuid::from_u128(volume)).unwrap();
        &mut volume.placed.snapshots[0].record
    }

    fn drive(node: &mut Snapshot) -> &mut Drive {
        node.drives.values_mut().next().unwrap()
    }

    fn group() -> Option<SnapshotGroup> {
        Some(SnapshotGroup {
            uuid: Uuid::from_u128(77),
            name: "g".into(),
            members: 2,
        })
    }

    /// Adds volume 9, which is being copied from the snapshot of this number.
    fn copy(node: &mut Snapshot, from: u128) {
        let mut placed = samples::placed(9, RecordState::Block);
        CopySource::Snapshot(Uuid::from_u128(from)).keep(&mut placed.record.parameters);
        let volume = Volume {
            state: VolumeState::Copying,
            ..samples::volume(drive(node), placed)
        };
        node.volumes.insert(volume.uuid, volume);
    }

    #[test]
    fn a_snapshot_expires_when_the_clock_has_reached_its_time_and_never_without_one() {
        let mut node = node([1]);
        assert!(numbers(&node, 999).is_empty());
        for now in [1000, u64::MAX] {
            assert_eq!(numbers(&node, now), [(10, Cause::Expired)]);
        }
        record(&mut node, 1).expires_at = None;
        assert!(numbers(&node, u64::MAX).is_empty());
    }

    #[test]
    fn a_snapshot_does_not_expire_while_it_is_copied_nor_does_its_group() {
        let mut node = node([1, 2, 3]);
        copy(&mut node, 10);
        let others = [(20, Cause::Expired), (30, Cause::Expired)];
        assert_eq!(numbers(&node, 1000), others);
        for volume in [1, 2] {
            record(&mut node, volume).group = group();
        }
        assert_eq!(numbers(&node, 1000), [(30, Cause::Expired)]);
        node.volumes.remove(&Uuid::from_u128(9));
        assert_eq!(numbers(&node, 1000).len(), 3);
    }

    #[test]
    fn a_member_of_a_group_that_was_never_completed_is_due_at_once() {
        let mut node = node([1, 2]);
        record(&mut node, 1).group = group();
        record(&mut node, 2).group = group();
        record(&mut node, 2).is_complete = false;
        // The complete member first.
        assert_eq!(numbers(&node, 0), [(10, Cause::Incomplete)]);
        node.volumes
            .retain(|_, volume| volume.uuid != Uuid::from_u128(1));
        assert_eq!(numbers(&node, 0), [(20, Cause::Incomplete)]);
    }

    #[test]
    fn nothing_is_due_before_the_first_scan_is_complete() {
        let mut node = node([1, 2]);
        record(&mut node, 2).group = group();
        record(&mut node, 2).is_complete = false;
        assert_eq!(numbers(&node, 1000).len(), 2);
        node.ready = false;
        assert!(numbers(&node, 1000).is_empty());
    }

    #[test]
    fn what_is_internal_ambiguous_or_unreachable_is_never_due() {
        let mut internal = node([1]);
        record(&mut internal, 1).name = SnapshotRecord::internal_name(Uuid::nil());
        let mut ambiguous = node([1]);
        for volume in ambiguous.volumes.values_mut() {
            volume.placed.snapshots[0].ambiguous = Some("two of its uuid".into());
        }
        let mut stuck = node([1]);
        drive(&mut stuck).trouble = Some("stuck".into());
        let mut missing = node([1]);
        drive(&mut missing).state = DriveState::Missing;
        for node in [internal, ambiguous, stuck, missing] {
            assert!(numbers(&node, u64::MAX).is_empty());
        }
    }
}
