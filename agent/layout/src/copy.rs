//! Copying a volume to its place on another drive, or a volume or a snapshot to a new volume, a bounded piece at a time.
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
mod tail;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use uuid::Uuid;

pub use self::error::CopyError;
use self::{
    engine::{Copy, Side},
    rate::Rate,
    tail::Tail,
};
use super::{
    claimed::ClaimedDrive,
    device::Medium,
    error::{CarveError, fit, io_error},
    jobs::{CopyOf, CopyProgress, CopyStep},
    layout, open,
};
use drivebay_model::{Contents, DriveId, Extent, PlaceState, RecordState, runs};
use drivebay_sys::{blockdev::BlockDev, dm::Reader};
use drivebay_worker::Context;

/// The agent hears of a step that goes on at most this often.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Copies for about the budget.
pub(super) fn step(job: &CopyStep, context: &mut Context) -> Result<CopyProgress, CopyError> {
    context.step("copy volume: read records");
    let mut source = open::shared(&job.source).map_err(CopyError::Source)?;
    let original = layout::claimed(&source, false)
        .and_then(|drive| original(&*drive, job))
        .map_err(CopyError::Source)?;
    source.unlock();
    let mut target = open::locked(&job.target).map_err(CopyError::Target)?;
    let (runs, zeroing) = layout::claimed(&target, false)
        .and_then(|drive| Ok((copy(&*drive, job, &original)?, drive.space().zeroing)))
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
    let mut rate = Rate::new(job.budget_ms, job.bytes_per_second);
    let done = match &original.device {
        Some(device) => copy_from(
            device, &target, job, &original, &runs, &mut rate, &mut begin,
        ),
        None => copy_from(
            &source, &target, job, &original, &runs, &mut rate, &mut begin,
        ),
    };
    let done = done.and_then(|mut progress| {
        let tail = Tail {
            dev: &target,
            id: &job.target.id,
            runs: &runs,
            zeroing,
        };
        tail.zero(
            runs::bytes(&original.runs),
            &mut progress,
            &mut rate,
            &mut begin,
        )?;
        Ok(progress)
    });
    // So that udevd finds the drive locked when the writing descriptor closes.
    let locked = open::lock(&mut target).map_err(CopyError::Target);
    let progress = done?;
    locked?;
    Ok(progress)
}

fn copy_from<S: Medium + Sync>(
    source: &S,
    target: &BlockDev,
    job: &CopyStep,
    original: &Original,
    runs: &[Extent],
    rate: &mut Rate,
    begin: &mut dyn FnMut(&str),
) -> Result<CopyProgress, CopyError> {
    let both = Copy {
        source: Side {
            dev: source,
            id: &job.source.id,
            runs: &original.runs,
        },
        target: Side {
            dev: target,
            id: &job.target.id,
            runs,
        },
        may_match: job.may_match,
        holds_nothing: &job.holds_nothing,
    };
    both.run(job.from_bytes, rate, begin)
}

/// What is copied.
#[derive(Debug)]
struct Original {
    /// The uuid in the label of its drive.
    label: Uuid,
    /// In its order: of the drive, or of `device`.
    runs: Vec<Extent>,
    /// A snapshot is read through its device alone: its drive has only what differs.
    device: Option<Reader>,
}

/// What the job copies, as it is on its drive.
fn original<D: ClaimedDrive + ?Sized>(drive: &D, job: &CopyStep) -> Result<Original, CarveError> {
    let contents = drive.contents()?;
    let label = drive.label().drive_uuid;
    let uuid = match job.of {
        CopyOf::Itself => job.uuid,
        CopyOf::Volume(uuid) => uuid,
        CopyOf::Snapshot(uuid) => {
            let device = snapshot_device(drive.id(), &contents, uuid)?;
            let whole = Extent {
                start: 0,
                len: device.size(),
            };
            return Ok(Original {
                label,
                runs: vec![whole],
                device: Some(device),
            });
        }
    };
    let placed = drive.living(&contents, uuid)?;
    let generation = placed.record.place.generation();
    if job.of == CopyOf::Itself && job.generation.checked_sub(1) != Some(generation) {
        return Err(drive.not_there(placed));
    }
    Ok(Original {
        label,
        runs: drive.runs(placed)?,
        device: None,
    })
}

/// The device of a snapshot that holds its volume.
fn snapshot_device(id: &DriveId, contents: &Contents, uuid: Uuid) -> Result<Reader, CarveError> {
    let failed = |why: &str| CarveError::NoSnapshot {
        drive: id.to_string(),
        uuid,
        why: why.to_owned(),
    };
    let mut all = contents.volumes.iter().flat_map(|placed| &placed.snapshots);
    let snapshot = all.find(|one| one.record.uuid == uuid);
    let snapshot = snapshot.ok_or_else(|| failed("it is not there"))?;
    if let Some(why) = &snapshot.ambiguous {
        return Err(failed(why));
    }
    if snapshot.is_overflowed {
        return Err(failed(
            "more was written to its volume than it had room for",
        ));
    }
    let device = snapshot.device.as_deref().zip(snapshot.dev);
    let (name, dev) = device.ok_or_else(|| failed("the kernel does not have it"))?;
    Reader::open(name, dev, &snapshot.dm_uuid).map_err(io_error(id, "opening a snapshot"))
}

/// Where the copy of it is to be.
fn copy<D: ClaimedDrive + ?Sized>(
    drive: &D,
    job: &CopyStep,
    original: &Original,
) -> Result<Vec<Extent>, CarveError> {
    let (uuid, generation) = (job.uuid, job.generation);
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
    let (has, needs) = (runs::bytes(&to), runs::bytes(&original.runs));
    let fits = match job.of {
        CopyOf::Itself => has == needs,
        CopyOf::Volume(_) | CopyOf::Snapshot(_) => placed.record.place.is_filling() && has >= needs,
    };
    if !is_meant || !fits {
        return Err(drive.not_there(placed));
    }
    Ok(to)
}
