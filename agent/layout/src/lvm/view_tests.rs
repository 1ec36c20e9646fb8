use super::*;
use drivebay_model::{
    DriveId, FsType, GIB, Label, MIB, SnapshotState, volume_snapshot::SnapshotGroup,
};

fn record(n: u128) -> Record {
    Record {
        uuid: Uuid::from_u128(n),
        name: format!("pvc-{n}"),
        class: "fast".into(),
        mode: Mode::Mount,
        fs_type: Some(FsType::Ext4),
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        parameters: BTreeMap::new(),
        erase: ErasePolicy::Zero,
        requested_bytes: 3 * MIB,
        extent: Extent { start: 0, len: 0 },
        growing_to: None,
        place: Default::default(),
        state: RecordState::New,
    }
}

fn lv(name: &str, tags: Vec<String>, runs: &[(u64, u64)]) -> Lv {
    let segments: Vec<Segment> = runs
        .iter()
        .map(|&(start, count)| Segment { start, count })
        .collect();
    Lv {
        name: name.into(),
        uuid: format!("{name:a>6}-bbbb"),
        tags,
        occupies: segments.clone(),
        segments,
        strange: None,
        snapshot_of: None,
    }
}

fn vg(lvs: Vec<Lv>) -> Vg {
    let mark = VgMark {
        label: Label {
            drive_uuid: Uuid::from_u128(1),
            cluster: "lab".into(),
            node: "n1".into(),
            class: "fast".into(),
            drive_id: DriveId("serial-x".into()),
            cordon: None,
        },
    };
    Vg {
        name: "drivebay-1".into(),
        uuid: "VVVVVV-gggg".into(),
        seqno: 9,
        tags: tags::of_vg(&mark),
        extent_bytes: MIB,
        autoactivation: false,
        pv: super::super::metadata::Pv {
            uuid: "p".into(),
            pe_start: 10 * MIB,
            pe_count: 100,
        },
        lvs,
        strange: Vec::new(),
    }
}

fn device(vg: &Vg, lv: &Lv, size_bytes: u64) -> DmDevice {
    DmDevice {
        kernel_name: "dm-3".into(),
        dev: (253, 3),
        name: "x".into(),
        uuid: dm_uuid(vg, lv),
        size_bytes,
        slaves: vec!["sda".into()],
        orphaned: false,
        suspended: false,
    }
}

fn view_of(vg: &Vg, dm: &[DmDevice]) -> View {
    view(vg, dm, "sda", &BTreeMap::new(), GIB).expect("a VG of ours")
}

#[test]
fn volumes_strangers_and_free_space_are_distinguished() {
    let vg = vg(vec![
        lv("pvc-2", tags::of_record(&record(2)), &[(20, 2), (5, 1)]),
        lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]),
        lv("theirs", vec!["backup".into()], &[(50, 50)]),
    ]);
    let first = device(&vg, &vg.lvs[1], 3 * MIB);
    let lvm_view = view_of(&vg, std::slice::from_ref(&first));
    let contents = &lvm_view.contents;
    assert_eq!((contents.layout, contents.sequence), (Layout::Lvm, 9));
    assert_eq!(
        (contents.usable_bytes, contents.extent_bytes),
        (100 * MIB, MIB)
    );
    let [one, two] = contents.volumes.as_slice() else {
        panic!("{contents:?}")
    };
    assert_eq!(
        one.record.extent,
        Extent {
            start: 10 * MIB,
            len: 3 * MIB
        }
    );
    assert_eq!(
        two.record.extent,
        Extent {
            start: 30 * MIB,
            len: 3 * MIB
        }
    );
    assert_eq!(
        (one.device.as_deref(), one.dev, one.number),
        (Some("dm-3"), Some((253, 3)), None)
    );
    assert_eq!((two.device.as_deref(), two.dev), (None, None));
    assert_eq!(one.dm_uuid.as_deref(), Some("LVM-VVVVVVggggapvc1bbbb"));
    assert_eq!((&one.ambiguous, &two.ambiguous), (&None, &None));
    assert_eq!(
        contents.strangers,
        [(
            "theirs".to_owned(),
            Extent {
                start: 60 * MIB,
                len: 50 * MIB
            }
        )]
    );
    let free: Vec<(u64, u64)> = contents
        .free
        .iter()
        .map(|run| (run.start / MIB, run.len / MIB))
        .collect();
    assert_eq!(free, [(13, 2), (16, 14), (32, 28)]);
    assert_eq!(contents.largest_free(), 44 * MIB);
    assert_eq!(
        two.lies_at()[1],
        Extent {
            start: 15 * MIB,
            len: MIB
        }
    );
    assert!(contents.notes.is_empty() && lvm_view.stale.is_empty());
}

#[test]
fn what_does_not_agree_is_ambiguous_with_the_reason() {
    let plain = || vg(vec![lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)])]);
    let why = |vg: &Vg, dm: &[DmDevice]| {
        let lvm_view = view_of(vg, dm);
        let why = lvm_view.contents.volumes[0]
            .ambiguous
            .clone()
            .unwrap_or_default();
        (why, lvm_view.stale.len())
    };
    let good = plain();
    let of = |change: fn(&mut DmDevice)| {
        let mut device = device(&good, &good.lvs[0], 3 * MIB);
        change(&mut device);
        device
    };
    for (change, expected, stale) in [
        ((|_| {}) as fn(&mut DmDevice), "", 0),
        (
            |dm| dm.size_bytes = 4 * MIB,
            "has 4 MiB, and the LV 3 MiB",
            0,
        ),
        (
            |dm| dm.size_bytes = 2 * MIB,
            "has 2 MiB, and the LV 3 MiB",
            1,
        ),
        (|dm| dm.suspended = true, "is suspended", 1),
        (
            |dm| dm.slaves = vec!["sdb".into()],
            "lies on sdb, and the LV on sda",
            0,
        ),
        (|dm| dm.slaves.push("sdb".into()), "lies on sda, sdb", 0),
        (|dm| dm.slaves.clear(), "lies on ", 0),
    ] {
        let (text, stale_count) = why(&good, &[of(change)]);
        assert!(
            text.contains(expected) && text.is_empty() == expected.is_empty(),
            "{text}"
        );
        assert_eq!(stale_count, stale, "{expected}");
        // The agent scans a drive with repair only if it has a note.
        let notes = view_of(&good, &[of(change)]).contents.notes;
        assert_eq!(notes.len(), stale, "{notes:?}");
    }
    let dead = of(|dm| {
        dm.slaves = vec!["sdb".into()];
        dm.orphaned = true;
    });
    let lvm_view = view_of(&good, &[dead]);
    assert_eq!(
        lvm_view.orphaned,
        [lvm_view.contents.volumes[0].record.uuid]
    );
    assert!(lvm_view.contents.volumes[0].ambiguous.is_some());
    assert_eq!(
        lvm_view.contents.notes.len(),
        1,
        "{:?}",
        lvm_view.contents.notes
    );
    let mut strange = plain();
    strange.lvs[0].strange = Some("it is not linear (type raid1)".into());
    strange.lvs[0].segments.clear();
    assert!(why(&strange, &[]).0.contains("raid1"));
    let mut damaged = plain();
    damaged.lvs[0]
        .tags
        .retain(|tag| !tag.starts_with("drivebay.class"));
    assert!(why(&damaged, &[]).0.contains("drivebay.class is gone"));
    assert_eq!(
        view_of(&damaged, &[]).contents.volumes[0].record.name,
        "pvc-1"
    );
    let mut twice = plain();
    twice
        .lvs
        .push(lv("copy", tags::of_record(&record(1)), &[(9, 3)]));
    let lvm_view = view_of(&twice, &[]);
    assert!(
        lvm_view
            .contents
            .volumes
            .iter()
            .all(|placed| placed.ambiguous.is_some())
    );
    assert!(lvm_view.lvs.is_empty());
}

#[test]
fn an_lv_whose_identity_is_lost_is_a_stranger_with_a_note() {
    let mut vg = vg(vec![lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)])]);
    vg.lvs[0]
        .tags
        .retain(|tag| !tag.starts_with("drivebay.uuid"));
    let contents = view_of(&vg, &[]).contents;
    assert!(contents.volumes.is_empty() && contents.notes[0].contains("drivebay.uuid is gone"));
    assert_eq!(contents.strangers.len(), 1);
    assert_eq!(contents.free_bytes(), 97 * MIB);
}

#[test]
fn an_erasing_name_makes_it_erasing() {
    let guid = Uuid::from_u128(50);
    let vg = vg(vec![lv(
        &name::erasing(guid),
        tags::of_record(&record(1)),
        &[(0, 3)],
    )]);
    for (recorded, done) in [(None, 0), (Some(MIB), MIB), (Some(99 * MIB), 3 * MIB)] {
        let erased = recorded.map(|done| (guid, done)).into_iter().collect();
        let lvm_view = view(&vg, &[], "sda", &erased, GIB).expect("ours");
        assert_eq!(
            lvm_view.contents.volumes[0].record.state,
            RecordState::Erasing {
                erase_guid: guid,
                done_bytes: done
            }
        );
    }
}

#[test]
fn a_vg_that_cannot_be_believed_has_no_contents() {
    let err = |change: fn(&mut Vg)| {
        let mut vg = vg(Vec::new());
        change(&mut vg);
        view(&vg, &[], "sda", &BTreeMap::new(), GIB)
            .err()
            .unwrap_or_default()
    };
    assert_eq!(err(|_| {}), "");
    assert!(err(|vg| vg.tags.clear()).contains("not ours"));
    assert!(err(|vg| vg.tags.truncate(3)).contains("gone"));
    assert!(err(|vg| vg.strange.push("it has 2 PVs".into())).contains("2 PVs"));
    assert!(err(|vg| vg.extent_bytes = 4 * MIB).contains("extents of 4 MiB"));
    assert!(err(|vg| vg.pv.pe_start += 512).contains("which we do not make"));
}

#[test]
fn a_group_that_reaches_into_the_last_mib_of_the_drive_is_refused() {
    let vg = vg(Vec::new());
    let end = vg.pv.pe_start + vg.pv.pe_count * vg.extent_bytes;
    let refused = |size| view(&vg, &[], "sda", &BTreeMap::new(), size).err();
    assert_eq!(refused(end + MIB), None);
    assert!(refused(end + MIB - 1).is_some_and(|why| why.contains("a build before 0.1.0")));
}

#[test]
fn no_space_is_free_under_a_device_that_nobody_knows() {
    let vg = vg(vec![lv("theirs", Vec::new(), &[(0, 3)])]);
    let mut other = device(&vg, &vg.lvs[0], MIB);
    other.uuid.push_str("-real");
    assert_eq!(
        view_of(&vg, std::slice::from_ref(&other))
            .contents
            .free_bytes(),
        97 * MIB
    );
    other.uuid = "LVM-VVVVVVggggccccc".into();
    let contents = view_of(&vg, std::slice::from_ref(&other)).contents;
    assert_eq!(contents.free_bytes(), 0);
    assert!(contents.notes[0].contains("dm-3 (x)"));
    other.slaves = vec!["sdb".into()];
    assert_eq!(view_of(&vg, &[other]).contents.free_bytes(), 97 * MIB);
}

#[test]
fn a_checks_snapshot_takes_space_and_is_neither_a_volume_nor_a_stranger() {
    let mut store = lv(&name::check(Uuid::from_u128(1)), vec![], &[(10, 5)]);
    store.snapshot_of = Some("pvc-1".into());
    let vg = vg(vec![
        lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]),
        store,
    ]);
    let lvm_view = view_of(&vg, &[device(&vg, &vg.lvs[0], 3 * MIB)]);
    assert_eq!(lvm_view.contents.volumes.len(), 1);
    assert_eq!(lvm_view.contents.volumes[0].ambiguous, None);
    assert_eq!(lvm_view.contents.strangers, []);
    assert_eq!(lvm_view.checks[&Uuid::from_u128(1)].name, vg.lvs[1].name);
    let free: u64 = lvm_view.contents.free.iter().map(|run| run.len).sum();
    assert_eq!(free, (100 - 3 - 5) * MIB);
}

#[test]
fn a_store_that_is_marked_for_erasing_is_known_by_its_name_and_keeps_its_space_and_progress() {
    let guid = Uuid::from_u128(77);
    let mut damaged_tags = tags::of_snapshot(&snapshot_record(7, 1));
    damaged_tags.pop();
    let vg = vg(vec![
        lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]),
        lv(&name::erasing_store(guid), damaged_tags, &[(10, 5)]),
        // Parted from its volume, and not marked yet.
        lv(&name::check(Uuid::from_u128(2)), vec![], &[(20, 2)]),
    ]);
    let erased = BTreeMap::from([(guid, 2 * MIB)]);
    let lvm_view = view(&vg, &[], "sda", &erased, GIB).expect("a VG of ours");
    let contents = &lvm_view.contents;
    let store = DeletedStore {
        erase_guid: guid,
        bytes: 5 * MIB,
        done_bytes: 2 * MIB,
    };
    assert_eq!(contents.deleted_stores, [store]);
    assert_eq!(lvm_view.deleted_stores[&guid].name, vg.lvs[1].name);
    assert_eq!(
        lvm_view.checks.keys().collect::<Vec<_>>(),
        [&Uuid::from_u128(2)]
    );
    assert_eq!(contents.unmarked_bytes, 2 * MIB);
    assert_eq!(contents.unerased_bytes(), 5 * MIB);
    assert_eq!((contents.volumes.len(), contents.strangers.len()), (1, 0));
    assert_eq!(contents.free_bytes(), (100 - 3 - 5 - 2) * MIB);
}

#[test]
fn a_device_that_stands_on_another_drive_is_not_the_copys() {
    let vg = vg(vec![lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)])]);
    let mut original = device(&vg, &vg.lvs[0], 3 * MIB);
    original.slaves = vec!["sdb".into()];
    let lvm_view = view_of(&vg, &[original]);
    let placed = &lvm_view.contents.volumes[0];
    assert_eq!((&placed.device, placed.dev), (&None, None));
    assert!(placed.ambiguous.is_some());
}

fn snapshot_record(n: u128, volume: u128) -> SnapshotRecord {
    SnapshotRecord {
        uuid: Uuid::from_u128(n),
        name: format!("snapshot-{n}"),
        volume: Uuid::from_u128(volume),
        created_at: 1_800_000_000 - n as u64,
        size_bytes: 3 * MIB,
        mode: Mode::Mount,
        fs: None,
        expires_at: None,
        group: None,
        is_complete: true,
        is_lost: false,
    }
}

fn store(record: &SnapshotRecord, at: u64) -> Lv {
    let mut store = lv(
        &name::snapshot(record.uuid),
        tags::of_snapshot(record),
        &[(at, 5)],
    );
    store.snapshot_of = Some("pvc-1".into());
    store
}

#[test]
fn a_snapshot_is_a_part_of_its_volume_with_what_the_kernel_has_of_it() {
    let (first, second) = (snapshot_record(7, 1), snapshot_record(8, 1));
    let vg = vg(vec![
        lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]),
        store(&first, 10),
        store(&second, 20),
    ]);
    let snapshot = DmDevice {
        slaves: vec!["dm-9".into()],
        ..device(&vg, &vg.lvs[1], 3 * MIB)
    };
    let below = DmDevice {
        kernel_name: "dm-9".into(),
        uuid: format!("{}-cow", dm_uuid(&vg, &vg.lvs[1])),
        ..device(&vg, &vg.lvs[1], 5 * MIB)
    };
    let lvm_view = view_of(&vg, &[snapshot, below]);
    let [volume] = lvm_view.contents.volumes.as_slice() else {
        panic!("{:?}", lvm_view.contents)
    };
    assert_eq!(volume.ambiguous, None);
    // The earlier one first.
    let records: Vec<&SnapshotRecord> = volume.snapshots.iter().map(|one| &one.record).collect();
    assert_eq!(records, [&second, &first]);
    let [inactive, active] = volume.snapshots.as_slice() else {
        panic!()
    };
    assert_eq!(
        (inactive.device.as_deref(), active.device.as_deref()),
        (None, Some("dm-3"))
    );
    assert_eq!((active.reserve_bytes, &active.ambiguous), (5 * MIB, &None));
    // A snapshot's store is neither free space nor a foreign LV.
    assert!(lvm_view.contents.strangers.is_empty());
    assert_eq!(lvm_view.contents.free_bytes(), (100 - 3 - 2 * 5) * MIB);
    assert_eq!(lvm_view.snapshots.len(), 2);
}

#[test]
fn a_snapshot_that_is_recorded_as_lost_is_so_whatever_the_kernel_has_of_it() {
    let lost = SnapshotRecord {
        is_lost: true,
        ..snapshot_record(8, 1)
    };
    let vg = vg(vec![
        lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]),
        store(&lost, 10),
        store(&snapshot_record(7, 1), 20),
    ]);
    let lvm_view = view_of(&vg, &[]);
    let shown = lvm_view.contents.volumes[0].snapshots.iter();
    let states: Vec<_> = shown.map(|one| (one.is_overflowed, one.state())).collect();
    assert_eq!(
        states,
        [
            (true, SnapshotState::Overflowed),
            (false, SnapshotState::Ready)
        ]
    );
}

#[test]
fn a_snapshot_that_was_never_completed_is_what_is_to_be_cleared_and_one_that_is_odd_is_shown() {
    let incomplete = SnapshotRecord {
        is_complete: false,
        ..snapshot_record(7, 1)
    };
    let of_another = snapshot_record(8, 2);
    let mut torn = store(&snapshot_record(9, 1), 30);
    torn.tags.retain(|tag| !tag.starts_with("drivebay.size"));
    let mut parted = store(&snapshot_record(10, 1), 40);
    parted.snapshot_of = None;
    let vg = vg(vec![
        lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]),
        store(&incomplete, 10),
        store(&of_another, 20),
        torn,
        parted,
    ]);
    let lvm_view = view_of(&vg, &[]);
    assert_eq!(
        lvm_view.checks.keys().collect::<Vec<_>>(),
        [&incomplete.uuid]
    );
    let shown = &lvm_view.contents.volumes[0].snapshots;
    assert_eq!(shown.len(), 2);
    assert!(shown.iter().all(|one| one.ambiguous.is_some()), "{shown:?}");
    // Nothing is known of what it was a snapshot of.
    let [(stranger, _)] = lvm_view.contents.strangers.as_slice() else {
        panic!("{:?}", lvm_view.contents.strangers)
    };
    assert_eq!(*stranger, name::snapshot(Uuid::from_u128(10)));
}

#[test]
fn an_incomplete_snapshot_of_a_group_is_being_created_once_it_is_attached_to_its_volume() {
    let member = |n| SnapshotRecord {
        group: Some(SnapshotGroup {
            uuid: Uuid::from_u128(90),
            name: "group".into(),
            members: 2,
        }),
        is_complete: false,
        ..snapshot_record(n, 1)
    };
    let alone = SnapshotRecord {
        is_complete: false,
        ..snapshot_record(9, 1)
    };
    // Interrupted between creating its LV and attaching it.
    let mut unattached = store(&member(8), 20);
    unattached.snapshot_of = None;
    let vg = vg(vec![
        lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]),
        store(&member(7), 10),
        unattached,
        store(&alone, 30),
    ]);
    let lvm_view = view_of(&vg, &[]);
    let [shown] = lvm_view.contents.volumes[0].snapshots.as_slice() else {
        panic!("{:?}", lvm_view.contents)
    };
    assert_eq!(
        (&shown.record, shown.state()),
        (&member(7), SnapshotState::Creating)
    );
    // Member 7 can be deleted by its uuid, and is not cleared by a repair.
    assert_eq!(
        lvm_view.snapshots.keys().collect::<Vec<_>>(),
        [&member(7).uuid]
    );
    let cleared: Vec<&Uuid> = lvm_view.checks.keys().collect();
    assert_eq!(cleared, [&member(8).uuid, &alone.uuid]);
    assert!(lvm_view.contents.strangers.is_empty());
}

#[test]
fn a_volume_that_only_the_kernel_has_snapshots_of_is_refreshed() {
    let mut store = lv("drivebay-check-1", vec!["drivebay-check".into()], &[(5, 2)]);
    store.snapshot_of = Some("pvc-1".into());
    let volume = lv("pvc-1", tags::of_record(&record(1)), &[(0, 3)]);
    let mut vg = vg(vec![volume, store]);
    let top = device(&vg, &vg.lvs[0], 3 * MIB);
    let layer = DmDevice {
        uuid: format!("{}-real", top.uuid),
        ..top.clone()
    };
    let devices = [top, layer];
    assert!(view_of(&vg, &devices).stale.is_empty());
    vg.lvs[1].snapshot_of = None;
    assert_eq!(view_of(&vg, &devices).stale, [Uuid::from_u128(1)]);
    assert!(view_of(&vg, &devices[..1]).stale.is_empty());
}
