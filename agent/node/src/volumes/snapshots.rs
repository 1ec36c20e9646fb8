//! Snapshots of volumes: taken and taken away. What is said of one is what was read from its drive.

mod watch;

use std::time::Duration;

use drivebay_csi::new_snapshot::{NewSnapshot, Reserve};
use drivebay_proto::VolumeId;
use uuid::Uuid;

use super::{Caller, VolumeError, Volumes, guard::Key, guard::VolumeGuard};
use drivebay_layout::jobs::{DropSnapshot, TakeSnapshot};
use drivebay_model::{
    CopySource, Layout, PlacedSnapshot, RecordState, Snapshot, SnapshotRecord, Volume, VolumeState,
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::{Lane, Slot, WorkerKey};

/// Longest that taking one may last: a moment, after everything that is still to be written to the volume.
const DEADLINE: Duration = Duration::from_secs(300);

/// Bytes that are asked for as the reserve of a snapshot of a volume of this size. Pure.
fn reserve_bytes(reserve: Reserve, volume_bytes: u64) -> u64 {
    let share = u128::from(volume_bytes) * u128::from(reserve.percent) / 100;
    let share = u64::try_from(share).unwrap_or(u64::MAX).max(reserve.least);
    reserve.most.map_or(share, |most| share.min(most))
}

/// A snapshot that was taken, or was there.
#[derive(Debug, Clone)]
pub struct Taken {
    /// Its volume.
    pub volume: Uuid,
    pub snapshot: PlacedSnapshot,
    /// The inventory that shows it.
    pub revision: u64,
}

/// The snapshot that is found, with its volume. Pure.
pub(super) fn find(
    snapshot: &Snapshot,
    is_it: impl Fn(&SnapshotRecord) -> bool,
) -> Option<(&Volume, &PlacedSnapshot)> {
    snapshot.volumes.values().find_map(|volume| {
        let mut all = volume.placed.snapshots.iter();
        Some((volume, all.find(|one| is_it(&one.record))?))
    })
}

/// The volume that this snapshot is being copied to. Pure.
fn copied_to(snapshot: &Snapshot, uuid: Uuid) -> Option<Uuid> {
    let copies = |volume: &&Volume| {
        volume.state == VolumeState::Copying
            && CopySource::of(&volume.placed.record.parameters) == Some(CopySource::Snapshot(uuid))
    };
    let volume = snapshot.volumes.values().find(copies)?;
    Some(volume.uuid)
}

impl Volumes {
    /// Takes a snapshot of a volume, or finds the one of this name. Durable when answered.
    pub async fn take_snapshot(&self, requested: NewSnapshot) -> Result<Taken, VolumeError> {
        let name = requested.name.clone();
        if name.starts_with(drivebay_model::volume_snapshot::INTERNAL) {
            return Err(VolumeError::Invalid {
                field: "name",
                why: "names that begin like this are the agent's own".to_owned(),
            });
        }
        let (key, what) = (Key::Snapshot(name.clone()), format!("snapshot {name:?}"));
        self.changing(key, &what, |this| async move {
            if let Err(why) = this.after_first_scan().await {
                return Err(VolumeError::CannotTell { id: name, why });
            }
            let volume = this.require_scanned(&requested.volume_id).await?;
            let current = this.node.inventory().current();
            if let Some((of, existing)) = find(&current, |record| record.name == name) {
                if of.uuid != volume.uuid {
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
            let held = this.guard_volume(volume.uuid, &requested.volume_id, Caller::Mover)?;
            this.take_held(&held, &volume, &name, requested.reserve)
                .await
        })
        .await
    }

    /// Takes a snapshot under the guard of its volume.
    pub(super) async fn take_held(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        name: &str,
        reserve: Reserve,
    ) -> Result<Taken, VolumeError> {
        let uuid = volume.uuid;
        self.call_off_check(held).await;
        let (drive, volume) = self.reach_settled(held, volume).await?;
        let refused = |why: &str| VolumeError::NotTaken {
            uuid,
            why: why.to_owned(),
        };
        if self.layout_of(&volume) != Some(Layout::Lvm) {
            return Err(refused(
                "its drive has layout partition; snapshots need layout lvm",
            ));
        }
        if self.is_being_moved(uuid) {
            return Err(refused(
                "it is being moved to another drive; wait for that, or end it with `drivebay-agent volume move --cancel`",
            ));
        }
        let record = &volume.placed.record;
        let size = record.extent.len;
        let record = SnapshotRecord {
            uuid: Uuid::new_v4(),
            name: name.to_owned(),
            volume: uuid,
            created_at: unix_seconds(),
            size_bytes: size,
            mode: record.mode,
            fs: match record.state {
                RecordState::Fs {
                    fs_type,
                    fs_uuid,
                    mounted: true,
                } => Some((fs_type, fs_uuid)),
                _ => None,
            },
            is_complete: true,
        };
        let job = TakeSnapshot {
            drive,
            record,
            reserve_bytes: reserve_bytes(reserve, size),
        };
        // Other calls for the drive do not wait for what is still to be written to the volume.
        let worker = WorkerKey::from((&volume.drive, Slot::Foreground)).on(Lane::Volume(uuid));
        let taken = self.node.run(worker, job, DEADLINE).await;
        let taken = taken.inspect_err(|_| self.note_litter(&volume.drive))?;
        let inventory = self.node.inventory();
        let revision = inventory.put_contents(&volume.drive, taken.contents);
        let current = inventory.current();
        let found = find(&current, |record| {
            record.name == name && record.volume == uuid
        });
        let (_, snapshot) = found.ok_or_else(|| VolumeError::Internal {
            what: format!("snapshot {name:?} is not in the answer of its drive"),
        })?;
        tracing::info!(volume = %uuid, snapshot = %snapshot.record.uuid, name, reserve_bytes = snapshot.reserve_bytes, "snapshot taken");
        Ok(Taken {
            volume: uuid,
            snapshot: snapshot.clone(),
            revision,
        })
    }

    /// Takes a snapshot away; one that does not exist is gone already. What it stored is erased in the background. Answers the revision
    /// that shows it.
    pub async fn delete_snapshot(&self, id: &str) -> Result<u64, VolumeError> {
        let revision = self.node.inventory().current().revision;
        let parsed: Option<VolumeId> = id.parse().ok();
        let Some(uuid) = parsed
            .filter(|parsed| parsed.node == self.node.config().node_id)
            .map(|parsed| parsed.uuid)
        else {
            return Ok(revision);
        };
        let cannot_tell = |why| VolumeError::CannotTell {
            id: id.to_owned(),
            why,
        };
        self.after_first_scan().await.map_err(cannot_tell)?;
        let current = self.node.inventory().current();
        let Some((volume, _)) = find(&current, |record| record.uuid == uuid) else {
            return match self.doubt() {
                Some(why) => Err(cannot_tell(why)),
                None => Ok(revision),
            };
        };
        if let Some(volume) = copied_to(&current, uuid) {
            return Err(VolumeError::SnapshotCopied { uuid, volume });
        }
        let volume = volume.clone();
        self.changing_volume(volume.uuid, id, Caller::Mover, |this, held| async move {
            this.drop_held(&held, &volume, uuid).await
        })
        .await
    }

    /// The same under the guard of its volume.
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
            .await?;
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

    /// Whether a move of the volume was asked for and is not completed.
    fn is_being_moved(&self, uuid: Uuid) -> bool {
        self.inner.moves.is_asked(uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveId, DriveState, GIB, MIB, Peer, PlaceState, samples};

    #[test]
    fn a_reserve_is_a_share_of_the_volume_within_its_bounds() {
        let of = |percent, least, most| {
            let reserve = Reserve {
                percent,
                least,
                most,
            };
            reserve_bytes(reserve, 10 * GIB)
        };
        assert_eq!(reserve_bytes(Reserve::default(), 10 * GIB), 2 * GIB);
        assert_eq!(of(50, 0, None), 5 * GIB);
        assert_eq!(of(1, GIB, None), GIB);
        assert_eq!(of(50, 0, Some(100 * MIB)), 100 * MIB);
        assert_eq!(
            reserve_bytes(
                Reserve {
                    percent: 100,
                    least: 0,
                    most: None
                },
                u64::MAX
            ),
            u64::MAX
        );
    }

    #[test]
    fn a_snapshot_is_found_by_its_record_and_one_that_is_copied_says_where_to() {
        let drive = samples::drive("sda", DriveState::Claimed, None);
        let mut placed = samples::placed(2, RecordState::Block);
        placed.snapshots = vec![samples::snapshot(1, 2)];
        let origin = samples::volume(&drive, placed);
        let mut snapshot = Snapshot::default();
        snapshot.volumes.insert(origin.uuid, origin.clone());
        let uuid = Uuid::from_u128(1);
        let found = find(&snapshot, |record| record.uuid == uuid);
        assert_eq!(found.map(|(volume, _)| volume.uuid), Some(origin.uuid));
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
