//! DeleteVolume on this node: remove the volume from the kernel, mark it for erasing, answer.

use std::path::PathBuf;

use super::{Caller, LAYOUT_DEADLINE, VolumeError, Volumes, guard::VolumeGuard};
use crate::inventory::assemble::is_damaged;
use drivebay_layout::jobs::{Delete, LayoutError};
use drivebay_model::{
    DriveState, Snapshot, Volume, VolumeState, cause::chain, created_for::is_manual,
};
use drivebay_proto::VolumeId;
use drivebay_worker::{RunError, Slot};

/// True if the deletion can only be recorded, because nothing can be done on the volume's drive now: it was observed to
/// be missing, or is damaged and unread until an operator repairs it; or it was read without the volume, so that the
/// tombstone only removes it from the lists. A drive in an unknown state is none of these. Pure.
pub(super) fn can_only_be_noted(snapshot: &Snapshot, volume: &Volume) -> bool {
    let now = snapshot.volumes.get(&volume.uuid);
    let Some(now) = now.filter(|now| now.state == VolumeState::Missing) else {
        return false;
    };
    snapshot.drives.get(&now.drive).is_some_and(|drive| {
        matches!(drive.state, DriveState::Missing | DriveState::Claimed) || is_damaged(drive)
    })
}

impl Volumes {
    /// Deletes the volume; succeeds if it does not exist. Returns the revision that shows it. `quarantine`: the volume
    /// is kept, shown but unusable, until the quarantine is over.
    pub async fn delete(
        &self,
        id: String,
        quarantine: bool,
        caller: Caller<'_>,
    ) -> Result<u64, VolumeError> {
        let revision = self.node.inventory().current().revision;
        let volume = match self.require_scanned(&id).await {
            Ok(volume) => volume,
            // Its drive may be plugged in later: the caller has no other record of the deletion.
            Err(VolumeError::NotFound { .. }) if quarantine => {
                return self.note_unseen_deletion(&id, revision).await;
            }
            Err(VolumeError::NotFound { .. }) => return Ok(revision),
            Err(other) => return Err(other),
        };
        self.changing_volume(volume.uuid, &id, caller, |this, held| async move {
            let revision = this.delete_guarded(&held, &volume, quarantine).await?;
            this.forget_manual_mount(volume.uuid).await;
            Ok(revision)
        })
        .await
    }

    /// Records durably that a volume which no drive here has was deleted: it is quarantined if one appears with it.
    async fn note_unseen_deletion(&self, id: &str, revision: u64) -> Result<u64, VolumeError> {
        let parsed: Option<VolumeId> = id.parse().ok();
        let Some(of) = parsed.filter(|of| of.node == self.node.config().node_id) else {
            return Ok(revision);
        };
        let noted = self.inner.keeper.add_deletion(of.uuid).await;
        noted.map_err(|error| VolumeError::not_noted(of.uuid, error))
    }

    /// Removes the manual mount of a deleted volume, which must not be made at the next start of the host.
    pub(super) async fn forget_manual_mount(&self, uuid: uuid::Uuid) {
        if let Err(error) = self.inner.hand_mounts.remove(uuid).await {
            tracing::warn!(volume = %uuid, error = %chain(&error), "cannot forget the mount of a deleted volume");
        }
    }

    /// True if the volume is in use. Reads the mount table first, since an unmount outside the agent is published a
    /// little later. A volume whose device is unknown is in use where our own calls mounted it.
    pub(super) fn is_in_use_now(&self, volume: &Volume) -> Result<bool, VolumeError> {
        self.node.mounts().refresh()?;
        let now = self.node.inventory().current();
        let Some(volume) = now.volumes.get(&volume.uuid) else {
            return Ok(false);
        };
        let is_mounted = |path: &PathBuf| self.node.mounts().count_at(path) > 0;
        let is_recorded = volume.placed.used_device().is_none()
            && self
                .node
                .expected()
                .paths(volume.uuid)
                .iter()
                .any(is_mounted);
        Ok(volume.in_use || is_recorded)
    }

    pub(super) async fn delete_guarded(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        quarantine: bool,
    ) -> Result<u64, VolumeError> {
        if self.is_in_use_now(volume)? {
            return Err(VolumeError::InUse { uuid: volume.uuid });
        }
        // Never acknowledged as complete.
        if volume.state == VolumeState::Copying {
            return self.drop_copy(volume).await;
        }
        self.call_off_check(held).await;
        self.not_detached(volume)?;
        if volume.state == VolumeState::Quarantined {
            self.drop_all_held(held, volume).await?;
        }
        if quarantine || can_only_be_noted(&self.node.inventory().current(), volume) {
            // Out of reach, or its node was when the volume was deleted: the tombstone is durable. A volume with one is
            // quarantined when it is seen, shown, and erased after a delay.
            let noted = self.inner.keeper.add_tombstone(volume).await;
            return noted.map_err(|error| VolumeError::not_noted(volume.uuid, error));
        }
        self.delete_on_drive(held, volume, false).await
    }

    /// Deletes a volume that was never used, by its record on the drive and by its bytes. Succeeds if it does not
    /// exist. Returns the revision that shows it.
    ///
    /// # Errors
    /// `Layout` with `Used`; and any failure to access the drive: no tombstone is written.
    pub async fn delete_unused(&self, id: String, name: &str) -> Result<u64, VolumeError> {
        let revision = self.node.inventory().current().revision;
        let volume = match self.require_scanned(&id).await {
            Ok(volume) => volume,
            Err(VolumeError::NotFound { .. }) => return Ok(revision),
            Err(other) => return Err(other),
        };
        let record = &volume.placed.record;
        if record.name != name || is_manual(&record.parameters) {
            return Err(VolumeError::Invalid {
                field: "name",
                why: format!("volume {id} is not one that CSI made as {name:?}"),
            });
        }
        self.changing_volume(
            volume.uuid,
            &id,
            Caller::CsiDelete,
            |this, held| async move {
                if this.is_in_use_now(&volume)? {
                    return Err(VolumeError::InUse { uuid: volume.uuid });
                }
                this.call_off_check(&held).await;
                this.not_detached(&volume)?;
                this.delete_on_drive(&held, &volume, true).await
            },
        )
        .await
    }

    async fn delete_on_drive(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        only_unused: bool,
    ) -> Result<u64, VolumeError> {
        let (drive, _) = self.reach_settled(held, volume).await?;
        let job = Delete {
            drive,
            uuid: volume.uuid,
            only_unused,
        };
        match self
            .node
            .run((&volume.drive, Slot::Foreground), job, LAYOUT_DEADLINE)
            .await
        {
            Ok(done) => {
                self.inner.samples.forget(volume.uuid);
                tracing::info!(volume = %volume.uuid, drive = %volume.drive, changed = done.changed, "volume deleted; its space is being erased");
                let inventory = self.node.inventory();
                let revision = inventory.put_contents(&volume.drive, done.contents);
                Ok(self.delete_other_places(volume.uuid).await.max(revision))
            }
            Err(RunError::Job(LayoutError::InUse { uuid, held })) => {
                Err(VolumeError::Held { uuid, held })
            }
            Err(error) => Err(error.into()),
        }
    }
}
