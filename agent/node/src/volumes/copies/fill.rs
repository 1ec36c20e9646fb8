//! Copying bytes to one new volume, up to its completion.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Original, lock, original};
use crate::volumes::{CARVE_DEADLINE, Caller, VolumeError, Volumes, moves::Pace, reach::reach_in};
use drivebay_csi::new_snapshot::Reserve;
use drivebay_layout::jobs::{
    CarveError, CopyError, CopyOf, CopyStep, DropPlace, ReadUsage, SetPlace,
};
use drivebay_model::{
    CopySource, DriveId, DriveRef, Layout, PlaceState, SnapshotRecord, Volume, VolumeState,
    cause::chain,
    units::{count, human_size},
};
use drivebay_worker::{Lane, RunError, Slot, WorkerKey};

/// Longest one step works before it answers.
const BUDGET: Duration = Duration::from_millis(1000);
/// A step may take this long in all, on drives that are slow.
const DEADLINE: Duration = Duration::from_secs(120);
/// Asking the kernel for a snapshot's status reads no drive.
const STATUS_DEADLINE: Duration = Duration::from_secs(20);
/// The workers that copy, one for each volume: what hangs in one is of either drive.
const WORKERS: &str = "copies";
/// Room for what is written to a volume while it is copied: as much as it has.
const WHOLE: Reserve = Reserve {
    percent: 100,
    least: 0,
    most: None,
};

/// Why a copy did not go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillError {
    /// The volume is not to be filled any more.
    #[error("the volume has changed")]
    Changed,
    /// It goes on when that is over.
    #[error("{0}")]
    NotNow(String),
    /// It is tried again.
    #[error("cannot copy")]
    Copy(#[from] RunError<CopyError>),
    #[error("cannot change what is recorded of it")]
    Record(#[from] RunError<CarveError>),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// No repeat would succeed.
    #[error("{0}")]
    Never(String),
}

impl Volumes {
    /// Fills the volume and makes it live.
    pub(super) async fn fill(&self, uuid: Uuid) -> Result<(), FillError> {
        let volume = self.filling(uuid)?;
        // Its drive was away, and the creation was repeated.
        if self.is_name_taken(&volume) {
            return Err(FillError::Never(
                "another volume of its name was made meanwhile".to_owned(),
            ));
        }
        let source = CopySource::of(&volume.placed.record.parameters);
        let source = source.ok_or_else(|| {
            FillError::Never("it is not recorded what it is to be a copy of".to_owned())
        })?;
        let of = self.original_of(source)?;
        match (source, of.layout) {
            (CopySource::Snapshot(snapshot), _) => {
                self.fill_from_snapshot(uuid, &of, snapshot).await
            }
            (CopySource::Volume(_), Layout::Lvm) => {
                let snapshot = self.snapshot_to_copy(uuid, &of).await?;
                self.fill_from_snapshot(uuid, &of, snapshot).await
            }
            (CopySource::Volume(original), Layout::Partition) => {
                lock(&self.inner.copies.reading).insert(original);
                let filled = self.fill_from_volume(uuid, &of).await;
                lock(&self.inner.copies.reading).remove(&original);
                filled
            }
        }
    }

    /// The volume, while it is to be filled.
    fn filling(&self, uuid: Uuid) -> Result<Volume, FillError> {
        let current = self.node.inventory().current();
        let volume = current.volumes.get(&uuid);
        let volume = volume.filter(|volume| volume.state == VolumeState::Copying);
        match lock(&self.inner.copies.ending).contains(&uuid) {
            true => Err(FillError::Changed),
            false => volume.cloned().ok_or(FillError::Changed),
        }
    }

    fn is_name_taken(&self, filling: &Volume) -> bool {
        let current = self.node.inventory().current();
        let is_other = |volume: &Volume| {
            volume.uuid != filling.uuid
                && volume.state != VolumeState::Copying
                && crate::inventory::assemble::is_live(volume.state)
                && volume.placed.record.name == filling.placed.record.name
        };
        current.volumes.values().any(is_other)
    }

    /// What is copied. What is not known, though everything was read, is gone.
    fn original_of(&self, source: CopySource) -> Result<Original, FillError> {
        match original(&self.node.inventory().current(), source) {
            Ok(found) => Ok(found),
            Err(error @ VolumeError::NoSource { .. }) => Err(match self.doubt() {
                Some(why) => FillError::NotNow(why),
                None => FillError::Never(error.to_string()),
            }),
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
        let found = crate::volumes::snapshots::find(&current, |record| record.uuid == uuid);
        found.is_some_and(|(_, snapshot)| snapshot.is_overflowed)
    }

    /// The snapshot of the volume that is copied, taken for this copy alone.
    async fn snapshot_to_copy(&self, uuid: Uuid, of: &Original) -> Result<Uuid, FillError> {
        let name = SnapshotRecord::internal_name(uuid);
        let current = self.node.inventory().current();
        let volume = current.volumes.get(&of.volume).ok_or(FillError::Changed)?;
        let mut taken = volume.placed.snapshots.iter();
        if let Some(taken) = taken.find(|one| one.record.name == name) {
            return Ok(taken.record.uuid);
        }
        // Two snapshots of two moments would make one copy of both.
        self.inner
            .copies
            .change(uuid, |running| running.is_fresh = false);
        let held = self.guard_volume(of.volume, &of.volume.to_string(), Caller::Mover);
        let held = held.map_err(|error| FillError::NotNow(error.to_string()))?;
        let taken = self.take_held(&held, volume, &name, WHOLE).await;
        let taken = match taken {
            // As much as there is will often do.
            Err(VolumeError::Carve(RunError::Job(CarveError::NoSpace { largest, .. })))
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
        Ok(taken?.snapshot.record.uuid)
    }

    async fn fill_from_snapshot(
        &self,
        uuid: Uuid,
        of: &Original,
        snapshot: Uuid,
    ) -> Result<(), FillError> {
        self.copy_bytes(uuid, of, CopyOf::Snapshot(snapshot), || Ok(()))
            .await?;
        // Only now it is known that what was read last was still the snapshot.
        self.is_still_valid(&of.drive, snapshot).await?;
        self.complete_copy(uuid).await
    }

    /// Copies a volume that nobody uses. A stage ends that, and it begins again later.
    async fn fill_from_volume(&self, uuid: Uuid, of: &Original) -> Result<(), FillError> {
        let original = of.volume;
        // Before it is seen to be unused: whoever begins to use it later is noticed.
        let touches = self.inner.moves.touches(original);
        if self.is_changing(original) {
            return Err(FillError::NotNow(used(original)));
        }
        let is_unused = || {
            let current = self.node.inventory().current();
            let volume = current.volumes.get(&original).ok_or(FillError::Changed)?;
            match self.inner.moves.touches(original) != touches || self.is_in_use_now(volume)? {
                true => Err(FillError::NotNow(used(original))),
                false => Ok(()),
            }
        };
        is_unused()?;
        // Whatever an earlier attempt copied may be of before somebody used it.
        self.copy_bytes(uuid, of, CopyOf::Volume(original), is_unused)
            .await?;
        is_unused()?;
        self.complete_copy(uuid).await
    }

    async fn copy_bytes(
        &self,
        uuid: Uuid,
        original: &Original,
        of: CopyOf,
        may_go_on: impl Fn() -> Result<(), FillError>,
    ) -> Result<(), FillError> {
        let copies = &self.inner.copies;
        let may_match = !copies.running(uuid).is_fresh;
        copies.change(uuid, |running| running.is_fresh = false);
        let began = Instant::now();
        let mut done = 0;
        let mut pace = Pace::new(self.node.config().move_bytes_per_second);
        let worker = WorkerKey::of_group(WORKERS, Slot::Background).on(Lane::Volume(uuid));
        loop {
            let volume = self.filling(uuid)?;
            may_go_on()?;
            let source = self.drive_of(&original.drive)?;
            let target = self.drive_of(&volume.drive)?;
            let bytes_per_second = pace.next([&source, &target]).await;
            let step_began = Instant::now();
            let job = CopyStep {
                of,
                source,
                target,
                uuid,
                generation: volume.placed.record.place.generation(),
                from_bytes: done,
                may_match,
                holds_nothing: Vec::new(),
                bytes_per_second,
                budget_ms: BUDGET.as_millis() as u64,
            };
            let step = match self.node.run(worker.clone(), job, DEADLINE).await {
                Err(RunError::Job(CopyError::Source(error @ CarveError::NoSnapshot { .. }))) => {
                    return Err(FillError::Never(chain(&error)));
                }
                step => step?,
            };
            if let Some(first) = step.unreadable.first() {
                let bytes: u64 = step.unreadable.iter().map(|range| range.len).sum();
                return Err(FillError::Never(format!(
                    "{} in {} of what is copied are unreadable, the first at byte {}; `drive show` has the files in them; restore or delete those first",
                    human_size(bytes),
                    count(step.unreadable.len(), "range"),
                    first.start
                )));
            }
            pace.step_ended(step.done_bytes.saturating_sub(done), step_began.elapsed());
            done = step.done_bytes;
            let rate = done as f64 / began.elapsed().as_secs_f64().max(0.001);
            copies.change(uuid, |running| {
                running.done_bytes = done;
                running.total_bytes = step.total_bytes;
                running.bytes_per_second = rate as u64;
                running.waits_for = String::new();
            });
            if done >= step.total_bytes {
                return Ok(());
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
        let found = crate::volumes::snapshots::find(&current, |record| record.uuid == uuid);
        let dm_uuid = found.map(|(_, snapshot)| snapshot.dm_uuid.clone());
        let dm_uuid = dm_uuid.ok_or(FillError::Changed)?;
        let job = ReadUsage {
            snapshots: vec![(uuid, dm_uuid)],
        };
        let worker = WorkerKey::from((drive, Slot::Foreground)).on(Lane::Volume(uuid));
        let usage = self.node.run(worker, job, STATUS_DEADLINE).await?;
        match usage.first().map(|usage| usage.used_bytes) {
            Some(Some(_)) => Ok(()),
            Some(None) => Err(FillError::Never(
                "the snapshot was lost while it was copied: more was written to its volume than it had room for; take another one with a larger reserve".to_owned(),
            )),
            None => Err(FillError::NotNow("the kernel does not say whether the snapshot is valid".to_owned())),
        }
    }

    /// The copy is whole: from now on it is a volume.
    async fn complete_copy(&self, uuid: Uuid) -> Result<(), FillError> {
        let volume = self.filling(uuid)?;
        let drive = self.drive_of(&volume.drive)?;
        let job = SetPlace {
            drive,
            uuid,
            from: volume.placed.record.place.clone(),
            to: PlaceState::default(),
            state: None,
        };
        let worker = (&volume.drive, Slot::Foreground);
        let done = self.node.run(worker, job, CARVE_DEADLINE).await?;
        self.inner.copies.end(uuid);
        self.node
            .inventory()
            .put_contents(&volume.drive, done.contents);
        tracing::info!(volume = %uuid, name = volume.placed.record.name, drive = %volume.drive, "volume created as a copy");
        Ok(())
    }

    /// Has what was copied erased; the next creation of this name is answered with why.
    pub(super) async fn give_up_copy(&self, uuid: Uuid, why: &str) -> Result<(), FillError> {
        let volume = self.filling(uuid)?;
        let name = volume.placed.record.name.clone();
        tracing::error!(volume = %uuid, name, why, "volume cannot be created as a copy; what was copied is being erased");
        lock(&self.inner.copies.failed).insert(name, why.to_owned());
        self.drop_copy(&volume).await?;
        Ok(())
    }

    /// Has a volume that is not complete erased. Answers the revision that shows it.
    pub(in crate::volumes) async fn drop_copy(&self, volume: &Volume) -> Result<u64, VolumeError> {
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
        let _stopped = self.inner.copies.stop(volume.uuid).await;
        let worker = (&volume.drive, Slot::Foreground);
        let done = self.node.run(worker, job, CARVE_DEADLINE).await?;
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
