//! The `lvm` layout: a volume group (VG) of its own on each claimed drive, a linear logical
//! volume (LV) per volume, and everything durably known of a volume in that LV's tags.
//!
//! Reading takes no process: `metadata` reads what LVM wrote on the drive (`text` parses it, `vg` understands it); `tags` turns
//! records into tags and back; `name` knows what LVM takes for a name; `view` puts metadata and the kernel's
//! devices together; `plan` does the arithmetic. Changing is LVM's own business: `session` looks and repairs, `change`,
//! `advance` and `erase` run one `lvm` command per change, each followed by a flush of the drive, since LVM
//! does none, and by a copy of the metadata (`backup`). `check` makes and takes away the snapshots that volumes are checked by. `claim` makes a drive ours. This file opens drives for them.

mod adopt;
mod advance;
pub mod backup;
mod change;
mod check;
mod claim;
mod erase;
pub mod metadata;
pub mod name;
pub mod plan;
mod session;
pub mod tags;
pub mod text;
mod vg;
pub mod view;

use uuid::Uuid;

use super::{
    jobs::{Adopt, CarveError, Changed, Claim},
    partition::{self, LOCK_LIMIT, lock, lock_error, open},
};
use crate::model::{Contents, DriveRef, RecordState, VolumeSpec, cause::chain};
use crate::sys::blockdev::BlockDev;
use crate::worker::Context;
pub(super) use check::{clear as clear_snapshots, find as snapshot, make as make_snapshot};
pub(crate) use claim::is_ours;
pub(super) use erase::step as erase_step;
use session::Session;
pub use session::shown;

/// What a drive of ours holds. With `repair`, what is safe to repair is repaired under the lock, and LVs that the
/// kernel lacks are activated; without it nothing is written and no process is run.
pub(super) fn look(drive: &DriveRef, repair: bool) -> Result<Contents, CarveError> {
    let mut dev = open(drive)?;
    if repair {
        lock(&mut dev)?;
    } else {
        dev.lock_shared(LOCK_LIMIT)
            .map_err(|error| lock_error(drive, error))?;
    }
    match Session::open(&dev, repair) {
        Ok(session) => Ok(session.contents()),
        // What cannot be repaired now may still be read, and volumes that are active be used.
        Err(error @ CarveError::Damaged { .. }) if repair => {
            let mut contents = Session::open(&dev, false)?.contents();
            contents.notes.push(chain(&error));
            Ok(contents)
        }
        Err(error) => Err(error),
    }
}

/// The same through a drive that is open and locked already, without repairs.
pub(super) fn read(dev: &BlockDev) -> Result<Contents, CarveError> {
    Ok(Session::open(dev, false)?.contents())
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
        && !claim::is_labelled(&dev, claim)?
    {
        drop(dev);
        dev = claim::claim(drive, claim, spec, context)?;
    }
    context.step("create");
    Session::open(&dev, true)?.create(spec, deleted)
}

/// Grows a volume.
pub(super) fn expand(drive: &DriveRef, uuid: Uuid, size_bytes: u64) -> Result<Changed, CarveError> {
    changing(drive, |session| session.expand(uuid, size_bytes))
}

/// Takes a volume from the kernel and marks it for erasing.
pub(super) fn delete(drive: &DriveRef, uuid: Uuid) -> Result<Changed, CarveError> {
    changing(drive, |session| session.delete(uuid))
}

/// Moves a volume's record on, durably and read back.
pub(super) fn advance(
    drive: &DriveRef,
    uuid: Uuid,
    to: &RecordState,
) -> Result<Changed, CarveError> {
    changing(drive, |session| session.advance(uuid, to))
}

/// Makes the drive another node's, if its mark is still the one that was seen.
pub(super) fn adopt(job: &Adopt) -> Result<Changed, CarveError> {
    let mut dev = open(&job.drive)?;
    lock(&mut dev)?;
    // Nothing is repaired or activated before it is certain that it is the mark that was meant.
    partition::expected(&Session::open(&dev, false)?.view.mark.label, job)?;
    Session::open(&dev, true)?.adopt(job)
}

fn changing<T>(
    drive: &DriveRef,
    change: impl FnOnce(Session<'_>) -> Result<T, CarveError>,
) -> Result<T, CarveError> {
    let mut dev = partition::open(drive)?;
    lock(&mut dev)?;
    change(Session::open(&dev, true)?)
}

/// Takes the volumes of a drive of ours that is about to be wiped from the kernel; one in use is an error. A drive
/// that is not ours, or cannot be read, is left alone: O_EXCL refuses it while anything of it is active.
pub(super) fn deactivate(drive: &DriveRef) -> Result<(), CarveError> {
    let mut dev = open(drive)?;
    lock(&mut dev)?;
    let found =
        metadata::read(&dev).map_err(partition::io_error(&drive.id, "reading the LVM label"))?;
    if !is_ours(&found) {
        return Ok(());
    }
    match Session::open(&dev, false) {
        Ok(session) => session.deactivate_all(),
        Err(error @ CarveError::Io { .. }) => Err(error),
        Err(_) => Ok(()),
    }
}
