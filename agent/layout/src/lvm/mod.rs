//! The `lvm` layout: a volume group (VG) on each claimed drive, a linear logical volume (LV) per
//! volume, and all durable records of a volume in the tags of its LV.
//!
//! Reading starts no process: `metadata` reads what LVM wrote on the drive (`text` parses the
//! format, `vg` the contents); `tags` converts records to tags and back; `name` has the rules for
//! LVM's names; `view` combines the metadata with the kernel's devices; `plan` does the arithmetic;
//! `label` restores LVM's label and the header of its metadata area, `unreadable` the sectors that
//! only LVM reads. LVM itself makes the changes: `session` reads and repairs, `change` runs one
//! `lvm` command per change, each followed by a flush of the drive, since LVM does none, and by a
//! copy of the metadata (`backup`). `note` records the progress of erasing; `check` creates the
//! snapshots for checking volumes, and marks them and deleted ones for erasing; `snapshot` takes
//! those of users; `claim` claims a drive.
//! Without LVM: `together` takes the snapshots of a group at one point in time, while `suspension`
//! has all their volumes suspended, and `left` resumes volumes that were left suspended. These run
//! in threads of their own (`aside`), which a drive that does not answer keeps.

mod aside;
pub mod backup;
mod change;
pub(super) mod check;
pub(super) mod claim;
pub mod label;
pub(super) mod left;
pub mod metadata;
pub mod name;
mod note;
pub mod plan;
mod pv;
mod session;
pub mod snapshot;
mod suspension;
pub mod tags;
pub mod text;
pub(super) mod together;
pub mod unreadable;
mod vg;
pub mod view;

use super::{
    error::{Fault, LayoutError, io_error},
    open,
};
use drivebay_model::DriveRef;
pub use pv::is_ours;
pub(super) use session::Session;
pub use session::shown;

/// Removes the volumes of a Drivebay drive from the kernel before it is wiped or released; errs
/// with `Busy` if one is in use. Does nothing for a drive of another owner, or one whose contents
/// are invalid: O_EXCL refuses it while anything of it is active.
pub(super) fn deactivate(drive: &DriveRef) -> Result<(), LayoutError> {
    let dev = open::locked(drive)?;
    let contents = metadata::read(&dev).map_err(io_error(&drive.id, "reading the LVM label"))?;
    if !is_ours(&contents) {
        return Ok(());
    }
    match Session::open(&dev, false) {
        Ok(session) => session.deactivate_all(),
        Err(error) if matches!(error, LayoutError::Io { .. }) || error.fault() != Fault::Drive => {
            Err(error)
        }
        Err(_) => Ok(()),
    }
}
