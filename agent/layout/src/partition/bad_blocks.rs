//! One bad block anywhere in the structures of Drivebay on a drive of layout `partition`: nothing
//! that was acknowledged is lost or given to another volume, and a good copy repairs a bad one.
//! With the real readers and writers, on a drive in memory.

use std::collections::BTreeMap;

use super::Session;
use super::tests::{SIZE, a, b, furnished, id, session, shape};
use crate::{
    claimed::ClaimedDrive,
    device::Medium,
    error::LayoutError,
    fake::FakeDrive,
    gpt::{ARRAY_BYTES, LABEL_EXTENT},
    marks::{self, Mark},
};
use drivebay_model::{Extent, Layout, MIB, RecordState};

const BLOCK: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    ReadError,
    WriteError,
    BitFlipped,
    Zeroed,
    TornHalf,
}

const FAULTS: [Fault; 5] = [
    Fault::ReadError,
    Fault::WriteError,
    Fault::BitFlipped,
    Fault::Zeroed,
    Fault::TornHalf,
];

fn strike(drive: &FakeDrive, fault: Fault, at: u64) {
    let block = Extent {
        start: at,
        len: BLOCK,
    };
    let half = Extent {
        start: at + BLOCK / 2,
        len: BLOCK / 2,
    };
    match fault {
        Fault::ReadError => drive.unreadable.set(Some(block)),
        Fault::WriteError => drive.unwritable.set(Some(block)),
        Fault::BitFlipped => {
            let mut bytes = vec![0; BLOCK as usize];
            drive.read_at(at, &mut bytes).unwrap();
            let byte = bytes.iter().position(|byte| *byte != 0).unwrap_or(100);
            drive.rot(at + byte as u64, 4);
        }
        Fault::Zeroed => drive.fill(block, 0),
        Fault::TornHalf => drive.fill(half, 0xa5),
    }
}

fn region(at: u64) -> &'static str {
    let slot = LABEL_EXTENT.len / 2;
    let backup = SIZE - 512 - ARRAY_BYTES;
    match at {
        0 => "protective MBR, primary GPT",
        at if at < 1024 + ARRAY_BYTES => "primary GPT's entries",
        at if at < LABEL_EXTENT.start => "before the label",
        at if at < LABEL_EXTENT.start + slot => "label, slot 0",
        at if at < LABEL_EXTENT.end() => "label, slot 1",
        at if at + BLOCK > backup => "backup GPT",
        _ => "last MiB",
    }
}

#[test]
fn one_bad_block_loses_no_volume_and_a_good_copy_repairs_it() {
    let healthy = furnished(512);
    let acknowledged = shape(&session(&healthy).contents().unwrap());
    // All blocks that are needed, and samples of the others: a slot holds less than 16 KiB here.
    let slot = LABEL_EXTENT.len / 2;
    let relied_on = [
        0,
        LABEL_EXTENT.start,
        LABEL_EXTENT.start + slot,
        SIZE - 32 * 1024,
    ];
    let is_relied_on = |at: u64| {
        relied_on
            .iter()
            .any(|start| (*start..start + 32 * 1024).contains(&at))
    };
    let blocks = (0..LABEL_EXTENT.end()).chain(SIZE - MIB..SIZE);
    let blocks = blocks
        .step_by(BLOCK as usize)
        .filter(|at| is_relied_on(*at) || at.is_multiple_of(MIB / 4));
    let mut outcomes: BTreeMap<(&str, Fault, &str), usize> = BTreeMap::new();
    for at in blocks {
        for fault in FAULTS {
            let drive = healthy.clone();
            strike(&drive, fault, at);
            let what = format!("{fault:?} at byte {at} ({})", region(at));

            assert_eq!(
                marks::read(&drive).unwrap(),
                Mark::Ours(Layout::Partition),
                "{what}"
            );
            let opened = Session::open(&drive, &id(), false)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let contents = opened.contents().unwrap();
            assert_eq!(shape(&contents), acknowledged, "{what}");
            let noticed = !contents.notes.is_empty();

            // A repair either succeeds, or changes nothing in the contents.
            let repaired = Session::open(&drive, &id(), true).is_ok();
            let after = Session::open(&drive, &id(), false)
                .unwrap()
                .contents()
                .unwrap();
            assert_eq!(shape(&after), acknowledged, "{what}");
            if fault != Fault::WriteError {
                assert!(
                    repaired && after.notes.is_empty(),
                    "{what}: {:?}",
                    after.notes
                );
            }

            // An acknowledged delete must be on the drive; a failed one may be.
            let deleted =
                Session::open(&drive, &id(), true).and_then(|mut session| session.delete(b()));
            drive.unwritable.set(None);
            let now = session(&drive).contents().unwrap();
            let erasing = now.volumes.iter().any(|placed| {
                placed.record.uuid == b()
                    && matches!(placed.record.state, RecordState::Erasing { .. })
            });
            assert!(erasing || deleted.is_err(), "{what}");
            assert!(now.volume(a()).is_some(), "{what}");

            let outcome = match (noticed, repaired, deleted.is_ok()) {
                (false, true, true) => "not touched",
                (true, true, true) => "repaired",
                (_, false, false) => "listed, changes refused",
                _ => "listed, some changes refused",
            };
            *outcomes.entry((region(at), fault, outcome)).or_default() += 1;
        }
    }
    println!("{:<28} {:<11} {:<29} blocks", "region", "fault", "outcome");
    for ((region, fault, outcome), count) in outcomes {
        println!(
            "{region:<28} {:<11} {outcome:<29} {count}",
            format!("{fault:?}")
        );
    }
}

#[test]
fn a_damaged_protective_mbr_loses_no_volume_and_is_written_again() {
    let drive = furnished(512);
    let acknowledged = shape(&session(&drive).contents().unwrap());
    let mut good = [0; 512];
    drive.read_at(0, &mut good).unwrap();
    let sector = Extent { start: 0, len: 512 };
    drive.fill(sector, 0xa5);
    let opened = Session::open(&drive, &id(), false).unwrap();
    let contents = opened.contents().unwrap();
    assert_eq!(shape(&contents), acknowledged);
    assert_eq!(contents.notes, ["the protective MBR is damaged"]);

    let repaired = session(&drive).contents().unwrap();
    assert_eq!(shape(&repaired), acknowledged);
    let mut now = [0; 512];
    drive.read_at(0, &mut now).unwrap();
    assert_eq!(now, good);

    // If the next sector is damaged too, another program may have taken the whole drive.
    let both = Extent {
        start: 0,
        len: 1024,
    };
    drive.fill(both, 0xa5);
    let refused = Session::open(&drive, &id(), true).err();
    assert!(
        matches!(refused, Some(LayoutError::Damaged { .. })),
        "{refused:?}"
    );
}
