//! Which layout a drive has: what is on it decides, read at that moment under its lock; only for a drive that has neither
//! does the claim say how it is to be carved.

use uuid::Uuid;

use super::{
    claim::{self, is_labelled},
    claimed::ClaimedDrive,
    error::{CarveError, damaged, io_error, other_sector},
    jobs::{Changed, Create, DropSnapshot, SetCordon, SnapshotDevice, TakeSnapshot},
    lvm,
    marks::{self, Mark},
    open, partition,
};
use drivebay_model::{Contents, DriveRef, Label, Layout, RecordState, cause::chain};
use drivebay_sys::blockdev::BlockDev;
use drivebay_worker::Context;

/// Which layout a drive carries; None: neither is ours.
pub(super) fn of(dev: &BlockDev) -> Result<Option<Layout>, CarveError> {
    let id = &dev.drive().id;
    match marks::read(dev).map_err(io_error(id, "looking for our label"))? {
        Mark::None(_) => Ok(None),
        Mark::Ours(layout) => Ok(Some(layout)),
        Mark::OtherSector(written) => Err(other_sector(id, written, dev.sector().into())),
        Mark::Both => Err(damaged(id, "it has the marks of both layouts".into())),
    }
}

/// A drive of ours through one that is open and locked, repaired when asked to.
pub(super) fn claimed(
    dev: &BlockDev,
    repair: bool,
) -> Result<Box<dyn ClaimedDrive + '_>, CarveError> {
    as_layout(dev, of(dev)?, repair)
}

/// One that is none says so in the words of layout `partition`.
fn as_layout(
    dev: &BlockDev,
    layout: Option<Layout>,
    repair: bool,
) -> Result<Box<dyn ClaimedDrive + '_>, CarveError> {
    Ok(match layout {
        Some(Layout::Lvm) => Box::new(lvm::Session::open(dev, repair)?),
        _ => Box::new(partition::Session::open(dev, &dev.drive().id, repair)?),
    })
}

/// What a drive of ours holds. With `repair`, what is safe to repair is repaired, and the kernel gets the volumes that it
/// lacks; without it nothing is written and no process is run.
pub fn look(drive: &DriveRef, repair: bool) -> Result<Contents, CarveError> {
    if !repair {
        return read(&open::shared(drive)?);
    }
    let dev = open::locked(drive)?;
    match claimed(&dev, true) {
        Ok(session) => session.contents(),
        // What cannot be repaired now may still be read, and volumes that are active be used.
        Err(error @ CarveError::Damaged { .. }) => {
            let mut contents = read(&dev)?;
            contents.notes.push(chain(&error));
            Ok(contents)
        }
        Err(error) => Err(error),
    }
}

/// The same through a drive that is open and locked already, without repairs.
pub(super) fn read(dev: &BlockDev) -> Result<Contents, CarveError> {
    claimed(dev, false)?.contents()
}

/// Makes a change to a drive of ours; see `ClaimedDrive`.
pub(super) fn change(
    drive: &DriveRef,
    change: impl FnOnce(&mut dyn ClaimedDrive) -> Result<Changed, CarveError>,
) -> Result<Changed, CarveError> {
    change(&mut *claimed(&open::locked(drive)?, true)?)
}

/// Moves a volume's record on; see `Advance`.
pub fn advance(drive: &DriveRef, uuid: Uuid, to: &RecordState) -> Result<Changed, CarveError> {
    change(drive, |drive| drive.advance(uuid, to))
}

/// See `SetCordon`.
pub(super) fn set_cordon(job: &SetCordon) -> Result<Changed, CarveError> {
    change(&job.drive, |drive| drive.set_cordon(job.cordon.as_ref()))
}

/// Carves a volume, claiming the drive first when that is asked for and needed.
pub(super) fn create(job: &Create, context: &mut Context) -> Result<Changed, CarveError> {
    let drive = &job.drive;
    let mut dev = open::locked(drive)?;
    let claim = job.claim.as_ref();
    let layout = of(&dev)?.or(claim.map(|claim| claim.layout));
    if let (Some(claim), Some(layout)) = (claim, layout)
        && !is_labelled(&dev, layout, claim)?
    {
        drop(dev);
        dev = claim::claim(drive, layout, claim, job.record.requested_bytes, context)?;
        context.step("create");
    }
    as_layout(&dev, layout, true)?.create(&job.record, job.raw_space, job.placement, &job.deleted)
}

/// Makes the drive another node's, if its label is still the one that was seen.
pub(super) fn adopt(drive: &DriveRef, from: &Label, to: &Label) -> Result<Changed, CarveError> {
    let dev = open::locked(drive)?;
    // Nothing is repaired or activated before it is certain that it is the label that was meant.
    claimed(&dev, false)?.is_adoptable(from, to)?;
    claimed(&dev, true)?.adopt(from, to)
}

/// The snapshot by which a volume is checked, when there is one and it is active.
pub fn snapshot(drive: &DriveRef, uuid: Uuid) -> Result<Option<SnapshotDevice>, CarveError> {
    let dev = open::shared(drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::check::find(&dev, uuid),
        _ => Ok(None),
    }
}

/// See `MakeSnapshot`.
pub(super) fn make_snapshot(
    drive: &DriveRef,
    uuid: Uuid,
    bytes: u64,
    context: &mut Context,
) -> Result<Contents, CarveError> {
    let dev = open::locked(drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::check::make(&dev, uuid, bytes, context),
        _ => Err(no_snapshots(drive)),
    }
}

/// See `TakeSnapshot`.
pub(super) fn take_snapshot(
    job: &TakeSnapshot,
    context: &mut Context,
) -> Result<Changed, CarveError> {
    let dev = open::locked(&job.drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::snapshot::take(&dev, job, context),
        _ => Err(no_snapshots(&job.drive)),
    }
}

/// See `DropSnapshot`.
pub(super) fn drop_snapshot(job: &DropSnapshot) -> Result<Changed, CarveError> {
    let dev = open::locked(&job.drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::snapshot::drop_one(&dev, job.uuid),
        _ => Err(no_snapshots(&job.drive)),
    }
}

fn no_snapshots(drive: &DriveRef) -> CarveError {
    CarveError::Busy {
        drive: drive.id.to_string(),
        reason: "a partition has no snapshots".into(),
    }
}

/// See `ClearSnapshots`.
pub(super) fn clear_snapshots(
    drive: &DriveRef,
    context: &mut Context,
) -> Result<Option<Contents>, CarveError> {
    let mut dev = open::locked(drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::check::clear(&mut dev, context),
        _ => Ok(None),
    }
}
