//! What carving needs of a drive, small enough that tests run the same code on a drive in
//! memory that loses power. Decides nothing.

use std::io;

use drivebay_model::{Extent, Placed, drive::PartitionFacts};
use drivebay_sys::{blockdev::BlockDev, busy, dm::Reader, holders};

/// A run of sectors that can be read. Offsets and lengths are multiples of `sector`.
pub trait Medium {
    /// Reads what is on the medium (never a page cache) at this byte offset.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Bytes.
    fn size(&self) -> u64;
    /// Logical sector, bytes: the unit of GPT addresses and of atomic writes.
    fn sector(&self) -> u64;
}

/// One with a volatile cache that can be written.
pub trait Device: Medium {
    /// Writes; durable only after `flush`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes every earlier write durable.
    fn flush(&self) -> io::Result<()>;
    /// Makes a run read as zeros, by the cheapest means that guarantee it. Durable only after `flush`.
    fn zero(&self, extent: Extent) -> io::Result<()>;
    /// Has the drive make a run zeros by itself; false where it has no command for that. Durable only after `flush`.
    fn zero_on_command(&self, extent: Extent) -> io::Result<bool>;
    /// Writes zeros, whatever commands the drive has. Durable only after `flush`.
    fn write_zeros(&self, extent: Extent) -> io::Result<()>;
    /// Bytes of a run that a process which has not ended may still be zeroing, without the drive's lock.
    fn held(&self, _run: Extent) -> io::Result<Option<Extent>> {
        Ok(None)
    }
    /// Up to three programs that have a volume's own device open or mounted, by name. Reads /proc, and no drive.
    fn holders(&self, placed: &Placed) -> Vec<String>;
}

/// What the kernel believes of a drive's partitions, and how to tell it (BLKPG).
pub trait Kernel {
    /// Partitions as the kernel has them now.
    fn partitions(&self) -> io::Result<Vec<PartitionFacts>>;
    /// The one of this number, if the kernel has it: after a change of that one there is no need to read the others again.
    fn partition(&self, number: u32) -> io::Result<Option<PartitionFacts>>;
    /// Adds one.
    fn add(&self, number: u32, extent: Extent) -> io::Result<()>;
    /// Takes one away; EBUSY while anybody has it open.
    fn del(&self, number: u32) -> io::Result<()>;
    /// The same, asked again for a moment while anybody has it open.
    fn del_patiently(&self, number: u32) -> io::Result<()> {
        self.del(number)
    }
    /// Gives one a new length, also while it is in use.
    fn resize(&self, number: u32, extent: Extent) -> io::Result<()>;
}

impl Medium for BlockDev {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Self::read_at(self, offset, buf)
    }
    fn size(&self) -> u64 {
        Self::size(self)
    }
    fn sector(&self) -> u64 {
        u64::from(Self::sector(self))
    }
}

impl Medium for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        Self::read_at(self, offset, buf)
    }
    fn size(&self) -> u64 {
        Self::size(self)
    }
    fn sector(&self) -> u64 {
        u64::from(Self::sector(self))
    }
}

impl Device for BlockDev {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Self::write_at(self, offset, data)
    }
    fn flush(&self) -> io::Result<()> {
        Self::flush(self)
    }
    fn zero(&self, extent: Extent) -> io::Result<()> {
        Self::zero(self, extent.start, extent.len)
    }
    fn zero_on_command(&self, extent: Extent) -> io::Result<bool> {
        Self::zero_on_command(self, extent.start, extent.len)
    }
    fn write_zeros(&self, extent: Extent) -> io::Result<()> {
        Self::write_zeros(self, extent.start, extent.len)
    }
    fn held(&self, run: Extent) -> io::Result<Option<Extent>> {
        let held = Self::held(self, run.start, run.len)?;
        Ok(held.map(|(start, len)| Extent { start, len }))
    }
    fn holders(&self, placed: &Placed) -> Vec<String> {
        let device = placed.device.as_deref();
        device.map_or_else(Vec::new, |device| holders::of_device(device, placed.dev))
    }
}

impl Kernel for BlockDev {
    fn partitions(&self) -> io::Result<Vec<PartitionFacts>> {
        Self::partitions(self)
    }
    fn partition(&self, number: u32) -> io::Result<Option<PartitionFacts>> {
        Self::partition(self, number)
    }
    fn add(&self, number: u32, extent: Extent) -> io::Result<()> {
        self.add_partition(number, extent.start, extent.len)
    }
    fn del(&self, number: u32) -> io::Result<()> {
        self.del_partition(number)
    }
    fn del_patiently(&self, number: u32) -> io::Result<()> {
        busy::retry(busy::PATIENCE, || self.del_partition(number))
    }
    fn resize(&self, number: u32, extent: Extent) -> io::Result<()> {
        self.resize_partition(number, extent.start, extent.len)
    }
}

/// The first thing that one of several looks finds. One that failed is the answer only where none finds anything.
pub fn first<T>(looks: impl IntoIterator<Item = io::Result<Option<T>>>) -> io::Result<Option<T>> {
    let mut failed = None;
    for look in looks {
        match look {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

/// The same where only whether is asked.
pub fn any(looks: impl IntoIterator<Item = io::Result<bool>>) -> io::Result<bool> {
    let looks = looks.into_iter();
    first(looks.map(|look| look.map(|found| found.then_some(())))).map(|found| found.is_some())
}

/// The first byte that is not zero in a run, read in pieces of at most 1 MiB.
pub fn first_nonzero<D: Medium + ?Sized>(dev: &D, extent: Extent) -> io::Result<Option<u64>> {
    let piece = drivebay_model::MIB.min(extent.len.max(dev.sector()));
    let mut buf = vec![0; usize::try_from(piece).unwrap_or(usize::MAX)];
    let mut at = extent.start;
    while at < extent.end() {
        let len = usize::try_from((extent.end() - at).min(piece)).unwrap_or(buf.len());
        let part = buf.get_mut(..len).ok_or(io::ErrorKind::InvalidInput)?;
        dev.read_at(at, part)?;
        if let Some(i) = nonzero(part) {
            return Ok(Some(at + i as u64));
        }
        at += len as u64;
    }
    Ok(None)
}

/// Where the first byte is that is not zero. Compares blocks, since a loop over the bytes of 36 MiB is what a scan's time goes
/// into; then looks into one.
pub(super) fn nonzero(bytes: &[u8]) -> Option<usize> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let block = bytes
        .chunks(ZEROS.len())
        .position(|block| Some(block) != ZEROS.get(..block.len()))?;
    let at = block * ZEROS.len();
    bytes
        .get(at..)?
        .iter()
        .position(|&byte| byte != 0)
        .map(|i| at + i)
}

/// Samples per check; the number that claiming uses too (design invariant 2).
const SAMPLES: u64 = 64;
/// Bytes of one sample: a multiple of every logical sector size there is.
const SAMPLE: u64 = 4096;

/// The first byte found that is not zero, looking at all of the first and last `edge` bytes of a
/// run and at 64 samples spread over it.
pub fn sample_nonzero<D: Medium + ?Sized>(
    dev: &D,
    run: Extent,
    edge: u64,
) -> io::Result<Option<u64>> {
    if run.len <= 2 * edge + SAMPLES * SAMPLE {
        return first_nonzero(dev, run);
    }
    let mut pieces = vec![
        Extent {
            start: run.start,
            len: edge,
        },
        Extent {
            start: run.end() - edge,
            len: edge,
        },
    ];
    // One in each of 64 equal shares, at a place in it that differs from share to share, so that
    // data at a regular stride is not missed every time.
    let share = run.len / SAMPLES / SAMPLE * SAMPLE;
    for i in 0..SAMPLES {
        let slack = share - SAMPLE;
        let shift = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (slack + 1);
        let start = run.start + i * share + shift / SAMPLE * SAMPLE;
        pieces.push(Extent { start, len: SAMPLE });
    }
    for piece in pieces {
        if let Some(at) = first_nonzero(dev, piece)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}
