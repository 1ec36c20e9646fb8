//! Executes the filesystem and mount jobs in a drive's worker.

use super::{
    backend::Real,
    crypt::{self, Opening},
    device, growing,
    jobs::{
        AddRecoveryKey, CheckSecret, CheckedSecret, CloseMapping, FsError, GrowFs, Grown, Hold,
        Publish, Published, Rekey, Stage, Staged, Stats, Unmount, Unmounted, Usage,
    },
    mapped, publish, staging, unmount, usage,
};
use drivebay_model::{DriveRef, Placed, Secret, StageSecrets};
use drivebay_worker::{Context, Job};

impl Job for Stage {
    const NAME: &'static str = "stage";
    type Answer = Staged;
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<Staged, FsError> {
        staging::stage(&Real, &self, context)
    }
}

impl Job for Publish {
    const NAME: &'static str = "publish";
    type Answer = Published;
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<Published, FsError> {
        publish::publish(&self, context)
    }
}

impl Job for Hold {
    const NAME: &'static str = "hold";
    type Answer = ();
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<(), FsError> {
        context.step("opening the device");
        context.keep(device::hold(&self.drive, &self.placed)?);
        Ok(())
    }
}

impl Job for Unmount {
    const NAME: &'static str = "unmount";
    type Answer = Unmounted;
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<Unmounted, FsError> {
        unmount::unmount(&self, context)
    }
}

impl Job for CloseMapping {
    const NAME: &'static str = "close-mapping";
    /// True if there was one.
    type Answer = bool;
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<bool, FsError> {
        context.step("removing a mapped device");
        mapped::close(self.uuid, &self.mappings)
    }
}

impl Job for Rekey {
    const NAME: &'static str = "rekey";
    type Answer = ();
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<(), FsError> {
        crypt::rekey(&opening(&self.drive, &self.placed, &self.secrets)?, context)
    }
}

impl Job for CheckSecret {
    const NAME: &'static str = "check-secret";
    type Answer = CheckedSecret;
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<CheckedSecret, FsError> {
        let secrets = only(self.secret);
        crypt::check_secret(&opening(&self.drive, &self.placed, &secrets)?, context)
    }
}

impl Job for AddRecoveryKey {
    const NAME: &'static str = "add-recovery-key";
    type Answer = ();
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<(), FsError> {
        let secrets = only(self.secret);
        let opening = opening(&self.drive, &self.placed, &secrets)?;
        crypt::add_recovery_key(&opening, &self.recovery, context)
    }
}

fn only(secret: Secret) -> StageSecrets {
    StageSecrets {
        secret,
        previous: None,
    }
}

/// Errs with `NotEncrypted` for a volume that is not encrypted.
fn opening<'a>(
    drive: &'a DriveRef,
    placed: &'a Placed,
    secrets: &'a StageSecrets,
) -> Result<Opening<'a>, FsError> {
    let uuid = placed.record.uuid;
    let encryption = placed.record.encryption();
    Ok(Opening {
        backend: &Real,
        drive,
        placed,
        encryption: encryption.ok_or(FsError::NotEncrypted { uuid })?,
        secrets,
        may_format: true,
    })
}

impl Job for Stats {
    const NAME: &'static str = "stats";
    const READ_ONLY: bool = true;
    const COMES_AGAIN: bool = true;
    type Answer = Usage;
    type Error = FsError;
    fn run(self, _context: &mut Context) -> Result<Usage, FsError> {
        usage::usage(&self)
    }
}

impl Job for GrowFs {
    const NAME: &'static str = "grow-fs";
    type Answer = Grown;
    type Error = FsError;
    fn run(self, context: &mut Context) -> Result<Grown, FsError> {
        growing::grow(&Real, &self, context)
    }
}
