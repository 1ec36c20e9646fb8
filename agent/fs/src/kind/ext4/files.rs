//! Finds owners of blocks of an ext4, mounted or not: with GETFSMAP, and with `debugfs` where that is not enough.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    debugfs::{self, BlockOwner},
    superblock,
};
use crate::{
    affected::{
        fsmap::{Owner, owners, with_gaps},
        name,
        work::{Lookup, Work, cannot, metadata_or_free},
    },
    device::HEAD_BYTES,
    tools::idle::{self, End},
};
use drivebay_model::{
    Extent,
    unreadable::{Holds, NAMED_FILES},
};
use drivebay_sys::{direct, path::Directory};

/// Limit of blocks that one job looks up.
const MOST_BLOCKS: usize = 2048;
/// Limit of runs of blocks whose bitmaps are read, each by a process.
const MOST_RUNS: usize = 32;

impl Work<'_> {
    pub(crate) fn ext4(
        &mut self,
        pieces: &[Extent],
        root: Option<&Directory>,
    ) -> Vec<(Extent, Holds)> {
        let all = |why: &str| pieces.iter().map(|piece| (*piece, cannot(why))).collect();
        self.context.step("reading the superblock");
        let head = direct::read_node(&self.partition.node, 0, HEAD_BYTES);
        let Some(sb) = head.ok().and_then(|head| superblock::parse(&head)) else {
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
        let mut lookups: Vec<Lookup> = Vec::new();
        // Pieces that the kernel reports only as used, or not at all.
        let mut open: Vec<(Extent, bool)> = Vec::new();
        for piece in pieces {
            let records = root.map(|root| self.records(root, *piece));
            match records {
                Some(Ok(records)) => {
                    for (piece, owners) in with_gaps(*piece, owners(*piece, &records)) {
                        if owners.contains(&Owner::Unknown) {
                            open.push((piece, true));
                        } else {
                            lookups.push((piece, Err(metadata_or_free(&owners))));
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
                Ok(located) => lookups.extend(located),
                Err(why) if lookups.is_empty() => return all(&why),
                Err(why) => lookups.extend(
                    blocks
                        .iter()
                        .map(|(_, piece, _)| (*piece, Err(cannot(why.as_str())))),
                ),
            }
        }
        if root.is_none() && !sb.is_settled() {
            for (_, held) in &mut lookups {
                if *held == Err(Holds::FilesystemFree) {
                    *held = Err(cannot(
                        "the ext4 must be checked or its journal replayed before it is known what is free",
                    ));
                }
            }
        }
        self.named(lookups, |work, wanted| match root {
            Some(root) => work.walked(root, wanted),
            None => work.checked(wanted),
        })
    }

    /// Finds owners with debugfs, which reads the device through the page cache: what is not yet written back is there.
    fn owners_of_blocks(&mut self, blocks: &[(u64, Extent, bool)]) -> Result<Vec<Lookup>, String> {
        let numbers: BTreeSet<u64> = blocks.iter().map(|(block, ..)| *block).collect();
        let list: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let output = self.debugfs(&format!("icheck {}", list.join(" ")), true)?;
        let block_owners = debugfs::icheck(&output);
        // Also blocks that the kernel reports as used: it includes those reserved for growing files, which are in no bitmap.
        let open = blocks
            .iter()
            .filter(|(block, ..)| matches!(block_owners.get(block), Some(BlockOwner::None)));
        let used = self.used(&open.map(|(block, ..)| *block).collect())?;
        let held = blocks.iter().map(|(block, piece, is_used)| {
            let held = match block_owners.get(block) {
                Some(BlockOwner::Inode(inode)) => Ok(BTreeSet::from([*inode])),
                Some(BlockOwner::Metadata) => Err(Holds::FilesystemMetadata),
                Some(BlockOwner::None) => match used.get(block) {
                    // The kernel has reported metadata as such.
                    Some(true) if *is_used => Err(cannot(
                        "no file has the block; it is just being freed or used",
                    )),
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

    /// Returns which blocks are in use, for a limited number of runs.
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
            used.extend(debugfs::testb(
                &self.debugfs(&format!("testb {start} {count}"), false)?,
            ));
        }
        Ok(used)
    }

    /// Runs one request, read-only. `without_bitmaps`: they are not loaded; those of a large filesystem are hundreds of
    /// megabytes.
    fn debugfs(&mut self, request: &str, without_bitmaps: bool) -> Result<String, String> {
        let args = match without_bitmaps {
            true => &["-c", "-R", request][..],
            false => &["-R", request],
        };
        let (limit, device) = (self.left(), &self.partition.device);
        let command = request.split(' ').next().unwrap_or_default();
        match idle::run(
            super::program("debugfs"),
            args,
            &self.partition.node,
            device,
            limit,
            self.context,
        ) {
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

    fn checked(&mut self, wanted: &BTreeSet<u64>) -> BTreeMap<u64, Vec<u8>> {
        let mut paths = BTreeMap::new();
        for inode in wanted.iter().take(NAMED_FILES) {
            // One at a time: a name with line breaks could look like a line of another inode.
            let Ok(output) = self.debugfs(&format!("ncheck {inode}"), true) else {
                break;
            };
            if let Some(path) = debugfs::ncheck(&output, *inode) {
                paths.insert(*inode, path.into_bytes());
            }
        }
        paths
    }
}
