//! Stage, publish, and growing a filesystem: which job for which drive.

use std::{
    borrow::Borrow,
    path::{Path, PathBuf},
};

use super::{Caller, MOUNT_DEADLINE, STAGE_DEADLINE, VolumeError, Volumes, guard::VolumeGuard};
use drivebay_evidence::mounts::{Asked, Role};
use drivebay_fs::{
    device,
    jobs::{Device, FsError, GrowFs, Growth, Publish, Published, Stage, StageMount},
    parse_mount_flags,
};
use drivebay_layout::jobs::{CarveError, Look};
use drivebay_model::{DriveId, DriveRef, DriveState, FsType, Mode, Volume, cause::chain};
use drivebay_sys::mountinfo::{self, MountEntry};
use drivebay_worker::{Lane, RunError, Slot, WorkerKey};

/// A stage is answered with ABORTED after this, and goes on: the kubelet waits for 120 s.
const STAGE_ANSWER: std::time::Duration = std::time::Duration::from_secs(115);
/// Volumes of one drive that are staged at a time: one whose mkfs takes minutes keeps no other waiting.
const STAGES: u32 = 4;
/// Longest a stage with a repair may take: e2fsck of a large, slow, damaged filesystem.
const REPAIR_DEADLINE: std::time::Duration = std::time::Duration::from_secs(6 * 3600);

/// How a volume is to be staged, checked by the caller.
#[derive(Debug, Clone)]
pub struct StageRequest {
    pub id: String,
    pub path: PathBuf,
    /// Use.
    pub mode: Mode,
    /// The filesystem the request names.
    pub fs_type: Option<FsType>,
    /// Mount flags.
    pub flags: Vec<String>,
    /// A reader-only access mode.
    pub read_only: bool,
}

/// How a volume is to be published, checked by the caller.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    pub id: String,
    pub staging: PathBuf,
    pub target: PathBuf,
    /// Use.
    pub mode: Mode,
    /// The filesystem the request names.
    pub fs_type: Option<FsType>,
    /// Mount flags.
    pub flags: Vec<String>,
    /// Never writable.
    pub read_only: bool,
    /// One target only (SINGLE_NODE_SINGLE_WRITER).
    pub exclusive: bool,
    /// For whom, NAMESPACE/NAME, where the caller says so.
    pub pod: Option<String>,
}

impl Volumes {
    /// Whether this path was made read-only on purpose.
    pub(super) fn meant_read_only(&self, path: &str) -> bool {
        self.node.inventory().is_mounted_read_only(Path::new(path))
    }

    /// Stages the volume.
    pub async fn stage(&self, request: StageRequest) -> Result<(), VolumeError> {
        let volume = self.require_scanned(&request.id).await?;
        same_use(&volume, request.mode, request.fs_type)?;
        let (uuid, id) = (volume.uuid, request.id.clone());
        let staging = self.changing_volume(uuid, &id, Caller::Csi, |this, held| async move {
            this.stage_guarded(&held, &volume, request).await
        });
        // A repair goes on, and a repeat gets the same answer until it is done.
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
        let (drive, volume) = &self.reach_settled(held, volume).await?;
        let class = self
            .node
            .config()
            .classes
            .iter()
            .find(|class| class.name == volume.placed.record.class);
        let staging = (request.mode == Mode::Mount).then(|| mountinfo::resolve(&request.path));
        let given = all_options(volume, &request.flags);
        let read_only = request.read_only || given.iter().any(|flag| flag == "ro");
        // Refused ones are the worker's to refuse.
        let options = parse_mount_flags(&given).ok();
        let options = options.map(|flags| flags.of_filesystem());
        let mounted_with = staging
            .as_deref()
            .and_then(|path| self.node.expected().asked(volume.uuid, path).options);
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
            may_repair: false,
        };
        let (worker, again) = (self.stage_worker(&volume.drive), job.clone());
        let staged = match self.node.run(worker.clone(), job, STAGE_DEADLINE).await {
            Err(RunError::Job(FsError::NeedsRepair { device, .. })) => {
                tracing::warn!(volume = %volume.uuid, drive = %volume.drive, device, "filesystem repair started");
                let job = Stage {
                    may_repair: true,
                    ..again
                };
                let own = worker.on(Lane::Volume(volume.uuid));
                self.node.run(own, job, REPAIR_DEADLINE).await
            }
            done => done,
        };
        let staged = match staged {
            Ok(staged) => staged,
            Err(error) => return Err(self.not_staged(volume, error).await),
        };
        if let Some(contents) = staged.contents {
            self.node.inventory().put_contents(&volume.drive, contents);
        }
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
            let asked = Asked {
                // Of a mount that nobody knows how it was asked for, that stays so.
                options: if staged.already {
                    mounted_with
                } else {
                    options
                },
                ..Asked::default()
            };
            self.node
                .expected()
                .expect(path, volume.uuid, Role::Staging, read_only, asked);
        }
        self.learn_from_stage(volume.uuid, &staged.growth);
        let grown = staged.growth == Growth::Grown;
        tracing::info!(volume = %volume.uuid, formatted = staged.formatted, grown, already = staged.already, "volume staged");
        Ok(())
    }

    /// What a failed stage shows of the volume is its condition before the call is answered.
    async fn not_staged(&self, volume: &Volume, error: RunError<FsError>) -> VolumeError {
        match &error {
            RunError::Job(FsError::Carve(error)) => {
                self.reread_if_contradicted(volume, error).await
            }
            RunError::Job(error) => self.learn_from_failed_stage(&volume.placed, error),
            _ => {}
        }
        error.into()
    }

    /// Reads the volume's drive again when it has something else than was known, so that everybody knows it.
    pub(super) async fn reread_if_contradicted(&self, volume: &Volume, error: &CarveError) {
        if matches!(
            error,
            CarveError::NoSuchVolume { .. } | CarveError::Ambiguous { .. }
        ) && let Err(error) = self.look_again(volume).await
        {
            tracing::debug!(volume = %volume.uuid, error = %chain(&error), "cannot read the drive after a failed call");
        }
    }

    /// Publishes a staged volume.
    pub async fn publish(&self, request: PublishRequest) -> Result<(), VolumeError> {
        let volume = self.require_scanned(&request.id).await?;
        same_use(&volume, request.mode, request.fs_type)?;
        let (uuid, id) = (volume.uuid, request.id.clone());
        self.changing_volume(uuid, &id, Caller::Csi, |this, held| async move {
            this.publish_guarded(&held, &volume, request).await
        })
        .await
    }

    pub(super) async fn publish_guarded(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        request: PublishRequest,
    ) -> Result<(), VolumeError> {
        self.call_off_check(held).await;
        let published = match self.publish_once(held, volume, &request).await {
            // Whoever closes a drive that he wrote to, makes udev take partitions that nobody uses from the kernel and
            // give them back, maybe under another number.
            Err(VolumeError::Fs(RunError::Job(FsError::NotHere { .. })))
                if request.mode == Mode::Block =>
            {
                let volume = self.look_again(volume).await?;
                self.publish_once(held, &volume, &request).await?
            }
            done => done?,
        };
        let target = mountinfo::resolve(&request.target);
        let before = self.node.expected().asked(volume.uuid, &target);
        let other_mode = before.exclusive.is_some_and(|one| one != request.exclusive);
        if !published.changed && other_mode {
            return Err(VolumeError::Fs(RunError::Job(FsError::Conflict {
                path: target.display().to_string(),
                how: "for another access mode; unpublish it first to change that".to_owned(),
            })));
        }
        let flags = parse_mount_flags(&all_options(volume, &request.flags)).ok();
        let read_only = request.read_only || flags.as_ref().is_some_and(|flags| flags.read_only);
        self.node.mounts().take_in(published.mount)?;
        let asked = Asked {
            pod: request.pod,
            exclusive: Some(request.exclusive),
            // Of a mount that nobody knows how it was asked for, that stays so.
            options: match published.changed {
                true => flags.map(|flags| flags.all()),
                false => before.options,
            },
        };
        self.node
            .expected()
            .expect(target, volume.uuid, Role::Target, read_only, asked);
        Ok(())
    }

    /// Which worker stages a volume of this drive: the first that is free, or the main one.
    fn stage_worker(&self, drive: &DriveId) -> WorkerKey {
        let main = WorkerKey::from((drive, Slot::Stage));
        std::iter::once(Lane::Main)
            .chain((1..STAGES).map(Lane::Number))
            .map(|lane| main.on(lane))
            .find(|worker| !self.node.pool().is_taken(worker))
            .unwrap_or(main)
    }

    /// Where to reach the volume's drive, and the volume as it is now. What made a volume ambiguous may be over without a
    /// kernel event, e.g. when the last user of an LV's old device has closed it: the drive is asked before a call is
    /// refused for it.
    pub(super) async fn reach_settled(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
    ) -> Result<(DriveRef, Volume), VolumeError> {
        match self.reach(held, volume) {
            Ok(drive) => Ok((drive, volume.clone())),
            // On two drives it stays ambiguous until one of them is detached.
            Err(VolumeError::Ambiguous { .. }) if self.is_on_one_drive(volume) => {
                let volume = self.look_again(volume).await?;
                Ok((self.reach(held, &volume)?, volume))
            }
            Err(error) => Err(error),
        }
    }

    fn is_on_one_drive(&self, volume: &Volume) -> bool {
        let snapshot = self.node.inventory().current();
        let now = snapshot.volumes.get(&volume.uuid);
        now.is_none_or(|volume| volume.copies.is_empty())
    }

    /// Reads the volume's drive again, and repairs it; the volume as it is now.
    async fn look_again(&self, volume: &Volume) -> Result<Volume, VolumeError> {
        let snapshot = self.node.inventory().current();
        let drive = snapshot
            .drives
            .get(&volume.drive)
            .filter(|drive| drive.state == DriveState::Claimed)
            .ok_or_else(|| VolumeError::DriveAway {
                uuid: volume.uuid,
                drive: volume.drive.clone(),
            })?;
        let job = Look {
            drive: DriveRef::from(&drive.facts),
            repair: true,
        };
        let contents = self
            .node
            .run((&volume.drive, Slot::Foreground), job, MOUNT_DEADLINE)
            .await?;
        self.node.inventory().put_contents(&volume.drive, contents);
        let current = self.node.inventory().current();
        current
            .volumes
            .get(&volume.uuid)
            .cloned()
            .ok_or_else(|| VolumeError::NotFound {
                id: volume.uuid.to_string(),
            })
    }

    async fn publish_once(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        request: &PublishRequest,
    ) -> Result<Published, VolumeError> {
        let (drive, volume) = &self.reach_settled(held, volume).await?;
        match self.publish_as_known(drive.clone(), volume, request).await {
            // An LV has another device since somebody deactivated and activated it: the drive says which.
            Err(VolumeError::Fs(RunError::Job(FsError::NotHere { .. }))) => {
                let volume = self.look_again(volume).await?;
                let drive = self.reach(held, &volume)?;
                self.publish_as_known(drive, &volume, request).await
            }
            done => done,
        }
    }

    async fn publish_as_known(
        &self,
        drive: DriveRef,
        volume: &Volume,
        request: &PublishRequest,
    ) -> Result<Published, VolumeError> {
        let device = device_of(volume)?;
        let targets = self.node.expected().targets(volume.uuid, request.exclusive);
        if !targets.is_empty() {
            self.node.mounts().refresh()?;
            let other = other_target(
                &self.node.mounts().entries(),
                |mount| is_of_device(mount, &device.name, device.dev),
                targets,
                &mountinfo::resolve(&request.target),
            );
            if let Some(at) = other {
                return Err(VolumeError::OtherTarget {
                    uuid: volume.uuid,
                    at: at.display().to_string(),
                });
            }
        }
        let asked = |path: &Path| {
            let path = mountinfo::resolve(path);
            self.node.expected().asked(volume.uuid, &path).options
        };
        let job = Publish {
            drive,
            uuid: volume.uuid,
            device,
            staging_path: (request.mode == Mode::Mount).then(|| request.staging.clone()),
            target: request.target.clone(),
            read_only: request.read_only,
            options: volume.placed.record.mount_options.clone(),
            flags: request.flags.clone(),
            staged_with: asked(&request.staging),
            published_with: asked(&request.target),
        };
        let published = self
            .node
            .run((&volume.drive, Slot::Foreground), job, MOUNT_DEADLINE);
        Ok(published.await?)
    }

    /// Grows the filesystem to its device. Answers the device's size in bytes.
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
        let (drive, volume) = &self.reach_settled(held, volume).await?;
        let job = GrowFs {
            drive: drive.clone(),
            uuid: volume.uuid,
            path,
            device: device_of(volume)?,
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

/// The device of a volume that must have one.
pub(super) fn device_of(volume: &Volume) -> Result<Device, VolumeError> {
    Device::of(&volume.placed).ok_or_else(|| VolumeError::DriveAway {
        uuid: volume.uuid,
        drive: volume.drive.clone(),
    })
}

/// The mount options of the volume, and those that a request adds.
fn all_options(volume: &Volume, flags: &[String]) -> Vec<String> {
    let own = volume.placed.record.mount_options.iter();
    own.chain(flags).cloned().collect()
}

/// Whether the volume is used in this mode, with this filesystem if one is named.
fn same_use(volume: &Volume, mode: Mode, fs_type: Option<FsType>) -> Result<(), VolumeError> {
    let record = &volume.placed.record;
    let (is, asked) = match (record.fs_type, fs_type) {
        _ if record.mode != mode => (record.mode.as_str(), mode.as_str()),
        (Some(is), Some(asked)) if is != asked => (is.as_str(), asked.as_str()),
        _ => return Ok(()),
    };
    Err(VolumeError::Fs(RunError::Job(FsError::Incompatible {
        uuid: volume.uuid,
        is: is.to_owned(),
        asked: asked.to_owned(),
    })))
}

/// Whether this is a mount of the device's filesystem, or a bind of its node.
pub(super) fn is_of_device(mount: &MountEntry, device: &str, dev: (u32, u32)) -> bool {
    mount.source == Path::new("/dev").join(device)
        || device::is_mount_of(mount, dev)
        || (mount.fs_type == "devtmpfs" && mount.root == Path::new("/").join(device))
}

/// Another target where the volume is published. None if it is published at this one: a call that is repeated is
/// answered like the first. Paths are resolved. Pure.
///
/// Only the targets of our own calls count. The kubelet binds what is published once more, a subPath or a raw volume's
/// device, and does so below directories that only it knows.
fn other_target(
    mounts: &[impl Borrow<MountEntry>],
    is_of_volume: impl Fn(&MountEntry) -> bool,
    targets: Vec<PathBuf>,
    target: &Path,
) -> Option<PathBuf> {
    let published = |path: &Path| {
        let at = mountinfo::mounts_at(mounts, path);
        at.into_iter().any(&is_of_volume)
    };
    if published(target) {
        return None;
    }
    targets
        .into_iter()
        .find(|path| path != target && published(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_target_of_our_own_stops_a_single_writer() {
        let rows = b"1 2 8:3 / /staging rw - ext4 /dev/sda3 rw\n\
            2 2 8:3 / /pods/a/mount rw - ext4 /dev/sda3 rw\n\
            3 2 8:3 /var/db /pods/a/volume-subpaths/v/main/0 rw - ext4 /dev/sda3 rw\n\
            4 2 8:4 / /pods/b/mount rw - ext4 /dev/sda4 rw\n";
        let mounts = mountinfo::parse(rows).unwrap();
        let other = |targets: &[&str], target: &str| {
            let targets = targets.iter().map(PathBuf::from).collect();
            let of = |mount: &MountEntry| is_of_device(mount, "sda3", (8, 3));
            other_target(&mounts, of, targets, Path::new(target))
        };
        // Repeated, also if there were two before the access mode was changed.
        assert_eq!(other(&["/pods/a/mount"], "/pods/a/mount"), None);
        assert_eq!(other(&["/pods/a/mount", "/staging"], "/pods/a/mount"), None);
        // The kubelet's bind, a target that is not mounted, and one that another volume is mounted at.
        assert_eq!(other(&[], "/pods/c/mount"), None);
        assert_eq!(other(&["/pods/c/mount"], "/pods/d/mount"), None);
        assert_eq!(other(&["/pods/b/mount"], "/pods/d/mount"), None);
        assert_eq!(
            other(&["/pods/a/mount"], "/pods/c/mount"),
            Some(PathBuf::from("/pods/a/mount"))
        );
    }

    #[test]
    fn the_devices_own_node_is_a_mount_of_it() {
        let rows = b"1 2 0:5 /sda3 /publish/v/pod rw - devtmpfs none rw\n\
            2 2 0:5 /sda4 /publish/w/pod rw - devtmpfs none rw\n";
        let mounts = mountinfo::parse(rows).unwrap();
        let of = |mount| is_of_device(mount, "sda3", (8, 3));
        assert_eq!([of(&mounts[0]), of(&mounts[1])], [true, false]);
    }
}
