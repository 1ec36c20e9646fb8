//! The workload: writes of 4 KiB to parts of one file. Each kind of write has its own part, so that none writes a block that another has
//! written since the snapshot was created.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use drivebay_hwtests::{MIB, Trouble};

use crate::calls::table::Times;

pub(super) const BLOCK: u64 = 4096;
const WRITERS: usize = 8;

/// O_DIRECT requires aligned memory.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// A kind of write, with its own part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Random,
    /// By several concurrent writers.
    Parallel,
    /// Each write is flushed, as in a database.
    Synced,
    /// The same MiB repeatedly.
    Hot,
    Sequential,
    /// Through the page cache, flushed once at the end.
    Buffered,
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Random,
        Self::Parallel,
        Self::Synced,
        Self::Hot,
        Self::Sequential,
        Self::Buffered,
    ];

    pub(super) const FEW: [Self; 4] = [Self::Random, Self::Synced, Self::Hot, Self::Sequential];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Parallel => "random, 8 writers",
            Self::Synced => "random, each flushed",
            Self::Hot => "random in one MiB",
            Self::Sequential => "sequential",
            Self::Buffered => "random, page cache",
        }
    }

    fn region(self) -> (u64, u64) {
        let (from, mib) = match self {
            Self::Random => (0, 512),
            Self::Parallel => (512, 512),
            Self::Synced => (1024, 256),
            Self::Buffered => (1280, 256),
            Self::Hot => (1536, 1),
            Self::Sequential => (1544, 16),
        };
        (from * MIB / BLOCK, mib * MIB / BLOCK)
    }

    /// Returns the blocks of a pass of `n` writes, in order. Random ones are distinct, except for `Hot`.
    fn blocks(self, n: usize) -> Vec<u64> {
        let (from, count) = self.region();
        let mut blocks: Vec<u64> = (from..from + count).collect();
        match self {
            Self::Sequential => {
                let first = fastrand::usize(..blocks.len() - n);
                blocks.drain(first..first + n).collect()
            }
            Self::Hot => (0..4 * n)
                .map(|_| blocks[fastrand::usize(..blocks.len())])
                .collect(),
            _ => {
                fastrand::shuffle(&mut blocks);
                blocks.truncate(n);
                blocks
            }
        }
    }
}

/// Result of a pass.
#[derive(Debug, Clone, Default)]
pub(super) struct Pass {
    pub(super) times: Times,
    pub(super) writes: usize,
    pub(super) elapsed: Duration,
}

impl Pass {
    pub(super) fn per_second(&self) -> f64 {
        self.writes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// File that is written.
#[derive(Debug, Clone)]
pub(super) struct Target(PathBuf);

impl Target {
    /// Creates the file with the size of all parts, fully written: further writes change no filesystem metadata.
    pub(super) fn new(path: &Path) -> Result<Self, Trouble> {
        let parts = Kind::ALL.map(|kind| kind.region());
        let end = parts.iter().map(|(from, count)| from + count).max();
        let file = File::create_new(path)?;
        let piece: Vec<u8> = (0..MIB).map(|_| fastrand::u8(..)).collect();
        for at in 0..(end.unwrap_or(0) * BLOCK).div_ceil(MIB) {
            file.write_all_at(&piece, at * MIB)?;
        }
        file.sync_all()?;
        Ok(Self(path.to_owned()))
    }

    fn open(&self, direct: bool) -> io::Result<File> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(&self.0)
    }

    pub(super) fn pass(&self, kind: Kind, blocks: usize) -> Result<Pass, Trouble> {
        let blocks = kind.blocks(blocks);
        let file = self.open(kind != Kind::Buffered)?;
        let begin = Instant::now();
        let times = match kind {
            Kind::Buffered => {
                write(&file, &blocks, false)?;
                file.sync_data()?;
                let mut times = Times::default();
                times.push(begin.elapsed());
                times
            }
            Kind::Parallel => in_parallel(&file, &blocks)?,
            _ => write(&file, &blocks, kind == Kind::Synced)?,
        };
        Ok(Pass {
            times,
            writes: blocks.len(),
            elapsed: begin.elapsed(),
        })
    }

    /// Writes randomly until stopped.
    pub(super) fn until(&self, stop: &AtomicBool) -> Result<Pass, Trouble> {
        let file = self.open(true)?;
        let mut pass = Pass::default();
        while !stop.load(Ordering::Relaxed) {
            let blocks = Kind::Random.blocks(512);
            for some in blocks.chunks(16) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let begin = Instant::now();
                pass.times.extend(write(&file, some, false)?);
                pass.elapsed += begin.elapsed();
                pass.writes += some.len();
            }
        }
        Ok(pass)
    }
}

fn write(file: &File, blocks: &[u64], flush: bool) -> io::Result<Times> {
    let mut block = Box::new(Block([0; 4096]));
    let mut times = Times::default();
    for at in blocks {
        block.0[..8].copy_from_slice(&fastrand::u64(..).to_le_bytes());
        let begin = Instant::now();
        file.write_all_at(&block.0, at * BLOCK)?;
        if flush {
            file.sync_data()?;
        }
        times.push(begin.elapsed());
    }
    Ok(times)
}

fn in_parallel(file: &File, blocks: &[u64]) -> io::Result<Times> {
    let mut all = Times::default();
    thread::scope(|scope| {
        let parts = blocks.chunks(blocks.len().div_ceil(WRITERS));
        let writers: Vec<_> = parts
            .map(|part| scope.spawn(move || write(file, part, false)))
            .collect();
        for writer in writers {
            let times = writer.join().map_err(|_| io::Error::other("a writer"))?;
            all.extend(times?);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_writes_in_its_own_part_and_random_ones_write_no_block_twice() {
        let mut parts = Kind::ALL.map(|kind| kind.region());
        parts.sort_unstable();
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{parts:?}");
        }
        for kind in Kind::ALL {
            let (from, count) = kind.region();
            let blocks = kind.blocks(200);
            assert!(blocks.iter().all(|at| (from..from + count).contains(at)));
            let different = blocks.iter().collect::<BTreeSet<_>>().len();
            assert_eq!(different == blocks.len(), kind != Kind::Hot, "{kind:?}");
        }
    }
}
