//! FS_IOC_GETFSMAP: what a mounted filesystem says its device's blocks are used for (XFS, ext4).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use drivebay_model::Extent;

/// Records of one call.
const RECORDS: usize = 1024;
/// Calls for one range.
const CALLS: usize = 16;

/// FMR_OF_SPECIAL_OWNER.
pub const SPECIAL_OWNER: u32 = 0x10;
/// FMR_OF_LAST.
const LAST: u32 = 0x20;

/// `struct fsmap` of linux/fsmap.h. Places and lengths in bytes.
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
    /// A record of an owner, for tests and for what is not asked.
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

/// `struct fsmap_head`, with room for records.
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

// The number has the size of the head alone.
nix::ioctl_readwrite_bad!(getfsmap, nix::request_code_readwrite!(b'X', 59, 192), Head);

/// What a range of the device of a mounted filesystem is used for. `dev`: the device's number. Of an answer that takes too many
/// calls, the beginning.
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
        let found = head.entries.min(head.count) as usize;
        let found = head.records.get(..found).unwrap_or_default();
        all.extend_from_slice(found);
        let Some(last) = found.last() else { break };
        if last.flags & LAST != 0 || found.len() < RECORDS {
            break;
        }
        // The last record, with its length, asks for what follows it: files that share its place do.
        low = *last;
    }
    Ok(all)
}
