//! Answers about a drive that is to be taken out.

use super::*;
use drivebay_model::{Cordon, DeletedStore, DriveState, Peer, PlaceState, Placed, samples};

fn old_place(n: u128, state: RecordState) -> Placed {
    let mut placed = samples::placed(n, state);
    placed.record.place = PlaceState::Moved {
        generation: 2,
        to: Peer {
            label: Uuid::from_u128(2),
            drive: samples::facts("t").id,
        },
    };
    placed
}

fn cordoned(volumes: Vec<Placed>) -> Drive {
    let mut contents = samples::contents(1, 1, volumes, 0);
    contents.label.cordon = Some(Cordon {
        at: 0,
        by: "ann".into(),
        reason: String::new(),
    });
    samples::drive("s", DriveState::Claimed, Some(contents))
}

fn erasing(done_bytes: u64) -> RecordState {
    RecordState::Erasing {
        erase_guid: Uuid::from_u128(9),
        done_bytes,
    }
}

fn of(drive: &Drive) -> Retirement {
    retirement(&Snapshot::default(), drive, &BTreeMap::new(), false)
}

#[test]
fn a_drive_with_nothing_on_it_may_be_pulled_and_leave_the_building() {
    let mut drive = cordoned(Vec::new());
    drive.facts.bay.slot = "7".into();
    let of = of(&drive);
    assert_eq!(
        (of.keeps.len(), of.erasing_bytes, of.not_erased.len()),
        (0, 0, 0)
    );
    assert_eq!((of.serial.as_str(), of.bay.as_str()), ("S", "slot 7"));
}

#[test]
fn a_volume_that_lives_on_it_and_new_ones_that_may_come_keep_it() {
    let mut drive = cordoned(vec![samples::placed(1, RecordState::Block)]);
    let mut snapshot = Snapshot::default();
    let volume = samples::volume(&drive, samples::placed(1, RecordState::Block));
    snapshot.volumes.insert(volume.uuid, volume);
    let of = retirement(&snapshot, &drive, &BTreeMap::new(), false);
    assert!(of.keeps[0].contains("pvc-1 lives on it"), "{of:?}");
    drive.contents.as_mut().unwrap().label.cordon = None;
    let of = super::tests::of(&drive);
    assert!(of.keeps[0].contains("not cordoned"), "{of:?}");
}

#[test]
fn a_quarantined_volume_and_deleted_snapshots_keep_a_drive_in_the_building() {
    let mut drive = cordoned(vec![samples::placed(1, RecordState::Block)]);
    let mut snapshot = Snapshot::default();
    let mut volume = samples::volume(&drive, samples::placed(1, RecordState::Block));
    volume.state = VolumeState::Quarantined;
    snapshot.volumes.insert(volume.uuid, volume);
    let of = retirement(&snapshot, &drive, &BTreeMap::new(), false);
    assert_eq!(of.keeps, [""; 0]);
    assert!(of.not_erased[0].contains("quarantine"), "{of:?}");
    let contents = drive.contents.as_mut().unwrap();
    contents.volumes.clear();
    contents.unmarked_bytes = 5;
    contents.deleted_stores.push(DeletedStore {
        erase_guid: Uuid::from_u128(7),
        bytes: 20,
        done_bytes: 8,
    });
    let of = super::tests::of(&drive);
    assert_eq!((of.erasing_bytes, of.not_erased.len()), (17, 0));
    drive.contents.as_mut().unwrap().space.zeroing = Zeroing::Fails;
    let of = super::tests::of(&drive);
    assert_eq!((of.erasing_bytes, of.not_erased.len()), (0, 1));
}

#[test]
fn old_places_and_deleted_volumes_are_erased_before_it_may_leave_the_building() {
    let drive = cordoned(vec![
        old_place(1, RecordState::Block),
        old_place(2, erasing(1 << 20)),
        samples::placed(3, erasing(0)),
    ]);
    let of = of(&drive);
    assert_eq!(of.keeps, [""; 0], "it may be pulled");
    assert_eq!(of.erasing_bytes, 3 * (1 << 30) - (1 << 20));
    assert_eq!(of.not_erased, [""; 0]);
}

#[test]
fn a_place_that_could_not_be_marked_as_old_keeps_the_drive_in_the_building() {
    let drive = cordoned(vec![samples::placed(1, RecordState::Block)]);
    let mut snapshot = Snapshot::default();
    let target = samples::drive("t", DriveState::Claimed, None);
    let volume = samples::volume(&target, samples::placed(1, RecordState::Block));
    snapshot.volumes.insert(volume.uuid, volume);
    let of = retirement(&snapshot, &drive, &BTreeMap::new(), false);
    assert_eq!((of.keeps.len(), of.not_erased.len()), (0, 1), "{of:?}");
}

#[test]
fn what_will_not_be_erased_is_listed() {
    let mut signatures = samples::placed(1, erasing(0));
    signatures.record.erase = ErasePolicy::Signatures;
    let mut drive = cordoned(vec![signatures, old_place(2, erasing(0))]);
    let contents = drive.contents.as_mut().unwrap();
    contents.space.zeroing = Zeroing::Fails;
    contents
        .strangers
        .push(("data".into(), drivebay_model::Extent { start: 0, len: 9 }));
    let of = super::tests::of(&drive);
    assert_eq!((of.erasing_bytes, of.not_erased.len()), (0, 3), "{of:?}");
    assert!(
        of.not_erased[0].contains(", 1 GiB: the drive does not keep zeros"),
        "{of:?}"
    );
    let mut silent = cordoned(Vec::new());
    silent.trouble = Some("no answer".into());
    assert_eq!(super::tests::of(&silent).not_erased.len(), 1);
}

#[test]
fn a_drive_with_a_place_of_a_volume_in_doubt_stays() {
    let drive = cordoned(vec![old_place(1, RecordState::Block)]);
    let target = samples::drive("t", DriveState::Claimed, None);
    let mut volume = samples::volume(&target, samples::placed(1, RecordState::Block));
    volume.copies.push(drivebay_model::snapshot::Place {
        drive: drive.id.clone(),
        placed: old_place(1, RecordState::Block),
    });
    let keeps = |state| {
        let mut snapshot = Snapshot::default();
        let volume = drivebay_model::Volume {
            state,
            ..volume.clone()
        };
        snapshot.volumes.insert(volume.uuid, volume);
        retirement(&snapshot, &drive, &BTreeMap::new(), false).keeps
    };
    assert!(keeps(VolumeState::Ambiguous)[0].contains("in doubt"));
    assert_eq!(keeps(VolumeState::Ready), [""; 0]);
}

#[test]
fn free_space_of_a_class_that_erases_signatures_only_is_not_erased() {
    let mut drive = cordoned(Vec::new());
    let contents = drive.contents.as_mut().unwrap();
    contents.free = vec![drivebay_model::Extent {
        start: 0,
        len: 1 << 30,
    }];
    let not_erased = |signatures| {
        retirement(&Snapshot::default(), &drive, &BTreeMap::new(), signatures).not_erased
    };
    assert_eq!((not_erased(true).len(), not_erased(false).len()), (1, 0));
}
