//! Drives of layout `partition`: both copies of the table, the label's slots, and scans with repair.

use uuid::Uuid;

use super::{Input, Target, image::Image};
use drivebay_evidence::reading;
use drivebay_layout::{
    claimed::ClaimedDrive,
    device::Medium,
    gpt::{self, ARRAY_BYTES, LABEL_EXTENT},
    marks::{self, Mark},
    partition::Session,
    record::{self, RecordRead},
};
use drivebay_model::{DriveId, DriveState, Extent, Layout, MIB, RecordState, samples};
use drivebay_node::inventory::wire;

const A: &str = include_str!("seeds/partitions.hex");
const GONE: &str = include_str!("seeds/partitions-few.hex");
const SECTOR: u64 = 512;
const ARRAY_SECTORS: u64 = ARRAY_BYTES / SECTOR;
const SLOT_BYTES: u64 = 2 * MIB;
const HEADER: usize = 4096;

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "gpt",
            run: gpt,
            seeds: edits,
            replays: 300,
        },
        Target {
            name: "label",
            run: label,
            seeds: payloads,
            replays: 300,
        },
        Target {
            name: "session",
            run: session,
            seeds: edits,
            replays: 150,
        },
    ]
}

/// Returns the recorded drive that an input selects.
pub(super) fn base(number: u8) -> Image {
    thread_local! {
        static BASES: [Image; 2] = [Image::golden(A), Image::golden(GONE)];
    }
    BASES.with(|bases| bases[usize::from(number) % bases.len()].clone())
}

/// Returns the ranges that Drivebay reads from such a drive.
pub(super) fn runs(size: u64) -> Vec<Extent> {
    let last = size / SECTOR - 1;
    let sectors = |first: u64, count: u64| Extent {
        start: first * SECTOR,
        len: count * SECTOR,
    };
    let slot = |number: u64| Extent {
        start: LABEL_EXTENT.start + number * SLOT_BYTES,
        len: 2 * HEADER as u64,
    };
    vec![
        sectors(1, 1),
        sectors(2, 4),
        sectors(last, 1),
        sectors(last - ARRAY_SECTORS, 4),
        slot(0),
        slot(1),
        sectors(0, 1),
    ]
}

/// Corrects the checksums that the flags select, so that the data behind them is read too.
pub(super) fn settle(image: &Image, flags: u8) {
    let last = image.size() / SECTOR - 1;
    let array = |lba: u64| if lba == 1 { 2 } else { lba - ARRAY_SECTORS };
    if flags & 1 != 0 {
        // Makes the other copy equal: entries, usable sectors, GUID.
        image.put(
            array(last) * SECTOR,
            &image.get(2 * SECTOR, ARRAY_BYTES as usize),
        );
        image.put(last * SECTOR + 40, &image.get(SECTOR + 40, 32));
    }
    for (lba, flag) in [(1, 2), (last, 4)] {
        if flags & flag != 0 {
            let at = lba * SECTOR;
            let entries = crc32fast::hash(&image.get(array(lba) * SECTOR, ARRAY_BYTES as usize));
            image.put(at + 88, &entries.to_le_bytes());
            image.put(at + 16, &[0; 4]);
            let len = u32::from_le_bytes(image.get(at + 12, 4).try_into().unwrap()).min(512);
            let header = crc32fast::hash(&image.get(at, len as usize));
            image.put(at + 16, &header.to_le_bytes());
        }
    }
    for (slot, flag) in [(0, 8), (1, 16)] {
        if flags & flag != 0 {
            let at = LABEL_EXTENT.start + slot * SLOT_BYTES;
            let len = u64::from_le_bytes(image.get(at + 24, 8).try_into().unwrap());
            let payload = image.get(at + HEADER as u64, len.min(SLOT_BYTES) as usize);
            image.put(at + 32, &crc32fast::hash(&payload).to_le_bytes());
            let header = crc32fast::hash(&image.get(at, HEADER - 4));
            image.put(at + HEADER as u64 - 4, &header.to_le_bytes());
        }
    }
    if flags & 32 != 0 {
        let len = 16 * HEADER;
        let second = LABEL_EXTENT.start + SLOT_BYTES;
        image.put(second, &image.get(LABEL_EXTENT.start, len));
    }
}

/// Flag: the rest of the input is the label's payload instead of changes.
const PAYLOAD: u8 = 64;

/// Returns a changed recorded drive: its number, the checksums to correct, the changes.
fn edited(data: &[u8]) -> Image {
    let mut input = Input(data);
    let mut image = base(input.byte());
    let flags = input.byte();
    if flags & PAYLOAD != 0 {
        let at = LABEL_EXTENT.start;
        image.put(at + 24, &(input.0.len() as u64).to_le_bytes());
        image.put(at + HEADER as u64, input.0);
        settle(&image, 8 | 32);
        return image;
    }
    let runs = runs(image.size());
    image.edit(&mut input, &runs);
    settle(&image, flags);
    image
}

fn edits() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0, 0], vec![1, 0], vec![0, 7], vec![1, 63]];
    // An entry with another start, an unreadable sector of a slot, a zeroed slot, both tables zeroed.
    seeds.push([&[0, 7, 1, 0xa0, 0, 8], &5_u64.to_le_bytes()[..]].concat());
    seeds.push(vec![0, 0, 4, 0, 0, 0xc1, 0, 0]);
    seeds.push(vec![1, 0, 5, 0, 0, 0x87, 0, 0]);
    seeds.push(vec![0, 0, 0, 0, 0, 0x83, 2, 0, 0, 0x83, 0]);
    seeds.push(far_away());
    seeds
}

/// Seed: a label with a volume near the largest offset.
fn far_away() -> Vec<u8> {
    let payload = String::from_utf8(payload_of(&base(1), 0)).unwrap();
    let changed = payload.replace("\"start\":5242880", "\"start\":18446744073708503040");
    [&[1, PAYLOAD], changed.as_bytes()].concat()
}

fn tables(copies: &gpt::GptCopies) -> Vec<&gpt::Table> {
    match copies {
        gpt::GptCopies::Whole(table) | gpt::GptCopies::One { table, .. } => vec![table],
        gpt::GptCopies::Differ { primary, backup } => vec![primary, backup],
        gpt::GptCopies::None | gpt::GptCopies::Damaged(_) => Vec::new(),
    }
}

fn gpt(data: &[u8]) {
    let image = edited(data);
    let scan = gpt::scan(&image);
    let Ok(copies) = gpt::read(&image) else {
        return;
    };
    for table in tables(&copies) {
        for (_, entry) in table.partitions() {
            let extent = entry.extent(table.sector);
            let end = extent.start.checked_add(extent.len).unwrap();
            assert!(extent.len > 0 && end <= image.size(), "{entry:?}");
        }
        let again = image.clone();
        gpt::write(&again, table).unwrap();
        let whole = gpt::GptCopies::Whole(table.clone());
        assert_eq!(gpt::read(&again).unwrap(), whole);
    }
    let Ok(scan) = scan else {
        return;
    };
    if copies != gpt::GptCopies::None {
        assert_ne!(scan.state, gpt::GptState::None, "a trace of a table is one");
    }
    if tables(&copies).iter().any(|table| table.is_ours()) {
        assert!(matches!(
            marks::read(&image),
            Ok(Mark::Ours(Layout::Partition))
        ));
    }
}

fn payload_of(image: &Image, slot: u64) -> Vec<u8> {
    let at = LABEL_EXTENT.start + slot * SLOT_BYTES;
    let len = u64::from_le_bytes(image.get(at + 24, 8).try_into().unwrap());
    image.get(at + HEADER as u64, len as usize)
}

/// Seeds: slot flags, a byte of the other slot, then the payload.
fn payloads() -> Vec<Vec<u8>> {
    let whole = |number| [&[0, 0], &payload_of(&base(number), 0)[..]].concat();
    vec![whole(0), whole(1), vec![1, 0], b"\0\0{}".to_vec()]
}

fn label(data: &[u8]) {
    let mut input = Input(data);
    let (flags, other) = (input.byte(), input.byte());
    let image = base(0);
    let at = LABEL_EXTENT.start;
    image.put(at + 24, &(input.0.len() as u64).to_le_bytes());
    if flags & 1 != 0 {
        image.put(at + 8, &[other]);
    }
    image.put(at + HEADER as u64, input.0);
    settle(&image, 8);
    if flags & 2 == 0 {
        image.put(at + SLOT_BYTES, &vec![other; HEADER + 512]);
    }
    let gpt::GptCopies::Whole(table) = gpt::read(&image).unwrap() else {
        panic!("the table was not touched");
    };
    let Ok(RecordRead::Read(read)) = record::read(&image, table.disk_guid) else {
        return;
    };
    let written = record::write(&image, Some(&read), &read.content).unwrap();
    assert_eq!(written.content, read.content);
    let again = record::read(&image, table.disk_guid).unwrap();
    assert_eq!(
        again,
        RecordRead::Read(written),
        "what is written reads back"
    );
}

/// Asserts that a scan writes nothing, one with repair only tables and label, and that neither loses a volume.
fn session(data: &[u8]) {
    let image = edited(data);
    let id = DriveId("x".into());
    let before = Session::open(&image, &id, false).and_then(|session| session.contents());
    assert!(image.written.borrow().is_empty(), "a look writes nothing");
    let Ok(before) = before else {
        return;
    };
    let drive = samples::drive("sda", DriveState::Claimed, Some(before.clone()));
    for place in [0, 8 * MIB, image.size(), u64::MAX] {
        let _ = reading::volume_at(&drive, place);
    }
    let _ = wire::drive(&drive);
    for run in &before.free {
        for placed in &before.volumes {
            let end = placed
                .record
                .extent
                .start
                .saturating_add(placed.record.extent.len);
            let apart = end <= run.start || run.end() <= placed.record.extent.start;
            assert!(apart, "{run:?} is free and {:?}", placed.record);
        }
    }
    let repaired = Session::open(&image, &id, true).and_then(|session| session.contents());
    // Whole physical blocks: a drive replaces a bad one if it is written completely.
    let tail = (image.size() - (ARRAY_SECTORS + 1) * SECTOR) / 4096 * 4096;
    for run in image.written.borrow().iter() {
        let within = run.end() <= LABEL_EXTENT.end() || run.start >= tail;
        assert!(within, "a repair wrote {run:?}");
    }
    let Ok(after) = repaired else {
        return;
    };
    for placed in &before.volumes {
        let uuid: Uuid = placed.record.uuid;
        let may_go = matches!(
            placed.record.state,
            RecordState::Creating | RecordState::Erasing { .. }
        );
        let is_there = after.volumes.iter().any(|kept| kept.record.uuid == uuid);
        assert!(may_go || is_there, "{uuid} is gone after a repair");
    }
}
