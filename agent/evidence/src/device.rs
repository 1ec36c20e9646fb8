//! Checks that a volume's device is unchanged since the last scan: a manual change does not always cause an event. Reads
//! only sysfs, which waits for no drive. The decision is pure.

use std::{collections::BTreeMap, io, path::Path};

use uuid::Uuid;

use drivebay_model::{
    Placed, Snapshot, VolumeState,
    condition::{Condition, Reason, Status},
};
use drivebay_sys::{attribute, mountinfo::parse_dev};

/// State of a block device in sysfs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceState {
    pub dev: Option<(u32, u32)>,
    pub size_bytes: u64,
    /// Offset on the drive in bytes; None if the device is no partition.
    pub start_bytes: Option<u64>,
    /// True if the kernel refuses writes.
    pub read_only: bool,
    /// None if device-mapper does not have the device.
    pub dm_uuid: Option<String>,
    /// True if device-mapper has suspended the device, so that all requests wait.
    pub suspended: bool,
}

/// Unit of sizes and starts in sysfs, in bytes, for any logical sector size.
const SECTOR: u64 = 512;

/// Reads the state of the device `name` below the mount point of sysfs. None if the kernel has no such name. Errs if an
/// attribute cannot be read, or if the size or start is not a number.
pub fn read(sysfs: &Path, name: &str) -> io::Result<Option<DeviceState>> {
    let dir = sysfs.join("class/block").join(name.replace('/', "!"));
    let text = |file: &str| match attribute::read_text(&dir.join(file)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    };
    let bytes = |file: &str| {
        let sectors = text(file)?.map(|text| text.parse::<u64>().map_err(io::Error::other));
        Ok::<_, io::Error>(
            sectors
                .transpose()?
                .map(|sectors| sectors.saturating_mul(SECTOR)),
        )
    };
    let Some(dev) = text("dev")? else {
        return Ok(None);
    };
    // Only device-mapper devices have such names.
    let of_dm = |file: &str| match name.starts_with("dm-") {
        true => text(file),
        false => Ok(None),
    };
    Ok(Some(DeviceState {
        dev: parse_dev(&dev),
        size_bytes: bytes("size")?.unwrap_or(0),
        start_bytes: bytes("start")?,
        read_only: text("ro")?.is_some_and(|text| text == "1"),
        dm_uuid: of_dm("dm/uuid")?,
        suspended: of_dm("dm/suspended")?.is_some_and(|text| text == "1"),
    }))
}

/// Returns the new and ready volumes for which a scan has found a device.
pub fn volumes_to_check(snapshot: &Snapshot) -> Vec<(Uuid, Placed)> {
    let volumes = snapshot.volumes.values();
    volumes
        .filter(|volume| matches!(volume.state, VolumeState::New | VolumeState::Ready))
        .filter(|volume| volume.placed.device.is_some())
        .map(|volume| (volume.uuid, volume.placed.clone()))
        .collect()
}

/// Compares a volume's device with its record; empty if they agree. `state`: the device that has this name now, if any.
pub fn judge(placed: &Placed, state: Option<&DeviceState>) -> Vec<Condition> {
    let name = placed.device.as_deref().unwrap_or_default();
    let condition = |reason, message: String| vec![Condition::new(reason, message)];
    let of_another =
        |state: &&DeviceState| state.dev != placed.dev || state.dm_uuid != dm_uuid(placed, state);
    let Some(state) = state.filter(|state| !of_another(state)) else {
        return condition(
            Reason::DeviceGone,
            format!(
                "the kernel no longer has its device {name}; rescan, and if that does not bring it back, see what was done to the drive by hand"
            ),
        );
    };
    if state.suspended {
        return condition(
            Reason::DeviceSuspended,
            format!(
                "its device {name} is suspended, so every request waits; see `dmsetup info`, and resume it"
            ),
        );
    }
    let record = &placed.record;
    let right = |bytes: u64| state.size_bytes == bytes;
    let moved = state
        .start_bytes
        .is_some_and(|start| start != record.extent.start);
    if moved || !(right(record.extent.len) || record.growing_to.is_some_and(|to| right(to.len))) {
        let lost = moved || state.size_bytes < record.extent.len;
        let mut changed = condition(
            Reason::DeviceChanged,
            format!(
                "its device {name} does not lie where its record says, or has another size: it was changed by hand; stop the pod, and restore it"
            ),
        );
        if !lost {
            changed
                .iter_mut()
                .for_each(|one| one.status = Status::Degraded);
        }
        return changed;
    }
    if state.read_only {
        return condition(
            Reason::DeviceReadOnly,
            format!(
                "the kernel refuses writes to its device {name}; see whether the drive is write-protected, and `blockdev --setrw`"
            ),
        );
    }
    Vec::new()
}

// A partition has no uuid: any is accepted.
fn dm_uuid(placed: &Placed, state: &DeviceState) -> Option<String> {
    match &placed.dm_uuid {
        Some(expected) => Some(expected.clone()),
        None => state.dm_uuid.clone(),
    }
}

/// Reports only conditions that two consecutive checks found: a scan in progress may be about to repair or to report the
/// fault.
#[derive(Debug, Default)]
pub struct Debounced(BTreeMap<Uuid, Vec<Condition>>);

impl Debounced {
    /// True if the last check found nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Stores the result of a check, and returns the volumes for which the check before found the same.
    pub fn update(
        &mut self,
        conditions: BTreeMap<Uuid, Vec<Condition>>,
    ) -> BTreeMap<Uuid, Vec<Condition>> {
        let before = std::mem::replace(&mut self.0, conditions);
        let same = self
            .0
            .iter()
            .filter(|(volume, now)| before.get(volume) == Some(now));
        same.map(|(volume, now)| (*volume, now.clone())).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use drivebay_model::{Extent, RecordState, samples};

    fn right() -> DeviceState {
        DeviceState {
            dev: Some((8, 2)),
            size_bytes: 1 << 30,
            start_bytes: Some(8 << 20),
            ..DeviceState::default()
        }
    }

    fn conditions_after(placed: &Placed, change: impl FnOnce(&mut DeviceState)) -> String {
        let mut state = right();
        change(&mut state);
        let conditions = judge(placed, Some(&state)).into_iter();
        conditions
            .map(|condition| format!("{} {}", condition.status, condition.reason))
            .collect()
    }

    #[test]
    fn each_manual_change_of_a_device_raises_its_own_condition() {
        let placed = samples::placed(7, RecordState::New);
        assert_eq!(conditions_after(&placed, |_| ()), "");
        assert_eq!(judge(&placed, None)[0].reason, Reason::DeviceGone);
        assert_eq!(
            conditions_after(&placed, |state| state.dev = Some((8, 3))),
            "INACCESSIBLE DeviceGone"
        );
        assert_eq!(
            conditions_after(&placed, |state| state.size_bytes -= 512),
            "INACCESSIBLE DeviceChanged"
        );
        assert_eq!(
            conditions_after(&placed, |state| state.size_bytes += 512),
            "DEGRADED DeviceChanged"
        );
        assert_eq!(
            conditions_after(&placed, |state| state.start_bytes = Some(0)),
            "INACCESSIBLE DeviceChanged"
        );
        assert_eq!(
            conditions_after(&placed, |state| state.read_only = true),
            "DEGRADED DeviceReadOnly"
        );
        let mut growing = placed.clone();
        growing.record.growing_to = Some(Extent {
            start: 8 << 20,
            len: 2 << 30,
        });
        assert_eq!(
            conditions_after(&growing, |state| state.size_bytes = 2 << 30),
            ""
        );
        assert_eq!(conditions_after(&growing, |_| ()), "");
    }

    #[test]
    fn a_logical_volume_is_known_by_its_uuid_and_must_take_requests() {
        let mut placed = samples::placed(7, RecordState::New);
        placed.dm_uuid = Some("LVM-a".into());
        let of = |uuid: &'static str, suspended| {
            conditions_after(&placed, move |state| {
                state.start_bytes = None;
                state.dm_uuid = Some(uuid.into());
                state.suspended = suspended;
            })
        };
        assert_eq!(of("LVM-a", false), "");
        assert_eq!(of("LVM-a", true), "INACCESSIBLE DeviceSuspended");
        assert_eq!(of("LVM-b", false), "INACCESSIBLE DeviceGone");
    }

    #[test]
    fn only_what_is_seen_twice_is_raised() {
        let mut debounced = Debounced::default();
        let gone: BTreeMap<_, _> = [(
            Uuid::from_u128(7),
            judge(&samples::placed(7, RecordState::New), None),
        )]
        .into();
        assert_eq!(debounced.update(gone.clone()), BTreeMap::new());
        assert_eq!(debounced.update(gone.clone()), gone);
        assert_eq!(debounced.update(BTreeMap::new()), BTreeMap::new());
        assert_eq!(debounced.update(gone), BTreeMap::new());
    }

    #[test]
    fn attributes_in_sysfs_are_read_and_a_name_that_is_gone_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("class/block/dm-3");
        fs::create_dir_all(device.join("dm")).unwrap();
        for (file, text) in [
            ("dev", "253:3\n"),
            ("size", "8\n"),
            ("ro", "1\n"),
            ("dm/uuid", "LVM-a\n"),
            ("dm/suspended", "0\n"),
        ] {
            fs::write(device.join(file), text).unwrap();
        }
        let expected = DeviceState {
            dev: Some((253, 3)),
            size_bytes: 4096,
            start_bytes: None,
            read_only: true,
            dm_uuid: Some("LVM-a".into()),
            suspended: false,
        };
        assert_eq!(read(dir.path(), "dm-3").unwrap(), Some(expected));
        assert_eq!(read(dir.path(), "dm-4").unwrap(), None);
        fs::write(device.join("size"), "many").unwrap();
        assert!(read(dir.path(), "dm-3").is_err());
    }
}
