//! DeleteVolume on this node: take it from the kernel, mark it for erasing, answer.

use super::{CARVE_DEADLINE, VolumeError, Volumes, guard::Key};
use crate::{
    carve::jobs::{CarveError, Delete},
    model::{Cause, DriveState, VolumeState},
    worker::{RunError, Slot},
};

/// Longest a write to the state directory may take.
const STATE_DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);

impl Volumes {
    /// Deletes the volume; one that does not exist is deleted already. Answers the revision that shows it.
    pub async fn delete(&self, id: String) -> Result<u64, VolumeError> {
        let revision = self.inner.inventory.current().revision;
        let volume = match self.require(&id) {
            Ok(volume) => volume,
            Err(VolumeError::NotFound { .. }) => return Ok(revision),
            Err(other) => return Err(other),
        };
        let guard = self
            .inner
            .guards
            .take(Key::Volume(volume.uuid))
            .ok_or_else(|| VolumeError::Pending { what: id.clone() })?;
        let this = self.clone();
        self.tracked(async move {
            let result = this.delete_guarded(&volume).await;
            drop(guard);
            result
        })
        .await
    }

    async fn delete_guarded(&self, volume: &crate::model::Volume) -> Result<u64, VolumeError> {
        if volume.in_use {
            return Err(VolumeError::InUse { uuid: volume.uuid });
        }
        let missing = self
            .inner
            .inventory
            .current()
            .drives
            .get(&volume.drive)
            .is_none_or(|drive| drive.state == DriveState::Missing);
        if volume.state == VolumeState::Missing && missing {
            // The drive is away: note it durably. When the drive returns the volume is quarantined,
            // shown, and erased after a delay.
            let memory = self.inner.memory.clone();
            let uuid = volume.uuid;
            crate::sys::offload::offload("bury", STATE_DEADLINE, move || memory.bury(uuid))
                .await
                .map_err(Cause::from)
                .flatten()
                .map_err(|source| VolumeError::Remember { uuid, source })?;
            tracing::warn!(volume = %uuid, drive = %volume.drive, "volume deleted while its drive is away; it will be quarantined when the drive returns");
            return Ok(self.inner.inventory.update(|known| {
                known.memory.tombstones.entry(uuid).or_insert(
                    crate::model::snapshot::Tombstone {
                        deleted_at: crate::sys::clock::unix_seconds(),
                        returned_at: None,
                    },
                );
            }));
        }
        let job = Delete {
            drive: self.reach(volume)?,
            uuid: volume.uuid,
        };
        match self
            .inner
            .pool
            .run(&volume.drive, Slot::Foreground, job, CARVE_DEADLINE)
            .await
        {
            Ok(done) => {
                self.inner.samples.forget(volume.uuid);
                tracing::info!(volume = %volume.uuid, drive = %volume.drive, changed = done.changed, "volume deleted; its space is being erased");
                Ok(self
                    .inner
                    .inventory
                    .put_contents(&volume.drive, done.contents))
            }
            Err(RunError::Job(CarveError::InUse { uuid, .. })) => {
                Err(VolumeError::InUse { uuid })
            }
            Err(error) => {
                self.note_stuck(&volume.drive, &error);
                Err(VolumeError::Carve(error))
            }
        }
    }
}
