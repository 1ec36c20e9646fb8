//! Making a drive ours: a PV with a VG of its own. The one place that writes to a drive that is not ours.
//!
//! As for the `partition` layout, nothing is written before everything is known: the drive is held with O_EXCL
//! and locked, the probe runs again in this very process and finds it empty (and blank, if the class asks for
//! that), and the volume will fit. O_EXCL is then let go, since LVM takes it itself; the lock is kept.
//!
//! Two processes: `pvcreate` (only it takes a place for copies of the metadata), then `vgcreate`. The PV's uuid is
//! made from the drive's uuid and recognisable, so that what lies between the two after a crash is known to
//! be ours: a PV without a VG, and zeros behind it. The next claim blanks it and begins again.
//!
//! Both run without LVM's locks. The lock they would take is that of all VGs on the host, which a command that
//! hangs on a dead drive holds for ever; ours is a drive that nobody else has any business with, under its flock,
//! and a name that nobody else has.

use std::ffi::OsString;

use uuid::Uuid;

use super::{
    backup,
    metadata::{self, Found, PvHeader},
    name, plan,
    session::{Session, damaged, lvm_error},
    tags::{self, VgMark},
};
use crate::carve::{
    device::{self, Device, Medium},
    jobs::{CarveError, Claim},
    partition::{claim as partition_claim, io_error, lock, open_error},
    record::FreeSpace,
};
use crate::model::{ClaimPolicy, DriveId, DriveRef, Extent, Layout, MIB, VolumeSpec};
use crate::sys::{blockdev::BlockDev, lvm};
use crate::worker::Context;

/// What PVs of ours begin with, as LVM writes uuids.
const PV_PREFIX: &str = "DrvBay";
/// Digits of the rest of a PV uuid.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Bytes at both ends that must be zeros (design invariant 2).
const EDGE: u64 = 16 * MIB;

/// The uuid of the PV on a drive of this uuid: 32 digits in LVM's groups.
pub(super) fn pv_uuid(drive_uuid: Uuid) -> String {
    let mut left = drive_uuid.as_u128();
    let mut digits = [b'0'; 26];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(left % 62) as usize];
        left /= 62;
    }
    let digits = String::from_utf8_lossy(&digits);
    let mut uuid = PV_PREFIX.to_owned();
    let mut rest: &str = &digits;
    for len in [4, 4, 4, 4, 4, 6] {
        let (group, after) = rest.split_at(len);
        uuid.push('-');
        uuid.push_str(group);
        rest = after;
    }
    uuid
}

/// The drive's uuid in the uuid of a PV of ours.
pub(in crate::carve) fn drive_uuid_of(pv_uuid: &str) -> Option<Uuid> {
    let digits = pv_uuid.replace('-', "");
    let rest = digits
        .strip_prefix(PV_PREFIX)
        .filter(|rest| rest.len() == 26)?;
    let value = rest.bytes().try_fold(0_u128, |value, digit| {
        let digit = DIGITS.iter().position(|known| *known == digit)?;
        value.checked_mul(62)?.checked_add(digit as u128)
    })?;
    Some(Uuid::from_u128(value))
}

/// Whether what was read is ours to look after: our VG, whole or torn, or the beginning of one.
pub(crate) fn is_ours(found: &Found) -> bool {
    match found {
        Found::Vg(committed) => !matches!(tags::vg(&committed.vg.tags), tags::Read::Stranger),
        Found::Orphan(header) => drive_uuid_of(&header.uuid).is_some(),
        Found::Torn(torn) => drive_uuid_of(&torn.header.uuid).is_some(),
        Found::Damaged { header, .. } => header
            .as_ref()
            .is_some_and(|header| drive_uuid_of(&header.uuid).is_some()),
        Found::NoPv => false,
    }
}

/// Whether the drive has a VG of ours already, and it is of the same cluster and node.
pub(super) fn is_labelled(dev: &BlockDev, claim: &Claim) -> Result<bool, CarveError> {
    let id = &dev.drive().id;
    let committed = match metadata::read(dev).map_err(io_error(id, "reading the LVM label"))? {
        Found::Vg(committed) => committed,
        Found::Torn(torn) if drive_uuid_of(&torn.header.uuid).is_some() => return Ok(true),
        _ => return Ok(false),
    };
    match tags::vg(&committed.vg.tags) {
        tags::Read::Ours(mark) => {
            partition_claim::same_owner(id, &mark.label, claim).map(|()| true)
        }
        tags::Read::Broken { why, .. } => Err(damaged(id, why)),
        tags::Read::Stranger => Ok(false),
    }
}

/// Claims a drive. The answer still holds its lock.
pub(super) fn claim(
    drive: &DriveRef,
    claim: &Claim,
    spec: &VolumeSpec,
    context: &mut Context,
) -> Result<BlockDev, CarveError> {
    let id = &drive.id;
    let mut dev = BlockDev::open_exclusive(drive).map_err(|error| open_error(drive, error))?;
    lock(&mut dev)?;
    let partitions = dev
        .partitions()
        .map_err(io_error(id, "reading the kernel's partitions"))?;
    if let Some(facts) = partitions.first() {
        return Err(partition_claim::refused(
            id,
            format!("HasPartitions: the kernel has {}", facts.kernel_name),
        ));
    }
    partition_claim::room(&dev, Layout::Lvm, spec)?;
    context.step("undo an interrupted claim");
    undo_interrupted(&dev, id, claim.policy)?;
    context.step("probe before claiming");
    let probed = partition_claim::probe(drive, Some(claim.policy), context)?;
    partition_claim::empty(id, &probed, claim.policy)?;
    context.step("claim");
    // The lock stays: nobody who respects it comes between.
    dev.release_exclusive();
    make(&dev, id, claim)?;
    Ok(dev)
}

/// That a PV of ours without a VG is a claim that was interrupted: a copy of the metadata is written when a claim is
/// complete, so one that is there says that a VG, and volumes, were lost.
pub(super) fn never_complete<D: Medium + ?Sized>(
    dev: &D,
    id: &DriveId,
    header: &PvHeader,
) -> Result<(), CarveError> {
    let copy = header
        .bootloader
        .map(|area| backup::newest(dev, area))
        .transpose()
        .map_err(io_error(id, "reading the copy of LVM's metadata"))?
        .flatten();
    if copy.is_none() {
        return Ok(());
    }
    Err(damaged(
        id,
        "its VG is gone, and a copy of that VG's metadata is there: the claim was complete once"
            .into(),
    ))
}

/// What a claim left that got as far as the PV: made blank again, when it is that and nothing else.
fn undo_interrupted(dev: &BlockDev, id: &DriveId, policy: ClaimPolicy) -> Result<(), CarveError> {
    let found = metadata::read(dev).map_err(io_error(id, "reading the LVM label"))?;
    match found {
        Found::Orphan(header) if drive_uuid_of(&header.uuid).is_some() => {
            never_complete(dev, id, &header)?;
        }
        // Anything else is the probe's to judge.
        _ => return Ok(()),
    }
    let behind = Extent {
        start: plan::METADATA_END,
        len: dev.size() - plan::METADATA_END,
    };
    if policy == ClaimPolicy::Blank {
        let data = device::sample_nonzero(dev, behind, EDGE.min(behind.len))
            .map_err(io_error(id, "sampling"))?;
        if let Some(at) = data {
            return Err(partition_claim::refused(
                id,
                format!("NotBlank: there is data at byte {at}"),
            ));
        }
    }
    // The label last: without it what is left would be traces of a drive that was ours.
    let label = Extent {
        start: 0,
        len: 4096,
    };
    let areas = Extent {
        start: label.end(),
        len: plan::METADATA_END - label.end(),
    };
    [areas, label]
        .into_iter()
        .try_for_each(|run| Device::zero(dev, run).and_then(|()| dev.flush()))
        .map_err(io_error(id, "undoing an interrupted claim"))
}

/// PV and VG, flushed, and read back by us and by LVM alike.
fn make(dev: &BlockDev, id: &DriveId, claim: &Claim) -> Result<(), CarveError> {
    let label = &claim.label;
    let vg = name::of_vg(label.drive_uuid);
    let node = dev.drive().node();
    let mark = VgMark {
        label: label.clone(),
        free_space: match claim.policy {
            ClaimPolicy::Blank => FreeSpace::Zeros,
            ClaimPolicy::SignatureFree => FreeSpace::Unknown,
        },
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
        tracing::warn!(drive = %id, %error, "the host's LVM commands may not see VG {vg} for a while");
    }
    let mut session = Session::open(dev, false)?;
    session.cross_check()?;
    let has = session.view.contents.usable_bytes;
    let promised = plan::claimable_bytes(dev.size());
    if has < promised {
        return Err(damaged(
            id,
            format!("its VG has room for {has} bytes where {promised} were planned"),
        ));
    }
    session.keep_copy()
}

pub(super) fn not_ours(id: &DriveId) -> CarveError {
    partition_claim::refused(id, "it does not carry our label".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uuid_of_a_pv_of_ours_names_its_drive() {
        for drive in [Uuid::nil(), Uuid::max(), Uuid::new_v4()] {
            let pv = pv_uuid(drive);
            assert_eq!(pv.len(), 38, "{pv}");
            assert_eq!(drive_uuid_of(&pv), Some(drive), "{pv}");
        }
        for other in [
            "",
            "GnZDwX-7tEZ-0000-0000-0000-0000-000000",
            "DrvBay-zzzz-zzzz-zzzz-zzzz-zzzz-zzzzzz",
            "DrvBay-0000-0000-0000-0000-0000-00000#",
            "DrvBay-0000",
        ] {
            assert_eq!(drive_uuid_of(other), None, "{other}");
        }
    }
}
