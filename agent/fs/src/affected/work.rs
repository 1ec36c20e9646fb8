//! Common code of looking up the owners of places in a filesystem.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use super::{fsmap::Owner, name};
use crate::device::Partition;
use drivebay_model::{
    Extent, FsType,
    unreadable::{Holds, NAMED_FILES},
};
use drivebay_sys::{
    fsmap::{self, Record},
    mount,
    path::Directory,
    walk::{self, Bounds},
};
use drivebay_worker::Context;

/// Limit of directory entries that are read to find paths.
const ENTRIES: usize = 2_000_000;
/// Limit of finding paths; the filesystem is in use meanwhile.
const WALK: Duration = Duration::from_secs(20);

pub(crate) fn cannot(why: impl Into<String>) -> Holds {
    Holds::Unknown { why: why.into() }
}

/// Piece with the inodes that have it, or with its other contents.
pub(crate) type Lookup = (Extent, Result<BTreeSet<u64>, Holds>);

/// Lookup in one filesystem.
pub struct Work<'a> {
    pub(crate) until: Instant,
    pub(crate) fs_type: FsType,
    pub(crate) partition: &'a Partition,
    pub(crate) context: &'a mut Context,
}

impl Work<'_> {
    /// Returns the time until the limit of the job.
    pub(crate) fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the result for a filesystem that cannot be searched, with the reason.
    pub(crate) fn not_searched(&self, pieces: &[Extent], why: &str) -> Vec<(Extent, Holds)> {
        let pieces = pieces.iter();
        pieces.map(|piece| (*piece, cannot(why))).collect()
    }

    /// Searches a filesystem that is not mounted, and has nothing to replay, through a read-only mount of its own. `flags` are options of
    /// that mount.
    pub(crate) fn through_own_mount(
        &mut self,
        pieces: &[Extent],
        flags: &[&str],
        search: impl FnOnce(&mut Self, &Directory) -> Vec<(Extent, Holds)>,
    ) -> Vec<(Extent, Holds)> {
        self.context.step("mounting it read-only");
        let opened = mount::open_unmounted(&self.partition.node, self.fs_type.as_str(), flags);
        match opened {
            Ok(root) => search(self, &root),
            Err(error) => {
                let why = format!("the {} cannot be mounted read-only: {error}", self.fs_type);
                self.not_searched(pieces, &why)
            }
        }
    }

    /// Returns the records of FS_IOC_GETFSMAP.
    pub(crate) fn records(
        &mut self,
        root: &Directory,
        piece: Extent,
    ) -> std::io::Result<Vec<Record>> {
        self.context.step("asking the filesystem");
        fsmap::records(root.as_fd(), self.partition.dev, piece)
    }

    /// Replaces inodes with their paths, as far as `find` finds those in time.
    pub(crate) fn named(
        &mut self,
        lookups: Vec<Lookup>,
        find: impl FnOnce(&mut Self, &BTreeSet<u64>) -> BTreeMap<u64, Vec<u8>>,
    ) -> Vec<(Extent, Holds)> {
        let named = |inodes: &BTreeSet<u64>| -> Vec<u64> {
            inodes.iter().copied().take(NAMED_FILES).collect()
        };
        let wanted: BTreeSet<u64> = lookups
            .iter()
            .filter_map(|(_, held)| held.as_ref().ok())
            .flat_map(named)
            .collect();
        let paths = match wanted.is_empty() {
            true => BTreeMap::new(),
            false => find(self, &wanted),
        };
        let held = lookups.into_iter().map(|(piece, held)| {
            let holds = match held {
                Err(holds) => holds,
                Ok(inodes) => {
                    let files: Vec<String> = named(&inodes)
                        .into_iter()
                        .map(|inode| match paths.get(&inode) {
                            Some(path) => name::shown(path),
                            None => name::inode(inode),
                        })
                        .collect();
                    let more = inodes.len() - files.len();
                    Holds::Files {
                        files,
                        more: u32::try_from(more).unwrap_or(u32::MAX),
                    }
                }
            };
            (piece, holds)
        });
        held.collect()
    }

    /// Finds the paths of inodes by reading the directories of a mount, within limits of time and entries.
    pub(crate) fn walked(
        &mut self,
        root: &Directory,
        wanted: &BTreeSet<u64>,
    ) -> BTreeMap<u64, Vec<u8>> {
        let bounds = Bounds {
            until: self.until.min(Instant::now() + WALK),
            entries: ENTRIES,
        };
        let context = &mut *self.context;
        let walked = walk::find(root, wanted, bounds, || {
            context.step("finding paths");
            !context.is_alone()
        });
        match walked {
            Ok(walked) => walked.paths,
            Err(error) => {
                tracing::debug!(device = self.partition.device, %error, "paths of affected files were not found");
                BTreeMap::new()
            }
        }
    }
}

pub(crate) fn metadata_or_free(owners: &BTreeSet<Owner>) -> Holds {
    if owners.contains(&Owner::Metadata) {
        Holds::FilesystemMetadata
    } else {
        Holds::FilesystemFree
    }
}
