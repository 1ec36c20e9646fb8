//! Creates and deletes snapshots of volumes. The properties of a snapshot are those read from its drive.
//!
//! `terms` builds their records. `group` takes several at one point in time: `found` finds groups in the inventory, and `suspend` suspends
//! their volumes. `watch` polls how full snapshots are, and `due` deletes expired and incomplete ones.

mod due;
mod found;
mod group;
mod suspend;
mod terms;
mod watch;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use drivebay_csi::new_snapshot::{NewSnapshot, Reserve};
use drivebay_proto::VolumeId;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

pub use group::TakenGroup;
use terms::{Terms, record, reserve_bytes};

use super::{Caller, VolumeError, Volumes, guard::Key, guard::VolumeGuard};
use drivebay_layout::jobs::{DropSnapshot, TakeSnapshot};
use drivebay_model::{
    CopySource, DriveRef, Layout, PlacedSnapshot, Record, RecordState, Snapshot, SnapshotRecord,
    Volume, VolumeState, volume_snapshot::INTERNAL,
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::{Lane, Slot, WorkerKey};

/// Limit for taking or deleting a snapshot. Taking one first writes everything that is pending for the volume.
const DEADLINE: Duration = Duration::from_secs(300);

/// Running jobs and counters of a node's snapshots.
#[derive(Debug, Default)]
pub(super) struct Ongoing {
    /// Jobs that suspend volumes, or repeat resuming them. No further volume is suspended once this is closed.
    suspending: TaskTracker,
    /// Number of snapshots deleted because they expired, since the agent's start.
    expired: AtomicU64,
}

impl Ongoing {
    /// Prevents that further volumes are suspended. Running jobs continue.
    pub(super) fn close(&self) {
        self.suspending.close();
    }
}

/// Refuses a name that the agent may give to snapshots of its own.
fn refuse_internal(name: &str) -> Result<(), VolumeError> {
    match name.starts_with(INTERNAL) {
        true => Err(VolumeError::Invalid {
            field: "name",
            why: "names that begin like this are the agent's own".to_owned(),
        }),
        false => Ok(()),
    }
}

/// A snapshot that was taken, or existed already.
#[derive(Debug, Clone)]
pub struct Taken {
    pub volume: Uuid,
    pub snapshot: PlacedSnapshot,
    /// Revision of the inventory that shows it.
    pub revision: u64,
}

/// Returns the first snapshot whose record matches, with its volume. Pure.
pub(super) fn find(
    snapshot: &Snapshot,
    is_it: impl Fn(&SnapshotRecord) -> bool,
) -> Option<(&Volume, &PlacedSnapshot)> {
    snapshot.volumes.values().find_map(|volume| {
        let mut all = volume.placed.snapshots.iter();
        Some((volume, all.find(|one| is_it(&one.record))?))
    })
}

/// True for an encrypted raw volume before its first stage: a copy of it would count as one that has lost its header. Pure.
fn is_without_header(record: &Record) -> bool {
    record.encryption().is_some() && record.state == RecordState::New
}

/// True if sectors of a volume are lost. Pure.
fn has_lost(record: &Record) -> bool {
    record.lost().is_some_and(|lost| !lost.is_empty())
}

/// Returns the volume that this snapshot is being copied to. Pure.
fn copied_to(snapshot: &Snapshot, uuid: Uuid) -> Option<Uuid> {
    let copies = |volume: &&Volume| {
        volume.state == VolumeState::Copying
            && CopySource::of(&volume.placed.record.parameters) == Some(CopySource::Snapshot(uuid))
    };
    let volume = snapshot.volumes.values().find(copies)?;
    Some(volume.uuid)
}

impl Volumes {
    /// Takes a snapshot of a volume, or returns the existing one of this name. It is durable when this returns.
    ///
    /// # Errors
    /// `SnapshotExists`: the name belongs to a snapshot of another volume, or to a member of a group. `NotTaken`: the volume cannot have a
    /// snapshot, or not now.
    pub async fn take_snapshot(&self, requested: NewSnapshot) -> Result<Taken, VolumeError> {
        let name = requested.name.clone();
        refuse_internal(&name)?;
        let (key, what) = (Key::Snapshot(name.clone()), format!("snapshot {name:?}"));
        self.changing(key, &what, |this| async move {
            this.after_first_scan(&name).await?;
            let volume = this.require_scanned(&requested.volume_id).await?;
            // Guarded before the name is looked up: the snapshot that has it may be being deleted.
            let held = this
                .guard_for_call(volume.uuid, &requested.volume_id, Caller::Mover)
                .await?;
            let current = this.node.inventory().current();
            if let Some((of, existing)) = find(&current, |record| record.name == name) {
                if of.uuid != volume.uuid || existing.record.group.is_some() {
                    return Err(VolumeError::SnapshotExists {
                        name,
                        volume: of.uuid,
                    });
                }
                return Ok(Taken {
                    volume: of.uuid,
                    snapshot: existing.clone(),
                    revision: current.revision,
                });
            }
            let terms = Terms {
                uuid: Uuid::new_v4(),
                name,
                reserve: requested.reserve,
                created_at: unix_seconds(),
                max_age: requested.max_age,
                group: None,
            };
            this.take_guarded(&held, &volume, &terms).await
        })
        .await
    }

    /// Takes a snapshot that does not expire, under the guard of its volume.
    pub(super) async fn take_held(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        name: &str,
        reserve: Reserve,
    ) -> Result<Taken, VolumeError> {
        let terms = Terms {
            uuid: Uuid::new_v4(),
            name: name.to_owned(),
            reserve,
            created_at: unix_seconds(),
            max_age: None,
            group: None,
        };
        self.take_guarded(held, volume, &terms).await
    }

    async fn take_guarded(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        terms: &Terms,
    ) -> Result<Taken, VolumeError> {
        self.call_off_check(held).await;
        let (drive, volume) = self.reach_settled(held, volume).await?;
        if let Some(why) = self.refusal(&volume) {
            return Err(VolumeError::NotTaken {
                uuid: volume.uuid,
                why: why.to_owned(),
            });
        }
        self.take_reached(&drive, &volume, terms).await
    }

    /// Returns why a reachable volume cannot have a snapshot, or not now; None if it can.
    fn refusal(&self, volume: &Volume) -> Option<&'static str> {
        if self.layout_of(volume) != Some(Layout::Lvm) {
            Some("its drive has layout partition; snapshots need layout lvm")
        } else if is_without_header(&volume.placed.record) {
            Some("it is encrypted, and its first stage makes its header; take it after that")
        } else if has_lost(&volume.placed.record) {
            Some(
                "sectors of it were lost when it moved, and would be data in a snapshot; restore or delete the files in them (`volume show` names them) first",
            )
        } else if self.inner.moves.is_requested(volume.uuid) {
            Some(
                "it is being moved to another drive; wait for that, or end it with `drivebay-agent volume move --cancel`",
            )
        } else {
            None
        }
    }

    /// Takes the snapshot on the volume's drive. Returns an existing snapshot of this name and volume unchanged.
    async fn take_reached(
        &self,
        drive: &DriveRef,
        volume: &Volume,
        terms: &Terms,
    ) -> Result<Taken, VolumeError> {
        let (uuid, name) = (volume.uuid, terms.name.as_str());
        let record = record(volume, terms);
        let job = TakeSnapshot {
            drive: drive.clone(),
            reserve_bytes: reserve_bytes(terms.reserve, record.size_bytes),
            record,
        };
        // Other calls for the drive do not wait for what is still to be written to the volume.
        let worker = WorkerKey::from((&volume.drive, Slot::Foreground)).on(Lane::Volume(uuid));
        let taken = match volume.placed.mapping_uuid() {
            Some(_) => self.run_suspending(worker, job, DEADLINE, None).await,
            None => self.node.run(worker, job, DEADLINE).await,
        };
        let taken = taken.inspect_err(|_| self.note_litter(&volume.drive))?;
        let inventory = self.node.inventory();
        let revision = inventory.put_contents(&volume.drive, taken.contents);
        let current = inventory.current();
        // Members of other groups may have the same name.
        let entry = find(&current, |record| record.uuid == terms.uuid).or_else(|| {
            find(&current, |record| {
                record.name == name && record.volume == uuid
            })
        });
        let (_, snapshot) = entry.ok_or_else(|| VolumeError::Internal {
            what: format!("snapshot {name:?} is not in the answer of its drive"),
        })?;
        tracing::info!(volume = %uuid, snapshot = %snapshot.record.uuid, name, reserve_bytes = snapshot.reserve_bytes, "snapshot taken");
        Ok(Taken {
            volume: uuid,
            snapshot: snapshot.clone(),
            revision,
        })
    }

    /// Returns the uuid of a snapshot or group from its id, after the first scan; None if the id is not one of this node.
    async fn own(&self, id: &str) -> Result<Option<Uuid>, VolumeError> {
        let parsed = id.parse::<VolumeId>().ok();
        let own = parsed.filter(|id| id.node == self.node.config().node_id);
        if own.is_some() {
            self.after_first_scan(id).await?;
        }
        Ok(own.map(|id| id.uuid))
    }

    /// Returns `revision` if a snapshot or group that is not in the inventory of that revision does not exist.
    ///
    /// # Errors
    /// `CannotTell` while a drive that may hold it is not read, or if the inventory has changed since: that drive may be back.
    fn gone(&self, id: &str, revision: u64) -> Result<u64, VolumeError> {
        let doubt = self.snapshot_doubt();
        let has_changed = self.node.inventory().current().revision != revision;
        let changed = || has_changed.then(|| "the inventory has just changed".to_owned());
        match doubt.or_else(changed) {
            Some(why) => Err(VolumeError::CannotTell {
                id: id.to_owned(),
                why,
            }),
            None => Ok(revision),
        }
    }

    /// Returns why a snapshot that is not in the inventory may exist; None if every drive that may hold one was read. Unlike a volume's, a
    /// snapshot's record is on its drive alone.
    pub(super) fn snapshot_doubt(&self) -> Option<String> {
        self.doubt().or_else(|| {
            let unread = self.node.inventory().unread_snapshots();
            let unread: Vec<String> = unread.iter().map(|one| one.drive.to_string()).collect();
            (!unread.is_empty()).then(|| {
                format!(
                    "drives with undeleted volumes are missing or cannot be read: {}; plug them in again, or delete their volumes",
                    unread.join(", ")
                )
            })
        })
    }

    /// Deletes a snapshot; succeeds if it does not exist, e.g. because it expired. Its space is erased in the background. Returns the
    /// inventory revision that shows it.
    ///
    /// # Errors
    /// `SnapshotInGroup`: a member is deleted only with its group. `SnapshotCopied`: it is being copied to a volume. `CannotTell`: it is
    /// not in the inventory, and a drive that may hold it is not read.
    pub async fn delete_snapshot(&self, id: &str) -> Result<u64, VolumeError> {
        let own = self.own(id).await?;
        let current = self.node.inventory().current();
        let Some(uuid) = own else {
            return Ok(current.revision);
        };
        let Some((volume, placed)) = find(&current, |record| record.uuid == uuid) else {
            return self.gone(id, current.revision);
        };
        if let Some(group) = &placed.record.group {
            return Err(VolumeError::SnapshotInGroup {
                uuid,
                name: group.name.clone(),
                group: format!("{}@{}", group.uuid, self.node.config().node_id),
            });
        }
        if let Some(volume) = copied_to(&current, uuid) {
            return Err(VolumeError::SnapshotCopied { uuid, volume });
        }
        let volume = volume.clone();
        self.changing_volume(volume.uuid, id, Caller::Mover, |this, held| async move {
            this.drop_held(&held, &volume, uuid).await
        })
        .await
    }

    /// Deletes all snapshots of a volume that was deleted, under its guard: they were deleted with it. One that is copied is an error.
    pub(super) async fn drop_all_held(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
    ) -> Result<(), VolumeError> {
        for one in &volume.placed.snapshots {
            self.drop_held(held, volume, one.record.uuid).await?;
        }
        Ok(())
    }

    /// Deletes a snapshot under the guard of its volume. Returns the inventory revision that shows it.
    pub(super) async fn drop_held(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        uuid: Uuid,
    ) -> Result<u64, VolumeError> {
        let (drive, volume) = self.reach_settled(held, volume).await?;
        let worker =
            WorkerKey::from((&volume.drive, Slot::Foreground)).on(Lane::Volume(volume.uuid));
        let dropped = self
            .node
            .run(worker, DropSnapshot { drive, uuid }, DEADLINE)
            .await
            // The volume may be left suspended until its drive is read.
            .inspect_err(|_| self.note_litter(&volume.drive))?;
        let revision = self
            .node
            .inventory()
            .put_contents(&volume.drive, dropped.contents);
        self.note_litter(&volume.drive);
        tracing::info!(volume = %volume.uuid, snapshot = %uuid, changed = dropped.changed, "snapshot deleted; its space is being erased");
        Ok(revision)
    }

    fn layout_of(&self, volume: &Volume) -> Option<Layout> {
        let current = self.node.inventory().current();
        let drive = current.drives.get(&volume.drive)?;
        drive.contents.as_ref().map(|contents| contents.layout)
    }

    /// Number of snapshots deleted because they expired, since the agent's start.
    pub fn expired_snapshots(&self) -> u64 {
        self.inner.snapshots.expired.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
#[path = "snapshots/unread_tests.rs"]
mod unread_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveId, DriveState, Peer, PlaceState, RecordState, samples};

    #[test]
    fn a_snapshot_is_found_by_its_record_and_one_that_is_copied_names_its_target() {
        let drive = samples::drive("sda", DriveState::Claimed, None);
        let mut placed = samples::placed(2, RecordState::Block);
        placed.snapshots = vec![samples::snapshot(1, 2)];
        let origin = samples::volume(&drive, placed);
        let mut snapshot = Snapshot::default();
        snapshot.volumes.insert(origin.uuid, origin.clone());
        let uuid = Uuid::from_u128(1);
        let entry = find(&snapshot, |record| record.uuid == uuid);
        assert_eq!(entry.map(|(volume, _)| volume.uuid), Some(origin.uuid));
        assert!(find(&snapshot, |record| record.name == "other").is_none());
        assert_eq!(copied_to(&snapshot, uuid), None);
        let mut copy = samples::placed(3, RecordState::Block);
        copy.record.place = PlaceState::Incoming {
            generation: 1,
            from: Peer {
                label: Uuid::from_u128(9),
                drive: DriveId("wwn-sda".into()),
            },
        };
        CopySource::Snapshot(uuid).keep(&mut copy.record.parameters);
        let copy = Volume {
            state: VolumeState::Copying,
            ..samples::volume(&drive, copy)
        };
        snapshot.volumes.insert(copy.uuid, copy.clone());
        assert_eq!(copied_to(&snapshot, uuid), Some(copy.uuid));
        assert_eq!(copied_to(&snapshot, Uuid::from_u128(4)), None);
    }
}
