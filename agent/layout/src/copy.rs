//! Copies a volume to another drive, or a volume or a snapshot to a new volume, one bounded step at
//! a time.
//!
//! Each drive's lock is held only while its records are read. The ranges that are written are
//! reserved instead (`open::unlock_to_zero`): they are given to no other volume until the writing
//! process has ended. Bytes that a step reports as done were flushed, then read again from both
//! drives past the page cache, and were equal. The drives do not record progress: the caller keeps
//! the offset at which the next step continues.

mod ahead;
mod compare;
mod engine;
mod error;
mod parameters;
mod rate;
mod spans;
mod tail;
#[cfg(test)]
mod tests;

use std::{
    io,
    time::{Duration, Instant},
};

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
    error::{LOST, LayoutError, ambiguous, in_use, io_error},
    jobs::{CopyOf, CopyProgress, CopyStep},
    layout,
    lost::Marked,
    open,
};
use drivebay_model::{
    Contents, DriveId, Extent, PlaceState, Placed, RecordState, SnapshotRecord, runs,
};
use drivebay_sys::{blockdev::BlockDev, dm::Reader, holders, quiet};
use drivebay_worker::Context;

/// Shortest time between two reports of the same step to the agent.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Copies for about `budget_ms`, and then zeroes the rest of the target if the copy is complete.
/// Returns the progress; see [`CopyStep`].
pub(super) fn step(job: &CopyStep, context: &mut Context) -> Result<CopyProgress, CopyError> {
    context.step("copy volume: read records");
    let mut source = open::shared(&job.source).map_err(CopyError::Source)?;
    let original = layout::claimed(&source, false)
        .and_then(|drive| original(&*drive, job))
        .map_err(CopyError::Source)?;
    source.unlock();
    let writes = |expected| {
        original
            .writes(&job.source.id, expected)
            .map_err(CopyError::Source)
    };
    let source_writes = writes(job.source_writes)?;
    let mut target = open::locked(&job.target).map_err(CopyError::Target)?;
    let (runs, zeroing) = layout::claimed(&target, false)
        .and_then(|drive| Ok((copy(&*drive, job, &original)?, drive.space().zeroing)))
        .map_err(CopyError::Target)?;
    open::unlock_to_zero(&mut target, &runs).map_err(CopyError::Target)?;
    let mut last_report: Option<(String, Instant)> = None;
    let mut begin = |step: &str| {
        let is_recent =
            |(name, at): &(String, Instant)| name == step && at.elapsed() < REPORT_INTERVAL;
        if !last_report.as_ref().is_some_and(is_recent) {
            context.step(step);
            last_report = Some((step.to_owned(), Instant::now()));
        }
    };
    let mut rate = Rate::new(job.budget_ms, job.bytes_per_second);
    let done = match &original.device {
        Some(device) => copy_from(
            device, &target, job, &original, &runs, &mut rate, &mut begin,
        ),
        None => {
            // A mark of an earlier move is no data.
            let lost = original.volume.as_ref().and_then(|one| one.record.lost());
            let of = original
                .volume
                .as_ref()
                .map_or(job.uuid, |one| one.record.uuid);
            let lost = lost.unwrap_or_default();
            let source = Marked::new(&source, of, &original.runs, &lost);
            copy_from(
                &source, &target, job, &original, &runs, &mut rate, &mut begin,
            )
        }
    };
    let done = done.and_then(|mut progress| {
        if !progress.unreadable.is_empty() {
            still_answers(job)?;
        }
        if source_writes.is_some() {
            writes(source_writes)?;
        }
        progress.source_writes = source_writes;
        let tail = Tail {
            dev: &target,
            id: &job.target.id,
            runs: &runs,
            zeroing,
        };
        tail.zero(
            runs::bytes(&original.runs),
            job.from_bytes,
            &mut progress,
            &mut rate,
            &mut begin,
        )?;
        Ok(progress)
    });
    // udevd must find the drive locked when the writing descriptor closes.
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
        lost: &job.lost,
        volume: job.uuid,
    };
    both.run(job.from_bytes, rate, begin)
}

/// Distinguishes bad blocks from an unplugged drive, which fails every read: ranges count as
/// unreadable only if the drive answers after the failures.
///
/// # Errors
/// `Source`: the drive does not answer, or does not have the original any more.
fn still_answers(job: &CopyStep) -> Result<(), CopyError> {
    let read = open::shared(&job.source).and_then(|source| {
        let drive = layout::claimed(&source, false)?;
        original(&*drive, job).map(drop)
    });
    read.map_err(CopyError::Source)
}

/// The volume or snapshot that is copied.
#[derive(Debug)]
struct Original {
    /// The uuid in the label of its drive.
    label: Uuid,
    /// Ranges of its bytes, in its order: of the drive, or of `device` if there is one.
    runs: Vec<Extent>,
    /// Device of a snapshot. A snapshot must be read through it: its drive holds only the blocks
    /// that differ from the volume.
    device: Option<Reader>,
    /// The volume, unless this is a snapshot.
    volume: Option<Placed>,
}

impl Original {
    /// Returns the number of writes to the volume's own device; None if it has none, or this is a snapshot. `expected`: the number before;
    /// None: what the page cache has of the device is written back first, since the copy is read from the drive.
    ///
    /// # Errors
    /// `InUse`: it is mounted, or was written since.
    fn writes(&self, id: &DriveId, expected: Option<u64>) -> Result<Option<u64>, LayoutError> {
        let Some(volume) = &self.volume else {
            return Ok(None);
        };
        let (Some(name), Some(dev)) = (&volume.device, volume.dev) else {
            return Ok(None);
        };
        if expected.is_none() {
            match quiet::write_back(name, dev) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(in_use(volume, &holders::of_device(name, Some(dev))));
                }
                done => done.map_err(io_error(id, "writing back a volume that is copied"))?,
            }
        }
        let writes = quiet::writes(name);
        let writes = writes.map_err(io_error(id, "counting writes to a volume that is copied"))?;
        match expected.is_some() && writes != expected {
            true => Err(LayoutError::InUse {
                uuid: volume.record.uuid,
                held: format!("{name} was written while it was copied"),
            }),
            false => Ok(writes),
        }
    }
}

/// Finds the volume or snapshot that the job copies. Errs if it is not live, or of another
/// generation than the job expects.
fn original<D: ClaimedDrive + ?Sized>(drive: &D, job: &CopyStep) -> Result<Original, LayoutError> {
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
                volume: None,
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
        volume: Some(placed.clone()),
    })
}

/// Opens the device of a snapshot that is complete and not lost.
///
/// # Errors
/// `NoSnapshot`: it is missing, lost or incomplete, and a retry does not help. Others: a retry may
/// succeed.
fn snapshot_device(id: &DriveId, contents: &Contents, uuid: Uuid) -> Result<Reader, LayoutError> {
    let failed = |why: &str| LayoutError::NoSnapshot {
        drive: id.to_string(),
        uuid,
        why: why.to_owned(),
    };
    let snapshot = contents.snapshot(uuid);
    let snapshot = snapshot.ok_or_else(|| failed("it is not there"))?;
    if snapshot.is_overflowed {
        return Err(failed(LOST));
    }
    if let Some(why) = &snapshot.ambiguous {
        return Err(ambiguous(snapshot.record.volume, why.clone()));
    }
    let group = snapshot.record.group.as_ref().map(|group| group.uuid);
    let is_of_group =
        |one: &SnapshotRecord| one.uuid == uuid || group.is_some_and(|group| one.is_of(group));
    let mut all = contents.snapshots().map(|one| &one.record);
    if all.any(|one| is_of_group(one) && !one.is_complete) {
        return Err(failed("it, or its group, is not complete"));
    }
    let device = snapshot.device.as_deref().zip(snapshot.dev);
    let device = device.ok_or_else(|| io::Error::other("the kernel does not have its device"));
    device
        .and_then(|(name, dev)| Reader::open(name, dev, &snapshot.dm_uuid))
        .map_err(io_error(id, "opening a snapshot"))
}

/// Returns the ranges of the copy on its drive. Errs with `NotThere` unless it is a copy of this
/// original and generation, and large enough.
fn copy<D: ClaimedDrive + ?Sized>(
    drive: &D,
    job: &CopyStep,
    original: &Original,
) -> Result<Vec<Extent>, LayoutError> {
    let (uuid, generation) = (job.uuid, job.generation);
    let contents = drive.contents()?;
    let placed = drive.placed(&contents, uuid)?;
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
