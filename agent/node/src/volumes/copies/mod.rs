//! New volumes that are created as copies of a snapshot or of another volume.
//!
//! The record of such a volume names its source from its creation on (`PlaceState::is_filling`), so that the copy continues after a restart
//! from what is on the drives. `original` decides what can be copied and `next` which actions are due, both pure; `fill` copies,
//! `unreadable` handles blocks that cannot be read; `run` is the background task; `failed` keeps why copies failed. Nothing is persisted in
//! files.

mod failed;
mod fill;
mod next;
mod original;
mod run;
mod unreadable;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use uuid::Uuid;

pub(super) use original::{Original, original};

use self::failed::Failed;
use super::{VolumeError, Volumes, rest::resting};
use drivebay_model::{
    CopySource, DriveId, Volume, VolumeState,
    units::{human_duration, human_size},
};

/// Longest time that the creation of a copy waits for its completion before it errs with `Copying`; below the deadline of every caller.
const ANSWER: Duration = Duration::from_secs(5);

/// Copies of a node: those in progress, and the failures that are kept.
#[derive(Debug, Default)]
pub(super) struct Copies {
    running: Mutex<BTreeMap<Uuid, Running>>,
    failed: Mutex<Failed>,
    /// Volumes that are being deleted: nothing more is copied to them.
    ending: Mutex<BTreeSet<Uuid>>,
    /// Volumes to fill, and snapshots to delete, that a task is working on.
    busy: watch::Sender<BTreeSet<Uuid>>,
    news: Notify,
}

/// Longest time that a deletion waits for a running step, which takes about a second plus its flush. The space of a copy that continues
/// after that is erased when it has ended.
const END: Duration = Duration::from_secs(20);

/// Progress of one copy, in memory only.
#[derive(Debug, Clone, Default)]
struct Running {
    done_bytes: u64,
    total_bytes: u64,
    bytes_per_second: u64,
    /// Bytes that could not be read so far; they are zeros in the copy.
    unreadable_bytes: u64,
    /// True if the target holds nothing to compare with: all of it is written.
    is_fresh: bool,
    /// Reason for which it waits, or for which the last attempt failed; empty if there is none.
    waits_for: String,
    /// Number of consecutive failed attempts.
    failures: u32,
    /// Time before which no further attempt is made.
    rest_until: Option<Instant>,
}

impl Running {
    fn eta_seconds(&self) -> u64 {
        let left = self.total_bytes.saturating_sub(self.done_bytes);
        left.checked_div(self.bytes_per_second).unwrap_or(0)
    }

    fn progress(&self) -> String {
        if !self.waits_for.is_empty() {
            return self.waits_for.clone();
        }
        if self.total_bytes == 0 {
            return "it has just begun".to_owned();
        }
        let percent = u128::from(self.done_bytes) * 100 / u128::from(self.total_bytes);
        let all = human_size(self.total_bytes);
        let left = match self.eta_seconds() {
            0 => String::new(),
            left => format!(", about {} left", human_duration(Duration::from_secs(left))),
        };
        let unreadable = match self.unreadable_bytes {
            0 => String::new(),
            bytes => format!("; {} did not read and are zeros in it", human_size(bytes)),
        };
        format!("{percent} % of {all}{left}{unreadable}")
    }
}

/// A copy in progress, or one that failed, with its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStatus {
    pub uuid: Uuid,
    pub name: String,
    pub source: Option<CopySource>,
    pub from: Option<DriveId>,
    pub to: DriveId,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Bytes per second; 0 if unknown.
    pub bytes_per_second: u64,
    pub eta_seconds: u64,
    /// Reason for which it waits, or for which the last attempt failed; empty if there is none.
    pub waits_for: String,
}

/// Guard: no step of a copy to the volume begins while this exists.
struct Stopped<'a> {
    copies: &'a Copies,
    uuid: Uuid,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        lock(&self.copies.ending).remove(&self.uuid);
        self.copies.news.notify_one();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Copies {
    fn running(&self, uuid: Uuid) -> Running {
        lock(&self.running).get(&uuid).cloned().unwrap_or_default()
    }

    fn change(&self, uuid: Uuid, change: impl FnOnce(&mut Running)) {
        change(lock(&self.running).entry(uuid).or_default());
    }

    /// Registers a volume that was created to be filled and holds no data yet.
    pub(super) fn begin(&self, uuid: Uuid) {
        self.change(uuid, |running| running.is_fresh = true);
    }

    /// Stops copying to a volume, and prevents it until the returned guard is dropped. Waits at most `END` for a running step.
    async fn stop(&self, uuid: Uuid) -> Stopped<'_> {
        lock(&self.ending).insert(uuid);
        let stopped = Stopped { copies: self, uuid };
        let mut busy = self.busy.subscribe();
        let over = busy.wait_for(|busy| !busy.contains(&uuid));
        if tokio::time::timeout(END, over).await.is_err() {
            tracing::warn!(volume = %uuid, "a copy that is deleted goes on; its space is erased when that has ended");
        }
        stopped
    }

    fn end(&self, uuid: Uuid) {
        lock(&self.running).remove(&uuid);
    }

    /// Returns the state of the copy to this volume, from its record and from the progress in memory.
    fn status(&self, volume: &Volume) -> CopyStatus {
        let record = &volume.placed.record;
        let running = self.running(volume.uuid);
        CopyStatus {
            uuid: volume.uuid,
            name: record.name.clone(),
            source: CopySource::of(&record.parameters),
            from: record.place.peer().map(|peer| peer.drive.clone()),
            to: volume.drive.clone(),
            done_bytes: running.done_bytes,
            total_bytes: running.total_bytes.max(record.extent.len),
            bytes_per_second: running.bytes_per_second,
            eta_seconds: running.eta_seconds(),
            waits_for: running.waits_for,
        }
    }

    /// Removes the failure that is kept for this name, and returns it if that copy had the source `of`.
    pub(super) fn take_failure(&self, name: &str, of: Option<CopySource>) -> Option<VolumeError> {
        let failed = lock(&self.failed).take(name)?;
        (failed.source == of).then_some(VolumeError::NotCopied {
            name: failed.name,
            why: failed.waits_for,
        })
    }

    /// Returns the volumes whose next attempt is delayed, and when the first delay ends.
    fn resting(&self, now: Instant) -> (BTreeSet<Uuid>, Option<Instant>) {
        let running = lock(&self.running);
        let rests = running.iter();
        resting(
            rests.map(|(uuid, running)| (*uuid, running.rest_until)),
            now,
        )
    }
}

impl Volumes {
    /// Waits for a volume that is created as a copy. Returns it once its record is complete, with the revision that shows it.
    ///
    /// # Errors
    /// `Copying` with its progress if it takes longer than `ANSWER`; `NotCopied` if it failed or was deleted.
    pub(super) async fn copied(
        &self,
        name: &str,
        uuid: Uuid,
        of: Option<CopySource>,
    ) -> Result<(Volume, u64), VolumeError> {
        let copies = &self.inner.copies;
        copies.news.notify_one();
        let mut snapshots = self.node.inventory().subscribe();
        let until = Instant::now() + ANSWER;
        loop {
            let now = snapshots.borrow_and_update().clone();
            let volume = now.volumes.get(&uuid);
            match volume.filter(|volume| crate::inventory::assemble::is_live(volume.state)) {
                // Also while its drive is missing.
                Some(volume) if volume.placed.record.place.is_filling() => {}
                Some(volume) => {
                    // The copy may have been completed before `begin` was called.
                    copies.end(uuid);
                    return Ok((volume.clone(), now.revision));
                }
                None => {
                    copies.end(uuid);
                    let why = || VolumeError::NotCopied {
                        name: name.to_owned(),
                        why: "it was deleted meanwhile".to_owned(),
                    };
                    return Err(copies.take_failure(name, of).unwrap_or_else(why));
                }
            }
            let changed = tokio::time::timeout_at(until, snapshots.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return Err(VolumeError::Copying {
                    uuid,
                    progress: copies.running(uuid).progress(),
                });
            }
        }
    }

    /// True if the volume is the source of an incomplete copy, and may be read without a snapshot: its use counts must be kept then.
    pub(super) fn is_copied_as_it_is(&self, original: Uuid) -> bool {
        let source = Some(CopySource::Volume(original));
        let current = self.node.inventory().current();
        current.volumes.values().any(|volume| {
            volume.state == VolumeState::Copying
                && CopySource::of(&volume.placed.record.parameters) == source
        })
    }

    /// Returns the copies in progress, by name. Does no I/O.
    pub fn list_copies(&self) -> Vec<CopyStatus> {
        let current = self.node.inventory().current();
        let copying = current.volumes.values();
        let copying = copying.filter(|volume| volume.state == VolumeState::Copying);
        let copies = &self.inner.copies;
        let mut all: Vec<CopyStatus> = copying.map(|volume| copies.status(volume)).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Returns the copies that failed permanently, by name; `waits_for` is the reason. Each is kept until a repeated creation has returned
    /// it, for a day at most. Does no I/O.
    pub fn failed_copies(&self) -> Vec<CopyStatus> {
        lock(&self.inner.copies.failed).all(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::GIB;

    #[test]
    fn progress_has_the_share_that_is_copied_or_the_reason_for_waiting() {
        let mut running = Running::default();
        assert_eq!(running.progress(), "it has just begun");
        running.total_bytes = 10 * GIB;
        running.done_bytes = 4 * GIB;
        assert_eq!(running.progress(), "40 % of 10 GiB");
        running.bytes_per_second = GIB / 10;
        assert_eq!(running.progress(), "40 % of 10 GiB, about 1m left");
        running.unreadable_bytes = 8192;
        assert_eq!(
            running.progress(),
            "40 % of 10 GiB, about 1m left; 8 KiB did not read and are zeros in it"
        );
        running.waits_for = "volume x is in use".into();
        assert_eq!(running.progress(), "volume x is in use");
    }
}
