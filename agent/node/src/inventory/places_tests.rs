//! State, drive and conditions of a volume whose places are on several drives.

use std::time::Duration;

use super::super::{assemble, present};
use super::*;
use crate::state::moves::{MoveProgress, MoveRecord};
use drivebay_model::{CommitNote, RecordState, Snapshot, samples};

fn peer(label: u128) -> Peer {
    let name = if label == 1 { "s" } else { "t" };
    Peer {
        label: Uuid::from_u128(label),
        drive: samples::facts(name).id,
    }
}

fn with(label: u128, place: PlaceState) -> Drive {
    let mut placed = samples::placed(1, RecordState::Block);
    placed.record.place = place;
    let contents = samples::contents(label, 1, vec![placed], 1 << 30);
    samples::drive(
        &peer(label).drive.0[4..],
        DriveState::Claimed,
        Some(contents),
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

/// Returns the snapshot, and stores the merged persisted state and tombstones in `inventory`, as an update does.
fn shown(inventory: &mut InventoryState) -> Snapshot {
    let drives = present::derive(inventory, &[]);
    let merged = assemble::remember(
        inventory,
        &drives,
        0,
        Duration::ZERO,
        Duration::from_secs(60),
    );
    inventory.remembered = merged.last_known.clone();
    inventory.tombstones = merged.tombstones.clone();
    assemble::assemble(inventory, drives, &merged, &[])
}

fn only(snapshot: &Snapshot) -> &Volume {
    &snapshot.volumes[&Uuid::from_u128(1)]
}

fn live(generation: u64) -> PlaceState {
    PlaceState::Live {
        generation,
        from: None,
    }
}

fn incoming() -> PlaceState {
    PlaceState::Incoming {
        generation: 2,
        from: peer(1),
    }
}

fn moved() -> PlaceState {
    PlaceState::Moved {
        generation: 2,
        to: peer(2),
    }
}

fn leaving() -> PlaceState {
    PlaceState::Leaving {
        generation: 2,
        to: peer(2),
    }
}

fn reasons(volume: &Volume) -> Vec<&str> {
    let conditions = volume.conditions.iter();
    conditions.map(|one| one.reason.as_str()).collect()
}

#[test]
fn a_volume_is_where_it_lives_and_its_other_places_are_shown_beside_it() {
    for (places, on) in [
        (vec![with(1, live(1)), with(2, incoming())], "wwn-s"),
        (vec![with(1, leaving()), with(2, incoming())], "wwn-s"),
        (vec![with(1, leaving()), with(2, live(2))], "wwn-t"),
        (vec![with(1, moved()), with(2, live(2))], "wwn-t"),
        (vec![with(1, live(3)), with(2, live(2))], "wwn-s"),
    ] {
        let snapshot = shown(&mut inventory_of(places));
        let volume = only(&snapshot);
        assert_eq!((volume.drive.0.as_str(), volume.copies.len()), (on, 1));
        assert_eq!(volume.state, VolumeState::Ready);
        assert_eq!(reasons(volume), [""; 0]);
    }
}

#[test]
fn an_old_place_alone_is_in_doubt_until_the_other_drive_was_read() {
    let mut now = inventory_of(vec![with(1, moved()), with(2, live(2))]);
    shown(&mut now);
    // After a restart the target was not scanned yet.
    let target = now.drives.remove(&peer(2).drive).unwrap();
    now.unscanned.insert(
        peer(2).drive,
        crate::inventory::unscanned::Unscanned::default(),
    );
    assert_eq!(only(&shown(&mut now)).state, VolumeState::NotScanned);
    // Persisted state was lost, too: nothing is decided before the first scan is complete.
    now.unscanned.clear();
    now.ready = false;
    assert_eq!(only(&shown(&mut now)).state, VolumeState::NotScanned);
    now.ready = true;
    // It is missing.
    let snapshot = shown(&mut now);
    assert_eq!(only(&snapshot).state, VolumeState::Ambiguous);
    assert_eq!(reasons(only(&snapshot)), ["MoveInDoubt"]);
    let missing = &snapshot.drives[&peer(2).drive];
    let message = &only(&snapshot).conditions[0].message;
    assert!(message.contains(&missing.describe()), "{message}");
    now.drives.insert(peer(2).drive, target);
    assert_eq!(only(&shown(&mut now)).state, VolumeState::Ready);
}

#[test]
fn a_place_that_an_earlier_agent_saw_live_in_a_later_generation_counts_while_its_drive_is_not_read()
{
    // The operator preferred the source; then the source is pulled, and the target has the older generation.
    let mut now = inventory_of(vec![with(1, live(3)), with(2, live(2))]);
    shown(&mut now);
    now.drives.remove(&peer(1).drive);
    let snapshot = shown(&mut now);
    assert_eq!(only(&snapshot).state, VolumeState::Ambiguous);
    assert!(
        now.remembered.drives.contains_key(&peer(1).drive),
        "it is still remembered"
    );
}

#[test]
fn a_copy_that_is_not_complete_is_no_volume() {
    let mut now = inventory_of(vec![with(1, live(1)), with(2, incoming())]);
    shown(&mut now);
    now.drives.remove(&peer(1).drive);
    let snapshot = shown(&mut now);
    let volume = only(&snapshot);
    assert_eq!(
        (volume.state, volume.drive.0.as_str()),
        (VolumeState::Missing, "wwn-s")
    );
    assert_eq!(volume.copies.len(), 1);
    assert!(now.remembered.drives.contains_key(&peer(1).drive));
    // Read without it, it has vanished, although there is a copy.
    let mut empty = with(1, live(1));
    empty.contents.as_mut().unwrap().volumes.clear();
    now.drives.insert(empty.id.clone(), empty.into());
    let snapshot = shown(&mut now);
    assert_eq!(only(&snapshot).state, VolumeState::Missing);
}

#[test]
fn erasing_an_old_place_deletes_no_volume_and_deleting_the_volume_covers_all_places() {
    let erasing = RecordState::Erasing {
        erase_guid: Uuid::from_u128(7),
        done_bytes: 0,
    };
    let erased = |mut drive: Drive| {
        drive.contents.as_mut().unwrap().volumes[0].record.state = erasing.clone();
        drive
    };
    let mut old = inventory_of(vec![erased(with(1, moved())), with(2, live(2))]);
    let snapshot = shown(&mut old);
    assert_eq!(only(&snapshot).state, VolumeState::Ready);
    assert!(old.tombstones.volumes.is_empty());
    // While the drive on which it lives is unplugged, it is missing there, and does not vanish with its old place.
    let target = old.drives.remove(&peer(2).drive).unwrap();
    let missing = shown(&mut old);
    let volume = only(&missing);
    assert_eq!(
        (volume.state, &volume.drive),
        (VolumeState::Missing, &peer(2).drive)
    );
    old.drives.insert(peer(2).drive, target);
    assert_eq!(only(&shown(&mut old)).state, VolumeState::Ready);
    // The volume is deleted where it is live: a place on the other drive belongs to no volume from then on, whenever it
    // appears.
    let mut deleted = inventory_of(vec![with(1, moved()), erased(with(2, live(2)))]);
    shown(&mut deleted);
    assert!(deleted.tombstones.volumes.contains_key(&Uuid::from_u128(1)));
    deleted.drives.remove(&peer(2).drive);
    assert_eq!(only(&shown(&mut deleted)).state, VolumeState::Quarantined);
}

#[test]
fn a_commit_that_was_noted_and_is_seen_nowhere_is_in_doubt_unless_it_is_being_made() {
    let record = MoveRecord::sample(
        peer(1).drive,
        peer(2).drive,
        MoveProgress::Committing {
            note: CommitNote {
                generation: 2,
                from: peer(1),
                to: peer(2),
                unfenced: false,
            },
        },
    );
    let mut now = inventory_of(vec![with(1, leaving()), with(2, incoming())]);
    now.moves.insert(Uuid::from_u128(1), record);
    assert_eq!(reasons(only(&shown(&mut now))), ["MoveInDoubt"]);
    now.completing.insert(Uuid::from_u128(1));
    assert_eq!(reasons(only(&shown(&mut now))), [""; 0]);
}

#[test]
fn a_volume_deleted_at_a_place_that_is_leaving_stays_deleted_whatever_its_target_has() {
    let mut source = with(1, leaving());
    if let Some(contents) = &mut source.contents {
        contents.volumes[0].record.state = RecordState::Erasing {
            done_bytes: 0,
            erase_guid: Uuid::from_u128(5),
        };
    }
    let mut inventory = inventory_of(vec![source, with(2, incoming())]);
    assert_eq!(only(&shown(&mut inventory)).state, VolumeState::Erasing);
    // The space of the source is free.
    let source = samples::drive(
        "s",
        DriveState::Claimed,
        Some(samples::contents(1, 2, Vec::new(), 1 << 30)),
    );
    inventory.drives.insert(source.id.clone(), source.into());
    assert_eq!(only(&shown(&mut inventory)).state, VolumeState::Quarantined);
}
