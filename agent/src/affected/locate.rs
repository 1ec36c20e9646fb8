//! Asking a volume's filesystem what pieces of it hold, as a job of the drive's worker. It writes nothing, and is ended by any
//! call that changes the volume.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    btrfs::Asked,
    ext4::{self, BlockOwner},
    fsmap::{Owner, owners},
    name,
};
use crate::{
    carve::{self, jobs::CarveError},
    check::{decode::End, tool},
    fs::{
        device::{self, Partition},
        jobs::FsError,
        superblock,
    },
    model::{
        DriveRef, Extent, FsType,
        unreadable::{Holds, LocatedPiece, NAMED_FILES},
    },
    sys::{
        direct, fsmap, mountinfo,
        path::Directory,
        walk::{self, Bounds},
    },
    worker::{Context, Job},
};

/// Entries of directories that are read to find paths.
const ENTRIES: usize = 2_000_000;
/// Time for finding paths; the filesystem is in use meanwhile.
const WALK: Duration = Duration::from_secs(20);
/// Blocks that one job asks for; what is beyond is asked for when these are answered.
const MOST_BLOCKS: usize = 2048;
/// Pieces of an answer.
const MOST_PIECES: usize = 512;
/// Runs of blocks whose bitmaps are read: each is a process.
const MOST_RUNS: usize = 32;

/// Asks for pieces of a volume with a filesystem.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Locate {
    pub drive: DriveRef,
    pub uuid: Uuid,
    pub fs_type: FsType,
    /// A mount of it.
    pub mounted_at: Option<PathBuf>,
    /// Within the volume.
    pub pieces: Vec<Extent>,
    /// Longest all of it may take, in milliseconds.
    pub limit_ms: u64,
}

/// Why nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum LocateError {
    /// The volume is not there, or not as it should be.
    #[error(transparent)]
    Device(#[from] FsError),
    /// The same of the drive.
    #[error(transparent)]
    Carve(#[from] CarveError),
}

impl Job for Locate {
    const NAME: &'static str = "locate";
    const ONLY_LOOKS: bool = true;
    /// In the order of the volume.
    type Answer = Vec<LocatedPiece>;
    type Error = LocateError;

    fn run(self, context: &mut Context) -> Result<Vec<LocatedPiece>, LocateError> {
        context.step("reading the label");
        let contents = carve::layout::look(&self.drive, false)?;
        let unknown = || CarveError::NoSuchVolume {
            drive: self.drive.id.to_string(),
            uuid: self.uuid,
        };
        let placed = contents.volume(self.uuid).ok_or_else(unknown)?;
        let partition = device::open(&self.drive, placed)?;
        let until = Instant::now() + Duration::from_millis(self.limit_ms);
        let mut work = Work {
            until,
            partition: &partition,
            context,
        };
        let mounted = match &self.mounted_at {
            Some(at) => Some(mounted(at, &partition)?),
            None => None,
        };
        let found = match (self.fs_type, &mounted) {
            (FsType::Ext4, mounted) => work.ext4(&self.pieces, mounted.as_ref()),
            (FsType::Xfs, Some(root)) => work.xfs(&self.pieces, root),
            (FsType::Btrfs, Some(root)) => work.btrfs(&self.pieces, root),
            (FsType::Xfs | FsType::Btrfs, None) => self
                .pieces
                .iter()
                .map(|piece| {
                    (
                        *piece,
                        cannot(format!(
                            "{} can be asked only while it is mounted",
                            self.fs_type
                        )),
                    )
                })
                .collect(),
        };
        Ok(joined(found))
    }
}

fn cannot(why: impl Into<String>) -> Holds {
    Holds::Unknown { why: why.into() }
}

/// Pieces in order; what touches and holds the same is one.
fn joined(mut found: Vec<(Extent, Holds)>) -> Vec<LocatedPiece> {
    found.sort_by_key(|(piece, _)| *piece);
    let mut all: Vec<LocatedPiece> = Vec::new();
    for (extent, holds) in found {
        match all.last_mut() {
            Some(last) if last.extent.end() == extent.start && last.holds == holds => {
                last.extent.len += extent.len;
            }
            _ => all.push(LocatedPiece { extent, holds }),
        }
    }
    all.truncate(MOST_PIECES);
    all
}

/// The root of a mount of this device, opened: what is asked of it is asked of the volume.
fn mounted(at: &Path, partition: &Partition) -> Result<Directory, FsError> {
    let failed = |error| device::io_error("opening", at, error);
    let directory = Directory::open(at).map_err(failed)?;
    let facts = directory.facts().map_err(failed)?;
    let entries = mountinfo::read().map_err(|error| {
        device::io_error("reading mountinfo for", at, std::io::Error::other(error))
    })?;
    let is_it = facts.mount_root
        && entries
            .iter()
            .any(|entry| entry.id == facts.mount_id && device::is_mount_of(entry, partition.dev));
    if is_it {
        return Ok(directory);
    }
    Err(FsError::NotHere {
        path: at.display().to_string(),
        why: "the volume is not mounted there".to_owned(),
    })
}

/// Files that have a piece, and what of it else is known.
type Asking = (Extent, Result<BTreeSet<u64>, Holds>);

struct Work<'a> {
    until: Instant,
    partition: &'a Partition,
    context: &'a mut Context,
}

impl Work<'_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn records(
        &mut self,
        root: &Directory,
        piece: Extent,
    ) -> std::io::Result<Vec<(Extent, BTreeSet<Owner>)>> {
        self.context.step("asking the filesystem");
        let records = fsmap::records(root.as_fd(), self.partition.dev, piece)?;
        Ok(owners(piece, &records))
    }

    fn xfs(&mut self, pieces: &[Extent], root: &Directory) -> Vec<(Extent, Holds)> {
        let mut asking: Vec<Asking> = Vec::new();
        for piece in pieces {
            match self.records(root, *piece) {
                Err(error) => {
                    asking.push((*piece, Err(cannot(format!("XFS does not answer: {error}")))));
                }
                Ok(found) => asking.extend(found.into_iter().map(|(piece, owners)| {
                    let inodes: BTreeSet<u64> = owners.iter().filter_map(inode).collect();
                    let held = if !inodes.is_empty() {
                        Ok(inodes)
                    } else if owners.contains(&Owner::Unknown) {
                        Err(cannot("the XFS was made without reverse mapping (rmapbt)"))
                    } else {
                        Err(metadata_or_free(&owners))
                    };
                    (piece, held)
                })),
            }
        }
        self.named(asking, Some(root))
    }

    fn btrfs(&mut self, pieces: &[Extent], root: &Directory) -> Vec<(Extent, Holds)> {
        self.context.step("asking the filesystem");
        let all = |why: String| {
            pieces
                .iter()
                .map(|piece| (*piece, cannot(why.clone())))
                .collect()
        };
        let asked = match Asked::new(root.as_fd()) {
            Ok(asked) => asked,
            Err(why) => return all(why),
        };
        let mut found = Vec::new();
        for piece in pieces {
            let until = self.until;
            let context = &mut *self.context;
            found.extend(asked.range(*piece, &mut || {
                context.step("asking the filesystem");
                Instant::now() < until && !context.is_alone()
            }));
        }
        found
    }

    fn ext4(&mut self, pieces: &[Extent], root: Option<&Directory>) -> Vec<(Extent, Holds)> {
        let all = |why: &str| pieces.iter().map(|piece| (*piece, cannot(why))).collect();
        self.context.step("reading the superblock");
        let head = direct::read_node(&self.partition.node, 0, superblock::HEAD_BYTES);
        let Some(sb) = head.ok().and_then(|head| superblock::ext4(&head)) else {
            // debugfs cannot open it either.
            let primary = |piece: &Extent| piece.start < 2048;
            let held = pieces.iter().map(|piece| {
                let holds = if primary(piece) {
                    Holds::FilesystemMetadata
                } else {
                    cannot("the superblock of the ext4 does not read")
                };
                (*piece, holds)
            });
            return held.collect();
        };
        let mut known: Vec<Asking> = Vec::new();
        // Pieces of which the kernel does not say more than that they are used, or nothing.
        let mut open: Vec<(Extent, bool)> = Vec::new();
        for piece in pieces {
            let found = root.map(|root| self.records(root, *piece));
            match found {
                Some(Ok(found)) => {
                    for (piece, owners) in found {
                        if owners.contains(&Owner::Unknown) {
                            open.push((piece, true));
                        } else {
                            known.push((piece, Err(metadata_or_free(&owners))));
                        }
                    }
                }
                // Also where the kernel is older than the call.
                Some(Err(_)) | None => open.push((*piece, false)),
            }
        }
        let mut blocks: Vec<(u64, Extent, bool)> = Vec::new();
        for (piece, used) in &open {
            let mut at = piece.start;
            while at < piece.end() && blocks.len() < MOST_BLOCKS {
                let block = at / sb.block_size;
                let end = ((block + 1) * sb.block_size).min(piece.end());
                let len = end - at;
                blocks.push((block, Extent { start: at, len }, *used));
                at = end;
            }
        }
        if !blocks.is_empty() {
            match self.owners_of_blocks(&blocks) {
                Ok(found) => known.extend(found),
                Err(why) if known.is_empty() => return all(&why),
                Err(why) => known.extend(
                    blocks
                        .iter()
                        .map(|(_, piece, _)| (*piece, Err(cannot(why.as_str())))),
                ),
            }
        }
        self.named(known, root)
    }

    /// By debugfs, which reads the device: what is not yet written back is in the cache that it reads through.
    fn owners_of_blocks(&mut self, blocks: &[(u64, Extent, bool)]) -> Result<Vec<Asking>, String> {
        let numbers: BTreeSet<u64> = blocks.iter().map(|(block, ..)| *block).collect();
        let list: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let found = self.debugfs(&format!("icheck {}", list.join(" ")), true)?;
        let found = ext4::icheck(&found);
        let open = blocks
            .iter()
            .filter(|(block, _, used)| !used && matches!(found.get(block), Some(BlockOwner::None)));
        let used = self.used(&open.map(|(block, ..)| *block).collect())?;
        let held = blocks.iter().map(|(block, piece, is_used)| {
            let held = match found.get(block) {
                Some(BlockOwner::Inode(inode)) => Ok(BTreeSet::from([*inode])),
                Some(BlockOwner::Metadata) => Err(Holds::FilesystemMetadata),
                Some(BlockOwner::None) if *is_used => Err(cannot(
                    "no file has the block; it is just being freed or used",
                )),
                Some(BlockOwner::None) => match used.get(block) {
                    Some(true) => Err(Holds::FilesystemMetadata),
                    Some(false) => Err(Holds::FilesystemFree),
                    None => Err(cannot("debugfs does not say whether the block is in use")),
                },
                None => Err(cannot("debugfs does not say which file has the block")),
            };
            (*piece, held)
        });
        Ok(held.collect())
    }

    /// Which blocks are in use.
    fn used(&mut self, blocks: &BTreeSet<u64>) -> Result<BTreeMap<u64, bool>, String> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                Some((start, count)) if *start + *count == *block => *count += 1,
                _ => runs.push((*block, 1)),
            }
        }
        let mut used = BTreeMap::new();
        for (start, count) in runs.into_iter().take(MOST_RUNS) {
            used.extend(ext4::testb(
                &self.debugfs(&format!("testb {start} {count}"), false)?,
            ));
        }
        Ok(used)
    }

    /// Runs one request, read-only. `without_bitmaps`: those of a large filesystem are hundreds of megabytes.
    fn debugfs(&mut self, request: &str, without_bitmaps: bool) -> Result<String, String> {
        let mut args: Vec<std::ffi::OsString> = Vec::new();
        if without_bitmaps {
            args.push("-c".into());
        }
        args.extend([
            "-R".into(),
            request.into(),
            self.partition.node.clone().into(),
        ]);
        let (limit, device) = (self.left(), &self.partition.device);
        let command = request.split(' ').next().unwrap_or_default();
        match tool::run_tool("debugfs", args, device, limit, self.context) {
            None => Err("the agent is gone".to_owned()),
            Some(End::Exited { stdout, stderr, .. }) => {
                if stdout.trim().is_empty() {
                    let line = stderr
                        .lines()
                        .find(|line| !line.starts_with("debugfs "))
                        .unwrap_or_default();
                    let line = name::shown(line.as_bytes());
                    return Err(format!("debugfs {command} has no answer: {line}"));
                }
                Ok(stdout)
            }
            Some(End::TimedOut) => Err(format!("debugfs {command} did not end in the time given")),
            Some(End::Missing { package }) => {
                Err(format!("debugfs is not installed (package {package})"))
            }
            Some(End::NotRun { why }) => Err(format!("debugfs was not started: {why}")),
            Some(End::Killed) => Err(format!("debugfs {command} was killed")),
        }
    }

    /// Inodes by their paths, as far as those are found in time.
    fn named(&mut self, asking: Vec<Asking>, root: Option<&Directory>) -> Vec<(Extent, Holds)> {
        let named = |inodes: &BTreeSet<u64>| -> Vec<u64> {
            inodes.iter().copied().take(NAMED_FILES).collect()
        };
        let wanted: BTreeSet<u64> = asking
            .iter()
            .filter_map(|(_, held)| held.as_ref().ok())
            .flat_map(named)
            .collect();
        let paths = match root {
            _ if wanted.is_empty() => BTreeMap::new(),
            Some(root) => self.walked(root, &wanted),
            None => self.checked(&wanted),
        };
        let held = asking.into_iter().map(|(piece, held)| {
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

    fn walked(&mut self, root: &Directory, wanted: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u8>> {
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

    fn checked(&mut self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u8>> {
        let mut paths = BTreeMap::new();
        for inode in wanted.iter().take(NAMED_FILES) {
            // One at a time: a name with line breaks in it could pass for a line of another inode.
            let Ok(output) = self.debugfs(&format!("ncheck {inode}"), true) else {
                break;
            };
            if let Some(path) = ext4::ncheck(&output, *inode) {
                paths.insert(*inode, path.into_bytes());
            }
        }
        paths
    }
}

fn inode(owner: &Owner) -> Option<u64> {
    match owner {
        Owner::Inode(inode) => Some(*inode),
        _ => None,
    }
}

fn metadata_or_free(owners: &BTreeSet<Owner>) -> Holds {
    if owners.contains(&Owner::Metadata) {
        Holds::FilesystemMetadata
    } else {
        Holds::FilesystemFree
    }
}
