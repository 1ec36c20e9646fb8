//! The inventory: one immutable snapshot, published through a watch; readers never touch hardware.
//!
//! `assemble` derives volumes and class totals from what is known of drives, purely; `delta` says
//! what changed between two snapshots; `wire` turns them into the agent protocol.

mod advice;
pub mod assemble;
pub mod delta;
pub mod layouts;
pub mod mount_view;
mod moving;
mod places;
pub(crate) use moving::{can_be_copied, takes_copy, takes_no_copy};
pub(crate) use places::is_reachable;
pub mod present;
mod quarantined;
mod since;
pub mod unscanned;
pub mod wire;
mod zeroing;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;
use uuid::Uuid;

use self::{mount_view::MountView, present::Observed, unscanned::Unscanned};
pub use self::{moving::Attempt, since::Earlier};
use crate::state::{self, moves::MoveRecord};
use drivebay_config::HealthConfig;
use drivebay_evidence::{self as evidence, HealthRegistry, registry::Source};
use drivebay_model::{
    Checked, ClassConfig, Contents, DriveId, DriveState, Finding, Override, Placed, Snapshot,
    condition::Condition, snapshot::Erasing,
};
use drivebay_sys::{clock::unix_seconds, host_udev::HostUdev};

/// What a snapshot is derived from. Kept by the single writer behind a lock that is never held
/// across an await.
#[derive(Debug, Default, Clone)]
pub struct Known {
    /// Drives that are present.
    pub drives: BTreeMap<DriveId, Observed>,
    /// Claimed drives as they were last seen.
    pub remembered: state::Known,
    /// Those of them that this agent has neither scanned nor seen to be missing.
    pub unscanned: BTreeMap<DriveId, Unscanned>,
    /// Acknowledged deletions.
    pub tombstones: state::Tombstones,
    /// What is mounted or published here.
    pub mounts: MountView,
    /// What the last sample of a volume showed to be wrong.
    pub conditions: BTreeMap<Uuid, Vec<Condition>>,
    /// How far erasing is, by volume.
    pub erasing: BTreeMap<Uuid, Erasing>,
    /// Drives whose worker hangs, and since which step.
    pub stuck: BTreeMap<DriveId, String>,
    /// What was seen of the health of drives and volumes.
    pub health: HealthRegistry,
    /// What is known from checks of volumes' filesystems.
    pub checked: BTreeMap<Uuid, Checked>,
    /// Moves that were asked for.
    pub moves: BTreeMap<Uuid, MoveRecord>,
    /// Their last attempts; those that were not begun, or ended without a failure, are not here.
    pub attempts: BTreeMap<Uuid, Attempt>,
    /// Volumes whose move is being completed: what their drives say changes just now.
    pub completing: BTreeSet<Uuid>,
    /// Bytes that are used of the stores of snapshots, rounded to whole hundredths of a store.
    pub snapshot_usage: BTreeMap<Uuid, u64>,
    /// How copies to new volumes stand: what they wait for, or why the last attempt failed; empty: they go on.
    pub copies: BTreeMap<Uuid, String>,
    /// Volumes with a mount that was detached and may live on.
    pub detached: BTreeSet<Uuid>,
    /// Volumes whose quarantine is over, and that somebody holds: the last attempt to delete them found it.
    pub kept_in_use: BTreeSet<Uuid>,
    /// Verdicts that an operator decides.
    pub overrides: Vec<Override>,
    /// How drives are polled; None: none is.
    pub polls: Option<HealthConfig>,
    /// Since when an earlier agent knew what is found now.
    pub earlier: Earlier,
    /// Of the last change, seconds since 1970.
    pub now: u64,
    /// The host's udev; None when it cannot be seen from here.
    pub host_udev: Option<HostUdev>,
    /// Why this host cannot read drives of ours that are here, as the last scan of one of them found.
    pub host_trouble: Option<String>,
    /// What is wrong with the agent's own state files.
    pub state_files: Vec<Finding>,
    /// Why layout `lvm` cannot be used on this host; None when it can, or no class may want it.
    pub lvm_unavailable: Option<String>,
    /// The first scan is complete.
    pub ready: bool,
}

impl Known {
    /// Whether present devices have this identity, and keys of their own since there are several.
    fn has_twins(&self, id: &DriveId) -> bool {
        let mut drives = self.drives.iter();
        drives.any(|(key, drive)| drive.facts.id == *id && key != id && !drive.facts.hidden)
    }
}

/// Publishes snapshots.
#[derive(Debug)]
pub struct Inventory {
    known: Mutex<Known>,
    classes: Vec<ClassConfig>,
    quarantine: Duration,
    sender: watch::Sender<Arc<Snapshot>>,
    /// Unix seconds of the last scan that was complete; 0: none yet.
    scanned_at: AtomicU64,
}

impl Inventory {
    /// An empty, not yet ready inventory of a node with these classes.
    /// `quarantine`: how long a volume that was deleted while its drive was away is kept after the drive's return.
    pub fn new(classes: Vec<ClassConfig>, quarantine: Duration) -> Self {
        Self {
            known: Mutex::default(),
            classes,
            quarantine,
            sender: watch::Sender::new(Arc::default()),
            scanned_at: AtomicU64::new(0),
        }
    }

    /// The snapshot of now.
    pub fn current(&self) -> Arc<Snapshot> {
        self.sender.borrow().clone()
    }

    /// A scan has just been completed.
    pub fn scanned(&self) {
        self.scanned_at.store(unix_seconds(), Ordering::Relaxed);
    }

    /// When the last scan was completed, unix seconds; None before the first.
    pub fn scanned_at(&self) -> Option<u64> {
        match self.scanned_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(at),
        }
    }

    /// Follows the snapshots.
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.sender.subscribe()
    }

    /// Changes what is known and publishes the result, if it is another one. Answers the revision
    /// that shows the change.
    pub fn update<T>(&self, change: impl FnOnce(&mut Known) -> T) -> u64 {
        self.age(change, Duration::ZERO).0
    }

    /// Like `update`, after time has passed: counts it into quarantines and answers the volumes whose
    /// quarantine is over, with the drive each is on.
    pub fn age<T>(
        &self,
        change: impl FnOnce(&mut Known) -> T,
        elapsed: Duration,
    ) -> (u64, Vec<(DriveId, Uuid)>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut known);
        known.now = unix_seconds();
        let shown = self.sender.borrow().clone();
        if known.ready {
            let gone = shown.drives.iter().filter(|(id, drive)| {
                drive.state == DriveState::Claimed
                    && !known.drives.contains_key(*id)
                    && !known.has_twins(id)
            });
            let gone: Vec<&DriveId> = gone.map(|(id, _)| id).collect();
            for id in gone {
                known.health.went_away(id, evidence::now());
            }
        }
        let drives = known.drives.iter();
        let placed = drives.filter(|(_, drive)| !drive.facts.identity_is_stable);
        let placed: Vec<(DriveId, u64)> = placed
            .map(|(id, drive)| (id.clone(), drive.facts.diskseq))
            .collect();
        for (id, diskseq) in placed {
            known.health.appeared(&id, diskseq);
        }
        let drives = present::derive(&known, &self.classes);
        let merged = assemble::remember(&known, &drives, known.now, elapsed, self.quarantine);
        // Also before the first scan is complete: a volume may be deleted and erased on a drive that was scanned, while another
        // one hangs. Of a drive that was not scanned nothing is learned, and nothing forgotten.
        known.remembered.clone_from(&merged.known);
        known.tombstones.clone_from(&merged.tombstones);
        let mut next = assemble::assemble(&known, drives, &merged, &self.classes);
        let due = if known.ready { merged.due } else { Vec::new() };
        next.revision = shown.revision;
        since::stamp(&shown, &known.earlier, &mut next, known.now);
        if next == *shown {
            return (shown.revision, due);
        }
        next.revision = shown.revision + 1;
        let revision = next.revision;
        self.sender.send_replace(Arc::new(next));
        (revision, due)
    }

    /// Whether the mount at this path is read-only by its own flag.
    pub fn is_mounted_read_only(&self, path: &Path) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.mounts.is_read_only(path)
    }

    /// Whether this volume is mounted at this path, or its device bound there.
    pub fn is_mounted_at(&self, placed: &Placed, path: &Path) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.mounts.is_at(placed, path)
    }

    /// Whether a step on this drive hangs.
    pub fn is_stuck(&self, drive: &DriveId) -> bool {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stuck
            .contains_key(drive)
    }

    /// Whether a mount of this volume was detached.
    pub fn is_detached(&self, uuid: Uuid) -> bool {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .detached
            .contains(&uuid)
    }

    /// A drive that the config selects, that gives no answer, and of which nothing is known: a volume that
    /// is not known either may be on it. In words; None when every such drive is known.
    pub fn stranger(&self) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        assemble::stranger(&known).map(|drive| format!("drive {drive} cannot be read"))
    }

    /// A remembered drive that was not scanned since the agent's start, in words: a volume that was made shortly before that may be
    /// on it, and is in no list.
    pub fn unscanned(&self) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let first = known.unscanned.keys().next()?;
        Some(format!("drive {first} has not been scanned yet"))
    }

    /// What is to be remembered of drives and deletions.
    pub fn remembered(&self) -> (state::Known, state::Tombstones) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (known.remembered.clone(), known.tombstones.clone())
    }

    /// Volumes that are deleted, and that their drive may still have.
    pub fn deleted(&self) -> Vec<Uuid> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.tombstones.open().copied().collect()
    }

    /// What is not known of an earlier creation of this name.
    pub fn doubt(&self, name: &str) -> Option<state::Doubt> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remembered.in_doubt.get(name).cloned()
    }

    /// Notes what a sample of a volume showed. Costs nothing when nothing changed, so that a sample's
    /// cost does not grow with the number of other volumes.
    pub fn put_conditions(&self, uuid: Uuid, found: Vec<Condition>) {
        let same = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.conditions.get(&uuid).map_or(&[][..], Vec::as_slice) == found.as_slice()
        };
        if same {
            return;
        }
        self.update(|known| {
            if found.is_empty() {
                known.conditions.remove(&uuid);
            } else {
                known.conditions.insert(uuid, found);
            }
        });
    }

    /// Notes how an attempt at a move stands; None: nothing of it is to be known. Costs nothing when nothing changed.
    pub fn put_attempt(&self, uuid: Uuid, attempt: Option<Attempt>) {
        let is_same = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.attempts.get(&uuid) == attempt.as_ref()
        };
        if !is_same {
            self.update(|known| match attempt {
                Some(attempt) => known.attempts.insert(uuid, attempt),
                None => known.attempts.remove(&uuid),
            });
        }
    }

    /// Since when what is found is so, for the next agent.
    pub fn since(&self) -> Earlier {
        let shown = self.current();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.earlier.and_now(&shown, unix_seconds())
    }

    /// Looks at what was seen of health.
    pub fn health<T>(&self, look: impl FnOnce(&HealthRegistry) -> T) -> T {
        look(
            &self
                .known
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .health,
        )
    }

    /// What one source of evidence finds of these volumes: those that are not in `wrong` have no condition by this source. A
    /// change is published, and logged by who follows the snapshots; no change costs next to nothing.
    pub fn record_conditions(
        &self,
        source: Source,
        examined: impl Iterator<Item = Uuid>,
        mut wrong: BTreeMap<Uuid, Vec<Condition>>,
    ) {
        let news: Vec<(Uuid, Vec<Condition>)> = self.health(|registry| {
            let seen = examined.map(|volume| (volume, wrong.remove(&volume).unwrap_or_default()));
            seen.filter(|(volume, conditions)| {
                registry.seen(*volume, source) != conditions.as_slice()
            })
            .collect()
        });
        if news.is_empty() {
            return;
        }
        self.update(|known| {
            for (volume, conditions) in news {
                known.health.record(volume, source, conditions);
            }
        });
    }

    /// The volume was mounted just now: what its filesystem said before that is over.
    pub fn mounted_afresh(&self, uuid: Uuid) {
        self.update(|known| known.health.mounted_afresh(uuid));
    }

    /// Takes the contents that a job answered with. An older look at the same label never replaces a newer one: jobs of different
    /// slots may answer out of order. What is judged of the drive stays.
    pub fn put_contents(&self, drive: &DriveId, contents: Contents) -> u64 {
        self.update(|known| {
            if let Some(known) = known.drives.get_mut(drive)
                && is_newer(known.contents.as_ref(), &contents)
            {
                known.contents = Some(contents);
            }
        })
    }
}

/// Whether `new` may replace `old`: another label, or at least as late a look at the same one.
pub fn is_newer(old: Option<&Contents>, new: &Contents) -> bool {
    old.is_none_or(|old| {
        old.label.drive_uuid != new.label.drive_uuid || new.sequence >= old.sequence
    })
}

#[cfg(test)]
#[path = "learning_tests.rs"]
mod tests;
