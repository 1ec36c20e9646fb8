//! Exact output for snapshots and groups: lists, details and JSON.

use super::*;
use crate::table::Table;

fn snapshot(name: &str, at: u64, state: &str, used_mib: Option<u64>) -> VolumeSnapshot {
    VolumeSnapshot {
        id: format!("uuid-{name}@n"),
        name: name.into(),
        created_at: at,
        size_bytes: 10 << 30,
        state: state.into(),
        reserve_bytes: 2 << 30,
        used_bytes: used_mib.map(|used| used << 20),
        ..VolumeSnapshot::default()
    }
}

fn volume(name: &str, snapshots: Vec<VolumeSnapshot>) -> Volume {
    Volume {
        id: format!("uuid-{name}@n"),
        name: name.into(),
        drive: "wwn-a".into(),
        snapshots,
        ..Volume::default()
    }
}

fn volumes() -> [Volume; 3] {
    let mut lost = snapshot("a", 1000, "overflowed", Some(2048));
    lost.message = "more was written than its reserve holds; delete it".into();
    let expiring = |name, at, used, expires_at| VolumeSnapshot {
        expires_at,
        ..snapshot(name, at, "ready", Some(used))
    };
    [
        volume("db-10", vec![lost, snapshot("z", 0, "ambiguous", None)]),
        volume("web", Vec::new()),
        volume(
            "db-9",
            vec![
                expiring("new\u{1b}", 4000, 205, 4600 + 47 * 3600),
                expiring("old", 2000, 0, 4600),
            ],
        ),
    ]
}

fn shown(volumes: &[Volume], wide: bool, width: Option<usize>) -> String {
    let terminal = Terminal {
        width,
        ..Terminal::NONE
    };
    let mut table = Table::new(&columns(wide)).on(terminal, yielding(wide));
    let mut tally = SnapshotTally::default();
    for entry in entries(volumes) {
        let row = entry.row(wide, 4600);
        table.row(row.cells, row.below);
        tally.add(entry);
    }
    table.render() + &tally.text(terminal)
}

#[test]
fn snapshots_are_listed_by_volume_and_moment_with_what_is_used_of_their_reserve() {
    assert_eq!(
        shown(&volumes(), false, None),
        "\
NAME       VOLUME    SIZE     AGE  EXPIRES  RESERVE  USED%  STATE
old        db-9    10 GiB  43m20s      now    2 GiB     0%  ready
new\\u{1b}  db-9    10 GiB     10m    1d23h    2 GiB    11%  ready
z          db-10   10 GiB       -    never    2 GiB      -  ambiguous
a          db-10   10 GiB      1h    never    2 GiB   100%  overflowed
    more was written than its reserve holds; delete it
4 snapshots of 2 volumes: 2 ready, 1 ambiguous, 1 overflowed; 2.2 of 8 GiB reserve used
"
    );
    let wide = shown(&volumes(), true, Some(40));
    assert!(
        wide.contains("  ready       wwn-a  -      uuid-old@n        uuid-db-9@n\n"),
        "{wide}"
    );
    assert_eq!(SnapshotTally::default().text(Terminal::NONE), "");
    let unknown = [volume("db", vec![snapshot("a", 1, "creating", None)])];
    let text = shown(&unknown, false, None);
    assert!(
        text.ends_with("\n1 snapshot of 1 volume: 1 creating; 2 GiB reserve\n"),
        "{text}"
    );
}

fn in_group(name: &str, id: &str, members: u32) -> VolumeSnapshot {
    VolumeSnapshot {
        group: Some(SnapshotGroup {
            id: id.into(),
            name: id.split('-').next().unwrap_or_default().into(),
            members,
        }),
        ..snapshot(name, 1000, "ready", None)
    }
}

#[test]
fn groups_are_named_below_a_list_and_in_the_rows_of_a_wide_one() {
    let volumes = [
        volume("db", vec![in_group("n-1", "nightly-1@n", 2)]),
        volume("log", vec![in_group("w-1", "weekly-2@n", 3)]),
        volume("web", vec![in_group("n-2", "nightly-1@n", 2)]),
    ];
    let text = shown(&volumes, false, Some(80));
    let below = "\ngroups: nightly (2 of 2), weekly (1 of 3)\n";
    assert!(text.ends_with(below), "{text}");
    let wide = shown(&volumes, true, None);
    assert!(wide.contains("  DRIVE  GROUP    ID "), "{wide}");
    assert!(wide.contains("  wwn-a  weekly   uuid-w-1@n"), "{wide}");
    let groups = groups(&entries(&volumes));
    let [nightly, _] = groups.as_slice() else {
        panic!("{groups:?}");
    };
    let members = nightly.members.iter().map(|one| one.snapshot.name.as_str());
    assert_eq!(members.collect::<Vec<_>>(), ["n-1", "n-2"]);
    let names = nightly.names();
    assert_eq!(
        (names.id, names.others),
        ("nightly-1@n", vec!["nightly-1", "nightly"])
    );
    let many = (10..20).map(|n| in_group("s", &format!("g{n}-@n"), 1));
    let text = shown(&[volume("db", many.collect())], false, None);
    assert!(text.ends_with(", g17 (1 of 1), 2 more\n"), "{text}");
}

#[test]
fn a_group_of_claims_with_an_age_limit_fits_80_columns() {
    let claim = "pvc-3f2c9d1e-5b0c-4a6e-9a57-0d5d8f0c8a11";
    let group = format!("groupsnapshot-{claim}-x@n");
    let one = VolumeSnapshot {
        expires_at: 4600 + 6 * 86_400 + 3600,
        state: "overflowed".into(),
        used_bytes: Some(2 << 30),
        ..in_group(&format!("{group}-1"), &group, 1)
    };
    let text = shown(&[volume(claim, vec![one])], false, Some(80));
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
    assert!(text.contains("  6d01h  "), "{text}");
    assert!(text.contains("  100%  overflowed\n"), "{text}");
}

#[test]
fn snapshots_of_claims_fit_80_columns_and_columns_without_a_value_go_first() {
    let claim = "pvc-3f2c9d1e-5b0c-4a6e-9a57-0d5d8f0c8a11";
    let of = |state, used| {
        let name = format!("{claim}-20261128-020000");
        let snapshots = vec![snapshot(&name, 1000, state, used); 2];
        shown(&[volume(claim, snapshots)], false, Some(80))
    };
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    let text = of("overflowed", Some(2048));
    assert!(widest(&text) <= Some(80), "{text}");
    assert!(text.contains("pvc-3f2c…8-020000  pvc-3f2c"), "{text}");
    assert!(text.contains("  overflowed\n"), "{text}");
    let text = of("ready", None);
    assert!(widest(&text) <= Some(80), "{text}");
    assert!(
        text.contains("RESERVE") && !text.contains("USED%") && !text.contains("-o wide"),
        "{text}"
    );
}

#[test]
fn programs_get_bytes_with_the_volume_and_no_use_that_is_not_known() {
    let volumes = volumes();
    let json: Vec<serde_json::Value> = entries(&volumes)
        .into_iter()
        .map(|entry| serde_json::to_value(ListedSnapshot::from(entry)).unwrap())
        .collect();
    let (old, unknown) = (&json[0], &json[2]);
    assert_eq!(old["id"], "uuid-old@n");
    assert_eq!(old["volume"], "uuid-db-9@n");
    assert_eq!(old["volume_name"], "db-9");
    assert_eq!(old["size_bytes"], 10_u64 << 30);
    assert_eq!(
        (&old["used_bytes"], &old["state"]),
        (&0.into(), &"ready".into())
    );
    assert!(unknown.get("used_bytes").is_none(), "{unknown}");
    assert_eq!(old["expires_at"], 4600);
    assert!(unknown["expires_at"].is_null(), "{unknown}");
    assert!(old.get("group").is_none(), "{old}");
    let of_group = [volume("db", vec![in_group("a", "nightly-1@n", 2)])];
    let entry = entries(&of_group)[0];
    let json = serde_json::to_value(ListedSnapshot::from(entry)).unwrap();
    let group = serde_json::json!({"id": "nightly-1@n", "name": "nightly", "members": 2});
    assert_eq!(json["group"], group);
}

#[test]
fn a_snapshot_of_a_sheet_has_its_state_and_why() {
    let [db, ..] = volumes();
    assert_eq!(
        describe(&db.snapshots[0], 4600),
        "a (10 GiB, 1h old, never expires, 100% of 2 GiB reserve used): overflowed: more was written than its reserve holds; delete it"
    );
    assert_eq!(
        describe(&db.snapshots[1], 4600),
        "z (10 GiB, never expires, reserve 2 GiB): ambiguous"
    );
    let one = VolumeSnapshot {
        expires_at: 4600 + 3 * 86_400,
        ..in_group("a", "nightly-1@n", 2)
    };
    assert_eq!(
        describe(&one, 4600),
        "a (10 GiB, 1h old, expires in 3d, reserve 2 GiB, in group nightly): ready"
    );
}
