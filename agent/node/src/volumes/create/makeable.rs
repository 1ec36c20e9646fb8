//! Checks, before anything is created, that a volume can be formatted and mounted as requested.

use std::time::Duration;

use super::super::VolumeError;
use drivebay_csi::Content;
use drivebay_fs::{
    crypt,
    kernel_options::{self, OptionsCheck},
    kind, mkfs_trial, parse_mount_flags,
};
use drivebay_model::{DriveState, Record, Snapshot, units::human_size};
use drivebay_sys::offload::offload;

/// Logical sector size of a class without drives, in bytes.
const SECTOR: u32 = 512;
/// Longest time for looking for programs and asking device-mapper, which may load a module.
const HOST_DEADLINE: Duration = Duration::from_secs(5);

/// Returns the smallest logical sector size, in bytes, of the drives that the class has or could claim: options that
/// mkfs refuses there it refuses on all of them. Pure.
pub(super) fn smallest_sector(snapshot: &Snapshot, class: &str) -> u32 {
    let drives = snapshot.drives.values().filter(|drive| {
        drive.class.as_deref() == Some(class)
            && matches!(drive.state, DriveState::Available | DriveState::Claimed)
    });
    let sectors = drives.map(|drive| drive.facts.logical_sector);
    sectors.min().unwrap_or(SECTOR)
}

/// Errs if the kernel refuses the mount options, which would fail each stage of the new volume.
pub(super) async fn check_mount_options(
    content: &Content,
    record: &Record,
) -> Result<(), VolumeError> {
    let (Some(fs_type), Content::Mount { mount_flags, .. }) = (record.fs_type, content) else {
        return Ok(());
    };
    let invalid = |why: String| VolumeError::Invalid {
        field: "mount options",
        why,
    };
    let all = [record.mount_options.as_slice(), mount_flags].concat();
    let flags = parse_mount_flags(&all).map_err(|error| invalid(error.to_string()))?;
    match kernel_options::check_on_thread(fs_type, flags).await {
        OptionsCheck::Accepted => Ok(()),
        OptionsCheck::Refused { options, why } => Err(invalid(format!(
            "the kernel refuses {options:?} ({why}); correct mountOptions of the StorageClass, or mount-options of class {}",
            record.class
        ))),
        OptionsCheck::NotChecked { why } => {
            tracing::debug!(reason = why, "mount options not checked before the mount");
            Ok(())
        }
    }
}

/// Errs if this host lacks what the first stage of the new volume needs: mkfs (unless `is_copy`), or what encrypts it.
pub(super) async fn check_host(record: &Record, is_copy: bool) -> Result<(), VolumeError> {
    let is_encrypted = record.encryption().is_some();
    let made = record.fs_type.filter(|_| !is_copy);
    let mkfs = made.map(|fs_type| kind::of(fs_type).facts().mkfs);
    let lacking = offload("host", HOST_DEADLINE, move || {
        let encryption = is_encrypted.then(crypt::unavailable).flatten();
        encryption.or_else(|| mkfs?.missing())
    });
    let why = match lacking.await {
        Ok(None) => return Ok(()),
        Ok(Some(why)) => why,
        Err(error) => error.to_string(),
    };
    Err(VolumeError::HostLacks { why })
}

/// Errs if mkfs refuses its options on a drive with logical sectors of this size, in bytes, which would fail the first
/// stage of the new volume.
pub(super) async fn check_mkfs(record: &Record, sector: u32) -> Result<(), VolumeError> {
    let Some(fs_type) = record.fs_type.filter(|_| !record.mkfs_options.is_empty()) else {
        return Ok(());
    };
    match mkfs_trial::refusal(
        fs_type,
        &record.mkfs_options,
        record.requested_bytes,
        sector,
    )
    .await
    {
        None => Ok(()),
        Some(why) => Err(VolumeError::Invalid {
            field: "mkfs options",
            why: format!(
                "{} refuses {:?} for {} on a drive with sectors of {sector} bytes ({why}); correct mkfsOptions of the StorageClass, or mkfs-options of class {}",
                kind::of(fs_type).facts().mkfs.name,
                record.mkfs_options.join(" "),
                human_size(record.requested_bytes),
                record.class
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::samples::drive;

    #[test]
    fn the_smallest_sectors_of_a_class_are_those_of_its_drives_that_are_here() {
        let mut snapshot = Snapshot::default();
        assert_eq!(smallest_sector(&snapshot, "bulk"), SECTOR);
        let mut add = |name: &str, class: &str, state, sector| {
            let mut drive = drive(name, state, None);
            drive.class = Some(class.to_owned());
            drive.facts.logical_sector = sector;
            snapshot.drives.insert(drive.id.clone(), drive);
            smallest_sector(&snapshot, "bulk")
        };
        assert_eq!(add("a", "bulk", DriveState::Claimed, 4096), 4096);
        assert_eq!(add("b", "other", DriveState::Claimed, 512), 4096);
        assert_eq!(add("c", "bulk", DriveState::Missing, 512), 4096);
        assert_eq!(add("d", "bulk", DriveState::Available, 512), 512);
    }
}
