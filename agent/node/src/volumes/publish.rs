//! Publish: chooses the job, and repeats it until the volume's device is the recorded one.

use std::{
    borrow::Borrow,
    path::{Path, PathBuf},
};

use super::{
    Caller, MOUNT_DEADLINE, VolumeError, Volumes,
    guard::VolumeGuard,
    reach::{device_of, is_of_device},
    stage::{all_options, same_use},
};
use drivebay_evidence::mounts::{RequestedMount, Role};
use drivebay_fs::{
    jobs::{Device, FsError, Publish, Published},
    parse_mount_flags,
};
use drivebay_model::{DriveRef, FsType, Mode, Volume};
use drivebay_sys::mountinfo::{self, MountEntry};
use drivebay_worker::{RunError, Slot, WorkerKey};

/// A publish request, checked by the caller.
#[derive(Debug, Clone)]
pub struct PublishRequest {
    pub id: String,
    pub staging: PathBuf,
    pub target: PathBuf,
    pub mode: Mode,
    /// Filesystem that the request names.
    pub fs_type: Option<FsType>,
    pub flags: Vec<String>,
    /// True: the mount is read-only in any case. False: it is writable, unless the volume's mount options or `flags` have `ro`.
    pub read_only: bool,
    /// True: one target only (SINGLE_NODE_SINGLE_WRITER).
    pub exclusive: bool,
    /// Pod, as NAMESPACE/NAME, if the caller names it.
    pub pod: Option<String>,
}

impl Volumes {
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
        let target = mountinfo::resolve(&request.target);
        let published = match self.bind(held, volume, &request, &target).await {
            Ok(published) => published,
            Err(error) => {
                self.dismiss_holder(held).await;
                return Err(error);
            }
        };
        let before = self.node.expected().request_of(volume.uuid, &target);
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
        let requested = RequestedMount {
            pod: request.pod,
            exclusive: Some(request.exclusive),
            // A mount whose requested options are unknown stays so.
            options: match published.changed {
                true => flags.map(|flags| flags.all()),
                false => before.options,
            },
        };
        self.node
            .expected()
            .expect(target, volume.uuid, Role::Target, read_only, requested);
        Ok(())
    }

    /// Runs the job. Reads the drive again when the volume's device has another name or number than recorded, or none: an LV
    /// that was activated again, or an unused partition, which udev removes from the kernel and adds again after a
    /// writer has closed the drive.
    async fn bind(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
        request: &PublishRequest,
        target: &Path,
    ) -> Result<Published, VolumeError> {
        let mut rereads = match request.mode {
            Mode::Mount => 1,
            Mode::Block => 3,
        };
        let mut volume = volume.clone();
        loop {
            let drive;
            (drive, volume) = self.reach_settled(held, &volume).await?;
            // A scan in between saw no partition.
            if Device::of(&volume.placed).is_none() && rereads > 0 {
                rereads -= 1;
                volume = self.reread_volume(&volume).await?;
                continue;
            }
            let (job, device) = self.publish_job(drive, &volume, request, target)?;
            let worker = match request.mode {
                Mode::Mount => WorkerKey::from((&volume.drive, Slot::Foreground)),
                Mode::Block => self.holder(volume.uuid, &volume.drive, &device).await,
            };
            match self.node.run(worker, job, MOUNT_DEADLINE).await {
                Err(RunError::Job(FsError::NotHere { .. })) if rereads > 0 => rereads -= 1,
                done => return Ok(done?),
            }
            volume = self.reread_volume(&volume).await?;
        }
    }

    /// Returns the job for the volume as recorded, and its device. `target`: the target's path, resolved. `OtherTarget`: a single writer
    /// has it already.
    fn publish_job(
        &self,
        drive: DriveRef,
        volume: &Volume,
        request: &PublishRequest,
        target: &Path,
    ) -> Result<(Publish, Device), VolumeError> {
        let device = device_of(volume)?;
        let targets = self.node.expected().targets(volume.uuid, request.exclusive);
        if !targets.is_empty() {
            self.node.mounts().refresh()?;
            let other = other_target(
                &self.node.mounts().entries(),
                |mount| is_of_device(mount, &device.name, device.dev),
                targets,
                target,
            );
            if let Some(at) = other {
                return Err(VolumeError::OtherTarget {
                    uuid: volume.uuid,
                    at: at.display().to_string(),
                });
            }
        }
        let options_at = |path: &Path| self.node.expected().request_of(volume.uuid, path).options;
        let job = Publish {
            drive,
            uuid: volume.uuid,
            placed: volume.placed.clone(),
            staging_path: (request.mode == Mode::Mount).then(|| request.staging.clone()),
            target: request.target.clone(),
            read_only: request.read_only,
            options: volume.placed.record.mount_options.clone(),
            flags: request.flags.clone(),
            staged_with: options_at(&mountinfo::resolve(&request.staging)),
            published_with: options_at(target),
        };
        Ok((job, device))
    }
}

/// Returns another target where the volume is published. None if it is published at this one: a repeated call succeeds
/// like the first. Paths are resolved. Pure.
///
/// Only targets of our own calls count. The kubelet binds a published volume once more, for a subPath or a raw volume's
/// device, below directories that only it knows.
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
    use crate::keeper::tests::rig;
    use drivebay_model::{DriveState, RecordState, samples};

    #[tokio::test]
    async fn the_drive_of_a_volume_without_a_device_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join("worker-started");
        let rig = rig(&format!("touch {}; exit 1", marker.display())).await;
        let mut placed = samples::placed(1, RecordState::Block);
        (placed.device, placed.dev) = (None, None);
        placed.record.mode = Mode::Block;
        let uuid = placed.record.uuid;
        let contents = samples::contents(1, 1, vec![placed], 0);
        rig.scanned([samples::drive("sda", DriveState::Claimed, Some(contents))]);
        let request = PublishRequest {
            id: format!("{uuid}@{}", rig.volumes.node().config().node_id),
            staging: dir.path().join("staging"),
            target: dir.path().join("target"),
            mode: Mode::Block,
            fs_type: None,
            flags: Vec::new(),
            read_only: false,
            exclusive: false,
            pod: None,
        };
        let published = rig.volumes.publish(request).await;
        assert!(
            matches!(published, Err(ref error) if !matches!(error, VolumeError::DriveAway { .. })),
            "{published:?}"
        );
        assert!(marker.exists(), "no job was sent to the drive");
        rig.end().await;
    }

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
