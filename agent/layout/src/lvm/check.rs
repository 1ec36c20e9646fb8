//! Short-lived snapshots by which mounted volumes are checked: made from free space, and removed in the end also after a crash.
//!
//! A snapshot is an LV `drivebay-check-<volume's uuid>` that stores what changes in the volume while it exists. What it stores is
//! a tenant's, so its space is zeroed before it is free again: it is parted from its volume first (from then on it is an LV of
//! its own that belongs to no volume), then renamed to `drivebay-erasing-snap-<erase guid>`, which marks it for erasing. Each of the steps
//! can be the last before a crash: the LV's name identifies it, and the next `ReadDrive` with repair parts and renames it. From then on it
//! is erased like a deleted volume (`erase`). A volume is resized or deleted only without a snapshot.
//! A snapshot that was deleted, or never completed (`snapshot`), goes the same way.

use std::{io, sync::Arc};

use uuid::Uuid;

use super::{metadata::Lv, name, session::Session, snapshot::Store, view};
use crate::{
    claimed::ClaimedDrive,
    error::{LayoutError, damaged, io_error},
    jobs::SnapshotDevice,
    space,
};
use drivebay_model::{Cause, Contents, cause::chain, encryption};
use drivebay_sys::{blockdev::BlockDev, dm};
use drivebay_worker::Context;

/// A tag for those who read `lvs`; what it is is known by its name.
const TAG: &str = "drivebay-check";

/// Creates and activates the snapshot for checking a volume, and returns the drive's contents with it. Errs with `Busy` while the drive has
/// an earlier one.
pub(crate) fn make(
    dev: &Arc<BlockDev>,
    uuid: Uuid,
    bytes: u64,
    context: &mut Context,
) -> Result<Contents, LayoutError> {
    let mut session = Session::open(dev, true)?;
    let contents = session.contents()?;
    let placed = session.living(&contents, uuid)?.clone();
    let lv = session.lv(uuid)?;
    if !session.view.checks.is_empty() {
        return Err(LayoutError::Busy {
            drive: session.id.to_string(),
            reason: "an earlier check's snapshot is not gone yet".into(),
        });
    }
    session.takes_snapshots(&lv)?;
    // LVM would zero its beginning through a name that udevd makes, and with `udev_sync=0` it does not wait for that name.
    let store = Store {
        name: name::check(uuid),
        tags: vec![TAG.to_owned()],
        bytes,
        need: space::Need::Zeros,
        chunk: None,
    };
    let done = session.attach(&lv, &store, context);
    session.see_again()?;
    if session.view.checks.contains_key(&uuid) {
        session.keep_copy()?;
    }
    let done = done.and_then(|()| match placed.mapping {
        Some(_) => {
            let lv = session.view.checks.get(&uuid);
            session.restart(dev, &placed, uuid, lv, context)
        }
        None => Ok(()),
    });
    if let Err(error) = done {
        if matches!(error, LayoutError::StillSuspended { .. }) {
            // LVM would wait for the volume; the snapshot is parted from it by a later repair.
            return Err(error);
        }
        // It may have been ended while the volume stood still: this sets it going again, and takes the snapshot from it.
        drop(session);
        Session::open(dev, true)?;
        return Err(error);
    }
    if active(&session, uuid).is_none() {
        return Err(damaged(
            &session.id,
            "the kernel does not have the snapshot that was made".into(),
        ));
    }
    session.contents()
}

/// The snapshot of a volume, when the kernel has it.
pub(crate) fn find(dev: &BlockDev, uuid: Uuid) -> Result<Option<SnapshotDevice>, LayoutError> {
    Ok(active(&Session::open(dev, false)?, uuid))
}

fn active(session: &Session<'_>, uuid: Uuid) -> Option<SnapshotDevice> {
    let lv = session.view.checks.get(&uuid)?;
    lv.snapshot_of.as_ref()?;
    let device = session.device(lv)?;
    Some(SnapshotDevice {
        device: device.kernel_name.clone(),
        dev: device.dev,
        dm_uuid: device.uuid.clone(),
    })
}

fn busy(session: &Session<'_>) -> LayoutError {
    LayoutError::LvmLocked {
        drive: session.id.to_string(),
        source: Cause::text("a check has a snapshot open; it ends within seconds"),
    }
}

impl Session<'_> {
    /// Parts snapshots that no process has open from their volumes, and marks them for erasing. They keep their space until they are
    /// erased. A step that fails is repeated by the next `ReadDrive` with repair.
    pub(super) fn part_checks(&mut self) -> Result<(), LayoutError> {
        let mut changed = self.drop_unknown_snapshots()?;
        let attached: Vec<Lv> = self
            .view
            .checks
            .values()
            .filter(|lv| lv.snapshot_of.is_some())
            .cloned()
            .collect();
        for lv in attached {
            self.close_decrypted(&lv)?;
            if self.is_open(&lv)? {
                continue;
            }
            let args = vec!["--splitsnapshot".into(), "--yes".into(), self.path(&lv)];
            match self.lvm_patiently("parting a snapshot from its volume", "lvconvert", args) {
                Ok(()) => changed = true,
                // The volume is fit for use with it; whoever needs it gone says so.
                Err(error) => {
                    tracing::warn!(drive = %self.id, lv = lv.name, error = %chain(&error), "cannot remove a check's snapshot yet");
                }
            }
        }
        if changed {
            self.see_again()?;
            self.keep_copy()?;
        }
        self.mark_stores()
    }

    /// Removes the device that decrypts the snapshot of an encrypted volume, if a check left it. One that is open is left.
    fn close_decrypted(&self, lv: &Lv) -> Result<(), LayoutError> {
        let Some(volume) = name::checked(&lv.name) else {
            return Ok(());
        };
        let uuid = encryption::checked_mapping(volume);
        let closed = dm::is_open(&uuid).and_then(|is_open| match is_open {
            true => Ok(false),
            false => dm::remove_mapped(&uuid),
        });
        match closed {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(()),
            closed => closed.map(drop).map_err(io_error(
                &self.id,
                "removing the decrypted device of a check's snapshot",
            )),
        }
    }

    /// Marks the stores that are parted from their volumes for erasing, each with an identity of its own: a tenant cannot have written a
    /// progress for it before (`note`). One whose device is open is left for a later attempt.
    fn mark_stores(&mut self) -> Result<(), LayoutError> {
        let checks = self.view.checks.values();
        let parted = checks.filter(|lv| lv.snapshot_of.is_none() && lv.strange.is_none());
        let parted: Vec<Lv> = parted.cloned().collect();
        let mut changed = false;
        for lv in parted {
            let taken = match self.take_store_from_kernel(&lv) {
                Ok(false) => Err(self.lv_in_use(&lv)),
                taken => taken,
            };
            // A command that failed may have written the name.
            changed |= taken.is_ok();
            let what = "marking a deleted snapshot for erasing";
            let args = vec![
                self.vg().into(),
                lv.name.clone().into(),
                name::erasing_store(Uuid::new_v4()).into(),
            ];
            if let Err(error) = taken.and_then(|_| self.lvm(what, "lvrename", args)) {
                tracing::warn!(drive = %self.id, lv = lv.name, error = %chain(&error), "cannot mark a deleted snapshot for erasing yet");
            }
        }
        if changed {
            self.see_again()?;
            self.keep_copy()?;
        }
        Ok(())
    }

    /// Removes the kernel's devices of a store that is split from its volume; false while one of them is open. LVM leaves one behind
    /// (`-cow`) if udevd has it open at that moment, and it would count as a foreign device on the drive.
    fn take_store_from_kernel(&self, lv: &Lv) -> Result<bool, LayoutError> {
        let uuid = format!("{}-cow", view::dm_uuid(&self.committed.vg, lv));
        let removed = |result: io::Result<()>| match result {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            Err(error) => Err(io_error(
                &self.id,
                "taking a snapshot's store from the kernel",
            )(error)),
        };
        // The snapshot's own device, if the kernel still has it, keeps the store open.
        let was_free = removed(self.remove_device(&uuid))?;
        let is_free = self.take_from_kernel(lv)?;
        Ok(is_free && (was_free || removed(self.remove_device(&uuid))?))
    }

    /// Removes devices of snapshots that the kernel has and LVM's metadata do not: an `lvconvert` that attached or parted one was killed
    /// while its volume was suspended, and resuming the volume put the tables in use that were loaded. LVM can part no other snapshot of
    /// the volume meanwhile. One that is open is left for a later look. Returns whether any was removed.
    fn drop_unknown_snapshots(&self) -> Result<bool, LayoutError> {
        let (vg, drive) = (&self.committed.vg, &self.dev.drive().kernel_name);
        let mut removed = false;
        for lv in self.view.checks.values() {
            let store = format!("{}-cow", view::dm_uuid(vg, lv));
            if lv.snapshot_of.is_some() || dm::on_drive(&self.dm, drive, &store).is_none() {
                continue;
            }
            if self.take_store_from_kernel(lv)? {
                removed = true;
            } else {
                tracing::warn!(drive = %self.id, lv = lv.name, "cannot remove the device of a snapshot that LVM does not have; it is open");
            }
        }
        Ok(removed)
    }

    /// True if the snapshot's device is open; false if the kernel has no such device. Errs if its status cannot be read.
    pub(super) fn is_open(&self, lv: &Lv) -> Result<bool, LayoutError> {
        let Some(device) = self.device(lv) else {
            return Ok(false);
        };
        dm::is_open(&device.uuid).map_err(io_error(&self.id, "asking whether a snapshot is in use"))
    }

    /// Fails while a check has a snapshot of the volume, or one that was deleted is not parted from it.
    pub(super) fn unchecked(&self, uuid: Uuid) -> Result<(), LayoutError> {
        let lv = self.lv(uuid)?;
        let attached = |one: &Lv| one.snapshot_of.as_ref() == Some(&lv.name);
        if self.view.checks.values().any(attached) {
            return Err(busy(self));
        }
        Ok(())
    }
}
