//! A fleet with one controller: no volume is lost or listed twice while sessions end and volumes change. Counts are asserted; times are
//! only printed, except the one that the health monitor requires.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    collections::BTreeSet,
    io::Write,
    path::{Path, PathBuf},
    sync::LazyLock,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    Csi, GIB,
    csi::{bytes, mount},
    fleet::{
        Command, Controller, Fleet, FleetOptions, Listing, Plan, Times, certs,
        command::{Nodes, Percent},
        contents::CLASS,
        controller::Usage,
    },
    program,
};
use drivebay_proto::{csi as wire, names};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// external-health-monitor's deadline for a whole listing (its --timeout).
const MONITOR: Duration = Duration::from_secs(15);
/// Largest message that a Go client accepts, bytes.
const MAX_PAGE: usize = 4 << 20;
/// Time limit for all sessions to return, on a busy machine.
const BACK: Duration = Duration::from_secs(300);
/// Limit of open files with which the controller is started.
const FEW_FILES: u64 = 256;

/// Size of a fleet, and duration of its test.
#[derive(Debug, Clone, Copy)]
struct Size {
    nodes: usize,
    volumes: usize,
    /// Number of calls of each kind.
    calls: usize,
    /// Period over which processor time is measured.
    window: Duration,
    /// Number of listings taken while volumes change, `change` of them per minute.
    listings: usize,
    change: Percent,
    /// True if the monitor's deadline is asserted.
    bound: bool,
}

/// Prints to stderr directly, which the test runner does not capture, with the seconds since the first line.
fn report(what: impl std::fmt::Display) {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let line = format!("fleet: {:5.1} s: {what}\n", START.elapsed().as_secs_f64());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

struct Try {
    size: Size,
    dir: tempfile::TempDir,
    certs: PathBuf,
    state: PathBuf,
}

impl Try {
    fn new(size: Size) -> Self {
        // Thousands of small files, which take longer to remove from a disk than the rest of the test.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let (certs, state) = (dir.path().join("certs"), dir.path().join("state"));
        let this = Self {
            size,
            dir,
            certs,
            state,
        };
        let began = Instant::now();
        certs::make(&this.certs, &this.plan(0)).unwrap();
        report(format!(
            "{} certificates: {:.1?}",
            size.nodes,
            began.elapsed()
        ));
        this
    }

    fn plan(&self, volumes: usize) -> Plan {
        Plan {
            nodes: self.size.nodes,
            volumes,
            ..Plan::default()
        }
    }

    async fn controller(&self, state: &Path) -> Controller {
        let more = ["--state-dir", state.to_str().unwrap()];
        Controller::start(self.dir.path(), Some(&self.certs), &more)
            .await
            .unwrap()
    }

    async fn fleet(&self, controller: &Controller, volumes: usize) -> Fleet {
        Fleet::start(&FleetOptions {
            plan: self.plan(volumes),
            controllers: vec![controller.address()],
            certs: Some(self.certs.clone()),
            journal: None,
            change: Percent(0.0),
        })
        .await
        .unwrap()
    }
}

/// Waits until the controller lists exactly the fleet's volumes. Comparing their number is not enough: it is also right while a creation on
/// one node and a deletion on another are in flight.
async fn settled(csi: &Csi, fleet: &mut Fleet) {
    let began = Instant::now();
    loop {
        let has = fleet.ids(Nodes::All).await.unwrap();
        let listing = Listing::take(csi).await.unwrap();
        if listing.ids.keys().eq(has.iter()) {
            return;
        }
        let listed = listing.ids.len();
        assert!(
            began.elapsed() < BACK,
            "{listed} volumes are listed of {}, or others",
            has.len()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns a listing, and checks that it has every volume once, and no other one.
async fn whole(csi: &Csi, fleet: &mut Fleet) -> Listing {
    let listing = Listing::take(csi).await.unwrap();
    let expected = fleet.ids(Nodes::All).await.unwrap();
    assert!(!expected.is_empty());
    assert_eq!(listing.doubled(), Vec::<&String>::new());
    let missing = expected.iter().filter(|id| !listing.ids.contains_key(*id));
    let missing: Vec<_> = missing.collect();
    assert!(
        missing.is_empty(),
        "{} missing: {:?}",
        missing.len(),
        missing.first()
    );
    assert_eq!(listing.ids.len(), expected.len());
    assert!(
        listing.largest_page < MAX_PAGE,
        "a page of {} bytes",
        listing.largest_page
    );
    listing
}

fn topology(node: &str) -> wire::Topology {
    let key = names::topology_key(names::DRIVER_NAME);
    wire::Topology {
        segments: [(key, node.to_owned())].into(),
    }
}

/// Measures the calls about a single volume or node.
async fn single_calls(size: Size, csi: &Csi, plan: &Plan, ids: &BTreeSet<String>) {
    let ids: Vec<&String> = ids.iter().collect();
    let mut client = csi.controller();
    let (mut get, mut capacity, mut create) =
        (Times::default(), Times::default(), Times::default());
    for _ in 0..size.calls {
        let id = ids[fastrand::usize(..ids.len())];
        let request = wire::ControllerGetVolumeRequest {
            volume_id: id.clone(),
        };
        let call = client.controller_get_volume(request);
        let answer = get.of(call).await.unwrap().into_inner();
        assert_eq!(answer.volume.unwrap().volume_id, *id);
    }
    report(format!("ControllerGetVolume: {get}"));
    for _ in 0..size.calls {
        let request = wire::GetCapacityRequest {
            parameters: [("class".to_owned(), CLASS.to_owned())].into(),
            accessible_topology: Some(topology(&plan.node(fastrand::usize(..plan.nodes)))),
            ..Default::default()
        };
        let answer = capacity.of(client.get_capacity(request)).await.unwrap();
        assert!(answer.into_inner().available_capacity > 0);
    }
    report(format!("GetCapacity of one node: {capacity}"));
    for number in 0..size.calls {
        let here = vec![topology(&plan.node(fastrand::usize(..plan.nodes)))];
        let request = wire::CreateVolumeRequest {
            name: format!("pvc-placed-{number}"),
            capacity_range: Some(bytes(GIB)),
            volume_capabilities: vec![mount("ext4")],
            parameters: [("class".to_owned(), CLASS.to_owned())].into(),
            accessibility_requirements: Some(wire::TopologyRequirement {
                requisite: here.clone(),
                preferred: here,
            }),
            ..Default::default()
        };
        create.of(client.create_volume(request)).await.unwrap();
    }
    report(format!("CreateVolume on one node: {create}"));
}

/// Returns the processor seconds that the controller uses per minute.
async fn cpu(controller: &Controller, window: Duration) -> f64 {
    let (before, began) = (controller.usage().unwrap(), Instant::now());
    tokio::time::sleep(window).await;
    let taken = controller.usage().unwrap().cpu - before.cpu;
    taken * 60.0 / began.elapsed().as_secs_f64()
}

/// Takes listings while volumes are created, deleted and changed: those that stay are listed once, and none twice.
async fn changing(size: Size, csi: &Csi, fleet: &mut Fleet) {
    for _ in 0..size.listings {
        let before = fleet.ids(Nodes::All).await.unwrap();
        let listing = Listing::take(csi).await.unwrap();
        let after = fleet.ids(Nodes::All).await.unwrap();
        assert_eq!(listing.doubled(), Vec::<&String>::new());
        let stayed = before.intersection(&after);
        let missing: Vec<_> = stayed.filter(|id| !listing.ids.contains_key(*id)).collect();
        assert!(
            missing.is_empty(),
            "{} missing: {:?}",
            missing.len(),
            missing.first()
        );
        assert_ne!(before, after, "nothing has changed meanwhile");
    }
}

fn per(bytes: u64, count: usize) -> u64 {
    bytes / count.max(1) as u64
}

fn mib(usage: Usage) -> u64 {
    usage.resident >> 20
}

/// Measures the controller's memory for sessions alone.
async fn sessions_alone(this: &Try) -> Usage {
    let nodes = this.size.nodes;
    let mut controller = this.controller(&this.dir.path().join("other-state")).await;
    let empty = controller.usage().unwrap();
    let mut fleet = this.fleet(&controller, 0).await;
    fleet.until_connected(nodes, BACK).await;
    controller.until_connected(nodes, BACK).await;
    let with = controller.usage().unwrap();
    report(format!(
        "memory: {} MiB without agents, {} MiB with {nodes} that have no volumes: {} bytes per session",
        mib(empty),
        mib(with),
        per(with.resident - empty.resident, nodes)
    ));
    controller.kill();
    fleet.kill().await.unwrap();
    with
}

async fn hold(size: Size) {
    // The controller must raise the limit itself.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, FEW_FILES.min(hard), hard).unwrap();
    report(format!(
        "{} nodes with {} volumes each; {}, {}",
        size.nodes,
        size.volumes,
        program::controller().unwrap().display(),
        program::fleet().unwrap().display()
    ));
    let this = Try::new(size);
    let (nodes, all) = (size.nodes, size.nodes * size.volumes);
    let alone = sessions_alone(&this).await;

    let mut controller = this.controller(&this.state).await;
    let began = Instant::now();
    let mut fleet = this.fleet(&controller, size.volumes).await;
    controller.until_connected(nodes, BACK).await;
    report(format!(
        "all sessions, from the start of the fleet: {:.1?}",
        began.elapsed()
    ));
    let with = controller.usage().unwrap();
    report(format!(
        "memory: {} MiB with {all} volumes: {} bytes per volume",
        mib(with),
        per(with.resident.saturating_sub(alone.resident), all)
    ));

    let csi = controller.csi().await.unwrap();
    let before = controller.usage().unwrap();
    let listing = whole(&csi, &mut fleet).await;
    let taken = controller.usage().unwrap().cpu - before.cpu;
    report(format!(
        "whole listing: {:.2?}, {taken:.2} s on the controller's processors; a page: {}",
        listing.whole, listing.pages
    ));
    assert!(
        !size.bound || listing.whole < MONITOR,
        "{:?}",
        listing.whole
    );
    let ids: BTreeSet<String> = listing.ids.into_keys().collect();
    single_calls(size, &csi, fleet.plan(), &ids).await;

    report(format!(
        "CPU, nothing changes: {:.2} s a minute",
        cpu(&controller, size.window).await
    ));
    fleet.request(&Command::Change(Percent(1.0))).await.unwrap();
    report(format!(
        "CPU, 1% changes each minute: {:.2} s a minute",
        cpu(&controller, size.window).await
    ));
    fleet.request(&Command::Change(size.change)).await.unwrap();
    changing(size, &csi, &mut fleet).await;
    report(format!(
        "listed {} times while {} of the volumes change each minute",
        size.listings, size.change
    ));
    fleet.request(&Command::Change(Percent(0.0))).await.unwrap();
    settled(&csi, &mut fleet).await;
    whole(&csi, &mut fleet).await;

    controller.kill();
    let began = Instant::now();
    controller.start_again().await.unwrap();
    controller.until_connected(nodes, BACK).await;
    report(format!(
        "all sessions back after kill -9, from the controller's start: {:.1?}",
        began.elapsed()
    ));
    whole(&controller.csi().await.unwrap(), &mut fleet).await;

    // The state of disconnected nodes survives an orderly stop.
    let began = Instant::now();
    controller.stop().unwrap();
    report(format!(
        "orderly end, with what is known written: {:.1?}",
        began.elapsed()
    ));
    let half = fleet.range(0, nodes / 2 - 1);
    fleet.request(&Command::Stop(half.clone())).await.unwrap();
    controller.start_again().await.unwrap();
    controller.until_connected(nodes - nodes / 2, BACK).await;
    let shown = controller.nodes().await.unwrap();
    let away = shown.iter().filter(|node| node.state == "away").count();
    assert_eq!(away, nodes / 2);
    let csi = controller.csi().await.unwrap();
    let listing = whole(&csi, &mut fleet).await;
    report(format!(
        "whole listing with half of the nodes away: {:.2?}",
        listing.whole
    ));
    fleet.request(&Command::Start(half)).await.unwrap();
    controller.until_connected(nodes, BACK).await;
    // Agents that return are recognised as the same nodes.
    fleet.request(&Command::Restart(Nodes::All)).await.unwrap();
    controller.until_connected(nodes, BACK).await;
    whole(&csi, &mut fleet).await;
    report(format!(
        "memory at the end: {} MiB",
        mib(controller.usage().unwrap())
    ));
    let log = controller.log();
    let turned_away = log
        .lines()
        .filter(|line| line.contains("connection rejected"));
    report(format!(
        "connections that had to try again: {}",
        turned_away.count()
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_volume_of_500_nodes_is_listed_once_whatever_sessions_and_volumes_do() {
    hold(Size {
        nodes: 500,
        volumes: 100,
        calls: 200,
        window: Duration::from_secs(5),
        listings: 3,
        // So many that each of the short listings coincides with some.
        change: Percent(100.0),
        bound: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes many minutes: hwtests/fleet --long"]
async fn each_volume_of_5000_nodes_is_listed_once_whatever_sessions_and_volumes_do() {
    hold(Size {
        nodes: 5000,
        volumes: 200,
        calls: 2000,
        window: Duration::from_secs(60),
        listings: 3,
        change: Percent(1.0),
        bound: false,
    })
    .await;
}
