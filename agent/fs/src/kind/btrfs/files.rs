//! Searches a btrfs on one device, through its mount or one of its own: from a place of the device to a logical address, from there to
//! files, and to their paths.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

use super::superblock;
use crate::affected::{
    name,
    work::{Work, cannot},
};
use drivebay_model::{Extent, unreadable::Holds, unreadable::NAMED_FILES};
use drivebay_sys::{
    btrfs::{self, Key, Reference},
    direct,
    path::Directory,
};

const ROOT_TREE: u64 = 1;
const EXTENT_TREE: u64 = 2;
const CHUNK_TREE: u64 = 3;
const DEVICE_TREE: u64 = 4;
const TOP_LEVEL: u64 = 5;
/// BTRFS_FIRST_CHUNK_TREE_OBJECTID: object id of the chunk items in the chunk tree.
const CHUNKS: u64 = 256;
const ROOT_BACKREF: u32 = 144;
const EXTENT_ITEM: u32 = 168;
const METADATA_ITEM: u32 = 169;
const DEVICE_EXTENT: u32 = 204;
const CHUNK_ITEM: u32 = 228;
/// BTRFS_BLOCK_GROUP_DATA, and the profiles that do not put a copy of everything on each device.
const DATA: u64 = 1;
const STRIPED: u64 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8;
/// Superblocks; nothing else is allocated in the first MiB.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK: u64 = 4096;
const RESERVED: u64 = 1 << 20;
/// Limit of nested subvolumes.
const DEPTH: usize = 16;
/// Limit of sectors per range, each of which is looked up by itself.
const MOST_SECTORS: usize = 4096;

impl Work<'_> {
    /// With a log tree, what is free is not known: the btrfs is not searched then. Without one, a read-only mount writes nothing.
    pub(crate) fn unmounted_btrfs(&mut self, pieces: &[Extent]) -> Vec<(Extent, Holds)> {
        self.context.step("reading the superblock");
        let [offset, ..] = superblock::OFFSETS;
        let read = direct::read_node(&self.partition.node, offset, superblock::BYTES);
        match read.ok().and_then(|block| superblock::has_log(&block, offset)) {
            Some(false) => {
                self.through_own_mount(pieces, &[], |work, root| work.btrfs(pieces, root))
            }
            Some(true) => self.not_searched(
                pieces,
                "the btrfs must be mounted before it is known what is free: its log is not replayed",
            ),
            None => self.not_searched(pieces, "the superblock of the btrfs does not read"),
        }
    }

    pub(crate) fn btrfs(&mut self, pieces: &[Extent], root: &Directory) -> Vec<(Extent, Holds)> {
        self.context.step("asking the filesystem");
        let all = |why: String| {
            pieces
                .iter()
                .map(|piece| (*piece, cannot(why.clone())))
                .collect()
        };
        let mount = match SearchedMount::new(root.as_fd()) {
            Ok(mount) => mount,
            Err(why) => return all(why),
        };
        let mut located = Vec::new();
        for piece in pieces {
            let until = self.until;
            let context = &mut *self.context;
            located.extend(mount.range(*piece, &mut || {
                context.step("asking the filesystem");
                Instant::now() < until && !context.is_alone()
            }));
        }
        located
    }
}

/// Extent of the device that belongs to a chunk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DeviceExtent {
    physical: u64,
    logical: u64,
    len: u64,
}

/// Mounted filesystem that is searched.
struct SearchedMount<'a> {
    mounted: BorrowedFd<'a>,
    extents: Vec<DeviceExtent>,
    info: btrfs::Info,
}

fn number(item: &[u8], at: usize) -> Option<u64> {
    let bytes = item.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// `struct btrfs_dev_extent`: chunk tree, chunk objectid, chunk offset, length.
fn device_extent(key: Key, item: &[u8]) -> Option<DeviceExtent> {
    (key.kind == DEVICE_EXTENT).then_some(DeviceExtent {
        physical: key.offset,
        logical: number(item, 16)?,
        len: number(item, 24)?,
    })
}

/// Use of a place of the device, before files are looked up.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Superblock,
    Unallocated,
    Logical { chunk: u64, at: u64 },
}

fn place(extents: &[DeviceExtent], at: u64) -> Place {
    let superblock = SUPERBLOCKS
        .iter()
        .any(|start| (*start..start + SUPERBLOCK).contains(&at));
    if superblock || at < RESERVED {
        return Place::Superblock;
    }
    let of = |extent: &&DeviceExtent| {
        at.checked_sub(extent.physical)
            .is_some_and(|within| within < extent.len)
    };
    match extents.iter().find(of) {
        None => Place::Unallocated,
        Some(extent) => Place::Logical {
            chunk: extent.logical,
            at: extent.logical.saturating_add(at - extent.physical),
        },
    }
}

impl<'a> SearchedMount<'a> {
    pub(super) fn new(mounted: BorrowedFd<'a>) -> Result<Self, String> {
        let failed = |error: io::Error| format!("btrfs does not answer: {error}");
        let info = btrfs::info(mounted).map_err(failed)?;
        if info.devices != 1 {
            return Err("the btrfs has several devices".to_owned());
        }
        let key = |objectid, offset| Key {
            objectid,
            kind: DEVICE_EXTENT,
            offset,
        };
        let mut extents = Vec::new();
        // Devices are numbered from 1; statistics have number 0.
        let take = |key: Key, item: &[u8]| {
            extents.extend(device_extent(key, item));
            true
        };
        let (from, to) = (key(1, 0), key(u64::MAX, u64::MAX));
        btrfs::search(mounted, DEVICE_TREE, from, to, take).map_err(failed)?;
        Ok(Self {
            mounted,
            extents,
            info,
        })
    }

    /// Returns the contents of a range, sector by sector, up to a limit, and while `go_on` returns true.
    pub(super) fn range(
        &self,
        range: Extent,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Vec<(Extent, Holds)> {
        let sector = u64::from(self.info.sector_size).max(512);
        let mut all = Vec::new();
        let mut at = range.start;
        while at < range.end() && all.len() < MOST_SECTORS && go_on() {
            let end = ((at / sector + 1) * sector).min(range.end());
            let piece = Extent {
                start: at,
                len: end - at,
            };
            let holds = self
                .holds(at - at % sector)
                .unwrap_or_else(|error| Holds::Unknown {
                    why: format!("btrfs does not answer: {error}"),
                });
            all.push((piece, holds));
            at = end;
        }
        all
    }

    fn holds(&self, at: u64) -> io::Result<Holds> {
        let (chunk, logical) = match place(&self.extents, at) {
            Place::Superblock => return Ok(Holds::FilesystemMetadata),
            Place::Unallocated => return Ok(Holds::FilesystemFree),
            Place::Logical { chunk, at } => (chunk, at),
        };
        let kind = self.chunk_kind(chunk)?;
        if kind & STRIPED != 0 {
            return Ok(Holds::Unknown {
                why: "the btrfs is striped over devices".to_owned(),
            });
        }
        if kind & DATA == 0 {
            return Ok(if self.has_tree_block(logical)? {
                Holds::FilesystemMetadata
            } else {
                Holds::FilesystemFree
            });
        }
        let (files, missed) = match btrfs::references(self.mounted, logical) {
            Ok(Some(references)) => references,
            Ok(None) => return Ok(Holds::FilesystemFree),
            // Mixed groups hold trees as well.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                return Ok(Holds::FilesystemMetadata);
            }
            Err(error) => return Err(error),
        };
        if files.is_empty() {
            // Allocated as part of an extent, but no longer used by any file.
            return Ok(Holds::FilesystemFree);
        }
        let named = files.iter().take(NAMED_FILES);
        let named: Vec<String> = named
            .map(|file| match self.path(*file) {
                Ok(Some(path)) => name::shown(&path),
                Ok(None) | Err(_) => name::inode(file.inode),
            })
            .collect();
        let more = files.len() - named.len();
        Ok(Holds::Files {
            files: named,
            more: u32::try_from(more)
                .unwrap_or(u32::MAX)
                .saturating_add(missed),
        })
    }

    /// Returns the type of a chunk. `struct btrfs_chunk`: length, owner, stripe length, type.
    fn chunk_kind(&self, chunk: u64) -> io::Result<u64> {
        let key = Key {
            objectid: CHUNKS,
            kind: CHUNK_ITEM,
            offset: chunk,
        };
        let mut kind = None;
        btrfs::search(self.mounted, CHUNK_TREE, key, key, |_, item| {
            kind = number(item, 24);
            false
        })?;
        kind.ok_or_else(|| io::Error::other("a chunk is not found"))
    }

    fn has_tree_block(&self, logical: u64) -> io::Result<bool> {
        let size = u64::from(self.info.node_size).max(1);
        let key = |objectid, kind, offset| Key {
            objectid,
            kind,
            offset,
        };
        let from = key(logical.saturating_sub(size - 1), EXTENT_ITEM, 0);
        let to = key(logical, METADATA_ITEM, u64::MAX);
        let mut is_tree_block = false;
        btrfs::search(self.mounted, EXTENT_TREE, from, to, |key, _| {
            is_tree_block = matches!(key.kind, EXTENT_ITEM | METADATA_ITEM);
            !is_tree_block
        })?;
        Ok(is_tree_block)
    }

    /// Returns the path from the top of the filesystem, through the subvolumes that the file is in; None if it is not found.
    fn path(&self, file: Reference) -> io::Result<Option<Vec<u8>>> {
        let Some(mut path) = btrfs::path(self.mounted, file)? else {
            return Ok(None);
        };
        let mut tree = file.tree;
        for _ in 0..DEPTH {
            if tree == TOP_LEVEL {
                path.insert(0, b'/');
                return Ok(Some(path));
            }
            let key = |offset| Key {
                objectid: tree,
                kind: ROOT_BACKREF,
                offset,
            };
            let mut parent = None;
            btrfs::search(
                self.mounted,
                ROOT_TREE,
                key(0),
                key(u64::MAX),
                |key, item| {
                    parent = backref(key, item);
                    false
                },
            )?;
            let Some((above, directory, name)) = parent else {
                return Ok(None);
            };
            let directory = Reference {
                inode: directory,
                tree: above,
            };
            let Some(mut longer) = btrfs::path(self.mounted, directory)? else {
                return Ok(None);
            };
            if !longer.is_empty() {
                longer.push(b'/');
            }
            longer.extend(name);
            longer.push(b'/');
            longer.extend(path);
            path = longer;
            tree = above;
        }
        Ok(None)
    }
}

/// `struct btrfs_root_ref`: directory, sequence, length of the name, the name. The key has the tree above.
fn backref(key: Key, item: &[u8]) -> Option<(u64, u64, Vec<u8>)> {
    if key.kind != ROOT_BACKREF {
        return None;
    }
    let len = u16::from_le_bytes(item.get(16..18)?.try_into().ok()?);
    let name = item.get(18..18 + usize::from(len))?;
    Some((key.offset, number(item, 0)?, name.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_superblock_unallocated_or_in_a_chunk() {
        let extents = [DeviceExtent {
            physical: 4 << 20,
            logical: 1 << 30,
            len: 8 << 20,
        }];
        for (at, expected) in [
            (0, Place::Superblock),
            (64 << 10, Place::Superblock),
            (64 << 20, Place::Superblock),
            ((64 << 20) + 4096, Place::Unallocated),
            (2 << 20, Place::Unallocated),
            (12 << 20, Place::Unallocated),
            (
                5 << 20,
                Place::Logical {
                    chunk: 1 << 30,
                    at: (1 << 30) + (1 << 20),
                },
            ),
        ] {
            assert_eq!(place(&extents, at), expected, "{at}");
        }
    }

    #[test]
    fn items_that_are_too_short_are_none() {
        let key = |kind| Key {
            objectid: 1,
            kind,
            offset: 7,
        };
        assert_eq!(device_extent(key(DEVICE_EXTENT), &[0; 31]), None);
        assert!(device_extent(key(DEVICE_EXTENT), &[0; 48]).is_some());
        assert_eq!(device_extent(key(CHUNK_ITEM), &[0; 48]), None);
        let mut item = vec![0; 18];
        item[0] = 5;
        item[16] = 3;
        assert_eq!(backref(key(ROOT_BACKREF), &item), None);
        item.extend(b"sub");
        let expected = (7, 5, b"sub".to_vec());
        assert_eq!(backref(key(ROOT_BACKREF), &item), Some(expected));
    }
}
