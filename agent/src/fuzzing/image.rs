//! A drive in memory that starts as a recorded one and is changed by the input, sector by sector. It counts the bytes read and records the
//! writes.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    io,
};

use super::Input;
use drivebay_layout::device::{Device, Kernel, Medium};
use drivebay_model::{Extent, Placed, drive::PartitionFacts};

/// Bytes that may be read: all label slots, metadata areas, tables and their copies.
const MOST_READ: u64 = 512 << 20;

#[derive(Debug, Clone)]
pub(super) struct Image {
    size: u64,
    sector: u64,
    sectors: RefCell<BTreeMap<u64, Vec<u8>>>,
    // Unreadable until they are written: a drive replaces a bad sector then.
    unreadable: RefCell<BTreeSet<u64>>,
    read: Cell<u64>,
    kernel: RefCell<BTreeMap<u32, Extent>>,
    pub(super) written: RefCell<Vec<Extent>>,
}

impl Image {
    fn new(size: u64, sector: u64) -> Self {
        Self {
            size,
            sector,
            sectors: RefCell::default(),
            unreadable: RefCell::default(),
            read: Cell::new(0),
            kernel: RefCell::default(),
            written: RefCell::default(),
        }
    }

    /// Parses a golden file: `size <bytes>`, then lines of an offset and a sector in hex without its trailing zeros.
    pub(super) fn golden(text: &str) -> Self {
        let mut lines = text.lines();
        let size = lines.next().unwrap().strip_prefix("size ").unwrap();
        let image = Self::new(size.parse().unwrap(), 512);
        for line in lines {
            let (at, digits) = line.split_once(' ').unwrap();
            let byte =
                |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
            let bytes: Vec<u8> = digits.as_bytes().chunks(2).map(byte).collect();
            image.put(at.parse().unwrap(), &bytes);
        }
        image
    }

    /// Parses a recorded PV: runs of offset (u64), length (u32) and bytes.
    pub(super) fn pv(bytes: &[u8], size: u64, sector: u64) -> Self {
        let image = Self::new(size, sector);
        let mut input = Input(bytes);
        while !input.0.is_empty() {
            let (at, len) = (input.number(8), input.number(4));
            image.put(at, input.take(len as usize));
        }
        image
    }

    /// Returns the bytes at any offset; zeros outside of the drive.
    pub(super) fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.copy(at, &mut bytes);
        bytes
    }

    /// Copies bytes at any offset into `bytes`, which must be zeros.
    fn copy(&self, at: u64, bytes: &mut [u8]) {
        let end = at.saturating_add(bytes.len() as u64);
        let range = at / self.sector..end.div_ceil(self.sector);
        for (number, sector) in self.sectors.borrow().range(range) {
            let start = number * self.sector;
            let from = at.saturating_sub(start) as usize;
            let to = start.saturating_sub(at) as usize;
            let len = (sector.len() - from).min(bytes.len() - to);
            bytes[to..to + len].copy_from_slice(&sector[from..from + len]);
        }
    }

    /// Writes bytes at any offset; those outside of the drive are dropped.
    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        let sector = self.sector as usize;
        let start = at / self.sector * self.sector;
        let skip = (at - start) as usize;
        let mut whole = self.get(start, (skip + bytes.len()).next_multiple_of(sector));
        whole[skip..skip + bytes.len()].copy_from_slice(bytes);
        let mut sectors = self.sectors.borrow_mut();
        for (number, part) in (start / self.sector..).zip(whole.chunks(sector)) {
            if number >= self.size / self.sector {
                break;
            }
            if part.iter().all(|byte| *byte == 0) {
                sectors.remove(&number);
            } else {
                sectors.insert(number, part.to_vec());
            }
        }
    }

    /// Applies the changes of an input: bytes, zeros or an unreadable sector at an offset in one of these runs.
    pub(super) fn edit(&mut self, input: &mut Input<'_>, runs: &[Extent]) {
        while input.0.len() > 4 {
            let run = runs[usize::from(input.byte()) % runs.len()];
            let at = run.start + input.number(2) % run.len;
            let how = input.byte();
            match how >> 6 {
                0 | 1 => self.put(at, input.take(usize::from(how & 0x7f))),
                2 => self.put(at, &vec![0; 64 << (how & 0x0f)]),
                _ if how & 1 == 1 => {
                    self.unreadable.borrow_mut().insert(at / self.sector);
                }
                _ => {
                    let other = runs[usize::from(input.byte()) % runs.len()];
                    let from = other.start + input.number(2) % other.len;
                    self.put(at, &self.get(from, 512));
                }
            }
        }
    }

    fn whole(&self, offset: u64, len: usize) -> io::Result<()> {
        let sector = self.sector as usize;
        assert!(
            offset.is_multiple_of(self.sector) && len.is_multiple_of(sector),
            "{len} bytes at {offset} are no sectors"
        );
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Medium for Image {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.whole(offset, buf.len())?;
        self.read.set(self.read.get() + buf.len() as u64);
        assert!(self.read.get() <= MOST_READ, "reads without end");
        let first = offset / self.sector;
        let after = first + buf.len() as u64 / self.sector;
        if self
            .unreadable
            .borrow()
            .range(first..after)
            .next()
            .is_some()
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        buf.fill(0);
        self.copy(offset, buf);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }
}

impl Device for Image {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.whole(offset, data.len())?;
        let (start, len) = (offset, data.len() as u64);
        self.written.borrow_mut().push(Extent { start, len });
        let written = start / self.sector..(start + len) / self.sector;
        let mut unreadable = self.unreadable.borrow_mut();
        unreadable.retain(|number| !written.contains(number));
        self.put(offset, data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero_on_command(&self, extent: Extent) -> io::Result<bool> {
        self.zero(extent).map(|()| true)
    }
    fn write_zeros(&self, extent: Extent) -> io::Result<()> {
        self.zero(extent)
    }
    fn zero(&self, extent: Extent) -> io::Result<()> {
        self.written.borrow_mut().push(extent);
        let (first, after) = (extent.start / self.sector, extent.end() / self.sector);
        let mut sectors = self.sectors.borrow_mut();
        sectors.retain(|number, _| !(first..after).contains(number));
        Ok(())
    }

    fn holders(&self, _placed: &Placed) -> Vec<String> {
        Vec::new()
    }
}

fn facts((number, extent): (&u32, &Extent)) -> PartitionFacts {
    PartitionFacts {
        kernel_name: format!("x{number}"),
        number: *number,
        start_bytes: extent.start,
        size_bytes: extent.len,
        major: 259,
        minor: *number,
    }
}

impl Kernel for Image {
    fn partitions(&self) -> io::Result<Vec<PartitionFacts>> {
        Ok(self.kernel.borrow().iter().map(facts).collect())
    }

    fn partition(&self, number: u32) -> io::Result<Option<PartitionFacts>> {
        let kernel = self.kernel.borrow();
        Ok(kernel.get_key_value(&number).map(facts))
    }

    fn add(&self, number: u32, extent: Extent) -> io::Result<()> {
        self.kernel.borrow_mut().insert(number, extent);
        Ok(())
    }

    fn del(&self, number: u32) -> io::Result<()> {
        self.kernel.borrow_mut().remove(&number);
        Ok(())
    }

    fn resize(&self, number: u32, extent: Extent) -> io::Result<()> {
        self.add(number, extent)
    }
}
