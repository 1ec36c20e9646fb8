//! Drives of layout `lvm`: PV label, metadata areas and their text with Drivebay's tags, and the copies of the text.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Input, Target, image::Image, seeds};
use drivebay_layout::{
    device::Medium,
    lvm::{
        backup,
        metadata::{self, PvContents, Segment, Vg, checksum},
        name, plan, tags, text, view,
    },
};
use drivebay_model::{DriveId, ErasePolicy, Extent, FsType, Label, MIB, Mode, Record, RecordState};

const GROUP: &str = include_str!("seeds/group.hex");
const TEXT: &str = include_str!("seeds/group-metadata.txt");
/// Recorded PVs with the size and sector of their drives.
const PVS: [(&[u8], u64, u64); 5] = [
    (include_bytes!("../../tests/fixtures/lvm/fresh.pv"), 64, 512),
    (
        include_bytes!("../../tests/fixtures/lvm/wrapped.pv"),
        64,
        512,
    ),
    (
        include_bytes!("../../tests/fixtures/lvm/sector4k.pv"),
        64,
        4096,
    ),
    (
        include_bytes!("../../tests/fixtures/lvm/twomdas.pv"),
        64,
        512,
    ),
    (include_bytes!("../../tests/fixtures/lvm/odd.pv"), 1024, 512),
];
const SECTOR: u64 = 512;

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "lvm-disk",
            run: disk,
            seeds: edits,
            replays: 300,
        },
        Target {
            name: "lvm-text",
            run: text,
            seeds: || seeds([TEXT, "a { b = [1, \"x\"] } # c\nd = -1.5"]),
            replays: 500,
        },
        Target {
            name: "lvm-tags",
            run: read_tags,
            seeds: tag_lines,
            replays: 1000,
        },
        Target {
            name: "lvm-records",
            run: write_tags,
            seeds: || seeds(["", "\x07\x05name\u{e9}\x01=\x03a=b\x20xxxxxxxxxxxxxxxxxxx"]),
            replays: 500,
        },
        Target {
            name: "lvm-copies",
            run: copies,
            seeds: || {
                seeds([
                    "",
                    "\x01\x07text",
                    "\x02\x00vg {}",
                    "\x1f\x01\x00\x08\x00\x04\x02\x00\x00\x00",
                ])
            },
            replays: 300,
        },
    ]
}

/// Returns the recorded drive that an input selects.
pub(super) fn base(number: u8) -> Image {
    thread_local! {
        static BASES: Vec<Image> = std::iter::once(Image::golden(GROUP))
            .chain(PVS.map(|(bytes, size, sector)| Image::pv(bytes, size * MIB, sector)))
            .collect();
    }
    BASES.with(|bases| bases[usize::from(number) % bases.len()].clone())
}

/// Returns the first metadata area and the location of its committed text, from its header.
fn text_of(image: &Image) -> Option<(Extent, Extent)> {
    let Ok(PvContents::Vg(vg)) = metadata::read(image) else {
        return None;
    };
    let area = *vg.header.metadata.first()?;
    let location = vg.location?;
    let text = Extent {
        start: area.start + location.offset,
        len: location.size,
    };
    Some((area, text))
}

/// Returns the ranges that are read from such a drive: label, header of the area, text, both copies of the text.
pub(super) fn runs(image: &Image) -> Vec<Extent> {
    let mut runs = vec![Extent {
        start: SECTOR,
        len: SECTOR,
    }];
    if let Some((area, text)) = text_of(image) {
        let start = area.start;
        runs.extend([
            Extent { start, len: SECTOR },
            Extent {
                len: text.len.min(60_000),
                ..text
            },
        ]);
    }
    runs.extend([
        Extent {
            start: plan::COPIES.start,
            len: 8192,
        },
        Extent {
            start: plan::COPIES.start + plan::COPIES.len / 2,
            len: 8192,
        },
        Extent {
            start: 0,
            len: 4 * SECTOR,
        },
    ]);
    runs
}

/// Corrects the checksums that the flags select.
pub(super) fn settle(image: &Image, flags: u8, area: u64) {
    if flags & 1 != 0 {
        let label = image.get(SECTOR, 512);
        image.put(SECTOR + 16, &checksum(&label[20..]).to_le_bytes());
    }
    let number = |at: u64| u64::from_le_bytes(image.get(at, 8).try_into().unwrap());
    if flags & 2 != 0 {
        let (offset, size) = (number(area + 40), number(area + 48).min(1 << 20));
        let text = image.get(area.saturating_add(offset), size as usize);
        image.put(area + 56, &checksum(&text).to_le_bytes());
    }
    if flags & 4 != 0 {
        let header = image.get(area, 512);
        image.put(area, &checksum(&header[4..]).to_le_bytes());
    }
    for (slot, flag) in [(0, 8), (1, 16)] {
        if flags & flag != 0 {
            let at = plan::COPIES.start + slot * plan::COPIES.len / 2;
            let len = u32::from_le_bytes(image.get(at + 12, 4).try_into().unwrap());
            let text = image.get(at + 4096, len.min(1 << 20) as usize);
            image.put(at + 24, &crc32fast::hash(&text).to_le_bytes());
            let header = crc32fast::hash(&image.get(at, 4092));
            image.put(at + 4092, &header.to_le_bytes());
        }
    }
}

/// Returns a changed recorded drive: its number, the checksums to correct, the changes.
pub(super) fn edited(data: &[u8]) -> Image {
    let mut input = Input(data);
    let mut image = base(input.byte());
    let flags = input.byte();
    let area = text_of(&image).map_or(4096, |(area, _)| area.start);
    let runs = runs(&image);
    image.edit(&mut input, &runs);
    settle(&image, flags, area);
    image
}

fn edits() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..6)
        .flat_map(|base| [vec![base, 0], vec![base, 31]])
        .collect();
    // Another seqno, another start of a segment, a wrapped text, an unreadable header, a label of zeros.
    seeds.push([&[0, 6, 2, 0x50, 0, 3], &b"999"[..]].concat());
    seeds.push([&[0, 6, 1, 0x28, 0, 8], &0x7f_fe00_u64.to_le_bytes()[..]].concat());
    seeds.push(vec![0, 0, 1, 0, 0, 0xc1, 0]);
    seeds.push(vec![0, 0, 0, 0, 0, 0x83, 0]);
    seeds
}

fn disk(data: &[u8]) {
    let image = edited(data);
    let Ok(contents) = metadata::read(&image) else {
        return;
    };
    let PvContents::Vg(committed) = contents else {
        return;
    };
    let again = metadata::parse(&committed.text, &committed.header.uuid).unwrap();
    assert_eq!(
        (again.name, again.lvs),
        (committed.vg.name.clone(), committed.vg.lvs.clone())
    );
    group(&committed.vg, image.size());
}

/// Asserts that free and occupied PEs are all PEs, and disjoint; on a drive with space for the tail behind `size`, without which a group is
/// refused at once.
fn group(vg: &Vg, size: u64) {
    let Ok(view) = view::view(vg, &[], "sda", &BTreeMap::new(), size + plan::TAIL) else {
        return;
    };
    let free: u64 = view.contents.free.iter().map(|run| run.len).sum();
    let mut taken: Vec<Segment> = vg.lvs.iter().flat_map(|lv| lv.occupies.clone()).collect();
    taken.sort_unstable();
    let used: u64 = taken.iter().map(|run| run.count * vg.extent_bytes).sum();
    assert_eq!(free + used, view.contents.usable_bytes, "{vg:?}");
    for run in &view.contents.free {
        assert!(run.end() <= size && run.start >= vg.pv.pe_start, "{run:?}");
    }
    for placed in &view.contents.volumes {
        assert!(placed.ambiguous.is_some() || !placed.pieces.is_empty());
    }
}

fn text(data: &[u8]) {
    let _ = text::parse(data);
    // The uuid of the PV in the golden text; other texts may have it too.
    if let Ok(vg) = metadata::parse(data, "DrvBay-0000-3Cpa-3j21-5kgW-rHYg-1TQvcz")
        && vg.strange.is_empty()
    {
        let end = vg.pv.pe_start + vg.pv.pe_count * vg.extent_bytes;
        group(&vg, end);
    }
}

fn tag_lines() -> Vec<Vec<u8>> {
    let mark = mark();
    let records = [
        record(&mut Input(b"\x07\x05name\xe9")),
        record(&mut Input(b"")),
    ];
    let mut all = vec![tags::of_vg(&mark).join("\n")];
    all.extend(
        records
            .iter()
            .map(|record| tags::of_record(record).join("\n")),
    );
    all.extend([
        "drivebay.v=2".into(),
        "drivebay.name+1=a\ndrivebay.name=b".into(),
        String::new(),
    ]);
    seeds(all)
}

fn mark() -> tags::VgMark {
    tags::VgMark {
        label: Label {
            drive_uuid: Uuid::from_u128(1),
            cluster: "c:ü".into(),
            node: "n".into(),
            class: "k".repeat(1100),
            drive_id: DriveId("wwn-0x1".into()),
            cordon: None,
        },
    }
}

const PLACE: Extent = Extent {
    start: 8 * MIB,
    len: MIB,
};

/// Reads tags as lines. Accepted tags are equal to those that would be written; their checksum is corrected, so that some are accepted.
fn read_tags(data: &[u8]) {
    let given = String::from_utf8_lossy(data);
    let mut lines: Vec<String> = given.lines().map(str::to_owned).collect();
    believed(&lines);
    lines.retain(|line| !line.starts_with("drivebay.sum="));
    let mut ours = tags::ours(&lines);
    ours.sort();
    let text: String = ours.iter().map(|tag| format!("{tag}\n")).collect();
    lines.push(format!(
        "drivebay.sum={:08x}",
        crc32fast::hash(text.as_bytes())
    ));
    believed(&lines);
}

fn believed(lines: &[String]) {
    let mut ours = tags::ours(lines);
    ours.sort();
    if let tags::Read::Ours(record) = tags::record(lines, PLACE) {
        let mut again = tags::of_record(&record);
        again.sort();
        assert_eq!(again, ours);
    }
    if let tags::Read::Ours(mark) = tags::vg(lines) {
        let mut again = tags::of_vg(&mark);
        again.sort();
        assert_eq!(again, ours);
    }
    for line in lines {
        if let Some(uuid) = name::erase_guid(line) {
            assert_eq!(name::erasing(uuid), *line);
        }
    }
}

/// Builds a record of arbitrary words.
fn record(input: &mut Input<'_>) -> Record {
    let kind = input.byte();
    let mut texts = |most: u8| -> Vec<String> {
        let count = input.byte() % most;
        (0..count).map(|_| input.text()).collect()
    };
    let (mkfs_options, mount_options, names) = (texts(4), texts(4), texts(4));
    let name = input.text();
    let fs = FsType::ALL[usize::from(kind) % FsType::ALL.len()];
    Record {
        uuid: Uuid::from_u128(u128::from(input.number(8))),
        // Long enough for several tags.
        class: name.repeat(usize::from(kind)),
        name,
        mode: if kind & 1 == 0 {
            Mode::Mount
        } else {
            Mode::Block
        },
        fs_type: (kind & 2 != 0).then_some(fs),
        mkfs_options,
        mount_options,
        parameters: names.into_iter().map(|name| (name, input.text())).collect(),
        erase: if kind & 4 == 0 {
            ErasePolicy::Zero
        } else {
            ErasePolicy::Signatures
        },
        requested_bytes: input.number(8),
        extent: PLACE,
        growing_to: None,
        place: Default::default(),
        state: match kind >> 6 {
            0 => RecordState::New,
            1 => RecordState::Block,
            2 => RecordState::Creating,
            _ => RecordState::Fs {
                fs_type: fs,
                fs_uuid: Uuid::from_u128(7),
                mounted: kind & 8 != 0,
            },
        },
    }
}

/// Asserts that any record can be read back from its tags, and that LVM accepts each tag.
fn write_tags(data: &[u8]) {
    let record = record(&mut Input(data));
    let tags = tags::of_record(&record);
    for tag in &tags {
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"_+.-/=!:#&".contains(&c);
        assert!(tag.len() <= 1024 && tag.bytes().all(plain), "{tag}");
    }
    assert_eq!(tags::record(&tags, PLACE), tags::Read::Ours(record.clone()));
    let lv = name::of_lv("drivebay-x", &record.name, record.uuid, |_| false);
    assert!(name::lvm_takes("drivebay-x", &lv), "{lv}");
}

/// Asserts that the newest copy of the text is kept, for any content of the slots.
fn copies(data: &[u8]) {
    let mut input = Input(data);
    let (flags, seqno) = (input.byte(), input.byte());
    let mut image = base(0);
    let runs = runs(&image);
    if flags & 1 != 0 {
        let mut changes = Input(input.take(64));
        let only: Vec<Extent> = runs[runs.len() - 3..runs.len() - 1].to_vec();
        image.edit(&mut changes, &only);
        settle(&image, flags & 24, 4096);
    }
    let newest = backup::newest(&image, plan::COPIES);
    let kept = backup::keep(&image, plan::COPIES, input.0, u64::from(seqno));
    if let (Ok(_), Ok(())) = (newest, kept) {
        let copy = backup::newest(&image, plan::COPIES).unwrap().unwrap();
        assert_eq!(
            (copy.text.as_slice(), copy.seqno),
            (input.0, u64::from(seqno))
        );
    }
}
