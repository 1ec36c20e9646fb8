//! Operations that layouts need of a drive, few enough that tests run the same code on a drive in
//! memory that loses power. Contains no policy.

use std::{io, path::Path};

use super::lost;
use drivebay_model::{
    Extent, Mapping, Placed,
    drive::PartitionFacts,
    lost::{SECTOR, device_name},
};
use drivebay_sys::{
    blockdev::BlockDev,
    busy,
    dm::{self, Reader},
    holders,
};

/// Storage that can be read. Offsets and lengths must be multiples of `sector`.
pub trait Medium {
    /// Reads the medium, never a page cache, from this byte offset.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Returns the size in bytes.
    fn size(&self) -> u64;
    /// Returns the bytes of a logical sector: the unit of GPT addresses and of atomic writes.
    fn sector(&self) -> u64;
}

/// Writable storage with a volatile cache.
pub trait Device: Medium {
    /// Writes `data` at this byte offset; durable only after `flush`.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes every earlier write durable.
    fn flush(&self) -> io::Result<()>;
    /// Zeroes a run by the cheapest means that guarantee zeros. Durable only after `flush`.
    fn zero(&self, extent: Extent) -> io::Result<()>;
    /// Zeroes a run with the drive's command for it; false if the drive has none. Durable only
    /// after `flush`.
    fn zero_on_command(&self, extent: Extent) -> io::Result<bool>;
    /// Zeroes a run by writing zeros, also if the drive has a command. Durable only after `flush`.
    fn write_zeros(&self, extent: Extent) -> io::Result<()>;
    /// Returns a part of a run that another process has reserved and may still be zeroing, without
    /// the drive's lock; None if there is none.
    fn held(&self, _run: Extent) -> io::Result<Option<Extent>> {
        Ok(None)
    }
    /// Returns the names of up to three programs that have a volume's own device open or mounted.
    /// Reads /proc, and no drive.
    fn holders(&self, placed: &Placed) -> Vec<String>;
    /// Returns the mapped device over a volume's own one; None: it has none, or is not open.
    fn mapping(&self, _placed: &Placed) -> io::Result<Option<Mapping>> {
        Ok(None)
    }
    /// Removes the mapped device of a volume from the kernel, if there is one. EBUSY while it is
    /// open.
    fn unmap(&self, _placed: &Placed) -> io::Result<()> {
        Ok(())
    }
    /// Makes reads of these sectors of a volume fail, of its whole present size, if it is open. It
    /// may be in use.
    fn map_lost(&self, _placed: &Placed, _lost: &[Extent]) -> io::Result<()> {
        Ok(())
    }
}

/// The kernel's partitions of a drive, which are changed with BLKPG.
pub trait Kernel {
    /// Returns the partitions that the kernel has now.
    fn partitions(&self) -> io::Result<Vec<PartitionFacts>>;
    /// Returns the partition of this number, if the kernel has it: after a change of one partition
    /// the others need not be read again.
    fn partition(&self, number: u32) -> io::Result<Option<PartitionFacts>>;
    /// Adds a partition with this number to the kernel, without a change of the drive; errs with
    /// EBUSY if it overlaps another one.
    fn add(&self, number: u32, extent: Extent) -> io::Result<()>;
    /// Removes a partition; errs with EBUSY while a process has it open.
    fn del(&self, number: u32) -> io::Result<()>;
    /// Removes a partition; repeats that for a short time while a process has it open.
    fn del_patiently(&self, number: u32) -> io::Result<()> {
        self.del(number)
    }
    /// Changes the length of a partition, also while it is in use.
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
        let own = || placed.device.as_deref().zip(placed.dev);
        let device = placed.used_device().or_else(own);
        device.map_or_else(Vec::new, |(name, dev)| holders::of_device(name, Some(dev)))
    }

    fn mapping(&self, placed: &Placed) -> io::Result<Option<Mapping>> {
        let uuid = placed.record.mapping_uuid();
        let Some((uuid, device)) = uuid.zip(placed.device.as_deref()) else {
            return Ok(None);
        };
        let mapped = dm::mapped_over(Path::new("/sys"), device, &uuid)?;
        Ok(mapped.map(|mapped| Mapping {
            device: mapped.kernel_name,
            dev: mapped.dev,
        }))
    }

    fn unmap(&self, placed: &Placed) -> io::Result<()> {
        let Some(device) = placed.device.as_deref() else {
            return Ok(());
        };
        // Not the one of a copy of the volume on another drive, which has the same uuid.
        let mut mappings = placed.record.mappings().into_iter();
        mappings.try_for_each(|names| {
            dm::remove_from(Path::new("/sys"), device, &names.dm_uuid).map(drop)
        })
    }

    fn map_lost(&self, placed: &Placed, lost: &[Extent]) -> io::Result<()> {
        let Some((device, dev)) = placed.device.as_deref().zip(placed.dev) else {
            return Ok(());
        };
        let uuid = device_name(placed.record.uuid);
        // Not the dead one of a drive that was unplugged.
        let mapped = dm::mapped_over(Path::new("/sys"), device, &uuid)?;
        if !mapped.is_some_and(|mapped| mapped.is_over(device)) {
            return Ok(());
        }
        let sectors = placed.record.extent.len / SECTOR;
        dm::map_over(dev, sectors, &lost::sectors(lost), &uuid)
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

/// Returns the first result of several searches. An error is returned only if no search has a
/// result.
pub fn first<T>(results: impl IntoIterator<Item = io::Result<Option<T>>>) -> io::Result<Option<T>> {
    let mut failed = None;
    for result in results {
        match result {
            Ok(None) => {}
            Ok(value) => return Ok(value),
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Returns true if one of several tests is true. An error is returned only if none is.
pub fn any(results: impl IntoIterator<Item = io::Result<bool>>) -> io::Result<bool> {
    let results = results.into_iter();
    first(results.map(|result| result.map(|is_true| is_true.then_some(()))))
        .map(|hit| hit.is_some())
}

/// Returns the offset of the first byte in a run that is not zero. Reads pieces of at most 1 MiB.
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

/// Returns the index of the first byte that is not zero. Compares whole blocks first: most of a
/// scan's time would go into a loop over the bytes of 36 MiB.
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

/// Samples per run, as many as claiming needs (design invariant 2).
const SAMPLES: u64 = 64;
/// Bytes of one sample: a multiple of every logical sector size.
const SAMPLE: u64 = 4096;

/// Returns the offset of a byte that is not zero, among the first and last `edge` bytes of a run
/// and 64 samples spread over it; None if all of these are zero.
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
    // One sample in each of 64 equal shares, at an offset that differs from share to share: data at
    // a regular stride is not missed every time.
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
