//! Determines a drive's layout from its contents, read under its lock. Only a drive without a
//! layout gets the one of the claim.

use std::{path::Path, sync::Arc};

use uuid::Uuid;

use super::{
    claim::{self, is_labelled},
    claimed::ClaimedDrive,
    error::{LayoutError, damaged, io_error, other_sector},
    jobs::{
        Changed, CompleteSnapshots, Create, DropSnapshot, SetCordon, SnapshotDevice, TakeSnapshot,
    },
    lvm,
    marks::{self, Mark},
    open, partition,
};
use drivebay_model::{Contents, DriveRef, Label, Layout, RecordState, cause::chain};
use drivebay_sys::{blockdev::BlockDev, mount};
use drivebay_worker::Context;

/// Returns the layout of a claimed drive; None if it has no mark of Drivebay. Errs if it has marks
/// of both layouts, or of another sector size.
pub(super) fn of(dev: &BlockDev) -> Result<Option<Layout>, LayoutError> {
    let id = &dev.drive().id;
    match marks::read(dev).map_err(io_error(id, "looking for our label"))? {
        Mark::None(_) => Ok(None),
        Mark::Ours(layout) => Ok(Some(layout)),
        Mark::OtherSector(written) => Err(other_sector(id, written, dev.sector().into())),
        Mark::Both => Err(damaged(id, "it has the marks of both layouts".into())),
    }
}

/// Reads a claimed drive, which must be open and locked; with `repair`, repairs what is safe to
/// repair.
pub(super) fn claimed(
    dev: &BlockDev,
    repair: bool,
) -> Result<Box<dyn ClaimedDrive + '_>, LayoutError> {
    as_layout(dev, of(dev)?, repair)
}

/// Reads a drive in this layout. A drive without layout gets the error of layout `partition`.
fn as_layout(
    dev: &BlockDev,
    layout: Option<Layout>,
    repair: bool,
) -> Result<Box<dyn ClaimedDrive + '_>, LayoutError> {
    Ok(match layout {
        Some(Layout::Lvm) => Box::new(lvm::Session::open(dev, repair)?),
        _ => Box::new(partition::Session::open(dev, &dev.drive().id, repair)?),
    })
}

/// Returns the contents of a claimed drive. With `repair`, repairs what is safe to repair, and adds
/// missing volumes to the kernel; without it nothing is written and no process is started.
pub fn read_contents(drive: &DriveRef, repair: bool) -> Result<Contents, LayoutError> {
    if !repair {
        return read(&open::shared(drive)?);
    }
    let dev = open::locked(drive)?;
    match claimed(&dev, true) {
        Ok(session) => session.contents(),
        // A drive that cannot be repaired now may still be readable, and its active volumes usable.
        Err(error @ LayoutError::Damaged { .. }) => {
            let mut contents = read(&dev)?;
            contents.notes.push(chain(&error));
            Ok(contents)
        }
        Err(error) => Err(error),
    }
}

/// Returns the contents of a claimed drive that is open and locked already, without repairs.
pub(super) fn read(dev: &BlockDev) -> Result<Contents, LayoutError> {
    claimed(dev, false)?.contents()
}

/// Locks a claimed drive, reads it with repair, and makes a change; see `ClaimedDrive`.
pub(super) fn change(
    drive: &DriveRef,
    change: impl FnOnce(&mut dyn ClaimedDrive) -> Result<Changed, LayoutError>,
) -> Result<Changed, LayoutError> {
    change(&mut *claimed(&open::locked(drive)?, true)?)
}

/// Changes the state in a volume's record; see `Advance`.
pub fn advance(drive: &DriveRef, uuid: Uuid, to: &RecordState) -> Result<Changed, LayoutError> {
    change(drive, |drive| drive.advance(uuid, to))
}

/// Runs `SetCordon` under the drive's lock. A cordon that exists already is not replaced.
pub(super) fn set_cordon(job: &SetCordon) -> Result<Changed, LayoutError> {
    change(&job.drive, |drive| drive.set_cordon(job.cordon.as_ref()))
}

/// Creates a volume. Claims the drive first if it has no label and the job has a claim.
pub(super) fn create(job: &Create, context: &mut Context) -> Result<Changed, LayoutError> {
    let drive = &job.drive;
    let mut dev = open::locked(drive)?;
    let claim = job.claim.as_ref();
    let layout = of(&dev)?.or(claim.map(|claim| claim.layout));
    if let (Some(claim), Some(layout)) = (claim, layout)
        && !is_labelled(&dev, layout, claim)?
    {
        drop(dev);
        dev = claim::claim(drive, layout, claim, job.record.room_bytes(), context)?;
        context.step("create");
    }
    as_layout(&dev, layout, true)?.create(&job.record, job.raw_space, job.placement, &job.deleted)
}

/// Changes the owner of a drive if its label is still `from`.
pub(super) fn adopt(drive: &DriveRef, from: &Label, to: &Label) -> Result<Changed, LayoutError> {
    let dev = open::locked(drive)?;
    // Nothing may be repaired or activated before the label is known to be the expected one.
    claimed(&dev, false)?.is_adoptable(from, to)?;
    claimed(&dev, true)?.adopt(from, to)
}

/// Returns the snapshot for checking a volume, if there is one and it is active.
pub fn snapshot(drive: &DriveRef, uuid: Uuid) -> Result<Option<SnapshotDevice>, LayoutError> {
    let dev = open::shared(drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::check::find(&dev, uuid),
        _ => Ok(None),
    }
}

/// Writes what is pending for an encrypted volume that is open, before its drive is locked for a snapshot: the time for which it is
/// suspended has a limit, and all that is pending is written within it. What fails here fails there again.
fn write_pending(drive: &DriveRef, volume: Uuid, context: &mut Context) -> Result<(), LayoutError> {
    let contents = read_contents(drive, false)?;
    let Some(mapping) = contents
        .volume(volume)
        .and_then(|placed| placed.mapping.as_ref())
    else {
        return Ok(());
    };
    context.step("write what is pending for a volume");
    let node = Path::new("/dev").join(&mapping.device);
    if let Err(error) = mount::write_pending(&node, mapping.dev) {
        tracing::warn!(%volume, %error, "cannot write what is pending for a volume before its snapshot");
    }
    Ok(())
}

/// Runs `MakeSnapshot` under the drive's lock. Errs with `Busy` if the layout is not `lvm`, or an
/// earlier snapshot for checking exists.
pub(super) fn make_snapshot(
    drive: &DriveRef,
    uuid: Uuid,
    bytes: u64,
    context: &mut Context,
) -> Result<Contents, LayoutError> {
    write_pending(drive, uuid, context)?;
    let dev = Arc::new(open::locked(drive)?);
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::check::make(&dev, uuid, bytes, context),
        _ => Err(no_snapshots(drive)),
    }
}

/// Runs `TakeSnapshot` under the drive's lock. Errs with `Busy` if the layout is not `lvm`.
pub(super) fn take_snapshot(
    job: &TakeSnapshot,
    context: &mut Context,
) -> Result<Changed, LayoutError> {
    write_pending(&job.drive, job.record.volume, context)?;
    let dev = Arc::new(open::locked(&job.drive)?);
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::snapshot::take(&dev, job, context),
        _ => Err(no_snapshots(&job.drive)),
    }
}

/// Runs `CompleteSnapshots` under the drive's lock. Errs with `Busy` if the layout is not `lvm`.
pub(super) fn complete_snapshots(job: &CompleteSnapshots) -> Result<Changed, LayoutError> {
    let dev = open::locked(&job.drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::snapshot::complete(&dev, &job.uuids),
        _ => Err(no_snapshots(&job.drive)),
    }
}

/// Runs `DropSnapshot` under the drive's lock. Errs with `Busy` if the layout is not `lvm`.
pub(super) fn drop_snapshot(job: &DropSnapshot) -> Result<Changed, LayoutError> {
    let dev = open::locked(&job.drive)?;
    match of(&dev)? {
        Some(Layout::Lvm) => lvm::snapshot::drop_one(&dev, job.uuid),
        _ => Err(no_snapshots(&job.drive)),
    }
}

fn no_snapshots(drive: &DriveRef) -> LayoutError {
    LayoutError::Busy {
        drive: drive.id.to_string(),
        reason: "a partition has no snapshots".into(),
    }
}
