use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::golden;
use crate::{device::Device, fake::FakeDrive, gpt::LABEL_EXTENT};
use drivebay_model::{
    DriveId, ErasePolicy, Extent, FsType, Label, MIB, Mode, Peer, PlaceState, Record, RecordState,
};

const SIZE: u64 = 8 * MIB;
const DISK: Uuid = Uuid::from_u128(0xd15c);

fn label() -> Label {
    Label {
        drive_uuid: DISK,
        cluster: "c".into(),
        node: "n".into(),
        class: "fast".into(),
        drive_id: DriveId("wwn-0x5".into()),
        cordon: None,
    }
}

fn record(n: u128, name: &str, state: RecordState) -> Record {
    Record {
        uuid: Uuid::from_u128(n),
        name: name.into(),
        class: "fast".into(),
        mode: Mode::Mount,
        fs_type: Some(FsType::Ext4),
        mkfs_options: vec!["-m".into(), "0".into()],
        mount_options: vec!["noatime".into()],
        parameters: [("k".to_owned(), "ü".to_owned())].into(),
        erase: ErasePolicy::Zero,
        requested_bytes: 3,
        extent: Extent {
            start: 5 * MIB,
            len: MIB,
        },
        growing_to: None,
        place: Default::default(),
        state,
    }
}

fn content(records: Vec<Record>) -> Content {
    let mut content = Content::new(label());
    content.records = records.into_iter().map(Stored::from).collect();
    content
}

fn read_valid(drive: &FakeDrive) -> Read {
    match read(drive, DISK).unwrap() {
        RecordRead::Read(read) => read,
        other => panic!("{other:?}"),
    }
}

fn states() -> impl Strategy<Value = RecordState> {
    prop_oneof![
        Just(RecordState::Creating),
        Just(RecordState::New),
        Just(RecordState::Block),
        (any::<u128>(), any::<bool>()).prop_map(|(uuid, mounted)| RecordState::Fs {
            fs_type: FsType::Xfs,
            fs_uuid: Uuid::from_u128(uuid),
            mounted
        }),
        (any::<u128>(), any::<u64>()).prop_map(|(uuid, done_bytes)| RecordState::Erasing {
            erase_guid: Uuid::from_u128(uuid),
            done_bytes
        }),
    ]
}

/// Writes a slot with this header version and payload, and valid checksums.
fn raw(drive: &FakeDrive, slot: u64, major: u16, minor: u16, sequence: u64, payload: &[u8]) {
    let mut raw = vec![0; 4096];
    raw[..8].copy_from_slice(b"DRVBAYLB");
    raw[8..10].copy_from_slice(&major.to_le_bytes());
    raw[10..12].copy_from_slice(&minor.to_le_bytes());
    raw[12..16].copy_from_slice(&4096_u32.to_le_bytes());
    raw[16..24].copy_from_slice(&sequence.to_le_bytes());
    raw[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    raw[32..36].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    raw[40..56].copy_from_slice(DISK.as_bytes());
    let crc = crc32fast::hash(&raw[..4092]);
    raw[4092..].copy_from_slice(&crc.to_le_bytes());
    raw.extend(payload);
    raw.resize(raw.len().next_multiple_of(4096), 0);
    drive
        .write_at(LABEL_EXTENT.start + slot * 2 * MIB, &raw)
        .unwrap();
}

#[test]
fn the_format_matches_its_documentation() {
    let drive = FakeDrive::new(SIZE, 512);
    let payload = json!({
        "label": {"drive_uuid": DISK, "cluster": "c", "node": "n", "class": "fast", "drive_id": "wwn-0x5"},
        "records": [{
            "uuid": Uuid::from_u128(1), "name": "a", "class": "fast", "mode": "mount", "fs_type": "ext4",
            "mkfs_options": ["-m", "0"], "mount_options": ["noatime"], "parameters": {"k": "ü"}, "erase": "zero",
            "requested_bytes": 3, "start": 5 * MIB, "len": MIB, "growing_to_len": null, "state": {"is": "new"},
        }],
    });
    raw(&drive, 1, 1, 0, 7, &serde_json::to_vec(&payload).unwrap());
    let read = read_valid(&drive);
    assert_eq!(
        read.content,
        content(vec![record(1, "a", RecordState::New)])
    );
    assert_eq!((read.sequence, read.slot), (7, 1));
}

#[test]
fn a_label_is_written_and_read_as_the_golden_one() {
    let states = [
        RecordState::Creating,
        RecordState::New,
        RecordState::Block,
        RecordState::Fs {
            fs_type: FsType::Xfs,
            fs_uuid: Uuid::from_u128(8),
            mounted: true,
        },
        RecordState::Erasing {
            erase_guid: Uuid::from_u128(9),
            done_bytes: 7,
        },
    ];
    let records = (1..).zip(states);
    let records = records.map(|(n, state)| record(n, &format!("pvc-{n} ü:=+"), state));
    let content = content(records.collect());
    let (written, copied) = (FakeDrive::new(SIZE, 512), FakeDrive::new(SIZE, 512));
    write(&written, None, &content).unwrap();
    let mut slot = vec![0; 8192];
    written.read_at(LABEL_EXTENT.start, &mut slot).unwrap();
    let golden = golden::compare("label.bin", &slot);
    copied.write_at(LABEL_EXTENT.start, &golden).unwrap();
    assert_eq!(read_valid(&copied).content, content);
}

#[test]
fn fields_of_later_minor_versions_survive_a_rewrite() {
    let drive = FakeDrive::new(SIZE, 512);
    let mut payload: serde_json::Value = serde_json::from_slice(
        &content(vec![record(1, "a", RecordState::New)])
            .encode()
            .unwrap(),
    )
    .unwrap();
    payload["later"] = json!({"x": [1]});
    payload["label"]["later"] = json!(2);
    payload["records"][0]["later"] = json!("three");
    payload["records"][0]["state"]["later"] = json!(null);
    raw(&drive, 0, 1, 9, 1, &serde_json::to_vec(&payload).unwrap());
    let before = read_valid(&drive);
    let next = before.content.with(Uuid::from_u128(1), |record| {
        record.state = RecordState::Block
    });
    write(&drive, Some(&before), &next).unwrap();
    let after = read_valid(&drive);
    assert_eq!(after.content.minor, 9);
    let text = String::from_utf8(after.content.encode().unwrap()).unwrap();
    for part in [
        "{\"x\":[1]}",
        "\"later\":2",
        "\"later\":\"three\"",
        "\"later\":null",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_later_major_version_is_not_overruled() {
    let drive = FakeDrive::new(SIZE, 512);
    write(&drive, None, &content(vec![])).unwrap();
    raw(&drive, 1, 2, 0, 1, b"not json");
    assert!(
        matches!(read(&drive, DISK).unwrap(), RecordRead::Damaged(why) if why.contains("format is 2"))
    );
}

#[test]
fn a_label_of_another_drive_is_not_ours() {
    let drive = FakeDrive::new(SIZE, 512);
    write(&drive, None, &content(vec![])).unwrap();
    assert!(matches!(
        read(&drive, Uuid::nil()).unwrap(),
        RecordRead::Damaged(_)
    ));
}

#[test]
fn two_zero_slots_are_an_interrupted_claim_and_two_bad_ones_are_damage() {
    let drive = FakeDrive::new(SIZE, 512);
    assert_eq!(read(&drive, DISK).unwrap(), RecordRead::Blank);
    write(&drive, None, &content(vec![])).unwrap();
    drive.rot(LABEL_EXTENT.start + 20, 1);
    drive.rot(LABEL_EXTENT.start + 2 * MIB + 5000, 0xff);
    // Bytes behind the payload have no checksum: slot 1 is still valid.
    assert!(matches!(read(&drive, DISK).unwrap(), RecordRead::Read(_)));
    drive.rot(LABEL_EXTENT.start + 2 * MIB + 4100, 0xff);
    assert!(matches!(
        read(&drive, DISK).unwrap(),
        RecordRead::Damaged(_)
    ));
}

#[test]
fn at_rest_either_slot_alone_holds_the_newest_label() {
    let drive = FakeDrive::new(SIZE, 4096);
    let first = write(
        &drive,
        None,
        &content(vec![record(1, "a", RecordState::Creating)]),
    )
    .unwrap();
    let newest = first
        .content
        .with(Uuid::from_u128(1), |record| record.state = RecordState::New);
    write(&drive, Some(&first), &newest).unwrap();
    assert!(!drive.is_dirty());
    for slot in [0, 1] {
        let (hurt, _) = drive.after_cut(drive.log_len(), || true);
        hurt.rot(LABEL_EXTENT.start + slot * 2 * MIB + 17, 1);
        let read = read_valid(&hurt);
        assert_eq!(read.content, newest);
        assert!(matches!(read.other, Some(Other::Damaged(_))));
        repair(&hurt, &read).unwrap();
        assert_eq!(read_valid(&hurt).other, None);
    }
}

#[test]
fn a_torn_write_leaves_the_old_or_the_new_label() {
    for sector in [512, 4096] {
        let drive = FakeDrive::new(SIZE, sector);
        let many = (0..40)
            .map(|n| record(n, "a rather long name", RecordState::New))
            .collect();
        let old = write(&drive, None, &content(many)).unwrap();
        drive.settle();
        let new = old.content.with(Uuid::from_u128(3), |record| {
            record.state = RecordState::Block
        });
        write(&drive, Some(&old), &new).unwrap();
        for at in 0..=drive.log_len() {
            for kept in 0..80 {
                // Any prefix of the sectors of the interrupted write.
                let mut count = 0;
                let (cut, _) = drive.after_cut(at, || {
                    count += 1;
                    count <= kept
                });
                let read = read_valid(&cut);
                assert!(
                    read.content == old.content || read.content == new,
                    "event {at}, {kept} sectors"
                );
                if read.other.is_some() {
                    repair(&cut, &read).unwrap();
                    assert_eq!(
                        read_valid(&cut),
                        Read {
                            other: None,
                            slot: 0,
                            ..read
                        }
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_label_reads_back_as_written(
        names in prop::collection::vec(("\\PC{1,60}", states(), prop::option::of(any::<u64>())), 0..127),
    ) {
        let drive = FakeDrive::new(SIZE, 512);
        let records = (0..).zip(names).map(|(n, (name, state, grow))| Record {
            growing_to: grow.map(|len| Extent { start: 5 * MIB, len }),
            ..record(n, &name, state)
        }).collect();
        let expected = content(records);
        write(&drive, None, &expected).unwrap();
        prop_assert_eq!(read_valid(&drive).content, expected);
    }

    #[test]
    fn a_changed_byte_is_found_or_means_nothing(at in 0_u64..9000, change in 1_u8.., slot in 0_u64..2) {
        let drive = FakeDrive::new(SIZE, 512);
        let old = write(&drive, None, &content(vec![record(1, "a", RecordState::New)])).unwrap();
        write(&drive, Some(&old), &content(vec![record(1, "a", RecordState::Block)])).unwrap();
        let before = read_valid(&drive);
        let length = 4096 + before.content.encode().unwrap().len() as u64;
        drive.rot(LABEL_EXTENT.start + slot * 2 * MIB + at, change);
        let after = read_valid(&drive);
        prop_assert_eq!(&after.content, &before.content);
        prop_assert_eq!(matches!(after.other, Some(Other::Damaged(_))), at < length);
    }
}

#[test]
fn what_is_written_can_be_read_up_to_the_last_sequence_and_no_further() {
    let drive = FakeDrive::new(SIZE, 512);
    let content = content(vec![]);
    let payload = content.encode().unwrap();
    for slot in 0..2 {
        raw(&drive, slot, 1, 0, u64::MAX - 2, &payload);
    }
    let before = read_valid(&drive);
    let last = write(&drive, Some(&before), &content).unwrap();
    assert_eq!(last.sequence, u64::MAX - 1);
    assert_eq!(read_valid(&drive).sequence, u64::MAX - 1);
    repair(&drive, &read_valid(&drive)).unwrap();
    let refused = write(&drive, Some(&read_valid(&drive)), &content).unwrap_err();
    assert!(
        matches!(refused, WriteError::Sequence(u64::MAX)),
        "{refused}"
    );
    assert_eq!(
        read_valid(&drive).sequence,
        u64::MAX - 1,
        "nothing was written"
    );
}

#[test]
fn a_place_goes_through_the_label_and_an_older_reader_cannot_take_it_for_a_volume() {
    let peer = || Peer {
        label: Uuid::from_u128(2),
        drive: DriveId("wwn-0x6".into()),
    };
    let places = [
        PlaceState::Live {
            generation: 2,
            from: Some(peer()),
        },
        PlaceState::Incoming {
            generation: 2,
            from: peer(),
        },
        PlaceState::Leaving {
            generation: 2,
            to: peer(),
        },
        PlaceState::Moved {
            generation: 2,
            to: peer(),
        },
    ];
    for place in places {
        let mut wanted = record(1, "a", RecordState::Block);
        wanted.place = place.clone();
        let encoded = content(vec![wanted.clone()]).encode().unwrap();
        let back = Content::decode(&encoded).unwrap();
        assert_eq!(back.record(wanted.uuid), Some(&wanted));
        let mut raw: serde_json::Value = serde_json::from_slice(&encoded).unwrap();
        let of = &mut raw["records"][0];
        // The value is unknown to versions before places.
        let word = if place.is_live() {
            "block"
        } else {
            "elsewhere"
        };
        assert_eq!(of["state"]["is"], word);
        // A state and a place that contradict each other are damage.
        of["state"]["is"] = if place.is_live() {
            "elsewhere"
        } else {
            "block"
        }
        .into();
        of["state"]["was"] = "block".into();
        assert!(Content::decode(&serde_json::to_vec(&raw).unwrap()).is_err());
    }
    let first = content(vec![record(1, "a", RecordState::Block)]);
    let raw: serde_json::Value = serde_json::from_slice(&first.encode().unwrap()).unwrap();
    assert_eq!(raw["records"][0].get("place"), None);
}
