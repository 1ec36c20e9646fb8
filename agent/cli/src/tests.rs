//! Literal tables and JSON: people read them, scripts parse them.

use drivebay_proto::agent::{
    Condition, CreatedFor, Drive, DriveHealth, HandMount, InventoryUpdate, Reading, Reject,
    SmartReport, Volume, VolumeUsage,
};

use clap::Parser;
use drivebay_common::{paint::Paint, terminal::Terminal};

use super::{
    Cli, Command, CommandError, VolumeCommand,
    args::Format,
    claim_plan::{self, Host, verdicts::Polled},
    drives,
    table::human_size,
    volumes,
    watch::OutputTarget,
};
use drivebay_config::{self as config, HostFacts};
use drivebay_discovery::{
    claim::Judgement,
    scan::{ProbeResults, Scanned},
};
use drivebay_model::{
    Contents, DriveFacts, DriveId, Extent, Label, Media, RejectCode, Transport, Verdict,
};

const GIB: u64 = 1 << 30;
const NOW: u64 = 1_000_000;

fn target_of_width(width: Option<usize>) -> OutputTarget {
    OutputTarget {
        now: NOW,
        terminal: Terminal {
            width,
            ..Terminal::NONE
        },
    }
}

fn shown(
    inventory: &InventoryUpdate,
    line: &[&str],
    target: OutputTarget,
) -> Result<String, CommandError> {
    match Cli::parse_from(["x"].iter().chain(line)).command {
        Command::Drives(args) => drives::render(inventory, &args, target),
        Command::Volumes(args) => volumes::render(inventory, &[], &[], &args, target),
        other => panic!("{other:?}"),
    }
}

/// Output to a pipe.
fn piped(inventory: &InventoryUpdate, line: &[&str]) -> String {
    shown(inventory, line, target_of_width(None)).unwrap()
}

fn drive(id: &str, kernel_name: &str, state: &str) -> Drive {
    Drive {
        id: id.into(),
        kernel_name: kernel_name.into(),
        size_bytes: 3_840_755_982_336,
        logical_sector_bytes: 512,
        physical_sector_bytes: 4096,
        media: "nvme".into(),
        transport: "nvme".into(),
        model: "MZWLJ3T8HBLS".into(),
        serial: "S4YPNC0R".into(),
        firmware: "EPK9".into(),
        state: state.into(),
        verdict: "UNKNOWN".into(),
        ..Drive::default()
    }
}

fn inventory() -> InventoryUpdate {
    let mut claimed = drive("eui-0025385b21404321", "nvme0n1", "claimed");
    claimed.class = "fast".into();
    claimed.free_bytes = 3000 * GIB;
    claimed.largest_free_bytes = 2000 * GIB;
    claimed.notes = vec!["the backup table was repaired".into()];
    claimed.verdict = "GOOD".into();
    claimed.health = Some(DriveHealth {
        smart: Some(SmartReport {
            verdict_since: NOW - 3 * 86_400,
            readings: [("temperature-celsius", 41), ("wear-percent", 7)]
                .map(|(name, value)| Reading {
                    name: name.into(),
                    value,
                })
                .into(),
            ..SmartReport::default()
        }),
        ..DriveHealth::default()
    });
    let mut rejected = drive("wwn-0x5000c500a1b2c3d4", "sda", "rejected");
    rejected.media = "hdd".into();
    rejected.rejects = vec![
        Reject {
            code: "Filesystem".into(),
            detail: "ext4, label \"backup\"".into(),
        },
        Reject {
            code: "Mounted".into(),
            detail: "/srv".into(),
        },
        Reject {
            code: "NotSelected".into(),
            detail: String::new(),
        },
    ];
    let mut taken = drive("wwn-0x5000c500a1b2c3d5", "sdb", "rejected");
    taken.class = "bulk".into();
    taken.rejects = vec![Reject {
        code: "Filesystem".into(),
        detail:
            "xfs, label \"scratch space of the batch jobs\"; wipe the drive if it is not needed"
                .into(),
    }];
    let mut noise = drive("loop-0", "loop0", "rejected");
    noise.rejects = vec![Reject {
        code: "NotADisk".into(),
        detail: "loop".into(),
    }];
    InventoryUpdate {
        node_id: "node7".into(),
        ready: true,
        drives: vec![
            claimed,
            rejected,
            taken,
            noise,
            drive("wwn-gone", "", "missing"),
        ],
        ..InventoryUpdate::default()
    }
}

#[test]
fn drives_are_shown_with_every_reason_and_those_that_no_class_wants_last_in_one_line() {
    assert_eq!(
        piped(&inventory(), &["drives"]),
        "\
DRIVE                   DEVICE   MEDIA     SIZE  USE%  STATE     CLASS     FREE  HEALTH   TEMP  WEAR  SINCE  REASON
eui-0025385b21404321    nvme0n1  nvme   3.4 TiB     -  claimed   fast   2.9 TiB  GOOD      41C    7%     3d  -
wwn-0x5000c500a1b2c3d5  sdb      nvme   3.4 TiB     -  rejected  bulk         -  UNKNOWN     -     -      -  Filesystem
wwn-gone                -        nvme   3.4 TiB     -  missing   -            -  UNKNOWN     -     -      -  DriveMissing
wwn-0x5000c500a1b2c3d4  sda      hdd    3.4 TiB     -  rejected  -            -  UNKNOWN     -     -      -  Filesystem, Mounted

Reasons:
  Note (nvme0n1): the backup table was repaired
  Filesystem (sdb): xfs, label \"scratch space of the batch jobs\"; wipe the drive if it is not needed
  DriveMissing (wwn-gone): it is not found on this node; plug it in again. If it is gone for good, so are the volumes on it: delete them

4 drives: 1 GOOD, 1 missing, 2 not used; 0 B of 2.9 TiB used
(1 virtual device is not shown; --all shows it)
"
    );
    // Named explicitly: all details.
    let one = piped(&inventory(), &["drives", "sda"]);
    assert!(
        one.contains("\n    Mounted: /srv\n    NotSelected\n"),
        "{one}"
    );
}

#[test]
fn a_narrow_terminal_breaks_reasons_and_leaves_columns_out() {
    let text = shown(&inventory(), &["drives"], target_of_width(Some(80))).unwrap();
    assert_eq!(
        text,
        "\
DRIVE              DEVICE      SIZE  USE%  STATE     HEALTH   REASON
eui-0025…21404321  nvme0n1  3.4 TiB     -  claimed   GOOD     -
wwn-0x50…a1b2c3d5  sdb      3.4 TiB     -  rejected  UNKNOWN  Filesystem
wwn-gone           -        3.4 TiB     -  missing   UNKNOWN  DriveMissing
wwn-0x50…a1b2c3d4  sda      3.4 TiB     -  rejected  UNKNOWN  Filesystem, Mount…
(SINCE, WEAR, MEDIA, TEMP, CLASS, FREE do not fit; -o wide shows them)

Reasons:
  Note (nvme0n1): the backup table was repaired
  Filesystem (sdb): xfs, label \"scratch space of the batch jobs\"; wipe the drive
    if it is not needed
  DriveMissing (wwn-gone): it is not found on this node; plug it in again. If it
    is gone for good, so are the volumes on it: delete them

4 drives: 1 GOOD, 1 missing, 2 not used; 0 B of 2.9 TiB used
(1 virtual device is not shown; --all shows it)
"
    );
    let text = shown(&inventory(), &["drives"], target_of_width(Some(200))).unwrap();
    assert_eq!(text, piped(&inventory(), &["drives"]));
}

#[test]
fn health_is_coloured_on_a_terminal() {
    let mut inventory = inventory();
    inventory.drives.truncate(1);
    inventory.drives[0].verdict = "BAD".into();
    let painted = OutputTarget {
        terminal: Terminal {
            width: Some(200),
            paint: Paint::COLOURED,
            ..Terminal::NONE
        },
        ..target_of_width(None)
    };
    let text = shown(&inventory, &["drives"], painted).unwrap();
    assert!(text.contains("  \u{1b}[31mBAD\u{1b}[0m  "), "{text}");
}

#[test]
fn lists_are_filtered_sorted_and_named() {
    let inventory = inventory();
    let names = |line: &[&str]| {
        let mut words = vec!["drives", "-o", "name"];
        words.extend(line);
        piped(&inventory, &words)
    };
    assert_eq!(
        names(&[]),
        "eui-0025385b21404321\nwwn-0x5000c500a1b2c3d5\nwwn-gone\nwwn-0x5000c500a1b2c3d4\n"
    );
    assert_eq!(names(&["--class", "bulk"]), "wwn-0x5000c500a1b2c3d5\n");
    assert_eq!(names(&["--abnormal"]), "wwn-gone\n");
    assert_eq!(
        names(&["--sort", "device"]),
        "eui-0025385b21404321\nwwn-0x5000c500a1b2c3d5\nwwn-gone\nwwn-0x5000c500a1b2c3d4\n"
    );
    assert_eq!(
        names(&["nvme0n1", "wwn-g"]),
        "eui-0025385b21404321\nwwn-gone\n"
    );
    assert_eq!(names(&["loop0"]), "loop-0\n");
    let rows = piped(&inventory, &["drives", "--no-headers", "--class", "fast"]);
    assert!(rows.starts_with("eui-0025385b21404321  nvme0n1"), "{rows}");
    assert_eq!(rows.lines().count(), 1, "{rows}");
    assert_eq!(
        piped(&inventory, &["drives", "--class", "none"]),
        "none of 5 drives\n"
    );
    assert_eq!(
        piped(&inventory, &["drives", "--class", "none", "--no-headers"]),
        ""
    );
    let error = shown(&inventory, &["drives", "sdz"], target_of_width(None)).unwrap_err();
    assert_eq!(error.code(), 6, "{error}");
}

#[test]
fn an_empty_loop_device_is_nobodys_drive_and_a_real_one_without_size_is_shown() {
    assert!(drives::is_nobodys(&["ZeroSize", "NotSelected"], true));
    assert!(!drives::is_nobodys(&["ZeroSize", "NotSelected"], false));
    assert!(!drives::is_nobodys(&["Filesystem"], true));
    assert_eq!(
        drives::hidden_note(2),
        "(2 virtual devices are not shown; --all shows them)\n"
    );
}

#[test]
fn wide_and_all_show_the_rest() {
    let mut inventory = inventory();
    inventory.drives.truncate(4);
    inventory.drives.drain(1..3);
    inventory.drives[0].pcie_slot = "7".into();
    inventory.ready = false;
    assert_eq!(
        shown(&inventory, &["drives", "--all", "-o", "wide"], target_of_width(Some(80))).unwrap(),
        "\
DRIVE                 DEVICE   MEDIA     SIZE  USE%  STATE     CLASS     FREE  HEALTH   TEMP  WEAR  SINCE  LARGEST  BUS   MODEL         SERIAL    BAY          FIRMWARE    SECTOR  REASON
loop-0                loop0    nvme   3.4 TiB     -  rejected  -            -  UNKNOWN     -     -      -        -  nvme  MZWLJ3T8HBLS  S4YPNC0R  -            EPK9      512/4096  NotADisk
    NotADisk: loop
eui-0025385b21404321  nvme0n1  nvme   3.4 TiB     -  claimed   fast   2.9 TiB  GOOD      41C    7%     3d  1.9 TiB  nvme  MZWLJ3T8HBLS  S4YPNC0R  PCIe slot 7  EPK9      512/4096  -
    note: the backup table was repaired
2 drives: 1 GOOD, 1 not used; 0 B of 2.9 TiB used
(the agent is still scanning its drives)
"
    );
}

#[test]
fn json_has_every_drive_in_bytes_under_stable_names() {
    let mut inventory = inventory();
    inventory.drives.remove(0);
    inventory.drives.truncate(1);
    assert_eq!(
        piped(&inventory, &["drives", "-o", "json"]),
        r#"{
  "node": "node7",
  "ready": true,
  "drives": [
    {
      "id": "wwn-0x5000c500a1b2c3d4",
      "kernel_name": "sda",
      "state": "rejected",
      "class": "",
      "verdict": "UNKNOWN",
      "media": "hdd",
      "transport": "nvme",
      "model": "MZWLJ3T8HBLS",
      "serial": "S4YPNC0R",
      "wwn": "",
      "firmware": "EPK9",
      "size_bytes": 3840755982336,
      "usable_bytes": 0,
      "free_bytes": 0,
      "largest_free_bytes": 0,
      "unzeroed_bytes": 0,
      "logical_sector_bytes": 512,
      "physical_sector_bytes": 4096,
      "rejects": [
        {
          "code": "Filesystem",
          "detail": "ext4, label \"backup\""
        },
        {
          "code": "Mounted",
          "detail": "/srv"
        },
        {
          "code": "NotSelected",
          "detail": ""
        }
      ],
      "notes": [],
      "trouble": "",
      "health": null,
      "cordon": null,
      "enclosure": "",
      "slot": "",
      "pcie_slot": ""
    }
  ]
}
"#
    );
}

fn volume(name: &str, mode: &str, fs_type: &str, state: &str) -> Volume {
    Volume {
        id: "7b1d5c1e-0000-4000-8000-000000000001@node7".into(),
        name: name.into(),
        class: "fast".into(),
        drive: "wwn-a".into(),
        size_bytes: 10 * GIB,
        mode: mode.into(),
        fs_type: fs_type.into(),
        state: state.into(),
        device: "sda2".into(),
        ..Volume::default()
    }
}

fn volume_inventory() -> InventoryUpdate {
    let mut used = volume("pvc-数据", "mount", "xfs", "ready");
    used.published = true;
    used.mounts = vec!["/srv/db".into()];
    used.pods = vec!["shop/db-0".into()];
    used.created_at = NOW - 2 * 86_400;
    used.created_for = Some(CreatedFor {
        claim: "data-db-0".into(),
        namespace: "shop".into(),
        persistent_volume: "pv-1".into(),
        ..CreatedFor::default()
    });
    used.usage = Some(VolumeUsage {
        total_bytes: 10 * GIB,
        used_bytes: 15 * GIB / 2,
        available_bytes: 2 * GIB,
        age_seconds: 4,
    });
    let mut erasing = volume("pvc-2", "block", "", "erasing");
    erasing.id = "7b1d5c1e-0000-4000-8000-000000000002@node7".into();
    erasing.device = String::new();
    erasing.erased_bytes = 4 * GIB;
    erasing.erase_eta_seconds = 3700;
    let mut bad = volume("pvc-3", "mount", "ext4", "missing");
    bad.id = "7b1d5c1e-0000-4000-8000-000000000003@node7".into();
    bad.device = String::new();
    bad.drive = "wwn-b".into();
    bad.conditions = vec![
        Condition {
            abnormal: true,
            status: "DEGRADED".into(),
            reason: "ReadOnly".into(),
            message: "mounted read-only".into(),
            since: 0,
        },
        Condition {
            abnormal: true,
            status: "INACCESSIBLE".into(),
            reason: "DriveMissing".into(),
            message: "drive wwn-a is not here".into(),
            since: 0,
        },
    ];
    InventoryUpdate {
        node_id: "node7".into(),
        ready: true,
        volumes: vec![used, erasing, bad],
        ..InventoryUpdate::default()
    }
}

#[test]
fn volumes_are_shown_with_their_use_and_their_conditions() {
    assert_eq!(
        piped(&volume_inventory(), &["volumes"]),
        "\
NAME      CLASS    SIZE     USED  AVAIL  USE%  FS     STATE                    CONDITION     AGE  USED-BY         DRIVE  REASON
pvc-2     fast   10 GiB        -      -     -  block  erasing 40%, 1h01m left  ok              -  -               wwn-a  -
pvc-3     fast   10 GiB        -      -     -  ext4   missing                  INACCESSIBLE    -  -               wwn-b  ReadOnly, DriveMissing
pvc-数据  fast   10 GiB  7.5 GiB  2 GiB   79%  xfs    ready, in use            ok             2d  shop/data-db-0  wwn-a  -

Reasons:
  ReadOnly (pvc-3): mounted read-only
  DriveMissing (pvc-3): drive wwn-a is not here
"
    );
    let wide = piped(&volume_inventory(), &["volumes", "-o", "wide"]);
    let row = wide.lines().last().unwrap();
    assert!(row.ends_with("  CSI   shop/db-0  /srv/db     -"), "{wide}");
    let mut unclaimed = volume_inventory();
    unclaimed.volumes[0].created_for = None;
    let shown_for = piped(&unclaimed, &["volumes"]);
    assert!(shown_for.contains("  pod shop/db-0  "), "{shown_for}");
    assert_eq!(
        piped(&InventoryUpdate::default(), &["volumes"]),
        "no volumes\n(the agent is still scanning its drives)\n"
    );
    assert_eq!(
        shown(&volume_inventory(), &["volumes"], target_of_width(Some(80))).unwrap(),
        "\
NAME        SIZE  USE%  CONDITION     USED-BY         DRIVE  REASON
pvc-2     10 GiB     -  ok            -               wwn-a  -
pvc-3     10 GiB     -  INACCESSIBLE  -               wwn-b  ReadOnly, DriveMis…
pvc-数据  10 GiB   79%  ok            shop/data-db-0  wwn-a  -
(AGE, CLASS, AVAIL, USED, FS, STATE do not fit; -o wide shows them)

Reasons:
  ReadOnly (pvc-3): mounted read-only
  DriveMissing (pvc-3): drive wwn-a is not here
"
    );
}

#[test]
fn a_volume_mounted_by_hand_is_used_by_its_mount_whether_it_is_mounted_now_or_not() {
    let of = |name: &str| Volume {
        id: format!("{name}@n"),
        manual: true,
        ..volume(name, "mount", "ext4", "ready")
    };
    let inventory = InventoryUpdate {
        ready: true,
        volumes: vec![of("spare"), of("logs"), of("db")],
        drives: vec![drive("wwn-a", "sda", "claimed")],
        ..InventoryUpdate::default()
    };
    let mount = |name: &str, mounted| HandMount {
        volume_id: format!("{name}@n"),
        name: name.into(),
        path: format!("/srv/{name}"),
        persist: true,
        mounted,
        ..HandMount::default()
    };
    let mounts = [
        mount("db", true),
        mount("logs", false),
        mount("lost", false),
    ];
    let shown = |line: &[&str]| match Cli::parse_from(["x", "volume"].iter().chain(line)).command {
        Command::Volume(VolumeCommand::List(args)) => {
            volumes::render(&inventory, &mounts, &[], &args, target_of_width(None)).unwrap()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        shown(&["ls"]),
        "\
NAME   CLASS    SIZE  USED  AVAIL  USE%  FS    STATE  CONDITION  AGE  USED-BY                                 DRIVE  REASON
db     fast   10 GiB     -      -     -  ext4  ready  ok           -  /srv/db (persisted)                     sda    -
logs   fast   10 GiB     -      -     -  ext4  ready  ok           -  /srv/logs (persisted, not mounted now)  sda    -
spare  fast   10 GiB     -      -     -  ext4  ready  ok           -  -                                       sda    -
(lost is to be mounted at /srv/lost, and there is no such volume; forget it with `drivebay-agent volume unmount /srv/lost`)
"
    );
    let json: serde_json::Value = serde_json::from_str(&shown(&["list", "-o", "json"])).unwrap();
    assert_eq!(json["volumes"][0]["manual"], true);
    assert_eq!(json["mounts"][1]["mounted"], false);
}

#[test]
fn volumes_are_found_by_every_name_and_filtered() {
    let mut inventory = volume_inventory();
    inventory.drives = vec![
        drive("wwn-a", "sda", "claimed"),
        drive("wwn-b", "", "missing"),
    ];
    let names = |line: &[&str]| {
        let mut words = vec!["volumes", "-o", "name"];
        words.extend(line);
        piped(&inventory, &words)
    };
    for typed in [
        "pvc-数据",
        "pv-1",
        "shop/data-db-0",
        "sda2",
        "/dev/sda2",
        "/srv/db",
    ] {
        assert_eq!(names(&[typed]), "pvc-数据\n", "{typed}");
    }
    assert_eq!(names(&["7b1d5c1e-0000-4000-8000-000000000003"]), "pvc-3\n");
    assert_eq!(names(&["pvc-"]), "pvc-2\npvc-3\npvc-数据\n");
    assert_eq!(names(&["--drive", "sda"]), "pvc-2\npvc-数据\n");
    assert_eq!(names(&["--abnormal"]), "pvc-3\n");
    assert_eq!(names(&["--sort", "condition"]), "pvc-3\npvc-2\npvc-数据\n");
    let error = shown(
        &inventory,
        &["volumes", "--drive", "wwn"],
        target_of_width(None),
    )
    .unwrap_err();
    assert_eq!(error.code(), 2, "{error}");
}

#[test]
fn yaml_has_what_json_has() {
    for (list, inventory) in [("drives", inventory()), ("volumes", volume_inventory())] {
        let json: serde_json::Value =
            serde_json::from_str(&piped(&inventory, &[list, "-o", "json"])).unwrap();
        let yaml = piped(&inventory, &[list, "-o", "yaml"]);
        assert!(
            yaml.starts_with(&format!("node: node7\nready: true\n{list}:\n- id: ")),
            "{yaml}"
        );
        let first = yaml.split("\n- ").nth(1).unwrap();
        for key in json[list][0].as_object().unwrap().keys() {
            assert!(first.contains(&format!("{key}:")), "{key} in {first}");
        }
        let items = yaml.lines().filter(|line| line.starts_with("- ")).count();
        assert_eq!(items, json[list].as_array().unwrap().len(), "{yaml}");
    }
}

#[test]
fn what_is_for_programs_repeats_no_command_line() {
    let is_for_programs = |line: &[&str]| {
        Cli::parse_from(["x"].iter().chain(line))
            .command
            .is_for_programs()
    };
    for list in [
        &["drives"][..],
        &["volumes"],
        &["volume", "list"],
        &["snapshots"],
        &["snapshot", "list"],
        &["snapshot", "create", "db"],
        &["health"],
        &["drive", "show", "sda"],
        &["volume", "show", "db"],
        &["volume", "create", "db", "--size", "1GiB"],
        &["volume", "expand", "db", "--size", "1GiB"],
        &["claim-plan"],
        &["rules"],
        &["smart", "explain", "-"],
    ] {
        assert!(!is_for_programs(list), "{list:?}");
        for format in ["json", "yaml"] {
            let line = [list, &["-o", format]].concat();
            assert!(is_for_programs(&line), "{line:?}");
        }
    }
    assert!(is_for_programs(&["volume", "pv", "db"]));
    assert!(!is_for_programs(&["drives", "-o", "name"]));
}

#[test]
fn volume_json_is_in_bytes_and_sorted() {
    let mut inventory = volume_inventory();
    inventory.volumes.truncate(2);
    let erasing = &mut inventory.volumes[1];
    erasing.parameters = [("fsType", "xfs"), ("class", "fast")]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
    erasing.conditions = vec![Condition {
        abnormal: false,
        message: "fine".into(),
        ..Condition::default()
    }];
    inventory.volumes.remove(0);
    assert_eq!(
        piped(&inventory, &["volumes", "-o", "json"]),
        r#"{
  "node": "node7",
  "ready": true,
  "volumes": [
    {
      "id": "7b1d5c1e-0000-4000-8000-000000000002@node7",
      "name": "pvc-2",
      "class": "fast",
      "drive": "wwn-a",
      "device": "",
      "size_bytes": 10737418240,
      "mode": "block",
      "fs_type": "",
      "state": "erasing",
      "in_use": false,
      "places": [],
      "generation": null,
      "mounts": [],
      "pods": [],
      "conditions": [
        {
          "abnormal": false,
          "status": "",
          "reason": "",
          "message": "fine",
          "since": null
        }
      ],
      "checks": [],
      "running_check": null,
      "erased_bytes": 4294967296,
      "erase_eta_seconds": 3700,
      "parameters": {
        "class": "fast",
        "fsType": "xfs"
      },
      "manual": false,
      "created_at": null,
      "created_for": null,
      "usage": null
    }
  ],
  "mounts": []
}
"#
    );
}

fn scanned(name: &str, judgement: Judgement) -> Scanned {
    Scanned {
        facts: DriveFacts {
            id: DriveId(format!("wwn-{name}")),
            identity_is_stable: true,
            kernel_name: name.into(),
            major: 8,
            minor: 0,
            diskseq: 1,
            model: "M".into(),
            serial: "S".into(),
            wwn: String::new(),
            firmware: String::new(),
            size_bytes: 1024 * GIB,
            logical_sector: 512,
            physical_sector: 512,
            media: Media::Hdd,
            transport: Transport::Sas,
            read_only: false,
            removable: false,
            hidden: false,
            zoned: false,
            is_partition: false,
            virtual_kind: None,
            not_running: None,
            holders: Vec::new(),
            partitions: Vec::new(),
            sysfs_path: String::new(),
            backing_file: None,
            bay: Default::default(),
        },
        seen: ProbeResults::default(),
        judgement,
    }
}

fn plan() -> (config::Config, Vec<Scanned>) {
    let text = "[[class]]\nname = 'bulk'\n[class.select]\nmedia = 'hdd'\n";
    let here = HostFacts {
        hostname: "node7".into(),
        has_dir: |_| false,
        check_mount_options: |_, _| drivebay_fs::kernel_options::OptionsCheck::Accepted,
    };
    let config = config::parse(text, &here).unwrap().config;
    let rejected = |reasons: &[(RejectCode, &str)]| Judgement::Rejected {
        class: Some("bulk".into()),
        reasons: reasons
            .iter()
            .map(|(code, detail)| drivebay_model::Reject {
                code: *code,
                detail: (*detail).into(),
            })
            .collect(),
    };
    let mut claimed = scanned("sdb", Judgement::Claimed);
    claimed.seen.contents = Some(Contents {
        layout: drivebay_model::Layout::Partition,
        sequence: 1,
        read_at: Default::default(),
        label: Label {
            drive_uuid: uuid::Uuid::nil(),
            cluster: "default".into(),
            node: "node7".into(),
            class: "bulk".into(),
            drive_id: DriveId("wwn-sdb".into()),
            cordon: None,
        },
        volumes: Vec::new(),
        free: vec![Extent {
            start: 8 << 20,
            len: 1000 * GIB,
        }],
        space: Default::default(),
        usable_bytes: 1000 * GIB,
        extent_bytes: 1 << 20,
        table_full: false,
        unmarked_bytes: 0,
        deleted_stores: Vec::new(),
        strangers: Vec::new(),
        notes: vec!["record slot B was rewritten".into()],
    });
    let drives = vec![
        scanned(
            "sda",
            rejected(&[
                (RejectCode::Mounted, "/"),
                (RejectCode::SystemDrive, "/, /boot"),
            ]),
        ),
        claimed,
        scanned(
            "sdc",
            Judgement::Available {
                class: "bulk".into(),
            },
        ),
        scanned(
            "sdd",
            rejected(&[(RejectCode::ProbeFailed, "drive wwn-sdd is stuck")]),
        ),
        scanned("loop0", rejected(&[(RejectCode::NotADisk, "loop")])),
    ];
    (config, drives)
}

#[test]
fn a_plan_shows_what_would_happen_to_each_drive_and_why() {
    let (config, drives) = plan();
    assert_eq!(
        claim_plan::render(
            &config,
            &drives,
            &Host::default(),
            Format::Table,
            false,
            Terminal::NONE
        )
        .unwrap(),
        "\
Would be claimed when a volume needs it:
DRIVE    DEVICE  MEDIA   SIZE  CLASS
wwn-sdc  sdc     hdd    1 TiB  bulk

Claimed already:
DRIVE    DEVICE  MEDIA   SIZE  CLASS
wwn-sdb  sdb     hdd    1 TiB  bulk
    0 volumes, 1000 GiB free
    note: record slot B was rewritten

Not used, because:
DRIVE    DEVICE  MEDIA   SIZE  CLASS
wwn-sda  sda     hdd    1 TiB  bulk
    Mounted: /
    SystemDrive: /, /boot
wwn-sdd  sdd     hdd    1 TiB  bulk
    ProbeFailed: drive wwn-sdd is stuck

1 of 4 drives would be claimed (1 TiB). Nothing was written.
(1 virtual device is not shown; --all shows it)
"
    );
}

#[test]
fn a_blank_drive_that_is_bad_is_not_called_claimable() {
    let (config, drives) = plan();
    let polled = Polled {
        verdict: Verdict::Bad,
        findings: vec!["PendingSectorsMany".into()],
    };
    let host = Host {
        verdicts: [(DriveId("wwn-sdc".into()), polled)].into_iter().collect(),
        lvm_unavailable: None,
    };
    let shown = |format| {
        claim_plan::render(&config, &drives, &host, format, false, Terminal::NONE).unwrap()
    };
    let text = shown(Format::Table);
    assert!(
        text.starts_with(
            "\
Blank, and gets no volumes because of its health:
DRIVE    DEVICE  MEDIA   SIZE  CLASS  REASON
wwn-sdc  sdc     hdd    1 TiB  bulk   BAD: PendingSectorsMany
"
        ),
        "{text}"
    );
    assert!(
        text.contains("\n0 of 4 drives would be claimed (0 B). Nothing was written.\n"),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&shown(Format::Json)).unwrap();
    let drive = &json["drives"][2];
    assert_eq!(
        (&drive["outcome"], &drive["verdict"]),
        (&"unfit".into(), &"BAD".into())
    );
    assert_eq!(json["drives"][1]["verdict"], serde_json::Value::Null);
}

#[test]
fn a_blank_drive_whose_layout_this_host_lacks_is_not_called_claimable() {
    let (config, drives) = plan();
    let host = Host {
        lvm_unavailable: Some("lvm is not installed; install package lvm2".into()),
        ..Default::default()
    };
    let shown = |format| {
        claim_plan::render(&config, &drives, &host, format, false, Terminal::NONE).unwrap()
    };
    let text = shown(Format::Table);
    let title = text.lines().next().unwrap();
    for part in ["install package lvm2", "layout = \"partition\""] {
        assert!(title.contains(part), "{text}");
    }
    assert!(text.contains("\nwwn-sdc  sdc  "), "{text}");
    assert!(text.contains("\n0 of 4 drives would be claimed"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&shown(Format::Json)).unwrap();
    assert_eq!(json["drives"][2]["outcome"], "layout-unavailable");
    assert!(json["lvm_unavailable"].is_string());
}

#[test]
fn a_plan_in_json_has_all_drives() {
    let (config, drives) = plan();
    let text = claim_plan::render(
        &config,
        &drives,
        &Host::default(),
        Format::Json,
        false,
        Terminal::NONE,
    )
    .unwrap();
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(plan["node"], "node7");
    let outcomes: Vec<&str> = plan["drives"]
        .as_array()
        .unwrap()
        .iter()
        .map(|drive| drive["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(
        outcomes,
        [
            "not-used",
            "claimed",
            "would-be-claimed",
            "not-used",
            "not-used"
        ]
    );
    assert_eq!(plan["drives"][0]["rejects"][1]["code"], "SystemDrive");
    assert_eq!(plan["drives"][1]["volumes"], 0);
    assert_eq!(plan["drives"][2]["size_bytes"], 1024 * GIB);
}

#[test]
fn a_right_config_is_summed_up() {
    let text = include_str!("../../drivebay.example.toml");
    let here = HostFacts {
        hostname: "node7".into(),
        has_dir: |_| true,
        check_mount_options: |_, _| drivebay_fs::kernel_options::OptionsCheck::Accepted,
    };
    let config = config::parse(text, &here).unwrap().config;
    assert_eq!(
        super::check_config::summary(&config),
        "\
OK
  node         node7 (cluster default)
  driver       csi.drivebay.io
  CSI socket   /var/lib/kubelet/plugins/csi.drivebay.io/csi.sock
  agent socket /run/drivebay/agent.sock
  kubelet      registers in /var/lib/kubelet/plugins_registry, CSI socket there: /var/lib/kubelet/plugins/csi.drivebay.io/csi.sock
  controllers  none is dialled
  metrics      http://127.0.0.1:9810
  probes       off
  state        /var/lib/drivebay
  rescan       every 5m
  erasing      at most 200 MiB/s a drive; quarantine 1d
  class        fast: ext4, media nvme, at least 93.1 GiB, layout lvm
  class        bulk: xfs, media hdd, at least 931 GiB, layout lvm
"
    );
    assert_eq!(human_size(100_000_000_000), "93.1 GiB");
}

#[test]
fn where_the_operator_knows_better_is_summed_up_too() {
    let text = "\
[[smart.device]]
match = 'wwn-0x6*'
type = 'megaraid,3'
[[health.override]]
drive = 'wwn-a'
verdict = 'good'
reason = 'a known batch'
";
    let here = HostFacts {
        hostname: "node7".into(),
        has_dir: |_| true,
        check_mount_options: |_, _| drivebay_fs::kernel_options::OptionsCheck::Accepted,
    };
    let summary = super::check_config::summary(&config::parse(text, &here).unwrap().config);
    for line in [
        "\n  SMART        wwn-0x6* is asked as megaraid,3\n",
        "\n  override     drive wwn-a is GOOD: a known batch\n",
    ] {
        assert!(summary.contains(line), "{summary}");
    }
}
