use proptest::prelude::*;

use super::*;
use crate::golden;

const EXTENT: Extent = Extent {
    start: 7 << 20,
    len: 5 << 20,
};

fn sample() -> Record {
    Record {
        uuid: Uuid::from_u128(7),
        name: "pvc-1 (ä:ö)".into(),
        class: "fast".into(),
        mode: Mode::Mount,
        fs_type: Some(FsType::Xfs),
        mkfs_options: vec!["-m".into(), "reflink=1".into()],
        mount_options: vec!["noatime".into()],
        parameters: [("a=b".to_owned(), "c=d".to_owned())].into(),
        erase: ErasePolicy::Zero,
        requested_bytes: 5 << 20,
        extent: EXTENT,
        growing_to: None,
        place: Default::default(),
        state: RecordState::Fs {
            fs_type: FsType::Xfs,
            fs_uuid: Uuid::from_u128(9),
            mounted: false,
        },
    }
}

fn mark() -> VgMark {
    VgMark {
        label: Label {
            drive_uuid: Uuid::from_u128(1),
            cluster: "lab".into(),
            node: "node 1".into(),
            class: "fast".into(),
            drive_id: DriveId("serial-x:1".into()),
            cordon: None,
        },
    }
}

fn why<T: std::fmt::Debug>(read: Read<T>) -> String {
    match read {
        Read::Broken { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tags_are_readable() {
    let mut tags = of_record(&sample());
    tags.sort();
    assert_eq!(
        tags,
        [
            "drivebay.class=fast",
            "drivebay.erase=zero",
            "drivebay.fs=xfs",
            "drivebay.mkfs.0=-m",
            "drivebay.mkfs.1=reflink=1",
            "drivebay.mode=mount",
            "drivebay.name=pvc-1:20:28:C3:A4:3A:C3:B6:29",
            "drivebay.opt.0=noatime",
            "drivebay.param.0=a:3Db=c=d",
            "drivebay.size=5242880",
            "drivebay.state.fs=xfs",
            "drivebay.state.fsuuid=00000000-0000-0000-0000-000000000009",
            "drivebay.state.mounted=no",
            "drivebay.state=fs",
            "drivebay.sum=24f998ce",
            "drivebay.uuid=00000000-0000-0000-0000-000000000007",
            "drivebay.v=1",
        ]
    );
}

#[test]
fn tags_are_written_and_read_as_the_golden_ones() {
    let written = |tags: Vec<String>| tags.join("\n") + "\n";
    let read_back = |golden: Vec<u8>| {
        let text = String::from_utf8(golden).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let golden = golden::compare("group-tags.txt", written(of_vg(&mark())).as_bytes());
    assert_eq!(vg(&read_back(golden)), Read::Ours(mark()));
    let golden = golden::compare("volume-tags.txt", written(of_record(&sample())).as_bytes());
    assert_eq!(record(&read_back(golden), EXTENT), Read::Ours(sample()));
}

#[test]
fn a_mark_goes_through_tags_and_back() {
    assert_eq!(vg(&of_vg(&mark())), Read::Ours(mark()));
    for reason in ["returned: Freitag, 12 %", "", &"ä".repeat(256)] {
        let mut cordoned = mark();
        cordoned.label.cordon = Some(Cordon {
            at: 1_700_000_000,
            by: "ann".into(),
            reason: reason.into(),
        });
        assert_eq!(vg(&of_vg(&cordoned)), Read::Ours(cordoned));
    }
}

#[test]
fn a_mark_of_an_earlier_version_with_zeros_is_read_and_the_zeros_are_ignored() {
    for free in ["zeros", "unknown"] {
        let old = vg_tags(&mark(), Some(free));
        assert_eq!(vg(&old), Read::Ours(mark()));
        // The next change of the mark removes it.
        let (remove, add) = difference(&old, &of_vg(&mark()));
        assert_eq!((remove.len(), add.len()), (2, 1), "free and sum");
    }
}

#[test]
fn an_operators_tags_mean_nothing() {
    let mut tags = of_record(&sample());
    tags.push("backup".into());
    assert_eq!(record(&tags, EXTENT), Read::Ours(sample()));
    assert_eq!(record(&["backup".into()], EXTENT), Read::Stranger);
    assert_eq!(vg(&[]), Read::Stranger);
}

#[test]
fn a_missing_tag_makes_all_unbelievable() {
    let whole = of_record(&sample());
    for gone in &whole {
        let tags: Vec<String> = whole.iter().filter(|tag| *tag != gone).cloned().collect();
        assert!(
            matches!(record(&tags, EXTENT), Read::Broken { .. }),
            "{gone}"
        );
    }
    let whole = of_vg(&mark());
    for gone in &whole {
        let tags: Vec<String> = whole.iter().filter(|tag| *tag != gone).cloned().collect();
        assert!(matches!(vg(&tags), Read::Broken { .. }), "{gone}");
    }
}

#[test]
fn a_changed_or_added_tag_makes_all_unbelievable() {
    let whole = of_record(&sample());
    for (from, to) in [
        ("drivebay.state.mounted=no", "drivebay.state.mounted=yes"),
        ("drivebay.size=5242880", "drivebay.size=05242880"),
        ("drivebay.class=fast", "drivebay.class=slow"),
        ("drivebay.class=fast", "drivebay.class=f:61st"),
        ("drivebay.class=fast", "drivebay.class=fast:"),
        ("drivebay.state=fs", "drivebay.state=new"),
        ("drivebay.mkfs.0=-m", "drivebay.mkfs.2=-m"),
        ("drivebay.sum=24f998ce", "drivebay.sum=24F998CE"),
        ("drivebay.erase=zero", "drivebay.erase=none"),
    ] {
        let tags: Vec<String> = whole.iter().map(|tag| tag.replace(from, to)).collect();
        assert_ne!(tags, whole);
        assert!(matches!(record(&tags, EXTENT), Read::Broken { .. }), "{to}");
    }
    for extra in [
        "drivebay.new=1",
        "drivebay.class=x",
        "drivebay.class+1=x",
        "drivebay.x",
    ] {
        let mut tags = whole.clone();
        tags.push(extra.into());
        assert!(
            matches!(record(&tags, EXTENT), Read::Broken { .. }),
            "{extra}"
        );
    }
}

#[test]
fn a_newer_version_is_named_and_not_read() {
    let tags: Vec<String> = of_record(&sample())
        .iter()
        .map(|tag| tag.replace("drivebay.v=1", "drivebay.v=2"))
        .collect();
    let read = record(&tags, EXTENT);
    let Read::Broken { uuid, name, .. } = &read else {
        panic!("{read:?}")
    };
    assert_eq!(
        (*uuid, name.as_deref()),
        (Some(Uuid::from_u128(7)), Some("pvc-1 (ä:ö)"))
    );
    assert!(why(read).contains("newer version"));
}

fn places() -> impl Strategy<Value = PlaceState> {
    let peer = (any::<u128>(), any::<String>()).prop_map(|(label, drive)| Peer {
        label: Uuid::from_u128(label),
        drive: DriveId(drive),
    });
    (0..4, any::<u64>(), prop::option::of(peer)).prop_map(|(kind, generation, peer)| {
        match (kind, peer) {
            (1, Some(from)) => PlaceState::Incoming { generation, from },
            (2, Some(to)) => PlaceState::Leaving { generation, to },
            (3, Some(to)) => PlaceState::Moved { generation, to },
            (0, from) => PlaceState::Live { generation, from },
            _ => PlaceState::default(),
        }
    })
}

pub(in crate::lvm) fn records() -> impl Strategy<Value = Record> {
    let text =
        || prop_oneof![4 => any::<String>(), 1 => "[a-z:]{0,3000}", 1 => "(ä|=| |\"|'|-){0,600}"];
    let fs = || prop::sample::select(FsType::ALL.to_vec());
    let state = prop_oneof![
        Just(RecordState::Creating),
        Just(RecordState::New),
        Just(RecordState::Block),
        (fs(), any::<u128>(), any::<bool>()).prop_map(|(fs_type, uuid, mounted)| RecordState::Fs {
            fs_type,
            fs_uuid: Uuid::from_u128(uuid),
            mounted
        }),
    ];
    (
        (
            any::<u128>(),
            text(),
            text(),
            any::<bool>(),
            prop::option::of(fs()),
        ),
        prop::collection::vec(text(), 0..12),
        prop::collection::vec(text(), 0..12),
        prop::collection::btree_map(text(), text(), 0..12),
        (any::<bool>(), any::<u64>(), state, places()),
    )
        .prop_map(
            |(
                (uuid, name, class, block, fs_type),
                mkfs_options,
                mount_options,
                parameters,
                (quick, requested_bytes, state, place),
            )| Record {
                uuid: Uuid::from_u128(uuid),
                name,
                class,
                mode: if block { Mode::Block } else { Mode::Mount },
                fs_type,
                mkfs_options,
                mount_options,
                parameters,
                erase: if quick {
                    ErasePolicy::Signatures
                } else {
                    ErasePolicy::Zero
                },
                requested_bytes,
                extent: EXTENT,
                growing_to: None,
                place,
                state,
            },
        )
}

fn snapshots() -> impl Strategy<Value = SnapshotRecord> {
    let text = || prop_oneof![4 => any::<String>(), 1 => "(ä|=|:|\\+| ){0,600}"];
    let group = (any::<u128>(), text(), any::<u32>()).prop_map(|(uuid, name, members)| {
        let uuid = Uuid::from_u128(uuid);
        SnapshotGroup {
            uuid,
            name,
            members,
        }
    });
    let group = prop::option::of(group);
    let times = (any::<u64>(), any::<Option<u64>>(), any::<u64>());
    (any::<[u128; 2]>(), text(), times, group, any::<[bool; 2]>()).prop_map(
        |([uuid, volume], name, (created_at, expires_at, size_bytes), group, state)| {
            let [is_complete, is_lost] = state;
            SnapshotRecord {
                uuid: Uuid::from_u128(uuid),
                name,
                volume: Uuid::from_u128(volume),
                created_at,
                size_bytes,
                mode: Mode::Block,
                fs: None,
                expires_at,
                group,
                is_complete,
                is_lost,
            }
        },
    )
}

proptest! {
    #[test]
    fn every_snapshot_goes_through_tags_that_lvm_takes_and_back(expected in snapshots()) {
        let tags = of_snapshot(&expected);
        for tag in &tags {
            prop_assert!(tag.len() <= 1024);
            prop_assert!(tag.bytes().all(|c| c.is_ascii_alphanumeric() || b"_+.-/=!:#&".contains(&c)), "{tag}");
        }
        prop_assert_eq!(snapshot(&tags), Read::Ours(expected));
    }

    #[test]
    fn every_record_goes_through_tags_that_lvm_takes_and_back(wanted in records(), shift in any::<prop::sample::Index>()) {
        let mut tags = of_record(&wanted);
        for tag in &tags {
            prop_assert!(tag.len() <= 1024);
            prop_assert!(tag.bytes().all(|c| c.is_ascii_alphanumeric() || b"_+.-/=!:#&".contains(&c)), "{tag}");
        }
        // LVM guarantees no order.
        let at = shift.index(tags.len());
        tags.rotate_left(at);
        prop_assert_eq!(record(&tags, EXTENT), Read::Ours(wanted));
    }

    #[test]
    fn any_change_to_a_tag_is_noticed(wanted in records(), which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_+./=!:#&-]") {
        let mut tags = of_record(&wanted);
        let index = which.index(tags.len());
        let at = 9 + at.index(tags[index].len() - 9);
        let before = tags[index].clone();
        tags[index].replace_range(at..at + 1, &to);
        prop_assume!(tags[index] != before);
        let read = record(&tags, EXTENT);
        prop_assert!(matches!(read, Read::Broken { .. }), "{} became {}: {:?}", before, tags[index], read);
    }
}

#[test]
fn a_snapshots_tags_give_it_back_and_a_volume_is_none() {
    let raw = SnapshotRecord {
        uuid: Uuid::from_u128(7),
        name: "snap (ä)".into(),
        volume: Uuid::from_u128(8),
        created_at: 1_800_000_000,
        size_bytes: 5 << 20,
        mode: Mode::Block,
        fs: None,
        expires_at: None,
        group: None,
        is_complete: false,
        is_lost: false,
    };
    let mounted = SnapshotRecord {
        mode: Mode::Mount,
        fs: Some((FsType::Btrfs, Uuid::from_u128(9))),
        is_complete: true,
        ..raw.clone()
    };
    for sample in [raw, mounted] {
        let tags = of_snapshot(&sample);
        assert_eq!(snapshot(&tags), Read::Ours(sample));
        // An earlier version shows it as a volume with invalid tags.
        assert!(matches!(
            record(&tags, EXTENT),
            Read::Broken { uuid: Some(_), .. }
        ));
    }
    why(snapshot(&of_record(&sample())));
}

fn member() -> SnapshotRecord {
    SnapshotRecord {
        uuid: Uuid::from_u128(7),
        name: "snap".into(),
        volume: Uuid::from_u128(8),
        created_at: 1_800_000_000,
        size_bytes: 5 << 20,
        mode: Mode::Mount,
        fs: Some((FsType::Xfs, Uuid::from_u128(9))),
        expires_at: Some(1_800_604_800),
        group: Some(SnapshotGroup {
            uuid: Uuid::from_u128(90),
            name: "all (ä)".into(),
            members: 3,
        }),
        is_complete: true,
        is_lost: false,
    }
}

#[test]
fn the_tags_of_a_snapshot_of_a_group_are_readable() {
    let mut tags = of_snapshot(&member());
    tags.sort();
    tags.retain(|tag| !tag.starts_with("drivebay.sum="));
    assert_eq!(
        tags,
        [
            "drivebay.group.members=3",
            "drivebay.group.name=all:20:28:C3:A4:29",
            "drivebay.group=00000000-0000-0000-0000-00000000005a",
            "drivebay.mode=mount",
            "drivebay.name=snap",
            "drivebay.size=5242880",
            "drivebay.snapshot.at=1800000000",
            "drivebay.snapshot.of=00000000-0000-0000-0000-000000000008",
            "drivebay.snapshot.until=1800604800",
            "drivebay.state.fs=xfs",
            "drivebay.state.fsuuid=00000000-0000-0000-0000-000000000009",
            "drivebay.state=ready",
            "drivebay.uuid=00000000-0000-0000-0000-000000000007",
            "drivebay.v=1",
        ]
    );
}

#[test]
fn a_snapshot_whose_group_or_age_limit_lacks_a_tag_is_not_believed() {
    let whole = of_snapshot(&member());
    for gone in &whole {
        let tags: Vec<String> = whole.iter().filter(|tag| *tag != gone).cloned().collect();
        why(snapshot(&tags));
    }
    // Completing it changes only the tags of its state and their sum.
    let incomplete = of_snapshot(&SnapshotRecord {
        is_complete: false,
        ..member()
    });
    let (remove, add) = difference(&incomplete, &whole);
    assert_eq!((remove.len(), add.len()), (2, 2), "{remove:?} {add:?}");
}

#[test]
fn a_snapshot_that_is_lost_has_one_tag_more_which_cannot_be_taken_away_or_changed() {
    let lost = SnapshotRecord {
        is_lost: true,
        ..member()
    };
    let tags = of_snapshot(&lost);
    let (_, add) = difference(&of_snapshot(&member()), &tags);
    assert_eq!(add.len(), 2, "its own, and the sum: {add:?}");
    let mark = "drivebay.snapshot.lost=1".to_owned();
    assert!(add.contains(&mark));
    let without: Vec<String> = tags.iter().filter(|tag| **tag != mark).cloned().collect();
    why(snapshot(&without));
    let other = tags.iter().map(|tag| match *tag == mark {
        true => "drivebay.snapshot.lost=0".to_owned(),
        false => tag.clone(),
    });
    why(snapshot(&other.collect::<Vec<_>>()));
    assert_eq!(snapshot(&tags), Read::Ours(lost));
}
