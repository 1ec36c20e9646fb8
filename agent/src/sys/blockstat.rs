//! Counters that the kernel keeps of block devices and filesystems, in sysfs. Reading them never waits for a drive
//! (linux.md, "Hung disk": all of /sys/block/X returns at once).

use std::{fs, io, path::PathBuf, time::Duration};

use super::offload::offload;

/// What a device is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Requests that are with the drive.
    pub in_flight: u64,
    /// Requests that were completed since the device appeared, well or badly.
    pub completed: u64,
}

/// What the device of this kernel name is doing; None when there is none.
pub fn activity(name: &str) -> io::Result<Option<Activity>> {
    let text = match read("/sys/class/block", name, "stat")? {
        Some(text) => text,
        None => return Ok(None),
    };
    let fields: Vec<u64> = text
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // Documentation/block/stat.rst: reads 0, writes 4, in flight 8, discards 11 (4.19), flushes 15 (5.5).
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    if fields.len() < 11 {
        return Err(io::Error::other(format!(
            "/sys/class/block/{name}/stat has {} fields",
            fields.len()
        )));
    }
    Ok(Some(Activity {
        in_flight: field(8),
        completed: field(0) + field(4) + field(11) + field(15),
    }))
}

/// How many errors ext4 has counted on the filesystem of this device, as its superblock keeps them; None when no
/// ext4 is mounted from it.
pub fn ext4_errors(name: &str) -> io::Result<Option<u64>> {
    let Some(text) = read("/sys/fs/ext4", name, "errors_count")? else {
        return Ok(None);
    };
    text.trim().parse().map(Some).map_err(io::Error::other)
}

fn read(under: &str, name: &str, file: &str) -> io::Result<Option<String>> {
    if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
        return Ok(None);
    }
    let path: PathBuf = [under, name, file].iter().collect();
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        // Gone between its name and its counters.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(nix::libc::ENODEV) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
/// sysfs answers at once, or its device does not.
pub const SYSFS_DEADLINE: Duration = Duration::from_secs(5);

/// Requests that a device has completed; None when that is not known.
pub async fn completed(name: String) -> Option<u64> {
    let looked = offload("activity", SYSFS_DEADLINE, move || activity(&name)).await;
    match looked.and_then(|looked| looked) {
        Ok(activity) => activity.map(|activity| activity.completed),
        Err(error) => {
            tracing::warn!(%error, "cannot read drive I/O statistics");
            None
        }
    }
}
