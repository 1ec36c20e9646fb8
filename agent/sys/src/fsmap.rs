//! FS_IOC_GETFSMAP: the use of a device's blocks by a mounted filesystem (XFS, ext4).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use drivebay_model::Extent;

/// Records that one call returns at most.
const RECORDS: usize = 1024;
/// Calls for one range at most.
const CALLS: usize = 16;

/// FMR_OF_SPECIAL_OWNER in `Record::flags`: `Record::owner` is a code such as free space or metadata, not an inode.
pub const SPECIAL_OWNER: u32 = 0x10;
/// FMR_OF_LAST in `Record::flags`: no further record follows.
const LAST: u32 = 0x20;

/// `struct fsmap` of linux/fsmap.h. Offsets and lengths in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    pub device: u32,
    pub flags: u32,
    pub physical: u64,
    pub owner: u64,
    pub offset: u64,
    pub length: u64,
    reserved: [u64; 3],
}

impl Record {
    /// Returns a record of an owner that was not read from the kernel.
    pub fn new(extent: Extent, owner: u64, flags: u32) -> Self {
        Self {
            flags,
            physical: extent.start,
            owner,
            length: extent.len,
            ..Self::default()
        }
    }
}

/// `struct fsmap_head` with its records.
#[repr(C)]
struct Head {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [Record; 2],
    records: [Record; RECORDS],
}

// The ioctl's number encodes the size of the head without records.
nix::ioctl_readwrite_bad!(getfsmap, nix::request_code_readwrite!(b'X', 59, 192), Head);

/// Returns the uses of a range of a mounted filesystem's device. `dev`: the device's number. If the result needs more than `CALLS` calls,
/// or a later call fails, it is cut off.
pub fn records(mounted: BorrowedFd<'_>, dev: (u32, u32), range: Extent) -> io::Result<Vec<Record>> {
    // new_encode_dev of the kernel.
    let device = (dev.1 & 0xff) | (dev.0 << 8) | ((dev.1 & !0xff) << 12);
    let mut all: Vec<Record> = Vec::new();
    let mut low = Record {
        device,
        physical: range.start,
        ..Record::default()
    };
    for _ in 0..CALLS {
        let mut head = Box::new(Head {
            iflags: 0,
            oflags: 0,
            count: RECORDS as u32,
            entries: 0,
            reserved: [0; 6],
            keys: [
                low,
                Record {
                    device,
                    flags: u32::MAX,
                    physical: range.end().saturating_sub(1),
                    owner: u64::MAX,
                    offset: u64::MAX,
                    ..Record::default()
                },
            ],
            records: [Record::default(); RECORDS],
        });
        // SAFETY: the struct is laid out as the kernel's, says how many records it has room for, and outlives the call.
        match unsafe { getfsmap(mounted.as_raw_fd(), &raw mut *head) } {
            Ok(_) => {}
            Err(error) if all.is_empty() => return Err(error.into()),
            Err(_) => break,
        }
        let count = head.entries.min(head.count) as usize;
        let entries = head.records.get(..count).unwrap_or_default();
        all.extend_from_slice(entries);
        let Some(last) = entries.last() else { break };
        if last.flags & LAST != 0 || entries.len() < RECORDS {
            break;
        }
        // The last record, with its length, is the key of the next call: files that share its blocks follow too.
        low = *last;
    }
    Ok(all)
}
