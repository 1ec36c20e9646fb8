//! Device-mapper devices as sysfs shows them. Reading these files never touches a drive.

use std::{fs, io, path::Path};

use super::mountinfo::parse_dev;

/// An active device-mapper device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DmDevice {
    /// Kernel name, e.g. `dm-3`.
    pub kernel_name: String,
    /// Device number.
    pub dev: (u32, u32),
    /// Its device-mapper name, e.g. `vg-lv`.
    pub name: String,
    /// Its device-mapper uuid; `LVM-` and the uuids of VG and LV without hyphens for a logical volume.
    pub uuid: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Kernel names of the devices it lies on.
    pub slaves: Vec<String>,
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
    let sectors: u64 = text("size")?.parse().map_err(|_| invalid("size"))?;
    Ok(DmDevice {
        kernel_name: kernel_name.to_owned(),
        dev: parse_dev(&text("dev")?).ok_or_else(|| invalid("dev"))?,
        name: text("dm/name")?,
        uuid: text("dm/uuid")?,
        size_bytes: sectors.saturating_mul(512),
        slaves,
        suspended: text("dm/suspended")? == "1",
    })
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
