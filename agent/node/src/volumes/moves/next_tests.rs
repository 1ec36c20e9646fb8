//! The step for each state that two drives, the volume and the note can be in.

use super::*;
use crate::state::moves::MoveProgress;
use drivebay_model::{CommitNote, DriveState, Peer, Placed, RecordState, samples, snapshot::Place};

fn id(name: &str) -> DriveId {
    samples::facts(name).id
}

fn peer(name: &str) -> Peer {
    Peer {
        label: Uuid::from_u128(if name == "s" { 1 } else { 2 }),
        drive: id(name),
    }
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
        from: peer("s"),
    }
}

fn moved() -> PlaceState {
    PlaceState::Moved {
        generation: 2,
        to: peer("t"),
    }
}

fn leaving() -> PlaceState {
    PlaceState::Leaving {
        generation: 2,
        to: peer("t"),
    }
}

fn placed(place: PlaceState) -> Placed {
    let mut placed = samples::placed(1, RecordState::Block);
    placed.record.place = place;
    placed
}

/// Drives `s` and `t` are here; the volume is served on the first and has the others as copies.
fn snapshot(places: &[(&str, PlaceState)]) -> Snapshot {
    let mut snapshot = Snapshot {
        ready: true,
        ..Snapshot::default()
    };
    for (label, name) in [(1, "s"), (2, "t")] {
        let on_it = places.iter().filter(|(on, _)| *on == name);
        let volumes = on_it.map(|(_, place)| placed(place.clone())).collect();
        let contents = samples::contents(label, 1, volumes, 1 << 30);
        let drive = samples::drive(name, DriveState::Claimed, Some(contents));
        snapshot.drives.insert(drive.id.clone(), drive);
    }
    let mut places = places.iter();
    if let Some((on, place)) = places.next() {
        let mut volume = samples::volume(&snapshot.drives[&id(on)], placed(place.clone()));
        volume.copies = places
            .map(|(on, place)| Place {
                drive: id(on),
                placed: placed(place.clone()),
            })
            .collect();
        snapshot.volumes.insert(volume.uuid, volume);
    }
    snapshot
}

fn record(progress: MoveProgress) -> MoveRecord {
    MoveRecord::sample(id("s"), id("t"), progress)
}

fn note() -> CommitNote {
    CommitNote {
        generation: 2,
        from: peer("s"),
        to: peer("t"),
        unfenced: false,
    }
}

fn kept(kept_seconds: u64, used: bool, now: bool, note: Option<CommitNote>) -> MoveProgress {
    MoveProgress::Moved {
        note,
        kept_seconds,
        used,
        now,
    }
}

fn volume() -> Uuid {
    Uuid::from_u128(1)
}

fn one(snapshot: &Snapshot, progress: Option<MoveProgress>) -> Option<Action> {
    let moves = progress.map(|progress| (volume(), record(progress)));
    let all = actions(
        snapshot,
        &moves.into_iter().collect(),
        &BTreeSet::new(),
        100,
    );
    assert!(all.len() <= 1, "{all:?}");
    all.into_iter().next()
}

#[test]
fn each_state_of_a_move_has_its_next_step() {
    let (uuid, s, t) = (volume(), id("s"), id("t"));
    let requested = || Some(MoveProgress::Requested);
    let committing = || Some(MoveProgress::Committing { note: note() });
    let drop_copy = Action::DropCopy {
        uuid,
        drive: t.clone(),
        place: incoming(),
    };
    let drop_old = Action::DropOld {
        uuid,
        drive: s.clone(),
        place: moved(),
    };
    let fence = Action::Fence {
        uuid,
        drive: s.clone(),
    };
    type Case<'a> = (
        Vec<(&'a str, PlaceState)>,
        Option<MoveProgress>,
        Option<Action>,
    );
    let cases: Vec<Case<'_>> = vec![
        // Asked for, and begun.
        (vec![], None, None),
        (vec![("s", live(1))], None, None),
        (
            vec![("s", live(1))],
            requested(),
            Some(Action::Copy { uuid }),
        ),
    ];
    for (places, progress, expected) in cases {
        assert_eq!(one(&snapshot(&places), progress), expected, "{places:?}");
    }
    let both = snapshot(&[("s", live(1)), ("t", incoming())]);
    assert_eq!(one(&both, requested()), Some(Action::Copy { uuid }));
    assert_eq!(one(&both, None), Some(drop_copy.clone()), "cancelled");
    let mut grown = both.clone();
    let served = grown.volumes.get_mut(&uuid).unwrap();
    served.placed.record.extent.len *= 2;
    assert_eq!(
        one(&grown, requested()),
        Some(drop_copy),
        "it has grown since"
    );
    let elsewhere = snapshot(&[("t", live(3))]);
    assert_eq!(
        one(&elsewhere, requested()),
        Some(Action::Forget { uuid }),
        "it was preferred there since"
    );
    // Served, after an interruption.
    let back = snapshot(&[("s", leaving()), ("t", incoming())]);
    let revert = Action::Revert {
        uuid,
        drive: s.clone(),
    };
    assert_eq!(one(&back, requested()), Some(revert));
    // Committed.
    let committed = snapshot(&[("t", live(2)), ("s", leaving())]);
    assert_eq!(
        one(&committed, committing()),
        Some(Action::Confirm { uuid })
    );
    let confirmed = || Some(kept(0, false, false, Some(note())));
    assert_eq!(one(&committed, confirmed()), Some(fence.clone()));
    let unfenced = snapshot(&[("t", live(2)), ("s", live(1))]);
    assert_eq!(one(&unfenced, confirmed()), Some(fence));
    // Kept, and then not.
    let old = snapshot(&[("t", live(2)), ("s", moved())]);
    assert_eq!(one(&old, Some(kept(99, true, false, None))), None);
    assert_eq!(
        one(&old, Some(kept(1000, false, false, None))),
        None,
        "never used since"
    );
    assert_eq!(
        one(&old, Some(kept(100, true, false, None))),
        Some(drop_old.clone())
    );
    assert_eq!(one(&old, Some(kept(0, false, true, None))), Some(drop_old));
    let keep = Action::KeepOld { uuid, drive: s };
    assert_eq!(one(&old, None), Some(keep), "persisted state was lost");
    // Over.
    let over = snapshot(&[("t", live(2))]);
    assert_eq!(
        one(&over, Some(kept(0, false, false, None))),
        Some(Action::Forget { uuid })
    );
    let unfenced = Some(kept(0, false, false, Some(note())));
    assert_eq!(
        one(&over, unfenced.clone()),
        Some(Action::Forget { uuid }),
        "the source was read without it"
    );
    let mut away = over;
    away.drives.remove(&id("s"));
    assert_eq!(one(&away, unfenced), None, "an unfenced source may return");
}

#[test]
fn a_volume_in_use_in_doubt_or_deleted_is_left_alone() {
    let requested = || Some(MoveProgress::Requested);
    let mut used = snapshot(&[("s", live(1))]);
    used.volumes.get_mut(&volume()).unwrap().in_use = true;
    assert_eq!(one(&used, requested()), None);
    for state in [
        VolumeState::Ambiguous,
        VolumeState::Erasing,
        VolumeState::Quarantined,
        VolumeState::Missing,
        VolumeState::NotScanned,
    ] {
        let mut snapshot = snapshot(&[("s", leaving()), ("t", incoming())]);
        snapshot.volumes.get_mut(&volume()).unwrap().state = state;
        assert_eq!(one(&snapshot, requested()), None, "{state}");
    }
    let mut early = snapshot(&[("s", live(1)), ("t", incoming())]);
    early.ready = false;
    assert_eq!(one(&early, None), None, "not looked at yet is not absent");
}

#[test]
fn nothing_is_copied_to_a_drive_that_has_become_suspect_or_is_cordoned_nor_twice_at_once() {
    let requested = || Some(MoveProgress::Requested);
    let mut cordoned = snapshot(&[("s", live(1))]);
    let target = cordoned.drives.get_mut(&id("t")).unwrap();
    target.contents.as_mut().unwrap().label.cordon = Some(drivebay_model::Cordon {
        at: 0,
        by: "ann".into(),
        reason: String::new(),
    });
    assert_eq!(one(&cordoned, requested()), None);
    // A second volume waits while the first is copied between the same drives.
    let mut two = snapshot(&[("s", live(1))]);
    let mut second = two.volumes[&volume()].clone();
    second.uuid = Uuid::from_u128(9);
    second.placed.record.uuid = second.uuid;
    two.volumes.insert(second.uuid, second);
    let moves: BTreeMap<Uuid, MoveRecord> = two
        .volumes
        .keys()
        .map(|uuid| (*uuid, record(MoveProgress::Requested)))
        .collect();
    let first = actions(&two, &moves, &BTreeSet::new(), 100);
    assert_eq!(first, [Action::Copy { uuid: volume() }]);
    let busy = BTreeSet::from([volume()]);
    assert_eq!(actions(&two, &moves, &busy, 100), []);
}
