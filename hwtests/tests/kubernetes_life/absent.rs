//! What the cluster is told while a node's agent, or a drive under a claim, is not there.

use std::time::Duration;

use drivebay_hwtests::{
    kube::{
        Cluster, Install, LIMIT, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod},
        wait,
    },
    tools,
};
use serde_json::{Value, json};

/// Names of the pods of a component.
fn pods(cluster: &Cluster, component: &str) -> Vec<String> {
    let label = format!("app.kubernetes.io/component={component}");
    let pods = cluster.list(NAMESPACE, &["pods", "--selector", &label]);
    pods.iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Takes the agent off its node, or lets it come back.
fn agent_selects(cluster: &Cluster, label: Option<&str>) {
    let patch =
        json!({"spec": {"template": {"spec": {"nodeSelector": {"drivebay.test/absent": label}}}}});
    cluster.kubectl(&[
        "--namespace",
        NAMESPACE,
        "patch",
        "daemonset",
        "drivebay-agent",
        "--patch",
        &patch.to_string(),
    ]);
}

/// The one volume there is.
fn volume(cluster: &Cluster) -> Value {
    let volumes = cluster.ask_controller(&["volumes"]);
    let volumes = volumes["volumes"].as_array().unwrap().clone();
    assert_eq!(volumes.len(), 1, "{volumes:#?}");
    volumes[0].clone()
}

/// Waits until the volume has a condition with this reason.
fn has_condition(cluster: &Cluster, reason: &str) -> Value {
    wait::until(LIMIT, &format!("the volume has {reason}"), || {
        let volume = volume(cluster);
        let conditions = volume["conditions"].as_array()?.clone();
        let has = conditions.iter().any(|one| one["reason"] == reason);
        has.then_some(volume)
    })
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn volumes_of_an_absent_node_stay_listed_and_abnormal_while_both_controllers_are_replaced() {
    let cluster = Cluster::running();
    cluster.installed();
    let install = Install::with(json!({
        "controller": {"replicas": 2, "awayGrace": 5},
        "metrics": {"enabled": true},
    }));
    cluster.upgrade(&install, &[]).unwrap();
    cluster.drivebay_is_up();
    let it = cluster.scenario("absent");
    it.apply(&[
        claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    let digest = it.write("writer", "/data/letter", 8);
    let bound = it.get(&["pvc", "data"]);
    let name = bound["spec"]["volumeName"].as_str().unwrap();

    agent_selects(&cluster, Some("nowhere"));
    wait::until(LIMIT, "the agent is gone", || {
        pods(&cluster, "agent").is_empty().then_some(())
    });
    let before = pods(&cluster, "controller");
    let delete = ["--namespace", NAMESPACE, "delete", "pod", "--wait=false"];
    let names: Vec<&str> = before.iter().map(String::as_str).collect();
    cluster.kubectl(&[&delete[..], &names].concat());
    wait::until(LIMIT, "both controllers are others", || {
        let now = pods(&cluster, "controller");
        (now.len() == 2 && now.iter().all(|name| !before.contains(name))).then_some(())
    });
    let rollout = ["rollout", "status", "deployment/drivebay-controller"];
    cluster.kubectl(&[&["--namespace", NAMESPACE], &rollout[..]].concat());

    // No agent has ever connected to these two.
    let shown = has_condition(&cluster, "NodeUnreachable");
    assert_eq!(shown["state"], "expected", "{shown:#}");
    assert_eq!(shown["persistent_volume"], name, "{shown:#}");
    assert_eq!(shown["claim"], format!("{}/data", it.name), "{shown:#}");
    // What the alert is made of, from both.
    for controller in pods(&cluster, "controller") {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{controller}:9811/proxy/metrics");
        let page = cluster.kubectl(&["get", "--raw", &path]);
        let away = r#"drivebay_node_connected{node="node-1"} 0"#;
        assert!(page.contains(away), "{controller}:\n{page}");
    }
    // What CSI's own health monitor makes of it.
    it.event(&["PersistentVolumeClaim/data", "NodeUnreachable"]);
    let node = cluster.ask_controller(&["node", "show", "node-1"]);
    assert_eq!(node["state"], "away", "{node:#}");
    assert_eq!(node["history"], json!([]), "{node:#}");

    agent_selects(&cluster, None);
    cluster.upgrade(&Install::default(), &[]).unwrap();
    cluster.drivebay_is_up();
    let back = wait::until(LIMIT, "the volume is well", || {
        let volume = volume(&cluster);
        (volume["state"] == "ready" && volume["conditions"] == json!([])).then_some(volume)
    });
    assert_eq!(back["id"], shown["id"]);
    assert_eq!(it.digest("writer", "/data/letter", 8), digest);
    let node = cluster.ask_controller(&["node", "show", "node-1"]);
    assert_eq!(node["history"][0]["outcome"], "connected", "{node:#}");
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_drive_that_is_missing_is_an_event_of_its_node_and_of_the_claim_on_it() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("missing");
    it.apply(&[
        claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    let digest = it.write("writer", "/data/letter", 8);
    it.delete_pod("writer");
    wait::until(LIMIT, "the volume is not in use", || {
        (volume(&cluster)["in_use"] == false).then_some(())
    });
    let drive = volume(&cluster)["drive"].clone();
    let drives = cluster.ask_controller(&["drives", "--all"]);
    let drives = drives["drives"].as_array().unwrap();
    let drive = drives.iter().find(|one| one["id"] == drive).unwrap();
    let device = format!("/dev/{}", drive["kernel_name"].as_str().unwrap());
    let file = tools::must(
        "losetup",
        &["--noheadings", "--output", "BACK-FILE", &device],
    );
    tools::must("losetup", &["--detach", &device]);

    let told = it.event(&[
        "PersistentVolumeClaim/data",
        "DriveMissing: the volume's drive",
    ]);
    println!("{told}");
    let told = cluster.event(
        "default",
        &["Node/node-1", "DriveMissing", "1 volumes are on it"],
    );
    println!("{told}");
    tools::must("losetup", &[&device, file.trim()]);
    wait::until(Duration::from_secs(120), "the drive is back", || {
        (volume(&cluster)["state"] == "ready").then_some(())
    });
    it.apply(&[pod("reader", &[mounted("data", "/data")], IDLE)]);
    it.runs("reader");
    assert_eq!(it.digest("reader", "/data/letter", 8), digest);
    it.end();
}
