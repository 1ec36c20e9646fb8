//! Claims drives. No other module writes to an unclaimed drive.
//!
//! All conditions are checked before anything is written: the drive is held with O_EXCL and locked,
//! the probe runs again in this process and finds it empty (and blank, if the class requires that),
//! the kernel has no partitions of it, and the volume will fit. The layout then writes its own
//! format.

use super::{
    claimable::{is_claimable, probe},
    error::{LayoutError, refused},
    jobs::Claim,
    lvm, open, partition, plan,
};
use drivebay_model::{Cause, DriveId, DriveRef, Label, Layout};
use drivebay_sys::blockdev::BlockDev;
use drivebay_worker::Context;

/// Returns the bytes available to volumes on a drive of this size after claiming it with this
/// layout; 0 if it is too small.
pub fn claimable_bytes(layout: Layout, size: u64, sector: u64) -> u64 {
    match layout {
        Layout::Partition => plan::claimable_bytes(size, sector),
        Layout::Lvm => lvm::plan::claimable_bytes(size),
    }
}

/// True if the drive has a label of the same cluster and node, false if it has none. Errs for
/// another owner's label.
pub(super) fn is_labelled(
    dev: &BlockDev,
    layout: Layout,
    claim: &Claim,
) -> Result<bool, LayoutError> {
    let id = &dev.drive().id;
    let label = match layout {
        Layout::Partition => partition::claim::label(dev, id)?,
        Layout::Lvm => lvm::claim::label(dev, id)?,
    };
    match label {
        Some(label) => same_owner(id, &label, claim).map(|()| true),
        None => Ok(false),
    }
}

/// Claims a drive for a volume of `bytes`, or finishes a claim that was interrupted. The returned
/// device still holds its lock.
pub(super) fn claim(
    drive: &DriveRef,
    layout: Layout,
    claim: &Claim,
    bytes: u64,
    context: &mut Context,
) -> Result<BlockDev, LayoutError> {
    let id = &drive.id;
    let mut dev = open::exclusive(drive)?;
    match layout {
        Layout::Partition => partition::claim::no_partitions(&dev, id)?,
        Layout::Lvm => lvm::claim::no_partitions(&dev, id)?,
    }
    room(&dev, layout, bytes)?;
    if layout == Layout::Lvm {
        // Checked before anything is written: a drive with a VG and without a volume could not be
        // claimed with the other layout.
        drivebay_sys::lvm::presence().map_err(|error| LayoutError::NoLvm {
            drive: id.to_string(),
            source: Cause::new(&error),
        })?;
    }
    context.step("look for an interrupted claim");
    let is_complete = match layout {
        Layout::Partition => partition::claim::resume(&dev, drive, claim, context)?,
        Layout::Lvm => lvm::claim::resume(&dev, id, claim.policy)?,
    };
    if is_complete {
        return Ok(dev);
    }
    context.step("probe before claiming");
    let probed = probe(drive, Some(claim.policy), context)?;
    is_claimable(id, &probed, claim.policy)?;
    context.step("claim");
    match layout {
        Layout::Partition => partition::claim::begin(&dev, id, claim)?,
        Layout::Lvm => {
            lvm::claim::clear(&dev, id, claim.policy)?;
            // LVM takes O_EXCL itself. The lock is kept: programs that respect it cannot change the
            // drive in between.
            dev.release_exclusive();
            lvm::claim::begin(&dev, id, claim)?;
        }
    }
    Ok(dev)
}

/// Fails if a volume of `bytes` does not fit on the drive in this layout.
fn room(dev: &BlockDev, layout: Layout, bytes: u64) -> Result<(), LayoutError> {
    let id = &dev.drive().id;
    let largest = claimable_bytes(layout, dev.size(), u64::from(dev.sector()));
    if largest == 0 {
        let reason = "TooSmall: it cannot hold what Drivebay keeps of it and a volume";
        return Err(refused(id, reason.into()));
    }
    match plan::rounded(bytes) {
        Some(needed) if needed <= largest => Ok(()),
        needed => Err(LayoutError::NoSpace {
            drive: id.to_string(),
            needed: needed.unwrap_or(bytes),
            largest,
        }),
    }
}

/// Fails unless cluster and node of the label are those of the claim.
fn same_owner(id: &DriveId, label: &Label, claim: &Claim) -> Result<(), LayoutError> {
    if (&label.cluster, &label.node) == (&claim.label.cluster, &claim.label.node) {
        return Ok(());
    }
    Err(refused(
        id,
        format!(
            "it belongs to cluster {:?}, node {:?}",
            label.cluster, label.node
        ),
    ))
}
