//! Making deleted space zeros again, a bounded piece at a time, and freeing it when all of it is.
//!
//! The drive's lock is held for changes of table and label only, not while zeroing. What is
//! durable is written to the label at least every GiB and never more often, because each such
//! note is two flushed writes to the same few sectors; a crash repeats at most that much.
//! The end: everything flushed, both ends and 64 samples read back as zeros from the medium;
//! "all done" into the label; the entry out of the table; the record out of the label. Each of
//! them durable before the next.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{
    device::{self, Device, Kernel},
    gpt::Entry,
    jobs::{CarveError, EraseProgress},
    partition::{self, Session},
    record::{Content, FreeSpace},
};
use crate::model::{Contents, DriveRef, ERASING_TYPE, ErasePolicy, Extent, GIB, MIB, RecordState};
use crate::worker::Context;

/// The label learns of progress this often, in bytes.
const NOTED_EVERY: u64 = GIB;

/// Zeroing in pieces that each take well under a second.
#[derive(Debug)]
pub(super) struct Pace {
    piece: u64,
    begin: Instant,
    budget: Duration,
}

impl Pace {
    /// Starts with 16 MiB: 0.1 s on a disk that has to write them.
    pub(super) fn new(budget_ms: u64) -> Self {
        Self {
            piece: 16 * MIB,
            begin: Instant::now(),
            budget: Duration::from_millis(budget_ms),
        }
    }

    /// Whether the budget is used up.
    pub(super) fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.budget
    }

    /// Zeros the next piece of a run, flushes it, and answers with its length. Flushing belongs to
    /// the piece: otherwise a fast cache would make one late flush take long.
    pub(super) fn zero<D: Device>(&mut self, dev: &D, run: Extent) -> std::io::Result<u64> {
        let len = run.len.min(self.piece);
        let begin = Instant::now();
        dev.zero(Extent {
            start: run.start,
            len,
        })?;
        dev.flush()?;
        self.piece = next_piece(self.piece, begin.elapsed());
        Ok(len)
    }
}

/// Twice as much when a piece took under 100 ms, half when it took over 400 ms; 1 MiB to 1 GiB.
fn next_piece(piece: u64, took: Duration) -> u64 {
    match took.as_millis() {
        0..100 => (piece * 2).min(GIB),
        100..400 => piece,
        _ => (piece / 2).max(MIB),
    }
}

/// Where erasing goes on: `noted` on the drive, `from` known to this agent. Pure.
pub(super) fn begin(noted: u64, from: Option<u64>, total: u64) -> u64 {
    from.map_or(0, |from| noted.max(from / MIB * MIB).min(total))
}

/// What is to be erased.
struct Target {
    extent: Extent,
    policy: ErasePolicy,
    done: u64,
    number: u32,
}

/// Erases for about `budget_ms`.
pub(super) fn step(
    drive: &DriveRef,
    uuid: Uuid,
    from_bytes: Option<u64>,
    budget_ms: u64,
    context: &mut Context,
) -> Result<EraseProgress, CarveError> {
    let io = |what: &str| partition::io_error(&drive.id, what);
    let mut dev = partition::open(drive)?;
    partition::lock(&mut dev)?;
    let Some(target) = target(&Session::open(&dev, &drive.id, true)?, uuid)? else {
        let contents = Session::open(&dev, &drive.id, false)?.contents()?;
        return Ok(EraseProgress {
            done_bytes: 0,
            total_bytes: 0,
            finished: Some(contents),
        });
    };
    let extent = target.extent;
    let mut done = begin(target.done, from_bytes, extent.len);
    if target.policy == ErasePolicy::Zero {
        dev.unlock();
        let mut pace = Pace::new(budget_ms);
        let mut noted = target.done;
        while done < extent.len {
            context.step("erase");
            done += pace
                .zero(
                    &dev,
                    Extent {
                        start: extent.start + done,
                        len: extent.len - done,
                    },
                )
                .map_err(io("erasing"))?;
            if done - noted.min(done) >= NOTED_EVERY && done < extent.len {
                partition::lock(&mut dev)?;
                note(Session::open(&dev, &drive.id, true)?, uuid, done)?;
                noted = done;
                dev.unlock();
            }
            if pace.is_over() {
                break;
            }
        }
        // Also so that udevd finds the drive locked when the writing descriptor closes.
        partition::lock(&mut dev)?;
        if done < extent.len {
            return Ok(EraseProgress {
                done_bytes: done,
                total_bytes: extent.len,
                finished: None,
            });
        }
    }
    context.step("free erased space");
    let contents = free(Session::open(&dev, &drive.id, true)?, uuid)?;
    Ok(EraseProgress {
        done_bytes: extent.len,
        total_bytes: extent.len,
        finished: Some(contents),
    })
}

/// The deleted volume; None when it is not on the drive (any more).
fn target<D: Device + Kernel>(
    session: &Session<'_, D>,
    uuid: Uuid,
) -> Result<Option<Target>, CarveError> {
    let Some(placed) = session.volume(uuid)? else {
        return Ok(None);
    };
    partition::fit(&placed)?;
    let RecordState::Erasing { done_bytes, .. } = placed.record.state else {
        return Err(CarveError::BadTransition {
            uuid,
            from: partition::named(&placed.record.state),
            to: "erased".into(),
        });
    };
    // Its entry must have its new identity, and nobody may have it open.
    let entry = placed
        .number
        .and_then(|number| Some((number, session.table.entry(number)?)));
    match entry {
        Some((number, entry))
            if entry.type_guid() == ERASING_TYPE && session.take_from_kernel(number)? =>
        {
            let record = &placed.record;
            Ok(Some(Target {
                extent: record.extent,
                policy: record.erase,
                done: done_bytes,
                number,
            }))
        }
        _ => Err(partition::in_use(&placed)),
    }
}

/// Writes to the label how far it is. The bytes are durable already.
fn note<D: Device + Kernel>(
    mut session: Session<'_, D>,
    uuid: Uuid,
    done: u64,
) -> Result<(), CarveError> {
    session.commit_label(noted(&session.label.content, uuid, done))
}

fn noted(content: &Content, uuid: Uuid, done: u64) -> Content {
    content.with(uuid, |record| {
        if let RecordState::Erasing { done_bytes, .. } = &mut record.state {
            *done_bytes = done;
        }
    })
}

/// Ends it: checks, and gives the space back.
pub(super) fn free<D: Device + Kernel>(
    mut session: Session<'_, D>,
    uuid: Uuid,
) -> Result<Contents, CarveError> {
    let Some(Target {
        extent,
        policy,
        number,
        ..
    }) = target(&session, uuid)?
    else {
        return session.contents();
    };
    let io = |what: &str| partition::io_error(&session.id, what);
    let dev = session.dev;
    let edge = MIB.min(extent.len);
    let mut content = noted(&session.label.content, uuid, extent.len);
    match policy {
        ErasePolicy::Zero => {
            dev.flush().map_err(io("flushing"))?;
            let found = device::sample_nonzero(dev, extent, edge)
                .map_err(io("checking that it is erased"))?;
            if let Some(offset) = found {
                return Err(CarveError::NotErased {
                    drive: session.id.to_string(),
                    offset,
                });
            }
        }
        ErasePolicy::Signatures => {
            partition::zero_ends(dev, extent, edge).map_err(io("erasing signatures"))?;
            // From now on nobody may believe that free space on this drive is zeros.
            content.free_space = FreeSpace::Unknown;
        }
    }
    session.commit_label(content)?;
    session.commit_table(session.table.with(number, Entry::UNUSED))?;
    session.commit_label(session.label.content.without(uuid))?;
    session.reread()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erasing_goes_on_where_it_was_and_begins_again_when_it_must() {
        assert_eq!(begin(0, Some(5 * MIB + 7), 9 * MIB), 5 * MIB);
        assert_eq!(begin(6 * MIB, Some(5 * MIB), 9 * MIB), 6 * MIB);
        assert_eq!(begin(0, Some(12 * MIB), 9 * MIB), 9 * MIB);
        assert_eq!(begin(6 * MIB, None, 9 * MIB), 0);
    }

    #[test]
    fn pieces_adapt_to_the_drive_and_stay_small() {
        let ms = Duration::from_millis;
        assert_eq!(next_piece(16 * MIB, ms(5)), 32 * MIB);
        assert_eq!(next_piece(GIB, ms(5)), GIB);
        assert_eq!(next_piece(16 * MIB, ms(200)), 16 * MIB);
        assert_eq!(next_piece(16 * MIB, ms(900)), 8 * MIB);
        assert_eq!(next_piece(MIB, ms(5000)), MIB);
    }
}
