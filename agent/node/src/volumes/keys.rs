//! Secrets and recovery keys of encrypted volumes, at an operator's request.

use super::{Caller, STAGE_DEADLINE, VolumeError, Volumes, guard::VolumeGuard};
use drivebay_fs::jobs::{AddRecoveryKey, CheckSecret, CheckedSecret, Rekey};
use drivebay_model::{Secret, StageSecrets, Volume};
use drivebay_worker::Slot;

impl Volumes {
    /// Changes the secret of an encrypted volume from the previous one, also while it is in use.
    pub async fn change_secret(
        &self,
        id: String,
        secrets: StageSecrets,
    ) -> Result<(), VolumeError> {
        let volume = self.require_scanned(&id).await?;
        // A copy of the volume for a move has its header: it is out of date now.
        self.changing_volume(volume.uuid, &id, Caller::Manual, |this, held| async move {
            let (drive, volume) = this.reach_settled(&held, &volume).await?;
            let job = Rekey {
                drive,
                placed: volume.placed,
                secrets,
            };
            let worker = (&volume.drive, Slot::Foreground);
            this.node.run(worker, job, STAGE_DEADLINE).await?;
            Ok(())
        })
        .await
    }

    /// Verifies the secret of an encrypted volume, also while it is in use.
    pub async fn check_secret(
        &self,
        id: String,
        secret: Secret,
    ) -> Result<CheckedSecret, VolumeError> {
        let volume = self.require_scanned(&id).await?;
        self.changing_volume(volume.uuid, &id, Caller::Mover, |this, held| async move {
            this.check_secret_guarded(&held, &volume, secret).await
        })
        .await
    }

    pub(super) async fn check_secret_guarded(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        secret: Secret,
    ) -> Result<CheckedSecret, VolumeError> {
        let (drive, volume) = self.reach_settled(held, volume).await?;
        let job = CheckSecret {
            drive,
            placed: volume.placed,
            secret,
        };
        let worker = (&volume.drive, Slot::Foreground);
        Ok(self.node.run(worker, job, STAGE_DEADLINE).await?)
    }

    /// Adds a recovery key to an encrypted volume, in place of an earlier one, also while it is in use. Makes its header if it has none
    /// yet.
    pub async fn add_recovery_key(
        &self,
        id: String,
        secret: Secret,
        recovery: Secret,
    ) -> Result<(), VolumeError> {
        let volume = self.require_scanned(&id).await?;
        self.changing_volume(volume.uuid, &id, Caller::Manual, |this, held| async move {
            let (drive, volume) = this.reach_settled(&held, &volume).await?;
            let job = AddRecoveryKey {
                drive,
                placed: volume.placed,
                secret,
                recovery,
            };
            let worker = (&volume.drive, Slot::Foreground);
            this.node.run(worker, job, STAGE_DEADLINE).await?;
            tracing::info!(volume = %volume.uuid, "recovery key added to an encrypted volume");
            Ok(())
        })
        .await
    }
}
