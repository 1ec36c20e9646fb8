//! Device-mapper's control node: its ioctls, which touch no drive.

use std::{fs, io, os::fd::AsRawFd, path::Path};

use crate::busy;

/// `struct dm_ioctl` of linux/dm-ioctl.h.
#[repr(C)]
pub(super) struct DmIoctl {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    pub(super) target_count: u32,
    open_count: i32,
    pub(super) flags: u32,
    pub(super) event_nr: u32,
    padding: u32,
    dev: u64,
    pub(super) name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
    /// Buffer for a table, and for the kernel's reply.
    pub(super) answer: [u8; 512],
}

impl DmIoctl {
    /// Returns a request about the device of this device-mapper uuid.
    pub(super) fn about(uuid: &str, flags: u32) -> io::Result<Self> {
        let mut arg = Self::new();
        put(uuid, &mut arg.uuid)?;
        arg.flags = flags;
        Ok(arg)
    }

    fn new() -> Self {
        Self {
            version: [4, 0, 0],
            data_size: size_of::<Self>() as u32,
            data_start: std::mem::offset_of!(Self, answer) as u32,
            target_count: 0,
            open_count: 0,
            flags: 0,
            event_nr: 0,
            padding: 0,
            dev: 0,
            name: [0; 128],
            uuid: [0; 129],
            data: [0; 7],
            answer: [0; 512],
        }
    }
}

impl Drop for DmIoctl {
    /// A table may have a key.
    fn drop(&mut self) {
        self.answer.fill(0);
        std::hint::black_box(&self.answer);
    }
}

/// Bytes of the struct without the buffer, as encoded in the ioctl numbers.
pub(super) const HEAD: usize = std::mem::offset_of!(DmIoctl, answer);
const STATUS: libc::Ioctl = nix::request_code_readwrite!(0xfd, 7, HEAD) as libc::Ioctl;
/// DM_SUSPEND_FLAG. In a request: suspend, not resume; in a reply: the device is suspended.
pub(super) const SUSPENDED: u32 = 1 << 1;
const REMOVE: libc::Ioctl = nix::request_code_readwrite!(0xfd, 4, HEAD) as libc::Ioctl;
pub(super) const TABLE_STATUS: libc::Ioctl =
    nix::request_code_readwrite!(0xfd, 12, HEAD) as libc::Ioctl;
/// DM_NOFLUSH_FLAG: returns the status without writing back first; a table is swapped without waiting for queued I/O.
pub(super) const NO_FLUSH: u32 = 1 << 11;
const TARGET_VERSION: libc::Ioctl = nix::request_code_readwrite!(0xfd, 17, HEAD) as libc::Ioctl;

const CONTROL: &str = "/dev/mapper/control";

/// Opens the control node, which loads dm_mod if it is a module.
pub(super) fn open_control() -> io::Result<fs::File> {
    open(Path::new(CONTROL))
}

fn open(control: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().read(true).write(true).open(control)
}

/// Opens the control node; None if the kernel has no device-mapper, and so no such device: the node or its driver is missing (for example a
/// kernel that was upgraded, whose modules are deleted), and sysfs has no device-mapper either.
///
/// # Errors
/// The kernel has device-mapper, and the node cannot be opened.
fn control(sys: &Path, node: &Path) -> io::Result<Option<fs::File>> {
    let error = match open(node) {
        Ok(control) => return Ok(Some(control)),
        Err(error) => error,
    };
    let no_driver = error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO));
    if no_driver && !sys.join("class/misc/device-mapper").try_exists()? {
        return Ok(None);
    }
    Err(io::Error::other(format!(
        "cannot open {}: {error}; the agent needs device-mapper: load its module (modprobe dm_mod, after a kernel upgrade reboot), and give the agent the device",
        node.display()
    )))
}

pub(super) fn send(control: &fs::File, request: libc::Ioctl, arg: &mut DmIoctl) -> io::Result<()> {
    // SAFETY: the struct is laid out as the kernel's, says its own size, and outlives the call.
    if unsafe { libc::ioctl(control.as_raw_fd(), request, std::ptr::from_mut(arg)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends a request with a table, which may have a key and is erased from memory afterwards. `arg`: the request without it.
pub(super) fn send_table(
    control: &fs::File,
    request: libc::Ioctl,
    mut arg: DmIoctl,
    mut table: Vec<u8>,
) -> io::Result<()> {
    let size = HEAD + table.len();
    arg.data_size = u32::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Of words, so that the struct and the table in it are aligned.
    let mut room = vec![0_u64; size.div_ceil(size_of::<u64>())];
    let start = room.as_mut_ptr().cast::<u8>();
    // SAFETY: `room` has `size` bytes, the head of the struct the first `HEAD` of them.
    let sent = unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(&arg).cast(), start, HEAD);
        std::ptr::copy_nonoverlapping(table.as_ptr(), start.add(HEAD), table.len());
        libc::ioctl(control.as_raw_fd(), request, start)
    };
    let error = io::Error::last_os_error();
    room.fill(0);
    table.fill(0);
    std::hint::black_box((&room, &table));
    match sent < 0 {
        true => Err(error),
        false => Ok(()),
    }
}

/// Status of a device as device-mapper reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmStatus {
    pub kernel_name: String,
    pub dev: (u32, u32),
    pub name: String,
    pub uuid: String,
    pub suspended: bool,
}

/// Returns the devices of these uuids; missing ones are left out. They are looked up by uuid, so that the number of other devices does not
/// matter; none of a device's own locks is taken.
pub(super) fn named<'a>(
    sys: &Path,
    uuids: impl Iterator<Item = &'a str>,
) -> io::Result<Vec<DmStatus>> {
    let mut uuids = uuids.peekable();
    if uuids.peek().is_none() {
        return Ok(Vec::new());
    }
    let Some(control) = control(sys, Path::new(CONTROL))? else {
        return Ok(Vec::new());
    };
    let mut statuses = Vec::new();
    for uuid in uuids {
        statuses.extend(status(&control, uuid)?);
    }
    Ok(statuses)
}

/// Returns the status of the device of this uuid; None if there is none.
pub(super) fn status(control: &fs::File, uuid: &str) -> io::Result<Option<DmStatus>> {
    let Some(status) = of_uuid(control, STATUS, uuid)? else {
        return Ok(None);
    };
    let name = status.name.split(|byte| *byte == 0).next();
    let minor = libc::minor(status.dev);
    Ok(Some(DmStatus {
        kernel_name: format!("dm-{minor}"),
        dev: (libc::major(status.dev), minor),
        name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
        uuid: uuid.to_owned(),
        suspended: status.flags & SUSPENDED != 0,
    }))
}

/// Sends a request about the device of this uuid, and returns the reply; None if there is none.
fn of_uuid(control: &fs::File, request: libc::Ioctl, uuid: &str) -> io::Result<Option<DmIoctl>> {
    let mut arg = DmIoctl::about(uuid, 0)?;
    match send(control, request, &mut arg) {
        Ok(()) => Ok(Some(arg)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn put(text: &str, field: &mut [u8]) -> io::Result<()> {
    // The last byte stays NUL.
    let room = field.len() - 1;
    match field
        .get_mut(..text.len())
        .filter(|_| text.len() <= room && !text.contains('\0'))
    {
        Some(room) => room.copy_from_slice(text.as_bytes()),
        None => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(())
}

/// True if the kernel has this target. The request loads its module (Linux 5.6).
pub fn has_target(name: &str) -> io::Result<bool> {
    let mut arg = DmIoctl::new();
    put(name, &mut arg.name)?;
    match send(&open_control()?, TARGET_VERSION, &mut arg) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if the device of this device-mapper uuid is open; false if there is none.
pub fn is_open(uuid: &str) -> io::Result<bool> {
    let status = of_uuid(&open_control()?, STATUS, uuid)?;
    Ok(status.is_some_and(|status| status.open_count > 0))
}

/// State of a snapshot as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotStatus {
    /// The snapshot holds the origin's earlier content.
    Valid {
        /// Used bytes of its COW store, including metadata.
        used_bytes: u64,
        /// Size of its COW store.
        total_bytes: u64,
    },
    /// The COW store is full or could not be written: the snapshot's content is lost.
    Lost,
}

/// Returns the status of the snapshot of this device-mapper uuid; None if there is none. Reads no drive, but may wait for one: the kernel
/// takes the snapshot's lock.
///
/// # Errors
/// InvalidData: the device is no snapshot, or its status is unknown.
pub fn snapshot_status(uuid: &str) -> io::Result<Option<SnapshotStatus>> {
    let mut arg = DmIoctl::about(uuid, NO_FLUSH)?;
    match send(&open_control()?, TABLE_STATUS, &mut arg) {
        Ok(()) => parse_snapshot(&arg.answer).map(Some).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "it is no snapshot, or has no status that is known",
            )
        }),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses `struct dm_target_spec`, whose last 16 bytes name the target, and the status that follows as text, in sectors of 512 bytes. None:
/// it is no snapshot, or the status is unknown.
fn parse_snapshot(answer: &[u8]) -> Option<SnapshotStatus> {
    let text = |from: usize| {
        let bytes = answer.get(from..)?.split(|byte| *byte == 0).next()?;
        std::str::from_utf8(bytes).ok()
    };
    if text(24)? != "snapshot" {
        return None;
    }
    match text(40)?.trim() {
        "Invalid" | "Overflow" | "Merge failed" => Some(SnapshotStatus::Lost),
        numbers => {
            let (used, total) = numbers.split(' ').next()?.split_once('/')?;
            Some(SnapshotStatus::Valid {
                used_bytes: used.parse::<u64>().ok()?.checked_mul(512)?,
                total_bytes: total.parse::<u64>().ok()?.checked_mul(512)?,
            })
        }
    }
}

/// Removes the device of this device-mapper uuid from the kernel; false if there is none. EBUSY if it stays open for `busy::PATIENCE`.
pub(super) fn remove(uuid: &str) -> io::Result<bool> {
    busy::retry(busy::PATIENCE, || {
        let removed = of_uuid(&open_control()?, REMOVE, uuid)?;
        Ok(removed.is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes: one whose driver no kernel has, and one that is no device.
    #[test]
    fn a_kernel_without_device_mapper_has_no_devices_and_one_that_cannot_be_queried_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (sys, node) = (dir.path().join("sys"), dir.path().join("control"));
        assert!(control(&sys, &node).unwrap().is_none());
        let made = nix::sys::stat::mknod(
            &node,
            nix::sys::stat::SFlag::S_IFCHR,
            nix::sys::stat::Mode::from_bits_truncate(0o600),
            nix::sys::stat::makedev(10, 254),
        );
        let driverless = made.is_ok();
        if driverless {
            // Where opening devices is forbidden, the error is another one.
            match open(&node).map(drop).map_err(|error| error.raw_os_error()) {
                Err(Some(libc::ENODEV | libc::ENXIO)) => {
                    assert!(control(&sys, &node).unwrap().is_none());
                }
                _ => assert!(control(&sys, &node).is_err()),
            }
        }
        fs::create_dir_all(sys.join("class/misc/device-mapper")).unwrap();
        let error = control(&sys, &node).unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("modprobe dm_mod"), "{error}");
    }

    #[test]
    fn a_snapshots_status_is_read_as_the_kernel_writes_it() {
        let answer = |target: &str, status: &str| {
            let mut answer = vec![0; 512];
            answer[24..24 + target.len()].copy_from_slice(target.as_bytes());
            answer[40..40 + status.len()].copy_from_slice(status.as_bytes());
            parse_snapshot(&answer)
        };
        let valid = SnapshotStatus::Valid {
            used_bytes: 384 * 512,
            total_bytes: 20480 * 512,
        };
        assert_eq!(answer("snapshot", "384/20480 16"), Some(valid));
        for lost in ["Invalid", "Overflow", "Merge failed"] {
            assert_eq!(answer("snapshot", lost), Some(SnapshotStatus::Lost));
        }
        assert_eq!(answer("linear", ""), None);
        assert_eq!(answer("snapshot", "Unknown"), None);
        assert_eq!(parse_snapshot(&[0; 8]), None);
    }

    #[test]
    fn the_struct_is_the_kernels_and_long_names_are_refused() {
        assert_eq!(HEAD, 312);
        let mut field = [0; 4];
        assert!(put("abc", &mut field).is_ok());
        assert_eq!(&field, b"abc\0");
        assert!(put("abcd", &mut field).is_err());
        assert!(put("a\0b", &mut field).is_err());
    }
}
