//! A drive in memory with a volatile write cache, for crash tests: it keeps a log of what was
//! written and flushed, and returns its contents after a power failure at any point.

mod cells;

use std::{collections::BTreeMap, io};

use self::cells::{Cell, RefCell};

use super::device::{Device, Kernel, Medium};
use drivebay_model::{Extent, Placed, drive::PartitionFacts};

type Sectors = BTreeMap<u64, Vec<u8>>;

#[derive(Debug, Clone)]
pub(super) enum Event {
    Write(u64, Vec<u8>),
    Flush,
    /// A label in the log, which a test finds again: an acknowledged step.
    Mark(usize),
}

/// Behaviour of a drive on a command to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Zeroes {
    OnCommand,
    /// The drive has no such command: zeros are written.
    Written,
    /// The drive reports success and keeps its data.
    NotOnCommand,
    /// The drive keeps its data also when zeros are written.
    Never,
}

/// Sectors that are zero are not kept.
#[derive(Debug, Clone)]
pub(super) struct FakeDrive {
    size: u64,
    sector: u64,
    now: RefCell<Sectors>,
    start: RefCell<Sectors>,
    log: RefCell<Vec<Event>>,
    pub(super) kernel: RefCell<BTreeMap<u32, Extent>>,
    /// Partitions that are mounted: del answers EBUSY.
    pub(super) in_use: RefCell<Vec<u32>>,
    /// Writes after this many fail with EIO.
    pub(super) fail_after: Cell<Option<usize>>,
    /// BLKPG calls after this many fail with EBUSY.
    pub(super) kernel_refuses: Cell<bool>,
    /// Number of times that the kernel's partitions were listed.
    pub(super) listings: Cell<usize>,
    /// A run that does not read (EIO) until it is written, as a drive replaces a bad sector.
    pub(super) unreadable: Cell<Option<Extent>>,
    /// Behaviour on commands to zero.
    pub(super) zeroes: Cell<Zeroes>,
    /// Number of commands to zero.
    pub(super) commands: Cell<usize>,
    /// Bytes of zeros that were written by `write_zeros`.
    pub(super) zeros_written: Cell<u64>,
    /// A run that cannot be written (EIO).
    pub(super) unwritable: Cell<Option<Extent>>,
    /// This many writes to the range are confirmed and lost.
    pub(super) loses: Cell<Option<(Extent, usize)>>,
}

impl FakeDrive {
    pub(super) fn new(size: u64, sector: u64) -> Self {
        Self {
            size,
            sector,
            now: RefCell::default(),
            start: RefCell::default(),
            log: RefCell::default(),
            kernel: RefCell::default(),
            in_use: RefCell::default(),
            fail_after: Cell::new(None),
            kernel_refuses: Cell::new(false),
            listings: Cell::default(),
            unreadable: Cell::new(None),
            zeroes: Cell::new(Zeroes::OnCommand),
            commands: Cell::default(),
            zeros_written: Cell::default(),
            unwritable: Cell::new(None),
            loses: Cell::new(None),
        }
    }

    /// Clears the log; the present contents are durable.
    pub(super) fn settle(&self) {
        *self.start.borrow_mut() = self.now.borrow().clone();
        self.log.borrow_mut().clear();
    }

    pub(super) fn mark(&self, value: usize) {
        self.log.borrow_mut().push(Event::Mark(value));
    }

    pub(super) fn log_len(&self) -> usize {
        self.log.borrow().len()
    }

    /// True if a write was not flushed.
    pub(super) fn is_dirty(&self) -> bool {
        self.log
            .borrow()
            .iter()
            .rev()
            .find_map(|event| match event {
                Event::Write(..) => Some(true),
                Event::Flush => Some(false),
                Event::Mark(_) => None,
            })
            .unwrap_or(false)
    }

    pub(super) fn writes(&self) -> usize {
        self.log
            .borrow()
            .iter()
            .filter(|event| matches!(event, Event::Write(..)))
            .count()
    }

    /// Returns the drive after a power failure before event `at`, and the last mark before it.
    /// Unflushed sectors for which `kept` returns false are lost. The kernel has no partitions.
    pub(super) fn after_cut(
        &self,
        at: usize,
        mut kept: impl FnMut() -> bool,
    ) -> (Self, Option<usize>) {
        let log = self.log.borrow();
        let past = &log[..at];
        let flushed = past
            .iter()
            .rposition(|event| matches!(event, Event::Flush))
            .map_or(0, |i| i + 1);
        let mut sectors = self.start.borrow().clone();
        let mut mark = None;
        for (i, event) in past.iter().enumerate() {
            match event {
                Event::Write(offset, data) => {
                    for (n, part) in data.chunks(self.sector as usize).enumerate() {
                        if i < flushed || kept() {
                            put(&mut sectors, offset / self.sector + n as u64, part);
                        }
                    }
                }
                Event::Flush => {}
                Event::Mark(value) => mark = Some(*value),
            }
        }
        let drive = Self::new(self.size, self.sector);
        *drive.now.borrow_mut() = sectors;
        drive.settle();
        (drive, mark)
    }

    /// Changes one byte without a write, like a defect of the medium.
    pub(super) fn rot(&self, offset: u64, change: u8) {
        let mut buf = vec![0; self.sector as usize];
        let at = offset / self.sector * self.sector;
        self.read_at(at, &mut buf).unwrap();
        buf[(offset - at) as usize] ^= change;
        put(&mut self.now.borrow_mut(), at / self.sector, &buf);
        put(&mut self.start.borrow_mut(), at / self.sector, &buf);
    }

    /// Writes without logging, e.g. a tenant's data.
    pub(super) fn fill(&self, extent: Extent, byte: u8) {
        for at in (extent.start..extent.end()).step_by(self.sector as usize) {
            put(
                &mut self.now.borrow_mut(),
                at / self.sector,
                &vec![byte; self.sector as usize],
            );
            put(
                &mut self.start.borrow_mut(),
                at / self.sector,
                &vec![byte; self.sector as usize],
            );
        }
    }

    pub(super) fn same_bytes(&self, other: &Self) -> bool {
        *self.now.borrow() == *other.now.borrow()
    }
}

fn put(sectors: &mut Sectors, lba: u64, data: &[u8]) {
    if data == &[0; 4096][..data.len()] {
        sectors.remove(&lba);
    } else {
        sectors.insert(lba, data.to_vec());
    }
}

impl Medium for FakeDrive {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        assert!(
            offset.is_multiple_of(self.sector) && (buf.len() as u64).is_multiple_of(self.sector)
        );
        assert!(offset + buf.len() as u64 <= self.size);
        if overlaps(self.unreadable.get(), offset, buf.len()) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        buf.fill(0);
        let (first, count) = (offset / self.sector, buf.len() as u64 / self.sector);
        for (lba, data) in self.now.borrow().range(first..first + count) {
            let at = ((lba - first) * self.sector) as usize;
            buf[at..at + data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }
}

impl Device for FakeDrive {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(
            offset.is_multiple_of(self.sector) && (data.len() as u64).is_multiple_of(self.sector)
        );
        assert!(offset + data.len() as u64 <= self.size);
        if self
            .fail_after
            .get()
            .is_some_and(|limit| self.writes() >= limit)
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if overlaps(self.unwritable.get(), offset, data.len()) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if let Some((run, count @ 1..)) = self.loses.get()
            && overlaps(Some(run), offset, data.len())
        {
            self.loses.set(Some((run, count - 1)));
            return Ok(());
        }
        if let Some(bad) = self.unreadable.get()
            && offset <= bad.start
            && bad.end() <= offset + data.len() as u64
        {
            self.unreadable.set(None);
        }
        for (n, part) in data.chunks(self.sector as usize).enumerate() {
            put(
                &mut self.now.borrow_mut(),
                offset / self.sector + n as u64,
                part,
            );
        }
        self.log
            .borrow_mut()
            .push(Event::Write(offset, data.to_vec()));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.log.borrow_mut().push(Event::Flush);
        Ok(())
    }

    fn zero(&self, extent: Extent) -> io::Result<()> {
        match self.zero_on_command(extent)? {
            true => Ok(()),
            false => self.write_zeros(extent),
        }
    }

    fn zero_on_command(&self, extent: Extent) -> io::Result<bool> {
        self.commands.set(self.commands.get() + 1);
        match self.zeroes.get() {
            Zeroes::OnCommand => self.make_zeros(extent).map(|()| true),
            Zeroes::Written => Ok(false),
            Zeroes::NotOnCommand | Zeroes::Never => Ok(true),
        }
    }

    fn write_zeros(&self, extent: Extent) -> io::Result<()> {
        self.zeros_written
            .set(self.zeros_written.get() + extent.len);
        match self.zeroes.get() {
            Zeroes::Never => Ok(()),
            _ => self.make_zeros(extent),
        }
    }

    fn holders(&self, placed: &Placed) -> Vec<String> {
        let is_used = |number| self.in_use.borrow().contains(&number);
        let holder = placed.number.filter(|number| is_used(*number));
        holder
            .map(|_| "postgres (pid 12)".to_owned())
            .into_iter()
            .collect()
    }
}

impl FakeDrive {
    fn make_zeros(&self, extent: Extent) -> io::Result<()> {
        let lbas: Vec<u64> = self
            .now
            .borrow()
            .range(extent.start / self.sector..extent.end() / self.sector)
            .map(|(lba, _)| *lba)
            .collect();
        for lba in lbas {
            self.write_at(lba * self.sector, &vec![0; self.sector as usize])?;
        }
        Ok(())
    }
}

fn overlaps(bad: Option<Extent>, offset: u64, len: usize) -> bool {
    bad.is_some_and(|bad| bad.start < offset + len as u64 && offset < bad.end())
}

fn busy() -> io::Error {
    io::Error::from_raw_os_error(libc::EBUSY)
}

fn facts((&number, extent): (&u32, &Extent)) -> PartitionFacts {
    PartitionFacts {
        kernel_name: format!("fake{number}"),
        number,
        start_bytes: extent.start,
        size_bytes: extent.len,
        major: 259,
        minor: number,
    }
}

impl Kernel for FakeDrive {
    fn partitions(&self) -> io::Result<Vec<PartitionFacts>> {
        self.listings.set(self.listings.get() + 1);
        let kernel = self.kernel.borrow();
        Ok(kernel.iter().map(facts).collect())
    }

    fn partition(&self, number: u32) -> io::Result<Option<PartitionFacts>> {
        let kernel = self.kernel.borrow();
        Ok(kernel.get_key_value(&number).map(facts))
    }

    fn add(&self, number: u32, extent: Extent) -> io::Result<()> {
        let mut kernel = self.kernel.borrow_mut();
        let overlaps = |other: &Extent| other.start < extent.end() && extent.start < other.end();
        if self.kernel_refuses.get()
            || kernel.contains_key(&number)
            || kernel.values().any(overlaps)
        {
            return Err(busy());
        }
        kernel.insert(number, extent);
        Ok(())
    }

    fn del(&self, number: u32) -> io::Result<()> {
        if self.in_use.borrow().contains(&number) {
            return Err(busy());
        }
        match self.kernel.borrow_mut().remove(&number) {
            Some(_) => Ok(()),
            None => Err(io::Error::from_raw_os_error(libc::ENXIO)),
        }
    }

    fn resize(&self, number: u32, extent: Extent) -> io::Result<()> {
        if self.kernel_refuses.get() {
            return Err(busy());
        }
        match self.kernel.borrow_mut().get_mut(&number) {
            Some(now) => {
                *now = extent;
                Ok(())
            }
            None => Err(io::Error::from_raw_os_error(libc::ENXIO)),
        }
    }
}
