//! Logs of real programs: one line for each call, a level changed while they run, and never a secret. Needs root and loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use drivebay_hwtests::{Csi, DriveSpec, GIB, MIB, Rig, agent, csi, need, program, wait};
use drivebay_proto::csi as wire;
use serde_json::Value;

/// Contained in the secrets of every request, and nowhere else.
const SECRET: &str = "correct-horse-battery-staple";
/// Time limit for a program to start.
const SOON: Duration = Duration::from_secs(30);

fn secrets() -> HashMap<String, String> {
    HashMap::from([("key".to_owned(), SECRET.to_owned())])
}

/// A controller over one agent's socket; stopped when dropped.
struct Controller {
    child: Child,
    dir: PathBuf,
}

impl Controller {
    async fn start(rig: &Rig, level: &str) -> (Self, Csi) {
        let dir = rig.dir().to_owned();
        let child = Command::new(program::controller().unwrap())
            .arg("run")
            .args([
                Path::new("--agent-socket"),
                &rig.agent.settings().agent_socket(),
            ])
            .args([Path::new("--csi-socket"), &dir.join("c-csi.sock")])
            .args([Path::new("--socket"), &dir.join("c.sock")])
            .args(["--metrics", "off", "--log-format", "json"])
            .env("RUST_LOG", level)
            .stdin(Stdio::null())
            .stderr(File::create(dir.join("controller.log")).unwrap())
            .spawn()
            .unwrap();
        let this = Self { child, dir };
        let csi = wait::until_async(SOON, "the controller answers", async || {
            let csi = Csi::connect(&this.dir.join("c-csi.sock")).await.ok()?;
            csi.capacity().await.ok().filter(|bytes| *bytes > 0)?;
            Some(csi)
        })
        .await;
        (this, csi)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("controller.log")).unwrap()
    }

    fn query(&self, args: &[&str]) -> Output {
        Command::new(program::controller().unwrap())
            .args(args)
            .arg("--socket")
            .arg(self.dir.join("c.sock"))
            .output()
            .unwrap()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        agent::terminate(self.child.id());
        let _ = self.child.wait();
    }
}

fn printed(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Sends every request that can hold secrets, through a controller and a node.
async fn with_secrets(controller: &Csi, rig: &Rig) {
    let mut control = controller.controller();
    let capability = csi::mount("ext4");
    let volume = control
        .create_volume(wire::CreateVolumeRequest {
            name: "secretive".to_owned(),
            capacity_range: Some(csi::bytes(256 * MIB)),
            volume_capabilities: vec![capability.clone()],
            parameters: [("class".to_owned(), "demo".to_owned())].into(),
            secrets: secrets(),
            ..Default::default()
        })
        .await
        .unwrap()
        .into_inner()
        .volume
        .unwrap();
    let id = volume.volume_id.clone();
    let placed = rig.place(&volume, "secretive", &capability);
    let mut node = rig.csi.node();
    fs::create_dir_all(&placed.staging).unwrap();
    fs::create_dir_all(placed.target.parent().unwrap()).unwrap();
    node.node_stage_volume(wire::NodeStageVolumeRequest {
        volume_id: id.clone(),
        staging_target_path: csi::text(&placed.staging),
        volume_capability: Some(capability.clone()),
        secrets: secrets(),
        ..Default::default()
    })
    .await
    .unwrap();
    node.node_publish_volume(wire::NodePublishVolumeRequest {
        volume_id: id.clone(),
        staging_target_path: csi::text(&placed.staging),
        target_path: csi::text(&placed.target),
        volume_capability: Some(capability.clone()),
        secrets: secrets(),
        ..Default::default()
    })
    .await
    .unwrap();
    control
        .controller_expand_volume(wire::ControllerExpandVolumeRequest {
            volume_id: id.clone(),
            capacity_range: Some(csi::bytes(300 * MIB)),
            volume_capability: Some(capability.clone()),
            secrets: secrets(),
        })
        .await
        .unwrap();
    let grown = node
        .node_expand_volume(wire::NodeExpandVolumeRequest {
            volume_id: id.clone(),
            volume_path: csi::text(&placed.target),
            secrets: secrets(),
            ..Default::default()
        })
        .await;
    // Root in a container may lack capabilities to grow; the log of that counts, too.
    if let Err(status) = grown {
        assert!(!status.message().contains(SECRET));
    }
    control
        .validate_volume_capabilities(wire::ValidateVolumeCapabilitiesRequest {
            volume_id: id.clone(),
            volume_capabilities: vec![capability.clone()],
            secrets: secrets(),
            ..Default::default()
        })
        .await
        .unwrap();
    rig.leave_volume(&placed).await;
    // A refused one, too: the error must not repeat the request.
    let refused = control
        .create_volume(wire::CreateVolumeRequest {
            name: "too-large".to_owned(),
            capacity_range: Some(csi::bytes(100 * GIB)),
            volume_capabilities: vec![capability],
            parameters: [("class".to_owned(), "demo".to_owned())].into(),
            secrets: secrets(),
            ..Default::default()
        })
        .await;
    assert!(!refused.unwrap_err().message().contains(SECRET));
    control
        .delete_volume(wire::DeleteVolumeRequest {
            volume_id: id,
            secrets: secrets(),
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_secret_in_a_request_is_in_no_log_at_any_level() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        settings.log = "trace".to_owned();
    })
    .await;
    let (controller, csi) = Controller::start(&rig, "trace").await;
    with_secrets(&csi, &rig).await;
    for (whose, log) in [("agent", rig.agent.log()), ("controller", controller.log())] {
        // At this level the libraries log too, or this would prove little.
        assert!(
            log.contains("TRACE") && log.contains("CreateVolume"),
            "the {whose}'s log is not at trace"
        );
        assert!(!log.contains(SECRET), "the {whose}'s log has the secret");
        let bytes = format!("{:?}", SECRET.as_bytes());
        let bytes = bytes.trim_matches(['[', ']']);
        assert!(!log.contains(bytes), "the {whose}'s log has its bytes");
    }
}

#[tokio::test]
async fn a_call_that_changes_something_or_fails_is_one_line_with_code_and_duration() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let (controller, csi) = Controller::start(&rig, "info").await;
    let volume = csi
        .create("v", 256 * MIB, &csi::mount("ext4"))
        .await
        .unwrap();
    csi.list().await.unwrap();
    csi.delete(&volume.volume_id).await.unwrap();
    let unnamed = csi.create("", 256 * MIB, &csi::mount("ext4")).await;
    assert!(unnamed.is_err());
    let log = controller.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect();
    let calls: Vec<(&str, &str)> = lines
        .iter()
        .filter(|line| line["message"] == "gRPC call" && line["code"] != "Unavailable")
        .map(|line| {
            assert!(line["milliseconds"].is_number() || line["milliseconds"].is_string());
            (
                line["method"].as_str().unwrap(),
                line["code"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("CreateVolume", "Ok"),
        ("DeleteVolume", "Ok"),
        ("CreateVolume", "InvalidArgument"),
    ];
    assert_eq!(calls, expected, "{log}");
}

#[tokio::test]
async fn what_is_logged_is_changed_while_the_programs_run() {
    need!(root, loop);
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        settings.log = "info".to_owned();
    })
    .await;
    let (controller, csi) = Controller::start(&rig, "info").await;
    let agent = |args: &[&str]| rig.agent.run_command(args).unwrap();

    assert_eq!(printed(&agent(&["log-level"])), "info");
    rig.csi.ready().await;
    assert!(!rig.agent.log().contains("Probe"));
    assert_eq!(printed(&agent(&["log-level", "debug"])), "debug");
    rig.csi.ready().await;
    assert!(
        rig.agent.log().contains("method=\"Probe\""),
        "{}",
        rig.agent.log()
    );
    let wrong = agent(&["log-level", "debgu"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        printed(&wrong).contains("\"debgu\" is no level"),
        "{}",
        printed(&wrong)
    );
    assert_eq!(printed(&agent(&["log-level"])), "debug", "left as it was");
    assert_eq!(printed(&agent(&["log-level", "reset"])), "info");

    assert_eq!(printed(&controller.query(&["log-level"])), "info");
    csi.list().await.unwrap();
    assert!(!controller.log().contains("ListVolumes"));
    assert!(controller.query(&["log-level", "debug"]).status.success());
    csi.list().await.unwrap();
    assert!(controller.log().contains("\"method\":\"ListVolumes\""));
}
