//! One bad block anywhere in what LVM and Drivebay keep on a drive of layout `lvm`: the drive stays Drivebay's, and its volumes
//! stay known. A VG that LVM makes here, read through the real readers. Needs root, loop devices and LVM; says so without.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

mod lvm_support;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    io,
    ops::Range,
};

use drivebay_layout::{
    device::{Device, Medium},
    jobs::LayoutError,
    lvm::{self, backup, label, metadata, name, plan, tags},
    marks::{self, Mark},
};
use drivebay_model::{
    DriveId, ErasePolicy, Extent, Label, Layout, MIB, Mode, Placed, Record, RecordState,
};
use lvm_support::Bench;
use uuid::Uuid;

const SIZE: u64 = 64 * MIB;
const BLOCK: u64 = 4096;
/// Uuid of the PV, derived from the drive's uuid 7.
const PV: &str = "DrvBay-0000-0000-0000-0000-0000-000007";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    ReadError,
    BitFlipped,
    Zeroed,
    TornHalf,
}

const FAULTS: [Fault; 4] = [
    Fault::ReadError,
    Fault::BitFlipped,
    Fault::Zeroed,
    Fault::TornHalf,
];

/// A drive's bytes, with some that do not read until they are written, from either end.
struct Memory {
    bytes: RefCell<Vec<u8>>,
    unreadable: RefCell<Range<u64>>,
    /// Error of reads in `unreadable`.
    errno: Cell<i32>,
    flushes: Cell<u32>,
}

impl Memory {
    fn struck(&self, fault: Fault, at: u64) -> Self {
        let mut bytes = self.bytes.borrow().clone();
        let block = &mut bytes[at as usize..][..BLOCK as usize];
        let mut unreadable = 0..0;
        match fault {
            Fault::ReadError => unreadable = at..at + BLOCK,
            Fault::BitFlipped => {
                let byte = block.iter().position(|byte| *byte != 0).unwrap_or(100);
                block[byte] ^= 4;
            }
            Fault::Zeroed => block.fill(0),
            Fault::TornHalf => block[BLOCK as usize / 2..].fill(0xa5),
        }
        Self {
            bytes: RefCell::new(bytes),
            unreadable: RefCell::new(unreadable),
            errno: Cell::new(libc::EIO),
            flushes: Cell::new(0),
        }
    }
}

impl Medium for Memory {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let unreadable = self.unreadable.borrow();
        if unreadable.start < end && offset < unreadable.end {
            return Err(io::Error::from_raw_os_error(self.errno.get()));
        }
        buf.copy_from_slice(&self.bytes.borrow()[offset as usize..end as usize]);
        Ok(())
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn sector(&self) -> u64 {
        512
    }
}

impl Device for Memory {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        self.bytes.borrow_mut()[offset as usize..end as usize].copy_from_slice(data);
        let mut unreadable = self.unreadable.borrow_mut();
        if offset <= unreadable.start {
            unreadable.start = unreadable.start.max(end);
        } else if unreadable.end <= end {
            unreadable.end = unreadable.end.min(offset);
        }
        if unreadable.is_empty() {
            *unreadable = 0..0;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.set(self.flushes.get() + 1);
        Ok(())
    }

    fn holders(&self, _placed: &Placed) -> Vec<String> {
        Vec::new()
    }

    fn zero_on_command(&self, extent: Extent) -> io::Result<bool> {
        self.zero(extent).map(|()| true)
    }
    fn write_zeros(&self, extent: Extent) -> io::Result<()> {
        self.zero(extent)
    }
    fn zero(&self, _extent: Extent) -> io::Result<()> {
        unreachable!("nothing is zeroed here")
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn id() -> DriveId {
    DriveId("wwn-0xfa4e".into())
}

/// A drive with two volumes and one that is being erased, as layout `lvm` makes it, copies of the metadata included. None, with the
/// reason on stderr, where it cannot be made.
fn furnished() -> Option<Memory> {
    let bench = Bench::new(SIZE, 512)?;
    let node = &bench.node;
    let drive_uuid = Uuid::from_u128(7);
    let vg = name::of_vg(drive_uuid);
    let label = Label {
        drive_uuid,
        cluster: "c".into(),
        node: "n".into(),
        class: "fast".into(),
        drive_id: id(),
        cordon: None,
    };
    let mark = tags::VgMark { label };
    let kib = |bytes: u64| format!("{}k", bytes / 1024);
    let memory = Memory {
        bytes: RefCell::default(),
        unreadable: RefCell::default(),
        errno: Cell::new(libc::EIO),
        flushes: Cell::new(0),
    };
    let run = |args: Vec<String>| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        bench.lvm(&args)
    };
    run(words(&format!(
        "pvcreate --yes --norestorefile --uuid {PV} --metadatacopies 1 --metadatasize {} --bootloaderareasize {} --dataalignment 1024k --setphysicalvolumesize {} {node}",
        kib(plan::METADATA_END - BLOCK),
        kib(plan::COPIES.len),
        kib(plan::pv_bytes(SIZE))
    )));
    let tagged = |mut args: Vec<String>, tags: Vec<String>| {
        args.extend(
            tags.into_iter()
                .flat_map(|tag| ["--addtag".to_owned(), tag]),
        );
        args
    };
    let group = words(&format!(
        "vgcreate --setautoactivation n --physicalextentsize 1024k {vg} {node}"
    ));
    run(tagged(group, tags::of_vg(&mark)));
    let volumes = [
        (1_u128, "first".to_owned()),
        (2, "second".to_owned()),
        (3, name::erasing(Uuid::from_u128(9))),
    ];
    let mut copies = vec![0; plan::COPIES.len as usize];
    for (n, lv) in volumes {
        let record = Record {
            uuid: Uuid::from_u128(n),
            name: format!("pvc-{n}"),
            class: "fast".into(),
            mode: Mode::Block,
            fs_type: None,
            mkfs_options: Vec::new(),
            mount_options: Vec::new(),
            requested_bytes: 4 * MIB,
            parameters: BTreeMap::new(),
            erase: ErasePolicy::Zero,
            extent: Extent {
                start: 0,
                len: 4 * MIB,
            },
            growing_to: None,
            place: Default::default(),
            state: RecordState::Block,
        };
        let create = words(&format!("lvcreate -an -Zn -Wn -l 4 -n {lv} {vg}"));
        run(tagged(create, tags::of_record(&record)));
        // After each change, as the agent does: two versions are kept, which LVM does not know of.
        let mut bytes = vec![0; SIZE as usize];
        bench.read_at(0, &mut bytes).unwrap();
        bytes[plan::COPIES.start as usize..plan::COPIES.end() as usize].copy_from_slice(&copies);
        memory.bytes.replace(bytes);
        let shown = lvm::shown(&memory, &id()).unwrap();
        backup::keep(&memory, plan::COPIES, &shown.text, shown.vg.seqno).unwrap();
        copies = memory.bytes.borrow()[plan::COPIES.start as usize..plan::COPIES.end() as usize]
            .to_vec();
    }
    Some(memory)
}

fn region(at: u64) -> &'static str {
    let half = plan::COPIES.len / 2;
    match at {
        0 => "LVM label",
        4096 => "metadata area's header",
        at if at < plan::METADATA_END => "metadata texts",
        at if at < plan::COPIES.start + half => "copy, slot 0",
        at if at < plan::COPIES.end() => "copy, slot 1",
        _ => "volumes",
    }
}

#[test]
fn one_bad_block_leaves_the_drive_ours_and_its_volumes_known() {
    let Some(healthy) = furnished() else { return };
    let names = |memory: &Memory| {
        let shown = lvm::shown(memory, &id())?;
        let lvs = shown.vg.lvs.iter();
        Ok::<_, LayoutError>(lvs.map(|lv| lv.name.clone()).collect::<Vec<_>>())
    };
    let acknowledged = names(&healthy).unwrap();
    assert_eq!(acknowledged.len(), 3);
    let half = plan::COPIES.len / 2;
    let relied_on = [0, plan::COPIES.start, plan::COPIES.start + half];
    let is_relied_on = |at: u64| {
        relied_on
            .iter()
            .any(|start| (*start..start + 48 * 1024).contains(&at))
    };
    let blocks = (0..plan::FIRST_PE + MIB)
        .chain(SIZE - MIB..SIZE)
        .step_by(BLOCK as usize);
    let blocks = blocks.filter(|at| is_relied_on(*at) || at.is_multiple_of(MIB / 2));
    let mut outcomes: BTreeMap<(&str, Fault, &str), usize> = BTreeMap::new();
    for (number, at) in blocks.enumerate() {
        // In short each block has one fault, and each fault every fourth block.
        let faults = match std::env::var_os("DRIVEBAY_LONG") {
            Some(_) => FAULTS.to_vec(),
            None => vec![FAULTS[number % FAULTS.len()]],
        };
        for fault in faults {
            let drive = healthy.struck(fault, at);
            let what = format!("{fault:?} at byte {at} ({})", region(at));
            let outcome = match (marks::read(&drive), names(&drive)) {
                (Ok(Mark::Ours(Layout::Lvm)), Ok(lvs)) => {
                    assert_eq!(lvs, acknowledged, "{what}");
                    "volumes known"
                }
                (mark, lvs) => panic!("{what}: {mark:?}, {lvs:?}"),
            };
            *outcomes.entry((region(at), fault, outcome)).or_default() += 1;
        }
    }
    println!("{:<24} {:<11} {:<19} blocks", "region", "fault", "outcome");
    for ((region, fault, outcome), count) in outcomes {
        println!(
            "{region:<24} {:<11} {outcome:<19} {count}",
            format!("{fault:?}")
        );
    }
}

#[test]
fn label_and_area_header_are_made_again_as_lvm_wrote_them() {
    let Some(healthy) = furnished() else { return };
    let shown = lvm::shown(&healthy, &id()).unwrap();
    let is_as_before = |drive: &Memory, what: &str| {
        let (now, before) = (drive.bytes.borrow(), healthy.bytes.borrow());
        let differs = now.iter().zip(before.iter()).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{what}: the first byte that differs");
    };
    let seqno_of = |text: &[u8]| Some(metadata::parse(text, PV).ok()?.seqno);
    for fault in FAULTS {
        let drive = healthy.struck(fault, 0);
        let reread = lvm::shown(&drive, &id()).unwrap();
        assert_eq!(reread.header, shown.header, "{fault:?}");
        // Half of the block is LVM's no more.
        if fault != Fault::TornHalf {
            assert!(reread.label_damage.is_some(), "{fault:?}");
            label::write(&drive, &reread.header).unwrap();
            is_as_before(&drive, "the label");
        }

        let drive = healthy.struck(fault, label::AREA.start);
        // With the first texts in its other half, which nothing needs any more.
        let readable = Memory {
            unreadable: RefCell::default(),
            ..drive
        };
        let location = label::find(&readable, label::AREA, &shown.text, seqno_of).unwrap();
        assert_eq!(location, shown.location, "{fault:?}");
        label::write_area(&readable, label::AREA, location.unwrap()).unwrap();
        let again = lvm::shown(&readable, &id()).unwrap();
        assert_eq!(again, shown, "{fault:?}");
    }

    let location = shown.location.unwrap();
    let at = (label::AREA.start + location.offset) / BLOCK * BLOCK;
    let drive = healthy.struck(Fault::BitFlipped, at);
    let mut text = shown.text.clone();
    text.push(0);
    label::write_text(&drive, label::AREA, location, &text).unwrap();
    assert_eq!(lvm::shown(&drive, &id()).unwrap(), shown);
}

/// LVM itself reads all of it, in pieces of 128 KiB.
#[test]
fn what_does_not_read_and_is_not_needed_is_written_again_and_nothing_else() {
    let Some(healthy) = furnished() else { return };
    let shown = lvm::shown(&healthy, &id()).unwrap();
    let text = label::AREA.start + shown.location.unwrap().offset;
    let header = label::AREA.start;
    let needed: [Range<u64>; 3] = [
        512..1024,
        header..header + 512,
        text..text + shown.text.len() as u64 + 1,
    ];
    let drive = healthy.struck(Fault::Zeroed, SIZE - BLOCK);
    // Single sectors where all of the structures are, and whole blocks everywhere.
    let sectors = (0..2 * text).step_by(512).map(|at| at..at + 512);
    let blocks = (0..plan::METADATA_END).step_by(BLOCK as usize);
    for bad in sectors.chain(blocks.map(|at| at..at + BLOCK)) {
        let touches = needed
            .iter()
            .any(|of| of.start < bad.end && bad.start < of.end);
        drive.flushes.take();
        drive.unreadable.replace(bad.clone());
        let mended = lvm::unreadable::mend(&drive, &shown);
        let left = drive.unreadable.borrow().clone();
        let changed = |range: Range<u64>| {
            let of = |memory: &Memory| {
                memory.bytes.borrow()[range.start as usize..range.end as usize].to_vec()
            };
            of(&drive) != of(&healthy)
        };
        if touches {
            // Its other sectors may be written, the needed ones stay as they are.
            for of in &needed {
                let part = of.start.max(bad.start)..of.end.min(bad.end);
                assert!(
                    part.is_empty() || left.start <= part.start && part.end <= left.end,
                    "{bad:?}: {left:?}"
                );
            }
            assert!(!needed.iter().any(|of| changed(of.clone())), "{bad:?}");
        } else {
            assert_eq!(mended.unwrap(), 1, "{bad:?}");
            assert_eq!(left, 0..0, "{bad:?}");
            assert_eq!(drive.flushes.take(), 1, "{bad:?}");
            assert_eq!(lvm::shown(&drive, &id()).unwrap(), shown, "{bad:?}");
        }
        assert!(!changed(plan::METADATA_END..plan::FIRST_PE), "{bad:?}");
    }
    // Nothing to do, nothing done.
    drive.flushes.take();
    assert_eq!(lvm::unreadable::mend(&drive, &shown).unwrap(), 0);
    assert_eq!(drive.flushes.take(), 0);
    // As many as are mended; in the area's unused part, which is written from its beginning.
    drive.unreadable.replace(2 * MIB..2 * MIB + 64 * BLOCK);
    assert_eq!(lvm::unreadable::mend(&drive, &shown).unwrap(), 64);
    assert_eq!(*drive.unreadable.borrow(), 0..0);
    // Laid out in another way: a volume may lie there.
    drive.unreadable.replace(2 * MIB..2 * MIB + BLOCK);
    let mut other = shown.clone();
    other.vg.pv.pe_start = plan::METADATA_END - 1;
    assert_eq!(lvm::unreadable::mend(&drive, &other).unwrap(), 0);
    other.vg.pv.pe_start = plan::METADATA_END;
    assert_eq!(lvm::unreadable::mend(&drive, &other).unwrap(), 1);
    drive.unreadable.replace(2 * MIB..2 * MIB + BLOCK);
    // The drive is gone, which says nothing of a place.
    drive.errno.set(libc::ENODEV);
    assert!(lvm::unreadable::mend(&drive, &shown).is_err());
    assert_eq!(*drive.unreadable.borrow(), 2 * MIB..2 * MIB + BLOCK);

    drive.errno.set(libc::EIO);
    drive.unreadable.replace(2 * MIB..2 * MIB + 65 * BLOCK);
    assert!(lvm::unreadable::mend(&drive, &shown).is_err());
    assert_eq!(drive.unreadable.borrow().end, 2 * MIB + 65 * BLOCK);
    healthy.unreadable.replace(0..2 * MIB);
    let error = lvm::unreadable::mend(&healthy, &shown).unwrap_err();
    assert!(error.to_string().contains("more than 64 blocks"), "{error}");
}

#[test]
fn a_text_that_is_newer_than_the_copy_is_not_gone_back_from() {
    let Some(healthy) = furnished() else { return };
    let shown = lvm::shown(&healthy, &id()).unwrap();
    let older = backup_before(&shown.text, shown.vg.seqno);
    let seqno_of = |text: &[u8]| Some(metadata::parse(text, PV).ok()?.seqno);
    assert_eq!(
        label::find(&healthy, label::AREA, &older, seqno_of).unwrap(),
        None
    );
}

/// The text as it is with the version before, for comparison only.
fn backup_before(text: &[u8], seqno: u64) -> Vec<u8> {
    let text = String::from_utf8(text.to_vec()).unwrap();
    let before = text.replace(
        &format!("seqno = {seqno}"),
        &format!("seqno = {}", seqno - 1),
    );
    assert_ne!(before, text);
    before.into_bytes()
}

#[test]
fn something_else_where_labels_are_keeps_a_drive_from_being_taken_for_ours() {
    let Some(healthy) = furnished() else { return };
    // A boot sector, an ext4 superblock, swap: each has something in a sector beside that of the label.
    for sector in [0, 2, 3] {
        let drive = healthy.struck(Fault::Zeroed, 0);
        drive.write_at(sector * 512 + 100, &[0xeb]).unwrap();
        let mark = marks::read(&drive).unwrap();
        assert!(matches!(mark, Mark::None(_)), "sector {sector}: {mark:?}");
        assert!(marks::traces(&drive).unwrap().is_some());
    }
}

#[test]
fn what_is_left_after_the_metadata_is_wiped_is_a_trace_and_a_blank_or_foreign_drive_has_none() {
    let Some(drive) = furnished() else { return };
    // The header of the metadata area with the label, and then all of LVM's own metadata.
    for len in [2 * BLOCK, plan::METADATA_END] {
        drive.write_at(0, &vec![0; len as usize]).unwrap();
        let mark = marks::read(&drive).unwrap();
        assert!(matches!(mark, Mark::None(_)), "{mark:?}");
        assert!(
            marks::traces(&drive).unwrap().is_some(),
            "{len} bytes wiped"
        );
    }
    drive
        .write_at(0, &vec![0; plan::FIRST_PE as usize])
        .unwrap();
    assert_eq!(marks::traces(&drive).unwrap(), None);
}
