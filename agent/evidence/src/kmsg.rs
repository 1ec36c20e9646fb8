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
        device: of_path(device),
        sector: None,
    })
}

/// The device that a path leads to: with native NVMe multipath the kernel names the hidden path, `nvme0c1n2`, for what concerns
/// `nvme0n2`. Any other device is its own. The controller that `nvme nvme1: …` names is no path.
fn of_path(device: &str) -> String {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = || {
        let (subsystem, rest) = device.strip_prefix("nvme")?.split_once('c')?;
        let (controller, namespace) = rest.split_once('n')?;
        let all = [subsystem, controller, namespace];
        all.into_iter()
            .all(digits)
            .then(|| format!("nvme{subsystem}n{namespace}"))
    };
    parts().unwrap_or_else(|| device.to_owned())
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
    // Whoever gives space back asks for something that a drive may refuse, or get wrong, and read and write as ever. That what was
    // to be zeroed is not, the eraser finds itself.
    let of_no_data = ["(DISCARD)", "(SECURE_ERASE)", "(WRITE_ZEROES)"];
    if of_no_data.iter().any(|operation| text.contains(operation)) {
        return None;
    }
    let medium = text.contains("critical medium error, dev ");
    let other = [
        "I/O error, dev ",
        "critical target error, dev ",
        // Before Linux 6.5, and since.
        "critical nexus error, dev ",
        "reservation conflict error, dev ",
        "timeout error, dev ",
        "device offline error, dev ",
        "recoverable transport error, dev ",
        "protection error, dev ",
        "Buffer I/O error on dev ",
        // ext4 writing data.
        "Buffer I/O error on device ",
    ];
    if !medium && !other.iter().any(|words| text.contains(words)) {
        return None;
    }
    let device = ["error on dev ", "error on device ", "error, dev "]
        .into_iter()
        .find_map(|words| between(text, words, &[',', ' ']))?;
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
        let any = |words: &[&str]| words.iter().any(|words| text.contains(words));
        return if text.contains("Remounting filesystem read-only") {
            about(Kind::FilesystemReadOnly, device)
        } else if any(&["Data will be lost", "potential data loss"]) {
            about(Kind::FilesystemError, device)
        } else {
            None
        };
    }
    // Data that a file was to have.
    if let Some(journal) = between(text, "IO errors while flushing file data on ", &['.', ' ']) {
        return about(Kind::FilesystemError, journaled(journal));
    }
    // jbd2 names its journal: the device, a hyphen, an inode number.
    let journal = between(text, "Aborting journal on device ", &['.', ' '])?;
    about(Kind::FilesystemReadOnly, journaled(journal))
}

fn journaled(journal: &str) -> &str {
    journal
        .rsplit_once('-')
        .map_or(journal, |(device, _)| device)
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
        "Corruption warning",
        // EUCLEAN and EBADMSG.
        "log mount/recovery failed: error -117",
        "log mount/recovery failed: error -74",
        "Metadata corruption detected",
        "Internal error",
        "Corruption of in-memory data",
        "Metadata CRC error detected",
    ]) {
        Kind::FilesystemCorrupt
    } else if any(&[
        "metadata I/O error",
        "log I/O error",
        "Log I/O Error",
        "Failing async write",
    ]) {
        Kind::FilesystemError
    } else {
        return None;
    };
    about(kind, device)
}

/// What btrfs says, at the level of an error, when it does not do what somebody asked for: a mount, a balance, a scrub. Nothing is
/// wrong with the filesystem; of a mount that fails because of damage other lines tell.
const REFUSED: &[&str] = &[
    "unrecognized ",
    "open_ctree failed",
    "cannot mount ",
    "cannot disable ",
    "bad mount option",
    "balance: ",
    "scrub: ",
];

fn btrfs(text: &str) -> Option<Report> {
    // `BTRFS error (device sda): …`, and of an aborted transaction `BTRFS: error (device sda) in …`.
    let (_, rest) = text.split_once("BTRFS")?;
    let (level, rest) = rest.split_once(" (device ")?;
    let level = level.trim_start_matches([':', ' ']);
    let device = rest.split([')', ' ', ':']).next()?;
    let said = rest.split_once("): ").map_or(rest, |(_, said)| said);
    if REFUSED.iter().any(|words| said.starts_with(words)) {
        return None;
    }
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
