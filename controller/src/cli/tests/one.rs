//! `health`, `drive show` and `volume show`.

use drivebay_proto::agent::{
    Acknowledged, DriveHealth, FilesystemCheck, Finding, Overridden, Reading, SmartFinding,
    SmartReport,
};

use super::{fake::Fake, *};
use crate::cli::{show, terminal::Terminal};
use drivebay_common::cli::WRONG;

const NOW: u64 = 1_000_000;

fn sick() -> Drive {
    let mut sick = drive("wwn-0x5000b", "sdb", "claimed");
    sick.serial = "S4YP".into();
    sick.model = "ST4000".into();
    sick.transport = "sata".into();
    sick.class = "bulk".into();
    sick.verdict = "BAD".into();
    sick.notes = vec!["the backup table was repaired".into()];
    sick.health = Some(DriveHealth {
        findings: vec![Finding {
            code: "PendingSectorsMany".into(),
            message: "move the data off".into(),
            since: NOW - 7200,
            acknowledged: false,
        }],
        conditions: vec![Finding {
            code: "Wear".into(),
            message: "its replacement will be due".into(),
            since: 0,
            acknowledged: false,
        }],
        worn_out: false,
        overridden: None,
        acknowledged: None,
        smart: Some(SmartReport {
            answered_at: NOW - 240,
            verdict_since: NOW - 86_400,
            device_type: "sat".into(),
            asleep: false,
            failure: String::new(),
            findings: vec![SmartFinding {
                code: "PendingSectorsMany".into(),
                subject: "ata-197".into(),
                value: 48,
                threshold: 40,
                reading: "Current_Pending_Sector (197): 48, +2 since yesterday".into(),
                message: "move the data off".into(),
                acknowledged: false,
            }],
            readings: vec![Reading {
                name: "temperature-celsius".into(),
                value: 34,
            }],
        }),
        ..DriveHealth::default()
    });
    sick
}

fn on_it() -> Volume {
    let mut there = volume(2, "n1", "pvc-2");
    let it = inside(&mut there);
    it.drive = "wwn-0x5000b".into();
    it.published = true;
    it.mounts = vec!["/staging/x".into(), "/pods/y".into()];
    let check = |at, outcome: &str, text: &str, method: &str| FilesystemCheck {
        at,
        outcome: outcome.into(),
        text: text.into(),
        method: method.into(),
        tool: String::new(),
    };
    it.checks = vec![
        check(NOW - 7200, "clean", "clean", "snapshot"),
        check(NOW - 60, "not-checkable", "not checkable: no room", ""),
    ];
    it.conditions = vec![Condition {
        abnormal: true,
        status: "DEGRADED".into(),
        reason: "DriveFailing".into(),
        message: "the drive is failing".into(),
        since: NOW - 60,
    }];
    it.conditions.push(Condition {
        reason: "VolumeMoving".into(),
        message: "it moves from drive sdb to drive sdc: copying".into(),
        since: NOW - 120,
        ..Condition::default()
    });
    it.clone()
}

#[test]
fn a_drive_is_shown_with_all_that_its_verdict_rests_on() {
    let (drive, volume) = (sick(), on_it());
    assert_eq!(
        show::drive(Some("n1"), &drive, &[&volume], false, NOW, Terminal::NONE),
        "\
Drive wwn-0x5000b
  node       n1
  device     /dev/sdb
  model      ST4000
  serial     S4YP
  size       1000 GiB, nvme, sata
  state      claimed
  class      bulk
  free       0 B of 0 B; largest piece 0 B
  verdict    BAD, reported by the drive itself for 1d
  SMART      answered 4m ago, as sat
             Temperature 34 °C
             Current_Pending_Sector (197): 48, +2 since yesterday, limit 40: PendingSectorsMany

Findings:
  PendingSectorsMany (for 2h): move the data off

Conditions:
  Wear: its replacement will be due

Notes:
  the backup table was repaired

Volumes on it:
  pvc-2 (10 GiB, ready, in use): DriveFailing
"
    );
    let mut acknowledged = sick();
    let health = acknowledged.health.as_mut().unwrap();
    health.findings[0].acknowledged = true;
    health.acknowledged = Some(Acknowledged {
        at: NOW - 172_800,
        by: "ann".into(),
        note: "cable\u{1b}[2J".into(),
        until: NOW + 7200,
        takes_new_volumes: true,
    });
    acknowledged.notes.clear();
    let text = show::drive(None, &acknowledged, &[], false, NOW, Terminal::NONE);
    for part in [
        "verdict    BAD, acknowledged, reported by the drive itself for 1d\n",
        "             acknowledged 2d ago by ann: cable\\u{1b}[2J (it takes new volumes), for another 2h\n",
        "\nAcknowledged:\n  PendingSectorsMany (for 2h): move the data off\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        !text.contains("Findings:") && !text.contains("Notes:"),
        "{text}"
    );
    let mut calmed = sick();
    calmed.verdict = "GOOD".into();
    calmed.health.as_mut().unwrap().overridden = Some(Overridden {
        reason: "old cable".into(),
        until: 0,
        otherwise: "BAD".into(),
    });
    let expected = "overridden by the operator: old cable (the evidence alone says BAD)";
    let text = show::drive(None, &calmed, &[], true, NOW, Terminal::NONE);
    assert!(text.contains(&format!("{expected}\n")), "{text}");
    calmed
        .health
        .as_mut()
        .unwrap()
        .overridden
        .as_mut()
        .unwrap()
        .until = NOW + 7200;
    let text = show::drive(None, &calmed, &[], true, NOW, Terminal::NONE);
    assert!(
        text.contains(&format!("{expected}, for another 2h\n")),
        "{text}"
    );
}

#[test]
fn a_volume_is_shown_with_where_it_is_and_how_its_drive_is() {
    let (drive, volume) = (sick(), on_it());
    assert_eq!(
        show::volume(
            None,
            &volume,
            Some(&drive),
            None,
            false,
            NOW,
            Terminal::NONE
        ),
        format!(
            "\
Volume pvc-2
  id         {}
  class      fast
  size       10 GiB, ext4
  state      ready, in use
  condition  DEGRADED
  device     /dev/sda2
  drive      wwn-0x5000b (sdb, ST4000)
             BAD, SMART answered 4m ago
  mounted at /staging/x
             /pods/y
  checked    clean (snapshot), 2h ago
             not checkable: no room, 1m ago

What is wrong:
  DriveFailing (for 1m): the drive is failing

Conditions:
  VolumeMoving (for 2m): it moves from drive sdb to drive sdc: copying

Findings of its drive:
  PendingSectorsMany (for 2h): move the data off

Conditions of its drive:
  Wear: its replacement will be due
",
            id(2, "n1")
        )
    );
}

fn cluster() -> Fake {
    let mut away = node("n2", "away");
    (away.away_seconds, away.volumes) = (7380, 31);
    let mut lost = volume(9, "n2", "pvc-9");
    inside(&mut lost).conditions = vec![Condition {
        abnormal: true,
        status: "INACCESSIBLE".into(),
        reason: "NodeUnreachable".into(),
        message: "away".into(),
        since: 0,
    }];
    let mut suffering = volume(2, "n1", "pvc-2");
    suffering.volume = Some(on_it());
    Fake {
        nodes: vec![node("n1", "connected"), away],
        drives: vec![
            NodeDrives {
                node_id: "n1".into(),
                state: "connected".into(),
                drives: vec![drive("wwn-0x5000a", "sda", "claimed"), sick()],
            },
            NodeDrives {
                node_id: "n2".into(),
                state: "away".into(),
                drives: vec![sick()],
            },
        ],
        volumes: vec![volume(1, "n1", "pvc-1"), suffering, lost],
        ..Fake::default()
    }
}

#[test]
fn the_clusters_health_is_reported_worst_first_with_a_code_for_scripts() {
    let served = cluster().serve();
    let output = run_cli(&served.socket(), &["health"]);
    let error = output.result.unwrap_err();
    assert_eq!(error.code(), WRONG);
    let lines: Vec<&str> = output
        .out
        .lines()
        .filter(|line| !line.starts_with(' '))
        .collect();
    assert_eq!(
        lines,
        [
            "the cluster: 2 things are wrong",
            "",
            "AWAY  node n2",
            "BAD  n1: drive wwn-0x5000b (sdb, ST4000, serial S4YP)",
            "",
            "2 drives: 1 GOOD, 1 BAD",
            "",
            "Notes:",
        ]
    );
    assert!(output.out.contains(
        "its agent is disconnected for 2h03m, so the state of 31 volumes there is unknown"
    ));
    assert!(
        output.out.contains("volumes on it: pvc-2"),
        "{}",
        output.out
    );
    let output = run_cli(&served.socket(), &["health", "--node", "n1", "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(value["well"], false);
    assert_eq!(value["problems"][0]["severity"], "BAD");
    assert_eq!(
        value["problems"][0]["reasons"][0]["code"],
        "PendingSectorsMany"
    );
    assert_eq!(value["problems"][0]["volumes"][0], "pvc-2");
}

#[test]
fn state_that_an_agent_or_the_controller_lost_is_wrong_and_named() {
    let finding = |code: &str, message: &str| Finding {
        code: code.into(),
        message: message.into(),
        ..Finding::default()
    };
    let mut forgetful = node("n1", "connected");
    forgetful.findings = vec![
        finding("StateNotSaved", "known.json cannot be saved"),
        finding("HostReadsVolumes", "udev reads volumes"),
    ];
    let mut away = node("n2", "away");
    away.findings = vec![finding("StateLost", "old news")];
    let served = Fake {
        nodes: vec![forgetful, away],
        findings: vec![finding("StateNotRead", "notes.json could not be read")],
        ..Fake::default()
    }
    .serve();
    let output = run_cli(&served.socket(), &["health"]);
    assert_eq!(output.result.unwrap_err().code(), WRONG);
    for line in [
        "WARNING  the controller\n    StateNotRead: notes.json could not be read",
        "WARNING  node n1\n    StateNotSaved: known.json cannot be saved",
        "    node n1: HostReadsVolumes: udev reads volumes",
    ] {
        assert!(output.out.contains(line), "{line}: {}", output.out);
    }
    assert!(!output.out.contains("old news"), "{}", output.out);
    let output = run_cli(&served.socket(), &["node", "show", "n1"]);
    assert!(
        output.out.contains("StateNotSaved: known.json"),
        "{}",
        output.out
    );
    let output = run_cli(&served.socket(), &["nodes", "-o", "json"]);
    assert!(output.out.contains("StateNotSaved"), "{}", output.out);
}

#[test]
fn a_volume_on_two_nodes_is_a_problem_and_one_that_moves_is_none() {
    let mut there = volume(1, "n1", "pvc-1");
    there.volume.as_mut().unwrap().conditions = vec![Condition {
        reason: "VolumeMoving".into(),
        ..Condition::default()
    }];
    let mut fake = Fake {
        nodes: vec![node("n1", "connected")],
        volumes: vec![there],
        ..Fake::default()
    };
    let moving = run_cli(&fake.clone().serve().socket(), &["health"]).ok();
    assert!(moving.contains("nothing is wrong"), "{moving}");
    fake.volumes[0].other_copy = "2 nodes have this volume".into();
    let output = run_cli(&fake.serve().socket(), &["health"]);
    assert_eq!(output.result.unwrap_err().code(), WRONG);
    let expected = "WARNING  n1: volume pvc-1\n    VolumeOnTwoNodes: 2 nodes have this volume";
    assert!(output.out.contains(expected), "{}", output.out);
}

#[test]
fn a_cluster_that_is_well_is_reported_in_one_line() {
    let well = Fake {
        nodes: vec![node("n1", "connected")],
        drives: vec![NodeDrives {
            node_id: "n1".into(),
            state: "connected".into(),
            drives: vec![drive("wwn-a", "sda", "claimed")],
        }],
        volumes: vec![volume(1, "n1", "pvc-1")],
        ..Fake::default()
    };
    let served = well.serve();
    assert_eq!(
        run_cli(&served.socket(), &["health"]).ok(),
        "the cluster is well: 1 drive and 1 volume, nothing is wrong\n"
    );
    let nobody = Fake::default().serve();
    assert!(
        run_cli(&nobody.socket(), &["health"]).result.is_err(),
        "no node is no health"
    );
}

#[test]
fn one_is_found_by_any_beginning_that_is_its_alone() {
    let served = cluster().serve();
    let socket = served.socket();
    for typed in ["sda", "/dev/sda", "wwn-0x5000a"] {
        let text = run_cli(&socket, &["drive", "show", typed]).ok();
        assert!(
            text.starts_with("Drive wwn-0x5000a\n  node       n1\n"),
            "{typed}: {text}"
        );
    }
    // The disconnected node n2 had it before.
    let text = run_cli(&socket, &["drive", "show", "wwn-0x5000b"]).ok();
    assert!(text.contains("  node       n1\n"), "{text}");
    let text = run_cli(&socket, &["drive", "show", "sdb", "--node", "n1"]).ok();
    assert!(text.contains("pvc-2 (10 GiB"), "{text}");
    for (typed, part, expected) in [
        ("wwn-0x5", "could be\n  wwn-0x5000a (node n1, sda)\n", 2),
        ("sdz", "there is no drive \"sdz\"", 6),
        ("", "there is no drive", 6),
    ] {
        let (message, code) = run_cli(&socket, &["drive", "show", typed]).error();
        assert!(
            message.contains(part) && code == expected,
            "{typed}: {message}"
        );
    }
    for typed in ["pvc-2", &id(2, "n1"), &id(2, "n1")[..36]] {
        let text = run_cli(&socket, &["volume", "show", typed]).ok();
        assert!(text.starts_with("Volume pvc-2\n"), "{typed}: {text}");
        assert!(text.contains("BAD, SMART answered"), "{text}");
    }
    let (message, _) = run_cli(&socket, &["volume", "show", "pvc-"]).error();
    assert!(message.contains("could be"), "{message}");
    let json = run_cli(&socket, &["volume", "show", "pvc-2", "-o", "json"]).ok();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["node"], "n1");
    assert_eq!(value["mounts"][1], "/pods/y");
    assert_eq!(
        value["its_drive"]["health"]["smart"]["findings"][0]["value"],
        48
    );
}

#[test]
fn a_drive_of_any_node_is_cordoned_by_any_of_its_whole_names() {
    let served = cluster().serve();
    let socket = served.socket();
    let cordon = [
        "drive", "cordon", "sdb", "--by", "ann", "--reason", "ticket",
    ];
    assert_eq!(
        run_cli(&socket, &cordon).ok(),
        "node n1: drive wwn-0x5000b is cordoned by ann: ticket (it takes no new volumes)\n"
    );
    let text = run_cli(&socket, &["drive", "uncordon", "S4YP", "--by", "ann"]).ok();
    assert!(text.contains("wwn-0x5000b is not cordoned"), "{text}");
    let text = run_cli(&socket, &["drive", "cordon", "sdb", "--plan"]).ok();
    assert!(text.contains("would be cordoned"), "{text}");
    assert_eq!(
        run_cli(&socket, &["drive", "locate", "sdb", "on"]).ok(),
        "node n1: the light of drive wwn-0x5000b is on, by ses\n"
    );
    // A unique prefix of a name suffices to show a drive, but not to change one.
    let (text, code) = run_cli(&socket, &["drive", "cordon", "wwn-0x5000", "--by", "ann"]).error();
    assert_eq!(code, drivebay_common::cli::USAGE, "{text}");
}

#[test]
fn volumes_of_any_node_are_moved_by_any_whole_name_and_listed() {
    let served = cluster().serve();
    let socket = served.socket();
    let plan = ["drive", "evacuate", "sdb", "--to", "sda", "--plan"];
    assert_eq!(
        run_cli(&socket, &plan).ok(),
        "\
node n1: drive wwn-0x5000b would be cordoned, and 1 volume (10 GiB) moved off it:

VOLUME    SIZE  FROM  TO   WHEN
pvc-2   10 GiB  sdb   sda  when it is unstaged
"
    );
    // The volume is in use, and the command does not wait for it.
    let output = run_cli(&socket, &["drive", "replace", "S4YP", "sda", "--by", "ann"]);
    let text = output.out.clone();
    assert_eq!(output.error().1, drivebay_common::cli::LEFT_WAITING);
    assert_eq!(
        text,
        "\
node n1: 0 of 1 volume moved
moved by themselves once they are unstaged:
  pvc-2: pod a/b uses it
`drivebay-controller moves --node n1` shows them, `drivebay-controller drive evacuate wwn-0x5000b --node n1 --cancel` ends those that are not completed
"
    );
    let later = [
        "volume",
        "move",
        "pvc-2",
        "--to",
        "sda",
        "--by",
        "ann",
        "--no-wait",
    ];
    let text = run_cli(&socket, &later).ok();
    assert!(
        text.starts_with("node n1: 1 volume will be moved; `"),
        "{text}"
    );
    let ended = "node n1: the move of pvc-2 is ended; it stays on drive wwn-0x5000b\n";
    for cancel in [
        ["drive", "evacuate", "sdb", "--cancel", "--by", "ann"],
        ["volume", "move", "pvc-2", "--cancel", "--by", "ann"],
    ] {
        assert_eq!(run_cli(&socket, &cancel).ok(), ended);
    }
    let list = run_cli(&socket, &["moves", "--node", "n1"]).ok();
    let row = "pvc-2   waiting    0%     -     -  10 GiB  sdb   sda\n    pod a/b uses it\n";
    assert!(list.ends_with(row), "{list}");
    // A prefix of a name does not suffice to move a volume.
    for line in [
        &["volume", "move", "pvc", "--to", "sda", "--by", "ann"][..],
        &[
            "volume",
            "move",
            "pvc-2",
            "--to",
            "wwn-0x5000",
            "--by",
            "ann",
        ],
        &["drive", "evacuate", "sdb", "--volume", "pvc", "--by", "ann"],
    ] {
        let (text, code) = run_cli(&socket, line).error();
        assert_eq!(code, drivebay_common::cli::USAGE, "{line:?}: {text}");
    }
}

#[test]
fn a_refused_move_lists_every_reason_on_a_line_of_its_own() {
    let served = Fake {
        refusals: vec!["there is no room for pvc-2".into(), "sda is BAD".into()],
        ..cluster()
    }
    .serve();
    let line = ["drive", "evacuate", "sdb", "--by", "ann"];
    let (text, code) = run_cli(&served.socket(), &line).error();
    assert_eq!(
        text,
        "nothing is moved, for 2 reasons:\n  - there is no room for pvc-2\n  - sda is BAD"
    );
    assert_eq!(code, WRONG);
}
