//! Copies data to one new volume, and completes it.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{
    CopyStatus, Original, lock,
    next::is_superseded,
    original,
    original::unread_source,
    unreadable::{GivenUp, keep, refusal},
};
use crate::volumes::{Caller, LAYOUT_DEADLINE, VolumeError, Volumes, moves::Pace, reach::reach_in};
use drivebay_csi::{new_snapshot::Reserve, new_volume::CopyUnreadable};
use drivebay_layout::jobs::{
    CopyError, CopyOf, CopyStep, DropPlace, LayoutError, ReadUsage, SetParameters, SetPlace,
};
use drivebay_model::{
    CopySource, DriveId, DriveRef, Layout, Peer, PlaceState, SnapshotRecord, Volume, VolumeState,
    cause::chain,
};
use drivebay_worker::{Lane, RunError, Slot, WorkerKey};

/// Longest time for which one step copies before it returns.
const BUDGET: Duration = Duration::from_millis(1000);
/// Limit of one step with its flush, also on slow drives.
const DEADLINE: Duration = Duration::from_secs(120);
/// Limit for querying a snapshot's status, which reads no drive.
const STATUS_DEADLINE: Duration = Duration::from_secs(20);
/// Worker group of all copies, with a lane for each volume: a stuck job may involve either drive.
const WORKERS: &str = "copies";
/// Reserve for writes to a volume while it is copied: as large as the volume.
const WHOLE: Reserve = Reserve {
    percent: 100,
    least: 0,
    most: None,
};

/// Reason for which a copy was not continued.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    /// The volume or its source is not in the inventory as expected any more, or the volume is being deleted.
    #[error("the volume has changed")]
    Changed,
    /// The incomplete copy is erased. Not reported as a failed creation: the other volume is the result.
    #[error("another volume of its name was made meanwhile")]
    Superseded,
    /// Temporary, e.g. while the source is in use; retried after a short delay.
    #[error("{0}")]
    NotNow(String),
    /// A step failed; retried with backoff.
    #[error("cannot copy")]
    Copy(#[from] RunError<CopyError>),
    #[error("cannot change what is recorded of it")]
    Record(#[from] RunError<LayoutError>),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Permanent: no retry would succeed. The incomplete copy is erased.
    #[error("{0}")]
    Never(String),
}

impl Volumes {
    /// Copies all data to the volume and makes it live.
    pub(super) async fn fill(&self, uuid: Uuid) -> Result<(), FillError> {
        let volume = self.filling(uuid)?;
        self.is_only_one(&volume)?;
        let source = CopySource::of(&volume.placed.record.parameters);
        let source = source.ok_or_else(|| {
            FillError::Never("it is not recorded what it is to be a copy of".to_owned())
        })?;
        let recorded = volume.placed.record.place.peer();
        let of = self.original_of(source, recorded)?;
        // The drive that is read must be the one in the record.
        if recorded.map(|peer| &peer.label) != Some(&of.peer.label) {
            return Err(FillError::Never(
                "what is copied has moved to another drive meanwhile; create the volume again"
                    .to_owned(),
            ));
        }
        match (source, of.layout) {
            (CopySource::Snapshot(snapshot), _) => {
                self.fill_from_snapshot(uuid, &of, snapshot).await
            }
            (CopySource::Volume(_), Layout::Lvm) => {
                let snapshot = self.snapshot_to_copy(uuid, &of).await?;
                self.fill_from_snapshot(uuid, &of, snapshot).await
            }
            (CopySource::Volume(_), Layout::Partition) => self.fill_from_volume(uuid, &of).await,
        }
    }

    /// Returns the volume. Errs with `Changed` if it is not an incomplete copy any more, or is being deleted.
    fn filling(&self, uuid: Uuid) -> Result<Volume, FillError> {
        let current = self.node.inventory().current();
        let volume = current.volumes.get(&uuid);
        let volume = volume.filter(|volume| volume.state == VolumeState::Copying);
        match lock(&self.inner.copies.ending).contains(&uuid) {
            true => Err(FillError::Changed),
            false => volume.cloned().ok_or(FillError::Changed),
        }
    }

    /// Errs with `Superseded` if another volume has its name: while its drive was missing, the creation may have been repeated.
    fn is_only_one(&self, filling: &Volume) -> Result<(), FillError> {
        match is_superseded(&self.node.inventory().current(), filling) {
            true => Err(FillError::Superseded),
            false => Ok(()),
        }
    }

    /// Returns the source of the copy. Errs with `Never` if it is lost, or does not exist and every drive that may hold it was read; with
    /// `NotNow` while it cannot be read. `recorded`: the drive that it was on when the copy began.
    fn original_of(
        &self,
        source: CopySource,
        recorded: Option<&Peer>,
    ) -> Result<Original, FillError> {
        let inventory = self.node.inventory();
        let mut unread = inventory.unread_snapshots();
        match original(&inventory.current(), source) {
            Ok(origin) => Ok(origin),
            Err(error @ VolumeError::NoSource { .. }) => {
                // Read before and after the lookup: the drive may have come back or gone in between.
                unread.extend(inventory.unread_snapshots());
                let doubt = self.doubt();
                Err(match doubt.or_else(|| unread_source(&unread, recorded?)) {
                    Some(why) => FillError::NotNow(why),
                    None => FillError::Never(error.to_string()),
                })
            }
            Err(error @ VolumeError::NotCopied { .. }) => {
                let is_lost = matches!(source, CopySource::Snapshot(uuid) if self.is_lost(uuid));
                Err(match is_lost {
                    true => FillError::Never(error.to_string()),
                    false => FillError::NotNow(error.to_string()),
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn is_lost(&self, uuid: Uuid) -> bool {
        let current = self.node.inventory().current();
        let entry = crate::volumes::snapshots::find(&current, |record| record.uuid == uuid);
        entry.is_some_and(|(_, snapshot)| snapshot.is_overflowed)
    }

    /// Returns the internal snapshot of the volume that is copied, and takes it if it does not exist.
    async fn snapshot_to_copy(&self, uuid: Uuid, of: &Original) -> Result<Uuid, FillError> {
        let name = SnapshotRecord::internal_name(uuid);
        let current = self.node.inventory().current();
        let volume = current.volumes.get(&of.volume).ok_or(FillError::Changed)?;
        let mut taken = volume.placed.snapshots.iter();
        if let Some(taken) = taken.find(|one| one.record.name == name) {
            return Ok(taken.record.uuid);
        }
        let held = self.guard_volume(of.volume, &of.volume.to_string(), Caller::Background);
        let held = held.map_err(|error| FillError::NotNow(error.to_string()))?;
        let taken = self.take_held(&held, volume, &name, WHOLE).await;
        let taken = match taken {
            // A smaller reserve is often enough: only writes during the copy need it.
            Err(VolumeError::Layout(RunError::Job(LayoutError::NoSpace { largest, .. })))
                if largest > 0 =>
            {
                let most = Reserve {
                    most: Some(largest),
                    ..WHOLE
                };
                self.take_held(&held, volume, &name, most).await
            }
            taken => taken,
        };
        match taken {
            Ok(taken) => Ok(taken.snapshot.record.uuid),
            Err(VolumeError::Layout(RunError::Job(error @ LayoutError::NoSpace { .. }))) => {
                Err(FillError::Never(chain(&error)))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn fill_from_snapshot(
        &self,
        uuid: Uuid,
        of: &Original,
        snapshot: Uuid,
    ) -> Result<(), FillError> {
        let unreadable = self
            .copy_bytes(uuid, of, CopyOf::Snapshot(snapshot), || Ok(()))
            .await?;
        // Only now it is certain that the snapshot was valid until the last read.
        self.is_still_valid(&of.drive, snapshot).await?;
        self.complete_copy(uuid, of, unreadable).await
    }

    /// Copies a volume that is not in use. Errs with `NotNow` if it is staged meanwhile; the copy then begins again later.
    async fn fill_from_volume(&self, uuid: Uuid, of: &Original) -> Result<(), FillError> {
        let original = of.volume;
        // Read before checking that the volume is unused: a use that begins later changes the counter.
        let touches = self.inner.moves.touches(original);
        if self.is_changing(original) {
            return Err(FillError::NotNow(used(original)));
        }
        let is_unused = || {
            let current = self.node.inventory().current();
            let volume = current.volumes.get(&original).ok_or(FillError::Changed)?;
            // A volume that is deleted or moved meanwhile may be erased while it is read.
            if !matches!(volume.state, VolumeState::New | VolumeState::Ready)
                || volume.drive != of.drive
            {
                let state = volume.state;
                return Err(FillError::NotNow(format!(
                    "volume {original} is {state} now"
                )));
            }
            match self.inner.moves.touches(original) != touches || self.is_in_use_now(volume)? {
                true => Err(FillError::NotNow(used(original))),
                false => Ok(()),
            }
        };
        is_unused()?;
        // Data that an earlier attempt copied may be older than a use of the volume since.
        let unreadable = self
            .copy_bytes(uuid, of, CopyOf::Volume(original), is_unused)
            .await?;
        is_unused()?;
        self.complete_copy(uuid, of, unreadable).await
    }

    /// Copies all bytes, from the first one on. Returns how many of them could not be read and are zeros in the copy; always 0 unless the
    /// volume was requested with `CopyUnreadable::Zeros`.
    async fn copy_bytes(
        &self,
        uuid: Uuid,
        original: &Original,
        of: CopyOf,
        may_go_on: impl Fn() -> Result<(), FillError>,
    ) -> Result<u64, FillError> {
        let copies = &self.inner.copies;
        let may_match = !copies.running(uuid).is_fresh;
        copies.change(uuid, |running| running.is_fresh = false);
        let began = Instant::now();
        let mut done = 0;
        let mut source_writes = None;
        let mut drives = None;
        let mut given_up = GivenUp::default();
        let mut pace = Pace::new(self.node.config().move_bytes_per_second);
        let worker = WorkerKey::of_group(WORKERS, Slot::Background).on(Lane::Volume(uuid));
        loop {
            let volume = self.filling(uuid)?;
            may_go_on()?;
            let both = (
                self.drive_of(&original.drive)?,
                self.drive_of(&volume.drive)?,
            );
            // A drive that was pulled may have lost acknowledged writes, or have been changed on another host.
            if *drives.get_or_insert_with(|| both.clone()) != both {
                let why = "one of its drives was missing meanwhile: all of it is read again";
                return Err(FillError::NotNow(why.to_owned()));
            }
            let (source, target) = both;
            let bytes_per_second = pace.next([&source, &target]).await;
            let step_began = Instant::now();
            let job = CopyStep {
                of,
                source,
                target,
                uuid,
                generation: volume.placed.record.place.generation(),
                from_bytes: done,
                source_writes,
                may_match,
                holds_nothing: given_up.ahead(),
                lost: Vec::new(),
                bytes_per_second,
                budget_ms: BUDGET.as_millis() as u64,
            };
            let step = match self.node.run(worker.clone(), job, DEADLINE).await {
                Err(RunError::Job(CopyError::Source(error @ LayoutError::NoSnapshot { .. }))) => {
                    return Err(FillError::Never(chain(&error)));
                }
                Err(RunError::Job(CopyError::Source(LayoutError::InUse { uuid, held }))) => {
                    return Err(FillError::NotNow(format!("{}: {held}", used(uuid))));
                }
                step => step?,
            };
            source_writes = step.source_writes;
            if let Some(first) = step.unreadable.first() {
                // A lost snapshot fails every read.
                if let CopyOf::Snapshot(snapshot) = of {
                    self.is_still_valid(&original.drive, snapshot).await?;
                }
                match CopyUnreadable::of(&volume.placed.record.parameters) {
                    CopyUnreadable::Fail => {
                        return Err(FillError::Never(refusal(&step.unreadable)));
                    }
                    CopyUnreadable::Zeros if given_up.bytes() == 0 => {
                        let first_byte = first.start;
                        tracing::warn!(volume = %uuid, drive = %original.drive, first_byte, "unreadable blocks of the source are zeros in the copy, as its StorageClass requests");
                    }
                    CopyUnreadable::Zeros => {}
                }
                // The step is repeated without these ranges.
                given_up.add(&step.unreadable);
                continue;
            }
            pace.step_ended(step.done_bytes.saturating_sub(done), step_began.elapsed());
            done = step.done_bytes;
            given_up.copied(done);
            let rate = done as f64 / began.elapsed().as_secs_f64().max(0.001);
            copies.change(uuid, |running| {
                running.done_bytes = done;
                running.total_bytes = step.total_bytes;
                running.unreadable_bytes = given_up.bytes();
                running.bytes_per_second = rate as u64;
                running.waits_for = String::new();
                running.failures = 0;
            });
            if done >= step.total_bytes {
                return Ok(given_up.bytes());
            }
        }
    }

    fn drive_of(&self, id: &DriveId) -> Result<DriveRef, FillError> {
        let current = self.node.inventory().current();
        let drive = current.drives.get(id);
        let drive = drive.filter(|drive| crate::inventory::is_reachable(drive));
        let drive = drive.map(|drive| DriveRef::from(&drive.facts));
        drive.ok_or_else(|| FillError::NotNow(format!("drive {id} cannot be used now")))
    }

    async fn is_still_valid(&self, drive: &DriveId, uuid: Uuid) -> Result<(), FillError> {
        let current = self.node.inventory().current();
        let entry = crate::volumes::snapshots::find(&current, |record| record.uuid == uuid);
        let dm_uuid = entry.map(|(_, snapshot)| snapshot.dm_uuid.clone());
        let dm_uuid = dm_uuid.ok_or(FillError::Changed)?;
        let job = ReadUsage {
            snapshots: vec![(uuid, dm_uuid)],
        };
        let worker = WorkerKey::from((drive, Slot::Foreground)).on(Lane::Volume(uuid));
        let usage = self.node.run(worker, job, STATUS_DEADLINE).await?;
        match usage.first().map(|usage| usage.used_bytes) {
            Some(Some(_)) => Ok(()),
            Some(None) => Err(FillError::Never(
                "the snapshot was lost while it was copied: its reserve was full, or its store could not be written; take another one, with a larger reserve if this one was full".to_owned(),
            )),
            None => Err(FillError::NotNow("the kernel does not say whether the snapshot is valid".to_owned())),
        }
    }

    /// Makes the copy a live volume. First records how many bytes are zeros because they could not be read, now or when the source itself
    /// was created as a copy.
    async fn complete_copy(
        &self,
        uuid: Uuid,
        of: &Original,
        unreadable: u64,
    ) -> Result<(), FillError> {
        let volume = self.filling(uuid)?;
        self.is_only_one(&volume)?;
        let drive = self.drive_of(&volume.drive)?;
        let record = &volume.placed.record;
        let unreadable_bytes = of.unreadable_bytes.saturating_add(unreadable);
        let parameters = keep(&record.parameters, unreadable_bytes);
        if parameters != record.parameters {
            let job = SetParameters {
                drive: drive.clone(),
                uuid,
                place: record.place.clone(),
                parameters,
            };
            let worker = (&volume.drive, Slot::Foreground);
            let kept = self.node.run(worker, job, LAYOUT_DEADLINE).await?;
            self.node
                .inventory()
                .put_contents(&volume.drive, kept.contents);
        }
        let job = SetPlace {
            drive,
            uuid,
            from: record.place.clone(),
            to: PlaceState::default(),
            state: None,
        };
        let worker = (&volume.drive, Slot::Foreground);
        let done = self.node.run(worker, job, LAYOUT_DEADLINE).await?;
        self.inner.copies.end(uuid);
        self.node
            .inventory()
            .put_contents(&volume.drive, done.contents);
        let name = &record.name;
        match unreadable_bytes {
            0 => {
                tracing::info!(volume = %uuid, name, drive = %volume.drive, "volume created as a copy")
            }
            _ => {
                tracing::warn!(volume = %uuid, name, drive = %volume.drive, unreadable_bytes, "volume created as a copy; unreadable blocks of the source are zeros in it");
            }
        }
        Ok(())
    }

    /// Erases the incomplete copy, and keeps `why` for the next creation of this name.
    pub(super) async fn give_up_copy(&self, uuid: Uuid, why: &str) -> Result<(), FillError> {
        let volume = self.filling(uuid)?;
        let name = &volume.placed.record.name;
        tracing::error!(volume = %uuid, name, why, "volume cannot be created as a copy; what was copied is being erased");
        let status = CopyStatus {
            bytes_per_second: 0,
            eta_seconds: 0,
            waits_for: why.to_owned(),
            ..self.inner.copies.status(&volume)
        };
        lock(&self.inner.copies.failed).add(status, Instant::now());
        self.erase_copy(&volume).await?;
        Ok(())
    }

    /// Erases an incomplete copy whose name another volume has.
    pub(super) async fn drop_superseded(&self, uuid: Uuid) -> Result<(), FillError> {
        let volume = self.filling(uuid)?;
        let name = &volume.placed.record.name;
        tracing::warn!(volume = %uuid, name, "another volume has the name of an incomplete copy; what was copied is being erased");
        self.erase_copy(&volume).await?;
        Ok(())
    }

    /// Stops copying to an incomplete volume, and erases it. Returns the inventory revision that shows it.
    pub(in crate::volumes) async fn drop_copy(&self, volume: &Volume) -> Result<u64, VolumeError> {
        let _stopped = self.inner.copies.stop(volume.uuid).await;
        self.erase_copy(volume).await
    }

    async fn erase_copy(&self, volume: &Volume) -> Result<u64, VolumeError> {
        let current = self.node.inventory().current();
        let drive = match reach_in(&current, volume) {
            Err(VolumeError::Copying { .. }) | Ok(_) => current.drives.get(&volume.drive),
            Err(error) => return Err(error),
        };
        let drive = drive.ok_or_else(|| VolumeError::DriveAway {
            uuid: volume.uuid,
            drive: volume.drive.clone(),
        })?;
        let job = DropPlace {
            drive: DriveRef::from(&drive.facts),
            uuid: volume.uuid,
            place: volume.placed.record.place.clone(),
        };
        let worker = (&volume.drive, Slot::Foreground);
        let done = self.node.run(worker, job, LAYOUT_DEADLINE).await?;
        self.inner.copies.end(volume.uuid);
        tracing::info!(volume = %volume.uuid, drive = %volume.drive, "incomplete copy deleted; its space is being erased");
        Ok(self
            .node
            .inventory()
            .put_contents(&volume.drive, done.contents))
    }
}

fn used(uuid: Uuid) -> String {
    format!("volume {uuid} is in use: waits for it to be unstaged")
}

#[cfg(test)]
#[path = "fill_tests.rs"]
mod tests;
