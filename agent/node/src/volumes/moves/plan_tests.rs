//! Targets of moves, and every reason against a move.

use super::*;
use crate::state::moves::MoveProgress;
use drivebay_model::{Cordon, PlaceState, Record, RecordState, samples, snapshot::Place};

const GIB: u64 = 1 << 30;

fn id(name: &str) -> DriveId {
    samples::facts(name).id
}

/// Drives of class bulk with so many GiB free, and volumes 1 to n of 1 GiB on the first of them.
fn snapshot(free: &[(&str, u64)], volumes: u128) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (n, (name, gib)) in free.iter().enumerate() {
        let of_it = if n == 0 { volumes } else { 0 };
        let placed = (1..=of_it).map(|n| samples::placed(n, RecordState::Block));
        let contents = samples::contents(n as u128 + 1, 1, placed.collect(), gib * GIB);
        let drive = samples::drive(name, DriveState::Claimed, Some(contents.clone()));
        for placed in contents.volumes {
            snapshot
                .volumes
                .insert(placed.record.uuid, samples::volume(&drive, placed));
        }
        snapshot.drives.insert(drive.id.clone(), drive);
    }
    snapshot
}

fn request(scope: MoveScope, to: &[&str]) -> MoveRequest {
    MoveRequest {
        scope,
        to: to.iter().map(|name| (*name).to_owned()).collect(),
        hold: false,
        abort_on_error: false,
        by: "ann".into(),
    }
}

fn all_of(name: &str) -> MoveScope {
    MoveScope::Drive {
        name: name.into(),
        only: Vec::new(),
    }
}

fn only(n: u128) -> MoveScope {
    MoveScope::Volume(format!("{}@n", Uuid::from_u128(n)))
}

fn planned(snapshot: &Snapshot, scope: MoveScope, to: &[&str]) -> MovePlan {
    let classes = [samples::class("bulk")];
    plan(
        snapshot,
        &classes,
        &BTreeMap::new(),
        "n",
        &request(scope, to),
    )
}

fn refused(plan: &MovePlan, words: &[&str]) {
    let all = plan.refusals.join("\n");
    for word in words {
        assert!(all.contains(word), "{word:?} in {all}");
    }
}

#[test]
fn volumes_of_a_drive_are_spread_over_the_others_as_new_ones_would_be() {
    let snapshot = snapshot(&[("sda", 0), ("sdb", 3), ("sdc", 3)], 4);
    let plan = planned(&snapshot, all_of("sda"), &[]);
    assert_eq!(plan.refusals, [""; 0]);
    assert_eq!(plan.drive, Some(id("sda")));
    let on = |name: &str| plan.moves.iter().filter(|one| one.to == id(name)).count();
    assert_eq!((on("sdb"), on("sdc")), (2, 2));
    // Room that the moves before it take is not counted twice.
    let small = super::tests::snapshot(&[("sda", 0), ("sdb", 1), ("sdc", 2)], 4);
    let plan = planned(&small, all_of("sda"), &[]);
    assert_eq!((plan.moves.len(), plan.refusals.len()), (3, 1));
    refused(
        &plan,
        &["no other drive of class bulk has room for its 1 GiB"],
    );
}

#[test]
fn every_reason_against_a_request_is_reported_at_once() {
    let mut snapshot = snapshot(&[("sda", 0), ("sdb", 9), ("sdc", 9)], 3);
    let ambiguous = snapshot.volumes.get_mut(&Uuid::from_u128(1)).unwrap();
    ambiguous.state = VolumeState::Ambiguous;
    let target = snapshot.drives.get_mut(&id("sdb")).unwrap();
    target.contents.as_mut().unwrap().label.cordon = Some(Cordon {
        at: 0,
        by: "bob".into(),
        reason: String::new(),
    });
    let plan = planned(&snapshot, all_of("sda"), &["sdb", "sdx"]);
    refused(
        &plan,
        &[
            "cordoned by bob",
            "no drive \"sdx\"",
            "it is ambiguous",
            "none of the named drives",
        ],
    );
    let plan = planned(&snapshot, only(77), &[]);
    refused(&plan, &["no volume 00000000-0000-0000-0000-00000000004d@n"]);
    let scope = MoveScope::Drive {
        name: "sda".into(),
        only: vec![format!("{}@other", Uuid::from_u128(2))],
    };
    refused(&planned(&snapshot, scope, &[]), &["is not on drive"]);
}

#[test]
fn a_volume_is_not_moved_onto_larger_sectors_nor_where_something_of_it_is_left() {
    let mut larger = snapshot(&[("sda", 0), ("sdb", 9)], 1);
    larger
        .drives
        .get_mut(&id("sdb"))
        .unwrap()
        .facts
        .logical_sector = 4096;
    refused(
        &planned(&larger, only(1), &[]),
        &["sectors that are no larger"],
    );
    let mut left = snapshot(&[("sda", 0), ("sdb", 9)], 1);
    let erasing = RecordState::Erasing {
        erase_guid: Uuid::from_u128(5),
        done_bytes: 0,
    };
    let contents = left
        .drives
        .get_mut(&id("sdb"))
        .unwrap()
        .contents
        .as_mut()
        .unwrap();
    contents.volumes.push(samples::placed(1, erasing));
    assert_eq!(planned(&left, only(1), &[]).refusals.len(), 1);
}

#[test]
fn a_repeated_request_adds_nothing_and_another_target_is_refused() {
    let snapshot = snapshot(&[("sda", 0), ("sdb", 9), ("sdc", 9)], 1);
    let uuid = Uuid::from_u128(1);
    let record = MoveRecord::sample(id("sda"), id("sdb"), MoveProgress::Requested);
    let moves = BTreeMap::from([(uuid, record)]);
    let classes = [samples::class("bulk")];
    let plan_to = |to: &[&str]| plan(&snapshot, &classes, &moves, "n", &request(only(1), to));
    assert_eq!(
        (plan_to(&[]).moves, plan_to(&["sdb"]).moves),
        (vec![], vec![])
    );
    assert_eq!(plan_to(&["sdb"]).refusals, [""; 0]);
    refused(&plan_to(&["sdc"]), &["being moved to drive wwn-sdb"]);
}

#[test]
fn a_volume_with_an_old_place_is_not_moved_on_before_that_is_erased() {
    let mut snapshot = snapshot(&[("sda", 0), ("sdb", 9)], 1);
    let volume = snapshot.volumes.get_mut(&Uuid::from_u128(1)).unwrap();
    let placed = volume.placed.clone();
    let record = Record {
        place: PlaceState::Moved {
            generation: 2,
            to: drivebay_model::Peer {
                label: Uuid::from_u128(1),
                drive: id("sda"),
            },
        },
        ..placed.record.clone()
    };
    volume.copies.push(Place {
        drive: id("sdc"),
        placed: drivebay_model::Placed { record, ..placed },
    });
    refused(
        &planned(&snapshot, only(1), &[]),
        &["another place, which is not erased yet"],
    );
}

#[test]
fn a_volume_whose_source_could_not_be_marked_is_not_moved_on_so_that_its_note_is_kept() {
    let snapshot = snapshot(&[("sda", 0), ("sdb", 9)], 1);
    let peer = |n: u128, name: &str| drivebay_model::Peer {
        label: Uuid::from_u128(n),
        drive: id(name),
    };
    let note = drivebay_model::CommitNote {
        generation: 2,
        from: peer(9, "sdx"),
        to: peer(1, "sda"),
        unfenced: true,
    };
    let record = MoveRecord::sample(
        id("sdx"),
        id("sda"),
        MoveProgress::Moved {
            note: Some(note),
            kept_seconds: 0,
            used: true,
            now: false,
        },
    );
    let moves = BTreeMap::from([(Uuid::from_u128(1), record)]);
    let classes = [samples::class("bulk")];
    let result = plan(&snapshot, &classes, &moves, "n", &request(only(1), &[]));
    refused(&result, &["could not be marked as old", "volume prefer"]);
}

#[test]
fn room_that_an_earlier_request_will_take_is_not_given_twice() {
    let snapshot = snapshot(&[("sda", 0), ("sdb", 1)], 2);
    let record = MoveRecord::sample(id("sda"), id("sdb"), MoveProgress::Requested);
    let moves = BTreeMap::from([(Uuid::from_u128(1), record)]);
    let classes = [samples::class("bulk")];
    let result = plan(&snapshot, &classes, &moves, "n", &request(only(2), &[]));
    assert_eq!((result.moves.len(), result.refusals.len()), (0, 1));
}
