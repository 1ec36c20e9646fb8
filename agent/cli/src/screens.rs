//! Whole screens of 24 drives with 40 volumes, for terminals of 80 and 200 columns and for a pipe, in files beside this one.
//! `DRIVEBAY_UPDATE=1` writes them again.

use std::path::Path;

use clap::Parser;
use drivebay_common::terminal::Terminal;
use drivebay_proto::agent::{
    Condition, CreatedFor, Drive, DriveHealth, Finding, InventoryUpdate, Reading, Reject,
    SmartReport, SnapshotGroup, Volume, VolumeSnapshot, VolumeUsage,
};

use super::{
    Cli, Command, DriveCommand, VolumeCommand, drives, health, snapshots, volumes,
    watch::OutputTarget,
};

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const NOW: u64 = 1_790_000_000;
const DAY: u64 = 86_400;

fn finding(code: &str, message: &str, days: u64) -> Finding {
    Finding {
        code: code.into(),
        message: message.into(),
        since: NOW - days * DAY,
        acknowledged: false,
    }
}

/// The `n`th drive of a node: 16 SAS drives, sdp to sdae, and 8 of NVMe, unsorted.
fn drive(n: u64) -> Drive {
    let letters = [
        "p", "q", "r", "s", "t", "u", "v", "w", "x", "y", "z", "aa", "ab", "ac", "ad", "ae",
    ];
    let is_nvme = n >= 16;
    let kernel_name = match letters.get(usize::try_from(n).unwrap()) {
        Some(letters) => format!("sd{letters}"),
        None => format!("nvme{}n1", n - 12),
    };
    let usable = if is_nvme { 3_500 * GIB } else { 16 * TIB };
    let wear = Reading {
        name: "wear-percent".into(),
        value: 7,
    };
    let heat = Reading {
        name: "temperature-celsius".into(),
        value: i64::try_from(31 + n % 7).unwrap(),
    };
    Drive {
        id: match is_nvme {
            true => format!("eui.00253845210{n:05x}"),
            false => format!("wwn-0x5000c500a1b2{:04x}", 0xc3d4 - 3 * n),
        },
        kernel_name,
        media: if is_nvme { "nvme" } else { "hdd" }.into(),
        transport: if is_nvme { "nvme" } else { "sas" }.into(),
        model: if is_nvme {
            "SAMSUNG MZQL23T8HCLS-00A07"
        } else {
            "ST18000NM004J"
        }
        .into(),
        serial: format!("ZR5{n:05}"),
        firmware: "E004".into(),
        enclosure: "5000ccab040a9b00".into(),
        slot: n.to_string(),
        size_bytes: usable + GIB,
        usable_bytes: usable,
        free_bytes: usable - usable / 24 * (n % 20),
        largest_free_bytes: usable / 2,
        logical_sector_bytes: 512,
        physical_sector_bytes: 4096,
        state: "claimed".into(),
        class: if is_nvme { "fast" } else { "bulk" }.into(),
        verdict: "GOOD".into(),
        health: Some(DriveHealth {
            smart: Some(SmartReport {
                answered_at: NOW - 60,
                verdict_since: NOW - 90 * DAY,
                readings: if is_nvme {
                    vec![heat, wear]
                } else {
                    vec![heat]
                },
                ..SmartReport::default()
            }),
            poll: "polled".into(),
            ..DriveHealth::default()
        }),
        ..Drive::default()
    }
}

fn volume(n: u64, drive: &Drive) -> Volume {
    Volume {
        id: format!("7b1d5c1e-58f3-4f0e-9d1a-2f6c1f{n:06x}@rack1-node7"),
        name: format!(
            "pvc-{:08x}-58f3-4f0e-9d1a-2f6c1f0b3a{n:02x}",
            n * 0x0101_1233 + 0x3f2c_9d1e
        ),
        class: drive.class.clone(),
        drive: drive.id.clone(),
        device: format!("{}p2", drive.kernel_name),
        size_bytes: 200 * GIB,
        mode: "mount".into(),
        fs_type: "xfs".into(),
        state: "ready".into(),
        published: true,
        created_at: NOW - n * DAY,
        created_for: Some(CreatedFor {
            claim: format!("data-postgres-{n}"),
            namespace: "shop".into(),
            ..CreatedFor::default()
        }),
        usage: Some(VolumeUsage {
            total_bytes: 200 * GIB,
            used_bytes: n * 5 * GIB,
            available_bytes: (200 - n * 5) * GIB,
            age_seconds: 4,
        }),
        ..Volume::default()
    }
}

/// A snapshot of this age and use, of a volume of 200 GiB, with an age limit of a week.
fn snapshot(name: &str, hours: u64, used_percent: u64) -> VolumeSnapshot {
    VolumeSnapshot {
        id: format!("5c0e3b7a-58f3-4f0e-9d1a-2f6c1f{hours:06x}@rack1-node7"),
        name: name.into(),
        created_at: NOW - hours * 3600,
        size_bytes: 200 * GIB,
        state: if used_percent < 100 { "ready" } else { "overflowed" }.into(),
        reserve_bytes: 40 * GIB,
        used_bytes: Some(40 * GIB / 100 * used_percent),
        message: match used_percent {
            100 => "its volume overwrote more than the reserve of 40 GiB holds; the snapshot is lost: delete it".into(),
            _ => String::new(),
        },
        expires_at: NOW - hours * 3600 + 7 * DAY,
        group: None,
    }
}

/// The `n`th of the two snapshots of a group.
fn of_group(n: u64) -> VolumeSnapshot {
    const NAME: &str = "groupsnapshot-6d1c5e2f-0b9a-4c7d-8e3f-1a2b3c4d5e6f";
    VolumeSnapshot {
        group: Some(SnapshotGroup {
            id: "0d8e3b7a-58f3-4f0e-9d1a-2f6c1f00000a@rack1-node7".into(),
            name: NAME.into(),
            members: 2,
        }),
        ..snapshot(&format!("{NAME}-{n}"), 9, 1)
    }
}

fn inventory() -> InventoryUpdate {
    let mut drives: Vec<Drive> = (0..24).map(drive).collect();
    let mut with = |n: usize, verdict: &str, finding: Finding| {
        drives[n].verdict = verdict.into();
        let health = drives[n].health.as_mut().unwrap();
        health.findings.push(finding);
    };
    const PENDING: &str = "sectors wait to be read or rewritten; back up what is on the drive, and watch whether they grow";
    with(3, "SUSPECT", finding("PendingSectors", PENDING, 2));
    with(12, "SUSPECT", finding("PendingSectors", PENDING, 9));
    const MANY: &str = "40 or more sectors wait to be read or rewritten; move the data off it and replace the drive";
    with(7, "BAD", finding("PendingSectorsMany", MANY, 1));
    // Blank, and failing.
    with(
        20,
        "BAD",
        finding(
            "CriticalWarning",
            "the drive reports degraded reliability; replace it",
            1,
        ),
    );
    drives[20].state = "available".into();
    drives[20].free_bytes = drives[20].usable_bytes;
    let lost = &mut drives[5];
    lost.state = "missing".into();
    lost.verdict = "UNKNOWN".into();
    lost.kernel_name = String::new();
    let system = &mut drives[23];
    system.state = "rejected".into();
    system.class = String::new();
    system.verdict = "UNKNOWN".into();
    system.health = None;
    let reject = |code: &str, detail: &str| Reject {
        code: code.into(),
        detail: detail.into(),
    };
    system.rejects = vec![reject("SystemDrive", "/, /boot"), reject("NotSelected", "")];
    let used = &mut drives[22];
    used.state = "rejected".into();
    used.verdict = "UNKNOWN".into();
    used.rejects = vec![reject(
        "Filesystem",
        "ext4, label \"old backups\"; if the data is not needed, wipe the drive",
    )];
    drives.reverse();
    let of = |n: u64| {
        drives
            .iter()
            .find(|it| it.serial == format!("ZR5{n:05}"))
            .unwrap()
    };
    let mut volumes: Vec<Volume> = (0..39).map(|n| volume(n, of(n % 16))).collect();
    let conditions = |volume: &mut Volume, status: &str, reason: &str, message: &str| {
        volume.conditions.push(Condition {
            abnormal: true,
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
            since: NOW - DAY,
        });
    };
    for volume in &mut volumes {
        let drive = volume.drive.clone();
        if drive == of(7).id {
            let message = format!("drive {drive} is failing: {MANY}");
            conditions(volume, "DEGRADED", "DriveFailing", &message);
        }
        if drive == of(5).id {
            volume.state = "missing".into();
            let message = format!("drive {drive} is missing; plug it in again");
            conditions(volume, "INACCESSIBLE", "DriveMissing", &message);
        }
    }
    volumes[2].snapshots = vec![
        snapshot("snapshot-0c9e1a52-7d34-4b8e-a1c7-3f5e2d9b6a10", 50, 100),
        snapshot("snapshot-b41f7e09-2c6d-4e5a-8f13-96d0c7a2e845", 26, 71),
    ];
    let kept = VolumeSnapshot {
        expires_at: 0,
        ..snapshot("before-upgrade", 3, 2)
    };
    volumes[0].snapshots = vec![of_group(1), kept];
    volumes[1].snapshots = vec![of_group(2)];
    volumes.push(Volume {
        snapshots: vec![
            snapshot("scratch-20260920-051320", 33, 12),
            snapshot("scratch-20260921-051320", 9, 0),
        ],
        created_for: None,
        manual: true,
        name: "scratch".into(),
        mounts: vec!["/srv/scratch".into()],
        ..volume(1, of(2))
    });
    InventoryUpdate {
        node_id: "rack1-node7".into(),
        full: true,
        ready: true,
        drives,
        volumes,
        ..InventoryUpdate::default()
    }
}

fn shown(line: &[&str], width: Option<usize>, height: Option<usize>) -> String {
    let target = OutputTarget {
        now: NOW,
        terminal: Terminal {
            width,
            height,
            ..Terminal::NONE
        },
    };
    let inventory = inventory();
    match Cli::parse_from(["x"].iter().chain(line)).command {
        Command::Drives(args) | Command::Drive(DriveCommand::List(args)) => {
            drives::render(&inventory, &args, target).unwrap()
        }
        Command::Volumes(args) | Command::Volume(VolumeCommand::List(args)) => {
            volumes::render(&inventory, &[], &[], &args, target).unwrap()
        }
        Command::Snapshots(args) => snapshots::render(&inventory, &args, target).unwrap(),
        Command::Health { show } => {
            let output = health::HealthOutput {
                format: show.output,
                now: NOW,
                terminal: target.terminal,
            };
            health::health(&inventory, output).unwrap().0
        }
        other => panic!("{other:?}"),
    }
}

fn widest(text: &str) -> usize {
    text.lines()
        .map(drivebay_common::table::width)
        .max()
        .unwrap()
}

#[test]
fn screens_of_24_drives_are_as_they_are_kept() {
    for line in [
        &["drives"][..],
        &["health"],
        &["volume", "list"],
        &["snapshots"],
    ] {
        for (name, width) in [("80", Some(80)), ("200", Some(200)), ("pipe", None)] {
            let file = format!("{}-{name}.txt", line.join("-"));
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("src/screens")
                .join(&file);
            let text = shown(line, width, None);
            if std::env::var_os("DRIVEBAY_UPDATE").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let kept = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(text, kept, "{file}; DRIVEBAY_UPDATE=1 writes it anew");
            if let Some(width) = width {
                assert!(widest(&text) <= width, "{file}:\n{text}");
            }
        }
    }
}

#[test]
fn each_drive_has_one_line_in_natural_order_and_the_last_one_adds_them_up() {
    let text = shown(&["drives"], Some(80), None);
    let rows: Vec<&str> = text.lines().skip(1).take(24).collect();
    let devices: Vec<&str> = rows
        .iter()
        .map(|row| row.split_whitespace().nth(1).unwrap())
        .collect();
    let at = |name: &str| devices.iter().position(|device| *device == name).unwrap();
    assert!(
        at("nvme4n1") < at("nvme10n1") && at("sdz") < at("sdaa"),
        "{text}"
    );
    assert_eq!(at("nvme11n1"), 23, "no class wants it: {text}");
    assert_eq!(at("-"), 22, "missing: {text}");
    assert!(
        text.starts_with("DRIVE ") && text.lines().next().unwrap().contains(" USE%"),
        "{text}"
    );
    assert_eq!(
        text.matches("PendingSectors (sds, sdab): sectors wait")
            .count(),
        1,
        "{text}"
    );
    let last =
        "\n24 drives: 17 GOOD, 2 SUSPECT, 2 BAD, 1 missing, 2 not used; 86.7 of 223 TiB\n  used\n";
    assert!(text.ends_with(last), "{text}");
}

#[test]
fn a_watched_list_fits_the_height_with_its_header_and_the_worst_first() {
    for line in [&["drives", "--watch"][..], &["volume", "ls", "--watch"]] {
        let text = shown(line, Some(80), Some(22));
        assert!(text.lines().count() <= 22, "{text}");
        let mut lines = text.lines();
        assert!(lines.next().unwrap().contains(" USE%"), "{text}");
        let first = lines.next().unwrap();
        assert!(
            first.contains("missing") || first.contains("INACCESSIBLE"),
            "{text}"
        );
        let of = if line[0] == "drives" { 24 } else { 40 };
        let more = text
            .lines()
            .find_map(|line| line.strip_prefix('+')?.strip_suffix(" more"));
        assert_eq!(more.unwrap().parse::<usize>().unwrap(), of - 17, "{text}");
    }
}

#[test]
fn what_health_reports_is_what_the_lists_call_abnormal() {
    let health: serde_json::Value =
        serde_json::from_str(&shown(&["health", "-o", "json"], None, None)).unwrap();
    let of = |kind: &str, key: &str| {
        let problems = health["problems"].as_array().unwrap().iter();
        let mut values: Vec<String> = problems
            .filter(|problem| problem["kind"] == kind)
            .map(|problem| problem[key].as_str().unwrap().to_owned())
            .collect();
        values.sort();
        values
    };
    let listed = |line: &[&str]| {
        let text = shown(line, None, None);
        let mut names: Vec<String> = text.lines().map(str::to_owned).collect();
        names.sort();
        names
    };
    assert_eq!(
        of("drive", "id"),
        listed(&["drives", "--abnormal", "-o", "name"])
    );
    assert_eq!(of("drive", "id").len(), 5);
}
