//! Which layout a drive has, and the jobs for it. What is on the drive decides, read at that moment;
//! only for a drive that has neither does the claim say how it is to be carved.

use uuid::Uuid;

use super::{
    erase,
    jobs::{Adopt, CarveError, Changed, Claim, EraseProgress, MakeSnapshot, Snapshot},
    lvm,
    marks::{self, Mark},
    partition::{self, io_error},
};
use crate::model::{Contents, DriveRef, Layout, RecordState, VolumeSpec};
use crate::sys::blockdev::BlockDev;
use crate::worker::Context;

/// Bytes that volumes could have on a drive of this size once it is claimed so; 0 when it is too small.
pub fn claimable_bytes(layout: Layout, size: u64, sector: u64) -> u64 {
    match layout {
        Layout::Partition => super::plan::claimable_bytes(size, sector),
        Layout::Lvm => lvm::plan::claimable_bytes(size),
    }
}

/// Which layout a drive carries; None: neither is ours.
fn of(drive: &DriveRef) -> Result<Option<Layout>, CarveError> {
    of_open(&partition::open(drive)?)
}

fn of_open(dev: &BlockDev) -> Result<Option<Layout>, CarveError> {
    let id = &dev.drive().id;
    match marks::read(dev).map_err(io_error(id, "looking for our label"))? {
        Mark::None(_) => Ok(None),
        Mark::Ours(layout) => Ok(Some(layout)),
        Mark::Both => Err(CarveError::Damaged {
            drive: id.to_string(),
            reason: "it has the marks of both layouts".into(),
        }),
    }
}

/// What a drive of ours holds; see `Look`.
pub fn look(drive: &DriveRef, repair: bool) -> Result<Contents, CarveError> {
    match of(drive)? {
        Some(Layout::Lvm) => lvm::look(drive, repair),
        _ => partition::look(drive, repair),
    }
}

/// The same through a drive that is open and locked already, without repairs.
pub(super) fn read(dev: &BlockDev) -> Result<Contents, CarveError> {
    match of_open(dev)? {
        Some(Layout::Lvm) => lvm::read(dev),
        _ => partition::Session::open(dev, &dev.drive().id, false)?.contents(),
    }
}

/// Moves a volume's record on; see `Advance`.
pub fn advance(drive: &DriveRef, uuid: Uuid, to: RecordState) -> Result<Changed, CarveError> {
    match of(drive)? {
        Some(Layout::Lvm) => lvm::advance(drive, uuid, &to),
        _ => partition::advance(drive, uuid, to),
    }
}

pub(super) fn create(
    drive: &DriveRef,
    claim: Option<&Claim>,
    spec: &VolumeSpec,
    deleted: &[Uuid],
    context: &mut Context,
) -> Result<Changed, CarveError> {
    match of(drive)?.or(claim.map(|claim| claim.layout)) {
        Some(Layout::Lvm) => lvm::create(drive, claim, spec, deleted, context),
        _ => partition::create(drive, claim, spec, deleted, context),
    }
}

pub(super) fn expand(drive: &DriveRef, uuid: Uuid, size_bytes: u64) -> Result<Changed, CarveError> {
    match of(drive)? {
        Some(Layout::Lvm) => lvm::expand(drive, uuid, size_bytes),
        _ => partition::expand(drive, uuid, size_bytes),
    }
}

pub(super) fn delete(drive: &DriveRef, uuid: Uuid) -> Result<Changed, CarveError> {
    match of(drive)? {
        Some(Layout::Lvm) => lvm::delete(drive, uuid),
        _ => partition::delete(drive, uuid),
    }
}

/// Makes the drive another node's; see `Adopt`.
pub(super) fn adopt(job: &Adopt) -> Result<Changed, CarveError> {
    match of(&job.drive)? {
        Some(Layout::Lvm) => lvm::adopt(job),
        _ => partition::adopt(job),
    }
}

pub(super) fn erase_step(
    drive: &DriveRef,
    uuid: Uuid,
    from_bytes: Option<u64>,
    budget_ms: u64,
    context: &mut Context,
) -> Result<EraseProgress, CarveError> {
    match of(drive)? {
        Some(Layout::Lvm) => lvm::erase_step(drive, uuid, from_bytes, budget_ms, context),
        _ => erase::step(drive, uuid, from_bytes, budget_ms, context),
    }
}

/// See `MakeSnapshot`.
pub(super) fn make_snapshot(
    job: &MakeSnapshot,
    context: &mut Context,
) -> Result<Contents, CarveError> {
    match of(&job.drive)? {
        Some(Layout::Lvm) => lvm::make_snapshot(job, context),
        _ => Err(CarveError::Busy {
            drive: job.drive.id.to_string(),
            reason: "a partition has no snapshots".into(),
        }),
    }
}

/// See `ClearSnapshots`.
pub(super) fn clear_snapshots(
    drive: &DriveRef,
    context: &mut Context,
) -> Result<Option<Contents>, CarveError> {
    match of(drive)? {
        Some(Layout::Lvm) => lvm::clear_snapshots(drive, context),
        _ => Ok(None),
    }
}

/// The snapshot by which a volume is checked, when there is one and it is active.
pub fn snapshot(drive: &DriveRef, uuid: Uuid) -> Result<Option<Snapshot>, CarveError> {
    match of(drive)? {
        Some(Layout::Lvm) => lvm::snapshot(drive, uuid),
        _ => Ok(None),
    }
}
