//! The `lvm` layout: a volume group (VG) of its own on each claimed drive, a linear logical
//! volume (LV) per volume, and everything durably known of a volume in that LV's tags.
//!
//! Reading takes no process: `metadata` reads what LVM wrote on the drive (`text` parses it, `vg` understands it); `tags` turns
//! records into tags and back; `name` knows what LVM takes for a name; `view` puts metadata and the kernel's
//! devices together; `plan` does the arithmetic; `label` makes LVM's label and area header again, `unreadable` the sectors that only LVM
//! reads. Changing is LVM's own business: `session` looks and repairs, `change` runs one `lvm` command per change, each followed by
//! a flush of the drive, since LVM does none, and by a copy of the metadata (`backup`). `note` is how far erasing got; `check` makes and takes away the snapshots that volumes are checked by;
//! `claim` makes a drive ours.

pub mod backup;
mod change;
pub(super) mod check;
pub(super) mod claim;
pub mod label;
pub mod metadata;
pub mod name;
mod note;
pub mod plan;
mod pv;
mod session;
pub mod snapshot;
pub mod tags;
pub mod text;
pub mod unreadable;
mod vg;
pub mod view;

use super::{
    error::{CarveError, Fault, io_error},
    open,
};
use drivebay_model::DriveRef;
pub use pv::is_ours;
pub(super) use session::Session;
pub use session::shown;

/// Takes the volumes of a drive of ours that is about to be wiped from the kernel; one in use is an error. A drive
/// that is not ours, or cannot be read, is left alone: O_EXCL refuses it while anything of it is active.
pub(super) fn deactivate(drive: &DriveRef) -> Result<(), CarveError> {
    let dev = open::locked(drive)?;
    let found = metadata::read(&dev).map_err(io_error(&drive.id, "reading the LVM label"))?;
    if !is_ours(&found) {
        return Ok(());
    }
    match Session::open(&dev, false) {
        Ok(session) => session.deactivate_all(),
        Err(error) if matches!(error, CarveError::Io { .. }) || error.fault() != Fault::Drive => {
            Err(error)
        }
        Err(_) => Ok(()),
    }
}
