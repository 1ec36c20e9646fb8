//! Lost sectors of a volume that moved (`drivebay_model::lost`): their marks on its drive decide which are lost still.

use std::io;

use super::{
    claimed::{ClaimedDrive, unchanged},
    device::Medium,
    error::{LayoutError, host_error, io_error},
    jobs::{Changed, SettleLost},
    layout, plan,
};
use drivebay_model::{
    Extent,
    lost::{self, SECTOR},
    runs,
};
use drivebay_sys::direct::is_of_medium;
use drivebay_worker::{Context, Job};
use uuid::Uuid;

/// Bytes of marks that are read at once.
const PIECE: u64 = 1 << 20;

impl Job for SettleLost {
    const NAME: &'static str = "settle-lost";
    type Answer = Changed;
    type Error = LayoutError;
    fn run(self, context: &mut Context) -> Result<Changed, LayoutError> {
        context.step("reading the marks of lost sectors");
        now(&self)
    }
}

/// Executes `SettleLost`, under the drive's lock.
pub fn now(job: &SettleLost) -> Result<Changed, LayoutError> {
    layout::change(&job.drive, |drive| settle(drive, job))
}

/// Executes `SettleLost`. The drive must have been read with repair.
pub(super) fn settle<D: ClaimedDrive + ?Sized>(
    drive: &mut D,
    job: &SettleLost,
) -> Result<Changed, LayoutError> {
    let uuid = job.uuid;
    let contents = drive.contents()?;
    let placed = drive.living(&contents, uuid)?;
    let Some(recorded) = placed.record.lost() else {
        return unchanged(contents);
    };
    let left = match lost::fit(&recorded) {
        true => {
            let runs = drive.runs(placed)?;
            let left = still_lost(drive.device(), uuid, &runs, &recorded);
            left.map_err(io_error(drive.id(), "reading the marks of lost sectors"))?
        }
        false => recorded.clone(),
    };
    let mut parameters = placed.record.parameters.clone();
    // The record may have more than is lost, since the marks decide. It stays as it is if scattered writes have left more ranges than it has
    // room for, or if it was not understood.
    if lost::fit(&left) {
        let ends = left.is_empty() && job.may_end && placed.mapping.is_none();
        lost::keep((!ends).then_some(left.as_slice()), &mut parameters);
    }
    let answer = drive.set_parameters(placed, &parameters)?;
    // Also if nothing has changed: an earlier call may have ended before this.
    let mapped = drive.device().map_lost(placed, &left);
    mapped.map_err(host_error(
        drive.id(),
        "changing the mapped device of a volume",
    ))?;
    Ok(answer)
}

/// Returns the recorded ranges that have their marks, in order. `runs`: ranges of the volume's bytes on the drive, in its order.
fn still_lost<D: Medium + ?Sized>(
    dev: &D,
    volume: Uuid,
    runs: &[Extent],
    recorded: &[Extent],
) -> io::Result<Vec<Extent>> {
    let mut left = Vec::new();
    for (at, on_drive) in pieces(runs, recorded) {
        match marked_in(dev, volume, at, on_drive) {
            // Sector by sector: one that does not read is not known to be written.
            Err(error) if is_of_medium(&error) => {
                let sector = dev.sector();
                for offset in (0..on_drive.len).step_by(sector as usize) {
                    let (start, len) = (on_drive.start + offset, sector.min(on_drive.len - offset));
                    let here = Extent { start, len };
                    match marked_in(dev, volume, at + offset, here) {
                        Err(error) if is_of_medium(&error) => left.push(Extent {
                            start: at + offset,
                            len,
                        }),
                        marked => left.extend(marked?),
                    }
                }
            }
            marked => left.extend(marked?),
        }
    }
    Ok(runs::joined(left))
}

/// Returns the ranges of a volume that have their marks in a piece of it, which begins at byte `at` of the volume.
fn marked_in<D: Medium + ?Sized>(
    dev: &D,
    volume: Uuid,
    at: u64,
    on_drive: Extent,
) -> io::Result<Vec<Extent>> {
    // Whole sectors of the drive around it.
    let sector = dev.sector();
    let start = on_drive.start / sector * sector;
    let end = on_drive.end().next_multiple_of(sector);
    let mut bytes = vec![0; (end - start) as usize];
    dev.read_at(start, &mut bytes)?;
    let from = (on_drive.start - start) as usize;
    let own = bytes.get(from..from + on_drive.len as usize);
    Ok(lost::marked(volume, at, own.unwrap_or_default()))
}

/// Returns pieces of ranges of a volume: the byte of the volume at which each begins, and where it is on the drive.
fn pieces(runs: &[Extent], ranges: &[Extent]) -> Vec<(u64, Extent)> {
    let mut pieces = Vec::new();
    for range in ranges {
        let mut at = range.start;
        while at < range.end()
            && let Some(here) = plan::at(runs, at)
        {
            let len = here.len.min(range.end() - at).min(PIECE);
            pieces.push((at, Extent { len, ..here }));
            at += len;
        }
    }
    pieces
}

/// Returns ranges of bytes as device-mapper takes them: start and length in sectors.
pub fn sectors(lost: &[Extent]) -> Vec<(u64, u64)> {
    let sectors = |range: &Extent| (range.start / SECTOR, range.len / SECTOR);
    lost.iter().map(sectors).collect()
}

/// A drive on which a volume has lost sectors, as its users see it: reads that touch a mark fail as reads of a bad sector do.
pub(super) struct Marked<'a, D: ?Sized> {
    dev: &'a D,
    volume: Uuid,
    /// As `pieces` returns them.
    lost: Vec<(u64, Extent)>,
}

impl<'a, D: Medium + ?Sized> Marked<'a, D> {
    /// `runs`: ranges of the volume's bytes on the drive, in its order. `lost`: the ranges that may have marks.
    pub(super) fn new(dev: &'a D, volume: Uuid, runs: &[Extent], lost: &[Extent]) -> Self {
        let lost = pieces(runs, lost);
        Self { dev, volume, lost }
    }
}

impl<D: Medium + ?Sized> Medium for Marked<'_, D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.dev.read_at(offset, buf)?;
        let read = Extent {
            start: offset,
            len: buf.len() as u64,
        };
        for (at, piece) in &self.lost {
            let Some(here) = piece.overlap(read) else {
                continue;
            };
            let from = (here.start - offset) as usize;
            let bytes = buf.get(from..from + here.len as usize).unwrap_or_default();
            let at = at + (here.start - piece.start);
            if !lost::marked(self.volume, at, bytes).is_empty() {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.dev.size()
    }

    fn sector(&self) -> u64 {
        self.dev.sector()
    }
}
