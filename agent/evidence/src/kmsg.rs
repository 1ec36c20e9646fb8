//! The kernel log's words about drives and filesystems. Pure.
//!
//! The wordings are those of Linux 5.10 to 6.12 (block/blk-core.c, fs/buffer.c, drivers/nvme/host, drivers/scsi/sd.c; those of
//! filesystems are in `fs/src/kind`). A line that is not understood is no evidence of anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use drivebay_fs::kind::{self, LogEvent, between};

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
