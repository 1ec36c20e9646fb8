//! Access to a volume's drive and device, in their current state.

use std::path::Path;

use super::{MOUNT_DEADLINE, VolumeError, Volumes, guard::VolumeGuard};
use drivebay_fs::{
    jobs::{Device, FsError},
    mounts,
};
use drivebay_layout::jobs::{LayoutError, ReadDrive};
use drivebay_model::{DriveRef, DriveState, Snapshot, Volume, VolumeState, cause::chain};
use drivebay_sys::mountinfo::MountEntry;
use drivebay_worker::{RunError, Slot};

impl Volumes {
    /// Returns the volume's drive for a change, if it is present and its contents can be trusted.
    pub(super) fn reach(
        &self,
        _held: &VolumeGuard,
        volume: &Volume,
    ) -> Result<DriveRef, VolumeError> {
        reach_in(&self.node.inventory().current(), volume)
    }

    /// Returns the volume's drive, and the volume in its current state. The reason for an ambiguous volume may have
    /// ended without a kernel event, e.g. when the last user of an LV's old device has closed it: the drive is read
    /// before a call is refused for that.
    pub(super) async fn reach_settled(
        &self,
        held: &VolumeGuard,
        volume: &Volume,
    ) -> Result<(DriveRef, Volume), VolumeError> {
        match self.reach(held, volume) {
            Ok(drive) => {
                let snapshot = self.node.inventory().current();
                let now = snapshot.volumes.get(&volume.uuid).unwrap_or(volume);
                Ok((drive, now.clone()))
            }
            // A volume on two drives stays ambiguous until one of them is detached.
            Err(VolumeError::Ambiguous { .. }) if self.is_on_one_drive(volume) => {
                let volume = self.reread_volume(volume).await?;
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

    /// Reads the volume's drive again, with repair. Returns the volume in its current state.
    pub(super) async fn reread_volume(&self, volume: &Volume) -> Result<Volume, VolumeError> {
        let snapshot = self.node.inventory().current();
        let drive = snapshot
            .drives
            .get(&volume.drive)
            .filter(|drive| drive.state == DriveState::Claimed)
            .ok_or_else(|| VolumeError::DriveAway {
                uuid: volume.uuid,
                drive: volume.drive.clone(),
            })?;
        let job = ReadDrive {
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

    /// Reads the volume's drive again, and publishes its contents, if the error shows that they differ from the
    /// inventory.
    pub(super) async fn reread_if_contradicted(&self, volume: &Volume, error: &LayoutError) {
        if matches!(
            error,
            LayoutError::NoSuchVolume { .. }
                | LayoutError::NotThere { .. }
                | LayoutError::Ambiguous { .. }
        ) && let Err(error) = self.reread_volume(volume).await
        {
            tracing::debug!(volume = %volume.uuid, error = %chain(&error), "cannot read the drive after a failed call");
        }
    }
}

/// Returns the volume's drive by this snapshot: the caller may have found the volume seconds ago, before its drive
/// returned or disappeared. Pure.
pub(super) fn reach_in(snapshot: &Snapshot, volume: &Volume) -> Result<DriveRef, VolumeError> {
    let volume = snapshot.volumes.get(&volume.uuid).unwrap_or(volume);
    if volume.state == VolumeState::Ambiguous {
        return Err(VolumeError::Ambiguous {
            uuid: volume.uuid,
            why: why_ambiguous(volume),
        });
    }
    if volume.state == VolumeState::Copying {
        return Err(VolumeError::Copying {
            uuid: volume.uuid,
            progress: "it gets the bytes of a snapshot or of another volume".to_owned(),
        });
    }
    let (uuid, id) = (volume.uuid, volume.drive.clone());
    match snapshot.drives.get(&volume.drive) {
        Some(drive) if drive.state == DriveState::Claimed => {
            if volume.state == VolumeState::Missing {
                Err(VolumeError::Vanished { uuid, drive: id })
            } else {
                Ok(DriveRef::from(&drive.facts))
            }
        }
        Some(drive) if drive.state == DriveState::NotScanned => {
            Err(VolumeError::NotScanned { uuid, drive: id })
        }
        _ => Err(VolumeError::DriveAway { uuid, drive: id }),
    }
}

/// Returns the contradiction of an ambiguous volume: between its record and its table, or between the drives that have
/// it.
fn why_ambiguous(volume: &Volume) -> String {
    let of_drives = || Some(volume.conditions.first()?.message.clone());
    let of_record = volume.placed.ambiguous.clone();
    of_record.or_else(of_drives).unwrap_or_default()
}

/// Returns the device of a volume that is mounted and published. Errs with `DriveAway` if it has none, and with `NotOpen` if an encrypted
/// volume is not open.
pub(super) fn device_of(volume: &Volume) -> Result<Device, VolumeError> {
    let uuid = volume.uuid;
    Device::of(&volume.placed).ok_or_else(|| match Device::own(&volume.placed) {
        Some(_) => VolumeError::Fs(RunError::Job(FsError::NotOpen { uuid })),
        None => VolumeError::DriveAway {
            uuid,
            drive: volume.drive.clone(),
        },
    })
}

/// True if this is a mount of the device's filesystem, or a bind of its node.
pub(super) fn is_of_device(mount: &MountEntry, device: &str, dev: (u32, u32)) -> bool {
    mount.source == Path::new("/dev").join(device)
        || mounts::is_mount_of(mount, dev)
        || (mount.fs_type == "devtmpfs" && mount.root == Path::new("/").join(device))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::delete, *};
    use drivebay_model::{RecordState, samples};

    fn snapshot(drive: DriveState, volume: VolumeState) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let drive = samples::drive("sda", drive, None);
        let placed = samples::placed(7, RecordState::New);
        let volume = Volume {
            state: volume,
            ..samples::volume(&drive, placed)
        };
        snapshot.drives.insert(drive.id.clone(), drive);
        snapshot.volumes.insert(volume.uuid, volume);
        snapshot
    }

    #[test]
    fn a_volume_is_reached_and_deleted_by_what_is_known_now_and_not_when_it_was_found() {
        let away = snapshot(DriveState::Missing, VolumeState::Missing);
        let volume = away.volumes.values().next().unwrap();
        // Found while its drive was missing, which has returned since: the volume is not lost.
        let back = snapshot(DriveState::Claimed, VolumeState::Ready);
        assert!(reach_in(&back, volume).is_ok());
        assert!(!delete::can_only_be_noted(&back, volume));
        let reached = reach_in(&away, back.volumes.values().next().unwrap());
        assert!(matches!(reached, Err(VolumeError::DriveAway { .. })));
        assert!(delete::can_only_be_noted(&away, volume));
        // Its drive was read, and it is not there.
        let lost = snapshot(DriveState::Claimed, VolumeState::Missing);
        let reached = reach_in(&lost, volume);
        assert!(matches!(reached, Err(VolumeError::Vanished { .. })));
        assert!(delete::can_only_be_noted(&lost, volume));
        // No tombstone for a drive that may become readable again.
        let silent = snapshot(DriveState::Unprobed, VolumeState::Missing);
        assert!(!delete::can_only_be_noted(&silent, volume));
    }
}
