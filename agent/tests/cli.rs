//! The program as it is typed: exit codes, messages, and an agent at the other end of a real socket.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run the program and fail loudly"
)]

mod cli {
    pub(crate) mod codes;
    pub(crate) mod complete;
    pub(crate) mod fake;
    pub(crate) mod output;
}

use std::time::{Duration, Instant};

use cli::fake::{err, out, run, run_against, serve, write};

#[tokio::test]
async fn without_an_agent_the_exit_code_is_3_and_the_message_helps() {
    for args in [
        &["drives"][..],
        &["volumes"],
        &["rescan"],
        &["drive", "wipe", "sdx"],
    ] {
        let mut args = args.to_vec();
        args.extend(["--socket", "/nonexistent/agent.sock"]);
        let output = run(&args).await;
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        let text = err(&output);
        assert!(
            text.contains("no agent answers at /nonexistent/agent.sock"),
            "{text}"
        );
        assert!(
            text.contains("drivebay-agent run --config") && text.contains("claim-plan"),
            "{text}"
        );
        // A command that works without an agent looks for its config next.
        let reason = ["No such file", "there is no configuration file"];
        assert!(
            reason.iter().any(|it| text.contains(it)),
            "the reason: {text}"
        );
    }
}

#[tokio::test]
async fn health_has_one_exit_code_for_well_one_for_wrong_and_one_for_not_knowing() {
    let well = run_against(&serve("wwn-x", false), &["health"]).await;
    assert_eq!(well.status.code(), Some(0), "{}", err(&well));
    assert_eq!(
        out(&well),
        "node7 is well: 0 drives and 1 volume, nothing is wrong\n"
    );
    let served = serve("wwn-sick", false);
    let wrong = run_against(&served, &["health"]).await;
    assert_eq!((wrong.status.code(), err(&wrong)), (Some(1), String::new()));
    assert_eq!(
        out(&wrong),
        "node7: 1 thing is wrong\n\nBAD  drive wwn-sick (sdx)\n    MediumReadOnly: replace the drive\n\n1 drive: 1 BAD\n"
    );
    let json = run_against(&served, &["health", "-o", "json"]).await;
    assert_eq!(json.status.code(), Some(1));
    assert!(out(&json).contains("\"well\": false"), "{}", out(&json));
    let unknown = run(&["health", "--socket", "/nonexistent/agent.sock"]).await;
    assert_eq!(unknown.status.code(), Some(3));
    assert!(
        err(&unknown).contains("no agent answers"),
        "{}",
        err(&unknown)
    );
}

#[tokio::test]
async fn one_drive_and_one_volume_are_shown_by_any_name() {
    let served = serve("wwn-sick", false);
    for name in ["wwn-sick", "wwn-s", "sdx", "/dev/sdx"] {
        let output = run_against(&served, &["drive", "show", name]).await;
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let text = out(&output);
        assert!(
            text.starts_with("Drive wwn-sick\n  device     /dev/sdx\n")
                && text.contains("MediumReadOnly: replace the drive"),
            "{text}"
        );
    }
    let output = run_against(&served, &["drive", "show", "sdy"]).await;
    assert_eq!(output.status.code(), Some(6));
    assert!(
        err(&output).contains("there is no drive \"sdy\""),
        "{}",
        err(&output)
    );
    let output = run_against(&served, &["volume", "show", "pvc"]).await;
    assert!(
        out(&output).starts_with("Volume pvc-1\n"),
        "{}",
        out(&output)
    );
    let output = run_against(&served, &["volume", "show", "pvc-1", "-o", "json"]).await;
    assert!(
        out(&output).contains("\"its_drive\": null"),
        "{}",
        out(&output)
    );
}

#[tokio::test]
async fn what_was_acknowledged_is_printed_and_an_unknown_drive_is_refused() {
    let served = serve("wwn-sick", false);
    let mut line = vec![
        "drive", "ack", "wwn-sick", "--note", "seen it", "--by", "ann",
    ];
    line.extend(["--use", "--until", "2030-12-31"]);
    // It is BAD: the options are repeated in what is to be typed.
    let output = run_against(&served, &line).await;
    assert_eq!(output.status.code(), Some(2), "{}", out(&output));
    let typed =
        "drive ack wwn-sick --confirm wwn-sick --note 'seen it' --by ann --until 2030-12-31 --use";
    assert!(err(&output).contains(typed), "{}", err(&output));
    line.extend(["--confirm", "wwn-sick"]);
    let output = run_against(&served, &line).await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(
        out(&output),
        "acknowledged: ReportedUncorrect (187 uncorrected errors: 3): reads failed\n\
         drive wwn-sick is BAD, acknowledged and takes new volumes; what was acknowledged counts again when it gets worse\n"
    );
    let output = run_against(&served, &["drive", "unack", "wwn-sick", "--by", "ann"]).await;
    assert_eq!(
        out(&output),
        "the acknowledgement is withdrawn\n\
         counts: ReportedUncorrect: reads failed\n\
         drive wwn-sick is BAD and takes no new volumes\n"
    );
    let output = run_against(&served, &["drive", "ack", "wwn-other"]).await;
    assert_eq!(output.status.code(), Some(6));
    assert!(
        err(&output).contains("there is no drive \"wwn-other\""),
        "{}",
        err(&output)
    );
}

#[tokio::test]
async fn an_agent_that_does_not_respond_is_given_up_after_five_seconds() {
    let served = serve("wwn-x", true);
    let started = Instant::now();
    let output = run_against(&served, &["drives"]).await;
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(
        err(&output).contains("did not answer within 5s"),
        "{}",
        err(&output)
    );
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn what_the_agent_sees_is_shown() {
    let served = serve("wwn-x", false);
    let output = run_against(&served, &["drives"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("\n  Filesystem (sdx): ext4\n"),
        "{}",
        out(&output)
    );
    let output = run_against(&served, &["drives", "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["drives"][0]["rejects"][0]["code"], "Filesystem");
    let output = run_against(&served, &["volumes", "-o", "json"]).await;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["volumes"][0]["name"], "pvc-1");
    let output = run_against(&served, &["rescan"]).await;
    assert!(out(&output).contains("revision 42"), "{}", out(&output));
}

#[tokio::test]
async fn a_wipe_without_the_identity_only_shows_what_would_be_lost() {
    // The fake agent panics when it is asked to wipe with anything but the identity, or nothing.
    let served = serve("wwn-x", false);
    let output = run_against(&served, &["drive", "wipe", "sdx"]).await;
    assert_eq!(output.status.code(), Some(2));
    let text = err(&output);
    assert!(text.contains("Filesystem: ext4"), "{text}");
    assert!(
        text.contains(&format!(
            "drivebay-agent drive wipe wwn-x --confirm wwn-x --socket {}\n",
            served.socket.display()
        )),
        "{text}"
    );
    for wrong in ["sdx", "wwn", "WWN-X", ""] {
        let output = run_against(&served, &["drive", "wipe", "sdx", "--confirm", wrong]).await;
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(
            err(&output).contains("nothing was changed"),
            "{}",
            err(&output)
        );
    }
    let output = run_against(&served, &["drive", "wipe", "sdy"]).await;
    assert_eq!(output.status.code(), Some(6));
}

#[tokio::test]
async fn a_confirmed_wipe_runs_to_its_end() {
    let served = serve("wwn-x", false);
    let output = run_against(
        &served,
        &["drive", "wipe", "/dev/sdx", "--confirm", "wwn-x"],
    )
    .await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("100%"), "{}", err(&output));
    assert!(out(&output).contains("wwn-x is blank"), "{}", out(&output));
}

#[tokio::test]
async fn a_wipe_that_is_refused_or_breaks_off_has_failed() {
    let served = serve("wwn-in-use", false);
    let output = run_against(
        &served,
        &["drive", "wipe", "sdx", "--confirm", "wwn-in-use"],
    )
    .await;
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("mounted at /srv"), "{}", err(&output));
    // The error does not ask for `--confirm` with an identity, since the wipe is refused in any case.
    for unconfirmed in [
        &["drive", "wipe", "sdx"][..],
        &["drive", "wipe", "sdx", "--confirm", "x"],
    ] {
        let output = run_against(&served, unconfirmed).await;
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        assert!(!err(&output).contains("--confirm"), "{}", err(&output));
    }
    let served = serve("wwn-dies", false);
    let output = run_against(&served, &["drive", "wipe", "sdx", "--confirm", "wwn-dies"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("stopped at 512 GiB of 1 TiB"),
        "{}",
        err(&output)
    );
}

#[tokio::test]
async fn a_config_is_checked_with_all_its_mistakes() {
    let dir = tempfile::tempdir().unwrap();
    let good = write(
        dir.path(),
        "[[class]]\nname = 'a'\n[class.select]\nmedia = 'hdd'\n",
    );
    let output = run(&["check-config", "--config", good.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).starts_with("OK\n"), "{}", out(&output));

    let bad = write(
        dir.path(),
        "[[class]]\nname = 'a'\n[class.select]\nmedai = ['hdd']\n[erase]\nquarantine = 1\n",
    );
    // Exit code 78 makes the service manager not restart the agent, which would not help.
    for (command, code) in [("check-config", 1), ("claim-plan", 1), ("run", 78)] {
        let args = [command, "--config", bad.to_str().unwrap()];
        let output = run(&args).await;
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let text = err(&output);
        let key = "drivebay.toml:4: unknown key `medai` in [class.select] (did you mean `media`?)";
        assert!(text.contains(key), "{text}");
        assert!(
            text.contains("drivebay.toml:6: [erase] quarantine: must be a text"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_missing_config_ends_with_78_and_points_at_the_example_and_at_init() {
    for command in ["run", "check-config", "claim-plan"] {
        let output = run(&[command, "--config", "/nonexistent.toml"]).await;
        assert_eq!(output.status.code(), Some(78), "{command}");
        assert_eq!(
            err(&output),
            "drivebay-agent: there is no configuration file /nonexistent.toml; `drivebay-agent init` writes a first one from the drives \
             of this host, which claims none, and drivebay.toml(5) and drivebay.example.toml explain every key\n"
        );
    }
    // One that is there and cannot be read may come right.
    let dir = tempfile::tempdir().unwrap();
    let output = run(&["run", "--config", dir.path().to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
}

#[tokio::test]
async fn check_config_shows_what_was_meant_and_what_can_never_match() {
    let dir = tempfile::tempdir().unwrap();
    let check = async |text: &str| {
        let path = write(dir.path(), text);
        let output = run(&["check-config", "--config", path.to_str().unwrap()]).await;
        let stderr = err(&output).replace(&format!("{}/", dir.path().display()), "");
        (output.status.code().unwrap(), stderr)
    };
    let (code, stderr) = check(
        "[[classes]]\nname = 'a'\n[[class]]\nname = 'b'\nmedia = 'hdd'\nselect.drive = '*'\n",
    )
    .await;
    assert_eq!(code, 1);
    for line in [
        "drivebay.toml:1: unknown key `classes` in the file (did you mean [[class]]?)",
        "drivebay.toml:5: unknown key `media` in [[class]] (it belongs into [class.select])",
    ] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    let (code, stderr) = check(
        "[[class]]\nname = 'a'\n[class.select]\npath = ['/dev/loop1']\n[[class]]\nname = 'b'\npriority = 1\n[class.select]\n\
         drive = ['/dev/disk/by-id/wwn-0x5000c500a1b2c3d4', '/dev/disk/by-id/usb-Disk_1-0:0', '/dev/sdb']\n",
    )
    .await;
    assert_eq!(code, 0, "{stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    let [never, unsupported, changes] = lines.as_slice() else {
        panic!("three warnings: {stderr}")
    };
    assert_eq!(
        *never,
        "warning: drivebay.toml:4: [class.select] path: \"/dev/loop1\" can never match: loop devices are not used unless [discovery] allow-loop = true"
    );
    assert!(
        unsupported.starts_with(
            "warning: drivebay.toml:9: [class.select] drive: \"/dev/disk/by-id/usb-Disk_1-0:0\" can never match: of these links only ata-…"
        ),
        "{unsupported}"
    );
    assert!(
        changes
            .contains("\"/dev/sdb\" is a kernel name, which may be another drive's after a reboot"),
        "{changes}"
    );
}

#[tokio::test]
async fn check_config_has_the_kernel_check_mount_options_or_reports_that_it_did_not() {
    let dir = tempfile::tempdir().unwrap();
    let class = |fs: &str, options: &str| {
        let text = format!(
            "[[class]]\nname = 'a'\nfs = '{fs}'\nmount-options = [{options}]\n[class.select]\nmedia = 'hdd'\n"
        );
        write(dir.path(), &text).to_str().unwrap().to_owned()
    };
    let mut answered = 0;
    for (fs, good) in [
        ("ext4", "commit=30"),
        ("xfs", "logbsize=64k"),
        ("btrfs", "compress=zstd"),
    ] {
        let path = class(fs, &format!("'noatime', '{good}'"));
        let output = run(&["check-config", "--config", &path]).await;
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let checked = !err(&output)
            .contains("drivebay.toml:4: [[class]] mount-options: not checked by the kernel: ");
        let path = class(fs, &format!("'{good}', 'nobarier,ro', 'alocsize=1'"));
        let output = run(&["check-config", "--config", &path]).await;
        assert_eq!(output.status.code(), Some(i32::from(checked)), "{fs}");
        let refusal = format!(
            "drivebay.toml:4: [[class]] mount-options: the kernel refuses \"nobarier,alocsize=1\" ({fs}: Unknown parameter 'nobarier'; {fs}: Unknown parameter 'alocsize')"
        );
        assert_eq!(err(&output).contains(&refusal), checked, "{}", err(&output));
        answered += i32::from(checked);
    }
    eprintln!("{answered} of 3 filesystems are checked by this kernel");
    // Without root nothing is asked and nothing is refused.
    let output = tokio::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_drivebay-agent"))
        .args(["check-config", "--config"])
        .arg(class("ext4", "'nobarier'"))
        .output()
        .await;
    if let Ok(output) = output
        && output.status.success()
    {
        let stderr = err(&output);
        assert!(
            stderr.contains(
                "not checked by the kernel: fsopen(2) of ext4 failed: Operation not permitted"
            ),
            "{stderr}"
        );
    }
}

#[tokio::test]
async fn help_describes_what_to_do_first_and_what_exit_codes_mean() {
    let output = run(&["--help"]).await;
    assert_eq!(output.status.code(), Some(0));
    let text = out(&output);
    for words in [
        "claim-plan --config",
        "check-config --config",
        "Exit codes",
        "3    the program that is asked is not reachable",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(run(&["drives", "--nonsense"]).await.status.code(), Some(2));
    assert_eq!(run(&[]).await.status.code(), Some(2));
}
