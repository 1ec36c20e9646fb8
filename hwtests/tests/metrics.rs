//! /metrics of real programs: valid, complete, and without processes started, also beside a hung drive. Needs root and loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi,
    hang::HungDrive,
    need, program,
    scrape::{self, repeated, value},
    starts::Starts,
    wait,
};
use drivebay_proto::{
    agent::{RescanRequest, agent_client::AgentClient},
    csi::CreateVolumeRequest,
};

/// Number of scrapes in a window.
const SCRAPES: usize = 20;
/// Number of windows. Another event (a rescan, a SMART poll) may start a process in one window; a scrape that starts one shows in every
/// one.
const WINDOWS: usize = 5;
/// Time limit for an agent and a controller to detect something without a request.
const SOON: Duration = Duration::from_secs(30);

fn socket(rig: &Rig) -> std::path::PathBuf {
    rig.dir().join("metrics.sock")
}

/// Asserts that Prometheus' own parser and linter accept the text, and that no series is repeated.
fn is_valid(text: &str) {
    assert_eq!(scrape::lint(text).unwrap(), "", "promtool complains");
    assert_eq!(repeated(text), Vec::<&str>::new());
}

#[tokio::test]
async fn a_scrape_of_an_agent_is_valid_and_has_drives_volumes_and_calls() {
    need!(root, loop, promtool, tool "mkfs.ext4", fs "ext4");
    let drives = vec![
        DriveSpec::blank("a", 2 * GIB),
        DriveSpec::blank("b", 2 * GIB),
    ];
    let rig = Rig::with(drives).await;
    let volume = rig.volume("pvc-1", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    rig.csi.stats(&volume.id, &volume.target).await.unwrap();
    let refused = rig.csi.stats("nothing", &volume.target).await;
    assert!(refused.is_err());

    let text = scrape::scrape(&socket(&rig)).unwrap();
    is_valid(&text);
    let (uuid, _) = volume.id.split_once('@').unwrap();
    let of = format!("volume=\"{uuid}\"");
    let is = |name: &str, labels: &[&str]| {
        value(&text, name, labels).unwrap_or_else(|| panic!("no {name}{labels:?} in\n{text}"))
    };
    assert_eq!(is("drivebay_ready", &[]), 1.0);
    assert_eq!(is("drivebay_volume_size_bytes", &[&of]), (256 * MIB) as f64);
    assert_eq!(is("drivebay_volume_in_use", &[&of]), 1.0);
    assert_eq!(is("drivebay_volume_abnormal", &[&of]), 0.0);
    assert_eq!(
        is(
            "drivebay_volume_info",
            &[&of, "name=\"pvc-1\"", "fs=\"ext4\""]
        ),
        1.0
    );
    let (size, available) = (
        is("drivebay_volume_fs_size_bytes", &[&of]),
        is("drivebay_volume_fs_available_bytes", &[&of]),
    );
    assert!(available > 0.0 && available < size, "{available} of {size}");
    assert!(is("drivebay_volume_fs_inodes", &[&of]) > 0.0);
    for (state, count) in [("claimed", 1), ("available", 1)] {
        let label = format!("state=\"{state}\"");
        let lines = text
            .lines()
            .filter(|line| line.starts_with("drivebay_drive_state{") && line.contains(&label));
        assert_eq!(lines.count(), count, "{state}:\n{text}");
    }
    assert!(is("drivebay_class_free_bytes", &["class=\"demo\""]) > 0.0);
    assert!(is("drivebay_inventory_last_scan_timestamp_seconds", &[]) > 0.0);
    let calls = |method: &str, code: &str| {
        let labels = [format!("method=\"{method}\""), format!("code=\"{code}\"")];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        is("drivebay_rpc_total", &labels)
    };
    assert_eq!(calls("NodePublishVolume", "OK"), 1.0);
    assert_eq!(calls("NodeGetVolumeStats", "NotFound"), 1.0);
    assert_eq!(calls("CreateVolume", "OK"), 1.0);
    assert_eq!(calls("Agent/CreateVolume", "OK"), 1.0);
    let buckets = ["method=\"NodeStageVolume\"", "le=\"+Inf\""];
    assert_eq!(is("drivebay_rpc_duration_seconds_bucket", &buckets), 1.0);

    rig.leave_volume(&volume).await;
    let text = scrape::scrape(&socket(&rig)).unwrap();
    // Samples from when it was mounted are not exported any more.
    assert_eq!(value(&text, "drivebay_volume_fs_size_bytes", &[&of]), None);
    assert_eq!(scrape::get(&socket(&rig), "/healthz").unwrap().1, "ok\n");
    assert_eq!(scrape::get(&socket(&rig), "/readyz").unwrap().1, "ready\n");
}

#[tokio::test]
async fn a_volumes_claim_is_kept_on_its_drive_and_a_useless_one_fails_no_create() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let long = "n".repeat(254);
    for (name, claim, volume) in [("pv-1", "data-db-0", "pv-1"), ("v", &long, "pv-2")] {
        let metadata = [
            ("csi.storage.k8s.io/pvc/name", claim),
            ("csi.storage.k8s.io/pvc/namespace", "prod"),
            ("csi.storage.k8s.io/pv/name", volume),
        ];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let request = |metadata: &[(String, String)]| CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(16 * MIB)),
            volume_capabilities: vec![csi::block()],
            parameters: metadata.iter().cloned().collect(),
            ..Default::default()
        };
        let made = rig.csi.create_with(request(&metadata)).await.unwrap();
        assert_eq!(made.volume_context.len(), 1, "only its class: {made:?}");
        // A provisioner started without the option in between requests the same volume.
        let again = rig.csi.create_with(request(&[])).await.unwrap();
        assert_eq!(again.volume_id, made.volume_id);
    }
    let log = rig.agent.log();
    assert!(log.contains("claim metadata is not valid"), "{log}");
    assert!(!log.contains(&long), "{log}");

    // Stored on the drive, not in the state directory.
    rig.agent.stop().unwrap();
    std::fs::remove_dir_all(rig.dir().join("state")).unwrap();
    rig.start_again().await;
    let text = scrape::scrape(&socket(&rig)).unwrap();
    is_valid(&text);
    for (name, claim, volume) in [("pv-1", "data-db-0", "pv-1"), ("v", "", "pv-2")] {
        let labels = [
            format!("name=\"{name}\""),
            format!("persistentvolumeclaim=\"{claim}\""),
            "namespace=\"prod\"".to_owned(),
            format!("persistentvolume=\"{volume}\""),
        ];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        assert_eq!(
            value(&text, "drivebay_volume_info", &labels),
            Some(1.0),
            "{text}"
        );
    }
}

/// Scrapes while strace counts the processes that the agent starts; there must be a window without any.
fn scrapes_start_nothing(rig: &Rig) {
    let mut windows = Vec::new();
    for _ in 0..WINDOWS {
        let starts = Starts::watch_only(rig.agent.pid(), rig.dir()).unwrap();
        for _ in 0..SCRAPES {
            let text = scrape::scrape(&socket(rig)).unwrap();
            assert!(text.contains("drivebay_drive_info"), "{text}");
        }
        let lines = starts.finish().unwrap();
        if lines.is_empty() {
            return;
        }
        windows.push(lines);
    }
    panic!("processes were started in every window: {windows:#?}");
}

#[tokio::test]
async fn a_scrape_executes_nothing() {
    need!(root, loop, tool "strace");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    scrapes_start_nothing(&rig);
}

// The hung rescan continues beside the scrapes, which block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drive_that_hangs_neither_delays_a_scrape_nor_spoils_it() {
    need!(root, loop, promtool, tool "strace");
    let hang = HungDrive::new(512 * MIB).unwrap();
    let rig = Rig::tuned(vec![DriveSpec::blank("healthy", 2 * GIB)], |settings| {
        settings.more = hang.class("hung", "partition");
    })
    .await;
    /// Before everything else, or the rest would never end.
    struct Resume<'a>(&'a HungDrive);
    impl Drop for Resume<'_> {
        fn drop(&mut self) {
            self.0.resume();
        }
    }
    let _resume = Resume(&hang);
    hang.hang();
    let channel = csi::channel(&rig.agent.settings().agent_socket())
        .await
        .unwrap();
    let rescan = tokio::spawn(async move {
        AgentClient::new(channel)
            .rescan(RescanRequest {})
            .await
            .map(drop)
    });
    wait::until(SOON, "the drive hangs", || {
        (hang.hanging() > 0).then_some(())
    });
    scrapes_start_nothing(&rig);

    // Its worker is killed after its deadline, and does not end.
    let text = wait::until(SOON, "the drive is shown as stuck", || {
        let text = scrape::scrape(&socket(&rig)).unwrap();
        let slots = ["slot=\"foreground\"", "state=\"stuck\""];
        (value(&text, "drivebay_worker_slots", &slots) == Some(1.0)).then_some(text)
    });
    is_valid(&text);
    let stuck = text
        .lines()
        .filter(|line| line.starts_with("drivebay_drive_stuck{") && line.ends_with("} 1"));
    assert_eq!(stuck.count(), 1, "{text}");
    // A restart of the agent would not repair the drive.
    assert_eq!(scrape::get(&socket(&rig), "/healthz").unwrap().1, "ok\n");
    scrapes_start_nothing(&rig);
    rescan.abort();
}

#[tokio::test]
async fn an_agent_whose_port_is_taken_serves_its_volumes_and_later_its_metrics() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 2 * GIB)], |settings| {
        settings.metrics = address.to_string();
    })
    .await;
    let volume = rig.volume("v", 256 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    let log = rig.agent.log();
    assert!(
        log.contains("cannot serve HTTP; will retry")
            && log.contains(&format!("{address} is in use by another process")),
        "{log}"
    );
    drop(taken);
    let answer = wait::until(SOON, "the metrics are served", || {
        let mut stream = TcpStream::connect(address).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    });
    assert!(answer.contains("drivebay_volume_in_use"), "{answer}");
    rig.leave_volume(&volume).await;
}

/// A controller over one agent's socket; stopped when dropped.
struct Controller(Child);

impl Controller {
    fn start(rig: &Rig, log: &str) -> Self {
        let dir = rig.dir();
        let output = std::fs::File::create(dir.join("controller.log")).unwrap();
        let child = Command::new(program::controller().unwrap())
            .arg("run")
            .args([
                Path::new("--agent-socket"),
                &rig.agent.settings().agent_socket(),
            ])
            .args([Path::new("--csi-socket"), &dir.join("c-csi.sock")])
            .args([Path::new("--socket"), &dir.join("c.sock")])
            .args([Path::new("--metrics"), &dir.join("c-metrics.sock")])
            .args(["--log-format", "json"])
            .env("RUST_LOG", log)
            .stdin(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        drivebay_hwtests::agent::terminate(self.0.id());
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_scrape_of_a_controller_is_valid_and_has_its_nodes() {
    need!(root, loop, promtool);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.volume("v", 256 * MIB, &csi::mount("ext4")).await;
    let _controller = Controller::start(&rig, "info");
    let socket = rig.dir().join("c-metrics.sock");
    let node = ["node=\"node1\""];
    let text = wait::until(SOON, "the node is reported", || {
        let text = scrape::scrape(&socket).ok()?;
        value(&text, "drivebay_node_volumes", &node)?;
        Some(text)
    });
    is_valid(&text);
    assert_eq!(value(&text, "drivebay_node_volumes", &node), Some(1.0));
    assert_eq!(value(&text, "drivebay_node_away_seconds", &node), Some(0.0));
    let connected = ["state=\"connected\""];
    let nodes = |text: &str, state: &[&str]| value(text, "drivebay_controller_nodes", state);
    assert_eq!(nodes(&text, &connected), Some(1.0), "{text}");
    assert_eq!(
        value(&text, "drivebay_controller_creates_in_doubt", &[]),
        Some(0.0)
    );

    rig.agent.stop().unwrap();
    let text = wait::until(SOON, "the node is away", || {
        let text = scrape::scrape(&socket).unwrap();
        let away = value(&text, "drivebay_node_away_seconds", &node)?;
        (away > 0.0).then_some(text)
    });
    is_valid(&text);
    assert_eq!(value(&text, "drivebay_node_volumes", &node), Some(1.0));
}
