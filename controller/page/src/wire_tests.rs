use drivebay_proto::agent::{CounterHistory, CounterPoint, DriveHealth, Slowdown, SmartReport};

use super::*;

fn claimed(id: &str, drive: &str, claim: &str) -> Claimed {
    Claimed {
        volume: agent::Volume {
            id: format!("{id}@n1"),
            drive: drive.into(),
            state: "ready".into(),
            class: "fast".into(),
            ..Default::default()
        },
        claim: claim.into(),
        persistent_volume: String::new(),
    }
}

fn a_drive(id: &str) -> agent::Drive {
    agent::Drive {
        id: id.into(),
        state: "claimed".into(),
        verdict: "GOOD".into(),
        size_bytes: 100,
        usable_bytes: 90,
        free_bytes: 0,
        ..Default::default()
    }
}

fn reading_of(name: &str, value: i64) -> agent::Reading {
    agent::Reading {
        name: name.into(),
        value,
    }
}

#[test]
fn a_smart_value_is_shown_with_its_label_a_colon_and_its_unit() {
    for (name, value, expected) in [
        ("temperature-celsius", 41, "Temperature: 41 °C"),
        ("power-on-hours", 8766, "Power_On_Hours: 8766 h (1y)"),
        ("ata-197", 12, "Current_Pending_Sector (197): 12"),
        ("of-a-newer-agent", 3, "of-a-newer-agent: 3"),
    ] {
        let shown = reading(&reading_of(name, value), None);
        assert_eq!(shown.shown, expected);
        assert_eq!((shown.name.as_str(), shown.value), (name, value));
    }
}

#[test]
fn a_drive_has_the_claims_of_volumes_that_exist_on_it_in_order_and_once() {
    let mut deleted = claimed("4", "a", "shop/deleted");
    deleted.volume.state = "erasing".into();
    let volumes = [
        claimed("1", "a", "shop/db"),
        claimed("2", "b", "shop/other"),
        claimed("3", "a", "bank/ledger"),
        claimed("5", "a", "shop/db"),
        claimed("6", "a", ""),
        deleted,
    ];
    let shown = drives("n1", &[a_drive("a"), a_drive("b"), a_drive("c")], &volumes);
    let claims: Vec<_> = shown
        .iter()
        .map(|one| (one.volumes, one.claims.join(",")))
        .collect();
    let expected = [(4, "bank/ledger,shop/db"), (1, "shop/other"), (0, "")];
    assert_eq!(
        claims,
        expected.map(|(volumes, claims)| (volumes, claims.to_owned()))
    );
}

#[test]
fn a_full_drive_has_no_free_bytes_and_a_rejected_one_reports_none() {
    let mut rejected = a_drive("b");
    rejected.state = "rejected".into();
    let shown = drives("n1", &[a_drive("a"), rejected], &[]);
    assert_eq!(shown[0].facts.free_bytes, Some(0));
    assert_eq!(shown[1].facts.free_bytes, None);
}

#[test]
fn a_bad_drive_has_its_severity_and_codes_and_an_acknowledged_one_is_marked() {
    let finding = |acknowledged| agent::Finding {
        code: "StatusFailed".into(),
        message: "it failed; replace it".into(),
        acknowledged,
        ..Default::default()
    };
    let bad = |acknowledged| agent::Drive {
        verdict: "BAD".into(),
        health: Some(DriveHealth {
            findings: vec![finding(acknowledged)],
            acknowledged: acknowledged.then(Default::default),
            ..Default::default()
        }),
        ..a_drive("a")
    };
    let shown = drives("n1", &[bad(false)], &[]).remove(0);
    assert_eq!(shown.facts.severity.as_deref(), Some("BAD"));
    assert_eq!(shown.findings, ["StatusFailed"]);
    assert!(!shown.facts.acknowledged);
    let shown = drives("n1", &[bad(true)], &[]).remove(0);
    assert_eq!(
        (shown.facts.verdict.as_str(), shown.facts.severity),
        ("BAD", None)
    );
    assert!(shown.facts.acknowledged && shown.findings.is_empty());
}

#[test]
fn numbers_of_agents_that_json_has_none_for_are_null() {
    let side = DirectionLatency {
        bytes_per_second: f64::NAN,
        requests_per_second: f64::INFINITY,
        latency_ms: Some(-1.0),
        history_ms: vec![1.5, -1.0, f64::NAN],
        slow: Some(Slowdown {
            since: 5,
            ..Default::default()
        }),
        ..Default::default()
    };
    let answer = DriveLatencyResponse {
        at: 60,
        compared_with: "model".into(),
        peers: 3,
        read: Some(side),
        write: None,
    };
    let shown = latency(&answer).unwrap();
    assert_eq!(shown.read.history, [Some(1.5), None, None]);
    assert_eq!((shown.read.mean, shown.read.bytes_per_second), (None, 0.0));
    assert_eq!(shown.read.slow_since, Some(5));
    assert_eq!(shown.compared_with.as_deref(), Some("model"));
    assert_eq!(shown.write, Direction::default());
    assert_eq!(latency(&DriveLatencyResponse::default()), None);
}

#[test]
fn earlier_values_are_those_of_the_reading_of_this_name_and_bounded() {
    let counter = |name: &str, values: &[u64]| CounterHistory {
        name: name.into(),
        points: (1..)
            .zip(values)
            .map(|(at, value)| CounterPoint { at, value: *value })
            .collect(),
    };
    let mut answer = DriveHistoryResponse {
        counters: vec![
            counter("ata-197", &[3, u64::MAX]),
            counter("ata-197", &[7]),
            counter("of-no-reading", &[1]),
        ],
    };
    let drive = agent::Drive {
        health: Some(DriveHealth {
            smart: Some(SmartReport {
                readings: vec![
                    reading_of("ata-197", 48),
                    reading_of("temperature-celsius", 41),
                ],
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..a_drive("a")
    };
    let measured = Measured {
        counters: counters(answer.clone()),
        ..Default::default()
    };
    let shown = detail("n1", &drive, &[], |_| None, measured, (true, false)).unwrap();
    let history = shown.smart.iter().map(|one| one.history.clone());
    let expected = [Some(vec![(1, 3), (2, i64::MAX)]), None];
    assert_eq!(history.collect::<Vec<_>>(), expected);
    answer.counters = (0..1000)
        .map(|name: u32| counter(&name.to_string(), &[5; 1000]))
        .collect();
    let kept = counters(answer);
    assert_eq!(kept.len(), COUNTERS);
    assert!(kept.values().all(|points| points.len() == POINTS));
}

#[test]
fn file_names_of_unreadable_ranges_are_counted_and_not_shown() {
    let range = UnreadableRange {
        start: 512,
        len: 4096,
        volume: "v@n1".into(),
        holds: "files".into(),
        files: vec!["/db/secret-name".into()],
        more_files: 2,
        ..Default::default()
    };
    let reading = reading_of("temperature-celsius", 41);
    let drive = agent::Drive {
        health: Some(DriveHealth {
            unreadable: vec![range],
            smart: Some(SmartReport {
                readings: vec![reading],
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..a_drive("wwn-0x1")
    };
    let volumes = [claimed("1", "wwn-0x1", "shop/db")];
    let layout = |class: &str| (class == "fast").then(|| "lvm".to_owned());
    let shown = detail(
        "n1",
        &drive,
        &volumes,
        layout,
        Measured::default(),
        (true, true),
    )
    .unwrap();
    let json = serde_json::to_string(&shown).unwrap();
    assert!(!json.contains("secret-name"), "{json}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["unreadable"][0]["files"], 3);
    assert_eq!(json["temperatureCelsius"], 41);
    assert_eq!(json["volumes"][0]["layout"], "lvm");
    assert_eq!(json["path"], "/dev/disk/by-id/wwn-0x1");
    // Ranges are known on the drive's node alone.
    let shown = detail(
        "n1",
        &drive,
        &volumes,
        layout,
        Measured::default(),
        (false, false),
    )
    .unwrap();
    assert_eq!(shown.unreadable, None);
}

#[test]
fn an_identity_is_a_path_only_if_it_can_be_a_link_of_udev() {
    for (id, has_path) in [
        ("wwn-0x5000c5", true),
        ("wwn-0x../../sda", false),
        ("wwn-0x1;x", false),
        ("serial", false),
    ] {
        let shown = detail(
            "n1",
            &a_drive(id),
            &[],
            |_| None,
            Measured::default(),
            (true, false),
        )
        .unwrap();
        assert_eq!(shown.path.is_some(), has_path, "{id}");
    }
}

#[test]
fn only_deleted_volumes_are_erases() {
    let mut one = claimed("1", "a", "").volume;
    assert_eq!(erase("n1", &one), None);
    one.state = "erasing".into();
    one.erased_bytes = 7;
    let shown = erase("n1", &one).unwrap();
    assert_eq!(
        (shown.done_bytes, shown.seconds_left, shown.state.as_str()),
        (7, None, "erasing")
    );
}

#[test]
fn a_check_that_runs_is_listed_before_those_that_ended() {
    let mut one = claimed("1", "a", "").volume;
    one.checks = vec![agent::FilesystemCheck {
        at: 9,
        outcome: "clean".into(),
        text: "clean".into(),
        method: "unmounted".into(),
        ..agent::FilesystemCheck::default()
    }];
    one.running_check = Some(agent::RunningCheck {
        since: 5,
        method: "scrub".into(),
    });
    let all: Vec<Check> = checks("n1", &one).collect();
    let shown: Vec<_> = all
        .iter()
        .map(|it| (it.at, it.outcome.as_str(), it.method.as_deref()))
        .collect();
    let expected = [(5, RUNNING, Some("scrub")), (9, "clean", Some("unmounted"))];
    assert_eq!(shown, expected);
}
