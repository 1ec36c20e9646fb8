//! PVs of Drivebay, recognised by their uuid, which is derived from that of their drive.

use std::io;

use uuid::Uuid;

use super::{
    backup,
    label::AREA,
    metadata::{FIRST_TEXT, PvContents, PvHeader, Torn},
    plan, tags,
};
use crate::{
    claimable::EDGE,
    device::{self, Medium},
    error::{LayoutError, damaged, io_error},
};
use drivebay_model::{DriveId, Extent};

/// Beginning of the uuids of Drivebay's PVs, in LVM's notation.
const PV_PREFIX: &str = "DrvBay";
/// Digits of the rest of such a uuid.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns the uuid of the PV on a drive of this uuid: 32 digits in LVM's groups.
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

/// Returns the drive's uuid in the uuid of a PV of Drivebay; None for another PV.
pub(crate) fn drive_uuid_of(pv_uuid: &str) -> Option<Uuid> {
    let digits = pv_uuid.replace('-', "");
    let rest = digits
        .strip_prefix(PV_PREFIX)
        .filter(|rest| rest.len() == 26)?;
    let value = rest.bytes().try_fold(0_u128, |value, digit| {
        let digit = DIGITS.iter().position(|candidate| *candidate == digit)?;
        value.checked_mul(62)?.checked_add(digit as u128)
    })?;
    Some(Uuid::from_u128(value))
}

/// True if what was read belongs to Drivebay: its VG, valid or torn, or an unfinished claim.
pub fn is_ours(contents: &PvContents) -> bool {
    match contents {
        PvContents::Vg(committed) => !matches!(tags::vg(&committed.vg.tags), tags::Read::Stranger),
        PvContents::Orphan(header) => drive_uuid_of(&header.uuid).is_some(),
        PvContents::Torn(torn) => drive_uuid_of(&torn.header.uuid).is_some(),
        PvContents::Damaged { header, .. } => header
            .as_ref()
            .is_some_and(|header| drive_uuid_of(&header.uuid).is_some()),
        PvContents::NoPv => false,
    }
}

/// Fails unless a PV of Drivebay without a VG is an interrupted claim: a copy of the metadata is
/// written when a claim is complete, so if there is one, valid or not, a VG with its volumes was
/// lost.
pub(super) fn never_complete<D: Medium + ?Sized>(
    dev: &D,
    id: &DriveId,
    header: &PvHeader,
) -> Result<(), LayoutError> {
    let has_copy = header
        .bootloader
        .map_or(Ok(false), |area| backup::has_traces(dev, area))
        .map_err(io_error(id, "reading the copy of LVM's metadata"))?;
    if !has_copy {
        return Ok(());
    }
    Err(damaged(
        id,
        "its VG is missing, but a copy of the VG's metadata exists: the claim had been completed"
            .into(),
    ))
}

/// True if torn metadata is certainly that of a claim whose `vgcreate` was interrupted. Its text is
/// the first one of the area, and zeros follow up to the first PE: LVM never erases a text, and a
/// complete claim has a copy. An administrator who restores a VG may leave the same, so either the
/// text must be of version 1, which has no LV, or the space of the volumes must be blank.
pub(super) fn is_unfinished<D: Medium + ?Sized>(dev: &D, torn: &Torn) -> io::Result<bool> {
    let header = &torn.header;
    let is_planned = drive_uuid_of(&header.uuid).is_some()
        && header.metadata == [AREA]
        && header.bootloader == Some(plan::COPIES);
    let location = torn.location.filter(|of| of.offset == FIRST_TEXT);
    let Some(location) = location.filter(|_| is_planned) else {
        return Ok(false);
    };
    let mut bytes = vec![0; (plan::FIRST_PE - AREA.start) as usize];
    dev.read_at(AREA.start, &mut bytes)?;
    let (text, behind) = bytes.split_at((location.offset + location.size) as usize);
    if device::nonzero(behind).is_some() {
        return Ok(false);
    }
    if memchr::memmem::find(text, b"\nseqno = 1\n").is_some() {
        return Ok(true);
    }
    let volumes = Extent {
        start: plan::FIRST_PE,
        len: dev.size() - plan::FIRST_PE,
    };
    Ok(device::sample_nonzero(dev, volumes, EDGE.min(volumes.len))?.is_none())
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
