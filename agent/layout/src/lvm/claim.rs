//! Claims a drive with a PV and a VG of its own, and undoes a claim that was interrupted.
//!
//! There are two commands: `pvcreate` (only it reserves space for copies of the metadata), then
//! `vgcreate`. The PV's uuid is derived from the drive's uuid and recognisable (`pv`), so that a
//! crash between the two leaves a drive that is known to be Drivebay's: a PV without a VG, or with
//! the torn text of its first version, followed by zeros. The next claim blanks it and starts again.
//!
//! Both run without LVM's locks. They would take the lock of all VGs on the host, which a command
//! that hangs on a dead drive never releases. The drive is held under its flock, and no other
//! program uses its VG's name.

use std::ffi::OsString;

use super::{
    label::{AREA, NO_TEXT, write_area},
    metadata::{self, PvContents},
    name, plan,
    pv::{drive_uuid_of, is_unfinished, never_complete, pv_uuid},
    session::{self, Session, lvm_error},
    tags::{self, VgMark},
};
use crate::{
    claimable,
    device::{Device, Medium},
    error::{LayoutError, damaged, io_error},
    jobs::Claim,
    space,
};
use drivebay_model::{ClaimPolicy, DriveId, Extent, Label, MIB, Zeroing, units::human_sizes};
use drivebay_sys::{blockdev::BlockDev, lvm};

/// Returns the label in the tags of Drivebay's VG on a drive; None if it has no such VG.
pub(crate) fn label<D: Medium + ?Sized>(
    dev: &D,
    id: &DriveId,
) -> Result<Option<Label>, LayoutError> {
    let committed = match metadata::read(dev).map_err(io_error(id, "reading the LVM label"))? {
        PvContents::Vg(committed) => *committed,
        PvContents::Torn(torn) if drive_uuid_of(&torn.header.uuid).is_some() => {
            match session::copy_of(dev, id, &torn) {
                Err(LayoutError::Unlabelled { .. }) => return Ok(None),
                copy => copy?,
            }
        }
        _ => return Ok(None),
    };
    match tags::vg(&committed.vg.tags) {
        tags::Read::Ours(mark) => Ok(Some(mark.label)),
        tags::Read::Broken { why, .. } => Err(damaged(id, why)),
        tags::Read::Stranger => Ok(None),
    }
}

/// Fails if the kernel has partitions of the drive.
pub(crate) fn no_partitions(dev: &BlockDev, id: &DriveId) -> Result<(), LayoutError> {
    let partitions = dev
        .partitions()
        .map_err(io_error(id, "reading the kernel's partitions"))?;
    claimable::no_partition(id, partitions.first())
}

/// Undoes a claim that was interrupted after the PV, if the drive has nothing else. Always returns
/// false: a claim that can be undone was never complete.
pub(crate) fn resume<D: Device>(
    dev: &D,
    id: &DriveId,
    policy: ClaimPolicy,
) -> Result<bool, LayoutError> {
    let contents = metadata::read(dev).map_err(io_error(id, "reading the LVM label"))?;
    let is_torn = match contents {
        PvContents::Orphan(header) if drive_uuid_of(&header.uuid).is_some() => {
            never_complete(dev, id, &header)?;
            false
        }
        PvContents::Torn(torn) => {
            let is_unfinished = is_unfinished(dev, &torn);
            if !is_unfinished.map_err(io_error(id, "reading LVM's metadata"))? {
                return Ok(false);
            }
            true
        }
        // The probe decides about all other contents.
        _ => return Ok(false),
    };
    claimable::no_table(dev, id)?;
    if policy == ClaimPolicy::Blank {
        let behind = Extent {
            start: plan::METADATA_END,
            len: dev.size() - plan::METADATA_END,
        };
        claimable::is_blank(dev, id, behind)?;
    }
    // After each step the drive is recognised as an unfinished claim, or has no label: first the
    // header has no text, then the area has none, then no header. A text without a header would be
    // damage.
    let what = "undoing an interrupted claim";
    if is_torn {
        write_area(dev, AREA, NO_TEXT).map_err(io_error(id, what))?;
    }
    let run = |start, end: u64| Extent {
        start,
        len: end - start,
    };
    let texts = AREA.start + dev.sector();
    let runs = [
        run(texts, AREA.end()),
        run(AREA.start, texts),
        run(0, AREA.start),
    ];
    for run in runs {
        space::make_zeros(dev, id, run, Zeroing::Command, what)?;
    }
    Ok(false)
}

/// Zeroes the space of LVM's metadata and of its copies on a drive that is only free of signatures,
/// durably. LVM zeroes little of it, and after a power failure old data there could not be
/// distinguished from the metadata of a complete claim.
pub(crate) fn clear<D: Device>(
    dev: &D,
    id: &DriveId,
    policy: ClaimPolicy,
) -> Result<(), LayoutError> {
    if policy == ClaimPolicy::Blank {
        return Ok(());
    }
    let run = Extent {
        start: 0,
        len: plan::FIRST_PE,
    };
    let what = "clearing the space for LVM's metadata";
    space::make_zeros(dev, id, run, Zeroing::Command, what)
}

/// Creates PV and VG durably, and verifies them by Drivebay's reader and by LVM.
pub(crate) fn begin(dev: &BlockDev, id: &DriveId, claim: &Claim) -> Result<(), LayoutError> {
    let label = &claim.label;
    let vg = name::of_vg(label.drive_uuid);
    let node = dev.drive().node();
    let mark = VgMark {
        label: label.clone(),
    };
    let kib = |bytes: u64| format!("{}k", bytes / 1024);
    let pv: Vec<OsString> = vec![
        "--nolocking".into(),
        "--yes".into(),
        "--norestorefile".into(),
        "--uuid".into(),
        pv_uuid(label.drive_uuid).into(),
        "--metadatacopies".into(),
        "1".into(),
        // LVM begins the area at 4 KiB.
        "--metadatasize".into(),
        kib(plan::METADATA_END - 4096).into(),
        "--bootloaderareasize".into(),
        kib(plan::COPIES.len).into(),
        "--dataalignment".into(),
        kib(MIB).into(),
        "--setphysicalvolumesize".into(),
        kib(plan::pv_bytes(dev.size())).into(),
        node.clone().into(),
    ];
    let mut group: Vec<OsString> = vec![
        "--nolocking".into(),
        "--yes".into(),
        "--setautoactivation".into(),
        "n".into(),
        "--physicalextentsize".into(),
        kib(plan::EXTENT_BYTES).into(),
    ];
    for tag in tags::of_vg(&mark) {
        group.extend(["--addtag".into(), tag.into()]);
    }
    group.extend([vg.clone().into(), node.clone().into()]);
    for (what, command, args) in [
        ("making a PV", "pvcreate", pv),
        ("making a VG", "vgcreate", group),
    ] {
        let done = lvm::run(command, &node, &vg, &args);
        dev.flush()
            .map_err(io_error(id, "flushing LVM's metadata"))?;
        done.map_err(|error| lvm_error(id, what, &error))?;
    }
    if let Err(error) = lvm::forget_hints() {
        tracing::warn!(drive = %id, vg, %error, "host LVM commands may not see the new volume group yet");
    }
    let mut session = Session::open(dev, false)?;
    session.cross_check()?;
    let has = session.view.contents.usable_bytes;
    let promised = plan::claimable_bytes(dev.size());
    if has < promised {
        let [room, planned] = human_sizes([has, promised]);
        return Err(damaged(
            id,
            format!("its VG has room for {room} where {planned} were planned"),
        ));
    }
    session.keep_copy()
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
