use clap::Parser;
use drivebay_common::{cli::NOT_FOUND, terminal::Terminal};

use super::{
    samples::{in_group, inventory},
    *,
};
use crate::{Cli, Command, SnapshotCommand};

fn list(inventory: &InventoryUpdate, line: &[&str]) -> Result<String, CommandError> {
    let target = OutputTarget {
        now: 0,
        terminal: Terminal::NONE,
    };
    match Cli::parse_from(["x"].iter().chain(line)).command {
        Command::Snapshots(args) | Command::Snapshot(SnapshotCommand::List(args)) => {
            render(inventory, &args, target)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn snapshots_of_the_volumes_that_are_named_are_listed_and_an_empty_list_has_its_reason() {
    let mut inventory = inventory();
    let text = list(&inventory, &["snapshots"]).unwrap();
    assert_eq!(
        text,
        "\
NAME  VOLUME    SIZE  AGE  EXPIRES  RESERVE  USED%  STATE
d-1   db      10 GiB    -    never    2 GiB      -  ready
d-10  db      10 GiB    -    never    2 GiB      -  ready
w-1   web     10 GiB    -    never    2 GiB      -  ready
3 snapshots of 2 volumes: 3 ready; 6 GiB reserve
"
    );
    let of = |line: &[&str]| list(&inventory, line).unwrap();
    assert_eq!(of(&["snapshot", "ls", "web", "-o", "name"]), "w-1\n");
    assert_eq!(of(&["snapshots", "log"]), "none of 3 snapshots\n");
    assert_eq!(of(&["snapshots", "log", "--no-headers"]), "");
    assert_eq!(of(&["snapshots", "--no-headers"]).lines().count(), 3);
    let json: serde_json::Value =
        serde_json::from_str(&of(&["snapshots", "db", "-o", "json"])).unwrap();
    assert_eq!(
        (&json["node"], &json["ready"]),
        (&"node7".into(), &true.into())
    );
    assert_eq!(json["snapshots"][1]["name"], "d-10");
    assert_eq!(json["snapshots"][1]["volume_name"], "db");
    let yaml = of(&["snapshots", "db", "-o", "yaml"]);
    assert!(
        yaml.starts_with("node: node7\nready: true\nsnapshots:\n- id: uuid-d-1@n\n"),
        "{yaml}"
    );
    let error = list(&inventory, &["snapshots", "none"]).unwrap_err();
    assert_eq!(error.code(), NOT_FOUND, "{error}");
    inventory.volumes.clear();
    inventory.ready = false;
    assert_eq!(
        list(&inventory, &["snapshots"]).unwrap(),
        "no snapshots\n(the agent is still scanning its drives)\n"
    );
}

#[test]
fn a_group_is_named_below_the_list_and_in_json() {
    let mut inventory = inventory();
    in_group(&mut inventory, &["w-1", "d-1"], "nightly");
    let of = |line: &[&str]| list(&inventory, line).unwrap();
    assert!(of(&["snapshots"]).ends_with("\ngroups: nightly (2 of 2)\n"));
    assert!(of(&["snapshots", "web"]).ends_with("\ngroups: nightly (1 of 2)\n"));
    let json: serde_json::Value = serde_json::from_str(&of(&["snapshots", "-o", "json"])).unwrap();
    let of_web = &json["snapshots"][2];
    assert_eq!(of_web["group"]["name"], "nightly");
    assert_eq!(of_web["group"]["members"], 2);
    assert!(of_web["expires_at"].is_null());
}
