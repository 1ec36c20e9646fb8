//! Exact output of `health`, since people act on it and scripts parse it.

use drivebay_proto::agent::{Acknowledged, DriveHealth, Overridden, Reject};

use super::*;

const NOW: u64 = 1_000_000;

fn finding(code: &str, message: &str, since: u64) -> Finding {
    Finding {
        code: code.into(),
        message: message.into(),
        since,
        acknowledged: false,
    }
}

fn drive(id: &str, state: &str, verdict: &str) -> Drive {
    Drive {
        id: id.into(),
        kernel_name: id.replace("wwn-", "sd"),
        model: "ST4000".into(),
        state: state.into(),
        verdict: verdict.into(),
        health: Some(DriveHealth::default()),
        ..Drive::default()
    }
}

fn volume(name: &str, drive: &str, conditions: &[(&str, &str)]) -> Volume {
    Volume {
        id: format!("{name}-id@n1"),
        name: name.into(),
        drive: drive.into(),
        conditions: conditions
            .iter()
            .map(|(status, reason)| Condition {
                abnormal: true,
                status: (*status).into(),
                reason: (*reason).into(),
                message: format!("what to do about {reason}"),
                since: NOW - 3600,
            })
            .collect(),
        ..Volume::default()
    }
}

fn health(drives: &[Drive], volumes: &[Volume]) -> Health {
    let mut health = Health::default();
    health.add("n1", drives, &volumes.iter().collect::<Vec<_>>());
    health.volumes = 7;
    health.done()
}

fn text(health: &Health) -> String {
    health.text("n1", false, false, NOW, Terminal::NONE)
}

#[test]
fn a_host_where_nothing_is_wrong_is_reported_in_one_line() {
    let foreign = drive("wwn-x", "rejected", "UNKNOWN");
    let well = health(&[drive("wwn-a", "claimed", "GOOD"), foreign], &[]);
    assert!(well.well);
    assert_eq!(
        text(&well),
        "n1 is well: 1 drive and 7 volumes, nothing is wrong\n"
    );
}

#[test]
fn what_is_wrong_is_reported_worst_first_and_a_drives_volumes_with_the_drive() {
    let mut suspect = drive("wwn-a", "claimed", "SUSPECT");
    suspect.health.as_mut().unwrap().findings = vec![finding(
        "PendingSectors",
        "sectors cannot be read; save the data",
        NOW - 7200,
    )];
    let mut bad = drive("wwn-b", "claimed", "BAD");
    bad.health.as_mut().unwrap().findings = vec![finding("MediumReadOnly", "replace it", 0)];
    let mut hot = drive("wwn-c", "available", "GOOD");
    hot.health.as_mut().unwrap().conditions = vec![
        finding("Overheating", "check fans", 0),
        finding("Wear", "its replacement will be due", 0),
    ];
    let gone = Drive {
        kernel_name: String::new(),
        ..drive("wwn-d", "missing", "UNKNOWN")
    };
    let mut damaged = drive("wwn-e", "rejected", "UNKNOWN");
    damaged.rejects = vec![Reject {
        code: "OursDamaged".into(),
        detail: "its label does not read".into(),
    }];
    let mut stuck = drive("wwn-f", "claimed", "GOOD");
    stuck.trouble = "stuck in open".into();
    let mut calmed = drive("wwn-g", "claimed", "GOOD");
    calmed.health.as_mut().unwrap().overridden = Some(Overridden {
        reason: "old cable".into(),
        until: 0,
        otherwise: "SUSPECT".into(),
    });
    let mut acknowledged = drive("wwn-h", "claimed", "BAD");
    let its_health = acknowledged.health.as_mut().unwrap();
    its_health.acknowledged = Some(Acknowledged {
        by: "ann".into(),
        ..Acknowledged::default()
    });
    its_health.findings = vec![Finding {
        acknowledged: true,
        ..finding("GrownDefectsMany", "replace it", 0)
    }];
    let many: Vec<Volume> = (0..7)
        .map(|i| {
            volume(
                &format!("pvc-{i}"),
                "wwn-a",
                &[("DEGRADED", "DriveSuspect")],
            )
        })
        .collect();
    let mut volumes = vec![
        volume(
            "lost",
            "wwn-b",
            &[
                ("DEGRADED", "DriveFailing"),
                ("DATA_LOSS", "FilesystemCorrupted"),
            ],
        ),
        volume("gone", "wwn-d", &[("INACCESSIBLE", "DriveMissing")]),
        volume("ro\u{1b}[2J", "wwn-c", &[("DEGRADED", "ReadOnly")]),
    ];
    volumes.extend(many);
    let report = health(
        &[
            suspect,
            bad,
            hot,
            gone,
            damaged,
            stuck,
            calmed,
            acknowledged,
        ],
        &volumes,
    );
    assert!(!report.well);
    assert_eq!(
        text(&report),
        "\
n1: 8 things are wrong

DATA_LOSS  volume lost
    DriveFailing (for 1h): what to do about DriveFailing
    FilesystemCorrupted (for 1h): what to do about FilesystemCorrupted
MISSING  drive wwn-d (ST4000)
    DriveMissing: it is not found on this node; plug it in again. If it is gone for good, so are the volumes on it: delete them
    volumes on it: gone
NO_ANSWER  drive wwn-f (sdf, ST4000)
    DriveStuck: it does not answer: stuck in open; see the kernel log, check cable, slot and power
DAMAGED  drive wwn-e (sde, ST4000)
    OursDamaged: its label does not read
BAD  drive wwn-b (sdb, ST4000)
    MediumReadOnly: replace it
DEGRADED  volume ro\\u{1b}[2J
    ReadOnly (for 1h): what to do about ReadOnly
SUSPECT  drive wwn-a (sda, ST4000)
    PendingSectors (for 2h): sectors cannot be read; save the data
    volumes on it: pvc-0, pvc-1, pvc-2, pvc-3, pvc-4 and 2 more
WARNING  drive wwn-c (sdc, ST4000)
    Overheating: check fans

8 drives: 3 GOOD, 1 SUSPECT, 2 BAD, 1 missing, 1 not used

Notes:
    drive wwn-c: its replacement will be due
    drive wwn-g is GOOD: overridden by the operator: old cable (the evidence alone says SUSPECT)
    drive wwn-h is BAD, acknowledged by ann: GrownDefectsMany
"
    );
    let wide = report.text("n1", true, true, NOW, Terminal::NONE);
    assert!(
        wide.contains("DATA_LOSS  n1: volume lost-id@n1 (lost)\n"),
        "{wide}"
    );
    assert!(wide.contains("pvc-6\n") && !wide.contains("more"), "{wide}");
}

#[test]
fn a_drive_worn_out_is_a_warning_and_one_that_wears_is_a_note() {
    let mut worn = drive("wwn-a", "claimed", "GOOD");
    let state = worn.health.as_mut().unwrap();
    state.conditions = vec![finding("Wear", "replace it", 0)];
    assert!(health(std::slice::from_ref(&worn), &[]).well);
    worn.health.as_mut().unwrap().worn_out = true;
    let report = health(&[worn], &[]);
    assert_eq!(report.problems[0].severity, Severity::Warning);
    assert!(report.notes.is_empty());
}

#[test]
fn values_that_cannot_be_true_are_a_note_also_of_a_drive_that_is_worn_out() {
    let mut odd = drive("wwn-a", "claimed", "GOOD");
    let state = odd.health.as_mut().unwrap();
    state.conditions = vec![finding("ImplausibleValues", "they are not used", 0)];
    let report = health(std::slice::from_ref(&odd), &[]);
    assert!(report.well);
    assert_eq!(report.notes, ["drive wwn-a: they are not used"]);
    odd.health.as_mut().unwrap().worn_out = true;
    assert!(health(&[odd], &[]).well);
}

#[test]
fn a_volume_of_an_unreported_drive_is_reported_by_itself() {
    let report = health(
        &[],
        &[volume("v", "wwn-z", &[("INACCESSIBLE", "DriveMissing")])],
    );
    assert_eq!(
        (report.problems[0].kind, report.problems[0].severity),
        (Kind::Volume, Severity::Inaccessible)
    );
}

#[test]
fn drives_that_were_not_polled_are_counted_and_keep_a_host_from_being_well() {
    let polled = |id, verdict, poll: &str| {
        let mut drive = drive(id, "claimed", verdict);
        drive.health.as_mut().unwrap().poll = poll.into();
        drive
    };
    let drives = [
        polled("wwn-a", "GOOD", "last-known"),
        polled("wwn-b", "UNKNOWN", "awaited"),
        polled("wwn-c", "GOOD", "polled"),
        polled("wwn-d", "GOOD", ""),
    ];
    let report = health(&drives, &[]);
    assert!(!report.well && report.awaits_polls());
    assert_eq!(
        text(&report),
        "n1: nothing is known to be wrong; 2 of 4 drives not polled since the agent started; ask again in a minute\n"
    );
    let bad = [polled("wwn-a", "BAD", "last-known")];
    let report = health(&bad, &[]);
    assert!(!report.well && !report.awaits_polls());
    assert!(
        text(&report).contains("1 of 1 drive not polled"),
        "{}",
        text(&report)
    );
    assert!(health(&drives[2..], &[]).well);
}
