//! Device-mapper devices: as sysfs shows them, which never touches a drive, and taking one from the kernel.

use std::{fs, io, os::fd::AsRawFd, path::Path};

use super::{busy, mountinfo::parse_dev};

/// An active device-mapper device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmDevice {
    /// Kernel name, e.g. `dm-3`.
    pub kernel_name: String,
    pub dev: (u32, u32),
    /// Its device-mapper name, e.g. `vg-lv`.
    pub name: String,
    /// Its device-mapper uuid; `LVM-` and the uuids of VG and LV without hyphens for a logical volume.
    pub uuid: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Kernel names of the devices it lies on.
    pub slaves: Vec<String>,
    /// Whether everything it lies on was taken away meanwhile: all IO to it fails, for ever.
    pub orphaned: bool,
    /// Whether IO to it waits (`dmsetup suspend`).
    pub suspended: bool,
}

/// Every active device-mapper device. One that goes away while it is read is left out.
pub fn devices(sys: &Path) -> io::Result<Vec<DmDevice>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sys.join("block"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with("dm-") {
            continue;
        }
        match read(sys, &name) {
            Ok(device) => found.push(device),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_by(|a, b| a.kernel_name.cmp(&b.kernel_name));
    Ok(found)
}

/// The device of this kernel name.
pub fn read(sys: &Path, kernel_name: &str) -> io::Result<DmDevice> {
    let base = sys.join("block").join(kernel_name);
    let text = |file: &str| {
        fs::read_to_string(base.join(file)).map(|text| text.trim_end_matches('\n').to_owned())
    };
    let invalid = |what: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has an unexpected {what}", base.display()),
        )
    };
    let mut slaves = fs::read_dir(base.join("slaves"))?
        .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<_>>>()?;
    slaves.sort();
    // The links stay until it is removed; where they lead to is gone with the drive.
    let gone = |name: &String| base.join("slaves").join(name).try_exists().map(|is| !is);
    let gone = slaves.iter().map(gone).collect::<io::Result<Vec<_>>>()?;
    let uuid = text("dm/uuid")?;
    if let [under] = slaves.as_slice()
        && under.starts_with("dm-")
        && real_of(sys, under).is_some_and(|origin| origin == uuid)
    {
        // It has a snapshot, and stands on a device of its own for as long: what counts is what that stands on.
        let real = read(sys, under)?;
        return Ok(DmDevice {
            suspended: text("dm/suspended")? == "1" || real.suspended,
            kernel_name: kernel_name.to_owned(),
            dev: parse_dev(&text("dev")?).ok_or_else(|| invalid("dev"))?,
            name: text("dm/name")?,
            uuid,
            ..real
        });
    }
    let sectors: u64 = text("size")?.parse().map_err(|_| invalid("size"))?;
    Ok(DmDevice {
        kernel_name: kernel_name.to_owned(),
        dev: parse_dev(&text("dev")?).ok_or_else(|| invalid("dev"))?,
        name: text("dm/name")?,
        uuid,
        size_bytes: sectors.saturating_mul(512),
        orphaned: !slaves.is_empty() && gone.iter().all(|gone| *gone),
        slaves,
        suspended: text("dm/suspended")? == "1",
    })
}

/// The uuid of the LV whose bytes this device holds while the LV has snapshots: LVM calls it `<uuid>-real`.
fn real_of(sys: &Path, kernel_name: &str) -> Option<String> {
    let path = sys.join("block").join(kernel_name).join("dm/uuid");
    let uuid = fs::read_to_string(path).ok()?;
    uuid.trim_end().strip_suffix("-real").map(str::to_owned)
}

/// EINVAL is what device-mapper's own attributes answer while their device is being taken away.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EINVAL))
}

/// `struct dm_ioctl` of linux/dm-ioctl.h.
#[repr(C)]
struct DmIoctl {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_nr: u32,
    padding: u32,
    dev: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
    /// Room for the kernel's answer.
    answer: [u8; 512],
}

impl DmIoctl {
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

/// Bytes of the struct that the ioctl's number holds, without the room behind it.
const HEAD: usize = std::mem::offset_of!(DmIoctl, answer);
const STATUS: libc::Ioctl = nix::request_code_readwrite!(0xfd, 7, HEAD) as libc::Ioctl;
const REMOVE: libc::Ioctl = nix::request_code_readwrite!(0xfd, 4, HEAD) as libc::Ioctl;
const TARGET_VERSION: libc::Ioctl = nix::request_code_readwrite!(0xfd, 17, HEAD) as libc::Ioctl;

fn control(request: libc::Ioctl, arg: &mut DmIoctl) -> io::Result<()> {
    // Opening the node loads dm_mod where it is a module.
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/mapper/control")?;
    // SAFETY: the struct is laid out as the kernel's, says its own size, and outlives the call.
    if unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(arg)) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn put(text: &str, field: &mut [u8]) -> io::Result<()> {
    // One byte stays zero: the end.
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

/// Whether the kernel has this target; asking loads its module (Linux 5.6).
pub fn has_target(name: &str) -> io::Result<bool> {
    let mut arg = DmIoctl::new();
    put(name, &mut arg.name)?;
    match control(TARGET_VERSION, &mut arg) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether anybody has the device of this device-mapper uuid open; false when there is none.
pub fn is_open(uuid: &str) -> io::Result<bool> {
    let mut arg = DmIoctl::new();
    put(uuid, &mut arg.uuid)?;
    match control(STATUS, &mut arg) {
        Ok(()) => Ok(arg.open_count > 0),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the device of this device-mapper uuid from the kernel. EBUSY while anybody has it open (`busy`). False when there
/// is none.
pub fn remove(uuid: &str) -> io::Result<bool> {
    busy::retry(busy::PATIENCE, || {
        let mut arg = DmIoctl::new();
        put(uuid, &mut arg.uuid)?;
        match control(REMOVE, &mut arg) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(false),
            Err(error) => Err(error),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
