//! Unpublish and unstage: also unmounts volumes of unresponsive drives within the deadline, and detaches none without
//! evidence.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::{
    Caller, MOUNT_DEADLINE, VolumeError, Volumes,
    guard::{Key, VolumeGuard},
    reach::reach_in,
};
use crate::mounts;
use drivebay_evidence::stalls;
use drivebay_fs::{
    device,
    jobs::{CloseMapping, Device, FsError, Unmount, Unmounted},
    unmount,
};
use drivebay_model::{Cause, DriveId, DriveState, Volume};
use drivebay_sys::{blockstat, mountinfo, offload::offload};
use drivebay_worker::{Lane, RunError, Slot, WorkerKey};

/// Interval at which a device's counters are read.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Longest time for reading sysfs, which answers at once.
const FIND_DEVICE: std::time::Duration = std::time::Duration::from_secs(1);

/// Time that plain umount gets before the mount is detached, with evidence that the drive is gone or stuck.
const DETACH_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

/// Worker for unmounting when the volume is unknown.
const UNKNOWN_VOLUME: &str = "unknown-volume";

impl Volumes {
    /// Unmounts a path of a volume: the target (removed afterwards) or the staging path (kept). The mount must be that
    /// volume's. The mount of an unknown volume is unmounted only below the kubelet's directory, where only mounts for
    /// the kubelet are made; elsewhere nothing is touched.
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
        // Held until it is unmounted.
        let _settled = match volume {
            Some(volume) => self.settle_samples(volume.uuid).await,
            None => None,
        };
        let gone = volume.is_some_and(|volume| self.is_gone(&volume.drive));
        // A mount that is removed intentionally is not reported as missing. Until it is removed, it keeps other targets of a
        // single writer out.
        let place = mountinfo::resolve(&path);
        self.node.expected().begin_unmount(&place);
        let main = match volume {
            Some(volume) => WorkerKey::from((&volume.drive, Slot::Unmount)),
            None => WorkerKey::of_group(UNKNOWN_VOLUME, Slot::Unmount),
        };
        let worker = match volume {
            Some(volume) => self.unmounter(volume),
            None => main.clone(),
        };
        let used = volume.and_then(|volume| volume.placed.used_device());
        let device = match used {
            Some((device, _)) => Some(device.to_owned()),
            // Its drive may not have been scanned yet: the mount identifies the device.
            None => self.device_at(&place).await,
        };
        let before = completed(device.as_deref()).await;
        let plain = Unmount {
            path,
            deadline_ms: DETACH_AFTER.as_millis() as u64,
            may_detach: gone,
            remove,
            // The mount of a copied volume may be of either place.
            expected: volume.map(devices).unwrap_or_default(),
        };
        // A hang is recorded below, unless it is writeback.
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
            // Slow writeback.
            Err(error) if at_work => {
                tracing::warn!(drive = main.drive().map(display), error = %drivebay_model::cause::chain(&error), "unmount slow while the drive completes requests; not detaching");
                return Err(error.into());
            }
            // An unresponsive umount is the evidence. The stuck worker keeps its slot, so the detaching one gets a slot
            // of its own.
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
                    // The mount may be gone from the table already while its superblock still exists.
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
                    .update(|state| state.detached.insert(volume.uuid));
            }
        }
        if let Some(volume) = volume {
            // Conditions from a sample at that path no longer apply.
            self.node
                .inventory()
                .put_conditions(volume.uuid, Vec::new());
        }
        self.publish_unmounted(&place, done.count)?;
        self.node.expected().forget(&place);
        if let Some(held) = held {
            self.dismiss_holder(held).await;
        }
        if let Some(volume) = volume
            && !remove
        {
            self.close_mapping(volume, gone || done.detached).await?;
        }
        if let Some(volume) = volume
            && done.count > 0
        {
            self.note_unmounted(volume.uuid);
        }
        Ok(())
    }

    /// Returns the worker that unmounts a volume: the main one of its drive, unless that is taken, since an unresponsive unmount keeps it.
    fn unmounter(&self, volume: &Volume) -> WorkerKey {
        let main = WorkerKey::from((&volume.drive, Slot::Unmount));
        match self.node.pool().is_taken(&main) {
            true => main.on(Lane::Volume(volume.uuid)),
            false => main,
        }
    }

    /// Removes the mapped device of a volume that is unstaged. `is_lost`: its drive is gone or does not answer, so that the kernel
    /// may still hold the device; it is then removed when the drive returns.
    async fn close_mapping(&self, volume: &Volume, is_lost: bool) -> Result<(), VolumeError> {
        let mappings = volume.placed.record.mappings();
        if mappings.is_empty() {
            return Ok(());
        }
        let job = CloseMapping {
            uuid: volume.uuid,
            mappings,
        };
        let worker = self.unmounter(volume);
        match self.node.pool().run(worker, job, MOUNT_DEADLINE).await {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(error) if is_lost => {
                tracing::warn!(volume = %volume.uuid, error = %drivebay_model::cause::chain(&error), "mapped device of a volume not removed; its drive is gone or does not answer");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let reread = async {
            let volume = self.reread_volume(volume).await?;
            let drive = reach_in(&self.node.inventory().current(), &volume)?;
            self.settle_lost(&drive, &volume, true).await
        };
        if let Err(error) = reread.await {
            tracing::debug!(volume = %volume.uuid, error = %drivebay_model::cause::chain(&error), "cannot read the drive of a volume that was closed");
        }
        Ok(())
    }

    /// Returns the kernel name of the device that is mounted at a resolved path, using only the mount table and sysfs.
    async fn device_at(&self, place: &Path) -> Option<String> {
        let mount = self.node.mounts().last_at(place)?;
        let named = offload("device-name", FIND_DEVICE, move || {
            device::kernel_name(&mount)
        });
        named.await.ok().flatten()
    }

    /// Publishes the unmount. Errs if a mount is left at the path because another one, at a directory above, hides it.
    fn publish_unmounted(&self, place: &Path, count: u32) -> Result<(), VolumeError> {
        if count == 0 {
            // A mount that another process has just made there, out of the path's reach, may not be known yet.
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

    /// True if a path lies below the kubelet's directory, after resolving links.
    fn is_kubelets(&self, path: &Path) -> bool {
        let kubelet = mountinfo::resolve(&self.node.config().kubelet_dir);
        let path = mountinfo::resolve(path);
        path != kubelet && path.starts_with(kubelet)
    }

    /// Errs while the kernel still holds the superblock of a detached mount of the volume.
    pub(super) fn not_detached(&self, volume: &Volume) -> Result<(), VolumeError> {
        if !self.node.inventory().is_detached(volume.uuid) {
            return Ok(());
        }
        let used = volume.placed.used_device();
        if used.is_some_and(|(device, _)| unmount::superblock_lives(device)) {
            return Err(VolumeError::StillDetached { uuid: volume.uuid });
        }
        self.node
            .inventory()
            .update(|state| state.detached.remove(&volume.uuid));
        Ok(())
    }

    /// True if there is evidence that a drive is gone or stuck: it was observed to be missing, or a step on it is
    /// unresponsive. Neither applies to an unknown drive, or to one that was not scanned yet.
    fn is_gone(&self, drive: &DriveId) -> bool {
        let snapshot = self.node.inventory().current();
        let missing = snapshot
            .drives
            .get(drive)
            .is_some_and(|drive| drive.state == DriveState::Missing);
        // A worker that died or was busy is no evidence; only an unresponsive step is.
        missing || self.node.inventory().is_stuck(drive)
    }

    /// Returns the volume of this id, in any state.
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

/// Returns the devices of all places of a volume; none while one of them is unknown.
fn devices(volume: &Volume) -> Vec<Device> {
    let devices = volume.places().map(|(_, placed)| Device::of(placed));
    devices.collect::<Option<_>>().unwrap_or_default()
}

/// True if a device has completed requests since its count was `before`, or completes one within the time after which a
/// device without completions counts as stalled: then it does not hang.
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
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    false
}

async fn completed(device: Option<&str>) -> Option<u64> {
    blockstat::completed(device?.to_owned()).await
}

/// Succeeds for an unknown volume if nothing is mounted at the path; else errs.
pub(super) fn not_mounted(path: &Path) -> Result<(), VolumeError> {
    // Reads only the table: this process accesses no path that may lie on a drive.
    let mounts = mounts::read()?;
    match mountinfo::mounts_at(&mounts, &mountinfo::resolve(path)).last() {
        None => Ok(()),
        Some(mount) => Err(VolumeError::Fs(RunError::Job(FsError::NotAVolume {
            path: path.display().to_string(),
            what: format!("{} ({})", mount.source.display(), mount.fs_type),
        }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::tests::{answers, rig};
    use drivebay_evidence::mounts::{RequestedMount, Role};
    use drivebay_model::{RecordState, samples};

    #[tokio::test]
    async fn only_an_unmount_that_was_done_lets_another_target_of_a_single_writer_in() {
        let dir = tempfile::tempdir().unwrap();
        let unmounted = Ok::<_, FsError>(Unmounted {
            count: 1,
            detached: false,
        });
        let target = dir.path().join("target");
        for (worker, is_done) in [
            ("exit 1".to_owned(), false),
            (answers(dir.path(), &unmounted), true),
        ] {
            let rig = rig(&worker).await;
            let placed = samples::placed(1, RecordState::New);
            let uuid = placed.record.uuid;
            let contents = samples::contents(1, 1, vec![placed], 0);
            let drive = samples::drive("sda", DriveState::Claimed, Some(contents));
            rig.scanned([drive]);
            let expected = rig.volumes.node().expected();
            let request = RequestedMount {
                exclusive: Some(true),
                ..RequestedMount::default()
            };
            let at = mountinfo::resolve(&target);
            expected.expect(at.clone(), uuid, Role::Target, false, request);
            let id = format!("{uuid}@{}", rig.volumes.node().config().node_id);
            let done = rig.volumes.unmount(id, target.clone(), true).await;
            assert_eq!(done.is_ok(), is_done, "{done:?}");
            let left = match is_done {
                true => Vec::new(),
                false => vec![at.clone()],
            };
            assert_eq!(expected.targets(uuid, false), left);
            // Its absence is no fault in either case.
            assert_eq!(expected.role(uuid, &at), None);
            rig.end().await;
        }
    }
}
