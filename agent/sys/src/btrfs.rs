//! btrfs ioctls.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, BorrowedFd},
    path::Path,
};

nix::ioctl_none!(
    /// BTRFS_IOC_SCRUB_CANCEL: ends the filesystem's scrub; ENOTCONN if none runs.
    scrub_cancel,
    0x94,
    28
);
nix::ioctl_readwrite!(tree_search, 0x94, 17, SearchArgs);
nix::ioctl_readwrite!(ino_lookup, 0x94, 18, LookupArgs);
nix::ioctl_read!(fs_info, 0x94, 31, InfoArgs);
nix::ioctl_readwrite!(logical_ino_v2, 0x94, 59, LogicalArgs);

/// Items that one `search` returns at most, over all of its calls.
const MOST_ITEMS: usize = 200_000;
/// Bytes for the result of logical_ino_v2: 2,700 references.
const REFERENCES: usize = 64 << 10;

/// Cancels the scrub of the filesystem mounted at `at`, and waits until it has ended, which takes as long as the requests in flight. False
/// if none runs.
pub fn cancel_scrub(at: &Path) -> io::Result<bool> {
    let file = File::open(at)?;
    // SAFETY: an ioctl without an argument, on a descriptor that is open.
    match unsafe { scrub_cancel(file.as_raw_fd()) } {
        Ok(_) => Ok(true),
        Err(nix::errno::Errno::ENOTCONN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// `struct btrfs_ioctl_search_args`: a range of keys, and a buffer for the items that BTRFS_IOC_TREE_SEARCH returns.
#[repr(C)]
pub struct SearchArgs {
    tree: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    items: u32,
    unused: u32,
    further: [u64; 4],
    buffer: [u8; 3992],
}

/// `struct btrfs_ioctl_ino_lookup_args`: a tree and an inode, and a buffer for the path that BTRFS_IOC_INO_LOOKUP returns, ended by a NUL.
#[repr(C)]
pub struct LookupArgs {
    tree: u64,
    objectid: u64,
    name: [u8; 4080],
}

/// `struct btrfs_ioctl_fs_info_args`, which BTRFS_IOC_FS_INFO fills in; it reads nothing from it.
#[repr(C)]
pub struct InfoArgs {
    max_id: u64,
    devices: u64,
    fsid: [u8; 16],
    node_size: u32,
    sector_size: u32,
    rest: [u8; 984],
}

/// `struct btrfs_ioctl_logical_ino_args`: a logical address, and address and size of the buffer to which BTRFS_IOC_LOGICAL_INO_V2 writes
/// its answer.
#[repr(C)]
pub struct LogicalArgs {
    logical: u64,
    size: u64,
    reserved: [u64; 3],
    flags: u64,
    inodes: u64,
}

/// Properties of a mounted filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    pub devices: u64,
    pub node_size: u32,
    pub sector_size: u32,
}

/// Returns the number of devices and the node and sector size, bytes, of a mounted filesystem (BTRFS_IOC_FS_INFO).
pub fn info(mounted: BorrowedFd<'_>) -> io::Result<Info> {
    let mut args = InfoArgs {
        max_id: 0,
        devices: 0,
        fsid: [0; 16],
        node_size: 0,
        sector_size: 0,
        rest: [0; 984],
    };
    // SAFETY: the struct is as large as the kernel's and outlives the call.
    unsafe { fs_info(mounted.as_raw_fd(), &raw mut args) }?;
    Ok(Info {
        devices: args.devices,
        node_size: args.node_size,
        sector_size: args.sector_size,
    })
}

/// Key of a tree item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub objectid: u64,
    pub kind: u32,
    pub offset: u64,
}

impl Key {
    /// Returns the next key; None after the last one.
    fn after(self) -> Option<Self> {
        let Self {
            objectid,
            kind,
            offset,
        } = self;
        if let Some(offset) = offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        // Item types have one byte.
        if kind < 255 {
            return Some(Self {
                kind: kind + 1,
                offset: 0,
                objectid,
            });
        }
        objectid.checked_add(1).map(|objectid| Self {
            objectid,
            kind: 0,
            offset: 0,
        })
    }
}

/// Passes the items of a tree from one key to another, in order, to `take`, until it returns false (BTRFS_IOC_TREE_SEARCH).
pub fn search(
    mounted: BorrowedFd<'_>,
    tree: u64,
    from: Key,
    to: Key,
    mut take: impl FnMut(Key, &[u8]) -> bool,
) -> io::Result<()> {
    let mut at = from;
    let mut count = 0;
    while count < MOST_ITEMS {
        let mut args = SearchArgs {
            tree,
            min_objectid: at.objectid,
            max_objectid: to.objectid,
            min_offset: at.offset,
            max_offset: to.offset,
            min_transid: 0,
            max_transid: u64::MAX,
            min_type: at.kind,
            max_type: to.kind,
            items: 4096,
            unused: 0,
            further: [0; 4],
            buffer: [0; 3992],
        };
        // SAFETY: the struct is laid out as the kernel's and outlives the call.
        unsafe { tree_search(mounted.as_raw_fd(), &raw mut args) }?;
        if args.items == 0 {
            return Ok(());
        }
        let mut rest = &args.buffer[..];
        for _ in 0..args.items {
            let Some((key, item, behind)) = item(rest) else {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            };
            count += 1;
            if !take(key, item) {
                return Ok(());
            }
            rest = behind;
            match key.after() {
                Some(next) if next <= to => at = next,
                _ => return Ok(()),
            }
        }
    }
    Err(io::Error::other("the tree has too many items"))
}

/// Parses the first item of a buffer (`struct btrfs_ioctl_search_header` and its bytes): key, bytes, and the rest of the buffer. None if it
/// is cut off.
fn item(buffer: &[u8]) -> Option<(Key, &[u8], &[u8])> {
    let number = |at: usize| {
        let bytes = buffer.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let small = |at: usize| {
        let bytes = buffer.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let key = Key {
        objectid: number(8)?,
        offset: number(16)?,
        kind: small(24)?,
    };
    let len = small(28)? as usize;
    let behind = buffer.get(32..)?;
    Some((key, behind.get(..len)?, behind.get(len..)?))
}

/// A file that refers to a block: its inode, and the tree of its subvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub inode: u64,
    pub tree: u64,
}

/// Returns the files that refer to a logical address, and the number of references that did not fit (BTRFS_IOC_LOGICAL_INO_V2). None if
/// nothing is allocated there. InvalidInput if the block is a tree's.
pub fn references(
    mounted: BorrowedFd<'_>,
    logical: u64,
) -> io::Result<Option<(Vec<Reference>, u32)>> {
    let mut answer = vec![0u64; REFERENCES / 8];
    let mut args = LogicalArgs {
        logical,
        size: REFERENCES as u64,
        reserved: [0; 3],
        flags: 0,
        inodes: answer.as_mut_ptr() as u64,
    };
    // SAFETY: the struct is laid out as the kernel's and holds a buffer's address and size; both outlive the call.
    match unsafe { logical_ino_v2(mounted.as_raw_fd(), &raw mut args) } {
        Ok(_) => {}
        Err(nix::errno::Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    // struct btrfs_data_container: bytes_left, bytes_missing, elem_cnt, elem_missed; then inode, offset, root.
    let counts = answer.get(1).copied().unwrap_or(0).to_ne_bytes();
    let count = |at: usize| {
        let bytes = counts.get(at..at + 4).and_then(|four| four.try_into().ok());
        u32::from_ne_bytes(bytes.unwrap_or_default())
    };
    let entries = answer.get(2..).unwrap_or_default();
    let entries = entries.get(..count(0) as usize).unwrap_or_default();
    let mut files: Vec<Reference> = entries
        .chunks_exact(3)
        .map(|three| Reference {
            inode: three[0],
            tree: three[2],
        })
        .collect();
    files.sort_unstable();
    files.dedup();
    Ok(Some((files, count(4) / 3)))
}

/// Returns one path of an inode, relative to the root of its subvolume, without a slash at either end (BTRFS_IOC_INO_LOOKUP). None if it
/// has no path.
pub fn path(mounted: BorrowedFd<'_>, file: Reference) -> io::Result<Option<Vec<u8>>> {
    let mut args = Box::new(LookupArgs {
        tree: file.tree,
        objectid: file.inode,
        name: [0; 4080],
    });
    // SAFETY: the struct is laid out as the kernel's and outlives the call.
    match unsafe { ino_lookup(mounted.as_raw_fd(), &raw mut *args) } {
        Ok(_) => {}
        Err(nix::errno::Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let name: &[u8] = &args.name;
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    let name = name.get(..end).unwrap_or_default();
    Ok(Some(name.strip_suffix(b"/").unwrap_or(name).to_vec()))
}
