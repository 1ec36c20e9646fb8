//! Candidates that a shell gets for completion.

use std::{ffi::OsString, path::Path};

use drivebay_proto::controller::NodeDrives;
use drivebay_view::complete::Named;

use super::{fake::Fake, *};
use crate::cli::complete::query_candidates;

fn offered(what: Named, socket: &Path, line: &str) -> Vec<String> {
    let line = format!("drivebay-controller {line} --socket {}", socket.display());
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let visible = query_candidates(what, &words)
        .into_iter()
        .filter(|word| !word.is_hide_set());
    visible
        .map(|word| word.get_value().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn nodes_drives_volumes_and_classes_of_the_controller_complete_a_command_line() {
    let mut n1 = node("n1", "connected");
    n1.classes = ["fast", "bulk"]
        .map(|name| Class {
            name: name.into(),
            ..Class::default()
        })
        .into();
    let drives = |node: &str, name: &str| NodeDrives {
        node_id: node.into(),
        state: "connected".into(),
        drives: vec![drive(&format!("wwn-{name}"), name, "claimed")],
    };
    let served = Fake {
        nodes: vec![n1, node("n2", "away")],
        drives: vec![drives("n1", "sda"), drives("n2", "sdb")],
        volumes: vec![volume(1, "n1", "db"), volume(2, "n2", "web")],
        ..Fake::default()
    }
    .serve();
    let socket = served.socket();
    let all = |what| offered(what, &socket, "drives");
    assert_eq!(all(Named::Node), ["n1", "n2"]);
    assert_eq!(all(Named::Class), ["bulk", "fast"]);
    assert_eq!(all(Named::Drive), ["wwn-sda", "wwn-sdb"]);
    assert_eq!(all(Named::Volume), ["db", "web"]);
    // Only those of the node in `--node`.
    let of_n2 = offered(Named::Drive, &socket, "drives --node n2");
    assert_eq!(of_n2, ["sdb"]);
}

#[test]
fn without_a_controller_nothing_is_offered() {
    for what in [Named::Node, Named::Drive, Named::Volume, Named::Class] {
        let none = offered(what, Path::new("/nonexistent/c.sock"), "nodes");
        assert_eq!(none, [""; 0], "{what:?}");
    }
}
