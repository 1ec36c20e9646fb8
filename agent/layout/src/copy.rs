//! Copying a volume to its place on another drive, a bounded piece at a time.
//!
//! Each drive's lock is held for reading its records only. While bytes are written they are held (`open::unlock_to_zero`): nobody
//! gets them before the process that writes has ended. What a step answers as done was flushed and then read again from both
//! drives past the page cache, and was equal. Nothing is noted on the drives: where a copy goes on is the caller's to keep.

mod ahead;
mod compare;
mod engine;
mod error;
mod rate;
mod spans;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use uuid::Uuid;

pub use self::error::CopyError;
use self::{
    engine::{Copy, Side},
    rate::Rate,
};
use super::{
    claimed::ClaimedDrive,
    error::{CarveError, fit},
    jobs::{CopyProgress, CopyStep},
    layout, open,
};
use drivebay_model::{Extent, PlaceState, RecordState, runs};
use drivebay_worker::Context;

/// The agent hears of a step that goes on at most this often.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Copies for about the budget.
pub(super) fn step(job: &CopyStep, context: &mut Context) -> Result<CopyProgress, CopyError> {
    context.step("copy volume: read records");
    let mut source = open::shared(&job.source).map_err(CopyError::Source)?;
    let original = layout::claimed(&source, false)
        .and_then(|drive| original(&*drive, job.uuid, job.generation))
        .map_err(CopyError::Source)?;
    source.unlock();
    let mut target = open::locked(&job.target).map_err(CopyError::Target)?;
    let runs = layout::claimed(&target, false)
        .and_then(|drive| copy(&*drive, job.uuid, job.generation, &original))
        .map_err(CopyError::Target)?;
    open::unlock_to_zero(&mut target, &runs).map_err(CopyError::Target)?;
    let mut told: Option<(String, Instant)> = None;
    let mut begin = |step: &str| {
        let is_known = |(name, at): &(String, Instant)| name == step && at.elapsed() < TOLD_EVERY;
        if !told.as_ref().is_some_and(is_known) {
            context.step(step);
            told = Some((step.to_owned(), Instant::now()));
        }
    };
    let both = Copy {
        source: Side {
            dev: &source,
            id: &job.source.id,
            runs: &original.runs,
        },
        target: Side {
            dev: &target,
            id: &job.target.id,
            runs: &runs,
        },
        may_match: job.may_match,
        holds_nothing: &job.holds_nothing,
    };
    let mut rate = Rate::new(job.budget_ms, job.bytes_per_second);
    let done = both.run(job.from_bytes, &mut rate, &mut begin);
    // So that udevd finds the drive locked when the writing descriptor closes.
    let locked = open::lock(&mut target).map_err(CopyError::Target);
    let progress = done?;
    locked?;
    Ok(progress)
}

/// A volume where it lives.
#[derive(Debug, PartialEq, Eq)]
struct Original {
    /// The uuid in the label of its drive.
    label: Uuid,
    /// In the volume's order.
    runs: Vec<Extent>,
}

/// The volume of which a copy of this generation is made.
fn original<D: ClaimedDrive + ?Sized>(
    drive: &D,
    uuid: Uuid,
    generation: u64,
) -> Result<Original, CarveError> {
    let contents = drive.contents()?;
    let placed = drive.living(&contents, uuid)?;
    if generation.checked_sub(1) != Some(placed.record.place.generation()) {
        return Err(drive.not_there(placed));
    }
    Ok(Original {
        label: drive.label().drive_uuid,
        runs: drive.runs(placed)?,
    })
}

/// Where the copy of it is to be.
fn copy<D: ClaimedDrive + ?Sized>(
    drive: &D,
    uuid: Uuid,
    generation: u64,
    original: &Original,
) -> Result<Vec<Extent>, CarveError> {
    let contents = drive.contents()?;
    let placed = contents
        .volume(uuid)
        .ok_or_else(|| CarveError::NoSuchVolume {
            drive: drive.id().to_string(),
            uuid,
        })?;
    fit(placed)?;
    let is_meant = matches!(
        &placed.record.place,
        PlaceState::Incoming { generation: of, from } if *of == generation && from.label == original.label
    ) && !matches!(
        placed.record.state,
        RecordState::Creating | RecordState::Erasing { .. }
    );
    let to = drive.runs(placed)?;
    if !is_meant || runs::bytes(&to) != runs::bytes(&original.runs) {
        return Err(drive.not_there(placed));
    }
    Ok(to)
}
