//! Stage, publish, their reverses, and growing a filesystem: which job for which drive.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::{Path, PathBuf},
};

use super::{MOUNT_DEADLINE, STAGE_DEADLINE, VolumeError, Volumes, guard::Key};
use crate::{
    carve::jobs::Look,
    fs::{
        device,
        jobs::{Device, FsError, GrowFs, Publish, Stage, StageMount, Unmount, Unmounted},
        unmount,
    },
    health::{mounts::Role, stalls},
    model::{DriveId, DriveRef, DriveState, FsType, Mode, Volume},
    sys::{
        blockstat,
        mountinfo::{self, MountEntry},
    },
    worker::{RunError, Slot},
};

/// A stage is answered with ABORTED after this, and goes on: the kubelet waits for 120 s.
const STAGE_ANSWER: std::time::Duration = std::time::Duration::from_secs(115);
/// Volumes of one drive that are staged at a time: one whose mkfs takes minutes keeps no other waiting.
const STAGES: usize = 4;
/// Longest a stage with a repair may take: e2fsck of a large, slow, damaged filesystem.
const REPAIR_DEADLINE: std::time::Duration = std::time::Duration::from_secs(6 * 3600);

/// Between two looks at a device's counters.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// With evidence that the drive is gone or stuck, plain umount gets this long before it is detached.
const DETACH_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

/// What the mount table says, as far as volumes are concerned.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MountView {
    /// Kernel names and `major:minor` of mounted devices, and of device nodes that are bound somewhere.
    pub in_use: BTreeSet<String>,
    /// Where each of these is mounted or bound.
    pub places: BTreeMap<String, BTreeSet<String>>,
    /// Mount points that are read-only by their own flag (asked for), not by their filesystem's.
    pub read_only: HashSet<PathBuf>,
}

/// Derives the view. Pure but for `number_of`: the device number of a mount's source. It is asked for btrfs
/// alone, whose mounts have a number of their own and may name an LV by its link in /dev/mapper.
pub fn view(
    mounts: &[MountEntry],
    number_of: impl Fn(&MountEntry) -> Option<(u32, u32)>,
) -> MountView {
    let mut view = MountView::default();
    for mount in mounts {
        let mut devices = vec![format!("{}:{}", mount.dev.0, mount.dev.1)];
        if let Ok(name) = mount.source.strip_prefix("/dev") {
            devices.push(name.to_string_lossy().into_owned());
        }
        if mount.fs_type == "btrfs"
            && let Some((major, minor)) = number_of(mount)
        {
            devices.push(format!("{major}:{minor}"));
        }
        // A raw block volume: a device node of /dev, bound onto a file.
        if mount.fs_type == "devtmpfs"
            && let Some(name) = mount.root.to_str().and_then(|root| root.strip_prefix('/'))
            && !name.is_empty()
        {
            devices.push(name.to_owned());
        }
        let place = mount.mount_point.to_string_lossy();
        for device in devices {
            let places = view.places.entry(device.clone()).or_default();
            places.insert(place.clone().into_owned());
            view.in_use.insert(device);
        }
        if mount.read_only() {
            view.read_only.insert(mount.mount_point.clone());
        }
    }
    view
}

/// How a volume is to be staged, checked by the caller.
#[derive(Debug, Clone)]
pub struct StageRequest {
    /// Volume id.
    pub id: String,
    /// Staging path.
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
    /// Volume id.
    pub id: String,
    /// Staging path.
    pub staging: PathBuf,
    /// Target path.
    pub target: PathBuf,
    /// Use.
    pub mode: Mode,
    /// Never writable.
    pub read_only: bool,
    /// One target only (SINGLE_NODE_SINGLE_WRITER).
    pub exclusive: bool,
}

impl Volumes {
    fn held(&self, id: &str, key: Key) -> Result<super::guard::Guard, VolumeError> {
        self.inner
            .guards
            .take(key)
            .ok_or_else(|| VolumeError::Pending {
                what: id.to_owned(),
            })
    }

    /// Whether this path was made read-only on purpose.
    pub(super) fn meant_read_only(&self, volume: &Volume, path: &str) -> bool {
        let _ = volume;
        self.inner.mounts().read_only.contains(Path::new(path))
    }

    /// Stages the volume.
    pub async fn stage(&self, request: StageRequest) -> Result<(), VolumeError> {
        let volume = self.require(&request.id)?;
        same_mode(&volume, request.mode)?;
        let guard = self.held(&request.id, Key::Volume(volume.uuid))?;
        let (this, id) = (self.clone(), request.id.clone());
        let staging = self.tracked(async move {
            let result = this.stage_guarded(&volume, request).await;
            drop(guard);
            result
        });
        // A repair goes on, and the repeat is told the same until it is done.
        tokio::time::timeout(STAGE_ANSWER, staging)
            .await
            .unwrap_or(Err(VolumeError::Pending { what: id }))
    }

    async fn stage_guarded(
        &self,
        volume: &Volume,
        request: StageRequest,
    ) -> Result<(), VolumeError> {
        self.call_off_check(volume.uuid).await;
        self.not_detached(volume)?;
        let (drive, volume) = &self.reach_settled(volume).await?;
        let class = self
            .inner
            .config
            .classes
            .iter()
            .find(|class| class.name == volume.placed.record.class);
        let staging = (request.mode == Mode::Mount).then(|| mountinfo::resolve(&request.path));
        let given = request
            .flags
            .iter()
            .chain(&volume.placed.record.mount_options);
        let read_only = request.read_only || given.into_iter().any(|flag| flag == "ro");
        let job = Stage {
            drive: drive.clone(),
            uuid: volume.uuid,
            mount: (request.mode == Mode::Mount).then(|| StageMount {
                path: request.path,
                fs_type: request.fs_type,
                flags: request.flags,
                read_only: request.read_only,
                xfs_retry_forever: class.is_some_and(|class| class.xfs_retry_forever),
            }),
            may_repair: false,
        };
        let pool = &self.inner.pool;
        let worker = self.stage_worker(&volume.drive);
        let first = pool.run(&worker, Slot::Stage, job.clone(), STAGE_DEADLINE);
        let staged = match first.await {
            Err(RunError::Job(FsError::NeedsRepair { device, .. })) => {
                tracing::warn!(volume = %volume.uuid, drive = %volume.drive, device, "filesystem repair started");
                // A worker of its own: nothing else of the drive waits for it.
                let own = DriveId(format!("{}.repair.{}", volume.drive, volume.uuid));
                let job = Stage {
                    may_repair: true,
                    ..job
                };
                pool.run(&own, Slot::Stage, job, REPAIR_DEADLINE).await
            }
            done => done,
        };
        let staged = staged.map_err(|error| {
            self.note_stuck(&volume.drive, &error);
            VolumeError::Fs(error)
        })?;
        if let Some(contents) = staged.contents {
            self.inner.inventory.put_contents(&volume.drive, contents);
        }
        self.refresh_mounts()?;
        if !staged.already {
            self.inner.inventory.mounted_afresh(volume.uuid);
            self.inner.inventory.put_troubles(volume.uuid, Vec::new());
        }
        if let Some(path) = staging {
            self.inner
                .expected
                .expect(path, volume.uuid, Role::Staging, read_only);
        }
        tracing::info!(volume = %volume.uuid, formatted = staged.formatted, grown = staged.grown, already = staged.already, "volume staged");
        Ok(())
    }

    /// Publishes a staged volume.
    pub async fn publish(&self, request: PublishRequest) -> Result<(), VolumeError> {
        let volume = self.require(&request.id)?;
        same_mode(&volume, request.mode)?;
        let guard = self.held(&request.id, Key::Volume(volume.uuid))?;
        let this = self.clone();
        self.tracked(async move {
            let result = this.publish_guarded(&volume, request).await;
            drop(guard);
            result
        })
        .await
    }

    async fn publish_guarded(
        &self,
        volume: &Volume,
        request: PublishRequest,
    ) -> Result<(), VolumeError> {
        self.call_off_check(volume.uuid).await;
        match self.publish_once(volume, &request).await {
            // Whoever closes a drive that he wrote to, makes udev take partitions that nobody uses from the kernel and
            // give them back, maybe under another number.
            Err(VolumeError::Fs(RunError::Job(FsError::NotHere { .. })))
                if request.mode == Mode::Block =>
            {
                let volume = self.look_again(volume).await?;
                self.publish_once(&volume, &request).await?;
            }
            done => done?,
        }
        self.refresh_mounts()?;
        let target = mountinfo::resolve(&request.target);
        self.inner
            .expected
            .expect(target, volume.uuid, Role::Target, request.read_only);
        Ok(())
    }

    /// Which worker stages a volume of this drive: the first that is free, or the drive's own.
    fn stage_worker(&self, drive: &DriveId) -> DriveId {
        let more = (1..STAGES).map(|number| DriveId(format!("{drive}.stage.{number}")));
        std::iter::once(drive.clone())
            .chain(more)
            .find(|worker| !self.inner.pool.is_taken(worker, Slot::Stage))
            .unwrap_or_else(|| drive.clone())
    }

    /// Where to reach the volume's drive, and the volume as it is now. What made a volume ambiguous may be over without a
    /// kernel event, e.g. when the last user of an LV's old device has closed it: the drive is asked before a call is
    /// refused for it.
    pub(super) async fn reach_settled(
        &self,
        volume: &Volume,
    ) -> Result<(DriveRef, Volume), VolumeError> {
        match self.reach(volume) {
            Ok(drive) => Ok((drive, volume.clone())),
            Err(VolumeError::Ambiguous { .. }) => {
                let volume = self.look_again(volume).await?;
                Ok((self.reach(&volume)?, volume))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the volume's drive again, and repairs it; the volume as it is now.
    async fn look_again(&self, volume: &Volume) -> Result<Volume, VolumeError> {
        let snapshot = self.inner.inventory.current();
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
            .inner
            .pool
            .run(&volume.drive, Slot::Foreground, job, MOUNT_DEADLINE)
            .await
            .map_err(|error| {
                self.note_stuck(&volume.drive, &error);
                VolumeError::Carve(error)
            })?;
        self.inner.inventory.put_contents(&volume.drive, contents);
        let current = self.inner.inventory.current();
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
        volume: &Volume,
        request: &PublishRequest,
    ) -> Result<(), VolumeError> {
        let (drive, volume) = &self.reach_settled(volume).await?;
        match self.publish_as_known(drive.clone(), volume, request).await {
            // An LV has another device since somebody deactivated and activated it: the drive says which.
            Err(VolumeError::Fs(RunError::Job(FsError::NotHere { .. }))) => {
                let volume = self.look_again(volume).await?;
                let drive = self.reach(&volume)?;
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
    ) -> Result<(), VolumeError> {
        let device = device_of(volume)?;
        if request.exclusive {
            let mounts = mountinfo::read().map_err(|source| VolumeError::Mountinfo { source })?;
            let other = other_target(
                &mounts,
                |mount| is_of_device(mount, &device.name, device.dev),
                self.inner.expected.targets(volume.uuid),
                &mountinfo::resolve(&request.target),
            );
            if let Some(at) = other {
                return Err(VolumeError::OtherTarget {
                    uuid: volume.uuid,
                    at: at.display().to_string(),
                });
            }
        }
        let job = Publish {
            drive,
            uuid: volume.uuid,
            device,
            staging_path: (request.mode == Mode::Mount).then(|| request.staging.clone()),
            target: request.target.clone(),
            read_only: request.read_only,
        };
        self.inner
            .pool
            .run(&volume.drive, Slot::Foreground, job, MOUNT_DEADLINE)
            .await
            .map(drop)
            .map_err(|error| {
                self.note_stuck(&volume.drive, &error);
                VolumeError::Fs(error)
            })
    }

    /// Unmounts a path of a volume: the target (removed afterwards) or the staging path (left). What is mounted there must be
    /// that volume. One that nobody knows (any more) is unmounted all the same below the kubelet's directory, where nobody
    /// else mounts; elsewhere nothing is touched.
    pub async fn unmount(
        &self,
        id: String,
        path: PathBuf,
        remove: bool,
    ) -> Result<(), VolumeError> {
        let volume = self.find_any(&id);
        if volume.is_none() && !self.is_kubelets(&path) {
            return not_mounted(&path);
        }
        let key = volume.as_ref().map_or_else(
            || Key::Path(path.clone()),
            |volume| Key::Volume(volume.uuid),
        );
        let guard = self.held(&id, key)?;
        let this = self.clone();
        self.tracked(async move {
            let result = this.unmount_guarded(volume.as_ref(), path, remove).await;
            drop(guard);
            result
        })
        .await
    }

    async fn unmount_guarded(
        &self,
        volume: Option<&Volume>,
        path: PathBuf,
        remove: bool,
    ) -> Result<(), VolumeError> {
        if let Some(volume) = volume {
            self.call_off_check(volume.uuid).await;
        }
        let drive = volume.map_or_else(
            || DriveId("unknown-volume".to_owned()),
            |volume| volume.drive.clone(),
        );
        if let Some(volume) = volume {
            self.settle_samples(volume.uuid).await;
        }
        let gone = volume.is_some() && self.is_gone(&drive);
        // Before it begins: what is being taken away on purpose is not missed.
        let place = mountinfo::resolve(&path);
        self.inner.expected.forget(&place);
        // One hung unmount keeps its worker. Whatever comes then gets a worker of its own volume's.
        let (worker, detacher) = match volume {
            Some(volume) => (
                DriveId(format!("{drive}.unmount.{}", volume.uuid)),
                DriveId(format!("{drive}.detach.{}", volume.uuid)),
            ),
            None => (drive.clone(), DriveId(format!("{drive}.detach"))),
        };
        let worker = if self.inner.pool.is_taken(&drive, Slot::Unmount) {
            worker
        } else {
            drive.clone()
        };
        let device = volume.and_then(|volume| volume.placed.device.clone());
        let before = completed(device.as_deref());
        let plain = Unmount {
            path,
            deadline_ms: DETACH_AFTER.as_millis() as u64,
            may_detach: gone,
            remove,
            expected: volume.and_then(|volume| Device::of(&volume.placed)),
        };
        let first = self
            .inner
            .pool
            .run(&worker, Slot::Unmount, plain.clone(), MOUNT_DEADLINE)
            .await;
        let hangs = matches!(
            first,
            Err(RunError::Deadline { .. } | RunError::Stuck { .. })
        );
        let at_work = hangs && !gone && is_at_work(device.as_deref(), before).await;
        let done = match first {
            Ok(done) => done,
            // It writes back, slowly.
            Err(error) if at_work => {
                tracing::warn!(drive = %drive, error = %crate::model::cause::chain(&error), "unmount is slow while the drive completes requests; not detached");
                return Err(VolumeError::Fs(error));
            }
            // Plain umount hangs: that is the evidence. The stuck worker keeps its slot, so the
            // detaching one gets a slot of its own.
            Err(error @ (RunError::Deadline { .. } | RunError::Stuck { .. })) => {
                tracing::warn!(drive = %drive, error = %crate::model::cause::chain(&error), "plain umount hangs; detaching");
                self.note_stuck(&drive, &error);
                let detach = Unmount {
                    may_detach: true,
                    deadline_ms: 0,
                    ..plain
                };
                self.inner
                    .pool
                    .run(&detacher, Slot::Unmount, detach, MOUNT_DEADLINE)
                    .await
                    .map(|done| Unmounted {
                        // The mount may be gone from the table already while its superblock lives on.
                        detached: done.detached
                            || device.as_deref().is_some_and(unmount::superblock_lives),
                        ..done
                    })
                    .map_err(VolumeError::Fs)?
            }
            Err(error) => return Err(VolumeError::Fs(error)),
        };
        if done.detached {
            tracing::warn!(drive = %drive, "mount detached: until the kernel lets it go, the volume is neither staged nor deleted");
            if let Some(volume) = volume {
                self.inner
                    .inventory
                    .update(|known| known.detached.insert(volume.uuid));
            }
        }
        if let Some(volume) = volume {
            // What a sample saw at that path is over.
            self.inner.inventory.put_troubles(volume.uuid, Vec::new());
        }
        self.refresh_mounts()?;
        if let Some(volume) = volume
            && done.count > 0
        {
            self.note_unmounted(volume.uuid);
        }
        Ok(())
    }

    /// Whether a path lies below the kubelet's directory, links followed.
    fn is_kubelets(&self, path: &Path) -> bool {
        let kubelet = mountinfo::resolve(&self.inner.config.kubelet_dir);
        let path = mountinfo::resolve(path);
        path != kubelet && path.starts_with(kubelet)
    }

    /// Refuses while the kernel still holds the superblock of a mount that was detached.
    pub(super) fn not_detached(&self, volume: &Volume) -> Result<(), VolumeError> {
        if !self.inner.inventory.is_detached(volume.uuid) {
            return Ok(());
        }
        if volume
            .placed
            .device
            .as_deref()
            .is_some_and(unmount::superblock_lives)
        {
            return Err(VolumeError::StillDetached { uuid: volume.uuid });
        }
        self.inner
            .inventory
            .update(|known| known.detached.remove(&volume.uuid));
        Ok(())
    }

    /// Whether there is evidence that a drive is gone or stuck.
    fn is_gone(&self, drive: &DriveId) -> bool {
        let snapshot = self.inner.inventory.current();
        let missing = snapshot
            .drives
            .get(drive)
            .is_none_or(|drive| drive.state == DriveState::Missing);
        // A worker that died or was busy is no evidence: only a step that hangs is.
        missing || self.inner.inventory.is_stuck(drive)
    }

    /// The volume of this id, whatever its state.
    fn find_any(&self, id: &str) -> Option<Volume> {
        let id: drivebay_proto::VolumeId = id.parse().ok()?;
        (id.node == self.inner.config.node_id)
            .then(|| {
                self.inner
                    .inventory
                    .current()
                    .volumes
                    .get(&id.uuid)
                    .cloned()
            })
            .flatten()
    }

    /// Grows the filesystem to its device. Answers the device's size in bytes.
    pub async fn grow(&self, id: String, path: PathBuf) -> Result<u64, VolumeError> {
        let volume = self.require(&id)?;
        let guard = self.held(&id, Key::Volume(volume.uuid))?;
        let this = self.clone();
        self.tracked(async move {
            let result = this.grow_guarded(&volume, path).await;
            drop(guard);
            result
        })
        .await
    }

    async fn grow_guarded(&self, volume: &Volume, path: PathBuf) -> Result<u64, VolumeError> {
        self.call_off_check(volume.uuid).await;
        let (drive, volume) = &self.reach_settled(volume).await?;
        let job = GrowFs {
            drive: drive.clone(),
            uuid: volume.uuid,
            path,
            device: device_of(volume)?,
            block: volume.placed.record.mode == Mode::Block,
        };
        self.inner
            .pool
            .run(&volume.drive, Slot::Foreground, job, STAGE_DEADLINE)
            .await
            .map(|grown| grown.device_bytes)
            .map_err(|error| {
                self.note_stuck(&volume.drive, &error);
                VolumeError::Fs(error)
            })
    }
}

/// Whether a device has completed requests since it had completed `before`, or does so within the time after which one that
/// completes none is stalled: then it does not hang.
async fn is_at_work(device: Option<&str>, before: Option<u64>) -> bool {
    let end = tokio::time::Instant::now() + stalls::LIMIT;
    while before.is_some() {
        let now = completed(device);
        if now != before {
            return now.is_some();
        }
        if tokio::time::Instant::now() >= end {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    false
}

/// Requests that a device has completed; None when that is not known.
fn completed(device: Option<&str>) -> Option<u64> {
    let activity = blockstat::activity(device?).ok()??;
    Some(activity.completed)
}

/// The device of a volume that must have one.
fn device_of(volume: &Volume) -> Result<Device, VolumeError> {
    Device::of(&volume.placed).ok_or_else(|| VolumeError::DriveAway {
        uuid: volume.uuid,
        drive: volume.drive.clone(),
    })
}

/// Of a volume that is not known: answered when nothing is mounted there, else refused.
fn not_mounted(path: &Path) -> Result<(), VolumeError> {
    let mounts = mountinfo::read().map_err(|source| VolumeError::Mountinfo { source })?;
    match mountinfo::mounts_at(&mounts, &mountinfo::resolve(path)).last() {
        None => Ok(()),
        Some(mount) => Err(VolumeError::Fs(RunError::Job(FsError::NotAVolume {
            path: path.display().to_string(),
            what: format!("{} ({})", mount.source.display(), mount.fs_type),
        }))),
    }
}

fn same_mode(volume: &Volume, mode: Mode) -> Result<(), VolumeError> {
    if volume.placed.record.mode == mode {
        return Ok(());
    }
    Err(VolumeError::Fs(RunError::Job(
        crate::fs::jobs::FsError::Incompatible {
            uuid: volume.uuid,
            is: volume.placed.record.mode.as_str().to_owned(),
            asked: mode.as_str().to_owned(),
        },
    )))
}

/// Whether this is a mount of the device's filesystem, or a bind of its node.
fn is_of_device(mount: &MountEntry, device: &str, dev: (u32, u32)) -> bool {
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
    mounts: &[MountEntry],
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
    fn a_btrfs_on_an_lv_is_in_use_under_whatever_name_it_is_mounted() {
        let rows = b"1 2 0:50 / /a rw - btrfs /dev/mapper/vg-lv rw\n3 2 253:4 / /b rw - xfs /dev/dm-4 rw\n";
        let mounts = mountinfo::parse(rows).unwrap();
        let in_use = view(&mounts, |mount| {
            assert_eq!(
                mount.fs_type, "btrfs",
                "others are told by their own number"
            );
            Some((253, 3))
        })
        .in_use;
        for name in ["253:3", "253:4", "dm-4"] {
            assert!(in_use.contains(name), "{name}: {in_use:?}");
        }
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
