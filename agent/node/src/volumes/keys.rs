//! Secrets and recovery keys of encrypted volumes, at an operator's request. The volume may be in use.

use super::{Caller, STAGE_DEADLINE, VolumeError, Volumes, guard::VolumeGuard};
use drivebay_fs::jobs::{AddRecoveryKey, CheckSecret, CheckedSecret, FsError, Rekey};
use drivebay_model::{DriveRef, Placed, Secret, StageSecrets, Volume};
use drivebay_worker::{Job, Slot};

impl Volumes {
    /// Changes the secret of an encrypted volume from the previous one.
    pub async fn change_secret(
        &self,
        id: String,
        secrets: StageSecrets,
    ) -> Result<(), VolumeError> {
        let volume = self.require_scanned(&id).await?;
        // A copy of the volume for a move has its header: it is out of date now.
        self.changing_volume(volume.uuid, &id, Caller::Manual, |this, held| async move {
            let job = |drive, placed| Rekey {
                drive,
                placed,
                secrets,
            };
            this.run_on(&held, &volume, job).await
        })
        .await
    }

    /// Verifies the secret of an encrypted volume.
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
        let job = |drive, placed| CheckSecret {
            drive,
            placed,
            secret,
        };
        self.run_on(held, volume, job).await
    }

    /// Adds a recovery key to an encrypted volume, in place of an earlier one. Makes its header if it has none yet.
    pub async fn add_recovery_key(
        &self,
        id: String,
        secret: Secret,
        recovery: Secret,
    ) -> Result<(), VolumeError> {
        let volume = self.require_scanned(&id).await?;
        self.changing_volume(volume.uuid, &id, Caller::Manual, |this, held| async move {
            let job = |drive, placed| AddRecoveryKey {
                drive,
                placed,
                secret,
                recovery,
            };
            this.run_on(&held, &volume, job).await?;
            tracing::info!(volume = %volume.uuid, "recovery key added to an encrypted volume");
            Ok(())
        })
        .await
    }

    /// Runs a job on the volume, where it is now.
    async fn run_on<J: Job<Error = FsError>>(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        job: impl FnOnce(DriveRef, Placed) -> J,
    ) -> Result<J::Answer, VolumeError> {
        let (drive, volume) = self.reach_settled(held, volume).await?;
        let job = job(drive, volume.placed);
        let worker = (&volume.drive, Slot::Foreground);
        Ok(self.node.run(worker, job, STAGE_DEADLINE).await?)
    }
}
