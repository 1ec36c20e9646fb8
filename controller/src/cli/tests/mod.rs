//! Commands against a controller that serves `Cluster` on a socket: their requests, output and errors.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod claims;
mod complete;
mod fake;
mod lists;
mod node;
mod one;
mod pv;

use std::path::Path;

use clap::Parser;
use drivebay_proto::{
    agent::{Class, Condition, Drive, Reject, Volume},
    controller::{Node, NodeDrives, VolumeOnNode},
};

use super::{CommandError, execute, execute_on, terminal::Terminal, unix_seconds};
use crate::config::{Cli, Command};

const GIB: u64 = 1 << 30;

/// Result of a command.
struct CommandOutput {
    result: Result<(), CommandError>,
    out: String,
    notes: String,
}

impl CommandOutput {
    fn ok(self) -> String {
        self.result.unwrap();
        self.out
    }

    fn error(self) -> (String, u8) {
        let error = self.result.unwrap_err();
        (error.to_string(), error.code())
    }
}

/// Runs a command line against the controller on this socket.
fn run_cli(socket: &Path, line: &[&str]) -> CommandOutput {
    let mut words = vec!["drivebay-controller"];
    words.extend(line);
    let socket = socket.to_str().unwrap();
    if line.get(1) != Some(&"remember") {
        words.extend(["--socket", socket]);
    }
    let Command::Client(command) = Cli::try_parse_from(words).unwrap().command else {
        panic!("not a question");
    };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let result = execute(&command, &mut out, &mut notes);
    CommandOutput {
        result,
        out: String::from_utf8(out).unwrap(),
        notes: String::from_utf8(notes).unwrap(),
    }
}

fn node(node_id: &str, state: &str) -> Node {
    Node {
        node_id: node_id.into(),
        state: state.into(),
        version: "0.1.0".into(),
        ..Node::default()
    }
}

fn drive(id: &str, kernel_name: &str, state: &str) -> Drive {
    Drive {
        id: id.into(),
        kernel_name: kernel_name.into(),
        size_bytes: 1000 * GIB,
        media: "nvme".into(),
        state: state.into(),
        verdict: "GOOD".into(),
        ..Drive::default()
    }
}

fn id(number: u8, node: &str) -> String {
    format!("00000000-0000-4000-8000-0000000000{number:02x}@{node}")
}

fn volume(number: u8, node: &str, name: &str) -> VolumeOnNode {
    VolumeOnNode {
        volume: Some(Volume {
            id: id(number, node),
            name: name.into(),
            class: "fast".into(),
            drive: "wwn-a".into(),
            size_bytes: 10 * GIB,
            mode: "mount".into(),
            fs_type: "ext4".into(),
            state: "ready".into(),
            device: "sda2".into(),
            ..Volume::default()
        }),
        node_id: node.into(),
        node_state: "connected".into(),
        ..VolumeOnNode::default()
    }
}

fn inside(there: &mut VolumeOnNode) -> &mut Volume {
    there.volume.as_mut().unwrap()
}
