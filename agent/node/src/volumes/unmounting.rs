//! Unpublish and unstage: a volume of a drive that hangs is unmounted in its time, too, and none is detached without evidence.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::{
    Caller, MOUNT_DEADLINE, VolumeError, Volumes,
    guard::{Key, VolumeGuard},
};
use crate::mounts;
use drivebay_evidence::stalls;
use drivebay_fs::{
    device,
    jobs::{Device, FsError, Unmount, Unmounted},
    unmount,
};
use drivebay_model::{Cause, DriveId, DriveState, Volume};
use drivebay_sys::{blockstat, mountinfo, offload::offload};
use drivebay_worker::{Lane, RunError, Slot, WorkerKey};

/// Between two looks at a device's counters.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// sysfs answers at once.
const FIND_DEVICE: std::time::Duration = std::time::Duration::from_secs(1);

/// With evidence that the drive is gone or stuck, plain umount gets this long before it is detached.
const DETACH_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

/// The worker that unmounts what no volume is known of.
const UNKNOWN_VOLUME: &str = "unknown-volume";

impl Volumes {
    /// Unmounts a path of a volume: the target (removed afterwards) or the staging path (left). What is mounted there must be
    /// that volume. One that nobody knows (any more) is unmounted all the same below the kubelet's directory, where nobody
    /// else mounts; elsewhere nothing is touched.
    pub async fn unmount(
        &self,
        id: String,
        path: PathBuf,
        remove: bool,
    ) -> Result<(), VolumeError> {
        let Some(volume) = self.find_any(&id) else {
            if !self.is_kubelets(&path) {
                return not_mounted(&path);
            }
            let key = Key::Path(path.clone());
            return self
                .changing(key, &id, |this| async move {
                    this.unmount_guarded(None, path, remove).await
                })
                .await;
        };
        let place = mountinfo::resolve(&path);
        let caller = Caller::CsiUnmount(&place);
        self.changing_volume(volume.uuid, &id, caller, |this, held| async move {
            this.unmount_guarded(Some((&held, &volume)), path, remove)
                .await
        })
        .await
    }

    pub(super) async fn unmount_guarded(
        &self,
        volume: Option<(&VolumeGuard, &Volume)>,
        path: PathBuf,
        remove: bool,
    ) -> Result<(), VolumeError> {
        let (held, volume) = volume.unzip();
        if let Some(held) = held {
            self.call_off_check(held).await;
        }
        // Kept until it is unmounted.
        let _settled = match volume {
            Some(volume) => self.settle_samples(volume.uuid).await,
            None => None,
        };
        let gone = volume.is_some_and(|volume| self.is_gone(&volume.drive));
        // Before it begins: what is being taken away on purpose is not missed.
        let place = mountinfo::resolve(&path);
        self.node.expected().forget(&place);
        let main = match volume {
            Some(volume) => WorkerKey::from((&volume.drive, Slot::Unmount)),
            None => WorkerKey::of_group(UNKNOWN_VOLUME, Slot::Unmount),
        };
        // An unmount that hangs keeps its worker.
        let worker = match volume {
            Some(volume) if self.node.pool().is_taken(&main) => main.on(Lane::Volume(volume.uuid)),
            _ => main.clone(),
        };
        let device = match volume.and_then(|volume| volume.placed.device.clone()) {
            Some(device) => Some(device),
            // Its drive was not scanned yet, say: the mount itself tells.
            None => self.device_at(&place).await,
        };
        let before = completed(device.as_deref()).await;
        let plain = Unmount {
            path,
            deadline_ms: DETACH_AFTER.as_millis() as u64,
            may_detach: gone,
            remove,
            // What of a copied volume is mounted may be of either place.
            expected: volume.map(devices).unwrap_or_default(),
        };
        // That it hangs is noted below, when that is no writeback.
        let first = self
            .node
            .pool()
            .run(worker, plain.clone(), MOUNT_DEADLINE)
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
                tracing::warn!(drive = main.drive().map(display), error = %drivebay_model::cause::chain(&error), "unmount slow while the drive completes requests; not detaching");
                return Err(error.into());
            }
            // Plain umount hangs: that is the evidence. The stuck worker keeps its slot, so the
            // detaching one gets a slot of its own.
            Err(error @ (RunError::Deadline { .. } | RunError::Stuck { .. })) => {
                tracing::warn!(drive = main.drive().map(display), error = %drivebay_model::cause::chain(&error), "unmount unresponsive; detaching the mount");
                if let Some(drive) = main.drive() {
                    self.node.record_stuck(drive, &error);
                }
                let detach = Unmount {
                    may_detach: true,
                    deadline_ms: 0,
                    ..plain
                };
                let of = volume.map_or(Uuid::nil(), |volume| volume.uuid);
                let detacher = main.on(Lane::Detach(of));
                let done = self.node.run(detacher, detach, MOUNT_DEADLINE).await?;
                Unmounted {
                    // The mount may be gone from the table already while its superblock lives on.
                    detached: done.detached
                        || device.as_deref().is_some_and(unmount::superblock_lives),
                    ..done
                }
            }
            Err(error) => return Err(error.into()),
        };
        if done.detached {
            tracing::warn!(
                drive = main.drive().map(display),
                "mount detached; the volume cannot be staged or deleted until the kernel releases it"
            );
            if let Some(volume) = volume {
                self.node
                    .inventory()
                    .update(|known| known.detached.insert(volume.uuid));
            }
        }
        if let Some(volume) = volume {
            // What a sample saw at that path is over.
            self.node
                .inventory()
                .put_conditions(volume.uuid, Vec::new());
        }
        self.publish_unmounted(&place, done.count)?;
        if let Some(held) = held {
            self.dismiss_holder(held).await;
        }
        if let Some(volume) = volume
            && done.count > 0
        {
            self.note_unmounted(volume.uuid);
        }
        Ok(())
    }

    /// The kernel name of the device that is mounted at a resolved path, from the mount table and sysfs alone.
    async fn device_at(&self, place: &Path) -> Option<String> {
        let mount = self.node.mounts().last_at(place)?;
        let named = offload("device-name", FIND_DEVICE, move || {
            device::kernel_name(&mount)
        });
        named.await.ok().flatten()
    }

    /// Publishes that it is unmounted. A mount that another one hides, at a directory above, is not reached by the path, and
    /// is still there.
    fn publish_unmounted(&self, place: &Path, count: u32) -> Result<(), VolumeError> {
        if count == 0 {
            // What somebody else has just mounted there, out of the path's reach, may not be known yet.
            self.node.mounts().refresh()?;
        }
        if self.node.mounts().drop_gone_at(place)? == 0 {
            return Ok(());
        }
        self.node.mounts().reread()?;
        if self.node.mounts().count_at(place) == 0 {
            return Ok(());
        }
        let error = std::io::Error::from_raw_os_error(libc::EINVAL);
        Err(VolumeError::Fs(RunError::Job(FsError::Unmount {
            path: place.display().to_string(),
            hint: "another mount, at a directory above, hides it; unmount that first".to_owned(),
            source: Cause::from(error),
        })))
    }

    /// Whether a path lies below the kubelet's directory, links followed.
    fn is_kubelets(&self, path: &Path) -> bool {
        let kubelet = mountinfo::resolve(&self.node.config().kubelet_dir);
        let path = mountinfo::resolve(path);
        path != kubelet && path.starts_with(kubelet)
    }

    /// Refuses while the kernel still holds the superblock of a mount that was detached.
    pub(super) fn not_detached(&self, volume: &Volume) -> Result<(), VolumeError> {
        if !self.node.inventory().is_detached(volume.uuid) {
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
        self.node
            .inventory()
            .update(|known| known.detached.remove(&volume.uuid));
        Ok(())
    }

    /// Whether there is evidence that a drive is gone or stuck: it was seen to be missing, or a step on it hangs. One that
    /// nobody knows, or that was not scanned yet, is neither.
    fn is_gone(&self, drive: &DriveId) -> bool {
        let snapshot = self.node.inventory().current();
        let missing = snapshot
            .drives
            .get(drive)
            .is_some_and(|drive| drive.state == DriveState::Missing);
        // A worker that died or was busy is no evidence: only a step that hangs is.
        missing || self.node.inventory().is_stuck(drive)
    }

    /// The volume of this id, whatever its state.
    pub(super) fn find_any(&self, id: &str) -> Option<Volume> {
        let id: drivebay_proto::VolumeId = id.parse().ok()?;
        (id.node == self.node.config().node_id)
            .then(|| {
                self.node
                    .inventory()
                    .current()
                    .volumes
                    .get(&id.uuid)
                    .cloned()
            })
            .flatten()
    }
}

/// The devices of all places of a volume; none while one of them is not known.
fn devices(volume: &Volume) -> Vec<Device> {
    let devices = volume.places().map(|(_, placed)| Device::of(placed));
    devices.collect::<Option<_>>().unwrap_or_default()
}

/// Whether a device has completed requests since it had completed `before`, or does so within the time after which one that
/// completes none is stalled: then it does not hang.
async fn is_at_work(device: Option<&str>, before: Option<u64>) -> bool {
    let end = tokio::time::Instant::now() + stalls::LIMIT;
    while before.is_some() {
        let now = completed(device).await;
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

async fn completed(device: Option<&str>) -> Option<u64> {
    blockstat::completed(device?.to_owned()).await
}

/// Of a volume that is not known: answered when nothing is mounted there, else refused.
pub(super) fn not_mounted(path: &Path) -> Result<(), VolumeError> {
    // The table: this process touches no path that may lie on a drive.
    let mounts = mounts::read()?;
    match mountinfo::mounts_at(&mounts, &mountinfo::resolve(path)).last() {
        None => Ok(()),
        Some(mount) => Err(VolumeError::Fs(RunError::Job(FsError::NotAVolume {
            path: path.display().to_string(),
            what: format!("{} ({})", mount.source.display(), mount.fs_type),
        }))),
    }
}
