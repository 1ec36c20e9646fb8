//! Conditions of a volume while it moves.

use std::time::Duration;

use uuid::Uuid;

use super::{
    super::{assemble, present},
    *,
};
use drivebay_model::{
    Bay, CommitNote, Cordon, Peer, PlaceState, RecordState, Snapshot, Verdict, samples,
};

const ID: Uuid = Uuid::from_u128(1);

fn drive(name: &str, label: u128, place: Option<PlaceState>) -> Drive {
    let placed = place.map(|place| {
        let mut placed = samples::placed(1, RecordState::Block);
        placed.record.place = place;
        placed
    });
    let contents = samples::contents(label, 1, placed.into_iter().collect(), 1 << 30);
    let mut drive = samples::drive(name, drivebay_model::DriveState::Claimed, Some(contents));
    drive.facts.serial = format!("serial-{name}");
    drive.facts.bay = Bay {
        slot: label.to_string(),
        ..Bay::default()
    };
    drive
}

fn live(generation: u64) -> PlaceState {
    PlaceState::Live {
        generation,
        from: None,
    }
}

fn request() -> MoveRecord {
    MoveRecord {
        requested_at: 700,
        ..MoveRecord::sample(
            samples::facts("sda").id,
            samples::facts("sdb").id,
            MoveProgress::Requested,
        )
    }
}

/// A volume on sda that is to move to sdb.
fn inventory_with_move() -> InventoryState {
    let drives = [drive("sda", 1, Some(live(1))), drive("sdb", 2, None)];
    InventoryState {
        drives: drives
            .into_iter()
            .map(|drive| (drive.id.clone(), drive.into()))
            .collect(),
        moves: [(ID, request())].into(),
        ready: true,
        ..InventoryState::default()
    }
}

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
    assemble::assemble(inventory, drives, &merged, &[])
}

fn volume(inventory: &mut InventoryState) -> Volume {
    shown(inventory).volumes.remove(&ID).unwrap()
}

fn waits_for(inventory: &mut InventoryState) -> String {
    volume(inventory).moving.unwrap().waits_for
}

#[test]
fn a_moving_volume_reports_its_source_and_target_drive_and_has_nothing_wrong() {
    let volume = volume(&mut inventory_with_move());
    assert_eq!(volume.conditions, []);
    let moving = volume.moving.unwrap();
    assert_eq!(
        (moving.reason, moving.since),
        (NormalReason::VolumeMoving, 700)
    );
    let model = samples::facts("sda").model;
    assert_eq!(
        moving.message,
        format!(
            "it moves from drive sda, wwn-sda ({model}, serial serial-sda, slot 1) to drive sdb, wwn-sdb ({model}, serial serial-sdb, slot 2): waiting: its turn"
        )
    );
}

#[test]
fn its_state_is_that_of_the_last_attempt() {
    let mut now = inventory_with_move();
    let mut state = |attempt: Attempt| {
        now.attempts.insert(ID, attempt);
        let moving = volume(&mut now).moving.unwrap();
        let (_, state) = moving.message.rsplit_once("): ").unwrap();
        (moving.reason, state.to_owned(), moving.waits_for)
    };
    let moving = NormalReason::VolumeMoving;
    assert_eq!(
        state(Attempt::Copying),
        (moving, "copying".into(), String::new())
    );
    assert_eq!(
        state(Attempt::Failed("x".into())),
        (moving, "waiting: x".into(), "x".into())
    );
    assert_eq!(
        state(Attempt::Unreadable("y".into())),
        (
            NormalReason::MoveUnreadable,
            "stands still: y".into(),
            "y".into()
        )
    );
    now.completing.insert(ID);
    assert!(
        volume(&mut now)
            .moving
            .unwrap()
            .message
            .ends_with("completing")
    );
}

#[test]
fn a_move_reports_the_reason_for_waiting() {
    let (from, to) = (samples::facts("sda").id, samples::facts("sdb").id);
    let mut cordoned = inventory_with_move();
    let target = cordoned.drives.get_mut(&to).unwrap();
    target.contents.as_mut().unwrap().label.cordon = Some(Cordon {
        at: 1,
        by: "ann".into(),
        reason: String::new(),
    });
    assert_eq!(
        waits_for(&mut cordoned),
        "drive wwn-sdb takes no copy: it is cordoned by ann"
    );
    for (missing, waits) in [
        (&from, "drive wwn-sda cannot be read now"),
        (
            &to,
            "drive wwn-sdb takes no copy: it does not answer: not found on this node",
        ),
    ] {
        let mut now = inventory_with_move();
        shown(&mut now);
        now.drives.remove(missing);
        assert_eq!(waits_for(&mut now), waits);
    }
    // A failed attempt does not matter while the move cannot continue for another reason.
    let mut used = volume(&mut inventory_with_move());
    used.in_use = true;
    let drives = shown(&mut inventory_with_move()).drives;
    let failed = Attempt::Failed("x".into());
    let waits = super::waits_for(&drives, &used, &request(), Some(&failed));
    assert_eq!(waits, "in use: waits for the volume to be unstaged");
    let mut suspect = shown(&mut inventory_with_move()).drives;
    suspect.get_mut(&to).unwrap().health.verdict = Verdict::Bad;
    used.in_use = false;
    assert_eq!(
        super::waits_for(&suspect, &used, &request(), None),
        "drive wwn-sdb takes no copy: its verdict is BAD"
    );
}

#[test]
fn it_ends_with_the_move_and_a_move_in_doubt_is_another_condition() {
    let peer = |name: &str, label: u128| Peer {
        label: Uuid::from_u128(label),
        drive: samples::facts(name).id,
    };
    let note = CommitNote {
        generation: 2,
        from: peer("sda", 1),
        to: peer("sdb", 2),
        unfenced: false,
    };
    let mut now = inventory_with_move();
    let change =
        |now: &mut InventoryState, progress| now.moves.get_mut(&ID).unwrap().progress = progress;
    change(&mut now, MoveProgress::Committing { note: note.clone() });
    let in_doubt = volume(&mut now);
    assert_eq!((in_doubt.moving, in_doubt.conditions.len()), (None, 1));
    // It is completed.
    let drives = [
        drive(
            "sda",
            1,
            Some(PlaceState::Moved {
                generation: 2,
                to: peer("sdb", 2),
            }),
        ),
        drive("sdb", 2, Some(live(2))),
    ];
    now.drives = drives
        .into_iter()
        .map(|drive| (drive.id.clone(), drive.into()))
        .collect();
    for progress in [
        MoveProgress::Committing { note: note.clone() },
        MoveProgress::Moved {
            note: Some(note.clone()),
            kept_seconds: 0,
            used: false,
            now: false,
        },
        // Of another place than the one that an operator has preferred since.
        MoveProgress::Requested,
    ] {
        change(&mut now, progress);
        assert_eq!(volume(&mut now).moving, None);
    }
    // It was deleted.
    let mut deleted = inventory_with_move();
    let source = deleted.drives.get_mut(&samples::facts("sda").id).unwrap();
    source.contents.as_mut().unwrap().volumes[0].record.state = RecordState::Erasing {
        erase_guid: Uuid::from_u128(7),
        done_bytes: 0,
    };
    assert_eq!(volume(&mut deleted).moving, None);
}
