use drivebay_proto::agent::{
    Acknowledged, Condition, DriveHealth, FilesystemCheck, Finding, SmartReport, VolumeSnapshot,
};

use super::*;

const NOW: u64 = 10 * WEEK;

fn finding(code: &str, since: u64) -> Finding {
    Finding {
        code: code.into(),
        message: format!("{code} was read; replace the drive"),
        since,
        ..Finding::default()
    }
}

/// Time, kind and text of each event.
fn shown(events: &[Event]) -> Vec<(u64, EventKind, &str)> {
    let events = events.iter();
    events
        .map(|one| (one.at, one.what, one.text.as_str()))
        .collect()
}

#[test]
fn a_drive_has_events_for_findings_conditions_verdict_cordon_and_acknowledgement() {
    let drive = agent::Drive {
        id: "d".into(),
        verdict: "BAD".into(),
        cordon: Some(Cordon {
            at: 4,
            by: "ann".into(),
            reason: "noisy".into(),
        }),
        health: Some(DriveHealth {
            findings: vec![finding("PendingSectors", 1)],
            conditions: vec![finding("Overheating", 2)],
            acknowledged: Some(Acknowledged {
                at: 5,
                by: "bob".into(),
                ..Acknowledged::default()
            }),
            smart: Some(SmartReport {
                verdict_since: 3,
                ..SmartReport::default()
            }),
            ..DriveHealth::default()
        }),
        ..agent::Drive::default()
    };
    let events = of_drive("n1", &drive);
    assert_eq!(
        shown(&events),
        [
            (
                1,
                EventKind::Finding,
                "PendingSectors: PendingSectors was read; replace the drive"
            ),
            (
                2,
                EventKind::Condition,
                "Overheating: Overheating was read; replace the drive"
            ),
            (
                3,
                EventKind::Verdict,
                "the verdict by SMART data changed; the drive is now BAD"
            ),
            (
                4,
                EventKind::Cordoned,
                "cordoned by ann: noisy (it takes no new volumes)"
            ),
            (
                5,
                EventKind::Acknowledged,
                "acknowledged by bob (it takes no new volumes)"
            ),
        ]
    );
    assert!(
        events
            .iter()
            .all(|one| one.node == "n1" && one.drive.as_deref() == Some("d"))
    );
}

#[test]
fn a_volume_has_events_for_creation_conditions_snapshots_and_checks() {
    let volume = agent::Volume {
        id: "v@n1".into(),
        name: "pvc-1".into(),
        drive: "d".into(),
        created_at: 1,
        conditions: vec![Condition {
            reason: "VolumeFull".into(),
            message: "it is full; expand it".into(),
            since: 2,
            ..Condition::default()
        }],
        snapshots: vec![VolumeSnapshot {
            name: "nightly".into(),
            created_at: 3,
            ..VolumeSnapshot::default()
        }],
        checks: vec![FilesystemCheck {
            at: 4,
            outcome: "clean".into(),
            text: "clean".into(),
            ..FilesystemCheck::default()
        }],
        ..agent::Volume::default()
    };
    let events = of_volume("n1", &volume);
    assert_eq!(
        shown(&events),
        [
            (1, EventKind::VolumeCreated, "volume pvc-1 created"),
            (
                2,
                EventKind::VolumeCondition,
                "VolumeFull: it is full; expand it"
            ),
            (
                3,
                EventKind::SnapshotCreated,
                "snapshot nightly of volume pvc-1 created"
            ),
            (4, EventKind::Checked, "filesystem of volume pvc-1: clean"),
        ]
    );
    assert!(
        events.iter().all(|one| {
            (one.volume.as_deref(), one.drive.as_deref()) == (Some("v@n1"), Some("d"))
        })
    );
}

#[test]
fn a_node_has_events_for_findings_and_sessions_without_the_identity_of_its_machine() {
    let past = |at: u64, outcome: ConnectionOutcome, text: &str, times: u64| Past {
        at,
        outcome,
        address: "10.0.0.1:1".into(),
        text: text.into(),
        times,
    };
    let sessions = [
        past(
            2,
            ConnectionOutcome::Connected,
            "version 0.1.0, instance i, machine 0123",
            1,
        ),
        past(3, ConnectionOutcome::Ended, "the connection was closed", 1),
        past(4, ConnectionOutcome::Refused, "another node's name", 12),
    ];
    let events = of_node("n1", &[finding("StateNotSaved", 1)], &sessions);
    assert_eq!(
        shown(&events),
        [
            (
                1,
                EventKind::Finding,
                "StateNotSaved: StateNotSaved was read; replace the drive"
            ),
            (2, EventKind::Connected, "version 0.1.0"),
            (3, EventKind::Disconnected, "the connection was closed"),
            (4, EventKind::Refused, "another node's name (12 times)"),
        ]
    );
    assert!(events.iter().all(|one| one.drive.is_none()));
}

#[test]
fn events_are_the_newest_thousand_of_the_last_seven_days_newest_first() {
    let at = |at: u64| event("n1", at, EventKind::Finding, String::new());
    let times = |newest: Newest| -> (Vec<u64>, bool) {
        let all = newest.finish();
        (all.events.iter().map(|one| one.at).collect(), all.more)
    };
    let mut newest = Newest::new(NOW);
    // Without a time; too old; at the bounds; of a clock that is ahead.
    newest.add([0, NOW - WEEK - 1, NOW - WEEK, NOW, NOW + 1].map(at));
    assert_eq!(times(newest), (vec![NOW, NOW - WEEK], false));

    let mut newest = Newest::new(NOW);
    newest.add((0..EVENTS as u64).map(|age| at(NOW - age)));
    let (all, more) = times(newest);
    assert_eq!((all.len(), more), (EVENTS, false));

    let mut newest = Newest::new(NOW);
    for age in (0..20 * EVENTS as u64).rev() {
        newest.add([at(NOW - age)]);
        assert!(newest.events.len() <= 4 * EVENTS);
    }
    let (all, more) = times(newest);
    let expected: Vec<u64> = (0..EVENTS as u64).map(|age| NOW - age).collect();
    assert_eq!((all, more), (expected, true));
}
