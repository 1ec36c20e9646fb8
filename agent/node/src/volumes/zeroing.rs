//! Zeroes the free space of claimed drives in the background, so that raw volumes find zeroed space: one task per
//! drive, throttled like erasing. Space that a call waits for comes first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Volumes, erase::rest};
use crate::tasks::Tasks;
use drivebay_layout::jobs::{LayoutError, ReadDrive, ZeroStep};
use drivebay_model::{
    ClassConfig, DriveId, DriveRef, DriveState, Extent, RawSpace, Snapshot, Zeroing, runs,
};
use drivebay_worker::{RunError, Slot};

/// Time for which a step keeps the drive's lock, approximately: calls wait for it.
const BUDGET: Duration = Duration::from_millis(300);
/// Longest duration of a step in all.
const DEADLINE: Duration = Duration::from_secs(120);
/// Delay before zeroing on a drive is retried after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// Largest number of recorded calls that wait; calls are repeated.
const MOST_WANTED: usize = 1000;

/// Free space that calls wait for, by caller: the name of a volume that is created, or the UUID of one that grows. Lost
/// with the agent; the repeated call records it again.
#[derive(Debug, Default)]
pub(super) struct Wanted(Mutex<BTreeMap<String, (DriveId, Vec<Extent>)>>);

impl Wanted {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, (DriveId, Vec<Extent>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if space of a claimed drive is being zeroed for this caller: no further drive is claimed for it meanwhile.
    pub(super) fn is_waiting(&self, who: &str) -> bool {
        self.all().contains_key(who)
    }

    /// Removes the entry of a caller that has its space.
    pub(super) fn end(&self, who: &str) {
        self.all().remove(who);
    }

    fn of(&self, drive: &DriveId) -> Vec<Extent> {
        let all = self.all();
        let of_drive = all.values().filter(|(of, _)| of == drive);
        of_drive.flat_map(|(_, runs)| runs.clone()).collect()
    }
}

/// A drive with free space that is to be zeroed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Next {
    drive: DriveRef,
    unzeroed: Vec<Extent>,
    /// True: zeros may be written where that is necessary.
    may_write: bool,
}

/// Returns the claimed drives of configured classes with free space that is not known to be zeros. Pure.
fn waiting(snapshot: &Snapshot, classes: &[ClassConfig]) -> Vec<Next> {
    let claimed = snapshot
        .drives
        .values()
        .filter(|drive| drive.state == DriveState::Claimed && drive.trouble.is_none());
    claimed
        .filter_map(|drive| {
            let contents = drive.contents.as_ref()?;
            let class = classes
                .iter()
                .find(|class| class.name == contents.label.class)?;
            let unzeroed = contents.unzeroed();
            let is_due = !unzeroed.is_empty() && contents.space.zeroing != Zeroing::Fails;
            is_due.then(|| Next {
                drive: DriveRef::from(&drive.facts),
                unzeroed,
                may_write: class.raw_space == RawSpace::Zeroed,
            })
        })
        .collect()
}

impl Volumes {
    /// Returns the kind of space that raw volumes of a class get.
    pub(super) fn raw_space_of(&self, class: &str) -> RawSpace {
        let mut classes = self.node.config().classes.iter();
        let class = classes.find(|configured| configured.name == class);
        class.map_or_else(RawSpace::default, |class| class.raw_space)
    }

    /// Records that a call needs space that is not zeroed yet, which is then zeroed first. Reads the drive again, since
    /// it may have been claimed for the call.
    pub(super) async fn want_zeroed(&self, who: &str, id: &DriveId, error: &RunError<LayoutError>) {
        if let RunError::Job(LayoutError::NotZeroed { runs, .. }) = error {
            let wanted = (id.clone(), runs.clone());
            let mut all = self.inner.wanted.all();
            // Entries of calls that were never repeated.
            if all.len() >= MOST_WANTED {
                all.clear();
            }
            all.insert(who.to_owned(), wanted);
        }
        let snapshot = self.node.inventory().current();
        if let Some(drive) = snapshot.drives.get(id) {
            self.reread_drive(&DriveRef::from(&drive.facts)).await;
        }
    }

    /// Reads a claimed drive, and publishes its contents.
    pub(super) async fn reread_drive(&self, drive: &DriveRef) {
        let job = ReadDrive {
            drive: drive.clone(),
            repair: false,
        };
        match self
            .node
            .run((&drive.id, Slot::Foreground), job, DEADLINE)
            .await
        {
            Ok(contents) => {
                self.node.inventory().put_contents(&drive.id, contents);
            }
            // The next scan reads it.
            Err(error) => {
                tracing::debug!(drive = %drive.id, error = %drivebay_model::cause::chain(&error), "drive not read again");
            }
        }
    }

    /// Zeroes free space until stopped.
    pub async fn zero_all(&self, stop: CancellationToken) {
        let mut snapshots = self.node.inventory().subscribe();
        let mut busy: BTreeSet<DriveId> = BTreeSet::new();
        // Unzeroed extents when there was nothing more to do: where zeros must not be written.
        let mut left: BTreeMap<DriveId, Vec<Extent>> = BTreeMap::new();
        let mut failed: BTreeMap<DriveId, Instant> = BTreeMap::new();
        let mut tasks: Tasks<DriveId, Result<Vec<Extent>, ()>> = Tasks::default();
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let now = Instant::now();
            failed.retain(|_, until| *until > now);
            for next in waiting(&snapshot, &self.node.config().classes) {
                let id = next.drive.id.clone();
                if left.get(&id) == Some(&next.unzeroed)
                    || failed.contains_key(&id)
                    || !busy.insert(id.clone())
                {
                    continue;
                }
                let (this, stop) = (self.clone(), stop.clone());
                tasks.spawn(id, async move {
                    tokio::select! {
                        result = this.zero_one(next) => result,
                        () = stop.cancelled() => Err(()),
                    }
                });
            }
            let retry = failed.values().min().copied();
            tokio::select! {
                () = stop.cancelled() => return,
                changed = snapshots.changed() => if changed.is_err() { return },
                () = sleep_until(retry.unwrap_or(now)), if retry.is_some() => {}
                Some((drive, ended)) = tasks.next() => {
                    busy.remove(&drive);
                    match ended {
                        Some(Ok(unzeroed)) => {
                            left.insert(drive, unzeroed);
                        }
                        _ => {
                            failed.insert(drive, Instant::now() + RETRY);
                        }
                    }
                },
            }
        }
    }

    /// Zeroes all free space of a drive. Returns the extents that are still not zeroed.
    async fn zero_one(&self, next: Next) -> Result<Vec<Extent>, ()> {
        let Next {
            drive,
            unzeroed,
            may_write,
        } = next;
        loop {
            let job = ZeroStep {
                drive: drive.clone(),
                first: self.inner.wanted.of(&drive.id),
                may_write,
                budget_ms: BUDGET.as_millis() as u64,
            };
            let begun = Instant::now();
            let done = self
                .node
                .run((&drive.id, Slot::Background), job, DEADLINE)
                .await;
            let progress = done.map_err(|error| {
                tracing::warn!(drive = %drive.id, error = %drivebay_model::cause::chain(&error), "zeroing of free space failed; will retry");
            })?;
            if let Some(contents) = progress.ended {
                let left = contents.unzeroed();
                self.node.inventory().put_contents(&drive.id, contents);
                tracing::info!(drive = %drive.id, bytes = runs::bytes(&unzeroed), left = runs::bytes(&left), "free space zeroed");
                return Ok(left);
            }
            // Calls that wait for the drive's lock get it between two steps.
            let took = begun.elapsed();
            let limit = self.node.config().erase_bytes_per_second;
            // The limit applies to writes.
            let limit = limit.filter(|_| progress.written);
            let pause = rest(progress.zeroed_bytes, took, limit).max(took);
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{
        MIB, Space,
        samples::{contents, drive},
    };

    #[test]
    fn free_space_of_claimed_drives_is_zeroed_unless_it_is_or_the_drive_does_not_keep_zeros() {
        let class = |raw_space| ClassConfig {
            raw_space,
            ..drivebay_model::samples::class("bulk")
        };
        let due = |state, zeroed: &[Extent], zeroing, raw_space| {
            let mut held = contents(9, 1, vec![], 64 * MIB);
            held.space = Space {
                zeroed: zeroed.to_vec(),
                zeroing,
            };
            let mut snapshot = Snapshot::default();
            let on = drive("sda", state, Some(held));
            snapshot.drives.insert(on.id.clone(), on);
            let next = waiting(&snapshot, &[class(raw_space)]).into_iter().next();
            next.map(|next| (runs::bytes(&next.unzeroed), next.may_write))
        };
        let claimed = DriveState::Claimed;
        let (command, zeroed) = (Zeroing::Command, RawSpace::Zeroed);
        assert_eq!(due(claimed, &[], command, zeroed), Some((64 * MIB, true)));
        let sampled = due(claimed, &[], command, RawSpace::Sampled);
        assert_eq!(sampled, Some((64 * MIB, false)));
        let all = contents(9, 1, vec![], 64 * MIB).free;
        assert_eq!(due(claimed, &all, command, zeroed), None);
        assert_eq!(due(claimed, &[], Zeroing::Fails, zeroed), None);
        assert_eq!(due(DriveState::Rejected, &[], command, zeroed), None);
    }
}
