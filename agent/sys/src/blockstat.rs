//! Counters that the kernel keeps of block devices and filesystems, in sysfs. Reading them never waits for a drive
//! (linux.md, "Hung disk": all of /sys/block/X returns at once).

use std::{io, path::PathBuf, time::Duration};

use super::{attribute, offload::offload};

/// I/O activity of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// Requests that the drive has not completed yet.
    pub in_flight: u64,
    /// Requests that completed since the device appeared, with or without an error.
    pub completed: u64,
}

/// Returns the activity of the device of this kernel name; None if there is none.
pub fn activity(name: &str) -> io::Result<Option<Activity>> {
    let counted = counters(name)?;
    Ok(counted.map(|counted| Activity {
        in_flight: counted.in_flight,
        completed: counted.reads.requests
            + counted.writes.requests
            + counted.discards
            + counted.flushes,
    }))
}

/// Completed requests of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    pub requests: u64,
    pub bytes: u64,
    /// Sum of the times of all these requests.
    pub wait_ms: u64,
}

/// I/O counters since the device appeared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub reads: Requests,
    pub writes: Requests,
    pub discards: u64,
    pub flushes: u64,
    /// Requests that the drive has not completed yet.
    pub in_flight: u64,
    /// Time with at least one request in flight.
    pub busy_ms: u64,
}

/// Bytes of a sector in these counters, for every drive.
const SECTOR: u64 = 512;

/// Returns the counters of the device of this kernel name; None if there is none.
pub fn counters(name: &str) -> io::Result<Option<Counted>> {
    let Some(text) = read("/sys/class/block", name, "stat")? else {
        return Ok(None);
    };
    match parse(&text) {
        Ok(counted) => Ok(Some(counted)),
        Err(fields) => Err(io::Error::other(format!(
            "/sys/class/block/{name}/stat has {fields} fields"
        ))),
    }
}

/// Parses `stat` (Documentation/block/stat.rst): each of reads (0) and writes (4) has requests, merges, sectors, milliseconds; then in
/// flight 8, busy milliseconds 9; discards 11 (4.19), flushes 15 (5.5). Err: the number of fields, if fewer than 11.
fn parse(text: &str) -> Result<Counted, usize> {
    let fields: Vec<u64> = text
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    if fields.len() < 11 {
        return Err(fields.len());
    }
    let field = |index: usize| fields.get(index).copied().unwrap_or(0);
    let requests = |first: usize| Requests {
        requests: field(first),
        bytes: field(first + 2).saturating_mul(SECTOR),
        wait_ms: field(first + 3),
    };
    Ok(Counted {
        reads: requests(0),
        writes: requests(4),
        discards: field(11),
        flushes: field(15),
        in_flight: field(8),
        busy_ms: field(9),
    })
}

/// Returns the number of errors that ext4 has recorded in the superblock of this device's filesystem; None if no ext4 is mounted from it.
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
    match attribute::read_text(&path) {
        Ok(text) => Ok(Some(text)),
        // The device was removed after it was listed.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(nix::libc::ENODEV) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
/// Limit for reading sysfs, which returns at once unless the device is unresponsive.
pub const SYSFS_DEADLINE: Duration = Duration::from_secs(5);

/// Returns the requests that a device has completed; None if there is no such device or reading failed, which is logged.
pub async fn completed(name: String) -> Option<u64> {
    let result = offload("activity", SYSFS_DEADLINE, move || activity(&name)).await;
    match result.and_then(|result| result) {
        Ok(activity) => activity.map(|activity| activity.completed),
        Err(error) => {
            tracing::warn!(%error, "cannot read drive I/O statistics");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of kernel 4.15, which counts neither discards nor flushes, and of 6.1.
    #[test]
    fn the_fields_of_old_and_new_kernels_are_where_they_are() {
        let old = " 100 1 800 50 200 2 1600 70 3 90 120\n";
        let reads = Requests {
            requests: 100,
            bytes: 800 * 512,
            wait_ms: 50,
        };
        let writes = Requests {
            requests: 200,
            bytes: 1600 * 512,
            wait_ms: 70,
        };
        let counted = Counted {
            reads,
            writes,
            in_flight: 3,
            busy_ms: 90,
            ..Counted::default()
        };
        assert_eq!(parse(old), Ok(counted));
        let new = "100 1 800 50 200 2 1600 70 3 90 120 7 0 56 8 9 10";
        let counted = Counted {
            discards: 7,
            flushes: 9,
            ..counted
        };
        assert_eq!(parse(new), Ok(counted));
        assert_eq!(parse("1 2 3"), Err(3));
    }
}
