//! Properties of a scrape, on constructed views.

use std::collections::BTreeSet;

use drivebay_common::metrics;

use super::*;
use drivebay_model::{
    CheckOutcome, CreatedFor, Drive, DriveHealth, DriveState, Extent, Finding, Inconclusive,
    LastCheck, RecordState, Reject, RejectCode, Verdict, Volume, VolumeState,
    condition::{Condition, NormalReason, Reason},
    samples,
    snapshot::{Erasing, Moving},
    unreadable::{Holds, UnreadableRange},
};
use drivebay_node::volumes::moves::MovePhase;
use drivebay_smart::{
    Failure, FailureReason, LatestPolls, Outcome, Reading, facts,
    slow::{Peers, Side, Speed},
};
use drivebay_worker::Slot;

/// The most series that a node can have: every value of every drive.
fn full(drives: usize, volumes: usize) -> View {
    let mut snapshot = Snapshot {
        revision: 7,
        ready: true,
        ..Snapshot::default()
    };
    let mut view = View {
        now: 1_000_000,
        scanned_at: Some(999_990),
        ..View::default()
    };
    for number in 0..drives {
        let contents = samples::contents(number as u128, 1, Vec::new(), 1 << 30);
        let mut drive = samples::drive(&format!("d{number}"), DriveState::Claimed, Some(contents));
        drive.health = suspect();
        for volume in 0..volumes {
            let uuid = (number * volumes + volume) as u128 + 1;
            let made = volume_of(&drive, uuid);
            view.samples
                .insert(made.uuid, (usage(), Duration::from_secs(40)));
            view.moves.push(move_of(&made, MovePhase::Copying, 1 << 20));
            snapshot.volumes.insert(made.uuid, made);
        }
        view.polls.insert(drive.id.clone(), poll());
        view.speeds.insert(drive.id.clone(), speed());
        for slot in Slot::ALL {
            view.slots.push(SlotStatus {
                key: (&drive.id, slot).into(),
                pid: Some(1),
                step: Some("smart: smartctl".into()),
                age: Duration::from_secs(3),
                stuck: number == 0,
                waiting: 2,
            });
        }
        snapshot.drives.insert(drive.id.clone(), drive);
    }
    view.snapshot = Arc::new(snapshot);
    view
}

fn suspect() -> DriveHealth {
    let finding = |code: &str| Finding::new(code, "");
    DriveHealth {
        verdict: Verdict::Suspect,
        findings: vec![finding("PendingSectors")],
        conditions: vec![finding("Wear")],
        ..DriveHealth::default()
    }
}

fn volume_of(drive: &Drive, uuid: u128) -> Volume {
    let placed = samples::placed(uuid, RecordState::New);
    Volume {
        in_use: true,
        conditions: vec![Condition::new(
            Reason::DriveSuspect,
            "may hold \"quotes\"\nand lines",
        )],
        erasing: Some(Erasing {
            done_bytes: 1 << 20,
            eta_seconds: 1,
        }),
        unreadable: vec![UnreadableRange {
            extent: Extent {
                start: 1 << 20,
                len: 1536,
            },
            volume: Some(placed.record.uuid),
            offset: 0,
            holds: Holds::Files {
                files: vec!["/secret".into()],
                more: 2,
            },
        }],
        checks: vec![
            checked(900_000, CheckOutcome::Clean),
            checked(
                990_000,
                CheckOutcome::inconclusive(Inconclusive::DirtyLog, "why"),
            ),
        ],
        ..samples::volume(drive, placed)
    }
}

fn move_of(volume: &Volume, phase: MovePhase, done_bytes: u64) -> MoveStatus {
    MoveStatus {
        uuid: volume.uuid,
        name: volume.placed.record.name.clone(),
        from: volume.drive.clone(),
        to: DriveId("wwn-target".into()),
        phase,
        done_bytes,
        total_bytes: 3 << 20,
        bytes_per_second: 1,
        eta_seconds: 1,
        waits_for: "why".into(),
        by: "ann".into(),
        requested_at: 990_000,
        old_place_seconds: 0,
        unfenced: false,
    }
}

fn checked(at: u64, outcome: CheckOutcome) -> LastCheck {
    LastCheck {
        at,
        method: None,
        tool: String::new(),
        outcome,
        took_ms: 1,
    }
}

fn usage() -> Usage {
    Usage {
        total_bytes: 1000,
        available_bytes: 600,
        used_bytes: 300,
        inodes: Some((100, 90, 10)),
        read_only: false,
        unreadable: None,
    }
}

fn poll() -> LatestPoll {
    let some = Some(1);
    LatestPoll {
        reading: Some(Reading {
            protocol: Some(facts::Protocol::Ata),
            passed: Some(true),
            rotations_per_minute: Some(7200),
            temperature: Some(34),
            power_on_seconds: some,
            power_cycles: some,
            wear_percent: Some(7),
            spare_percent: some,
            spare_threshold_percent: some,
            critical_warning: Some(0),
            media_errors: some,
            read_bytes: some,
            written_bytes: some,
            reallocated: some,
            pending: some,
            uncorrectable: some,
            grown_defects: some,
            interface_errors: some,
            unsafe_shutdowns: some,
            warning_temperature_seconds: some,
            critical_temperature_seconds: some,
            capacitor_passed: Some(true),
            phy_errors: some,
            writes_per_day: Some(1129),
            rated_writes_per_day: Some(1000),
            reallocated_per_month: Some(250),
            error_log_entries: some,
            self_tests: Some((3, 1)),
            ..Reading::default()
        }),
        polled_at: Some(999_000),
        asleep: false,
        failures: BTreeMap::from([(FailureReason::Timeout, 2)]),
    }
}

fn speed() -> Speed {
    let side = Side {
        bytes_per_second: 4096.0,
        latency_ms: Some(3.0),
        expected_ms: Some(1.5),
        ..Side::default()
    };
    Speed {
        at: 999_990,
        peers: Peers::Model,
        peer_count: 3,
        read: side.clone(),
        write: side,
    }
}

fn scrape(view: &View) -> (usize, String) {
    let mut families = Families::default();
    view.put(&mut families);
    (families.len(), families.encode().unwrap())
}

/// Returns the series in a text: names with labels.
fn series(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect()
}

#[test]
fn a_node_of_24_drives_with_50_volumes_each_has_a_bounded_number_of_series() {
    let (drives, volumes) = (24, 50);
    let (none, _) = scrape(&full(0, 0));
    let (of_drives, _) = scrape(&full(drives, 0));
    let (all, text) = scrape(&full(drives, volumes));
    // Values of all protocols at once, which no drive has: a real one has about two thirds of them.
    assert_eq!((of_drives - none) / drives, 56, "series a drive");
    assert!((of_drives - none).is_multiple_of(drives));
    assert_eq!(
        (all - of_drives) / (drives * volumes),
        20,
        "series a volume that moves"
    );
    assert!((all - of_drives).is_multiple_of(drives * volumes));
    // Five of them for each slot of the workers.
    assert_eq!(none, 33, "series of the node");
    let series = series(&text);
    assert_eq!(series.len(), all);
    let distinct: BTreeSet<_> = series.iter().collect();
    assert_eq!(distinct.len(), all, "a series is there twice");
}

#[test]
fn only_values_that_a_drive_reported_are_shown() {
    let mut view = full(1, 0);
    let id = view.snapshot.drives.keys().next().unwrap().clone();
    view.polls.clear();
    let (_, text) = scrape(&view);
    for number in [
        "temperature",
        "wear",
        "pending",
        "smart_passed",
        "media_errors",
    ] {
        assert!(!text.contains(number), "{number}:\n{text}");
    }
    // Series that always exist.
    for line in [
        format!("drivebay_drive_smart_last_success_timestamp_seconds{{drive=\"{id}\"}} 0"),
        format!("drivebay_drive_verdict{{drive=\"{id}\",verdict=\"SUSPECT\"}} 1"),
        format!("drivebay_drive_verdict{{drive=\"{id}\",verdict=\"GOOD\"}} 0"),
        format!("drivebay_drive_verdict{{drive=\"{id}\",verdict=\"BAD\"}} 0"),
        format!("drivebay_drive_verdict{{drive=\"{id}\",verdict=\"UNKNOWN\"}} 0"),
        format!("drivebay_drive_finding{{drive=\"{id}\",code=\"Wear\"}} 1"),
    ] {
        assert!(text.contains(&line), "no {line} in\n{text}");
    }
}

#[test]
fn an_acknowledged_finding_is_0_and_the_verdict_stays() {
    let of = |acknowledged: bool| {
        let mut view = full(1, 0);
        let mut snapshot = (*view.snapshot).clone();
        let health = &mut snapshot.drives.values_mut().next().unwrap().health;
        health.acknowledged = Some(Default::default());
        health.findings[0].acknowledged = acknowledged;
        view.snapshot = Arc::new(snapshot);
        scrape(&view).1
    };
    for (acknowledged, finding, all) in [(false, 1, 0), (true, 0, 1)] {
        let text = of(acknowledged);
        for line in [
            format!("drive=\"wwn-d0\",code=\"PendingSectors\"}} {finding}"),
            format!("drivebay_drive_acknowledged{{drive=\"wwn-d0\"}} {all}"),
            "drivebay_drive_verdict{drive=\"wwn-d0\",verdict=\"SUSPECT\"} 1".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
    }
}

#[test]
fn latencies_have_series_only_where_they_are_known() {
    let mut view = full(1, 0);
    let (_, text) = scrape(&view);
    for line in [
        "drivebay_drive_io_latency_seconds{drive=\"wwn-d0\",direction=\"read\"} 0.003",
        "drivebay_drive_io_slowdown_ratio{drive=\"wwn-d0\",direction=\"write\"} 2",
        "drivebay_drive_io_peers{drive=\"wwn-d0\"} 3",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    let speed = view.speeds.values_mut().next().unwrap();
    speed.read.expected_ms = None;
    let (_, text) = scrape(&view);
    assert!(
        !text.contains("slowdown_ratio{drive=\"wwn-d0\",direction=\"read\""),
        "{text}"
    );
    view.speeds.values_mut().next().unwrap().at = 0;
    assert!(!scrape(&view).1.contains("drivebay_drive_io"));
}

#[test]
fn a_poll_that_failed_leaves_the_last_numbers_with_their_age() {
    let store = LatestPolls::default();
    let drive = DriveId("wwn-d0".into());
    let failed = Outcome::Failed(Failure {
        reason: FailureReason::OpenFailed,
        detail: String::new(),
    });
    store.took(&drive, &failed, Some(FailureReason::OpenFailed), 512, 5);
    let mut view = full(1, 0);
    let kept = view.polls.get_mut(&drive).unwrap();
    kept.failures
        .extend(store.all()[&drive].failures.iter().map(|(k, v)| (*k, *v)));
    let (_, text) = scrape(&view);
    for line in [
        "drivebay_drive_temperature_celsius{drive=\"wwn-d0\"} 34",
        "drivebay_drive_writes_per_day{drive=\"wwn-d0\"} 1.129",
        "drivebay_drive_over_temperature_seconds_total{drive=\"wwn-d0\",limit=\"critical\"} 1",
        "drivebay_drive_smart_last_success_timestamp_seconds{drive=\"wwn-d0\"} 999000",
        "drivebay_drive_smart_failures_total{drive=\"wwn-d0\",reason=\"OpenFailed\"} 1",
        "drivebay_drive_smart_failures_total{drive=\"wwn-d0\",reason=\"Timeout\"} 2",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
}

#[test]
fn a_sample_has_its_time_and_goes_with_the_mount() {
    let mut view = full(1, 1);
    let (_, text) = scrape(&view);
    let uuid = Uuid::from_u128(1);
    for line in [
        format!("drivebay_volume_fs_sample_timestamp_seconds{{volume=\"{uuid}\"}} 999960"),
        format!("drivebay_volume_fs_available_bytes{{volume=\"{uuid}\"}} 600"),
        format!("drivebay_volume_fs_inodes_used{{volume=\"{uuid}\"}} 10"),
    ] {
        assert!(text.contains(&line), "no {line} in\n{text}");
    }
    let snapshot = Arc::make_mut(&mut view.snapshot);
    snapshot.volumes.get_mut(&uuid).unwrap().in_use = false;
    let (_, text) = scrape(&view);
    assert!(!text.contains("_fs_"), "{text}");
}

#[test]
fn a_drive_and_a_volume_have_the_names_that_others_have_for_them() {
    let mut view = full(1, 1);
    let uuid = Uuid::from_u128(1);
    let snapshot = Arc::make_mut(&mut view.snapshot);
    let drive = snapshot.drives.values_mut().next().unwrap();
    drive.facts.kernel_name = "cciss!c0d0".into();
    let record = &mut snapshot.volumes.get_mut(&uuid).unwrap().placed.record;
    let created_for = CreatedFor {
        claim: "data-db-0".into(),
        namespace: "prod".into(),
        ..CreatedFor::default()
    };
    created_for.keep(&record.name.clone(), &mut record.parameters);
    let is_there = |view: &View, lines: &[&str]| {
        let (_, text) = scrape(view);
        for line in lines {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    };
    is_there(
        &view,
        &[
            "drivebay_drive_info{drive=\"wwn-d0\",device=\"cciss/c0d0\",",
            "device=\"sda2\",persistentvolume=\"pvc-1\",persistentvolumeclaim=\"data-db-0\",namespace=\"prod\"} 1",
        ],
    );
    // A PVC of this name may have a new volume before the old one is erased.
    let snapshot = Arc::make_mut(&mut view.snapshot);
    snapshot.volumes.get_mut(&uuid).unwrap().state = VolumeState::Erasing;
    snapshot.drives.values_mut().next().unwrap().state = DriveState::Missing;
    is_there(
        &view,
        &[
            "drivebay_drive_info{drive=\"wwn-d0\",device=\"\",",
            "persistentvolume=\"\",persistentvolumeclaim=\"\",namespace=\"\"} 1",
        ],
    );
}

#[test]
fn the_last_check_with_a_result_is_shown_and_a_later_attempt_beside_it() {
    let (_, text) = scrape(&full(1, 1));
    let uuid = Uuid::from_u128(1);
    let name = "drivebay_volume_check_timestamp_seconds";
    for (outcome, at) in [("clean", 900_000), ("inconclusive", 990_000)] {
        let line = format!("{name}{{volume=\"{uuid}\",outcome=\"{outcome}\"}} {at}");
        assert!(text.contains(&line), "no {line} in\n{text}");
    }
}

#[test]
fn a_move_has_its_phase_its_drives_and_what_is_left_to_copy() {
    let mut view = full(1, 1);
    let uuid = Uuid::from_u128(1);
    let volume = view.snapshot.volumes[&uuid].clone();
    for (phase, left) in [
        (MovePhase::Waiting, 2 << 20),
        (MovePhase::Copying, 2 << 20),
        (MovePhase::Completing, 0),
        (MovePhase::Moved, 0),
        (MovePhase::InDoubt, 0),
    ] {
        view.moves = vec![move_of(&volume, phase, 1 << 20)];
        let (_, text) = scrape(&view);
        for line in [
            format!(
                "drivebay_volume_move_phase{{volume=\"{uuid}\",drive=\"wwn-d0\",target=\"wwn-target\",phase=\"{phase}\"}} 1"
            ),
            format!("drivebay_volume_move_left_bytes{{volume=\"{uuid}\"}} {left}"),
            format!("drivebay_volume_move_requested_timestamp_seconds{{volume=\"{uuid}\"}} 990000"),
        ] {
            assert!(text.contains(&line), "no {line} in\n{text}");
        }
    }
    view.moves.clear();
    assert!(!scrape(&view).1.contains("_move_"));
    // A rule on every condition does not fire for a healthy volume.
    let volumes = &mut Arc::make_mut(&mut view.snapshot).volumes;
    let volume = volumes.get_mut(&uuid).unwrap();
    volume.conditions.clear();
    volume.moving = Some(Moving {
        reason: NormalReason::VolumeMoving,
        since: 1,
        message: String::new(),
        waits_for: String::new(),
    });
    let (_, text) = scrape(&view);
    let abnormal = format!("drivebay_volume_abnormal{{volume=\"{uuid}\"}} 0");
    assert!(text.contains(&abnormal) && !text.contains("VolumeMoving"));
}

#[test]
fn a_snapshot_has_three_series_and_one_without_an_age_limit_two() {
    let mut view = full(1, 1);
    view.expired_snapshots = 5;
    let (before, _) = scrape(&view);
    let uuid = Uuid::from_u128(1);
    let mut limited = samples::snapshot(7, 1);
    limited.record.expires_at = Some(1_604_800);
    limited.is_overflowed = true;
    let mut unlimited = samples::snapshot(8, 1);
    unlimited.record.expires_at = None;
    let reserve = limited.reserve_bytes;
    let volumes = &mut Arc::make_mut(&mut view.snapshot).volumes;
    let volume = volumes.get_mut(&uuid).unwrap();
    volume.snapshot_usage = BTreeMap::from([(Uuid::from_u128(8), 1 << 20)]);
    volume.placed.snapshots = vec![limited, unlimited];
    let (all, text) = scrape(&view);
    // And one for each state of the volume's snapshots.
    assert_eq!(all - before, 3 + 2 + 2);
    let of = |n: u128| {
        let snapshot = Uuid::from_u128(n);
        format!("{{volume=\"{uuid}\",snapshot=\"{snapshot}\"}}")
    };
    let (limited, unlimited) = (of(7), of(8));
    for line in [
        format!("drivebay_volume_snapshot_reserve_bytes{limited} {reserve}"),
        format!("drivebay_volume_snapshot_used_bytes{limited} {reserve}"),
        format!("drivebay_volume_snapshot_expiration_timestamp_seconds{limited} 1604800"),
        format!("drivebay_volume_snapshot_used_bytes{unlimited} 1048576"),
        format!("drivebay_volume_snapshots{{volume=\"{uuid}\",state=\"overflowed\"}} 1"),
        "drivebay_snapshots_expired_total 5".to_owned(),
    ] {
        assert!(text.contains(&line), "no {line} in\n{text}");
    }
    let none = format!("drivebay_volume_snapshot_expiration_timestamp_seconds{unlimited}");
    assert!(!text.contains(&none), "{text}");
}

#[test]
fn affected_files_are_counted_and_not_named() {
    let (_, text) = scrape(&full(1, 1));
    let uuid = Uuid::from_u128(1);
    for line in [
        format!("drivebay_volume_unreadable_bytes{{volume=\"{uuid}\"}} 1536"),
        format!("drivebay_volume_affected_files{{volume=\"{uuid}\"}} 3"),
    ] {
        assert!(text.contains(&line), "no {line} in\n{text}");
    }
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn two_devices_with_one_identity_and_odd_names_leave_the_scrape_whole() {
    let mut view = full(2, 1);
    let snapshot = Arc::make_mut(&mut view.snapshot);
    let mut copy = snapshot.drives.values().next().unwrap().clone();
    copy.facts.model = "a \"model\"\n\\".into();
    // As the scan names the second of two.
    snapshot
        .drives
        .insert(DriveId(format!("{}.sdb", copy.id)), copy);
    let (count, text) = scrape(&view);
    let distinct: BTreeSet<_> = series(&text).into_iter().collect();
    assert_eq!(distinct.len(), count, "{text}");
}

#[test]
fn devices_that_are_nobodys_drives_have_no_series() {
    let mut view = full(1, 0);
    let (before, _) = scrape(&view);
    let mut dm = samples::drive("dm-0", DriveState::Rejected, None);
    dm.rejects.push(Reject {
        code: RejectCode::NotADisk,
        detail: String::new(),
    });
    let snapshot = Arc::make_mut(&mut view.snapshot);
    snapshot.drives.insert(dm.id.clone(), dm);
    assert_eq!(scrape(&view).0, before);
}

#[test]
fn names_types_and_units_are_prometheus_own() {
    let mut all = definitions();
    all.extend(metrics::DEFINITIONS);
    let names: BTreeSet<_> = all.iter().map(|def| def.name).collect();
    assert_eq!(names.len(), all.len(), "a name is defined twice");
    for def in all {
        assert!(def.name.starts_with("drivebay_"), "{}", def.name);
        assert_eq!(def.counter, def.name.ends_with("_total"), "{}", def.name);
        assert!(def.help.ends_with('.'), "{}", def.name);
        let characters = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(def.name.chars().all(characters), "{}", def.name);
        for label in def.labels {
            assert!(!["le", "quantile", "job", "instance"].contains(label));
        }
    }
}
