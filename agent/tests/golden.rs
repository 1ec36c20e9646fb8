//! What the first release (commit 4d75420) left on drives and in its state directory, read by today's build, and what
//! today's build writes for the same. The files are in `golden/`; `hwtests/golden record` makes them again.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods
)]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_agent::{
    carve::{
        device::{Device, Medium},
        gpt::{self, LABEL_EXTENT},
        lvm::{backup, metadata, name, tags, view},
        marks::{self, Mark},
        record::{self, Found, FreeSpace, Read},
    },
    check::kept,
    model::{
        CheckMethod, CheckOutcome, Checked, DriveId, ERASING_TYPE, ErasePolicy, Extent, FsType,
        GIB, LastCheck, Layout, MIB, Media, Mode, Record, RecordState, Transport, VOLUME_TYPE,
    },
    smart::{History, rules::Verdict},
    state::{Store, Tombstone, merge},
};
use serde_json::Value;
use uuid::Uuid;

const DRIVE_A: &str = "loop-a.img-70b32899";
const DRIVE_GONE: &str = "loop-gone.img-a94f1cbb";
const DRIVE_SPARE: &str = "loop-spare.img-35e405d4";
const LABEL_HEADER: usize = 4096;
const SLOT: u64 = 2 * MIB;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/4d75420")
}

fn drive(name: &str) -> DriveId {
    DriveId(name.to_owned())
}

fn uuid(text: &str) -> Uuid {
    text.parse().unwrap()
}

/// A drive of which the sectors that are not zero were kept.
#[derive(Clone)]
struct Image {
    size: u64,
    sectors: RefCell<BTreeMap<u64, Vec<u8>>>,
}

const SECTOR: u64 = 512;

impl Image {
    fn load(name: &str) -> Self {
        Self::of(&format!("drives/{name}.hex"))
    }

    fn of(file: &str) -> Self {
        let text = fs::read_to_string(golden().join(file)).unwrap();
        let mut lines = text.lines();
        let size = lines.next().unwrap().strip_prefix("size ").unwrap();
        let sectors = lines.map(|line| {
            let (at, digits) = line.split_once(' ').unwrap();
            let digits = digits.as_bytes().chunks(2);
            let byte =
                |pair: &[u8]| std::str::from_utf8(pair).map(|pair| u8::from_str_radix(pair, 16));
            let mut sector: Vec<u8> = digits.map(|pair| byte(pair).unwrap().unwrap()).collect();
            sector.resize(SECTOR as usize, 0);
            (at.parse().unwrap(), sector)
        });
        Self {
            size: size.parse().unwrap(),
            sectors: RefCell::new(sectors.collect()),
        }
    }

    fn blank(&self) -> Self {
        Self {
            size: self.size,
            sectors: RefCell::default(),
        }
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.next_multiple_of(SECTOR as usize)];
        self.read_at(at, &mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    }

    fn label(&self) -> Read {
        let gpt::Found::Whole(table) = gpt::read(self).unwrap() else {
            panic!("both copies of the table are whole");
        };
        match record::read(self, table.disk_guid).unwrap() {
            Found::Read(read) => read,
            other => panic!("{other:?}"),
        }
    }
}

impl Medium for Image {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let sectors = self.sectors.borrow();
        for (at, part) in (offset..)
            .step_by(SECTOR as usize)
            .zip(buf.chunks_mut(SECTOR as usize))
        {
            match sectors.get(&at) {
                Some(sector) => part.copy_from_slice(sector),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        SECTOR
    }
}

impl Device for Image {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut sectors = self.sectors.borrow_mut();
        for (at, part) in (offset..)
            .step_by(SECTOR as usize)
            .zip(data.chunks(SECTOR as usize))
        {
            sectors.insert(at, part.to_vec());
        }
        sectors.retain(|_, sector| sector.iter().any(|&byte| byte != 0));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, extent: Extent) -> io::Result<()> {
        let mut sectors = self.sectors.borrow_mut();
        sectors.retain(|at, _| !(extent.start..extent.end()).contains(at));
        Ok(())
    }
}

fn parameters(class: &str, more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let class = [("class", class)];
    let all = class.iter().chain(more);
    all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A volume as it was asked for, at this place.
fn block(id: &str, name: &str, class: &str, start: u64, len: u64, state: RecordState) -> Record {
    Record {
        uuid: uuid(id),
        name: name.to_owned(),
        class: class.to_owned(),
        mode: Mode::Block,
        fs_type: None,
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        parameters: parameters(class, &[]),
        erase: ErasePolicy::Zero,
        requested_bytes: len,
        extent: Extent { start, len },
        growing_to: None,
        state,
    }
}

fn ext4(id: &str, name: &str, class: &str, start: u64, len: u64, fs_uuid: Option<&str>) -> Record {
    let options = [("mkfsOptions", "-m 1"), ("mountOptions", "noatime")];
    let state = fs_uuid.map_or(RecordState::New, |fs_uuid| RecordState::Fs {
        fs_type: FsType::Ext4,
        fs_uuid: uuid(fs_uuid),
        mounted: true,
    });
    Record {
        mode: Mode::Mount,
        fs_type: Some(FsType::Ext4),
        mkfs_options: vec!["-m".into(), "1".into()],
        mount_options: vec!["noatime".into()],
        parameters: parameters(class, &options),
        ..block(id, name, class, start, len, state)
    }
}

fn erasing(done_bytes: u64) -> RecordState {
    RecordState::Erasing {
        erase_guid: uuid("233d3cd3-40e8-4d9d-a5b9-013dd13144fd"),
        done_bytes,
    }
}

/// The volumes of drive `a`, in every state of their life.
fn volumes_of_a(erased: u64) -> Vec<Record> {
    let first = 5 * MIB;
    let second = first + 1024 * GIB;
    let mut new = block(
        "f594ef90-a901-4283-aa16-29027f281d7a",
        "pvc-new",
        "demo",
        second + 128 * MIB,
        320 * MIB,
        RecordState::New,
    );
    new.mode = Mode::Mount;
    new.fs_type = Some(FsType::Xfs);
    let mut grown = ext4(
        "ff104791-2c02-43da-9ea0-a4e2a8deee8a",
        "pvc-mounted ü:=+,\"",
        "demo",
        second + 576 * MIB,
        192 * MIB,
        Some(FS_MOUNTED),
    );
    grown.requested_bytes = 128 * MIB;
    vec![
        block(
            "17a034c9-af0a-451f-a504-2d97cacce5bc",
            "pvc-erasing",
            "demo",
            first,
            1024 * GIB,
            erasing(erased),
        ),
        block(
            "e8b99ca4-487c-4604-ad29-b489c4209f30",
            "pvc-block",
            "demo",
            second,
            128 * MIB,
            RecordState::Block,
        ),
        new,
        ext4(
            "a18c6218-0908-4fae-a836-f09eda5e3990",
            "pvc-checked",
            "demo",
            second + 448 * MIB,
            64 * MIB,
            Some(FS_CHECKED),
        ),
        ext4(
            "89db87f5-9d20-4a17-91e7-2c55a4323111",
            "pvc-troubled",
            "demo",
            second + 512 * MIB,
            64 * MIB,
            Some(FS_TROUBLED),
        ),
        grown,
    ]
}

const FS_CHECKED: &str = "59a5086b-87d3-4ed0-8c64-739303fa5d4a";
const FS_TROUBLED: &str = "10afb025-bbb2-448c-8058-1b6ed32f359d";
const FS_MOUNTED: &str = "3f0399fe-3dd2-4a35-98a3-2f03345b3ba3";
const DELETED: &str = "d29031f9-edae-4c6b-a14b-03aca38f7e88";
const ABSENT: &str = "78b48bab-f1c7-44ba-9d46-262e7fc7cb19";
/// What the label says of `pvc-erasing`, and what the agent had written of it in its own file before.
const ERASED_LABEL: u64 = 67_628_957_696;
const ERASED_KNOWN: u64 = 21_458_059_264;

fn volumes_of_gone() -> Vec<Record> {
    let first = 5 * MIB;
    vec![
        ext4(ABSENT, "pvc-absent", "gone", first, 128 * MIB, None),
        block(
            DELETED,
            "pvc-deleted",
            "gone",
            first + 128 * MIB,
            128 * MIB,
            RecordState::New,
        ),
    ]
}

#[test]
fn label_records_say_what_they_said() {
    for (name, class, id, drive_uuid, volumes) in [
        (
            "a",
            "demo",
            DRIVE_A,
            "766084b9-e891-47c9-8956-ebc145a6bb28",
            volumes_of_a(ERASED_LABEL),
        ),
        (
            "gone",
            "gone",
            DRIVE_GONE,
            "24589446-1846-434e-9956-c8778c77ea8c",
            volumes_of_gone(),
        ),
    ] {
        let image = Image::load(name);
        assert!(matches!(
            marks::read(&image).unwrap(),
            Mark::Ours(Layout::Partition)
        ));
        let read = image.label();
        assert_eq!(read.other, None, "both slots hold the newest version");
        let content = read.content;
        assert_eq!(content.minor, 0);
        assert_eq!(content.label.drive_uuid, uuid(drive_uuid));
        let label = &content.label;
        let whose = [&label.cluster, &label.node, &label.class, &label.drive_id.0];
        assert_eq!(whose, ["golden", "golden0", class, id]);
        assert_eq!(content.free_space, FreeSpace::Zeros);
        let records: Vec<_> = content
            .records
            .iter()
            .map(|stored| stored.record.clone())
            .collect();
        assert_eq!(records, volumes);
    }
}

#[test]
fn the_table_agrees_with_the_records_and_is_written_the_same() {
    let image = Image::load("a");
    let gpt::Found::Whole(table) = gpt::read(&image).unwrap() else {
        panic!("both copies are whole");
    };
    assert_eq!(
        table.disk_guid,
        uuid("766084b9-e891-47c9-8956-ebc145a6bb28")
    );
    let entries: Vec<_> = table.partitions().skip(1).collect();
    for (record, (_, entry)) in volumes_of_a(ERASED_LABEL).iter().zip(&entries) {
        let identity = match record.state {
            RecordState::Erasing { erase_guid, .. } => (ERASING_TYPE, erase_guid),
            _ => (VOLUME_TYPE, record.uuid),
        };
        assert_eq!(
            (entry.type_guid(), entry.guid()),
            identity,
            "{}",
            record.name
        );
        assert_eq!(entry.extent(SECTOR), record.extent);
        assert_eq!(entry.name(), "drivebay");
    }
    assert_eq!(entries.len(), 6);
    let written = image.blank();
    gpt::create(&written, &table).unwrap();
    let label = LABEL_EXTENT.start..LABEL_EXTENT.end();
    let tables = |image: &Image| {
        let mut sectors = image.sectors.borrow().clone();
        sectors.retain(|at, _| !label.contains(at));
        sectors
    };
    assert_eq!(tables(&written), tables(&image));
}

/// Known difference: payloads are padded to whole blocks of 4096 bytes, where the first release padded to whole sectors.
#[test]
fn a_label_is_written_the_same_but_for_its_padding() {
    for name in ["a", "gone"] {
        let image = Image::load(name);
        let read = image.label();
        let before = Read {
            sequence: read.sequence - 1,
            ..read.clone()
        };
        let written = image.clone();
        written.zero(LABEL_EXTENT).unwrap();
        record::write(&written, Some(&before), &read.content).unwrap();
        for slot in 0..2 {
            let start = LABEL_EXTENT.start + slot * SLOT;
            let header = image.bytes(start, LABEL_HEADER);
            let len = u64::from_le_bytes(header[24..32].try_into().unwrap()) as usize;
            let whole = LABEL_HEADER + len;
            assert_eq!(
                written.bytes(start, whole),
                image.bytes(start, whole),
                "{name}, {slot}"
            );
            let padded = whole.next_multiple_of(4096);
            let padding = written.bytes(start, padded).split_off(whole);
            assert!(padding.iter().all(|&byte| byte == 0));
        }
    }
}

/// Changes one slot's header or payload, with the right checksums.
fn rewritten(slots: &[u64], change: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) -> Image {
    let image = Image::load("a");
    for slot in slots {
        let start = LABEL_EXTENT.start + slot * SLOT;
        let mut header = image.bytes(start, LABEL_HEADER);
        let len = u64::from_le_bytes(header[24..32].try_into().unwrap()) as usize;
        let mut payload = image.bytes(start + LABEL_HEADER as u64, len);
        change(&mut header, &mut payload);
        header[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        header[32..36].copy_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        let crc = crc32fast::hash(&header[..LABEL_HEADER - 4]);
        header[LABEL_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        payload.resize(payload.len().next_multiple_of(SECTOR as usize), 0);
        image.write_at(start, &header).unwrap();
        image
            .write_at(start + LABEL_HEADER as u64, &payload)
            .unwrap();
    }
    image
}

#[test]
fn a_label_of_a_newer_format_is_refused_in_either_slot() {
    let guid = uuid("766084b9-e891-47c9-8956-ebc145a6bb28");
    for slots in [&[0_u64][..], &[1], &[0, 1]] {
        let newer = rewritten(slots, |header, _| header[8] = 2);
        match record::read(&newer, guid).unwrap() {
            Found::Damaged(why) => assert!(why.contains("format is 2"), "{why}"),
            other => panic!("{slots:?}: {other:?}"),
        }
        // Of this format, with a state that nobody knows.
        let newer = rewritten(slots, |_, payload| {
            let text = String::from_utf8(payload.clone()).unwrap();
            *payload = text
                .replace(r#""is":"block""#, r#""is":"frozen""#)
                .into_bytes();
        });
        match record::read(&newer, guid).unwrap() {
            Found::Damaged(why) => assert!(why.contains("frozen"), "{why}"),
            other => panic!("{slots:?}: {other:?}"),
        }
    }
}

#[test]
fn what_a_newer_minor_version_added_to_a_label_is_kept() {
    let newer = rewritten(&[0, 1], |header, payload| {
        header[10] = 1;
        let text = String::from_utf8(payload.clone()).unwrap();
        *payload = text
            .replacen("{\"label\":{", "{\"later\":7,\"label\":{\"added\":[1],", 1)
            .into_bytes();
    });
    let read = newer.label();
    assert_eq!(read.content.minor, 1);
    record::write(&newer, Some(&read), &read.content).unwrap();
    let payload = newer.bytes(LABEL_EXTENT.start + LABEL_HEADER as u64, 8192);
    let text = String::from_utf8_lossy(&payload).into_owned();
    assert!(
        text.contains("\"later\":7") && text.contains("\"added\":[1]"),
        "{text}"
    );
    assert_eq!(newer.label().content.minor, 1);
}

/// A copy of the golden state directory, which a test may write to.
fn state() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["known.json", "tombstones.json"] {
        fs::copy(golden().join("state").join(name), dir.path().join(name)).unwrap();
    }
    dir
}

#[tokio::test]
async fn known_drives_and_tombstones_say_what_they_said_and_are_written_the_same() {
    let dir = state();
    let store = Store::new(dir.path());
    let loaded = store.load().await;
    assert_eq!(loaded.troubles, [""; 0]);
    let known = &loaded.known.drives;
    assert_eq!(
        known.keys().map(|id| id.0.as_str()).collect::<Vec<_>>(),
        [DRIVE_A, DRIVE_GONE]
    );
    let a = &known[&drive(DRIVE_A)];
    assert_eq!(a.volumes, volumes_of_a(ERASED_KNOWN));
    assert_eq!(
        (a.class.as_str(), a.usable_bytes),
        ("demo", 2_199_016_964_096)
    );
    assert_eq!(
        a.drive_uuid,
        Some(uuid("766084b9-e891-47c9-8956-ebc145a6bb28"))
    );
    let facts = &a.facts;
    assert_eq!(
        (facts.media, facts.transport),
        (Media::Hdd, Transport::Loop)
    );
    assert_eq!((facts.size_bytes, facts.logical_sector), (2048 * GIB, 512));
    assert_eq!(facts.kernel_name, "loop0");
    assert_eq!(facts.partitions.len(), 5);
    assert_eq!(facts.partitions[4].size_bytes, 192 * MIB);
    assert_eq!(known[&drive(DRIVE_GONE)].volumes, volumes_of_gone());
    let tombstone = Tombstone {
        drive: drive(DRIVE_GONE),
        name: "pvc-deleted".into(),
        deleted_at: 1_795_410_499,
        quarantined_seconds: 0,
        released: false,
    };
    assert_eq!(
        loaded.tombstones.volumes,
        [(uuid(DELETED), tombstone)].into()
    );

    let nothing = BTreeMap::new();
    let (now, day) = (Duration::ZERO, Duration::from_secs(86_400));
    let merged = merge(&loaded.known, &loaded.tombstones, &nothing, 0, now, day);
    assert_eq!(merged.missing_drives, [drive(DRIVE_A), drive(DRIVE_GONE)]);
    let missing = merged
        .missing_volumes
        .iter()
        .map(|(_, record)| record.name.as_str());
    let missing: Vec<_> = missing.collect();
    assert_eq!(
        missing,
        [
            "pvc-block",
            "pvc-new",
            "pvc-checked",
            "pvc-troubled",
            "pvc-mounted ü:=+,\"",
            "pvc-absent"
        ]
    );

    store.save_known(loaded.known).await.unwrap();
    store.save_tombstones(loaded.tombstones).await.unwrap();
    for name in ["known.json", "tombstones.json"] {
        let written = fs::read_to_string(dir.path().join(name)).unwrap();
        let golden = fs::read_to_string(golden().join("state").join(name)).unwrap();
        assert_eq!(written, golden, "{name}");
    }
}

#[test]
fn smart_histories_say_what_they_said_and_are_written_the_same() {
    let read = |id: &str| {
        let bytes = fs::read(golden().join(format!("state/smart/{id}.json"))).unwrap();
        let history = History::from_json(&bytes).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&history.to_json().unwrap()),
            String::from_utf8_lossy(&bytes)
        );
        // Every member is one that is known, not one that is left out and filled in.
        let members: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(members.as_object().unwrap().len(), 19);
        history
    };
    assert_eq!(read(DRIVE_A).verdict(), Verdict::Bad);
    // An operator has acknowledged it.
    assert_eq!(read(DRIVE_SPARE).verdict(), Verdict::Good);
}

#[tokio::test]
async fn results_of_checks_say_what_they_said_and_are_written_the_same() {
    let clean = LastCheck {
        at: 1_795_410_496,
        method: Some(CheckMethod::Unmounted),
        tool: "e2fsck -fn".into(),
        outcome: CheckOutcome::Clean,
        took_ms: 76,
    };
    let why =
        "its drive is failing: reading all of its metadata could be too much; save the data first";
    let left = LastCheck {
        at: 1_795_410_499,
        method: None,
        tool: String::new(),
        outcome: CheckOutcome::NotCheckable { why: why.into() },
        took_ms: 0,
    };
    for (volume, checked) in [
        (
            "a18c6218-0908-4fae-a836-f09eda5e3990",
            Checked {
                fs_uuid: uuid(FS_CHECKED),
                conclusive: Some(clean.clone()),
                latest: Some(clean),
            },
        ),
        (
            "89db87f5-9d20-4a17-91e7-2c55a4323111",
            Checked {
                fs_uuid: uuid(FS_TROUBLED),
                conclusive: None,
                latest: Some(left),
            },
        ),
    ] {
        let dir = golden().join("state/checks");
        assert_eq!(kept::read(&dir, uuid(volume)).await, Some(checked.clone()));
        let new = tempfile::tempdir().unwrap();
        kept::write(new.path(), uuid(volume), &checked)
            .await
            .unwrap();
        let name = format!("{volume}.json");
        let written = fs::read_to_string(new.path().join(&name)).unwrap();
        assert_eq!(written, fs::read_to_string(dir.join(name)).unwrap());
    }
}

/// Name of the LV, its segments (first extent, extents), and the record in its tags.
type LogicalVolume = (&'static str, Vec<(u64, u64)>, Record);

/// The volumes of the drive with layout `lvm`, without what their names and the kernel add: that one is being erased.
fn logical_volumes() -> Vec<LogicalVolume> {
    let fs = |fs_type, fs_uuid: &str, mounted| RecordState::Fs {
        fs_type,
        fs_uuid: uuid(fs_uuid),
        mounted,
    };
    let base = |id: &str, name: &str, start: u64, len: u64, state: RecordState| Record {
        parameters: BTreeMap::new(),
        ..block(id, name, "demo", start, len, state)
    };
    let mounted = Record {
        mode: Mode::Mount,
        fs_type: Some(FsType::Ext4),
        requested_bytes: 128 * MIB,
        ..base(
            "f4241797-829c-4033-8a7e-4add5932af7a",
            "pvc mounted:=é",
            3208 * MIB,
            192 * MIB,
            fs(FsType::Ext4, "081f6bd8-774a-473c-b89a-eebae882a954", true),
        )
    };
    let planned = Record {
        mode: Mode::Mount,
        fs_type: Some(FsType::Xfs),
        ..base(
            "7b5a99c6-6434-409f-aaa4-112bc00eb565",
            "pvc-new",
            3336 * MIB,
            320 * MIB,
            fs(FsType::Xfs, "90578fbd-3d5c-4f27-ad22-d9fe7fbcf1c0", false),
        )
    };
    vec![
        (
            "drivebay-erasing-c1928e47-9013-4f04-984f-f8e5237b822b",
            vec![(0, 3072)],
            base(
                "92b40856-a964-4a8b-b487-39c6548c1699",
                "pvc-erasing",
                8 * MIB,
                3 * GIB,
                RecordState::Block,
            ),
        ),
        (
            "pvc-block",
            vec![(3072, 128)],
            base(
                "9e0f34b1-db8a-4608-88c5-108d479150b5",
                "pvc-block",
                3080 * MIB,
                128 * MIB,
                RecordState::Block,
            ),
        ),
        (
            "vol-f4241797-829c-4033-8a7e-4add5932af7a",
            vec![(3200, 128), (3648, 64)],
            mounted,
        ),
        ("pvc-new", vec![(3328, 320)], planned),
    ]
}

const GROUP: &str = "695ef067-9097-4013-9bdb-e17248f82cb5";

fn group() -> (Image, metadata::Committed) {
    let image = Image::of("lvm/group.hex");
    match metadata::read(&image).unwrap() {
        metadata::Found::Vg(committed) => (image, *committed),
        other => panic!("{other:?}"),
    }
}

fn sorted(mut tags: Vec<String>) -> Vec<String> {
    tags.sort();
    tags
}

#[test]
fn lvm_metadata_and_tags_say_what_they_said_and_tags_are_written_the_same() {
    let (image, committed) = group();
    assert!(matches!(
        marks::read(&image).unwrap(),
        Mark::Ours(Layout::Lvm)
    ));
    let text = fs::read(golden().join("lvm/metadata.txt")).unwrap();
    assert_eq!(
        String::from_utf8_lossy(&committed.text),
        String::from_utf8_lossy(&text)
    );
    let vg = &committed.vg;
    assert_eq!(
        (vg.seqno, vg.extent_bytes, vg.pv.pe_start),
        (8, MIB, 8 * MIB)
    );
    assert_eq!(vg.name, name::of_vg(uuid(GROUP)));
    assert!(!vg.autoactivation && vg.strange.is_empty());
    let tags::Read::Ours(mark) = tags::vg(&vg.tags) else {
        panic!("{:?}", tags::vg(&vg.tags));
    };
    assert_eq!(mark.free_space, FreeSpace::Zeros);
    let label = &mark.label;
    assert_eq!(label.drive_uuid, uuid(GROUP));
    let whose = [&label.cluster, &label.node, &label.class, &label.drive_id.0];
    assert_eq!(
        whose,
        ["golden", "golden0", "demo", "serial-QEMU_HARDDISK_group"]
    );
    assert_eq!(sorted(tags::of_vg(&mark)), sorted(vg.tags.clone()));

    assert_eq!(vg.lvs.len(), 4);
    for (lv, (name, pieces, record)) in vg.lvs.iter().zip(logical_volumes()) {
        assert_eq!(lv.name, name);
        let segments = lv.segments.iter().map(|one| (one.start, one.count));
        assert_eq!(segments.collect::<Vec<_>>(), pieces);
        let tags::Read::Ours(read) = tags::record(&lv.tags, record.extent) else {
            panic!("{:?}", tags::record(&lv.tags, record.extent));
        };
        assert_eq!(read, record);
        assert_eq!(
            sorted(tags::of_record(&read)),
            sorted(lv.tags.clone()),
            "{name}"
        );
        // Of a newer version: shown, and not believed.
        let newer = lv
            .tags
            .iter()
            .map(|tag| tag.replace("drivebay.v=1", "drivebay.v=2"));
        match tags::record(&newer.collect::<Vec<_>>(), record.extent) {
            tags::Read::Broken { why, uuid, .. } => {
                assert!(why.contains("newer version"), "{why}");
                assert_eq!(uuid, Some(record.uuid));
            }
            other => panic!("{other:?}"),
        }
    }
    let newer = vg
        .tags
        .iter()
        .map(|tag| tag.replace("drivebay.v=1", "drivebay.v=2"));
    let newer = metadata::Vg {
        tags: newer.collect(),
        ..vg.clone()
    };
    let refused = view::view(&newer, &[], "sda", &BTreeMap::new()).unwrap_err();
    assert!(refused.contains("newer version"), "{refused}");
}

#[test]
fn a_group_is_seen_with_its_volumes_and_what_is_being_erased() {
    let (_, committed) = group();
    let guid = uuid("c1928e47-9013-4f04-984f-f8e5237b822b");
    let erased = [(guid, 2_298_478_592)].into();
    let view = view::view(&committed.vg, &[], "sda", &erased).unwrap();
    assert_eq!(view.contents.layout, Layout::Lvm);
    let golden = fs::read(golden().join("lvm/known.json")).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    let known = &golden["drives"]["serial-QEMU_HARDDISK_group"];
    let records = view.contents.volumes.iter().map(|placed| &placed.record);
    let records: Vec<Value> = records
        .map(|record| serde_json::to_value(record).unwrap())
        .collect();
    assert_eq!(Value::from(records), known["volumes"]);
    assert_eq!(known["usable_bytes"], view.contents.usable_bytes);
}

#[test]
fn copies_of_lvm_metadata_are_read_and_written_the_same() {
    let (image, committed) = group();
    let area = committed.header.bootloader.unwrap();
    assert_eq!(
        area,
        Extent {
            start: 3 * MIB,
            len: 5 * MIB
        }
    );
    let newest = backup::newest(&image, area).unwrap().unwrap();
    assert_eq!((newest.seqno, &newest.text), (8, &committed.text));
    // The older copy gone, the newest one is the only one, and is written where it was.
    let half = 5 * MIB / 2 / 4096 * 4096;
    let second = area.start + half;
    let written = image.clone();
    written
        .zero(Extent {
            start: second,
            len: half,
        })
        .unwrap();
    assert_eq!(backup::newest(&written, area).unwrap().unwrap().seqno, 7);
    backup::keep(&written, area, &committed.text, 8).unwrap();
    assert_eq!(*written.sectors.borrow(), *image.sectors.borrow());
}
