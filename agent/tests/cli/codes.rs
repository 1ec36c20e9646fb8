//! One table of exit codes for all commands.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Output};

use drivebay_common::cli::EXIT_CODES;
use drivebay_proto::agent::{InventoryUpdate, Volume};

use super::fake::{Served, err, out, run, run_against, serve, serve_inventory, write};

fn volume(id: &str, name: &str) -> Volume {
    Volume {
        id: id.into(),
        name: name.into(),
        state: "ready".into(),
        ..Volume::default()
    }
}

fn volumes() -> Served {
    let outcomes = ["clean", "corrupt", "inconclusive", "not-checkable"];
    let volumes = outcomes.map(|outcome| volume(&format!("{outcome}@n"), outcome));
    serve_inventory(InventoryUpdate {
        node_id: "n".into(),
        full: true,
        ready: true,
        volumes: volumes.into(),
        ..InventoryUpdate::default()
    })
}

#[tokio::test]
async fn a_check_distinguishes_damage_not_checkable_and_unknown() {
    let served = volumes();
    for (name, code, expected) in [
        ("clean", 0, "clean: it is clean"),
        ("corrupt", 1, "volume corrupt: it is corrupt"),
        ("inconclusive", 5, "volume inconclusive: it is inconclusive"),
        ("not-checkable", 5, "volume not-checkable: it is"),
        ("no-such", 6, "no volume no-such"),
        ("c", 2, "ambiguous"),
    ] {
        let output = run_against(&served, &["volume", "check", name]).await;
        assert_eq!(output.status.code(), Some(code), "{name}: {}", err(&output));
        let text = out(&output) + &err(&output);
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[tokio::test]
async fn a_name_that_nothing_has_and_one_that_several_have_are_distinguished_everywhere() {
    let served = volumes();
    for (line, code) in [
        ("volume show none", 6),
        ("volume show c", 2),
        ("volumes none", 6),
        ("volumes --drive none", 6),
        ("volume expand none --size 1GiB", 6),
        ("volume expand clea --size 1GiB", 2),
        ("volume pv none", 6),
        ("drive show none", 6),
        ("drive ack none", 6),
        ("drive release none", 6),
        ("drive adopt none", 6),
        ("drive wipe none", 6),
        ("smart explain /nonexistent.json", 6),
        ("drives --sort nonsense", 2),
        ("volume create x --size 0", 2),
        ("volume create x --size 2", 2),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = match line.starts_with("smart") {
            true => run(&words).await,
            false => run_against(&served, &words).await,
        };
        assert_eq!(output.status.code(), Some(code), "{line}: {}", err(&output));
    }
}

/// The beginning of a name is enough to look, and not to change anything.
#[tokio::test]
async fn a_command_that_changes_something_refuses_a_beginning_and_lists_whole_names() {
    let served = serve("wwn-x", false);
    let unconfirmed = ["ack", "cordon", "uncordon", "evacuate", "retire"];
    let confirmed = ["wipe", "release", "adopt"];
    for command in confirmed.into_iter().chain(unconfirmed) {
        for more in [&[][..], &["--confirm", "wwn-x"]] {
            let mut line = vec!["drive", command, "wwn"];
            if !unconfirmed.contains(&command) {
                line.extend(more);
            }
            let output = run_against(&served, &line).await;
            let stderr = err(&output);
            assert_eq!(output.status.code(), Some(2), "{line:?}: {stderr}");
            assert!(stderr.contains("\n  wwn-x (sdx)\n"), "{line:?}: {stderr}");
        }
    }
    let served = volumes();
    for line in [
        &["volume", "delete", "clea"][..],
        &["volume", "delete", "clea", "--confirm", "clean"],
        &["volume", "mount", "clea", "/srv"],
        &["volume", "move", "clea", "--to", "x"],
        &["volume", "prefer", "clea", "--drive", "x"],
    ] {
        let output = run_against(&served, line).await;
        let stderr = err(&output);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {stderr}");
        assert!(
            stderr.contains("\n  clean@n (clean)\n"),
            "{line:?}: {stderr}"
        );
    }
    // Repeated, when what was named is gone: it must not mean another, nor fail.
    for (line, expected) in [
        (
            &["volume", "delete", "clea", "--confirm", "clea"][..],
            "nothing to delete",
        ),
        (&["volume", "unmount", "clea"], "nothing to unmount"),
    ] {
        let output = run_against(&served, line).await;
        assert_eq!(output.status.code(), Some(0), "{line:?}: {}", err(&output));
        assert!(out(&output).contains(expected), "{}", out(&output));
    }
}

#[tokio::test]
async fn retiring_a_drive_has_a_code_for_each_of_its_answers() {
    let served = serve("wwn-x", false);
    for more in ["--plan", "--by=ann"] {
        let output = run_against(&served, &["drive", "retire", "wwn-x", more]).await;
        let stdout = out(&output);
        assert_eq!(output.status.code(), Some(11), "{stdout}{}", err(&output));
        assert!(
            stdout.contains("may be pulled           yes\n  may leave the building  no\n")
                && stdout.contains("volume db: the drive takes no writes"),
            "{stdout}"
        );
    }
    let output = run_against(&served, &["moves"]).await;
    assert_eq!(out(&output), "no volume is being moved\n");
}

/// The program as another user, who may execute it.
async fn as_nobody(program: &Path, args: &[&str]) -> Output {
    tokio::process::Command::new(program)
        .args(args)
        .uid(65_534)
        .gid(65_534)
        .current_dir("/")
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .unwrap()
}

#[tokio::test]
async fn without_root_a_command_fails_with_a_message_and_an_exit_code_of_its_own() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("drivebay-agent");
    std::fs::copy(env!("CARGO_BIN_EXE_drivebay-agent"), &program).unwrap();
    let config = write(
        dir.path(),
        "[[class]]\nname = 'a'\n[class.select]\nmedia = 'hdd'\n",
    );
    let config = config.to_str().unwrap();
    // Its directory is root's.
    let served = serve("wwn-x", false);
    let socket = served.socket.to_str().unwrap();
    for line in [
        &["drives", "--socket", socket][..],
        &["volumes", "--socket", socket],
        &["health", "--socket", socket],
        &[
            "volume", "create", "x", "--size", "1GiB", "--socket", socket,
        ],
        &["claim-plan", "--config", config],
        &[
            "drive",
            "wipe",
            "x",
            "--socket",
            "/nonexistent.sock",
            "--config",
            config,
        ],
    ] {
        let output = as_nobody(&program, line).await;
        let stderr = err(&output);
        assert_eq!(output.status.code(), Some(4), "{line:?}: {stderr}");
        assert!(
            stderr.contains("permission denied; run as root"),
            "{line:?}: {stderr}"
        );
        assert_eq!(out(&output), "", "{line:?}");
    }
    let closed = dir.path().join("closed.toml");
    std::fs::write(&closed, "").unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = as_nobody(
        &program,
        &["check-config", "--config", closed.to_str().unwrap()],
    )
    .await;
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(err(&output).contains("run as root"), "{}", err(&output));
}

#[test]
fn the_documents_have_the_table() {
    for document in [
        include_str!("../../../deploy/docs/reference/commands.md"),
        include_str!("../../../controller/README.md"),
    ] {
        for (code, meaning) in EXIT_CODES {
            let row = format!("| {code} | {meaning} |");
            assert!(document.contains(&row), "{row}");
        }
    }
    for (code, meaning) in drivebay_cli::args::FURTHER_EXIT_CODES {
        let row = format!("| {code} | {meaning} |");
        assert!(
            include_str!("../../../deploy/docs/reference/commands.md").contains(&row),
            "{row}"
        );
    }
}
