//! Stage: chooses the job and the worker, and records what the outcome shows about the volume.

use std::path::{Path, PathBuf};

use super::{Caller, STAGE_DEADLINE, VolumeError, Volumes, guard::VolumeGuard};
use drivebay_evidence::mounts::{RequestedMount, Role};
use drivebay_fs::{
    jobs::{FsError, Growth, Stage, StageMount, Staged},
    parse_mount_flags,
};
use drivebay_model::{DriveId, FsType, Mode, StageSecrets, Volume};
use drivebay_sys::mountinfo;
use drivebay_worker::{Lane, RunError, Slot, WorkerKey};

/// A stage that takes longer is answered with ABORTED, and continues: the kubelet waits for 120 s.
const STAGE_ANSWER: std::time::Duration = std::time::Duration::from_secs(115);
/// Volumes of one drive that are staged at a time: one whose mkfs takes minutes must not delay the others.
const STAGES: u32 = 4;
/// Longest duration of a stage with a repair: e2fsck of a large, slow, damaged filesystem.
const REPAIR_DEADLINE: std::time::Duration = std::time::Duration::from_secs(6 * 3600);

/// A stage request, checked by the caller.
#[derive(Debug, Clone)]
pub struct StageRequest {
    pub id: String,
    pub path: PathBuf,
    pub mode: Mode,
    /// Filesystem that the request names.
    pub fs_type: Option<FsType>,
    pub flags: Vec<String>,
    /// True for a reader-only access mode.
    pub read_only: bool,
    /// Open an encrypted volume.
    pub secrets: Option<StageSecrets>,
}

impl Volumes {
    /// True if the mount at this path is read-only by its own flag.
    pub(super) fn meant_read_only(&self, path: &str) -> bool {
        self.node.inventory().is_mounted_read_only(Path::new(path))
    }

    /// Stages the volume. Errs with `Pending` after `STAGE_ANSWER`, while staging continues.
    pub async fn stage(&self, request: StageRequest) -> Result<(), VolumeError> {
        let volume = self.require_scanned(&request.id).await?;
        same_use(&volume, request.mode, request.fs_type)?;
        let (uuid, id) = (volume.uuid, request.id.clone());
        let staging = self.changing_volume(uuid, &id, Caller::Csi, |this, held| async move {
            this.stage_guarded(&held, &volume, request).await
        });
        // A repair continues, and a repeat gets the same answer until it is done.
        tokio::time::timeout(STAGE_ANSWER, staging)
            .await
            .unwrap_or_else(|_| Err(VolumeError::Pending { what: id.clone() }))
    }

    pub(super) async fn stage_guarded(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        request: StageRequest,
    ) -> Result<(), VolumeError> {
        self.call_off_check(held).await;
        self.not_detached(volume)?;
        let (drive, volume) = self.reach_settled(held, volume).await?;
        let volume = self.settle_lost(&drive, &volume, true).await?;
        let (drive, volume) = (&drive, &volume);
        let class = self
            .node
            .config()
            .classes
            .iter()
            .find(|class| class.name == volume.placed.record.class);
        let staging = (request.mode == Mode::Mount).then(|| mountinfo::resolve(&request.path));
        let given = all_options(volume, &request.flags);
        let read_only = request.read_only || given.iter().any(|flag| flag == "ro");
        // The worker refuses invalid ones.
        let options = parse_mount_flags(&given).ok();
        let options = options.map(|flags| flags.of_filesystem());
        let mounted_with = staging
            .as_deref()
            .and_then(|path| self.node.expected().request_of(volume.uuid, path).options);
        let job = Stage {
            drive: drive.clone(),
            uuid: volume.uuid,
            mount: (request.mode == Mode::Mount).then(|| StageMount {
                path: request.path,
                fs_type: request.fs_type,
                flags: request.flags,
                read_only: request.read_only,
                mounted_with: mounted_with.clone(),
                xfs_retry_forever: class.is_some_and(|class| class.xfs_retry_forever),
            }),
            secrets: request.secrets,
            may_repair: false,
        };
        let staged = self.run_stage(volume, job).await;
        let staged = match staged {
            Ok(staged) => staged,
            Err(error) => return Err(self.not_staged(volume, error).await),
        };
        let inventory = self.node.inventory();
        inventory.put_contents(&volume.drive, staged.contents);
        if staged.already {
            // It may have been remounted.
            self.node.mounts().reread()?;
        } else {
            self.node.mounts().refresh()?;
            self.node.inventory().mounted_afresh(volume.uuid);
            self.node
                .inventory()
                .put_conditions(volume.uuid, Vec::new());
        }
        if let Some(path) = staging {
            let requested = RequestedMount {
                // A mount whose requested options are unknown stays so.
                options: if staged.already {
                    mounted_with
                } else {
                    options
                },
                ..RequestedMount::default()
            };
            self.node
                .expected()
                .expect(path, volume.uuid, Role::Staging, read_only, requested);
        }
        self.learn_from_stage(volume.uuid, &staged.growth);
        let grown = staged.growth == Growth::Grown;
        tracing::info!(volume = %volume.uuid, formatted = staged.formatted, grown, already = staged.already, "volume staged");
        Ok(())
    }

    /// Runs the job. If the filesystem needs a repair, runs it again with one, in a worker of its own: nothing else on
    /// the drive waits for that.
    async fn run_stage(&self, volume: &Volume, job: Stage) -> Result<Staged, RunError<FsError>> {
        let worker = self.stage_worker(&volume.drive);
        let staged = self.node.run(worker.clone(), job.clone(), STAGE_DEADLINE);
        let device = match staged.await {
            Err(RunError::Job(FsError::NeedsRepair { device, .. })) => device,
            done => return done,
        };
        tracing::warn!(volume = %volume.uuid, drive = %volume.drive, device, "filesystem repair started");
        let job = Stage {
            may_repair: true,
            ..job
        };
        let own = worker.on(Lane::Volume(volume.uuid));
        self.node.run(own, job, REPAIR_DEADLINE).await
    }

    /// Records what a failed stage shows about the volume, before the call is answered.
    async fn not_staged(&self, volume: &Volume, error: RunError<FsError>) -> VolumeError {
        match &error {
            RunError::Job(FsError::Layout(error)) => {
                self.reread_if_contradicted(volume, error).await
            }
            RunError::Job(error) => self.learn_from_failed_stage(&volume.placed, error),
            _ => {}
        }
        error.into()
    }

    /// Returns the worker that stages a volume of this drive: the first free one, or the main one.
    fn stage_worker(&self, drive: &DriveId) -> WorkerKey {
        let main = WorkerKey::from((drive, Slot::Stage));
        std::iter::once(Lane::Main)
            .chain((1..STAGES).map(Lane::Number))
            .map(|lane| main.on(lane))
            .find(|worker| !self.node.pool().is_taken(worker))
            .unwrap_or(main)
    }
}

/// Returns the mount options of the volume, and those that a request adds.
pub(super) fn all_options(volume: &Volume, flags: &[String]) -> Vec<String> {
    let own = volume.placed.record.mount_options.iter();
    own.chain(flags).cloned().collect()
}

/// Errs with `Incompatible` unless the volume is used in this mode, with this filesystem if one is named.
pub(super) fn same_use(
    volume: &Volume,
    mode: Mode,
    fs_type: Option<FsType>,
) -> Result<(), VolumeError> {
    let record = &volume.placed.record;
    let (is, wanted) = match (record.fs_type, fs_type) {
        _ if record.mode != mode => (record.mode.as_str(), mode.as_str()),
        (Some(is), Some(wanted)) if is != wanted => (is.as_str(), wanted.as_str()),
        _ => return Ok(()),
    };
    Err(VolumeError::Fs(RunError::Job(FsError::Incompatible {
        uuid: volume.uuid,
        is: is.to_owned(),
        requested: wanted.to_owned(),
    })))
}
