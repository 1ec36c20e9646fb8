//! Snapshots of several volumes at one point in time: all of them, or none.
//!
//! LVM takes each member separately, which is slow, and the members are recorded as incomplete. One worker then restarts all of them at one
//! point in time (`TakeTogether`), and only after that they are recorded as complete. After a failure in between the members are deleted;
//! `due` deletes those that an interrupted agent left, and those on a drive that does not answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use drivebay_csi::{new_group_snapshot::NewGroupSnapshot, validate::MAX_STRING_BYTES};
use drivebay_proto::VolumeId;
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

use super::{
    DEADLINE, Terms, copied_to, find,
    found::{Existing, FoundGroup, compare, devices, groups},
    refuse_internal,
};
use crate::volumes::{
    Caller, LAYOUT_DEADLINE, VolumeError, Volumes,
    guard::{Key, VolumeGuard},
};
use drivebay_layout::jobs::{CompleteSnapshots, ReadDrive};
use drivebay_model::{
    DriveId, DriveRef, PlacedSnapshot, Snapshot, SnapshotRecord, Volume, cause::chain,
    volume_snapshot::SnapshotGroup,
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::Slot;

/// Longest time for which a failed call waits until its members are deleted. A drive that answers needs one or two seconds for each.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// A group snapshot that was taken, or existed already.
#[derive(Debug, Clone)]
pub struct TakenGroup {
    pub group: SnapshotGroup,
    /// By uuid of the volume.
    pub members: BTreeMap<Uuid, PlacedSnapshot>,
    /// Inventory revision that shows it.
    pub revision: u64,
}

/// A volume of a group that is being taken.
#[derive(Debug)]
struct Guarded {
    held: VolumeGuard,
    drive: DriveRef,
    volume: Volume,
    /// Uuid of its snapshot, once taking that has begun.
    snapshot: Option<Uuid>,
}

impl Volumes {
    /// Takes snapshots of several volumes at one point in time, or returns the existing group of this name. Durable on success. After an
    /// error no snapshot is left, or what is left is deleted later.
    pub async fn take_group(&self, requested: NewGroupSnapshot) -> Result<TakenGroup, VolumeError> {
        refuse_internal(&requested.name)?;
        let key = Key::SnapshotGroup(requested.name.clone());
        let what = format!("group snapshot {:?}", requested.name);
        self.changing(key, &what, |this| async move {
            this.take_named(&requested).await
        })
        .await
    }

    async fn take_named(&self, requested: &NewGroupSnapshot) -> Result<TakenGroup, VolumeError> {
        let name = &requested.name;
        self.after_first_scan(name).await?;
        let volumes = self.volumes_of(requested).await?;
        let wanted: BTreeSet<Uuid> = volumes.keys().copied().collect();
        // Guarded before the name is looked up: the group that has it may be being deleted.
        let guards = self.guard_all(&wanted)?;
        if let Existing::Whole(group) = self.existing(name, &wanted)? {
            return Ok(self.as_taken(group));
        }
        let mut members = self.reach_members(name, guards, &volumes).await?;
        // Members left by an interrupted attempt may not be in the inventory.
        self.read_drives(&members).await?;
        match self.existing(name, &wanted)? {
            Existing::Whole(group) => return Ok(self.as_taken(group)),
            Existing::Leftovers(leftovers) => self.drop_leftovers(&members, leftovers).await?,
        }
        let taken = self.take_members(requested, &mut members).await;
        if taken.is_err() {
            let begun = members.into_iter();
            let begun = begun.filter_map(|one| Some((one.held, one.volume, one.snapshot?)));
            self.clean_up(name.clone(), begun.collect()).await;
        }
        taken
    }

    /// Deletes the members of a group that failed, and waits `CLEAN_UP` at most. Drives do not wait for each other.
    async fn clean_up(&self, name: String, begun: Vec<(VolumeGuard, Volume, Uuid)>) {
        let this = self.clone();
        let cleaning = self.inner.tasks.spawn(async move {
            if let Err(error) = this.drop_all(begun).await {
                tracing::warn!(name, error = %chain(&error), "cannot delete every member of a group snapshot that failed; will retry");
            }
        });
        // The deletion continues; `drain` waits for it.
        let _ = timeout(CLEAN_UP, cleaning).await;
    }

    /// Returns the volumes of a request, in the order in which they are guarded. Errs if one is requested twice or is on another node.
    async fn volumes_of(
        &self,
        requested: &NewGroupSnapshot,
    ) -> Result<BTreeMap<Uuid, Volume>, VolumeError> {
        let ids = &requested.volume_ids;
        let node = &self.node.config().node_id;
        let elsewhere = ids.iter().filter_map(|id| {
            let VolumeId { uuid, node: on }: VolumeId = id.parse().ok()?;
            (on != *node).then(|| format!("volume {uuid} is on node {on}"))
        });
        let elsewhere: Vec<String> = elsewhere.collect();
        if !elsewhere.is_empty() {
            return Err(VolumeError::GroupNotTaken {
                name: requested.name.clone(),
                why: elsewhere,
            });
        }
        let mut volumes = BTreeMap::new();
        for id in ids {
            let volume = self.require_scanned(id).await?;
            if volumes.insert(volume.uuid, volume).is_some() {
                return Err(VolumeError::Invalid {
                    field: "volume_ids",
                    why: format!("{id:?} is there twice"),
                });
            }
        }
        Ok(volumes)
    }

    fn existing(&self, name: &str, wanted: &BTreeSet<Uuid>) -> Result<Existing, VolumeError> {
        let current = self.node.inventory().current();
        let named = groups(&current, |group| group.name == name);
        compare(named, wanted).map_err(|others| VolumeError::GroupExists {
            name: name.to_owned(),
            volumes: others
                .iter()
                .map(Uuid::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    fn as_taken(&self, group: FoundGroup) -> TakenGroup {
        TakenGroup {
            group: group.group,
            members: group.members,
            revision: self.node.inventory().current().revision,
        }
    }

    /// Guards all the volumes, in their order, or none of them.
    fn guard_all(&self, volumes: &BTreeSet<Uuid>) -> Result<Vec<VolumeGuard>, VolumeError> {
        let volumes = volumes.iter();
        let guards =
            volumes.map(|uuid| self.guard_volume(*uuid, &format!("volume {uuid}"), Caller::Mover));
        guards.collect()
    }

    /// Returns the volumes with their drives, after cancelling running checks of them. `guards`: those of `volumes`, in the same order.
    ///
    /// # Errors
    /// `GroupNotTaken`, with a reason for each volume that cannot have a snapshot.
    async fn reach_members(
        &self,
        name: &str,
        guards: Vec<VolumeGuard>,
        volumes: &BTreeMap<Uuid, Volume>,
    ) -> Result<Vec<Guarded>, VolumeError> {
        let (mut members, mut why) = (Vec::new(), Vec::new());
        for (held, volume) in guards.into_iter().zip(volumes.values()) {
            match self.reach_settled(&held, volume).await {
                Ok((drive, volume)) => match self.refusal(&volume) {
                    Some(reason) => why.push(format!("volume {}: {reason}", volume.uuid)),
                    None => members.push(Guarded {
                        held,
                        drive,
                        volume,
                        snapshot: None,
                    }),
                },
                Err(error @ (VolumeError::Ambiguous { .. } | VolumeError::Copying { .. })) => {
                    why.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        if !why.is_empty() {
            let name = name.to_owned();
            return Err(VolumeError::GroupNotTaken { name, why });
        }
        for member in &members {
            self.call_off_check(&member.held).await;
        }
        Ok(members)
    }

    async fn read_drives(&self, members: &[Guarded]) -> Result<(), VolumeError> {
        for (id, drive) in drives(members) {
            let job = ReadDrive {
                drive: drive.clone(),
                repair: false,
            };
            let worker = (id, Slot::Foreground);
            let contents = self.node.run(worker, job, LAYOUT_DEADLINE).await?;
            self.node.inventory().put_contents(id, contents);
        }
        Ok(())
    }

    async fn drop_leftovers(
        &self,
        members: &[Guarded],
        leftovers: Vec<(Uuid, Uuid)>,
    ) -> Result<(), VolumeError> {
        let current = self.node.inventory().current();
        for (of, uuid) in leftovers {
            if let Some(volume) = copied_to(&current, uuid) {
                return Err(VolumeError::SnapshotCopied { uuid, volume });
            }
            if let Some(member) = members.iter().find(|member| member.volume.uuid == of) {
                self.drop_held(&member.held, &member.volume, uuid).await?;
            }
        }
        Ok(())
    }

    async fn take_members(
        &self,
        requested: &NewGroupSnapshot,
        members: &mut [Guarded],
    ) -> Result<TakenGroup, VolumeError> {
        let name = &requested.name;
        let group = SnapshotGroup {
            uuid: Uuid::new_v4(),
            name: name.clone(),
            members: u32::try_from(members.len()).unwrap_or(u32::MAX),
        };
        let created_at = unix_seconds();
        let current = self.node.inventory().current();
        let mut together = Vec::new();
        for (n, member) in (1..).zip(members.iter_mut()) {
            let terms = Terms {
                uuid: Uuid::new_v4(),
                name: member_name(name, n),
                reserve: requested.reserve,
                created_at,
                max_age: requested.max_age,
                group: Some(group.clone()),
            };
            let is_taken = |volume| VolumeError::SnapshotExists {
                name: terms.name.clone(),
                volume,
            };
            // Members of other groups may have the same name.
            let is_alone = |record: &SnapshotRecord| record.group.is_none();
            let namesake = find(&current, |one| one.name == terms.name && is_alone(one));
            if let Some((volume, _)) = namesake {
                return Err(is_taken(volume.uuid));
            }
            member.snapshot = Some(terms.uuid);
            let taken = self.take_reached(&member.drive, &member.volume, &terms);
            let taken = taken.await?;
            // An earlier snapshot of this name holds data of its own point in time, and must not be restarted.
            if taken.snapshot.record.uuid != terms.uuid {
                return Err(is_taken(taken.volume));
            }
            together.push(devices(&member.volume, &taken.snapshot)?);
        }
        let drives = drives(members).into_values().cloned().collect();
        let suspended = self.suspend_together(group.uuid, drives, together).await?;
        let revision = self.complete_members(members).await?;
        let current = self.node.inventory().current();
        let mut matching = groups(&current, |one| one.uuid == group.uuid);
        let whole = matching.pop().filter(FoundGroup::is_whole);
        let whole = whole.ok_or_else(|| VolumeError::Internal {
            what: format!("group snapshot {name:?} is not in the answers of its drives"),
        })?;
        tracing::info!(group = %group.uuid, name, members = group.members, suspended_ms = suspended.suspended_ms, "group snapshot taken");
        Ok(TakenGroup {
            group,
            members: whole.members,
            revision,
        })
    }

    async fn complete_members(&self, members: &[Guarded]) -> Result<u64, VolumeError> {
        let mut revision = 0;
        for (id, drive) in drives(members) {
            let on_drive = members.iter().filter(|member| member.volume.drive == *id);
            let job = CompleteSnapshots {
                drive: drive.clone(),
                uuids: on_drive.filter_map(|member| member.snapshot).collect(),
            };
            let worker = (id, Slot::Foreground);
            let done = self.node.run(worker, job, DEADLINE).await?;
            revision = self.node.inventory().put_contents(id, done.contents);
        }
        Ok(revision)
    }

    /// Deletes snapshots under the guards of their volumes, on all drives in parallel: a drive that does not answer keeps no volume of
    /// another drive guarded. Returns the latest inventory revision, or the error of one of them.
    async fn drop_all(
        &self,
        snapshots: Vec<(VolumeGuard, Volume, Uuid)>,
    ) -> Result<u64, VolumeError> {
        let mut by_drive: BTreeMap<DriveId, Vec<_>> = BTreeMap::new();
        for one in snapshots {
            by_drive.entry(one.1.drive.clone()).or_default().push(one);
        }
        let mut dropping = JoinSet::new();
        for on_drive in by_drive.into_values() {
            let this = self.clone();
            dropping.spawn(async move {
                let mut dropped = Ok(0);
                for (held, volume, snapshot) in on_drive {
                    dropped = both(dropped, this.drop_held(&held, &volume, snapshot).await);
                }
                dropped
            });
        }
        let mut dropped = Ok(0);
        while let Some(ended) = dropping.join_next().await {
            let ended = ended.unwrap_or_else(|error| {
                let what = format!("deleting snapshots: {error}");
                Err(VolumeError::Internal { what })
            });
            dropped = both(dropped, ended);
        }
        dropped
    }

    /// Deletes all snapshots of a group; succeeds if it does not exist. Returns the inventory revision that shows it.
    ///
    /// # Errors
    /// `SnapshotCopied`: one of them is being copied to a volume; nothing was changed. `CannotTell`: members are not in the inventory, and
    /// a drive that may hold them is not read. After any error but `SnapshotCopied` some members may be deleted.
    pub async fn delete_group(&self, id: &str) -> Result<u64, VolumeError> {
        let own = self.own(id).await?;
        let current = self.node.inventory().current();
        let Some(uuid) = own else {
            return Ok(current.revision);
        };
        let members = |of: &Snapshot| groups(of, |group| group.uuid == uuid).pop();
        let Some(group) = members(&current) else {
            return self.gone(id, current.revision);
        };
        let pending = || VolumeError::Pending {
            what: format!("group snapshot {:?}", group.group.name),
        };
        let guards = self.guard_all(&group.members.keys().copied().collect())?;
        // The group may have been completed or deleted before its volumes were guarded.
        let current = self.node.inventory().current();
        if members(&current).is_none_or(|now| !now.members.keys().eq(group.members.keys())) {
            return Err(pending());
        }
        for one in group.members.values() {
            let uuid = one.record.uuid;
            if let Some(volume) = copied_to(&current, uuid) {
                return Err(VolumeError::SnapshotCopied { uuid, volume });
            }
        }
        let guarded = guards.into_iter().zip(&group.members);
        // Every member is of a volume of this inventory: none is left out.
        let guarded = guarded.filter_map(|(held, (of, one))| {
            Some((held, current.volumes.get(of)?.clone(), one.record.uuid))
        });
        let guarded = guarded.collect();
        let this = self.clone();
        let dropped = self.tracked(async move { this.drop_all(guarded).await });
        let revision = current.revision.max(dropped.await?);
        if u32::try_from(group.members.len()) == Ok(group.group.members) {
            return Ok(revision);
        }
        // The other members may be on a drive that is not read, or that was read since.
        let current = self.node.inventory().current();
        match members(&current) {
            Some(_) => Err(pending()),
            None => self.gone(id, current.revision),
        }
    }
}

/// Returns `<group>-<number>` as the name of a member, with the group's name cut so that the result is a valid CSI name. Not unique:
/// members of other groups may have the same name. Pure.
fn member_name(group: &str, number: usize) -> String {
    let suffix = format!("-{number}");
    let room = MAX_STRING_BYTES.saturating_sub(suffix.len());
    let ends = group.char_indices().map(|(at, one)| at + one.len_utf8());
    let end = ends.take_while(|end| *end <= room).last().unwrap_or(0);
    format!("{}{suffix}", group.get(..end).unwrap_or_default())
}

/// Returns the later revision, or the first error.
fn both(
    first: Result<u64, VolumeError>,
    second: Result<u64, VolumeError>,
) -> Result<u64, VolumeError> {
    Ok(first?.max(second?))
}

/// Returns the drives of the members, by their ids.
fn drives(members: &[Guarded]) -> BTreeMap<&DriveId, &DriveRef> {
    let drives = members.iter();
    drives
        .map(|member| (&member.volume.drive, &member.drive))
        .collect()
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
