//! Drives that are removed and return, and files that cannot be read.

use std::time::Duration;

use std::{collections::BTreeSet, fs};

use super::{merge::differs, *};
use crate::golden;
use drivebay_model::{
    Contents, ErasePolicy, Extent, FsType, Label, Mode, Placed, RecordState, samples,
};

const DAY: Duration = Duration::from_secs(86_400);

fn id(name: &str) -> DriveId {
    DriveId(name.into())
}

fn facts(name: &str) -> DriveFacts {
    DriveFacts {
        id: id(name),
        kernel_name: "sda".into(),
        ..samples::facts(name)
    }
}

fn record(uuid: u128, state: RecordState) -> Record {
    Record {
        uuid: Uuid::from_u128(uuid),
        name: format!("pvc-{uuid}"),
        class: "bulk".into(),
        mode: Mode::Mount,
        fs_type: Some(FsType::Ext4),
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        parameters: BTreeMap::new(),
        erase: ErasePolicy::Zero,
        requested_bytes: 1 << 30,
        extent: Extent {
            start: 8 << 20,
            len: 1 << 30,
        },
        growing_to: None,
        place: Default::default(),
        state,
    }
}

fn contents(volumes: Vec<Record>) -> Contents {
    Contents {
        layout: drivebay_model::Layout::Partition,
        sequence: 1,
        read_at: Default::default(),
        label: Label {
            drive_uuid: Uuid::from_u128(9),
            cluster: "default".into(),
            node: "n".into(),
            class: "bulk".into(),
            drive_id: id("wwn-a"),
            cordon: None,
        },
        volumes: volumes
            .into_iter()
            .map(|record| Placed {
                record,
                number: Some(2),
                device: None,
                dev: None,
                dm_uuid: None,
                pieces: Vec::new(),
                mapping: None,
                snapshots: Vec::new(),
                ambiguous: None,
            })
            .collect(),
        free: Vec::new(),
        space: Default::default(),
        usable_bytes: 1 << 40,
        extent_bytes: 1 << 20,
        table_full: false,
        unmarked_bytes: 0,
        deleted_stores: Vec::new(),
        strangers: Vec::new(),
        notes: Vec::new(),
    }
}

fn tombstone(uuid: u128) -> Tombstones {
    let tombstone = Tombstone {
        drives: [id("wwn-a")].into(),
        name: format!("pvc-{uuid}"),
        deleted_at: 5,
        quarantined_seconds: 0,
        released: false,
    };
    Tombstones {
        volumes: [(Uuid::from_u128(uuid), tombstone)].into(),
    }
}

/// A merge in which nothing but `here` matters.
fn merge_here(
    last_known: &LastKnown,
    tombstones: &Tombstones,
    here: &[(&str, Sight<'_>)],
    elapsed: Duration,
) -> Merged {
    let here = here
        .iter()
        .map(|(name, sight)| (id(name), *sight))
        .collect();
    merge(last_known, tombstones, &here, 100, elapsed, DAY)
}

fn known_with(volumes: Vec<Record>) -> LastKnown {
    let (facts, contents) = (facts("wwn-a"), contents(volumes));
    let here = [("wwn-a", Sight::Ours(&facts, &contents))];
    merge_here(
        &LastKnown::default(),
        &Tombstones::default(),
        &here,
        Duration::ZERO,
    )
    .last_known
}

#[test]
fn a_drive_that_went_away_is_missing_with_its_volumes() {
    let last_known = known_with(vec![
        record(1, RecordState::New),
        record(2, RecordState::Creating),
        record(
            3,
            RecordState::Erasing {
                erase_guid: Uuid::nil(),
                done_bytes: 0,
            },
        ),
    ]);
    let merged = merge_here(&last_known, &Tombstones::default(), &[], Duration::ZERO);
    assert_eq!(merged.missing_drives, [id("wwn-a")]);
    // A volume that was never acknowledged, and one that is deleted already, are not reported as lost.
    let missing: Vec<Uuid> = merged
        .missing_volumes
        .iter()
        .map(|(_, record)| record.uuid)
        .collect();
    assert_eq!(missing, [Uuid::from_u128(1)]);
    assert_eq!(merged.last_known, last_known);
}

#[test]
fn a_drive_that_cannot_be_read_is_not_forgotten() {
    let last_known = known_with(vec![record(1, RecordState::New)]);
    let merged = merge_here(
        &last_known,
        &Tombstones::default(),
        &[("wwn-a", Sight::Unread)],
        Duration::ZERO,
    );
    assert_eq!(merged.last_known, last_known);
    assert!(merged.missing_drives.is_empty());
    assert_eq!(merged.missing_volumes.len(), 1);
}

#[test]
fn a_volume_that_somebody_took_away_stays_in_view_until_it_is_back_or_deleted() {
    let erasing = RecordState::Erasing {
        erase_guid: Uuid::nil(),
        done_bytes: 0,
    };
    let last_known = known_with(vec![
        record(1, RecordState::New),
        record(2, RecordState::Creating),
        record(3, erasing),
        record(4, RecordState::Block),
    ]);
    let none = Tombstones::default();
    let facts = facts("wwn-a");
    let (left, whole) = (
        contents(vec![record(4, RecordState::Block)]),
        contents(vec![
            record(1, RecordState::New),
            record(4, RecordState::Block),
        ]),
    );
    let with = |contents| [("wwn-a", Sight::Ours(&facts, contents))];
    let gone = merge_here(&last_known, &none, &with(&left), Duration::ZERO);
    let of = |merged: &Merged| {
        let missing = merged.missing_volumes.iter();
        missing.map(|(_, of)| of.uuid).collect::<BTreeSet<_>>()
    };
    // A volume that was never acknowledged, and one that was being erased, are not reported as lost.
    let one = BTreeSet::from([Uuid::from_u128(1)]);
    assert_eq!((of(&gone), &gone.vanished), (one.clone(), &one));
    // The volume stays listed, also while the drive is missing.
    let still = merge_here(&gone.last_known, &none, &with(&left), DAY * 100);
    assert_eq!(
        (&still.vanished, &still.last_known),
        (&one, &gone.last_known)
    );
    let away = merge_here(&gone.last_known, &none, &[], Duration::ZERO);
    assert_eq!(away.vanished, one);
    assert_eq!(of(&away).len(), 2);
    // Present again, deleted, or on a drive that was claimed again: no longer listed.
    let back = merge_here(&gone.last_known, &none, &with(&whole), Duration::ZERO);
    let deleted = merge_here(
        &gone.last_known,
        &tombstone(1),
        &with(&left),
        Duration::ZERO,
    );
    let mut anew = contents(vec![]);
    anew.label.drive_uuid = Uuid::from_u128(10);
    let anew = merge_here(&last_known, &none, &with(&anew), Duration::ZERO);
    for over in [&back, &deleted, &anew] {
        assert!(over.vanished.is_empty() && of(over).is_empty());
        assert!(over.last_known.drives[&id("wwn-a")].vanished.is_empty());
        assert_eq!(over.tombstones.open().count(), 0);
    }
}

#[test]
fn a_wiped_drive_is_forgotten_and_its_tombstones_are_finished() {
    let last_known = known_with(vec![record(1, RecordState::New)]);
    let merged = merge_here(
        &last_known,
        &tombstone(1),
        &[("wwn-a", Sight::NotOurs)],
        Duration::ZERO,
    );
    assert_eq!(merged.last_known, LastKnown::default());
    assert!(merged.missing_volumes.is_empty());
    assert_eq!(merged.tombstones.open().count(), 0);
}

#[test]
fn a_volume_deleted_while_away_is_not_listed_as_missing() {
    let last_known = known_with(vec![record(1, RecordState::New)]);
    let merged = merge_here(&last_known, &tombstone(1), &[], DAY * 100);
    assert!(merged.missing_volumes.is_empty());
    // A missing volume is not in quarantine: the time counts from its return.
    assert_eq!(merged.tombstones, tombstone(1));
    assert!(merged.due.is_empty());
}

#[test]
fn a_volume_deleted_while_away_is_quarantined_on_return_and_due_after_the_delay() {
    let facts = facts("wwn-a");
    let contents = contents(vec![
        record(1, RecordState::New),
        record(2, RecordState::New),
    ]);
    let here = [("wwn-a", Sight::Ours(&facts, &contents))];
    let first = merge_here(&LastKnown::default(), &tombstone(1), &here, Duration::ZERO);
    assert_eq!(first.quarantined, [Uuid::from_u128(1)].into());
    assert!(first.due.is_empty() && first.missing_volumes.is_empty());
    let nearly = merge_here(
        &first.last_known,
        &first.tombstones,
        &here,
        DAY - Duration::from_secs(1),
    );
    assert!(nearly.due.is_empty());
    let over = merge_here(
        &nearly.last_known,
        &nearly.tombstones,
        &here,
        Duration::from_secs(1),
    );
    assert_eq!(over.due, [(id("wwn-a"), Uuid::from_u128(1))]);
    // Being due is not being done: the tombstone stays until the volume is seen erasing or gone.
    assert!(over.tombstones.volumes.contains_key(&Uuid::from_u128(1)));
}

#[test]
fn a_released_tombstone_is_due_without_quarantine() {
    let facts = facts("wwn-a");
    let contents = contents(vec![record(1, RecordState::New)]);
    let mut tombstones = tombstone(1);
    for tombstone in tombstones.volumes.values_mut() {
        tombstone.released = true;
    }
    let merged = merge_here(
        &LastKnown::default(),
        &tombstones,
        &[("wwn-a", Sight::Ours(&facts, &contents))],
        Duration::ZERO,
    );
    assert_eq!(merged.due.len(), 1);
}

fn erasing(uuid: u128) -> Record {
    let state = RecordState::Erasing {
        erase_guid: Uuid::nil(),
        done_bytes: 7,
    };
    record(uuid, state)
}

#[test]
fn a_deletion_is_over_when_its_volume_was_seen_to_be_erased_and_not_before() {
    let facts = facts("wwn-a");
    let (erasing, gone) = (contents(vec![erasing(1)]), contents(Vec::new()));
    for (sight, is_over) in [
        (Sight::Ours(&facts, &erasing), false),
        (Sight::Ours(&facts, &gone), true),
        (Sight::NotOurs, true),
        (Sight::Unread, false),
    ] {
        let merged = merge_here(
            &LastKnown::default(),
            &tombstone(1),
            &[("wwn-a", sight)],
            DAY,
        );
        assert_eq!(merged.tombstones.open().count() == 0, is_over, "{sight:?}");
        assert!(merged.quarantined.is_empty() && merged.due.is_empty());
    }
}

#[test]
fn a_deleted_volume_that_appears_later_is_quarantined_and_stays_deleted() {
    let (here, copied) = (facts("wwn-a"), facts("wwn-copy"));
    let (erasing, gone) = (contents(vec![erasing(1)]), contents(Vec::new()));
    let live = contents(vec![record(1, RecordState::New)]);
    let none = (LastKnown::default(), Tombstones::default());
    // Deleted while its drive was present: no tombstone was written.
    let deleted = merge_here(
        &none.0,
        &none.1,
        &[("wwn-a", Sight::Ours(&here, &erasing))],
        DAY,
    );
    assert_eq!(deleted.tombstones.open().count(), 1);
    let over = merge_here(
        &deleted.last_known,
        &deleted.tombstones,
        &[("wwn-a", Sight::Ours(&here, &gone))],
        DAY,
    );
    assert_eq!(over.tombstones.open().count(), 0);
    // The copy appears, with or without the original.
    for beside in [None, Some(("wwn-a", Sight::Ours(&here, &gone)))] {
        let copy = ("wwn-copy", Sight::Ours(&copied, &live));
        let all: Vec<_> = beside.into_iter().chain([copy]).collect();
        let appeared = merge_here(&over.last_known, &over.tombstones, &all, Duration::ZERO);
        assert_eq!(appeared.quarantined, [Uuid::from_u128(1)].into());
        assert_eq!(appeared.tombstones.open().count(), 1);
        assert!(appeared.due.is_empty());
        // Erased there as well, it is over again.
        let copy = ("wwn-copy", Sight::Ours(&copied, &gone));
        let erased = merge_here(&appeared.last_known, &appeared.tombstones, &[copy], DAY);
        assert_eq!(erased.tombstones.open().count(), 0);
    }
}

#[test]
fn a_copy_of_a_drive_has_a_quarantine_of_its_own_after_that_of_the_original_has_ended() {
    let (here, copied) = (facts("wwn-a"), facts("wwn-copy"));
    let (live, gone) = (
        contents(vec![record(1, RecordState::New)]),
        contents(Vec::new()),
    );
    let mut tombstones = tombstone(1);
    for tombstone in tombstones.volumes.values_mut() {
        tombstone.released = true;
    }
    let original = |contents| [("wwn-a", Sight::Ours(&here, contents))];
    let served = merge_here(&LastKnown::default(), &tombstones, &original(&live), DAY);
    assert_eq!(served.due.len(), 1);
    let erased = merge_here(
        &served.last_known,
        &served.tombstones,
        &original(&gone),
        DAY,
    );
    let copy = [("wwn-copy", Sight::Ours(&copied, &live))];
    let appeared = merge_here(
        &erased.last_known,
        &erased.tombstones,
        &copy,
        Duration::ZERO,
    );
    assert_eq!(appeared.quarantined, [Uuid::from_u128(1)].into());
    assert_eq!(appeared.due, []);
}

#[test]
fn a_deletion_is_over_only_when_each_of_its_places_was_seen_to_be_erased() {
    let mut deleted = tombstone(1);
    for tombstone in deleted.volumes.values_mut() {
        tombstone.drives.insert(id("wwn-copy"));
    }
    let facts = facts("wwn-a");
    let gone = contents(Vec::new());
    let one = merge_here(
        &LastKnown::default(),
        &deleted,
        &[("wwn-a", Sight::Ours(&facts, &gone))],
        DAY,
    );
    assert_eq!(one.tombstones.open().count(), 1);
    let both = merge_here(
        &one.last_known,
        &one.tombstones,
        &[("wwn-copy", Sight::NotOurs)],
        DAY,
    );
    assert_eq!(both.tombstones.open().count(), 0);
}

#[test]
fn of_the_deletions_that_are_over_the_latest_are_remembered() {
    let over = |n: u128| {
        let tombstone = Tombstone {
            drives: BTreeSet::new(),
            name: String::new(),
            deleted_at: 10_000 - n as u64,
            quarantined_seconds: 0,
            released: false,
        };
        (Uuid::from_u128(n), tombstone)
    };
    let many = Tombstones {
        volumes: (0..5000).map(over).collect(),
    };
    let merged = merge_here(&LastKnown::default(), &many, &[], DAY);
    let kept: Vec<_> = merged.tombstones.volumes.into_keys().collect();
    assert_eq!(kept.len(), 4096);
    assert_eq!(kept[0], Uuid::from_u128(0));
}

#[test]
fn a_drive_back_under_another_identity_is_the_same_drive() {
    let last_known = known_with(vec![
        record(1, RecordState::New),
        record(2, RecordState::New),
    ]);
    let facts = facts("serial-b");
    let contents = contents(vec![
        record(1, RecordState::New),
        record(2, RecordState::New),
    ]);
    let merged = merge_here(
        &last_known,
        &tombstone(1),
        &[("serial-b", Sight::Ours(&facts, &contents))],
        DAY,
    );
    assert!(merged.missing_drives.is_empty() && merged.missing_volumes.is_empty());
    assert_eq!(merged.due, [(id("serial-b"), Uuid::from_u128(1))]);
}

#[test]
fn only_the_date_changing_is_no_reason_to_write() {
    let last_known = known_with(vec![record(1, RecordState::New)]);
    let mut later = last_known.clone();
    later
        .drives
        .values_mut()
        .for_each(|drive| drive.last_seen += 1);
    assert!(!differs(&last_known, &later));
    assert!(differs(&last_known, &LastKnown::default()));
}

#[tokio::test]
async fn both_files_are_read_back_as_written() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let state_dir = StateDir::new(dir.path().join("state"));
    let store = Store::new(&state_dir);
    assert_eq!(store.load().await.known, LastKnown::default());
    let last_known = known_with(vec![
        record(
            1,
            RecordState::Fs {
                fs_type: FsType::Xfs,
                fs_uuid: Uuid::max(),
                mounted: true,
            },
        ),
        record(
            3,
            RecordState::Erasing {
                erase_guid: Uuid::nil(),
                done_bytes: 7,
            },
        ),
    ]);
    store.save_known(last_known.clone()).await?;
    store.save_tombstones(tombstone(4)).await?;
    for name in ["known.json", "tombstones.json"] {
        golden::compare(name, &fs::read(dir.path().join("state").join(name))?);
    }
    let loaded = store.load().await;
    assert_eq!(loaded.known, last_known);
    assert_eq!(loaded.tombstones, tombstone(4));
    assert!(state_dir.troubles().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_damaged_file_is_reported_kept_and_replaced() -> Result<(), Box<dyn std::error::Error>> {
    for text in [
        "",
        "{",
        "null",
        "{\"version\":1}",
        "{\"version\":0,\"drives\":[1]}",
    ] {
        let dir = tempfile::tempdir()?;
        let state_dir = StateDir::new(dir.path());
        let store = Store::new(&state_dir);
        store.save_tombstones(tombstone(4)).await?;
        fs::write(dir.path().join("known.json"), text)?;
        let loaded = store.load().await;
        assert_eq!(loaded.known, LastKnown::default(), "{text}");
        assert_eq!(
            loaded.tombstones,
            tombstone(4),
            "the other file is not touched"
        );
        let findings = dir::findings(&state_dir.troubles());
        let [lost] = findings.as_slice() else {
            panic!("{text}: {findings:?}")
        };
        assert!(
            lost.code == "StateLost" && lost.message.contains("known.json.bad-1"),
            "{lost:?}"
        );
        assert_eq!(
            fs::read_to_string(dir.path().join("known.json.bad-1"))?,
            text
        );
        store.save_known(LastKnown::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_write_that_fails_is_an_error() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    fs::write(dir.path().join("file"), "")?;
    let store = Store::new(&StateDir::new(dir.path().join("file/below")));
    let error = store.save_tombstones(tombstone(4)).await.unwrap_err();
    assert!(error.to_string().contains("tombstones.json"), "{error}");
    Ok(())
}

#[test]
fn a_creation_in_doubt_is_remembered_until_its_volume_is_seen() {
    let doubt = Doubt {
        drive: id("wwn-a"),
        uuid: Uuid::from_u128(7),
    };
    let last_known = LastKnown {
        in_doubt: [("pvc-7".to_owned(), doubt)].into(),
        ..known_with(Vec::new())
    };
    // Its drive is missing, unread, or was read without it: it may be read again before the creation is over.
    let (facts, empty) = (facts("wwn-a"), contents(Vec::new()));
    for here in [
        &[][..],
        &[("wwn-a", Sight::Unread)],
        &[("wwn-a", Sight::Ours(&facts, &empty))],
    ] {
        let next = merge_here(&last_known, &Tombstones::default(), here, Duration::ZERO).last_known;
        assert_eq!(next.in_doubt, last_known.in_doubt);
    }
    assert!(differs(&last_known, &known_with(Vec::new())));
    let there = contents(vec![record(7, RecordState::New)]);
    let here = [("wwn-a", Sight::Ours(&facts, &there))];
    let next = merge_here(&last_known, &Tombstones::default(), &here, Duration::ZERO).last_known;
    assert_eq!(next.in_doubt, BTreeMap::new());
}

#[test]
fn what_is_read_late_counts_as_if_it_had_been_read_at_the_start() {
    let ready = |uuid| record(uuid, RecordState::Block);
    let mut earlier = known_with(vec![ready(1), ready(2), ready(3)]);
    let away = KnownDrive {
        volumes: vec![ready(9)],
        ..earlier.drives[&id("wwn-a")].clone()
    };
    earlier.drives.insert(id("wwn-away"), away.clone());
    let doubt = Doubt {
        drive: id("wwn-a"),
        uuid: Uuid::from_u128(7),
    };
    earlier.in_doubt.insert("pvc-7".into(), doubt.clone());
    // Since the start the drive was read without volumes 2 and 3, of which 3 was deleted, and with a new one.
    let now = known_with(vec![ready(1), ready(4)]);
    let deletions = tombstone(3);
    let all = recalled(earlier.clone(), &now, &deletions);
    assert_eq!(all.drives[&id("wwn-away")], away);
    let drive = &all.drives[&id("wwn-a")];
    assert_eq!(drive.volumes, now.drives[&id("wwn-a")].volumes);
    assert_eq!(drive.vanished, [ready(2)]);
    assert_eq!(all.in_doubt["pvc-7"], doubt);
    // As after the next start.
    let (facts, contents) = (facts("wwn-a"), contents(vec![ready(1), ready(4)]));
    let here = [("wwn-a", Sight::Ours(&facts, &contents))];
    let read_at_start = merge_here(&earlier, &deletions, &here, Duration::ZERO);
    assert!(!differs(&read_at_start.last_known, &all), "{all:?}");
}

#[test]
fn deletions_that_are_read_late_are_on_the_drives_that_either_names() {
    let mut earlier = tombstone(4);
    earlier.volumes.extend(tombstone(5).volumes);
    if let Some(counted) = earlier.volumes.get_mut(&Uuid::from_u128(4)) {
        counted.quarantined_seconds = 60;
    }
    let mut now = tombstone(4);
    now.volumes.extend(tombstone(6).volumes);
    if let Some(elsewhere) = now.volumes.get_mut(&Uuid::from_u128(4)) {
        elsewhere.drives = [id("wwn-b")].into();
    }
    let all = recalled_deletions(earlier, &now);
    let uuids: Vec<u128> = all.volumes.keys().map(|uuid| uuid.as_u128()).collect();
    assert_eq!(uuids, [4, 5, 6]);
    let both = &all.volumes[&Uuid::from_u128(4)];
    assert_eq!(both.drives, [id("wwn-a"), id("wwn-b")].into());
    assert_eq!(both.quarantined_seconds, 60);
}
