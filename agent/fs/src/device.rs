//! Opens a volume's device (a partition, or an LV's), and verifies that it is the expected one at the moment of use: names
//! change on reboot.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::jobs::{Device, FsError};
use drivebay_layout::jobs::SnapshotDevice;
use drivebay_model::{Cause, DriveRef, Placed, units::human_sizes};
pub use drivebay_sys::path::node;
use drivebay_sys::{
    attribute,
    dm::{self, DmDevice},
    drive::{OpenError, verify_name},
    mountinfo::{MountEntry, parse_dev},
    path::{self, Kind, TargetError},
};

/// Bytes at the start of the device that are read without mounting it.
pub const HEAD_BYTES: usize = 4096;

/// Verified device of a volume, a partition or an LV's. While it is open, the kernel reuses neither its number nor its name.
#[derive(Debug)]
pub struct Partition {
    pub node: PathBuf,
    /// Kernel name of the device at the time of opening, e.g. `sdb2` or `dm-3`; it belongs to this device as long as
    /// `Partition` exists.
    pub device: String,
    pub dev: (u32, u32),
    pub bytes: u64,
    file: File,
}

fn sysfs(device: &str) -> PathBuf {
    Path::new("/sys/class/block").join(device.replace('/', "!"))
}

fn attribute(device: &str, name: &str) -> io::Result<String> {
    attribute::read_text(&sysfs(device).join(name)).map(|text| text.trim().to_owned())
}

/// Returns the device number of a kernel name, from sysfs; None if there is no such device now.
pub fn number(device: &str) -> Option<(u32, u32)> {
    attribute(device, "dev").ok().as_deref().and_then(parse_dev)
}

/// Returns the size in bytes of a volume's device; errs with `NotHere` if its name or number belongs to another one. Reads
/// sysfs only.
pub fn bytes(device: &Device) -> Result<u64, FsError> {
    is_meant(device)?;
    size(&device.name)
}

/// Returns the device of a volume that is mounted and published; errs if the kernel does not have it, or if a volume with a mapped device is
/// not open.
pub fn of(drive: &DriveRef, placed: &Placed) -> Result<Device, FsError> {
    match Device::of(placed) {
        Some(device) => Ok(device),
        None if placed.record.mapping_uuid().is_some() => Err(FsError::NotOpen {
            uuid: placed.record.uuid,
        }),
        None => Err(absent(drive, placed)),
    }
}

fn absent(drive: &DriveRef, placed: &Placed) -> FsError {
    FsError::Io {
        what: format!("finding the device of volume {} on", placed.record.uuid),
        path: drive.node().display().to_string(),
        source: Cause::text(
            "the kernel does not have it (is the drive being used by something else?)",
        ),
    }
}

/// Opens a volume's device, and then verifies that it is the expected one, on this drive. While it is open, the kernel
/// reuses neither its number nor its name. Errs with `NotHere` if it is another device by now.
pub fn hold(drive: &DriveRef, placed: &Placed) -> Result<File, FsError> {
    let device = of(drive, placed)?;
    let node = node(&device.name);
    let file = open_node(&node, 0).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => another(&device, "no device".to_owned()),
        _ => io_error("opening", &node, error),
    })?;
    let facts = path::facts_of(&file).map_err(|error| io_error("looking at", &node, error))?;
    if facts.kind != Kind::Block || facts.rdev != device.dev {
        return Err(another(
            &device,
            format!("device {}:{}", facts.rdev.0, facts.rdev.1),
        ));
    }
    is_meant(&device)?;
    is_used_device(&device, drive, placed)?.map_err(|(actual, _)| another(&device, actual))?;
    Ok(file)
}

/// Verifies that an open device is the one of this volume that is mounted and published, where its record says.
fn is_used_device(
    device: &Device,
    drive: &DriveRef,
    placed: &Placed,
) -> Result<Result<(), Wrong>, FsError> {
    let own = Device::own(placed).ok_or_else(|| absent(drive, placed))?;
    let own_bytes = size(&own.name)?;
    let mappings = placed.record.mappings();
    if let [top, below @ ..] = mappings.as_slice() {
        let failed = |error| io_error("looking at", &node(&device.name), error);
        let most = own_bytes.saturating_sub(placed.record.header_bytes());
        let mut over = own.name.clone();
        for names in below {
            let found = dm::mapped_over(Path::new("/sys"), &own.name, &names.dm_uuid);
            let Some(found) = found.map_err(failed)? else {
                let (actual, expected) = (format!("a device on {}", own.name), &names.name);
                return Ok(Err((actual, format!("a device on {expected}"))));
            };
            if let Err(wrong) = mapping(&found, &own.name, &names.dm_uuid, own_bytes) {
                return Ok(Err(wrong));
            }
            over = found.kernel_name;
        }
        let mapped = dm::read(Path::new("/sys"), &device.name).map_err(failed)?;
        if let Err(wrong) = mapping(&mapped, &over, &top.dm_uuid, most) {
            return Ok(Err(wrong));
        }
        is_meant(&own)?;
    }
    is_of_record(&own, drive, placed, own_bytes)
}

/// Errs with `NotHere` unless name, number and device-mapper uuid still belong together.
fn is_meant(device: &Device) -> Result<(), FsError> {
    let current = number(&device.name);
    if current != Some(device.dev) {
        let current = current.map(|dev| format!("device {}:{}", dev.0, dev.1));
        return Err(another(
            device,
            current.unwrap_or_else(|| "no device".to_owned()),
        ));
    }
    let Some(expected) = &device.dm_uuid else {
        return Ok(());
    };
    match attribute(&device.name, "dm/uuid") {
        Ok(uuid) if uuid == *expected => Ok(()),
        Ok(uuid) => Err(another(device, format!("the LV {uuid}"))),
        // It was replaced meanwhile, or does not belong to device-mapper.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(another(device, "no LV".to_owned()))
        }
        Err(error) => Err(io_error("looking at", &node(&device.name), error)),
    }
}

fn another(device: &Device, actual: String) -> FsError {
    let dm_uuid = device.dm_uuid.as_deref().map(|uuid| format!(" ({uuid})"));
    FsError::NotHere {
        path: node(&device.name).display().to_string(),
        why: format!(
            "it is {actual} now, and not the volume's device {}:{}{}",
            device.dev.0,
            device.dev.1,
            dm_uuid.unwrap_or_default()
        ),
    }
}

fn size(device: &str) -> Result<u64, FsError> {
    let sectors = attribute(device, "size")
        .map_err(|error| io_error("reading the size of", &node(device), error))?;
    let sectors: u64 = sectors.parse().map_err(|_| {
        io_error(
            "reading the size of",
            &node(device),
            io::Error::from(io::ErrorKind::InvalidData),
        )
    })?;
    Ok(sectors * 512)
}

/// Opens the device of a volume that is mounted and published, for reading: the mapped one of a volume that has one, else its own. A volume
/// with lost sectors that is not open has the marks of those on its own.
pub fn open_used(drive: &DriveRef, placed: &Placed) -> Result<Partition, FsError> {
    let record = &placed.record;
    match record.encryption().is_some() || placed.mapping_uuid().is_some() {
        true => open_mapped(drive, placed),
        false => open(drive, placed),
    }
}

/// Opens the mapped device of a volume, as `open` does its own. Errs with `NotOpen` if there is none.
pub fn open_mapped(drive: &DriveRef, placed: &Placed) -> Result<Partition, FsError> {
    let device = of(drive, placed)?;
    let file = hold(drive, placed)?;
    Ok(Partition {
        node: node(&device.name),
        bytes: size(&device.name)?,
        dev: device.dev,
        device: device.name,
        file,
    })
}

/// Opens a volume's own device read-only, its partition or LV, and verifies: the node's number; that sysfs has it as a partition of this drive, with
/// start and size of the record, or as the expected LV, on this drive alone, with the record's size. Errs with `Unexpected`
/// otherwise.
pub fn open(drive: &DriveRef, placed: &Placed) -> Result<Partition, FsError> {
    let meant = Device::own(placed).ok_or_else(|| absent(drive, placed))?;
    let (device, dev) = (&meant.name, meant.dev);
    let node = node(device);
    let wrong = |(actual, expected): Wrong| FsError::Unexpected {
        uuid: placed.record.uuid,
        device: device.clone(),
        found: actual,
        expected,
    };
    let file = open_node(&node, 0).map_err(|error| io_error("opening", &node, error))?;
    let facts = path::facts_of(&file).map_err(|error| io_error("looking at", &node, error))?;
    if facts.kind != Kind::Block || facts.rdev != dev || number(device) != Some(dev) {
        return Err(wrong((
            format!("device {}:{}", facts.rdev.0, facts.rdev.1),
            format!("device {}:{}", dev.0, dev.1),
        )));
    }
    let bytes = size(device)?;
    is_of_record(&meant, drive, placed, bytes)?.map_err(wrong)?;
    Ok(Partition {
        node,
        device: device.clone(),
        dev,
        bytes,
        file,
    })
}

/// Verifies that an open device of this size is where the record says, and that the drive still has its name.
fn is_of_record(
    device: &Device,
    drive: &DriveRef,
    placed: &Placed,
    bytes: u64,
) -> Result<Result<(), Wrong>, FsError> {
    let record = &placed.record;
    let wrong_size = |bytes: u64| {
        let is_right =
            bytes == record.extent.len || record.growing_to.is_some_and(|to| bytes == to.len);
        (!is_right).then(|| human_sizes([bytes, record.extent.len]))
    };
    let checked = match &device.dm_uuid {
        Some(dm_uuid) => {
            let dm_device = dm::read(Path::new("/sys"), &device.name)
                .map_err(|error| io_error("looking at", &node(&device.name), error))?;
            logical_volume(&dm_device, drive, dm_uuid, wrong_size)
        }
        None => partition(&device.name, drive, placed, bytes, wrong_size),
    };
    if checked.is_err() {
        return Ok(checked);
    }
    match verify_name(drive) {
        Err(OpenError::NotThisDrive { seen: actual, .. }) => {
            Ok(Err((actual, format!("drive {}", drive.id))))
        }
        Err(error) => Err(io_error("looking at", &drive.node(), error.into_io())),
        Ok(()) => Ok(Ok(())),
    }
}

/// Opens a snapshot's device, and verifies its number and its device-mapper uuid. Errs with `NotHere` if they differ.
pub fn open_snapshot(node: &Path, snapshot: &SnapshotDevice) -> Result<File, FsError> {
    let file = open_node(node, 0).map_err(|error| io_error("opening", node, error))?;
    let facts = path::facts_of(&file).map_err(|error| io_error("looking at", node, error))?;
    let dm_device = dm::read(Path::new("/sys"), &snapshot.device)
        .map_err(|error| io_error("looking at", node, error))?;
    if facts.kind != Kind::Block || facts.rdev != snapshot.dev || dm_device.uuid != snapshot.dm_uuid
    {
        return Err(FsError::NotHere {
            path: node.display().to_string(),
            why: format!("it is not the snapshot {} any more", snapshot.dm_uuid),
        });
    }
    Ok(file)
}

/// Found and expected device, for a message.
type Wrong = (String, String);

/// Verifies that sysfs has the device as a partition of this drive, with start and size of the record.
fn partition(
    device: &str,
    drive: &DriveRef,
    placed: &Placed,
    bytes: u64,
    wrong_size: impl Fn(u64) -> Option<[String; 2]>,
) -> Result<(), Wrong> {
    let parent = std::fs::canonicalize(sysfs(device))
        .ok()
        .and_then(|own| std::fs::read_to_string(own.parent()?.join("dev")).ok())
        .as_deref()
        .and_then(parse_dev);
    if parent != Some((drive.major, drive.minor)) {
        return Err((
            format!(
                "a device of {}",
                parent.map_or("another drive".to_owned(), |(a, b)| format!(
                    "drive {a}:{b}"
                ))
            ),
            format!(
                "a partition of {} ({}:{})",
                drive.kernel_name, drive.major, drive.minor
            ),
        ));
    }
    let start = attribute(device, "start")
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
        .map(|sectors| sectors * 512);
    let extent = placed.record.extent;
    let wrong = wrong_size(bytes);
    if start != Some(extent.start) || wrong.is_some() {
        let [size, expected] = wrong.unwrap_or_else(|| human_sizes([bytes, extent.len]));
        return Err((
            format!(
                "a partition at byte {} with {size}",
                start.map_or("?".to_owned(), |s| s.to_string())
            ),
            format!("byte {} and {expected}", extent.start),
        ));
    }
    Ok(())
}

/// Verifies that a device-mapper device is the mapped one of this uuid, over this device alone, of at most so many bytes, and not suspended.
/// It may be smaller while the volume is expanded. Pure.
fn mapping(mapped: &DmDevice, own: &str, dm_uuid: &str, most: u64) -> Result<(), Wrong> {
    let wrong = |actual: String, expected: String| Err((actual, expected));
    match mapped {
        DmDevice { uuid, .. } if uuid != dm_uuid => wrong(
            format!("a device with the dm uuid {uuid:?}"),
            format!("the dm uuid {dm_uuid}"),
        ),
        DmDevice { slaves, .. } if slaves != &[own] => wrong(
            format!("a device on [{}]", slaves.join(", ")),
            format!("a device on {own} alone"),
        ),
        DmDevice {
            suspended: true, ..
        } => wrong(
            "a suspended device: reading it would wait for `dmsetup resume`".into(),
            "one that takes IO".into(),
        ),
        DmDevice { size_bytes, .. } if *size_bytes > most => {
            let [size, most] = human_sizes([*size_bytes, most]);
            wrong(format!("a device with {size}"), format!("at most {most}"))
        }
        _ => Ok(()),
    }
}

/// Verifies that a device-mapper device is this LV, on this drive alone, not suspended, and of the right size. Pure.
fn logical_volume(
    dm_device: &DmDevice,
    drive: &DriveRef,
    dm_uuid: &str,
    wrong_size: impl Fn(u64) -> Option<[String; 2]>,
) -> Result<(), Wrong> {
    if dm_device.uuid != dm_uuid {
        return Err((
            format!("a device with the dm uuid {:?}", dm_device.uuid),
            format!("the dm uuid {dm_uuid}"),
        ));
    }
    if dm_device.slaves != [drive.kernel_name.as_str()] {
        return Err((
            format!("a device on [{}]", dm_device.slaves.join(", ")),
            format!("a device on {} alone", drive.kernel_name),
        ));
    }
    if dm_device.suspended {
        return Err((
            "a suspended device: reading it would wait for `dmsetup resume`".into(),
            "one that takes IO".into(),
        ));
    }
    if let Some([size, expected]) = wrong_size(dm_device.size_bytes) {
        return Err((
            format!("a device with {size}"),
            format!("the {expected} of its record"),
        ));
    }
    Ok(())
}

fn open_node(node: &Path, flags: i32) -> io::Result<File> {
    opening(flags).open(node)
}

fn opening(flags: i32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK | flags);
    options
}

impl Partition {
    /// Holds the device exclusively: fails with EBUSY while it is mounted or held elsewhere.
    pub fn hold(&self) -> io::Result<File> {
        open_node(&self.node, libc::O_EXCL)
    }

    /// Holds the device exclusively, for writing.
    pub fn hold_for_writing(&self) -> io::Result<File> {
        opening(libc::O_EXCL).write(true).open(&self.node)
    }

    /// Errs while the device is mounted or held elsewhere. Does not hold it afterwards: tools open it exclusively
    /// themselves.
    pub fn must_be_free(&self) -> Result<(), FsError> {
        self.hold().map(drop).map_err(|error| {
            io_error(
                "taking exclusively (is it mounted or held elsewhere?)",
                &self.node,
                error,
            )
        })
    }

    /// Drops the device's pages from the page cache, except those not written back. XFS bypasses that cache, and its tools
    /// read and write through it.
    pub fn drop_cache(&self) {
        // Only advice; Linux 6.2 does it by itself at the unmount.
        let _ = posix_fadvise(&self.file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    }

    /// Reads the first [HEAD_BYTES] of the device.
    pub fn head(&self) -> io::Result<Vec<u8>> {
        let mut head = vec![0; HEAD_BYTES];
        self.file.read_exact_at(&mut head, 0)?;
        Ok(head)
    }

    /// Writes all data back and flushes the drive's cache.
    pub fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Flushes the cache of the drive that a mount was of; does nothing if its device is gone.
pub fn flush_source(entry: &MountEntry) -> io::Result<()> {
    if source_number(entry).is_none() {
        return Ok(());
    }
    open_node(&std::fs::canonicalize(&entry.source)?, 0)?.sync_all()
}

/// Returns the kernel name of the device that a mount is of; None if sysfs does not have it.
pub fn kernel_name(entry: &MountEntry) -> Option<String> {
    let (major, minor) = match entry.dev.0 {
        0 => source_number(entry)?,
        _ => entry.dev,
    };
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(device.file_name()?.to_str()?.to_owned())
}

/// Returns the device number of a mount's source; None if that is no device, or one that no longer exists.
pub fn source_number(entry: &MountEntry) -> Option<(u32, u32)> {
    let name = entry.source.strip_prefix("/dev").ok()?.to_str()?;
    match name.strip_prefix("mapper/") {
        // udevd gives btrfs the name below /dev/mapper, whatever it was mounted by; sysfs has device-mapper's own.
        Some(name) => dm::number_of(Path::new("/sys"), &entry.source, name),
        None => number(name),
    }
}

/// Returns the error for a path in a request that cannot be used.
pub fn path_error(what: &str, path: &Path, source: Cause) -> FsError {
    FsError::Path {
        what: what.to_owned(),
        path: path.display().to_string(),
        source,
    }
}

/// Returns [`path_error`] for a target.
pub fn target_error(what: &str, path: &Path, error: TargetError) -> FsError {
    let source = match error {
        TargetError::Occupied(why) => Cause::text(why),
        TargetError::Io(error) => Cause::from(error),
    };
    path_error(what, path, source)
}

/// Returns the error of a failed system call.
pub fn io_error(what: &str, path: &Path, error: io::Error) -> FsError {
    FsError::Io {
        what: what.to_owned(),
        path: path.display().to_string(),
        source: Cause::from(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveId, RecordState, samples};

    #[test]
    fn a_device_that_is_gone_is_not_here_whichever_way_it_is_opened() {
        let device = Device {
            name: "no-such-device".into(),
            dev: (253, 3),
            dm_uuid: Some("LVM-a".into()),
        };
        let (drive, record) = (DriveRef::from(&samples::facts("sda")), RecordState::Block);
        let placed = Placed {
            device: Some(device.name.clone()),
            dev: Some(device.dev),
            dm_uuid: device.dm_uuid.clone(),
            ..samples::placed(7, record)
        };
        for result in [hold(&drive, &placed).map(drop), bytes(&device).map(drop)] {
            assert!(matches!(result, Err(FsError::NotHere { .. })), "{result:?}");
        }
    }

    #[test]
    fn an_lv_is_identified_by_uuid_drive_and_size_and_must_take_io() {
        let drive = DriveRef {
            id: DriveId("serial-x".into()),
            kernel_name: "sda".into(),
            major: 8,
            minor: 0,
            diskseq: 1,
            size_bytes: 1 << 30,
        };
        let good = DmDevice {
            kernel_name: "dm-3".into(),
            dev: (253, 3),
            name: "vg-lv".into(),
            uuid: "LVM-aabb".into(),
            size_bytes: 3 << 20,
            slaves: vec!["sda".into()],
            orphaned: false,
            suspended: false,
        };
        let check = |change: fn(&mut DmDevice)| {
            let mut device = good.clone();
            change(&mut device);
            let wrong_size = |bytes: u64| (bytes != 3 << 20).then(|| human_sizes([bytes, 3 << 20]));
            logical_volume(&device, &drive, "LVM-aabb", wrong_size)
                .err()
                .map(|(actual, _)| actual)
                .unwrap_or_default()
        };
        assert_eq!(check(|_| {}), "");
        assert!(check(|device| device.uuid.push_str("-real")).contains("LVM-aabb-real"));
        assert!(check(|device| device.uuid.clear()).contains("dm uuid"));
        assert!(check(|device| device.slaves = vec!["sdb".into()]).contains("[sdb]"));
        assert!(check(|device| device.slaves.push("sdb".into())).contains("[sda, sdb]"));
        assert!(check(|device| device.slaves.clear()).contains("[]"));
        assert!(check(|device| device.suspended = true).contains("suspended"));
        assert!(check(|device| device.size_bytes += 512).contains("with 3.0004 MiB"));
        assert!(check(|device| device.size_bytes += 1 << 20).contains("with 4 MiB"));
    }
}
