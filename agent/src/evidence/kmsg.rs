//! The kernel log's words about drives and filesystems. Pure.
//!
//! The wordings are those of Linux 5.10 to 6.12 (block/blk-core.c, fs/buffer.c, fs/ext4/super.c, fs/jbd2, fs/xfs,
//! fs/btrfs, drivers/nvme/host, drivers/scsi/sd.c). A line that is not understood is no evidence of anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the kernel says has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The drive could not read or write a place on its medium.
    MediumError,
    /// A request failed for another reason.
    IoError,
    /// The drive's controller or link is gone, or was given up.
    DeviceLost,
    /// The filesystem found something that should not be; ext4 says this also of I/O errors.
    FilesystemError,
    /// The filesystem found its structures, or data by its checksum, damaged.
    FilesystemCorrupt,
    /// The filesystem refuses all work.
    FilesystemShutDown,
    /// The filesystem takes no more writes.
    FilesystemReadOnly,
}

/// One report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What has happened.
    pub kind: Kind,
    /// Kernel name of what it is about: `sda`, `sda2`, `dm-3`, `nvme0n1`, or a controller, `nvme0`.
    pub device: String,
    /// Sector of 512 bytes on that device, when it is told.
    pub sector: Option<u64>,
}

/// Reads one record of /dev/kmsg: `<priority>,<sequence>,<microseconds>,<flags>;<text>`, lines of properties behind it.
/// None for what is not about a drive or filesystem; also for what a program wrote there (its priority names
/// another facility than the kernel's, 0).
pub fn parse(record: &str) -> Option<Report> {
    let (head, rest) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    if priority >> 3 != 0 {
        return None;
    }
    report(rest.lines().next()?)
}

/// A record's number, and when it was said, since boot.
pub fn stamp(record: &str) -> Option<(u64, Duration)> {
    let mut head = record.split_once(';')?.0.split(',').skip(1);
    let number = head.next()?.parse().ok()?;
    let micros = head.next()?.parse().ok()?;
    Some((number, Duration::from_micros(micros)))
}

fn report(text: &str) -> Option<Report> {
    block(text)
        .or_else(|| ext4(text))
        .or_else(|| xfs(text))
        .or_else(|| btrfs(text))
        .or_else(|| transport(text))
}

fn about(kind: Kind, device: &str) -> Option<Report> {
    let named = !device.is_empty()
        && device.len() <= 32
        && device
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'!'));
    named.then(|| Report {
        kind,
        device: device.to_owned(),
        sector: None,
    })
}

/// What stands between two texts, the second being any of the characters of `until`.
fn between<'a>(text: &'a str, from: &str, until: &[char]) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    Some(rest.split(until).next().unwrap_or(rest))
}

fn block(text: &str) -> Option<Report> {
    // Of a request that no drive of this kind can do: nobody's fault.
    if text.contains("operation not supported error") {
        return None;
    }
    let medium = text.contains("critical medium error, dev ");
    let other = [
        "I/O error, dev ",
        "critical target error, dev ",
        "critical nexus error, dev ",
        "timeout error, dev ",
        "device offline error, dev ",
        "recoverable transport error, dev ",
        "protection error, dev ",
        "Buffer I/O error on dev ",
    ];
    if !medium && !other.iter().any(|words| text.contains(words)) {
        return None;
    }
    // "on dev" before ", dev", which the other does not contain.
    let words = if text.contains("error on dev ") {
        "error on dev "
    } else {
        "error, dev "
    };
    let device = between(text, words, &[',', ' '])?;
    let kind = if medium {
        Kind::MediumError
    } else {
        Kind::IoError
    };
    let sector = between(text, "sector ", &[' ', ',']).and_then(|number| number.parse().ok());
    about(kind, device).map(|report| Report { sector, ..report })
}

fn ext4(text: &str) -> Option<Report> {
    if let Some(device) = between(text, "EXT4-fs error (device ", &[')', ':']) {
        return about(Kind::FilesystemError, device);
    }
    if let Some(device) = between(text, "EXT4-fs (", &[')', ':']) {
        let read_only = text.contains("Remounting filesystem read-only");
        return read_only
            .then(|| about(Kind::FilesystemReadOnly, device))
            .flatten();
    }
    // jbd2 names its journal: the device, a hyphen, an inode number.
    let journal = between(text, "Aborting journal on device ", &['.', ' '])?;
    let device = journal
        .rsplit_once('-')
        .map_or(journal, |(device, _)| device);
    about(Kind::FilesystemReadOnly, device)
}

fn xfs(text: &str) -> Option<Report> {
    let device = between(text, "XFS (", &[')'])?;
    let any = |words: &[&str]| words.iter().any(|words| text.contains(words));
    let kind = if any(&[
        "shutting down filesystem",
        "Shutting down filesystem",
        "has been shut down",
        "xfs_do_force_shutdown",
    ]) {
        Kind::FilesystemShutDown
    } else if any(&[
        "Corruption detected",
        "Metadata corruption detected",
        "Internal error",
        "Corruption of in-memory data",
        "Metadata CRC error detected",
    ]) {
        Kind::FilesystemCorrupt
    } else if any(&["metadata I/O error", "log I/O error", "Log I/O Error"]) {
        Kind::FilesystemError
    } else {
        return None;
    };
    about(kind, device)
}

fn btrfs(text: &str) -> Option<Report> {
    let (_, rest) = text.split_once("BTRFS ")?;
    let (level, rest) = rest.split_once(" (device ")?;
    let device = rest.split([')', ' ', ':']).next()?;
    let kind = if rest.contains("forced readonly") {
        Kind::FilesystemReadOnly
    } else if [
        "csum failed",
        "corrupt leaf",
        "corrupt node",
        "checksum verify failed",
        "checksum error at",
        "parent transid verify failed",
        "bad tree block start",
    ]
    .iter()
    .any(|words| rest.contains(words))
    {
        Kind::FilesystemCorrupt
    } else if matches!(level, "error" | "critical") {
        Kind::FilesystemError
    } else {
        return None;
    };
    about(kind, device)
}

fn transport(text: &str) -> Option<Report> {
    if let Some(controller) = between(text, "nvme ", &[':']) {
        let gone = [
            "Disabling device after reset failure",
            "Removing after probe failure",
            "Device not ready; aborting reset",
        ];
        let gone = gone.iter().any(|words| text.contains(words));
        let down = text.contains("controller is down");
        return (gone || down)
            .then(|| about(Kind::DeviceLost, controller))
            .flatten();
    }
    if text.contains("rejecting I/O to offline device") {
        let device = between(text, "[", &[']'])?;
        return about(Kind::DeviceLost, device);
    }
    None
}

#[cfg(test)]
#[path = "kmsg_tests.rs"]
mod tests;
