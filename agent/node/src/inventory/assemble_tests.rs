//! The snapshot of drives and volumes, for every state of a drive.

use uuid::Uuid;

use super::*;
use crate::state;
use drivebay_model::{
    Peer, PlaceState, Reject, RejectCode,
    samples::{class, contents, drive, placed},
};
use drivebay_sys::host_udev::HostUdev;

const FREE: u64 = 1 << 30;

fn remembering(inventory: &InventoryState) -> Merged {
    let drives = present::derive(inventory, &[]);
    remember(
        inventory,
        &drives,
        0,
        Duration::ZERO,
        Duration::from_secs(60),
    )
}

fn snapshot(inventory: &InventoryState) -> Snapshot {
    let merged = remembering(inventory);
    let class = ClassConfig {
        layout: drivebay_model::Layout::Partition,
        ..class("bulk")
    };
    let classes = [class];
    assemble(
        inventory,
        present::derive(inventory, &classes),
        &merged,
        &classes,
    )
}

fn inventory_of(drives: Vec<Drive>) -> InventoryState {
    InventoryState {
        drives: drives
            .into_iter()
            .map(|drive| (drive.id.clone(), drive.into()))
            .collect(),
        ready: true,
        ..InventoryState::default()
    }
}

fn claimed(name: &str, volume: Placed) -> Drive {
    let contents = contents(9, 1, vec![volume], FREE);
    drive(name, DriveState::Claimed, Some(contents))
}

fn rejected(name: &str, code: RejectCode) -> Drive {
    let mut drive = claimed(name, placed(1, RecordState::New));
    drive.state = DriveState::Rejected;
    drive.rejects.push(Reject {
        code,
        detail: String::new(),
    });
    drive
}

fn reasons(volume: &Volume) -> Vec<&str> {
    let conditions = volume.conditions.iter();
    conditions
        .map(|condition| condition.reason.as_str())
        .collect()
}

fn only(snapshot: &Snapshot) -> &Volume {
    assert_eq!(snapshot.volumes.len(), 1);
    &snapshot.volumes[&Uuid::from_u128(1)]
}

#[test]
fn a_volume_has_the_state_of_its_record_and_its_drive() {
    let state = |state| placed(1, state);
    let fs = RecordState::Fs {
        fs_type: drivebay_model::FsType::Ext4,
        fs_uuid: Uuid::from_u128(7),
        mounted: true,
    };
    let planned = RecordState::Fs {
        fs_type: drivebay_model::FsType::Ext4,
        fs_uuid: Uuid::from_u128(7),
        mounted: false,
    };
    let erasing = RecordState::Erasing {
        erase_guid: Uuid::from_u128(8),
        done_bytes: 5,
    };
    let mut torn = state(RecordState::New);
    torn.ambiguous = Some("no entry in the table".into());
    for (placed, expected, wrong) in [
        (state(RecordState::New), VolumeState::New, vec![]),
        (state(planned), VolumeState::New, vec![]),
        (state(fs), VolumeState::Ready, vec![]),
        (state(RecordState::Block), VolumeState::Ready, vec![]),
        (state(erasing), VolumeState::Erasing, vec![]),
        (torn, VolumeState::Ambiguous, vec!["RecordMismatch"]),
    ] {
        let snapshot = snapshot(&inventory_of(vec![claimed("sda", placed)]));
        let volume = only(&snapshot);
        assert_eq!(volume.state, expected);
        assert_eq!(reasons(volume), wrong);
    }
}

#[test]
fn a_drive_that_gives_no_answer_keeps_its_volumes_and_offers_no_room() {
    let mut silent = claimed("sda", placed(1, RecordState::Block));
    silent.state = DriveState::Unprobed;
    silent.trouble = Some("probe has not returned".into());
    let mut stuck = inventory_of(vec![claimed("sda", placed(1, RecordState::Block))]);
    stuck.stuck.insert(
        drivebay_model::DriveId("wwn-sda".into()),
        "stage has not returned".into(),
    );
    for (inventory, wrong) in [
        (
            inventory_of(vec![silent]),
            vec!["DriveUnreadable", "DriveStuck"],
        ),
        (stuck, vec!["DriveStuck"]),
    ] {
        let snapshot = snapshot(&inventory);
        assert_eq!(reasons(only(&snapshot)), wrong);
        assert!(is_live(only(&snapshot).state));
        assert_eq!(snapshot.classes["bulk"].free_bytes, 0);
        assert_eq!(snapshot.classes["bulk"].largest_bytes, 0);
    }
}

#[test]
fn a_volume_that_was_seen_stays_in_view_while_its_drive_is_away_or_silent() {
    let mut before = inventory_of(vec![claimed("sda", placed(1, RecordState::Block))]);
    let merged = remembering(&before);
    before.remembered = merged.last_known;
    let mut silent = drive("sda", DriveState::Unprobed, None);
    silent.trouble = Some("stuck".into());
    for (here, wrong) in [
        (vec![], "DriveMissing"),
        (vec![silent], "DriveUnreadable"),
        (
            vec![rejected("sda", RejectCode::Unreadable)],
            "DriveUnreadable",
        ),
    ] {
        let mut now = before.clone();
        now.drives = inventory_of(here).drives;
        let snapshot = snapshot(&now);
        assert_eq!(only(&snapshot).state, VolumeState::Missing);
        assert!(reasons(only(&snapshot)).contains(&wrong));
    }
}

#[test]
fn a_volume_that_a_drive_was_read_without_is_reported_as_lost() {
    let mut before = inventory_of(vec![claimed("sda", placed(1, RecordState::Block))]);
    let merged = remembering(&before);
    before.remembered = merged.last_known;
    for drive in before.drives.values_mut() {
        drive.contents.as_mut().unwrap().volumes.clear();
    }
    let snapshot = snapshot(&before);
    let lost = only(&snapshot);
    assert_eq!(lost.state, VolumeState::Missing);
    assert_eq!(reasons(lost), ["VolumeNotFound"]);
    assert_eq!(lost.conditions[0].status.as_str(), "DATA_LOSS");
    assert!(is_live(lost.state));
}

#[test]
fn one_volume_on_two_drives_is_nobodys() {
    let volume = || placed(1, RecordState::Block);
    let snapshot = snapshot(&inventory_of(vec![
        claimed("sda", volume()),
        claimed("sdb", volume()),
    ]));
    assert_eq!(only(&snapshot).state, VolumeState::Ambiguous);
    assert_eq!(reasons(only(&snapshot)), ["VolumeOnTwoDrives"]);
}

fn at(device: &str, dev: (u32, u32)) -> Placed {
    Placed {
        device: Some(device.into()),
        dev: Some(dev),
        ..placed(1, RecordState::Block)
    }
}

#[test]
fn a_copied_drive_takes_no_volume_over_whichever_drive_sorts_first() {
    let original = inventory_of(vec![claimed("sdz", at("sdz2", (8, 98)))]);
    let mut both = inventory_of(vec![
        claimed("sda", at("sda2", (8, 2))),
        claimed("sdz", at("sdz2", (8, 98))),
    ]);
    both.remembered = remembering(&original).last_known;
    let shown = snapshot(&both);
    let volume = only(&shown);
    assert_eq!(volume.drive.0, "wwn-sdz");
    assert_eq!(volume.placed.device.as_deref(), Some("sdz2"));
    for drive in ["wwn-sda", "wwn-sdz"] {
        assert!(volume.is_on(&DriveId(drive.into())), "{drive}");
    }
}

#[test]
fn a_volume_is_in_use_when_one_of_its_places_is() {
    let row = b"1 2 8:2 / /a rw - ext4 /dev/sda2 rw\n";
    let mounts = drivebay_sys::mountinfo::parse(row).unwrap();
    let change = drivebay_sys::mountinfo::Change {
        new: mounts.into_iter().map(std::sync::Arc::new).collect(),
        ..Default::default()
    };
    let mut both = inventory_of(vec![
        claimed("sda", at("sda2", (8, 2))),
        claimed("sdz", at("sdz2", (8, 98))),
    ]);
    both.remembered =
        remembering(&inventory_of(vec![claimed("sdz", at("sdz2", (8, 98)))])).last_known;
    both.mounts.apply(&change, |_| None);
    let shown = snapshot(&both);
    let volume = only(&shown);
    assert!(volume.in_use);
    assert_eq!(volume.mounts, ["/a"]);
    assert_eq!(volume.drive.0, "wwn-sda", "what is mounted is the volume");
}

#[test]
fn a_deleted_volume_that_appears_on_a_copy_is_quarantined_whatever_its_drive_is() {
    let copy = || claimed("sdb", placed(1, RecordState::Block));
    let mut rejected = copy();
    rejected.state = DriveState::Rejected;
    rejected.rejects.push(Reject {
        code: RejectCode::DuplicateIdentity,
        detail: String::new(),
    });
    let erasing = RecordState::Erasing {
        erase_guid: Uuid::from_u128(8),
        done_bytes: 5,
    };
    // Deleted, and erased.
    let mut now = inventory_of(vec![claimed("sda", placed(1, erasing.clone()))]);
    now.tombstones = remembering(&now).tombstones;
    let empty = drive(
        "sda",
        DriveState::Claimed,
        Some(contents(9, 2, vec![], FREE)),
    );
    now.drives = inventory_of(vec![empty]).drives;
    now.tombstones = remembering(&now).tombstones;
    for drives in [vec![copy()], vec![rejected]] {
        now.drives = inventory_of(drives).drives;
        assert_eq!(only(&snapshot(&now)).state, VolumeState::Quarantined);
    }
    // Also beside the place that is being erased.
    now.drives = inventory_of(vec![claimed("sda", placed(1, erasing)), copy()]).drives;
    assert!(!is_live(only(&snapshot(&now)).state));
}

#[test]
fn a_drive_whose_identity_another_device_has_too_is_not_missing() {
    let before = inventory_of(vec![claimed("sda", placed(1, RecordState::Block))]);
    let mut now = inventory_of(Vec::new());
    now.remembered = remembering(&before).last_known;
    for name in ["sda", "sdb"] {
        let mut twin = drive("sda", DriveState::Rejected, None);
        twin.id = DriveId(format!("wwn-sda.{name}"));
        twin.rejects.push(Reject {
            code: RejectCode::DuplicateIdentity,
            detail: String::new(),
        });
        now.drives.insert(twin.id.clone(), twin.into());
    }
    let shown = snapshot(&now);
    assert_eq!(reasons(only(&shown)), ["DriveUnreadable"]);
    assert!(
        shown
            .drives
            .values()
            .all(|drive| drive.state == DriveState::Rejected)
    );
}

#[test]
fn a_drive_that_was_not_scanned_yet_is_neither_missing_nor_are_its_volumes() {
    let before = inventory_of(vec![claimed("sda", placed(1, RecordState::Block))]);
    let mut now = InventoryState {
        ready: true,
        ..InventoryState::default()
    };
    now.recall(remembering(&before).last_known);
    let shown = snapshot(&now);
    assert_eq!(
        shown.drives.values().next().unwrap().state,
        DriveState::NotScanned
    );
    assert_eq!(only(&shown).state, VolumeState::NotScanned);
    assert_eq!(reasons(only(&shown)), Vec::<&str>::new());
    assert!(is_live(only(&shown).state));
    assert_eq!(shown.classes["bulk"].free_bytes, 0);
    // Its last known health counts.
    let bad = DriveHealth {
        verdict: drivebay_model::Verdict::Bad,
        ..DriveHealth::default()
    };
    let drive = shown.drives.keys().next().unwrap().clone();
    now.health.restore_reports([(drive, bad)].into());
    let verdict = |shown: &Snapshot| shown.drives.values().next().unwrap().health.verdict;
    assert_eq!(verdict(&snapshot(&now)), drivebay_model::Verdict::Bad);
    // Observed to be absent, it is missing.
    now.health = drivebay_evidence::HealthRegistry::default();
    now.unscanned.clear();
    assert_eq!(reasons(only(&snapshot(&now))), ["DriveMissing"]);
}

#[test]
fn volumes_of_another_node_are_not_listed() {
    let elsewhere = rejected("sda", RejectCode::OursElsewhere);
    assert!(snapshot(&inventory_of(vec![elsewhere])).volumes.is_empty());
    // A drive of ours that may not be used now is.
    let copied = rejected("sda", RejectCode::DuplicateIdentity);
    assert_eq!(
        only(&snapshot(&inventory_of(vec![copied]))).state,
        VolumeState::Missing
    );
}

#[test]
fn a_drive_of_ours_that_cannot_be_used_or_is_not_probed_keeps_its_volumes_and_tombstones() {
    let before = inventory_of(vec![claimed("sda", placed(1, RecordState::New))]);
    let remembered = remembering(&before).last_known;
    let drives = before.drives.keys().cloned().collect();
    let tombstone = state::Tombstone {
        drives,
        name: String::new(),
        deleted_at: 0,
        quarantined_seconds: 0,
        released: true,
    };
    let with = |drive: Drive| {
        let mut now = inventory_of(vec![drive]);
        now.remembered = remembered.clone();
        let volumes = &mut now.tombstones.volumes;
        volumes.insert(Uuid::from_u128(2), tombstone.clone());
        now
    };
    let labelled = [RejectCode::MultipathMember, RejectCode::Remote];
    let labelled = labelled.map(|code| rejected("sda", code));
    let unprobed = [RejectCode::HiddenPath, RejectCode::NotADisk];
    let unprobed = unprobed.map(|code| Drive {
        contents: None,
        ..rejected("sda", code)
    });
    for drive in labelled.into_iter().chain(unprobed) {
        let now = with(drive);
        let merged = remembering(&now);
        assert_eq!(merged.last_known, remembered);
        assert_eq!(merged.tombstones, now.tombstones);
        let shown = snapshot(&now);
        assert_eq!(only(&shown).state, VolumeState::Missing);
        assert_eq!(reasons(only(&shown)), ["DriveUnreadable"]);
        assert!(!is_damaged(shown.drives.values().next().unwrap()));
    }
    // A label that names another node was read, and its volumes are listed there.
    let merged = remembering(&with(rejected("sda", RejectCode::OursElsewhere)));
    assert!(merged.last_known.drives.is_empty());
    assert_eq!(merged.tombstones.open().count(), 0);
}

#[test]
fn a_class_counts_what_can_be_had_and_nothing_else() {
    let blank = |name| drive(name, DriveState::Available, None);
    let snapshot = snapshot(&inventory_of(vec![
        claimed("sda", placed(1, RecordState::Block)),
        blank("sdb"),
        drive("sdc", DriveState::Rejected, None),
    ]));
    let bulk = &snapshot.classes["bulk"];
    let layout = drivebay_model::Layout::Partition;
    let blank = drivebay_layout::claim::claimable_bytes(layout, 1 << 40, 512);
    assert_eq!(bulk.free_bytes, FREE + blank);
    assert_eq!(bulk.largest_bytes, blank);
}

// The scheduler compares each claim with it: the sum of two drives would promise a volume that no drive has room for.
#[test]
fn the_largest_volume_of_a_class_is_that_of_one_drive_however_many_there_are() {
    let blank = |name| drive(name, DriveState::Available, None);
    let one = snapshot(&inventory_of(vec![blank("sda")])).classes["bulk"].clone();
    let three = snapshot(&inventory_of(vec![
        blank("sda"),
        blank("sdb"),
        blank("sdc"),
    ]));
    let three = &three.classes["bulk"];
    assert_eq!(three.free_bytes, 3 * one.free_bytes);
    assert_eq!(three.largest_bytes, one.largest_bytes);
}

#[test]
fn an_unknown_volume_may_be_on_a_silent_drive_of_which_nothing_is_known() {
    let silent = |class: Option<&str>| {
        let mut silent = drive("sda", DriveState::Unprobed, None);
        silent.class = class.map(str::to_owned);
        inventory_of(vec![silent])
    };
    assert!(stranger(&silent(Some("bulk"))).is_some());
    assert!(stranger(&silent(None)).is_none());
    let scanned = inventory_of(vec![claimed("sda", placed(1, RecordState::Block))]);
    assert!(stranger(&scanned).is_none());
    let mut remembered = silent(Some("bulk"));
    remembered.remembered = remembering(&scanned).last_known;
    assert!(stranger(&remembered).is_none());
}

#[test]
fn a_drive_with_evidence_against_it_gets_no_new_volumes_and_its_volumes_have_a_condition() {
    let mut inventory = inventory_of(vec![claimed("sda", placed(1, RecordState::Block))]);
    let whole = snapshot(&inventory).classes["bulk"].clone();
    assert!(whole.free_bytes > 0);
    let subject = drivebay_evidence::attribute::Subject {
        drive: DriveId("wwn-sda".into()),
        volume: None,
    };
    let kind = drivebay_evidence::kmsg::Kind::MediumError;
    inventory.health.note(&subject, kind, Duration::ZERO);
    let snapshot = snapshot(&inventory);
    assert_eq!(reasons(only(&snapshot)), ["DriveSuspect"]);
    assert_eq!(only(&snapshot).conditions[0].status.as_str(), "DEGRADED");
    let left = &snapshot.classes["bulk"];
    assert_eq!(
        (left.total_bytes, left.free_bytes, left.largest_bytes),
        (whole.total_bytes, 0, 0)
    );
}

#[test]
fn an_old_place_of_a_moved_volume_does_not_stand_for_the_drive_that_lost_its_label_with_the_newer_one()
 {
    let peer = |drive: &str| Peer {
        label: Uuid::from_u128(9),
        drive: DriveId(format!("wwn-{drive}")),
    };
    let (mut old, mut new) = (placed(1, RecordState::Block), placed(1, RecordState::Block));
    old.record.place = PlaceState::Moved {
        generation: 2,
        to: peer("b"),
    };
    new.record.place = PlaceState::Live {
        generation: 2,
        from: Some(peer("a")),
    };
    let source = claimed("a", old);
    let mut target = claimed("b", new);
    target.contents.as_mut().unwrap().label.drive_uuid = Uuid::from_u128(8);
    let before = inventory_of(vec![source.clone(), target]);
    let now = InventoryState {
        remembered: remembering(&before).last_known,
        ..inventory_of(vec![source, drive("b", DriveState::Available, None)])
    };
    let shown = snapshot(&now);
    let target = &shown.drives[&DriveId("wwn-b".into())];
    assert_eq!(target.state, DriveState::Rejected);
    assert!(is_damaged(target), "{target:?}");
    assert!(remembering(&now).last_known.drives.contains_key(&target.id));
}

#[test]
fn a_drive_whose_label_is_gone_is_not_offered_while_volumes_are_known_on_it() {
    let volume = placed(1, RecordState::Block);
    let before = inventory_of(vec![claimed("a", volume)]);
    let remembered = remembering(&before).last_known;
    let with = |drive: Drive| InventoryState {
        remembered: remembered.clone(),
        ..inventory_of(vec![drive])
    };
    let mut foreign = drive("a", DriveState::Rejected, None);
    foreign.rejects.push(Reject {
        code: RejectCode::Filesystem,
        detail: String::new(),
    });
    for now in [drive("a", DriveState::Available, None), foreign] {
        let now = with(now);
        let shown = snapshot(&now);
        let refused = shown.drives.values().next().unwrap();
        assert_eq!(refused.state, DriveState::Rejected);
        assert!(is_damaged(refused), "{refused:?}");
        assert_eq!(only(&shown).state, VolumeState::Missing);
        assert_eq!(reasons(only(&shown)), ["DriveUnreadable"]);
        assert!(stranger(&now).is_none());
    }

    // Once they are deleted it is a drive like any other.
    let mut now = with(drive("a", DriveState::Available, None));
    let tombstone = state::Tombstone {
        drives: now.drives.keys().cloned().collect(),
        name: String::new(),
        deleted_at: 0,
        quarantined_seconds: 0,
        released: false,
    };
    now.tombstones.volumes.insert(Uuid::from_u128(1), tombstone);
    let shown = snapshot(&now);
    let drive_now = shown.drives.values().next().unwrap();
    assert_eq!(drive_now.state, DriveState::Available);

    // Nor is anything refused because the drive cannot be read at the moment, or is another node's by now.
    for code in [RejectCode::ProbeFailed, RejectCode::OursElsewhere] {
        let mut away = drive("a", DriveState::Rejected, None);
        away.rejects.push(Reject {
            code,
            detail: String::new(),
        });
        let shown = snapshot(&with(away));
        assert!(!is_damaged(shown.drives.values().next().unwrap()), "{code}");
    }
}

#[test]
fn a_host_that_reads_volumes_is_reported_where_there_can_be_volumes() {
    let codes = |inventory: &InventoryState| -> Vec<String> {
        let findings = snapshot(inventory).findings.into_iter();
        findings.map(|finding| finding.code).collect()
    };
    let without_rule = Some(HostUdev {
        runs: true,
        rule: None,
    });
    let mut used = inventory_of(vec![claimed("sda", placed(1, RecordState::New))]);
    // Not observed is not reported.
    assert_eq!(codes(&used), Vec::<String>::new());
    used.host_udev = without_rule.clone();
    assert_eq!(codes(&used), ["HostReadsVolumes"]);
    let mut unused = inventory_of(vec![rejected("sda", RejectCode::NotSelected)]);
    unused.host_udev = without_rule;
    assert_eq!(codes(&unused), Vec::<String>::new());
}

#[test]
fn the_last_known_verdict_of_a_drive_counts_before_it_is_polled_and_unknown_does_not() {
    use drivebay_model::{PollState, Transport, Verdict};
    let mut drive = drive("sda", DriveState::Available, None);
    drive.class = Some("bulk".into());
    let mut inventory = inventory_of(vec![drive.clone()]);
    let health = |inventory: &InventoryState| {
        let snapshot = snapshot(inventory);
        let health = snapshot.drives.values().next().unwrap().health.clone();
        let free = snapshot.classes["bulk"].free_bytes;
        (
            health.poll,
            health.verdict,
            health.takes_new_volumes(),
            free,
        )
    };
    // Nothing polls, as in a command without an agent.
    let free = health(&inventory).3;
    assert!(free > 0);
    assert_eq!(
        health(&inventory),
        (PollState::Polled, Verdict::Unknown, true, free)
    );
    inventory.polls = Some(drivebay_config::HealthConfig::default());
    assert_eq!(
        health(&inventory),
        (PollState::Awaited, Verdict::Unknown, false, free)
    );
    let report = |verdict| DriveHealth {
        verdict,
        poll: PollState::LastKnown,
        ..DriveHealth::default()
    };
    let reports = |verdict| [(drive.id.clone(), report(verdict))].into();
    inventory.health.restore_reports(reports(Verdict::Bad));
    // Before the drive was seen: it is not forgotten.
    inventory.health.tidy(&Snapshot::default(), Duration::ZERO);
    assert_eq!(
        health(&inventory),
        (PollState::LastKnown, Verdict::Bad, false, 0)
    );
    inventory.health.restore_reports(reports(Verdict::Good));
    assert_eq!(
        health(&inventory),
        (PollState::LastKnown, Verdict::Good, true, free)
    );
    // One that cannot be polled is never waited for.
    let mut inventory = inventory_of(vec![drive.clone()]);
    inventory.polls = Some(drivebay_config::HealthConfig::default());
    for transport in [Transport::Loop, Transport::Virtio] {
        inventory.drives.get_mut(&drive.id).unwrap().facts.transport = transport;
        assert_eq!(health(&inventory).0, PollState::Polled);
    }
}
