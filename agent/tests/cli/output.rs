//! Output of the program on a terminal of 80 and of 200 columns, and through a pipe.

use std::{process::Stdio, time::Duration};

use drivebay_proto::agent::{
    Condition, CreatedFor, Drive, DriveHealth, Finding, InventoryUpdate, Reading, Reject,
    SmartReport, SnapshotGroup, Volume, VolumeSnapshot, VolumeUsage,
};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use unicode_width::UnicodeWidthStr;

use super::fake::{Served, err, on_terminal, out, run, run_against, serve_inventory};

const LONG: &str = "ext4, label \"old backups of the database machines in the second rack\"; if the data is not needed, wipe the drive";
const BAD: &str =
    "40 or more sectors wait to be read or rewritten; move the data off it and replace the drive";

fn inventory() -> InventoryUpdate {
    let drive = |id: &str, kernel_name: &str, state: &str, class: &str| Drive {
        id: id.into(),
        kernel_name: kernel_name.into(),
        serial: format!("SERIAL-{kernel_name}"),
        model: "ST4000NM000A".into(),
        media: "hdd".into(),
        size_bytes: 4_000_787_030_016,
        state: state.into(),
        class: class.into(),
        verdict: "GOOD".into(),
        ..Drive::default()
    };
    let reject = |code: &str, detail: &str| Reject {
        code: code.into(),
        detail: detail.into(),
    };
    let mut failing = drive("wwn-0x5000c500a1b2c3d4", "sda", "claimed", "bulk");
    failing.verdict = "BAD".into();
    failing.health = Some(DriveHealth {
        findings: vec![Finding {
            code: "PendingSectorsMany".into(),
            message: BAD.into(),
            since: 1_700_000_000,
            acknowledged: false,
        }],
        smart: Some(SmartReport {
            answered_at: 1_700_000_000,
            readings: vec![Reading {
                name: "temperature-celsius".into(),
                value: 38,
            }],
            ..SmartReport::default()
        }),
        ..DriveHealth::default()
    });
    let mut unwanted = drive("wwn-0x5000c500a1b2c3d5", "sdb", "rejected", "");
    unwanted.verdict = "UNKNOWN".into();
    unwanted.rejects = vec![reject("Filesystem", LONG), reject("NotSelected", "")];
    let mut used = drive("wwn-0x5000c500a1b2c3d6", "sdc", "rejected", "bulk");
    used.rejects = vec![reject("Filesystem", LONG)];
    let volume = Volume {
        id: "7b1d5c1e-0000-4000-8000-000000000001@node7".into(),
        name: "pvc-5f6a1f0e-43a5-4c0e-8f8e-3a7d2f7f1c11".into(),
        class: "bulk".into(),
        drive: failing.id.clone(),
        size_bytes: 100 << 30,
        mode: "mount".into(),
        fs_type: "ext4".into(),
        state: "ready".into(),
        device: "sda2".into(),
        published: true,
        conditions: vec![Condition {
            abnormal: true,
            status: "DEGRADED".into(),
            reason: "DriveFailing".into(),
            message: format!("drive wwn-0x5000c500a1b2c3d4 is failing: {BAD}"),
            since: 0,
        }],
        created_at: 1_700_000_000,
        created_for: Some(CreatedFor {
            claim: "data-db-0".into(),
            namespace: "shop".into(),
            ..CreatedFor::default()
        }),
        usage: Some(VolumeUsage {
            total_bytes: 100 << 30,
            used_bytes: 75 << 30,
            available_bytes: 25 << 30,
            age_seconds: 3,
        }),
        ..Volume::default()
    };
    InventoryUpdate {
        node_id: "node7".into(),
        full: true,
        ready: true,
        drives: vec![failing, unwanted, used],
        volumes: vec![volume],
        ..InventoryUpdate::default()
    }
}

/// Without what colours it.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain + rest
}

/// Not of a volume or drive: the width of the terminal does not break it.
fn widest(text: &str) -> usize {
    text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

const SHOWN: [&[&str]; 6] = [
    &["drives"],
    &["volumes"],
    &["volume", "list"],
    &["health"],
    &["drive", "show", "sda"],
    &["volume", "show", "pvc-5f6a1f0e"],
];

#[tokio::test]
async fn everything_fits_the_terminal_and_a_pipe_gets_it_unbroken_and_without_colours() {
    let served = serve_inventory(inventory());
    for line in SHOWN {
        for width in [80, 200] {
            let (text, _) = on_terminal(&served, width, line).await;
            let text = plain(&text);
            assert!(
                widest(&text) <= usize::from(width),
                "{line:?} at {width}:\n{text}"
            );
        }
        let (narrow, _) = on_terminal(&served, 80, line).await;
        let piped = out(&run_against(&served, line).await);
        assert!(!piped.contains('\u{1b}'), "{piped}");
        assert!(
            widest(&piped) > 80,
            "{line:?} has a line to be broken:\n{piped}"
        );
        // The same words, but for columns that are left out.
        if line.len() > 1 && line[1] == "show" {
            let words = |text: &str| plain(text).split_whitespace().map(str::to_owned).collect();
            let (narrow, piped): (Vec<String>, Vec<String>) = (words(&narrow), words(&piped));
            assert_eq!(narrow, piped, "{line:?}");
        }
    }
}

#[tokio::test]
async fn a_drive_has_one_line_and_its_reasons_are_explained_below_the_list() {
    let served = serve_inventory(inventory());
    for list in [&["drives"][..], &["drive", "list"], &["drive", "ls"]] {
        let (text, code) = on_terminal(&served, 80, list).await;
        assert_eq!(code, Some(0));
        let text = plain(&text);
        let (rows, below) = text.split_once("\nReasons:\n").unwrap();
        assert_eq!(
            rows.lines().filter(|line| line.contains("3.6 TiB")).count(),
            3,
            "{text}"
        );
        let last = rows.lines().find(|line| line.contains("  sdb  ")).unwrap();
        assert!(
            last.ends_with("  Filesystem"),
            "no class wants it, so its text is not shown: {text}"
        );
        let reason = "  Filesystem (sdc): ext4, label \"old backups of the database machines in the\n    second rack\"; if the data is not needed, wipe the drive\n";
        assert!(below.contains(reason), "{text}");
        assert!(below.ends_with("\n3 drives: 1 BAD, 2 not used\n"), "{text}");
        assert!(
            rows.contains("does not fit") || rows.contains("do not fit"),
            "{text}"
        );
    }
    let (wide, _) = on_terminal(&served, 200, &["drives", "-o", "wide"]).await;
    assert!(
        plain(&wide).contains(&format!("\n    Filesystem: {LONG}\n")),
        "{wide}"
    );
    assert!(!plain(&wide).contains("does not fit"), "{wide}");
}

#[tokio::test]
async fn severity_is_coloured_on_a_terminal_unless_no_color_is_set() {
    let served = serve_inventory(inventory());
    for (line, coloured) in [
        (&["drives"][..], "\u{1b}[31mBAD\u{1b}[0m"),
        (&["volumes"], "\u{1b}[33mDEGRADED\u{1b}[0m"),
        (&["health"], "\u{1b}[31mBAD\u{1b}[0m"),
    ] {
        let (text, _) = on_terminal(&served, 200, line).await;
        assert!(text.contains(coloured), "{line:?}: {text}");
    }
    // SAFETY of the check: through a pipe there are none, which another test sees.
    let (text, _) = no_color(&served).await;
    assert!(!text.contains('\u{1b}') && text.contains("BAD"), "{text}");
}

async fn no_color(served: &Served) -> (String, Option<i32>) {
    let socket = served.socket.to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_drivebay-agent");
    let line = format!("NO_COLOR=1 TERM=xterm {program} drives --socket {socket}");
    let output = tokio::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    (out(&output), output.status.code())
}

#[tokio::test]
async fn how_full_how_old_and_for_whom_a_volume_is() {
    let served = serve_inventory(inventory());
    let text = out(&run_against(&served, &["volumes"]).await);
    let header = text.lines().next().unwrap();
    for column in ["SIZE", "USED", "AVAIL", "USE%", "AGE", "USED-BY"] {
        assert!(header.contains(column), "{text}");
    }
    for value in ["75 GiB", "25 GiB", "75%", "shop/data-db-0"] {
        assert!(text.contains(value), "{value}: {text}");
    }
    let drives = out(&run_against(&served, &["drives"]).await);
    for column in ["TEMP", "WEAR", "SINCE"] {
        assert!(drives.lines().next().unwrap().contains(column), "{drives}");
    }
    assert!(drives.contains("  38C "), "{drives}");
}

#[tokio::test]
async fn a_drive_and_a_volume_have_one_set_of_names_in_every_command() {
    let served = serve_inventory(inventory());
    for name in ["wwn-0x5000c500a1b2c3d4", "sda", "/dev/sda", "SERIAL-sda"] {
        for line in [
            &["drive", "show", name][..],
            &["drives", name, "-o", "name"],
        ] {
            let output = run_against(&served, line).await;
            let text = out(&output) + &err(&output);
            assert!(text.contains("wwn-0x5000c500a1b2c3d4"), "{line:?}: {text}");
        }
        let wipe = run_against(&served, &["drive", "wipe", name]).await;
        assert_eq!(wipe.status.code(), Some(2), "{}", err(&wipe));
        let confirm = "--confirm wwn-0x5000c500a1b2c3d4";
        assert!(err(&wipe).contains(confirm), "{}", err(&wipe));
    }
    let volume = "pvc-5f6a1f0e-43a5-4c0e-8f8e-3a7d2f7f1c11";
    for name in [
        volume,
        "7b1d5c1e-0000-4000-8000-000000000001",
        "7b1d5c1e-0000-4000-8000-000000000001@node7",
        "shop/data-db-0",
        "sda2",
    ] {
        let shown = out(&run_against(&served, &["volume", "show", name]).await);
        assert!(
            shown.starts_with(&format!("Volume {volume}\n")),
            "{name}: {shown}"
        );
        let delete = run_against(&served, &["volume", "delete", name]).await;
        assert_eq!(
            delete.status.code(),
            Some(1),
            "{name}: it is in use: {}",
            err(&delete)
        );
    }
}

#[tokio::test]
async fn printed_commands_keep_the_socket_and_the_config_that_were_given() {
    let missing = ["--socket", "/nowhere/agent.sock"];
    let mut line = vec!["drive", "wipe", "x", "--config", "/nowhere.toml"];
    line.extend(missing);
    let output = run(&line).await;
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    let served = serve_inventory(inventory());
    let socket = served.socket.display().to_string();
    let none = err(&run_against(&served, &["drive", "show", "none"]).await);
    let command = format!("`drivebay-agent drives --all --socket {socket}`");
    assert!(none.contains(&command), "{none}");
    // From the environment it is there for the next command, too.
    let program = env!("CARGO_BIN_EXE_drivebay-agent");
    let output = tokio::process::Command::new(program)
        .args(["drive", "show", "none"])
        .env("DRIVEBAY_SOCKET", &socket)
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", err(&output));
    assert!(
        err(&output).contains("`drivebay-agent drives --all`"),
        "{}",
        err(&output)
    );
}

#[tokio::test]
async fn a_command_under_a_wrong_name_is_hinted_at() {
    for (line, hint) in [
        ("list", "'drivebay-agent drives'"),
        ("status", "'drivebay-agent health'"),
        ("wipe", "'drivebay-agent drive wipe'"),
        ("drive erase", "'drivebay-agent drive wipe'"),
        ("volume rm", "'drivebay-agent volume delete'"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = run(&words).await;
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(err(&output).contains(hint), "{line}: {}", err(&output));
    }
}

#[tokio::test]
async fn long_work_shows_that_it_goes_on_where_a_person_reads_along() {
    let mut inventory = inventory();
    inventory.volumes[0].id = "clean@node7".into();
    let served = serve_inventory(inventory);
    let line = ["volume", "check", "shop/data-db-0"];
    let (text, code) = on_terminal(&served, 80, &line).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("\r\u{1b}[Kchecking volume shop/data-db-0: 1s"),
        "{text:?}"
    );
    assert!(
        text.ends_with("\r\u{1b}[Kshop/data-db-0: it is clean (unmounted, e2fsck, 2.5 s)\n"),
        "{text:?}"
    );
    let output = run_against(&served, &line).await;
    assert_eq!(err(&output), "");
}

#[tokio::test]
async fn a_watched_list_comes_again_when_it_has_changed() {
    let served = serve_inventory(inventory());
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_drivebay-agent"))
        .args(["volumes", "--watch=1", "-o", "json", "--socket"])
        .arg(&served.socket)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap();
    assert_eq!(first.as_deref(), Some("{"));
    let mut more = 0;
    let rest = async {
        while let Ok(Some(line)) = lines.next_line().await {
            more += usize::from(line == "{");
        }
    };
    // Three times asked, and nothing has changed.
    let _ = tokio::time::timeout(Duration::from_secs(3), rest).await;
    assert_eq!(more, 0);
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
}

#[tokio::test]
async fn json_has_null_and_not_0_for_what_never_was() {
    let served = serve_inventory(inventory());
    for line in SHOWN {
        if line[0] == "health" {
            continue;
        }
        let mut line = line.to_vec();
        line.extend(["-o", "json"]);
        let json: Value = serde_json::from_str(&out(&run_against(&served, &line).await)).unwrap();
        no_zero_moments(&json, "");
    }
}

fn no_zero_moments(value: &Value, key: &str) {
    match value {
        Value::Object(members) => {
            members
                .iter()
                .for_each(|(key, value)| no_zero_moments(value, key));
        }
        Value::Array(items) => {
            items.iter().for_each(|item| no_zero_moments(item, key));
        }
        value => {
            let moment =
                key == "at" || key.ends_with("_at") || key.ends_with("since") || key == "until";
            assert!(!moment || *value != 0, "{key} is 0");
        }
    }
}

#[tokio::test]
async fn json_matches_its_schema_and_every_field_is_described() {
    let served = serve_inventory(inventory());
    for (of, line) in [
        ("drives", &["drives"][..]),
        ("volumes", &["volumes"]),
        // As it was called once.
        ("volume-list", &["volume", "list"]),
        ("health", &["health"]),
        ("drive-show", &["drive", "show", "sda"]),
        ("volume-show", &["volume", "show", "pvc-5f6a1f0e"]),
        ("claim-plan", &[]),
    ] {
        let schema = run(&["schema", of]).await;
        let schema: Value = serde_json::from_str(&out(&schema)).unwrap();
        described(&schema, of);
        if line.is_empty() {
            continue;
        }
        let json = run_against(&served, &[line, &["-o", "json"]].concat()).await;
        let json: Value = serde_json::from_str(&out(&json)).unwrap();
        if let Err(wrong) = fits(&json, &schema, &schema) {
            panic!("{of}: {wrong}");
        }
    }
}

#[tokio::test]
async fn snapshots_of_several_volumes_are_created_listed_and_deleted_as_a_group() {
    let mut inventory = inventory();
    let log = Volume {
        id: "7b1d5c1e-0000-4000-8000-000000000002@node7".into(),
        name: "log".into(),
        ..inventory.volumes[0].clone()
    };
    inventory.volumes.push(log);
    let served = serve_inventory(inventory.clone());
    let create = "snapshot create pvc-5f6a1f0e log --name nightly --max-age 36h";
    let create: Vec<&str> = create.split(' ').collect();
    let created = run_against(&served, &create).await;
    assert!(created.status.success(), "{}", err(&created));
    let text = out(&created);
    let begins = "group nightly is created: 2 snapshots, id uuid-group@node7; expire";
    assert!(text.starts_with(begins), "{text}");
    assert!(text.contains("\n  nightly-2: volume log, "), "{text}");
    let created = run_against(&served, &[&create[..], &["-o", "json"]].concat()).await;
    let json: Value = serde_json::from_str(&out(&created)).unwrap();
    assert_eq!(json["snapshots"][1]["volume_name"], "log");
    assert_eq!(
        json["snapshots"][1]["expires_at"],
        1_800_000_000 + 36 * 3600
    );
    let schema = run(&["schema", "snapshots"]).await;
    let schema: Value = serde_json::from_str(&out(&schema)).unwrap();
    described(&schema, "snapshots");
    fits(&json, &schema, &schema).unwrap();

    for (n, volume) in (1..).zip(&mut inventory.volumes) {
        volume.snapshots = vec![VolumeSnapshot {
            id: format!("uuid-{n}@node7"),
            name: format!("nightly-{n}"),
            created_at: 1_700_000_000,
            state: "ready".into(),
            group: Some(SnapshotGroup {
                id: "uuid-group@node7".into(),
                name: "nightly".into(),
                members: 2,
            }),
            ..VolumeSnapshot::default()
        }];
    }
    let served = serve_inventory(inventory);
    let listed = run_against(&served, &["snapshots"]).await;
    assert!(out(&listed).ends_with("\ngroups: nightly (2 of 2)\n"));
    let listed = run_against(&served, &["snapshots", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&out(&listed)).unwrap();
    fits(&json, &schema, &schema).unwrap();
    let alone = run_against(&served, &["snapshot", "delete", "nightly-1"]).await;
    assert_eq!(alone.status.code(), Some(2), "{}", err(&alone));
    let delete = ["snapshot", "delete", "nightly", "--confirm", "nightly"];
    let deleted = run_against(&served, &delete).await;
    assert!(deleted.status.success(), "{}", err(&deleted));
    let text = out(&deleted);
    let begins = "group nightly is deleted, 2 snapshots; ";
    assert!(text.starts_with(begins), "{text}");
}

fn described(schema: &Value, at: &str) {
    let Value::Object(members) = schema else {
        return;
    };
    if let Some(Value::Object(properties)) = members.get("properties") {
        for (name, property) in properties {
            assert!(
                property["description"].is_string(),
                "{at}: {name} is not described"
            );
        }
    }
    members
        .iter()
        .for_each(|(key, inner)| described(inner, &format!("{at}.{key}")));
}

/// As much of a validator as these schemas need; a member that is not described is wrong, too.
fn fits(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let place = reference.strip_prefix('#').unwrap();
        return fits(value, root.pointer(place).unwrap(), root);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let tried: Vec<_> = choices.iter().map(|one| fits(value, one, root)).collect();
        return match tried.iter().any(Result::is_ok) {
            true => Ok(()),
            false => Err(format!("{tried:?}")),
        };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = match &schema["type"] {
        Value::String(one) => vec![one.clone()],
        Value::Array(several) => several
            .iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect(),
        other => return Err(format!("no type: {other} in {schema}")),
    };
    if !kinds.iter().any(|one| one == kind) {
        return Err(format!("{value} is not {kinds:?}"));
    }
    match value {
        Value::Array(items) => items
            .iter()
            .try_for_each(|item| fits(item, &schema["items"], root)),
        Value::Object(members) => {
            let wanted = schema["required"].as_array().into_iter().flatten();
            for name in wanted.filter_map(Value::as_str) {
                if !members.contains_key(name) {
                    return Err(format!("{name} is missing"));
                }
            }
            members.iter().try_for_each(|(name, member)| {
                let member_schema =
                    match (&schema["properties"][name], &schema["additionalProperties"]) {
                        (Value::Null, Value::Object(_)) => &schema["additionalProperties"],
                        (Value::Null, _) => return Err(format!("{name} is not in the schema")),
                        (member_schema, _) => member_schema,
                    };
                fits(member, member_schema, root).map_err(|wrong| format!("{name}: {wrong}"))
            })
        }
        _ => Ok(()),
    }
}
