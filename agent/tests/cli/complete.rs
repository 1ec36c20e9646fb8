//! Completion at the Tab key: the program is run as the shell's script runs it.

use std::{path::Path, process::Output, time::Instant};

use drivebay_proto::agent::{Class, CreatedFor, Drive, InventoryUpdate, Volume};

use super::fake::{Served, err, out, serve, serve_inventory};

fn inventory() -> InventoryUpdate {
    InventoryUpdate {
        ready: true,
        drives: ["sda", "sdb"]
            .map(|name| Drive {
                id: format!("wwn-{name}"),
                kernel_name: name.into(),
                state: "claimed".into(),
                ..Drive::default()
            })
            .into(),
        volumes: vec![
            Volume {
                id: "u1@n1".into(),
                name: "db".into(),
                state: "ready".into(),
                ..Volume::default()
            },
            Volume {
                id: "u2@n1".into(),
                name: "nomad-1".into(),
                state: "ready".into(),
                created_for: Some(CreatedFor {
                    nomad_volume: "web".into(),
                    nomad_namespace: "default".into(),
                    ..CreatedFor::default()
                }),
                ..Volume::default()
            },
            Volume {
                id: "u3@n1".into(),
                name: "old".into(),
                state: "quarantined".into(),
                ..Volume::default()
            },
        ],
        classes: vec![Class {
            name: "fast".into(),
            ..Class::default()
        }],
        ..InventoryUpdate::default()
    }
}

/// The last word is the one that is being completed.
async fn at_tab(socket: Option<&Path>, line: &str) -> Output {
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_drivebay-agent"));
    command
        .env("COMPLETE", "bash")
        .env("_CLAP_IFS", "\n")
        .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
        .env(
            "DRIVEBAY_SOCKET",
            socket.unwrap_or(Path::new("/nonexistent/agent.sock")),
        )
        .arg("--")
        .args(words)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    command.output().await.unwrap()
}

/// Without options, which any command has.
async fn offered(served: &Served, line: &str) -> Vec<String> {
    let output = at_tab(Some(&served.socket), line).await;
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    let words = out(&output);
    let words = words.lines().filter(|word| !word.starts_with('-'));
    words.map(str::to_owned).collect()
}

#[tokio::test]
async fn drives_volumes_and_classes_of_the_running_agent_complete_a_command_line() {
    let served = serve_inventory(inventory());
    for (line, expected) in [
        ("drivebay-agent drive show ", &["sda", "sdb"][..]),
        ("drivebay-agent drive show wwn-sdb", &["wwn-sdb"]),
        ("drivebay-agent drives s", &["sda", "sdb"]),
        ("drivebay-agent drive replace sda s", &["sda", "sdb"]),
        ("drivebay-agent drive evacuate sda --to sdb", &["sdb"]),
        ("drivebay-agent volume delete ", &["db", "default/web"]),
        ("drivebay-agent volume show nomad", &["nomad-1"]),
        ("drivebay-agent volume restore ", &["old"]),
        ("drivebay-agent volume create new --class ", &["fast"]),
        ("drivebay-agent volume create ", &[]),
        (
            "drivebay-agent volume create new --fs ",
            &["ext4", "xfs", "btrfs"],
        ),
        // What confirms has to be typed.
        ("drivebay-agent volume delete db --confirm ", &[]),
        ("drivebay-agent drive wipe sda --confirm ", &[]),
        ("drivebay-agent vol", &["volumes", "volume"]),
    ] {
        assert_eq!(offered(&served, line).await, expected, "{line}");
    }
    // The socket that is typed wins over the environment's, in each way in which shells hand it over.
    let socket = served.socket.display();
    for typed in [
        format!("--socket {socket}"),
        format!("--socket={socket}"),
        format!("--socket = {socket}"),
    ] {
        let output = at_tab(None, &format!("drivebay-agent volumes {typed} --class ")).await;
        assert_eq!(out(&output), "fast", "{typed}");
    }
}

#[tokio::test]
async fn without_an_agent_there_are_commands_and_options_soon_and_no_error() {
    for line in [
        "drivebay-agent drive show ",
        "drivebay-agent volumes --class ",
    ] {
        let output = at_tab(None, line).await;
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        assert!(!out(&output).contains("sda"), "{output:?}");
    }
    let output = at_tab(None, "drivebay-agent drive sh").await;
    assert_eq!((out(&output).as_str(), err(&output).as_str()), ("show", ""));
    // One that hangs.
    let served = serve("wwn-x", true);
    let from = Instant::now();
    assert_eq!(
        offered(&served, "drivebay-agent drive show ").await,
        [""; 0]
    );
    assert!(from.elapsed().as_secs() < 3, "{:?}", from.elapsed());
}

#[tokio::test]
async fn bash_completes_by_the_script_that_the_program_prints() {
    let served = serve_inventory(inventory());
    let program = Path::new(env!("CARGO_BIN_EXE_drivebay-agent"));
    // What bash does at the Tab key: the function that `complete -p` names, with the words and which of them it is at.
    let script = r#"set -eu; . <(COMPLETE=bash "$1"); function=$(complete -p drivebay-agent | sed 's/.*-F \([^ ]*\).*/\1/')
        COMP_WORDS=(drivebay-agent drive show sd); COMP_CWORD=3; COMPREPLY=()
        set +eu; "$function" drivebay-agent sd show; printf '%s\n' "${COMPREPLY[@]}""#;
    let output = tokio::process::Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(program)
        .env("DRIVEBAY_SOCKET", &served.socket)
        .output()
        .await
        .unwrap();
    assert_eq!(
        (out(&output).as_str(), err(&output).as_str()),
        ("sda\nsdb\n", "")
    );
}
