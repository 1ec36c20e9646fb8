//! Parses kernel log messages about drives and filesystems. Pure.
//!
//! The wordings are those of Linux 5.10 to 6.12 (block/blk-core.c, fs/buffer.c, drivers/nvme/host, drivers/scsi/sd.c; those of
//! filesystems are in `fs/src/kind`). A line that is not understood is no evidence of anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use drivebay_fs::kind::{self, LogEvent, between};

/// Kind of event that the kernel reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The drive could not read or write a place on its medium.
    MediumError,
    /// A request failed for another reason.
    IoError,
    /// The kernel lost the drive's controller or link, or disabled it.
    DeviceLost,
    /// The filesystem found an inconsistency; ext4 also reports I/O errors so.
    FilesystemError,
    /// The filesystem found its structures, or data by its checksum, damaged.
    FilesystemCorrupt,
    /// The filesystem was shut down and refuses all operations.
    FilesystemShutDown,
    /// The filesystem accepts no more writes.
    FilesystemReadOnly,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub kind: Kind,
    /// Kernel name of the device: `sda`, `sda2`, `dm-3`, `nvme0n1`; or of a controller, `nvme0`.
    pub device: String,
    /// Sector of 512 bytes on that device; None if the message has none.
    pub sector: Option<u64>,
}

/// Parses one record of /dev/kmsg: `<priority>,<sequence>,<microseconds>,<flags>;<text>`, lines of properties behind it.
/// None if it is not about a drive or filesystem, or if a program wrote it (its priority has another facility than the
/// kernel's, 0).
pub fn parse(record: &str) -> Option<Report> {
    let (head, rest) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    if priority >> 3 != 0 {
        return None;
    }
    report(rest.lines().next()?)
}

/// Returns the sequence number of a record, and its time since boot.
pub fn stamp(record: &str) -> Option<(u64, Duration)> {
    let mut head = record.split_once(';')?.0.split(',').skip(1);
    let number = head.next()?.parse().ok()?;
    let micros = head.next()?.parse().ok()?;
    Some((number, Duration::from_micros(micros)))
}

fn report(text: &str) -> Option<Report> {
    block(text)
        .or_else(|| filesystem(text))
        .or_else(|| transport(text))
}

fn filesystem(text: &str) -> Option<Report> {
    kind::all().find_map(|filesystem| {
        let (event, device) = filesystem.log_event(text)?;
        let kind = match event {
            LogEvent::Error => Kind::FilesystemError,
            LogEvent::Corrupt => Kind::FilesystemCorrupt,
            LogEvent::ShutDown => Kind::FilesystemShutDown,
            LogEvent::ReadOnly => Kind::FilesystemReadOnly,
        };
        about(kind, device)
    })
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

/// Returns the device that a path belongs to: with native NVMe multipath the kernel reports the hidden path, `nvme0c1n2`,
/// for `nvme0n2`. Any other name is returned unchanged. The controller in `nvme nvme1: …` is no path.
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

fn block(text: &str) -> Option<Report> {
    // The drive does not support this request, which is no fault.
    if text.contains("operation not supported error") {
        return None;
    }
    // A drive may refuse these requests, or fail them, and still read and write as ever. The eraser itself detects blocks
    // that were not zeroed.
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
