//! Claims with a power failure at any moment, on a drive in memory with the bytes that LVM writes.

use std::cell::Cell;

use uuid::Uuid;

use super::*;
use crate::{
    fake::FakeDrive,
    lvm::{
        label,
        metadata::{Location, PvHeader, checksum},
    },
    partition::tests::coin,
};

const SIZE: u64 = 48 * MIB;
/// A place in the space of volumes that is sampled.
const VOLUMES: u64 = 20 * MIB;
const POLICIES: [ClaimPolicy; 2] = [ClaimPolicy::Blank, ClaimPolicy::SignatureFree];

fn id() -> DriveId {
    DriveId("wwn-0xfa4e".into())
}

fn drive_label() -> Label {
    Label {
        drive_uuid: Uuid::from_u128(7),
        cluster: "c".into(),
        node: "n".into(),
        // The text extends over several sectors, of 4096 bytes too.
        class: "fast".repeat(1000),
        drive_id: id(),
        cordon: None,
    }
}

fn text(seqno: u64) -> Vec<u8> {
    let label = drive_label();
    let (name, pv) = (name::of_vg(label.drive_uuid), pv_uuid(label.drive_uuid));
    let tags = tags::of_vg(&VgMark { label }).join("\", \"");
    let (sectors, extents) = (SIZE / 512, plan::claimable_bytes(SIZE) / MIB);
    format!(
        r#"{name} {{
id = "0UCk44-78FK-7tYo-pDxn-1yfa-VaTQ-iA2RNp"
seqno = {seqno}
format = "lvm2"
status = ["RESIZEABLE", "READ", "WRITE"]
flags = ["NOAUTOACTIVATE"]
tags = ["{tags}"]
extent_size = 2048
max_lv = 0
max_pv = 0
metadata_copies = 0

physical_volumes {{

pv0 {{
id = "{pv}"
device = "/dev/sda"
status = ["ALLOCATABLE"]
flags = []
dev_size = {sectors}
pe_start = 16384
pe_count = {extents}
}}
}}

}}
contents = "Text Format Volume Group"
version = 1
"#
    )
    .into_bytes()
}

/// Writes what `pvcreate` writes, durably.
fn pvcreate(drive: &FakeDrive) {
    let header = PvHeader {
        uuid: pv_uuid(drive_label().drive_uuid),
        device_bytes: plan::pv_bytes(SIZE),
        metadata: vec![AREA],
        data_start: plan::FIRST_PE,
        bootloader: Some(plan::COPIES),
        used: true,
    };
    label::write(drive, &header).unwrap();
    label::write_area(drive, AREA, NO_TEXT).unwrap();
}

/// Writes header and text of the metadata area, as `vgcreate` does: with one flush at the end.
fn vgcreate(drive: &FakeDrive, seqno: u64) {
    let mut text = text(seqno);
    text.push(0);
    let location = Location {
        offset: 512,
        size: text.len() as u64,
        checksum: checksum(&text),
    };
    let whole = drive.clone();
    label::write_text(&whole, AREA, location, &text).unwrap();
    label::write_area(&whole, AREA, location).unwrap();
    let mut written = vec![0; (512 + text.len()).next_multiple_of(drive.sector() as usize)];
    whole.read_at(AREA.start, &mut written).unwrap();
    drive.write_at(AREA.start, &written).unwrap();
    drive.flush().unwrap();
}

/// Returns a drive whose claim was complete except for the copy of the text, with the whole claim
/// in its log. A drive that is only free of signatures has old data.
fn begun(sector: u64, policy: ClaimPolicy) -> FakeDrive {
    let drive = FakeDrive::new(SIZE, sector);
    if policy == ClaimPolicy::SignatureFree {
        for start in [8192, 2 * MIB, plan::COPIES.start, VOLUMES] {
            drive.fill(Extent { start, len: sector }, 0x5a);
        }
    }
    clear(&drive, &id(), policy).unwrap();
    pvcreate(&drive);
    vgcreate(&drive, 1);
    drive
}

fn is_torn(drive: &FakeDrive) -> bool {
    matches!(metadata::read(drive).unwrap(), PvContents::Torn(_))
}

/// Asserts that the next claim undoes this one and begins with a drive without metadata.
fn is_undone(drive: &FakeDrive, policy: ClaimPolicy, what: &str) {
    assert_eq!(label(drive, &id()).unwrap(), None, "{what}");
    assert!(!resume(drive, &id(), policy).unwrap(), "{what}");
    assert!(!drive.is_dirty(), "{what}");
    let head = Extent {
        start: 0,
        len: plan::FIRST_PE,
    };
    let nonzero = crate::device::first_nonzero(drive, head).unwrap();
    assert_eq!(nonzero, None, "{what}");
}

#[test]
fn a_claim_that_was_interrupted_at_any_moment_is_complete_or_undone() {
    let seed = Cell::new(5);
    for (sector, policy) in [512, 4096]
        .into_iter()
        .flat_map(|n| POLICIES.map(|p| (n, p)))
    {
        let drive = begun(sector, policy);
        let (mut complete, mut torn, mut unproven) = (0, 0, 0);
        for at in 0..=drive.log_len() {
            for mode in 0..24 {
                let (cut, _) = drive.after_cut(at, coin(mode, &seed));
                let what = format!("{policy:?} on {sector}, event {at}, mode {mode}");
                match (metadata::read(&cut).unwrap(), label(&cut, &id())) {
                    (_, Ok(Some(label))) => {
                        assert_eq!(label, drive_label(), "{what}");
                        complete += 1;
                    }
                    // No label yet: the drive is as free of signatures as before.
                    (PvContents::NoPv, _) => {
                        assert!(policy == ClaimPolicy::SignatureFree || at < 2)
                    }
                    // The first sector of the text is lost, and the space of volumes has data.
                    (PvContents::Torn(_), Err(error)) => {
                        assert!(
                            matches!(error, LayoutError::Damaged { .. }),
                            "{what}: {error}"
                        );
                        assert_eq!(
                            (policy, sector),
                            (ClaimPolicy::SignatureFree, 512),
                            "{what}"
                        );
                        assert_eq!(cut.log_len(), 0, "{what}");
                        unproven += 1;
                    }
                    _ => {
                        let was_torn = is_torn(&cut);
                        torn += u32::from(was_torn);
                        // The error by which discovery offers the drive as blank.
                        let error = session::shown(&cut, &id()).unwrap_err();
                        assert!(
                            matches!(error, LayoutError::Unlabelled { .. }),
                            "{what}: {error}"
                        );
                        is_undone(&cut, policy, &what);
                        let all = if was_torn || mode == 0 {
                            cut.log_len()
                        } else {
                            0
                        };
                        for again in 0..all {
                            let (cut, _) = cut.after_cut(again, coin(mode, &seed));
                            is_undone(&cut, policy, &format!("{what}, undone until {again}"));
                        }
                    }
                }
            }
        }
        assert!(complete > 0 && torn > 0, "{policy:?} on {sector}");
        let may_be_unproven = policy == ClaimPolicy::SignatureFree && sector == 512;
        assert_eq!(unproven > 0, may_be_unproven, "{policy:?} on {sector}");
    }
}

#[test]
fn torn_metadata_that_may_be_of_a_complete_claim_is_damage_and_is_left_alone() {
    type Change = fn(&FakeDrive);
    let changes: [(&str, Change, bool); 6] = [
        ("a claim", |_| (), true),
        (
            "a second text",
            |drive| {
                let end = 512 + text(1).len() as u64 + 1;
                drive.rot(AREA.start + end.next_multiple_of(512), 1);
            },
            false,
        ),
        (
            "a copy",
            |drive| drive.rot(plan::COPIES.end() - 512, 1),
            false,
        ),
        (
            "a later text and a volume",
            |drive| {
                vgcreate(drive, 2);
                drive.rot(plan::FIRST_PE, 1);
            },
            false,
        ),
        ("a later text", |drive| vgcreate(drive, 2), true),
        (
            "an unreadable copy",
            |drive| {
                drive.unreadable.set(Some(Extent {
                    start: plan::COPIES.end() - 4096,
                    len: 4096,
                }));
            },
            false,
        ),
    ];
    for policy in POLICIES {
        for (what, change, is_begun) in changes {
            let drive = FakeDrive::new(SIZE, 512);
            pvcreate(&drive);
            vgcreate(&drive, 1);
            change(&drive);
            drive.rot(AREA.start + 2048, 1);
            drive.settle();
            assert!(is_torn(&drive), "{what}");
            if is_begun {
                is_undone(&drive, policy, what);
                continue;
            }
            for error in [
                label(&drive, &id()).unwrap_err(),
                session::shown(&drive, &id()).unwrap_err(),
            ] {
                assert!(
                    matches!(error, LayoutError::Damaged { .. }),
                    "{what}: {error}"
                );
            }
            assert!(!matches!(resume(&drive, &id(), policy), Ok(true)), "{what}");
            assert_eq!(drive.log_len(), 0, "{what}");
        }
    }
}

#[test]
fn a_pv_without_a_vg_that_has_a_damaged_copy_of_its_metadata_is_damage_and_is_left_alone() {
    for (slot, policy) in [0, 1].into_iter().flat_map(|n| POLICIES.map(|p| (n, p))) {
        let drive = FakeDrive::new(SIZE, 512);
        pvcreate(&drive);
        let mut sector = vec![0; 512];
        sector[..8].copy_from_slice(b"DRVBAYMD");
        let at = plan::COPIES.start + slot * plan::COPIES.len / 2;
        drive.write_at(at, &sector).unwrap();
        drive.settle();
        for error in [
            session::shown(&drive, &id()).unwrap_err(),
            resume(&drive, &id(), policy).unwrap_err(),
        ] {
            assert!(matches!(error, LayoutError::Damaged { .. }), "{error}");
        }
        assert_eq!(drive.log_len(), 0);
    }
}
