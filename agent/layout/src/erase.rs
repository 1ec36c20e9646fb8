//! Zeroes the space of deleted volumes and of what deleted snapshots stored, one bounded step at a
//! time, and frees it when all of it is zeroed.
//!
//! The drive's lock is held only while its records are changed; while zeroing, the ranges are
//! reserved instead (`open::unlock_to_zero`): they are given to no other volume until the zeroing
//! process has ended. Progress is recorded once per GiB, because each record is a flushed write to
//! the same few sectors; after a crash at most a GiB is zeroed again. At the end everything is
//! flushed, both ends and 64 samples of each run must read back as zeros from the medium, and the
//! space is freed and recorded as zeroed. If a drive confirms its command to zero and keeps its
//! data, that is recorded, and zeros are written from then on; if it does not keep those either,
//! that is recorded too.

use uuid::Uuid;

use super::{
    claimed::{ClaimedDrive, Erasable},
    error::{LayoutError, io_error},
    jobs::EraseProgress,
    layout, open,
    pace::Pace,
    plan, space,
};
use drivebay_model::{Contents, DriveRef, ErasePolicy, GIB, MIB};
use drivebay_worker::Context;

/// Bytes erased between two records of the progress.
const NOTED_EVERY: u64 = GIB;

/// Returns the offset at which erasing continues: the larger of `noted`, which is on the drive, and
/// `from`, which the agent knows. Without `from` it starts at 0. Pure.
fn begin(noted: u64, from: Option<u64>, total: u64) -> u64 {
    from.map_or(0, |from| noted.max(from / MIB * MIB).min(total))
}

/// True if the progress `done` must be recorded, after `noted` was. Not at the end: freeing
/// replaces it. Pure.
fn is_to_be_noted(done: u64, noted: u64, total: u64) -> bool {
    done.saturating_sub(noted) >= NOTED_EVERY && done < total
}

/// Erases for about `budget_ms`, and frees the space when all of it is erased. Finished at once if
/// the volume or store is not on the drive any more.
pub(super) fn step(
    drive: &DriveRef,
    uuid: Uuid,
    from_bytes: Option<u64>,
    budget_ms: u64,
    context: &mut Context,
) -> Result<EraseProgress, LayoutError> {
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
                // Another process may have changed the volume while the lock was free.
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
        // The lock also keeps udevd from probing the drive when the writing descriptor closes.
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

/// Checks that the space is erased, and frees it. Changes nothing if the deletion is not on the
/// drive any more.
pub(super) fn free(
    drive: &mut (impl ClaimedDrive + ?Sized),
    erased: &Erasable,
) -> Result<Contents, LayoutError> {
    let now = drive.seized(erased.uuid)?;
    let Some(erasable) = now.filter(|now| now.is_same(erased)) else {
        return drive.contents();
    };
    let (dev, id) = (drive.device(), drive.id());
    match erasable.policy {
        ErasePolicy::Zero => {
            dev.flush().map_err(io_error(id, "flushing"))?;
            let done = space::is_zeros(dev, id, &erasable.runs, "checking that it is erased");
            if let Err(LayoutError::NotErased { .. }) = done {
                // Erasing starts again, with another method.
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
        // Started again from 0: `done` is less than what was recorded.
        assert!(!is_to_be_noted(MIB, 2 * GIB, total));
    }
}
