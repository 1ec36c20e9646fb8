//! New volumes that get the bytes of a snapshot or of another volume.
//!
//! The record of such a volume says what it is from its creation on (`PlaceState::is_filling`), so that its copy goes on after a restart
//! from what the drives say. `original` is what can be copied and `next` what is to be done now, both pure; `fill` copies; `run` is the
//! task that does it. Nothing is kept in files.

mod fill;
mod next;
mod original;
mod run;

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

use super::{VolumeError, Volumes};
use drivebay_model::{
    CopySource, DriveId, Volume, VolumeState,
    units::{human_duration, human_size},
};

/// A creation that is a copy is answered within this if it is made by then; below the deadline of every caller.
const ANSWER: Duration = Duration::from_secs(5);

/// Copies of a node: what goes on, and what came of it.
#[derive(Debug, Default)]
pub(super) struct Copies {
    running: Mutex<BTreeMap<Uuid, Running>>,
    /// Why volumes could not be made, by name, until a repeat of the creation was answered with it.
    failed: Mutex<BTreeMap<String, String>>,
    /// Volumes that are copied without a snapshot: who begins to use one is noticed.
    reading: Mutex<BTreeSet<Uuid>>,
    /// Volumes that are deleted: what is copied to them is ended.
    ending: Mutex<BTreeSet<Uuid>>,
    /// Volumes that a task works on.
    busy: watch::Sender<BTreeSet<Uuid>>,
    news: Notify,
}

/// A step takes about a second, and its flush may take longer. What goes on after that is erased later.
const END: Duration = Duration::from_secs(20);

/// A copy that is being worked on.
#[derive(Debug, Clone, Default)]
struct Running {
    done_bytes: u64,
    total_bytes: u64,
    bytes_per_second: u64,
    /// What is on the target is of this agent's last attempt, or of none.
    is_fresh: bool,
    /// What it waits for, or why the last attempt failed; empty: nothing.
    waits_for: String,
    /// Attempts that failed one after the other.
    failures: u32,
    /// It is left alone until then.
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
        match self.eta_seconds() {
            0 => format!("{percent} % of {all}"),
            left => format!(
                "{percent} % of {all}, about {} left",
                human_duration(Duration::from_secs(left))
            ),
        }
    }
}

/// A copy and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStatus {
    pub uuid: Uuid,
    pub name: String,
    pub source: Option<CopySource>,
    pub from: Option<DriveId>,
    pub to: DriveId,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// 0: not known.
    pub bytes_per_second: u64,
    pub eta_seconds: u64,
    /// What it waits for, or why the last attempt failed; empty: nothing.
    pub waits_for: String,
}

/// Nothing is copied to the volume.
struct Stopped<'a> {
    copies: &'a Copies,
    uuid: Uuid,
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        lock(&self.copies.ending).remove(&self.uuid);
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

    /// A volume was made to be filled: nothing is in it yet.
    pub(super) fn begin(&self, uuid: Uuid) {
        self.change(uuid, |running| running.is_fresh = true);
    }

    /// Ends what is copied to a volume, and lets nothing more be copied to it until the answer is dropped.
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

    /// Volumes that are read just now, and whose use must be noticed.
    pub(super) fn is_reading(&self, uuid: &Uuid) -> bool {
        lock(&self.reading).contains(uuid)
    }

    /// Why the volume of this name could not be made; answered once.
    pub(super) fn take_failure(&self, name: &str) -> Option<VolumeError> {
        let why = lock(&self.failed).remove(name)?;
        Some(VolumeError::NotCopied {
            name: name.to_owned(),
            why,
        })
    }

    /// Volumes that are left alone now, and when the first of them is not any more.
    fn resting(&self, now: Instant) -> (BTreeSet<Uuid>, Option<Instant>) {
        let running = lock(&self.running);
        let resting = running.iter().filter_map(|(uuid, running)| {
            let until = running.rest_until.filter(|until| *until > now)?;
            Some((*uuid, until))
        });
        let resting: Vec<(Uuid, Instant)> = resting.collect();
        let first = resting.iter().map(|(_, until)| *until).min();
        (resting.into_iter().map(|(uuid, _)| uuid).collect(), first)
    }
}

impl Volumes {
    /// What came of a volume that is made as a copy: the volume with the revision that shows it, as soon as it is complete.
    ///
    /// # Errors
    /// `Copying` with its progress when that takes longer than a few seconds; `NotCopied` when it cannot be made.
    pub(super) async fn copied(
        &self,
        name: &str,
        uuid: Uuid,
    ) -> Result<(Volume, u64), VolumeError> {
        let copies = &self.inner.copies;
        copies.news.notify_one();
        let mut snapshots = self.node.inventory().subscribe();
        let until = Instant::now() + ANSWER;
        loop {
            let now = snapshots.borrow_and_update().clone();
            match now.volumes.get(&uuid) {
                Some(volume) if volume.state == VolumeState::Copying => {}
                Some(volume) if crate::inventory::assemble::is_live(volume.state) => {
                    return Ok((volume.clone(), now.revision));
                }
                _ => {
                    let why = || VolumeError::NotCopied {
                        name: name.to_owned(),
                        why: "it was deleted meanwhile".to_owned(),
                    };
                    return Err(copies.take_failure(name).unwrap_or_else(why));
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

    /// The copies that go on, by name. Costs nothing.
    pub fn list_copies(&self) -> Vec<CopyStatus> {
        let current = self.node.inventory().current();
        let copying = current.volumes.values();
        let copying = copying.filter(|volume| volume.state == VolumeState::Copying);
        let mut all: Vec<CopyStatus> = copying
            .map(|volume| {
                let record = &volume.placed.record;
                let running = self.inner.copies.running(volume.uuid);
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
            })
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::GIB;

    #[test]
    fn progress_says_how_far_it_is_or_what_it_waits_for() {
        let mut running = Running::default();
        assert_eq!(running.progress(), "it has just begun");
        running.total_bytes = 10 * GIB;
        running.done_bytes = 4 * GIB;
        assert_eq!(running.progress(), "40 % of 10 GiB");
        running.bytes_per_second = GIB / 10;
        assert_eq!(running.progress(), "40 % of 10 GiB, about 1m left");
        running.waits_for = "volume x is in use".into();
        assert_eq!(running.progress(), "volume x is in use");
    }
}
