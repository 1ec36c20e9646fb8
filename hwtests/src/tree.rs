//! Mounts and loop devices in the kernel's tables, to clean up after a shelf and to check that nothing is left behind.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::mount::MntFlags;

use crate::{tools, wait};

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// major:minor of the mounted filesystem (0:N for btrfs).
    pub dev: String,
    /// Mounted part of the filesystem.
    pub root: String,
    /// Mount point in this mount namespace, with escapes decoded.
    pub point: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// Filesystem type as the kernel names it, e.g. "ext4".
    pub fs_type: String,
    /// Device, or another name that the filesystem uses as source.
    pub source: String,
}

/// Returns all mounts in this namespace, in the order of mounting.
pub fn mounts() -> Vec<Mount> {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
        .filter_map(parse)
        .collect()
}

fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    Some(Mount {
        dev: (*left.get(2)?).to_owned(),
        root: unescape(left.get(3)?),
        point: unescape(left.get(4)?).into(),
        options: (*left.get(5)?).to_owned(),
        fs_type: (*right.first()?).to_owned(),
        source: unescape(right.get(1)?),
    })
}

/// Decodes mountinfo's escapes: space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            let code = bytes.by_ref().take(3).fold(0u32, |sum, digit| {
                sum * 8 + u32::from(digit.wrapping_sub(b'0'))
            });
            out.push(u8::try_from(code).unwrap_or(b'?'));
        } else {
            out.push(byte);
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns how often a path is a mount point.
pub fn mounted_times(point: &Path) -> usize {
    mounts().iter().filter(|mount| mount.point == point).count()
}

/// A loop device with a backing file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    /// Kernel name, e.g. "loop7".
    pub name: String,
    /// Backing file, as the kernel reports it.
    pub file: PathBuf,
}

/// Returns the loop devices with backing files below a directory.
pub fn loops_below(dir: &Path) -> Vec<LoopDevice> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let file = PathBuf::from(file.trim_end_matches('\n'));
        if file.starts_with(dir) {
            devices.push(LoopDevice { name, file });
        }
    }
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

/// Returns a device's partitions in the kernel: kernel names and numbers.
pub fn partitions(disk: &str) -> Vec<(String, u32)> {
    let mut entries = Vec::new();
    let dir = Path::new("/sys/block").join(disk);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let number = fs::read_to_string(entry.path().join("partition"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(number) = number {
            entries.push((entry.file_name().to_string_lossy().into_owned(), number));
        }
    }
    entries.sort_by_key(|(_, number)| *number);
    entries
}

/// Returns the kernel names of the device-mapper devices on a device.
pub fn mapped(disk: &str) -> Vec<String> {
    let holders = Path::new("/sys/block").join(disk).join("holders");
    let mut names: Vec<String> = fs::read_dir(holders)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("dm-"))
        .collect();
    names.sort();
    names
}

/// Returns the mounts that belong to a directory: mounted below it, or from a loop device whose file is below it.
pub fn mounts_of(dir: &Path) -> Vec<Mount> {
    let loops = loops_below(dir);
    let mapped: Vec<String> = loops
        .iter()
        .flat_map(|of| mapped(&of.name))
        .map(|name| fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap_or_default())
        .collect();
    let ours = |mount: &Mount| {
        let device = mount.source.strip_prefix("/dev/").unwrap_or("");
        mount.point.starts_with(dir)
            || mapped.iter().any(|dev| dev.trim() == mount.dev)
            || loops.iter().any(|of| {
                device
                    .strip_prefix(&of.name)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('p'))
            })
    };
    mounts().into_iter().filter(ours).collect()
}

/// Describes the mounts and loop devices of a directory; empty if there is none.
pub fn leftovers(dir: &Path) -> Vec<String> {
    let mounts = mounts_of(dir)
        .into_iter()
        .map(|mount| format!("{} is mounted at {}", mount.source, mount.point.display()));
    let loops = loops_below(dir)
        .into_iter()
        .map(|of| format!("/dev/{} holds {}", of.name, of.file.display()));
    mounts.chain(loops).collect()
}

/// Unmounts and detaches everything that belongs to a directory, and nothing else. Returns descriptions of what remains.
pub fn sweep(dir: &Path) -> Vec<String> {
    for mount in mounts_of(dir).iter().rev() {
        if nix::mount::umount2(&mount.point, MntFlags::UMOUNT_NOFOLLOW).is_err() {
            // A drive whose file was truncated may refuse; its data is a test's.
            let _ = nix::mount::umount2(
                &mount.point,
                MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW,
            );
        }
    }
    let all: Vec<_> = loops_below(dir).into_iter().map(|of| of.name).collect();
    // A worker or udev may still have a device open: the loop device is detached by its last user then, and a partition stays.
    wait::poll(Duration::from_secs(10), || {
        for device in loops_below(dir) {
            detach(&device.name);
        }
        leftovers(dir).is_empty().then_some(())
    });
    let mut left = leftovers(dir);
    left.extend(sweep_detached(&all));
    left
}

/// True if a loop device without a file has partitions, which would appear on the next drive with its number.
fn is_stale(name: &str) -> bool {
    let has_file = Path::new("/sys/block").join(name).join("loop").exists();
    !has_file && !partitions(name).is_empty()
}

/// Removes the partitions of loop devices that were detached while in use: they would appear on the next drive with the same number.
/// Returns descriptions of those that remain.
pub fn sweep_detached(names: &[String]) -> Vec<String> {
    let mut stale = Vec::new();
    wait::poll(Duration::from_secs(10), || {
        stale = names
            .iter()
            .filter(|name| is_stale(name))
            .cloned()
            .collect();
        stale.iter().for_each(|name| release(name));
        stale.is_empty().then_some(())
    });
    let describe = |name: String| format!("/dev/{name} has partitions of a drive that is gone");
    stale.into_iter().map(describe).collect()
}

/// Removes a loop device's partitions and LVs from the kernel, then detaches its file. If it is in use, its last user detaches it.
pub fn detach(name: &str) {
    release(name);
    let _ = tools::run("losetup", &["-d", &format!("/dev/{name}")]);
}

/// Removes a loop device's partitions and LVs from the kernel, unless they are in use.
pub fn release(name: &str) {
    let node = format!("/dev/{name}");
    for device in mapped(name) {
        let by_name = fs::read_to_string(format!("/sys/block/{device}/dm/name"));
        let by_name = by_name.unwrap_or_default();
        let _ = tools::run("dmsetup", &["remove", "--noudevsync", by_name.trim()]);
    }
    // Partitions that were added individually would outlive the file.
    for (_, number) in partitions(name) {
        let _ = tools::run("delpart", &[&node, &number.to_string()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountinfo_line_is_read_with_its_optional_fields_and_escapes() {
        let line =
            r"36 35 98:0 /sub /mnt/a\040b rw,noatime shared:1 master:2 - ext4 /dev/loop7p2 rw";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point, Path::new("/mnt/a b"));
        assert_eq!(mount.fs_type, "ext4");
        assert_eq!(mount.source, "/dev/loop7p2");
        assert_eq!(mount.options, "rw,noatime");
        assert_eq!(mount.root, "/sub");
        assert_eq!(mount.dev, "98:0");
    }
}
