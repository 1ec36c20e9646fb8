//! Making deleted space zeros again, a bounded piece at a time, and freeing it when all of it is.
//!
//! The drive's lock is held for changes of what is noted on the drive only; while zeroing, the bytes that are zeroed are
//! (`open::unlock_to_zero`): nobody gets them before the process that zeroes has ended. What is
//! durable is noted at least every GiB and never more often, because each such note is flushed writes to the same few
//! sectors; a crash repeats at most that much. The end: everything flushed, both ends and 64 samples of each run read back as
//! zeros from the medium, the space given back, and noted as zeroed. A drive that answers to its command to zero and keeps what
//! it had is noted as such, and zeros are written from then on; one that does not keep those either is not asked again.

use uuid::Uuid;

use super::{
    claimed::{ClaimedDrive, Erasable},
    error::{CarveError, io_error},
    jobs::EraseProgress,
    layout, open,
    pace::Pace,
    plan, space,
};
use drivebay_model::{Contents, DriveRef, ErasePolicy, GIB, MIB};
use drivebay_worker::Context;

/// It is noted this often how far erasing is, in bytes.
const NOTED_EVERY: u64 = GIB;

/// Where erasing goes on: `noted` on the drive, `from` known to this agent. Pure.
fn begin(noted: u64, from: Option<u64>, total: u64) -> u64 {
    from.map_or(0, |from| noted.max(from / MIB * MIB).min(total))
}

/// Whether so many bytes are to be noted, when `noted` are. Not at the end: freeing says more. Pure.
fn is_to_be_noted(done: u64, noted: u64, total: u64) -> bool {
    done.saturating_sub(noted) >= NOTED_EVERY && done < total
}

/// Erases for about `budget_ms`.
pub(super) fn step(
    drive: &DriveRef,
    uuid: Uuid,
    from_bytes: Option<u64>,
    budget_ms: u64,
    context: &mut Context,
) -> Result<EraseProgress, CarveError> {
    let mut dev = open::locked(drive)?;
    let session = layout::claimed(&dev, true)?;
    let Some(erasable) = session.seized(uuid)? else {
        return Ok(EraseProgress {
            done_bytes: 0,
            total_bytes: 0,
            finished: Some(session.contents()?),
        });
    };
    let how = session.space().zeroing;
    drop(session);
    let total = erasable.total();
    let mut done = begin(erasable.done, from_bytes, total);
    if erasable.policy == ErasePolicy::Zero {
        open::unlock_to_zero(&mut dev, &erasable.runs)?;
        let mut pace = Pace::new(budget_ms);
        let mut noted = erasable.done;
        while let Some(left) = plan::at(&erasable.runs, done) {
            context.step("erase");
            done += pace
                .zero(&dev, left, how)
                .map_err(io_error(&drive.id, "erasing"))?;
            if is_to_be_noted(done, noted, total) {
                open::lock(&mut dev)?;
                let mut session = layout::claimed(&dev, false)?;
                // Somebody may have come between.
                let now = session.erasable(uuid)?;
                if !now.is_some_and(|now| now.is_same(&erasable)) {
                    break;
                }
                session.note_erased(&erasable, done)?;
                noted = done;
                drop(session);
                open::unlock_to_zero(&mut dev, &erasable.runs)?;
            }
            if pace.is_over() {
                break;
            }
        }
        // Also so that udevd finds the drive locked when the writing descriptor closes.
        open::lock(&mut dev)?;
        if done < total {
            return Ok(EraseProgress {
                done_bytes: done,
                total_bytes: total,
                finished: None,
            });
        }
    }
    open::nobody_zeroes(&dev, &drive.id, &erasable.runs)?;
    context.step("free erased space");
    let contents = free(&mut *layout::claimed(&dev, true)?, &erasable)?;
    Ok(EraseProgress {
        done_bytes: total,
        total_bytes: total,
        finished: Some(contents),
    })
}

/// Ends it: checks, and gives the space back.
pub(super) fn free(
    drive: &mut (impl ClaimedDrive + ?Sized),
    erased: &Erasable,
) -> Result<Contents, CarveError> {
    let now = drive.seized(erased.uuid)?;
    let Some(erasable) = now.filter(|now| now.is_same(erased)) else {
        return drive.contents();
    };
    let (dev, id) = (drive.device(), drive.id());
    match erasable.policy {
        ErasePolicy::Zero => {
            dev.flush().map_err(io_error(id, "flushing"))?;
            let done = space::is_zeros(dev, id, &erasable.runs, "checking that it is erased");
            if let Err(CarveError::NotErased { .. }) = done {
                // It begins again, in another way.
                drive.note_unzeroed()?;
                drive.note_erased(&erasable, 0)?;
            }
            done?;
        }
        ErasePolicy::Signatures => {
            space::zero_ends(drive, &erasable.runs, drive.space().zeroing)?;
        }
    }
    drive.release(&erasable)?;
    if erasable.policy == ErasePolicy::Zero {
        drive.note_zeroed(&erasable.runs)?;
    }
    drive.changed()
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
    fn it_is_noted_once_a_gib_and_not_at_the_end() {
        let total = 3 * GIB;
        assert!(!is_to_be_noted(GIB - MIB, 0, total));
        assert!(is_to_be_noted(GIB, 0, total));
        assert!(!is_to_be_noted(2 * GIB - MIB, GIB, total));
        assert!(is_to_be_noted(2 * GIB, GIB, total));
        assert!(!is_to_be_noted(total, GIB, total));
        // Begun again, whatever was noted.
        assert!(!is_to_be_noted(MIB, 2 * GIB, total));
    }
}
