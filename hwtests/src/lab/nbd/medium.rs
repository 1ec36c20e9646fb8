//! Contents of a drive: its medium (a sparse file) and, above it, a volatile write cache in memory, with all unflushed writes in their
//! order. Without the protocol.

use std::{collections::BTreeMap, fs::File, io, ops::Range, os::unix::fs::FileExt};

use nix::fcntl::{FallocateFlags, fallocate};

/// Unit that a drive writes atomically, bytes; a larger write can be torn. Also the unit of counting, whatever the logical sector.
pub const TORN: u64 = 512;

/// Capacity of the cache in sectors: 64 MiB. When full, it writes its oldest data to the medium, as a real one does.
const CACHE_SECTORS: u64 = (64 << 20) / TORN;

/// Fate of the unflushed data at a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Writes of which at least a part was not flushed.
    pub writes: u64,
    /// Number of their 512-byte parts.
    pub sectors: u64,
    /// Parts that reached the medium nevertheless.
    pub kept: u64,
}

/// A write or write-zeroes of consecutive 512-byte sectors, which the cache holds unless it is durable at once.
#[derive(Debug)]
struct Write {
    first: u64,
    sectors: u64,
    /// Data, 512 bytes for each of `sectors`; None: zeros.
    bytes: Option<Vec<u8>>,
    /// Parts that a later write has put on the medium: they must not overwrite it.
    superseded: Vec<Range<u64>>,
}

impl Write {
    fn live(&self) -> impl Iterator<Item = u64> + '_ {
        (self.first..self.first + self.sectors)
            .filter(|sector| !self.superseded.iter().any(|gone| gone.contains(sector)))
    }

    /// Writes these of its sectors to the medium, adjacent ones together.
    fn put(&self, file: &File, sectors: impl Iterator<Item = u64>) -> io::Result<()> {
        let mut run: Option<Range<u64>> = None;
        for sector in sectors {
            match &mut run {
                Some(run) if run.end == sector => run.end += 1,
                _ => {
                    if let Some(done) = run.replace(sector..sector + 1) {
                        self.put_run(file, done)?;
                    }
                }
            }
        }
        run.map_or(Ok(()), |done| self.put_run(file, done))
    }

    fn put_run(&self, file: &File, run: Range<u64>) -> io::Result<()> {
        match &self.bytes {
            None => zero(file, run.start * TORN, (run.end - run.start) * TORN),
            Some(bytes) => {
                let from = index((run.start - self.first) * TORN);
                let to = index((run.end - self.first) * TORN);
                file.write_all_at(&bytes[from..to], run.start * TORN)
            }
        }
    }
}

/// The medium and its cache. Offsets and lengths are in bytes, multiples of 512, within the drive.
#[derive(Debug)]
pub(super) struct Medium {
    file: File,
    volatile: bool,
    /// By order of arrival.
    unflushed: BTreeMap<u64, Write>,
    /// Newest unflushed write of each sector that has one.
    newest: BTreeMap<u64, u64>,
    /// Number of sectors in `unflushed`; those written twice count twice.
    held: u64,
    next: u64,
}

impl Medium {
    pub(super) fn new(file: File, volatile: bool) -> Self {
        Self {
            file,
            volatile,
            unflushed: BTreeMap::new(),
            newest: BTreeMap::new(),
            held: 0,
            next: 0,
        }
    }

    pub(super) fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// Returns the number of distinct sectors that a power cut could lose.
    pub(super) fn unflushed_sectors(&self) -> u64 {
        self.newest.len() as u64
    }

    /// Returns these sectors, as ranges of sector numbers.
    pub(super) fn unflushed(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &sector in self.newest.keys() {
            match runs.last_mut() {
                Some(run) if run.end == sector => run.end += 1,
                _ => runs.push(sector..sector + 1),
            }
        }
        runs
    }

    /// Returns the number of writes of which a power cut could lose a part.
    pub(super) fn unflushed_writes(&self) -> u64 {
        self.unflushed.len() as u64
    }

    pub(super) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; length];
        self.file.read_exact_at(&mut data, offset)?;
        let first = offset / TORN;
        for (&sector, order) in self.newest.range(first..first + length as u64 / TORN) {
            let write = &self.unflushed[order];
            let at = index((sector - first) * TORN);
            let into = &mut data[at..at + index(TORN)];
            match &write.bytes {
                None => into.fill(0),
                Some(bytes) => {
                    let from = index((sector - write.first) * TORN);
                    into.copy_from_slice(&bytes[from..from + index(TORN)]);
                }
            }
        }
        Ok(data)
    }

    pub(super) fn write(&mut self, offset: u64, bytes: Vec<u8>, fua: bool) -> io::Result<()> {
        let sectors = bytes.len() as u64 / TORN;
        self.take(offset / TORN, sectors, Some(bytes), fua)
    }

    pub(super) fn write_zeroes(&mut self, offset: u64, length: u64, fua: bool) -> io::Result<()> {
        let (mut first, mut sectors) = (offset / TORN, length / TORN);
        if let Some(over) = sectors.checked_sub(CACHE_SECTORS).filter(|over| *over > 0) {
            // More than the cache holds: all but its last part is written out in any case.
            self.flush()?;
            self.take(first, over, None, true)?;
            (first, sectors) = (first + over, CACHE_SECTORS);
        }
        self.take(first, sectors, None, fua)
    }

    fn take(
        &mut self,
        first: u64,
        sectors: u64,
        bytes: Option<Vec<u8>>,
        durable: bool,
    ) -> io::Result<()> {
        let write = Write {
            first,
            sectors,
            bytes,
            superseded: Vec::new(),
        };
        if durable || !self.volatile {
            write.put(&self.file, first..first + sectors)?;
            self.supersede(first..first + sectors);
            return Ok(());
        }
        let order = self.next;
        self.next += 1;
        self.newest
            .extend((first..first + sectors).map(|sector| (sector, order)));
        self.unflushed.insert(order, write);
        self.held += sectors;
        while self.held > CACHE_SECTORS {
            self.write_oldest()?;
        }
        Ok(())
    }

    /// Drops the unflushed data of these sectors, which have just been written to the medium.
    fn supersede(&mut self, gone: Range<u64>) {
        let cached: Vec<u64> = self.newest.range(gone.clone()).map(|(&at, _)| at).collect();
        if cached.is_empty() {
            return;
        }
        for sector in cached {
            self.newest.remove(&sector);
        }
        let held = &mut self.held;
        self.unflushed.retain(|_, write| {
            if write.first < gone.end && gone.start < write.first + write.sectors {
                write.superseded.push(gone.clone());
            }
            let stays = write.live().next().is_some();
            if !stays {
                *held -= write.sectors;
            }
            stays
        });
    }

    fn write_oldest(&mut self) -> io::Result<()> {
        let Some((order, write)) = self.unflushed.pop_first() else {
            return Ok(());
        };
        self.held -= write.sectors;
        write.put(&self.file, write.live())?;
        for sector in write.first..write.first + write.sectors {
            if self.newest.get(&sector) == Some(&order) {
                self.newest.remove(&sector);
            }
        }
        Ok(())
    }

    /// Writes everything to the medium.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        for write in std::mem::take(&mut self.unflushed).into_values() {
            write.put(&self.file, write.live())?;
        }
        self.newest.clear();
        self.held = 0;
        Ok(())
    }

    /// Switches the cache on or off; flushes it before switching it off.
    pub(super) fn set_volatile(&mut self, volatile: bool) -> io::Result<()> {
        if !volatile {
            self.flush()?;
        }
        self.volatile = volatile;
        Ok(())
    }

    /// Drops the cache, keeping each unflushed 512-byte part with this probability, in the order of writing.
    pub(super) fn cut(&mut self, keep: f64, seed: u64) -> io::Result<Cut> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut cut = Cut {
            writes: self.unflushed_writes(),
            sectors: 0,
            kept: 0,
        };
        for write in std::mem::take(&mut self.unflushed).into_values() {
            let mut kept = Vec::new();
            for sector in write.live() {
                cut.sectors += 1;
                if random.f64() < keep {
                    kept.push(sector);
                }
            }
            cut.kept += kept.len() as u64;
            write.put(&self.file, kept.into_iter())?;
        }
        self.newest.clear();
        self.held = 0;
        Ok(cut)
    }
}

/// Zeros a part of the file and frees its space on the host.
fn zero(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let signed = |value: u64| i64::try_from(value).map_err(io::Error::other);
    Ok(fallocate(file, flags, signed(offset)?, signed(length)?)?)
}

/// Converts a length within one request, which is at most 32 MiB.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a request fits in memory")
}
