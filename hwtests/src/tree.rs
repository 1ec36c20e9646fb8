//! What the kernel has mounted and looped: read from its tables, to clean up after a
//! shelf and to show that nothing is left behind.

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
    /// What of it is mounted.
    pub root: String,
    /// Where.
    pub point: PathBuf,
    /// Options of this mount.
    pub options: String,
    /// Filesystem type.
    pub fs_type: String,
    /// Device, or whatever the filesystem calls its source.
    pub source: String,
}

/// Everything mounted in this namespace, in the order it was mounted.
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

/// mountinfo writes space, tab, newline and backslash as three octal digits.
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

/// How often a path is mounted.
pub fn mounted_times(point: &Path) -> usize {
    mounts().iter().filter(|mount| mount.point == point).count()
}

/// A loop device with a file behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    /// Kernel name, e.g. "loop7".
    pub name: String,
    /// The file behind it, as the kernel says it.
    pub file: PathBuf,
}

/// The loop devices whose files lie below a directory.
pub fn loops_below(dir: &Path) -> Vec<LoopDevice> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let file = PathBuf::from(file.trim_end_matches('\n'));
        if file.starts_with(dir) {
            found.push(LoopDevice { name, file });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// A device's partitions, as the kernel has them: kernel names and numbers.
pub fn partitions(disk: &str) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    let dir = Path::new("/sys/block").join(disk);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let number = fs::read_to_string(entry.path().join("partition"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(number) = number {
            found.push((entry.file_name().to_string_lossy().into_owned(), number));
        }
    }
    found.sort_by_key(|(_, number)| *number);
    found
}

/// The device-mapper devices that lie on a device: kernel names.
pub fn mapped(disk: &str) -> Vec<String> {
    let holders = Path::new("/sys/block").join(disk).join("holders");
    let mut found: Vec<String> = fs::read_dir(holders)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("dm-"))
        .collect();
    found.sort();
    found
}

/// The mounts that belong to a directory: mounted below it, or from a loop device whose file is below it.
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

/// What is still mounted or looped of a directory, in words; empty when nothing is.
pub fn leftovers(dir: &Path) -> Vec<String> {
    let mounts = mounts_of(dir)
        .into_iter()
        .map(|mount| format!("{} is mounted at {}", mount.source, mount.point.display()));
    let loops = loops_below(dir)
        .into_iter()
        .map(|of| format!("/dev/{} holds {}", of.name, of.file.display()));
    mounts.chain(loops).collect()
}

/// Unmounts and detaches everything that belongs to a directory, and nothing else.
/// Answers with what could not be undone.
pub fn sweep(dir: &Path) -> Vec<String> {
    for mount in mounts_of(dir).iter().rev() {
        if nix::mount::umount2(&mount.point, MntFlags::UMOUNT_NOFOLLOW).is_err() {
            // A drive whose file was cut off under it may refuse; its data is a test's.
            let _ = nix::mount::umount2(
                &mount.point,
                MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW,
            );
        }
    }
    let all: Vec<_> = loops_below(dir).into_iter().map(|of| of.name).collect();
    // A worker or udev may still have a device open: then the loop device goes with its last user, and a partition stays.
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

/// Whether a loop device without a file has partitions: whoever gets its number next would find them on its drive.
fn is_stale(name: &str) -> bool {
    let has_file = Path::new("/sys/block").join(name).join("loop").exists();
    !has_file && !partitions(name).is_empty()
}

/// Takes from the kernel the partitions of loop devices that were detached while they were in use: left on the number, they
/// would be found on the drive that gets it next. Answers with what still has some.
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
    let said = |name: String| format!("/dev/{name} has partitions of a drive that is gone");
    stale.into_iter().map(said).collect()
}

/// Takes a loop device's partitions and LVs from the kernel, then its file. In use: it goes with its last user.
pub fn detach(name: &str) {
    release(name);
    let _ = tools::run("losetup", &["-d", &format!("/dev/{name}")]);
}

/// Takes a loop device's partitions and LVs from the kernel, as far as nobody uses them.
pub fn release(name: &str) {
    let node = format!("/dev/{name}");
    for device in mapped(name) {
        let by_name = fs::read_to_string(format!("/sys/block/{device}/dm/name"));
        let by_name = by_name.unwrap_or_default();
        let _ = tools::run("dmsetup", &["remove", "--noudevsync", by_name.trim()]);
    }
    // Partitions that were added one by one would outlive the file.
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
