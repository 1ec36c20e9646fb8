//! NodeExpandVolume: growing a filesystem to its device.

use std::path::PathBuf;

use super::{Caller, STAGE_DEADLINE, VolumeError, Volumes, guard::VolumeGuard, reach::device_of};
use drivebay_fs::jobs::{FsError, GrowFs};
use drivebay_model::{Mode, Volume};
use drivebay_worker::{RunError, Slot};

impl Volumes {
    /// Grows the filesystem to its device. Returns the device's size in bytes.
    pub async fn grow(
        &self,
        id: String,
        path: PathBuf,
        caller: Caller<'_>,
    ) -> Result<u64, VolumeError> {
        let volume = self.require_scanned(&id).await?;
        self.changing_volume(volume.uuid, &id, caller, |this, held| async move {
            this.grow_guarded(&held, &volume, path).await
        })
        .await
    }

    async fn grow_guarded(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        path: PathBuf,
    ) -> Result<u64, VolumeError> {
        self.call_off_check(held).await;
        let (drive, volume) = self.reach_settled(held, volume).await?;
        // Its mapped device gets the new size as well.
        let volume = self.settle_lost(&drive, &volume, true).await?;
        let (drive, volume) = (&drive, &volume);
        let job = GrowFs {
            drive: drive.clone(),
            uuid: volume.uuid,
            path,
            device: device_of(volume)?,
            encryption: volume.placed.record.encryption(),
            block: volume.placed.record.mode == Mode::Block,
        };
        let grown = self
            .node
            .run((&volume.drive, Slot::Foreground), job, STAGE_DEADLINE)
            .await;
        match &grown {
            Ok(_) => self.learn_from_growing(volume.uuid, None),
            Err(RunError::Job(FsError::Grow { output, .. })) => {
                self.learn_from_growing(volume.uuid, Some(output));
            }
            Err(_) => {}
        }
        Ok(grown?.device_bytes)
    }
}
