//! Zeroes free space in the background after a claim, so that raw volumes need not wait for it.
//!
//! Each step is short and holds the drive's lock to its end, so that no volume is created in space
//! that is being zeroed. A run counts as zeroed once it was flushed, read back and recorded on the
//! drive; an interrupted step is repeated.

use super::{
    claimed::ClaimedDrive,
    error::{LayoutError, io_error},
    jobs::{ZeroProgress, ZeroStep},
    layout, open,
    pace::Pace,
    space,
};
use drivebay_model::{Extent, Zeroing, runs};
use drivebay_worker::Context;

/// Zeroes free space for about `budget_ms`.
pub(super) fn step(job: &ZeroStep, context: &mut Context) -> Result<ZeroProgress, LayoutError> {
    let dev = open::locked(&job.drive)?;
    // Without repairs: only calls that need them make them, and the kernel keeps the partitions
    // that it has.
    let session = layout::claimed(&dev, false)?;
    context.step("zero free space");
    zero(&*session, &job.first, job.may_write, job.budget_ms)
}

/// Zeroes a part of one free run that is not recorded as zeroed; runs in `first` precede all
/// others. Writes zeros only with `may_write`.
pub(super) fn zero<D: ClaimedDrive + ?Sized>(
    drive: &D,
    first: &[Extent],
    may_write: bool,
    budget_ms: u64,
) -> Result<ZeroProgress, LayoutError> {
    let contents = drive.contents()?;
    let unzeroed = contents.unzeroed();
    let mut progress = ZeroProgress {
        zeroed_bytes: 0,
        written: false,
        left_bytes: runs::bytes(&unzeroed),
        ended: None,
    };
    let wanted = runs::within(&unzeroed, first);
    let others = runs::without(&unzeroed, first);
    let Some(run) = wanted.first().or(others.first()).copied() else {
        progress.ended = Some(contents);
        return Ok(progress);
    };
    let (dev, id) = (drive.device(), drive.id());
    open::nobody_zeroes(dev, id, &[run])?;
    let how = match contents.space.zeroing {
        Zeroing::Command if !on_command(drive, run)? => Zeroing::Written,
        how => how,
    };
    let is_to_be_written = how != Zeroing::Command;
    if contents.space.zeroing == Zeroing::Fails || (is_to_be_written && !may_write) {
        progress.ended = Some(contents);
        return Ok(progress);
    }
    progress.written = is_to_be_written;
    let mut pace = Pace::new(budget_ms);
    let mut done = 0;
    while done < run.len {
        let rest = Extent {
            start: run.start + done,
            len: run.len - done,
        };
        let zeroed = pace.zero(dev, rest, how);
        done += zeroed.map_err(io_error(id, "zeroing free space"))?;
        if pace.is_over() {
            break;
        }
    }
    let zeroed = Extent { len: done, ..run };
    match space::is_zeros(dev, id, &[zeroed], "checking that free space is zeros") {
        Err(LayoutError::NotErased { .. }) => {
            drive.note_unzeroed()?;
        }
        done => {
            done?;
            drive.note_zeroed(&[zeroed])?;
            progress.zeroed_bytes = zeroed.len;
            progress.left_bytes -= zeroed.len;
        }
    }
    if progress.left_bytes == 0 {
        progress.ended = Some(drive.changed()?);
    }
    Ok(progress)
}

/// True if the drive has a command for zeroing. It is tried on the first bytes of the run, which
/// are to be zeroed anyway.
fn on_command<D: ClaimedDrive + ?Sized>(drive: &D, run: Extent) -> Result<bool, LayoutError> {
    let first = Extent {
        len: run.len.min(drivebay_model::MIB),
        ..run
    };
    let done = drive.device().zero_on_command(first);
    done.map_err(io_error(drive.id(), "zeroing free space"))
}
