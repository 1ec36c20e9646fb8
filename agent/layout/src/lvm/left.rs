//! Resumes devices of volumes that a killed process left suspended.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    aside::{self, Aside, InHand},
    name,
};
use crate::{error::LayoutError, jobs::ResumeLeft, open::LOCK_LIMIT};
use drivebay_model::{encryption, lost};
use drivebay_sys::dm::{self, Control, Suspended};

/// Limit of resuming all devices, in addition to the limit of locking a drive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Device-mapper names of the resumed devices, and failures with their reasons, of one drive or several.
#[derive(Debug, Default)]
struct Resumed {
    devices: Vec<String>,
    failed: Vec<String>,
}

/// See `ResumeLeft`. Each drive has a thread of its own: one that does not answer delays no other.
pub(crate) fn resume(job: &ResumeLeft) -> Result<Vec<String>, LayoutError> {
    let still = |why| LayoutError::StillSuspended { why };
    // Read before the devices are listed: a device whose thread ends in between is resumed by then, or is in the list.
    let in_hand = aside::in_hand();
    let all = dm::suspended(Path::new("/sys"));
    let mut all =
        all.map_err(|error| still(format!("listing suspended devices failed: {error}")))?;
    all.retain(|device| !in_hand.contains_key(&device.uuid));
    let members: BTreeSet<String> = in_hand.into_values().collect();
    let unended = |member: String| format!("suspending or resuming {member} has not ended");
    let failed: Vec<String> = members.into_iter().map(unended).collect();
    let drives = of_drives(all, job.only.as_deref());
    let done = match drives.is_empty() {
        true => Resumed::default(),
        false => resume_drives(drives, job.only.is_none())?,
    };
    let failed: Vec<String> = failed.into_iter().chain(done.failed).collect();
    if failed.is_empty() {
        return Ok(done.devices);
    }
    if !done.devices.is_empty() {
        tracing::warn!(
            devices = done.devices.join(", "),
            "suspended volumes resumed"
        );
    }
    Err(still(failed.join("; ")))
}

fn resume_drives(
    drives: BTreeMap<Uuid, Vec<Suspended>>,
    needs_lock: bool,
) -> Result<Resumed, LayoutError> {
    let control = Control::open().map_err(|error| LayoutError::StillSuspended {
        why: format!("device-mapper's control node does not open: {error}"),
    })?;
    let control = Arc::new(control);
    let until = Instant::now() + LOCK_LIMIT + PATIENCE;
    let (mut all, mut resuming) = (Resumed::default(), Vec::new());
    for devices in drives.into_values() {
        let (control, names) = (Arc::clone(&control), names(&devices));
        let in_hand = devices.iter().map(|one| InHand::take(&one.uuid, &one.name));
        let in_hand: Vec<InHand> = in_hand.collect();
        let work = move || {
            let done = resume_drive(&control, &devices, needs_lock);
            drop(in_hand);
            done
        };
        match Aside::start(work) {
            Ok(started) => resuming.push((names, started)),
            Err(error) => all
                .failed
                .push(format!("{names}: a thread did not start: {error}")),
        }
    }
    for (names, started) in resuming {
        match started.by(until) {
            Some(done) => {
                all.devices.extend(done.devices);
                all.failed.extend(done.failed);
            }
            None => all.failed.push(format!("{names}: resuming has not ended")),
        }
    }
    Ok(all)
}

fn names(devices: &[Suspended]) -> String {
    let names: Vec<&str> = devices.iter().map(|one| one.name.as_str()).collect();
    names.join(", ")
}

/// Returns the devices of Drivebay's VGs, by drive, in the order in which they must be resumed: the layers below, then snapshots, then
/// volumes, then the mapped devices over them. Resuming a volume may write to the layers below it, and needs its snapshots active.
/// `only`: see `ResumeLeft`. Pure.
fn of_drives(all: Vec<Suspended>, only: Option<&[String]>) -> BTreeMap<Uuid, Vec<Suspended>> {
    let mut drives: BTreeMap<Uuid, Vec<(u8, Suspended)>> = BTreeMap::new();
    for device in all {
        if only.is_some_and(|only| !only.contains(&device.uuid)) {
            continue;
        }
        let mapped = encryption::header_of(&device.name).or_else(|| lost::volume_of(&device.name));
        if let Some(of) = mapped {
            let drive = match &device.on {
                // Over the device of an encrypted volume's lost sectors.
                Some(below) if lost::volume_of(below).is_some() => Some((4, of)),
                Some(lv) => name::of_device(lv).map(|(drive, _)| (3, drive)),
                // Over a partition: it waits for no other device.
                None => Some((3, of)),
            };
            if let Some((rank, drive)) = drive {
                drives.entry(drive).or_default().push((rank, device));
            }
            continue;
        }
        let Some((drive, lv)) = name::of_device(&device.name) else {
            continue;
        };
        let Some(uuid) = device.uuid.strip_prefix("LVM-") else {
            continue;
        };
        let is_below = uuid.ends_with("-real") || uuid.ends_with("-cow");
        let rank = match (is_below, lv.starts_with("drivebay--")) {
            (true, _) => 0,
            // Snapshots.
            (false, true) => 1,
            (false, false) => 2,
        };
        drives.entry(drive).or_default().push((rank, device));
    }
    let sorted = drives.into_iter().map(|(drive, mut devices)| {
        devices.sort_by_key(|(rank, _)| *rank);
        let devices: Vec<Suspended> = devices.into_iter().map(|(_, device)| device).collect();
        (drive, devices)
    });
    sorted.collect()
}

fn resume_drive(control: &Control, devices: &[Suspended], needs_lock: bool) -> Resumed {
    let mut resumed = Resumed::default();
    // A process that holds the lock may have suspended the devices, and resumes them itself.
    let locks = lock_drives(devices);
    if let Err(why) = &locks
        && needs_lock
    {
        resumed.failed.push(format!("{}: {why}", names(devices)));
        return resumed;
    }
    for device in devices {
        let name = &device.name;
        match resume_device(control, &device.uuid) {
            Ok(true) => resumed.devices.push(name.clone()),
            Ok(false) => {}
            Err(error) => resumed
                .failed
                .push(format!("{name}: resuming failed: {error}")),
        }
    }
    resumed
}

/// Resumes the device with its active table; false if it does not exist or is not suspended any more.
fn resume_device(control: &Control, uuid: &str) -> io::Result<bool> {
    if !control.status(uuid)?.is_some_and(|now| now.suspended) {
        return Ok(false);
    }
    control.clear(uuid)?;
    control.resume(uuid)?;
    Ok(true)
}

fn lock_drives(devices: &[Suspended]) -> Result<Vec<dm::DriveLock>, String> {
    let mut drives = BTreeSet::new();
    for device in devices {
        match dm::drives_below(Path::new("/sys"), &device.kernel_name) {
            Ok(below) => drives.extend(below),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(format!("its drive is not found: {error}")),
        }
    }
    let mut locks = Vec::new();
    for drive in drives {
        match dm::lock_drive(&drive, LOCK_LIMIT) {
            Ok(Some(lock)) => locks.push(lock),
            Ok(None) => return Err(format!("/dev/{drive} is locked by another program (flock)")),
            // No process can change an unplugged drive: it needs no lock.
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(format!("locking /dev/{drive} failed: {error}")),
        }
    }
    Ok(locks)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV)
    ) || error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::Encryption;

    #[test]
    fn a_device_that_a_thread_has_in_hand_is_named_until_the_thread_ends() {
        let nothing_else = ResumeLeft {
            only: Some(Vec::new()),
        };
        let in_hand = InHand::take("LVM-7", "volume 7 on drive sda");
        let error = resume(&nothing_else).unwrap_err().to_string();
        let unended = "suspending or resuming volume 7 on drive sda has not ended";
        assert!(error.contains(unended), "{error}");
        drop(in_hand);
        // Other tests of this process may have devices of their own.
        let left = resume(&nothing_else).err().map(|error| error.to_string());
        assert!(!left.unwrap_or_default().contains(unended));
    }

    #[test]
    fn only_devices_of_our_vgs_are_resumed_and_what_is_below_a_volume_first() {
        let drives = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let vgs = drives.map(|drive| name::of_vg(drive).replace('-', "--"));
        let device = |vg: &str, lv: &str, uuid: &str| Suspended {
            kernel_name: "dm-1".into(),
            name: format!("{vg}-{lv}"),
            uuid: uuid.into(),
            on: None,
        };
        let [first, second] = &vgs;
        let encryption = Encryption {
            header: Uuid::from_u128(5),
        };
        let mapping = |on: Option<&str>| Suspended {
            kernel_name: "dm-1".into(),
            name: encryption.mapping_name(),
            uuid: encryption.dm_uuid(),
            on: on.map(str::to_owned),
        };
        let all = vec![
            mapping(Some(&format!("{first}-pvc--real"))),
            mapping(Some("other-pvc")),
            mapping(None),
            mapping(Some(&lost::device_name(Uuid::from_u128(6)))),
            // A volume whose name ends like that of a layer.
            device(first, "pvc--real", "LVM-1"),
            device(first, "drivebay--snap--7", "LVM-2"),
            device(first, "pvc--real-real", "LVM-1-real"),
            device(first, "drivebay--snap--7-cow", "LVM-2-cow"),
            device(second, "pvc", "LVM-3"),
            device("other", "pvc", "LVM-4"),
            device(second, "crypt", "CRYPT-LUKS2-5"),
        ];
        let by_drive = of_drives(all.clone(), None);
        let uuids = |drive: &Uuid| -> Vec<&str> {
            by_drive[drive]
                .iter()
                .map(|device| device.uuid.as_str())
                .collect()
        };
        assert_eq!(by_drive.len(), 3);
        let twice = [encryption.dm_uuid(), encryption.dm_uuid()];
        assert_eq!(uuids(&encryption.header), twice);
        assert_eq!(
            uuids(&drives[0]),
            [
                "LVM-1-real",
                "LVM-2-cow",
                "LVM-2",
                "LVM-1",
                encryption.dm_uuid().as_str()
            ]
        );
        assert_eq!(uuids(&drives[1]), ["LVM-3"]);
        let only = ["LVM-2".to_owned(), "LVM-4".to_owned()];
        let selected = of_drives(all, Some(&only));
        let selected_uuids: Vec<String> = selected
            .into_values()
            .flatten()
            .map(|one| one.uuid)
            .collect();
        assert_eq!(selected_uuids, ["LVM-2"]);
    }
}
