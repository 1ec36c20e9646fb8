//! The reference conformance suite with a real agent: nothing fails, only features that are not advertised or that a layout lacks are
//! skipped, and no secret is printed.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    env, fs,
    net::Ipv4Addr,
    process::{Command, Stdio},
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, Settings, authority::Authority, fleet::Controller, long_on_drives,
    need, settings::layout, tree,
};
use tempfile::TempDir;

/// Time limit for the agent to connect; the machine may be building at the same time.
const CONNECTED: Duration = Duration::from_secs(60);
/// Contained in every secret that the suite sends.
const CANARY: &str = "canary-3f9c1e7a-do-not-print";

/// Every group of secrets in the suite.
const SECRETS: [&str; 13] = [
    "CreateVolumeSecret",
    "DeleteVolumeSecret",
    "ControllerPublishVolumeSecret",
    "ControllerUnpublishVolumeSecret",
    "ControllerValidateVolumeCapabilitiesSecret",
    "NodeStageVolumeSecret",
    "NodePublishVolumeSecret",
    "CreateSnapshotSecret",
    "DeleteSnapshotSecret",
    "ControllerExpandVolumeSecret",
    "ControllerModifyVolumeSecret",
    "ListSnapshotsSecret",
    "GetSnapshotSecret",
];

/// The suite's reasons to skip specs of features that Drivebay does not advertise.
const NOT_ADVERTISED: [&str; 8] = [
    "Controller Publish, UnpublishVolume not supported",
    "ControllerModifyVolume not supported",
    "ControllerPublishVolume not supported",
    "ControllerPublishVolume.readonly field not supported",
    "ControllerUnpublishVolume not supported",
    "Modify Volume not supported",
    "Modify volume not supported",
    // A limit of volumes per node, tested with a flag of the suite; there is no limit.
    "testnodevolumeattachlimit not enabled",
];

/// Specs that need a snapshot, as regular expressions of their names: layout partition has none, and `drives::clones` tests its error. First
/// one of each RPC.
const OF_SNAPSHOTS: [&str; 10] = [
    r"should create volume from an existing source snapshot",
    r"ListSnapshots \[Controller Server\] should return next token when a limited number of entries are requested",
    r"GetSnapshot \[Controller Server\] should return snapshot that match the specified snapshot id",
    r"DeleteSnapshot \[Controller Server\] should return appropriate values",
    r"CreateSnapshot \[Controller Server\] should fail when requesting to create a snapshot with already existing name",
    r"CreateSnapshot \[Controller Server\] should succeed when requesting to create a snapshot with already existing name",
    r"CreateSnapshot \[Controller Server\] should succeed when creating snapshot with maximum-length name",
    r"ListSnapshots \[Controller Server\] should return snapshots that match the specified snapshot id",
    r"ListSnapshots \[Controller Server\] should return snapshots that match the specified source volume id",
    r"ListSnapshots \[Controller Server\] check the presence of new snapshots in the snapshot list",
];
/// Number of the former.
const ONE_OF_EACH: usize = 5;
/// Other specs that depend on the layout, as regular expressions.
const OF_LAYOUTS: [&str; 5] = [
    r"CreateVolume should create volume from an existing source volume",
    r"CreateVolume should not fail when creating volume with maximum-length name",
    r"ExpandVolume \[Controller Server\] should work",
    r"NodeExpandVolume should work if node-expand is called after node-publish",
    r"Node Service should work",
];
/// Environment variable. `layout`: run only those and one spec of each RPC of snapshots, since the guest is slow and the others pass
/// elsewhere.
const SPECS: &str = "DRIVEBAY_SANITY_SPECS";
/// Ginkgo's reason for a spec that it was configured to skip.
const SKIPPED: &str = "skipped";

/// Number of specs that pass on every layout: those of volumes, those of snapshots and clones that need no snapshot, and those of group
/// snapshots, none of which takes one.
const PASS: usize = 49 + 12 + 6;

/// Access type and size of the suite's volumes: a filesystem, or a small raw volume, since a clone of that copies all bytes and the suite
/// does not repeat the call.
const MOUNT: (&str, u64) = ("mount", 128 * MIB);
const BLOCK: (&str, u64) = ("block", 16 * MIB);

#[tokio::test]
async fn the_conformance_suite_passes_with_mounted_volumes() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", sanity);
    let rig = Rig::tuned(drives(), spread).await;
    conforms(MOUNT, rig, None, PASS).await;
}

#[tokio::test]
async fn the_conformance_suite_passes_with_block_volumes() {
    need!(root, loop, sanity);
    let rig = Rig::tuned(drives(), spread).await;
    conforms(BLOCK, rig, None, PASS).await;
}

#[tokio::test]
async fn the_conformance_suite_passes_through_a_controller_with_mounted_volumes() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", sanity);
    let (rig, controller) = with_controller(&[]).await;
    conforms(MOUNT, rig, Some(controller), PASS).await;
}

#[tokio::test]
async fn the_conformance_suite_passes_through_a_controller_with_block_volumes() {
    need!(root, loop, sanity);
    // In the short run the controller is tested with mounted volumes only.
    long_on_drives!();
    let (rig, controller) = with_controller(&[]).await;
    conforms(BLOCK, rig, Some(controller), PASS).await;
}

#[tokio::test]
async fn the_conformance_suite_passes_through_a_controller_that_attaches() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4", sanity);
    let (rig, controller) = with_controller(&["--attach"]).await;
    conforms(MOUNT, rig, Some(controller), PASS + 8).await;
}

fn drives() -> Vec<DriveSpec> {
    ["a", "b", "c"]
        .map(|name| DriveSpec::blank(name, 64 * GIB))
        .into()
}

/// Spreads volumes, as classes do by default, so that each has space to grow. Packed, one that is made while the last one is erased
/// may lie right before it, and could not grow then.
fn spread(settings: &mut Settings) {
    "spread".clone_into(&mut settings.placement);
}

/// Starts an agent that serves the node, and a controller that it dials.
async fn with_controller(options: &[&str]) -> (Rig, Central) {
    let dir = TempDir::with_prefix("drivebay-controller-").unwrap();
    let authority = Authority::new(&dir.path().join("ca"), &[Ipv4Addr::LOCALHOST.into()]).unwrap();
    let controller = Controller::start(dir.path(), Some(authority.dir()), options)
        .await
        .unwrap();
    let files = authority.node("node1").unwrap();
    let config = format!(
        "\n[controller]\naddresses = [\"{}\"]\nca = {:?}\ncert = {:?}\nkey = {:?}\n",
        controller.address(),
        files.ca,
        files.cert,
        files.key
    );
    let rig = Rig::tuned(drives(), |settings| {
        spread(settings);
        settings.headless = false;
        settings.more = config;
    })
    .await;
    controller.until_connected(1, CONNECTED).await;
    let central = Central {
        controller,
        _dir: dir,
    };
    (rig, central)
}

/// A controller and its directory, which is removed after it.
struct Central {
    controller: Controller,
    _dir: TempDir,
}

/// Runs the suite. `expected`: number of specs that pass on every layout.
async fn conforms(
    (access, size): (&str, u64),
    rig: Rig,
    central: Option<Central>,
    expected: usize,
) {
    let dir = rig.dir().to_owned();
    let secrets = dir.join("secrets.yaml");
    let yaml = SECRETS.map(|group| format!("{group}:\n  {CANARY}-key: {CANARY}\n"));
    fs::write(&secrets, yaml.concat()).unwrap();
    let snapshots = dir.join("snapshots.yaml");
    fs::write(&snapshots, "reserve: 10%\nleastReserve: 16MiB\n").unwrap();
    let junit = dir.join("junit.xml");
    // The suite creates both for each test; they must not exist before.
    let (mounts, staging) = (dir.join("sanity-mount"), dir.join("sanity-staging"));

    let mut suite = Command::new(need::sanity().unwrap());
    if let Some(central) = &central {
        suite.arg(format!(
            "--csi.controllerendpoint={}",
            central.controller.socket().display()
        ));
    }
    let left_out: &[&str] = match layout().as_str() {
        "lvm" => &[],
        _ => &OF_SNAPSHOTS,
    };
    for spec in left_out {
        suite.arg(format!("--ginkgo.skip={spec}"));
    }
    let only = match env::var(SPECS).as_deref() {
        Ok("layout") => [&OF_SNAPSHOTS[..ONE_OF_EACH], &OF_LAYOUTS].concat(),
        _ => Vec::new(),
    };
    for spec in &only {
        suite.arg(format!("--ginkgo.focus={spec}"));
    }
    let output = suite
        .arg(format!(
            "--csi.endpoint={}",
            rig.agent.settings().csi_socket().display()
        ))
        .arg(format!("--csi.mountdir={}", mounts.display()))
        .arg(format!("--csi.stagingdir={}", staging.display()))
        .arg(format!("--csi.secrets={}", secrets.display()))
        .arg(format!("--csi.testvolumeaccesstype={access}"))
        .arg(format!("--csi.testvolumesize={size}"))
        .arg(format!("--csi.testvolumeexpandsize={}", 2 * size))
        .arg(format!(
            "--csi.testsnapshotparameters={}",
            snapshots.display()
        ))
        .args(["--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=10m"])
        .arg(format!("--ginkgo.junit-report={}", junit.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success() && text.contains(" 0 Failed"),
        "csi-sanity ({access}) ended with {}:\n{text}",
        output.status
    );

    let report = fs::read_to_string(&junit).unwrap();
    let (excluded, others): (Vec<_>, Vec<_>) = skips(&report)
        .into_iter()
        .partition(|(_, reason)| reason == SKIPPED);
    if only.is_empty() {
        assert_eq!(
            excluded.len(),
            left_out.len(),
            "each name is one spec's: {excluded:#?}"
        );
    }
    let unexpected: Vec<_> = others
        .iter()
        .filter(|(_, reason)| !NOT_ADVERTISED.contains(&reason.as_str()))
        .collect();
    assert!(
        unexpected.is_empty(),
        "skipped without need: {unexpected:#?}"
    );
    let passed = report.matches("status=\"passed\"").count();
    let expected = match only.len() {
        0 => expected + OF_SNAPSHOTS.len() - left_out.len(),
        only => only,
    };
    // Of the 96 specs of v5.5.0: fewer means that the suite stopped early, more that the list of features that are not advertised is
    // outdated.
    assert_eq!(passed, expected, "another number of specs passed:\n{text}");

    assert!(!text.contains(CANARY), "the suite's output shows a secret");
    rig.erased().await;
    let log = rig.agent.log();
    assert!(!log.contains(CANARY), "the agent's log shows a secret");
    let controller_log = central.map_or_else(String::new, |central| central.controller.log());
    assert!(
        !controller_log.contains(CANARY),
        "the controller's log shows a secret"
    );
    let table = rig.agent.run_command(&["volumes", "-o", "json"]).unwrap();
    assert!(!String::from_utf8_lossy(&table.stdout).contains(CANARY));
    let mounted = tree::mounts_of(&dir);
    assert!(mounted.is_empty(), "left mounted: {mounted:#?}");
}

/// Returns the skipped specs of a JUnit report with the suite's reasons; pending specs are the suite's own.
fn skips(report: &str) -> Vec<(String, String)> {
    report
        .split("<testcase ")
        .skip(1)
        .filter(|case| case.contains("status=\"skipped\""))
        .map(|case| {
            let name = attribute(case, "name=\"");
            let skipped = case.split("<skipped").nth(1).unwrap_or("");
            let reason = attribute(skipped, "message=\"");
            // Ginkgo writes "skipped - <reason>".
            let reason = reason.strip_prefix("skipped - ").unwrap_or(&reason);
            (name, reason.to_owned())
        })
        .collect()
}

fn attribute(text: &str, key: &str) -> String {
    let value = text.split(key).nth(1).unwrap_or("");
    value.split('"').next().unwrap_or("").to_owned()
}

#[test]
fn a_skip_is_read_from_the_report_with_its_reason() {
    let report = r#"<testsuite><testcase name="[It] A works" classname="x" status="passed" time="1"></testcase>
        <testcase name="[It] B works" classname="x" status="skipped" time="0">
          <skipped message="skipped - CreateSnapshot not supported"></skipped></testcase></testsuite>"#;
    assert_eq!(
        skips(report),
        [(
            "[It] B works".to_owned(),
            "CreateSnapshot not supported".to_owned()
        )]
    );
}
