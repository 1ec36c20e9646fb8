//! Tests of `wire`: volumes, snapshots and drives in an update.

use super::*;
use drivebay_model::{
    DriveState, Peer, PlaceState, RecordState,
    condition::{Condition, Reason},
    samples,
    snapshot::Moving,
};

#[test]
fn a_volume_that_moved_reports_its_generation_and_its_other_place() {
    let sender = Sender {
        node: "n".into(),
        instance: String::new(),
        classes: Vec::new(),
    };
    let contents = samples::contents(1, 1, Vec::new(), MIB);
    let drive = |name| samples::drive(name, DriveState::Claimed, Some(contents.clone()));
    let (old, new) = (drive("sda"), drive("sdb"));
    let peer = |drive: &Drive| Peer {
        label: uuid::Uuid::nil(),
        drive: drive.id.clone(),
    };
    let placed = samples::placed(1, RecordState::Block);
    let mut volume = samples::volume(&new, placed.clone());
    let sent = sender.volume(&volume);
    assert_eq!((sent.generation, sent.places.len()), (1, 0));
    volume.placed.record.place = PlaceState::Live {
        generation: 2,
        from: Some(peer(&old)),
    };
    for state in [
        PlaceState::Moved {
            generation: 2,
            to: peer(&new),
        },
        PlaceState::Incoming {
            generation: 3,
            from: peer(&new),
        },
    ] {
        let mut placed = placed.clone();
        placed.record.place = state;
        volume.copies.push(Place {
            drive: old.id.clone(),
            placed,
        });
    }
    let sent = sender.volume(&volume);
    let places = sent.places.iter();
    let places: Vec<_> = places
        .map(|one| (one.drive.as_str(), one.is.as_str(), one.generation))
        .collect();
    assert_eq!(sent.generation, 2);
    let drive = old.id.0.as_str();
    assert_eq!(places, [(drive, "moved", 2), (drive, "incoming", 3)]);
}

#[test]
fn a_snapshot_is_sent_with_its_group_and_when_it_expires() {
    let sender = Sender {
        node: "n".into(),
        instance: String::new(),
        classes: Vec::new(),
    };
    let mut one = samples::snapshot(1, 2);
    let sent = sender.snapshot(&one, None);
    assert_eq!((sent.expires_at, sent.group), (0, None));
    one.record.expires_at = Some(1_800_000_060);
    one.record.group = Some(SnapshotGroup {
        uuid: uuid::Uuid::from_u128(7),
        name: "g".into(),
        members: 3,
    });
    let sent = sender.snapshot(&one, None);
    let group = wire::SnapshotGroup {
        id: format!("{}@n", uuid::Uuid::from_u128(7)),
        name: "g".into(),
        members: 3,
    };
    assert_eq!((sent.expires_at, sent.group), (1_800_000_060, Some(group)));
}

#[test]
fn a_move_is_sent_as_a_condition_with_which_nothing_is_wrong() {
    let sender = Sender {
        node: "n".into(),
        instance: String::new(),
        classes: Vec::new(),
    };
    let drive = samples::drive("sda", DriveState::Claimed, None);
    let mut volume = samples::volume(&drive, samples::placed(1, RecordState::Block));
    volume.conditions = vec![Condition::new(Reason::VolumeFull, "full")];
    volume.moving = Some(Moving {
        reason: NormalReason::VolumeMoving,
        since: 7,
        message: "it moves".into(),
        waits_for: String::new(),
    });
    let kept = &mut volume.placed.record.parameters;
    kept.insert("createdAt".into(), "9".into());
    kept.insert("copyUnreadableBytes".into(), "8192".into());
    let mut sent = sender.volume(&volume).conditions;
    let loss = sent.pop().unwrap();
    assert_eq!((loss.reason.as_str(), loss.since), ("CopiedWithLoss", 9));
    assert!(!loss.abnormal && loss.message.contains("8 KiB"), "{loss:?}");
    assert!(sender.volume(&volume).parameters.is_empty());
    assert!(sent[0].abnormal && sent[0].reason == "VolumeFull");
    let moving = wire::Condition {
        abnormal: false,
        status: String::new(),
        reason: "VolumeMoving".into(),
        message: "it moves".into(),
        since: 7,
    };
    assert_eq!(sent[1..], [moving]);
}

#[test]
fn what_was_found_of_a_drive_is_sent_once_and_shown_among_its_notes() {
    let mut contents = samples::contents(1, 1, Vec::new(), MIB);
    contents.notes = vec!["the backup table was repaired".into()];
    let mut ill = samples::drive("sda", DriveState::Claimed, Some(contents));
    ill.trouble = Some("stuck".into());
    ill.health.findings = vec![Finding::new("IoErrors", "requests failed")];
    ill.health.acknowledged = Some(Acknowledged {
        by: "ann".into(),
        ..Acknowledged::default()
    });
    let sent = drive(&ill);
    assert_eq!(sent.notes, ["the backup table was repaired"]);
    assert_eq!(
        sent.all_notes(),
        [
            "the backup table was repaired",
            "stuck",
            "IoErrors: requests failed",
            "acknowledged by ann (it takes no new volumes)",
        ]
    );
}
