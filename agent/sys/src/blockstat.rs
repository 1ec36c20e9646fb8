//! Counters that the kernel keeps of block devices and filesystems, in sysfs. Reading them never waits for a drive
//! (linux.md, "Hung disk": all of /sys/block/X returns at once).

use std::{io, path::PathBuf, time::Duration};

use super::{attribute, offload::offload};

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
    /// The time that all of them took together.
    pub wait_ms: u64,
}

/// What the kernel has counted since the device appeared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub reads: Requests,
    pub writes: Requests,
    pub discards: u64,
    pub flushes: u64,
    /// Requests that are with the drive.
    pub in_flight: u64,
    /// The time with at least one request at the drive.
    pub busy_ms: u64,
}

/// Sectors in these counters have this many bytes, whatever the drive's own have.
const SECTOR: u64 = 512;

/// The counters of the device of this kernel name; None when there is none.
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

/// Documentation/block/stat.rst: each of reads (0) and writes (4) has requests, merges, sectors, milliseconds; then in flight 8,
/// busy milliseconds 9; discards 11 (4.19), flushes 15 (5.5). Err: too few fields.
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
    match attribute::read_text(&path) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a kernel 4.15, which counts neither discards nor flushes, and of one of 6.1.
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
