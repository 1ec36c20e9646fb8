//! The inventory: one immutable snapshot, published through a watch; readers never touch hardware.
//!
//! `assemble` derives volumes and class totals from the known state of drives, purely; `delta` computes the changes
//! between two snapshots; `wire` converts both to the agent protocol.

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
mod unread;
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
    Checked, ClassConfig, Contents, DriveId, DriveState, Finding, Override, Peer, Placed,
    RunningCheck, Snapshot, condition::Condition, snapshot::Erasing,
};
use drivebay_sys::{clock::unix_seconds, host_udev::HostUdev};

/// State from which snapshots are derived. Kept by the single writer behind a lock that is never held across an await.
#[derive(Debug, Default, Clone)]
pub struct InventoryState {
    /// Present drives, by inventory key.
    pub drives: BTreeMap<DriveId, Observed>,
    /// Claimed drives as last seen.
    pub remembered: state::LastKnown,
    /// Claimed drives that this agent has neither scanned nor observed to be missing.
    pub unscanned: BTreeMap<DriveId, Unscanned>,
    pub tombstones: state::Tombstones,
    /// Mounts and publications of volumes on this node.
    pub mounts: MountView,
    /// Conditions shown by the last sample of each volume.
    pub conditions: BTreeMap<Uuid, Vec<Condition>>,
    /// Erase progress, by volume, or by erase guid of a deleted store.
    pub erasing: BTreeMap<Uuid, Erasing>,
    /// Drives whose worker is stuck, with the reason.
    pub stuck: BTreeMap<DriveId, String>,
    /// Health evidence of drives and volumes.
    pub health: HealthRegistry,
    /// Results of filesystem checks, by volume.
    pub checked: BTreeMap<Uuid, Checked>,
    /// Filesystem checks that run, by volume.
    pub checking: BTreeMap<Uuid, RunningCheck>,
    /// Requested moves, by volume.
    pub moves: BTreeMap<Uuid, MoveRecord>,
    /// Last attempts at moves, by volume. An attempt that has not begun, or ended without a failure, is absent.
    pub attempts: BTreeMap<Uuid, Attempt>,
    /// Volumes whose move is being completed: the records on their drives are changing.
    pub completing: BTreeSet<Uuid>,
    /// Used bytes of the stores of snapshots, rounded to whole hundredths of a store.
    pub snapshot_usage: BTreeMap<Uuid, u64>,
    /// State of copies to new volumes: the reason for waiting, or the error of the last attempt; empty while copying
    /// continues.
    pub copies: BTreeMap<Uuid, String>,
    /// Volumes with a detached mount, which may still exist.
    pub detached: BTreeSet<Uuid>,
    /// Volumes whose quarantine is over but that were in use at the last attempt to delete them.
    pub kept_in_use: BTreeSet<Uuid>,
    /// Verdicts set by an operator.
    pub overrides: Vec<Override>,
    /// Polling configuration; None: no drive is polled.
    pub polls: Option<HealthConfig>,
    /// Times since which an earlier agent recorded the present findings.
    pub earlier: Earlier,
    /// Time of the last change, in Unix seconds.
    pub now: u64,
    /// The host's udev; None when it cannot be read from here.
    pub host_udev: Option<HostUdev>,
    /// Reason for which this host cannot read present drives of this node, from the last scan of one of them.
    pub host_trouble: Option<String>,
    /// Findings about the agent's own state files.
    pub state_files: Vec<Finding>,
    /// Reason for which layout `lvm` cannot be used on this host; None when it can, or when no class may use it.
    pub lvm_unavailable: Option<String>,
    /// True once the first scan is complete.
    pub ready: bool,
}

impl InventoryState {
    /// True if present devices share this identity and therefore have keys of their own.
    fn has_twins(&self, id: &DriveId) -> bool {
        let mut drives = self.drives.iter();
        drives.any(|(key, drive)| drive.facts.id == *id && key != id && !drive.facts.hidden)
    }
}

/// Holds the known state, and publishes the snapshots derived from it.
#[derive(Debug)]
pub struct Inventory {
    state: Mutex<InventoryState>,
    classes: Vec<ClassConfig>,
    quarantine: Duration,
    sender: watch::Sender<Arc<Snapshot>>,
    /// Unix seconds of the last complete scan; 0: none yet.
    scanned_at: AtomicU64,
}

impl Inventory {
    /// Creates an inventory without drives, not yet ready, of a node with these classes. `quarantine`: time for which a
    /// volume that was deleted while its drive was missing is kept after the drive's return.
    pub fn new(classes: Vec<ClassConfig>, quarantine: Duration) -> Self {
        Self {
            state: Mutex::default(),
            classes,
            quarantine,
            sender: watch::Sender::new(Arc::default()),
            scanned_at: AtomicU64::new(0),
        }
    }

    /// Returns the current snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.sender.borrow().clone()
    }

    /// Records that a scan completed just now.
    pub fn scanned(&self) {
        self.scanned_at.store(unix_seconds(), Ordering::Relaxed);
    }

    /// Returns when the last scan completed, in Unix seconds; None before the first.
    pub fn scanned_at(&self) -> Option<u64> {
        match self.scanned_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(at),
        }
    }

    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.sender.subscribe()
    }

    /// Changes the known state, and publishes the resulting snapshot if it differs. Returns the revision that shows the
    /// change.
    pub fn update<T>(&self, change: impl FnOnce(&mut InventoryState) -> T) -> u64 {
        self.age(change, Duration::ZERO).0
    }

    /// Like `update`, after `elapsed` has passed: adds it to quarantines, and returns the volumes whose quarantine is
    /// over, with their drives. No volume is due before the first scan is complete.
    pub fn age<T>(
        &self,
        change: impl FnOnce(&mut InventoryState) -> T,
        elapsed: Duration,
    ) -> (u64, Vec<(DriveId, Uuid)>) {
        let mut inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut inventory_state);
        inventory_state.now = unix_seconds();
        let shown = self.sender.borrow().clone();
        if inventory_state.ready {
            let gone = shown.drives.iter().filter(|(id, drive)| {
                drive.state == DriveState::Claimed
                    && !inventory_state.drives.contains_key(*id)
                    && !inventory_state.has_twins(id)
            });
            let gone: Vec<&DriveId> = gone.map(|(id, _)| id).collect();
            for id in gone {
                inventory_state.health.went_away(id, evidence::now());
            }
        }
        let drives = inventory_state.drives.iter();
        let placed = drives.filter(|(_, drive)| !drive.facts.identity_is_stable);
        let placed: Vec<(DriveId, u64)> = placed
            .map(|(id, drive)| (id.clone(), drive.facts.diskseq))
            .collect();
        for (id, diskseq) in placed {
            inventory_state.health.appeared(&id, diskseq);
        }
        let drives = present::derive(&inventory_state, &self.classes);
        let merged = assemble::remember(
            &inventory_state,
            &drives,
            inventory_state.now,
            elapsed,
            self.quarantine,
        );
        // Also before the first scan is complete: a volume may be deleted and erased on a scanned drive while another
        // drive does not answer. The persisted state of drives that were not scanned stays unchanged.
        inventory_state.remembered.clone_from(&merged.last_known);
        inventory_state.tombstones.clone_from(&merged.tombstones);
        let mut next = assemble::assemble(&inventory_state, drives, &merged, &self.classes);
        let due = if inventory_state.ready {
            merged.due
        } else {
            Vec::new()
        };
        next.revision = shown.revision;
        since::stamp(
            &shown,
            &inventory_state.earlier,
            &mut next,
            inventory_state.now,
        );
        if next == *shown {
            return (shown.revision, due);
        }
        next.revision = shown.revision + 1;
        let revision = next.revision;
        self.sender.send_replace(Arc::new(next));
        (revision, due)
    }

    /// True if the mount at this path is read-only by its own flag.
    pub fn is_mounted_read_only(&self, path: &Path) -> bool {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        inventory_state.mounts.is_read_only(path)
    }

    /// True if this volume is mounted at this path, or its device is bound there.
    pub fn is_mounted_at(&self, placed: &Placed, path: &Path) -> bool {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        inventory_state.mounts.is_at(placed, path)
    }

    /// True if a step on this drive is stuck.
    pub fn is_stuck(&self, drive: &DriveId) -> bool {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stuck
            .contains_key(drive)
    }

    /// True if a mount of this volume was detached.
    pub fn is_detached(&self, uuid: Uuid) -> bool {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .detached
            .contains(&uuid)
    }

    /// Describes a drive that may hold unlisted volumes: a selected one that does not answer, or one whose label cannot
    /// be read, if it is not in the persisted state. None when there is no such drive.
    pub fn stranger(&self) -> Option<String> {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        assemble::stranger(&inventory_state).map(|drive| format!("drive {drive} cannot be read"))
    }

    /// Describes a drive of the persisted state that was not scanned since the agent's start: a volume created shortly
    /// before that may be on it and in no list. None when all were scanned.
    pub fn unscanned(&self) -> Option<String> {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = inventory_state.unscanned.keys().next()?;
        Some(format!("drive {first} has not been scanned yet"))
    }

    /// Returns drives of layout lvm that are missing or cannot be read, and have volumes that were not deleted: an
    /// unlisted snapshot may be on one of them.
    pub fn unread_snapshots(&self) -> Vec<Peer> {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = self.sender.borrow().clone();
        unread::unread_snapshots(
            &inventory_state.remembered,
            &inventory_state.tombstones,
            &shown,
        )
    }

    /// Returns the state of drives and deletions that is to be persisted.
    pub fn remembered(&self) -> (state::LastKnown, state::Tombstones) {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (
            inventory_state.remembered.clone(),
            inventory_state.tombstones.clone(),
        )
    }

    /// Returns deleted volumes that a drive may still have.
    pub fn deleted(&self) -> Vec<Uuid> {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        inventory_state.tombstones.open().copied().collect()
    }

    /// Returns the earlier creation of this name whose outcome is unknown, if there is one.
    pub fn doubt(&self, name: &str) -> Option<state::Doubt> {
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        inventory_state.remembered.in_doubt.get(name).cloned()
    }

    /// Records the conditions shown by a sample of a volume. Derives no snapshot when nothing changed, so that a
    /// sample's cost does not grow with the number of other volumes.
    pub fn put_conditions(&self, uuid: Uuid, conditions: Vec<Condition>) {
        let same = {
            let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            inventory_state
                .conditions
                .get(&uuid)
                .map_or(&[][..], Vec::as_slice)
                == conditions.as_slice()
        };
        if same {
            return;
        }
        self.update(|inventory_state| {
            if conditions.is_empty() {
                inventory_state.conditions.remove(&uuid);
            } else {
                inventory_state.conditions.insert(uuid, conditions);
            }
        });
    }

    /// Records the state of an attempt at a move; None removes it. Derives no snapshot when nothing changed.
    pub fn put_attempt(&self, uuid: Uuid, attempt: Option<Attempt>) {
        let is_same = {
            let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            inventory_state.attempts.get(&uuid) == attempt.as_ref()
        };
        if !is_same {
            self.update(|inventory_state| match attempt {
                Some(attempt) => inventory_state.attempts.insert(uuid, attempt),
                None => inventory_state.attempts.remove(&uuid),
            });
        }
    }

    /// Returns the times since which the present findings hold, to be persisted for the next agent.
    pub fn since(&self) -> Earlier {
        let shown = self.current();
        let inventory_state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        inventory_state.earlier.and_now(&shown, unix_seconds())
    }

    /// Calls `inspect` with the health registry, under the inventory's lock.
    pub fn health<T>(&self, inspect: impl FnOnce(&HealthRegistry) -> T) -> T {
        inspect(
            &self
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .health,
        )
    }

    /// Records the conditions that one source of evidence finds for the `examined` volumes: one that is not in `wrong`
    /// has no condition by this source. Publishes a snapshot only on a change; subscribers of the snapshots log it.
    pub fn record_conditions(
        &self,
        source: Source,
        examined: impl Iterator<Item = Uuid>,
        mut wrong: BTreeMap<Uuid, Vec<Condition>>,
    ) {
        let news: Vec<(Uuid, Vec<Condition>)> = self.health(|registry| {
            let results =
                examined.map(|volume| (volume, wrong.remove(&volume).unwrap_or_default()));
            results
                .filter(|(volume, conditions)| {
                    registry.conditions_of(*volume, source) != conditions.as_slice()
                })
                .collect()
        });
        if news.is_empty() {
            return;
        }
        self.update(|inventory_state| {
            for (volume, conditions) in news {
                inventory_state.health.record(volume, source, conditions);
            }
        });
    }

    /// Records that the volume was mounted just now: earlier conditions of its filesystem no longer apply.
    pub fn mounted_afresh(&self, uuid: Uuid) {
        self.update(|inventory_state| inventory_state.health.mounted_afresh(uuid));
    }

    /// Stores the contents that a job read, and returns the revision that shows them. Contents read earlier never
    /// replace later ones of the same label: jobs of different slots may finish out of order. The judgement of the
    /// drive stays.
    pub fn put_contents(&self, drive: &DriveId, contents: Contents) -> u64 {
        self.put_all_contents([(drive, contents)])
    }

    /// Like `put_contents`, for several drives: no revision shows only some of them.
    pub fn put_all_contents<'a>(
        &self,
        all: impl IntoIterator<Item = (&'a DriveId, Contents)>,
    ) -> u64 {
        self.update(|inventory_state| {
            for (drive, contents) in all {
                if let Some(observed) = inventory_state.drives.get_mut(drive)
                    && is_newer(observed.contents.as_ref(), &contents)
                {
                    observed.contents = Some(contents);
                }
            }
        })
    }
}

/// True if `new` replaces what was read of the drive before.
pub fn is_newer(old: Option<&Contents>, new: &Contents) -> bool {
    old.is_none_or(|old| new.replaces(old))
}

#[cfg(test)]
#[path = "learning_tests.rs"]
mod tests;
