//! Requests to a real API server, by two controllers with a simulated fleet of 1,000 drives.

use std::{
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use drivebay_hwtests::{
    fleet::{
        Command, Controller, Fleet, FleetOptions, Plan,
        command::{Nodes, Percent},
        controller::Listen,
    },
    kube::{ApiServer, Cluster},
    long_scenario,
};
use serde_json::Value;

const NODES: usize = 125;
const DRIVES: usize = 8;
const ALL: usize = NODES * DRIVES;
/// Drives that turn SUSPECT.
const SUSPECT: usize = 100;
const LIMIT: Duration = Duration::from_secs(300);
const MINUTE: Duration = Duration::from_secs(60);

fn print(line: &str) {
    // The test runner does not capture writes to stderr itself.
    let _ = std::io::stderr().write_all(format!("drive objects: {line}\n").as_bytes());
}

async fn controller(dir: &Path, api: &ApiServer) -> Controller {
    std::fs::create_dir_all(dir).unwrap();
    let mut controller = Controller::prepare(None, &Listen::Socket, dir, &[]);
    let more = ["--kubernetes", "--drive-objects=all"];
    controller.retune(&more, ("KUBECONFIG", api.kubeconfig()));
    controller.start_again().await.unwrap();
    controller
}

fn suspects(drives: &[Value]) -> usize {
    let is = |drive: &&Value| {
        drive["status"]["health"] == "SUSPECT" && drive["status"]["reason"] == "PendingSectors"
    };
    drives.iter().filter(is).count()
}

async fn until(what: &str, mut is: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < LIMIT, "not in time: {what}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    began.elapsed()
}

#[tokio::test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
async fn a_quiet_fleet_writes_nothing_and_a_hundred_suspect_drives_are_a_hundred_writes() {
    long_scenario!(Cluster::running());
    let dir = tempfile::tempdir().unwrap();
    let api = ApiServer::start(dir.path()).unwrap();
    let definition = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/chart/drives.drivebay.io.yaml"
    );
    api.kubectl(&["apply", "--filename", definition]).unwrap();
    let one = controller(&dir.path().join("one"), &api).await;
    let other = controller(&dir.path().join("other"), &api).await;
    let mut fleet = Fleet::start(&FleetOptions {
        plan: Plan {
            nodes: NODES,
            volumes: 10,
            drives: DRIVES,
            ..Plan::default()
        },
        controllers: vec![one.address(), other.address()],
        certs: None,
        journal: None,
        change: Percent(0.0),
    })
    .await
    .unwrap();
    fleet.until_connected(NODES, LIMIT).await;

    let took = until("every drive has an object", || {
        api.list("drives").is_ok_and(|drives| drives.len() == ALL)
    })
    .await;
    // The controllers may have a request under way when the last object appears.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let created = api.writes("drives").unwrap();
    print(&format!(
        "{ALL} objects after {took:.0?}, by {created} writes of two controllers"
    ));
    assert!(
        (ALL as u64..=ALL as u64 * 11 / 10).contains(&created),
        "{created}"
    );

    let sizes = api.list("drives").unwrap().into_iter();
    let bytes: usize = sizes.map(|drive| drive.to_string().len()).sum();
    print(&format!("an object has {} bytes of JSON", bytes / ALL));

    tokio::time::sleep(MINUTE).await;
    let quiet = api.writes("drives").unwrap() - created;
    print(&format!("a quiet minute: {quiet} writes"));
    assert_eq!(quiet, 0);

    let before = api.writes("drives").unwrap();
    let began = Instant::now();
    let nodes: Nodes = fleet.range(0, SUSPECT - 1);
    fleet.request(&Command::Suspect(nodes)).await.unwrap();
    let took = until("the objects say SUSPECT", || {
        api.list("drives")
            .is_ok_and(|drives| suspects(&drives) == SUSPECT)
    })
    .await;
    tokio::time::sleep(MINUTE.saturating_sub(began.elapsed())).await;
    let writes = api.writes("drives").unwrap() - before;
    print(&format!(
        "{SUSPECT} drives turn SUSPECT: all written after {took:.0?}, {writes} writes in a minute"
    ));
    assert!(
        (SUSPECT as u64..=SUSPECT as u64 * 12 / 10).contains(&writes),
        "{writes}"
    );

    let columns = api.kubectl(&["get", "drives", "--field-selector", "status.health=SUSPECT"]);
    let columns = columns.unwrap();
    assert_eq!(columns.lines().count(), SUSPECT + 1, "{columns}");
    let head: Vec<&str> = columns.lines().take(3).collect();
    print(&head.join("\n"));
    assert!(
        head[0].contains("NODE") && head[0].contains("REASON"),
        "{columns}"
    );
    let ill = head[1].split_whitespace().next().unwrap();
    let described = api.kubectl(&["describe", "drive", ill]).unwrap();
    print(&described);
    assert!(described.contains("8 pending sectors"), "{described}");

    // Both controllers are stopped and one is started again. It finds every object as it would write it.
    let before = api.writes("drives").unwrap();
    drop((one, other));
    let one = controller(&dir.path().join("one"), &api).await;
    fleet.until_connected(NODES, LIMIT).await;
    one.until_connected(NODES, LIMIT).await;
    tokio::time::sleep(MINUTE / 2).await;
    let writes = api.writes("drives").unwrap() - before;
    print(&format!("a restarted controller: {writes} writes"));
    assert_eq!(writes, 0);

    // All objects are deleted, and return.
    api.kubectl(&["delete", "drives", "--all", "--wait=false"])
        .unwrap();
    let took = until("every drive has an object again", || {
        api.list("drives")
            .is_ok_and(|drives| drives.len() == ALL && suspects(&drives) == SUSPECT)
    })
    .await;
    print(&format!("all deleted, and back after {took:.0?}"));
}
