//! The `partition` layout at work: looks at a drive, completes what was interrupted, and makes
//! each change in an order that a crash at any point cannot turn into a loss.
//!
//! Every change is: intent in the label, durable; table, backup copy first; kernel (BLKPG);
//! result in the label, durable. `session` reads and repairs, `change` changes; both are written
//! over `Device` and `Kernel`, so that tests cut the power of a drive in memory after every
//! write. `claim` makes a drive ours. This file opens real drives for them.

mod adopt;
mod advance;
#[cfg(test)]
mod bad_blocks;
mod change;
pub(super) mod claim;
mod session;
#[cfg(test)]
mod tests;

use std::{io, time::Duration};

use uuid::Uuid;

use super::jobs::{Adopt, CarveError, Changed, Claim};
use crate::model::{Cause, Contents, DriveId, DriveRef, RecordState, VolumeSpec};
use crate::sys::{
    blockdev::{BlockDev, BlockDevError},
    drive::OpenError,
};
use crate::worker::Context;

pub(super) use adopt::{adopted, expected};
pub(super) use advance::{may_advance, named};
pub(super) use change::{fit, in_use, ready_space, zero_ends};
pub use session::Session;

/// How long another program may hold the drive's flock. Holders that behave (udevd probing, a
/// table being written) need well under a second.
pub(super) const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// What a drive of ours holds. With `repair`, everything that is safe to repair is repaired,
/// under the lock; without it nothing is written and the drive is not even opened for writing.
pub fn look(drive: &DriveRef, repair: bool) -> Result<Contents, CarveError> {
    let mut dev = open(drive)?;
    if repair {
        lock(&mut dev)?;
    } else {
        // Without it, a change that another worker makes right now would look like damage.
        dev.lock_shared(LOCK_LIMIT)
            .map_err(|error| lock_error(drive, error))?;
    }
    Session::open(&dev, &drive.id, repair)?.contents()
}

/// Carves a volume, claiming the drive first when that is asked for and needed.
pub(super) fn create(
    drive: &DriveRef,
    claim: Option<&Claim>,
    spec: &VolumeSpec,
    deleted: &[Uuid],
    context: &mut Context,
) -> Result<Changed, CarveError> {
    let mut dev = open(drive)?;
    lock(&mut dev)?;
    if let Some(claim) = claim
        && !claim::is_labelled(&dev, &drive.id, claim)?
    {
        drop(dev);
        dev = claim::claim(drive, claim, spec, context)?;
    }
    Session::open(&dev, &drive.id, true)?.create_beside(spec, deleted)
}

/// Grows a volume in place.
pub(super) fn expand(drive: &DriveRef, uuid: Uuid, size_bytes: u64) -> Result<Changed, CarveError> {
    changing(drive, |session| session.expand(uuid, size_bytes))
}

/// Takes a volume from the kernel and marks it for erasing.
pub(super) fn delete(drive: &DriveRef, uuid: Uuid) -> Result<Changed, CarveError> {
    changing(drive, |session| session.delete(uuid))
}

/// Moves a volume's record on, durably and read back, before the step that needs it.
pub fn advance(drive: &DriveRef, uuid: Uuid, to: RecordState) -> Result<Changed, CarveError> {
    changing(drive, |session| session.advance(uuid, &to))
}

/// Makes the drive another node's, if its label is still the one that was seen.
pub(super) fn adopt(job: &Adopt) -> Result<Changed, CarveError> {
    let drive = &job.drive;
    let mut dev = open(drive)?;
    lock(&mut dev)?;
    // Nothing is repaired before it is certain that it is the label that was meant.
    let seen = Session::open(&dev, &drive.id, false)?;
    adopt::expected(&seen.label.content.label, job)?;
    Session::open(&dev, &drive.id, true)?.adopt(job)
}

fn changing<T>(
    drive: &DriveRef,
    change: impl FnOnce(Session<'_, BlockDev>) -> Result<T, CarveError>,
) -> Result<T, CarveError> {
    let mut dev = open(drive)?;
    lock(&mut dev)?;
    change(Session::open(&dev, &drive.id, true)?)
}

/// Opens a drive for reading, verified.
pub(super) fn open(drive: &DriveRef) -> Result<BlockDev, CarveError> {
    BlockDev::open(drive).map_err(|error| open_error(drive, error))
}

/// Takes the drive's flock.
pub(super) fn lock(dev: &mut BlockDev) -> Result<(), CarveError> {
    dev.lock(LOCK_LIMIT)
        .map_err(|error| lock_error(&dev.drive().clone(), error))
}

/// An open that failed, in carving's words.
pub(super) fn open_error(drive: &DriveRef, error: OpenError) -> CarveError {
    let id = drive.id.to_string();
    match error {
        OpenError::NotThisDrive { seen, .. } => CarveError::NotThisDrive {
            drive: id,
            kernel_name: drive.kernel_name.clone(),
            seen,
        },
        OpenError::Gone { .. } => CarveError::NotThisDrive {
            drive: id,
            kernel_name: drive.kernel_name.clone(),
            seen: "no device".to_owned(),
        },
        OpenError::Busy(node) => CarveError::Busy {
            drive: id,
            reason: format!(
                "{node} or a partition of it is mounted, or held by another device or program"
            ),
        },
        OpenError::Io { node, source } => CarveError::Io {
            drive: id,
            what: format!("opening {node}"),
            source: source.into(),
        },
    }
}

/// A lock that was not had, in carving's words.
pub(super) fn lock_error(drive: &DriveRef, error: BlockDevError) -> CarveError {
    match error {
        BlockDevError::Open(error) => open_error(drive, error),
        BlockDevError::Locked { waited_ms, .. } => CarveError::Locked {
            drive: drive.id.to_string(),
            waited_ms,
        },
    }
}

/// A failed system call, in carving's words.
pub(super) fn io_error(
    drive: &DriveId,
    what: &str,
) -> impl FnOnce(io::Error) -> CarveError + use<> {
    let (drive, what) = (drive.to_string(), what.to_owned());
    move |source| CarveError::Io {
        drive,
        what,
        source: Cause::from(source),
    }
}
