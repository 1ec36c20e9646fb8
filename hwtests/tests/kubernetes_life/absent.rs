//! Reports to the cluster while a node's agent is disconnected, or the drive of a claim is missing.

use std::time::Duration;

use drivebay_hwtests::{
    kube::{
        Cluster, DRIVER, Install, LIMIT, NAMESPACE, Scenario,
        manifest::{IDLE, claim, mounted, pod},
        wait,
    },
    long_scenario, tools,
};
use serde_json::{Value, json};

/// Returns the names of the pods of a component.
fn pods(cluster: &Cluster, component: &str) -> Vec<String> {
    let label = format!("app.kubernetes.io/component={component}");
    let pods = cluster.list(NAMESPACE, &["pods", "--selector", &label]);
    pods.iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Sets the DaemonSet's node selector, which removes the agent from its node, or clears it.
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

/// Returns the only volume.
fn volume(cluster: &Cluster) -> Value {
    let volumes = cluster.query_controller(&["volumes"]);
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
    long_scenario!(cluster);
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

    // No agent has connected to these two controllers.
    let shown = has_condition(&cluster, "NodeUnreachable");
    assert_eq!(shown["state"], "expected", "{shown:#}");
    assert_eq!(shown["persistent_volume"], name, "{shown:#}");
    assert_eq!(shown["claim"], format!("{}/data", it.name), "{shown:#}");
    // The metrics that the alert uses, from both.
    for controller in pods(&cluster, "controller") {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{controller}:9811/proxy/metrics");
        let page = cluster.kubectl(&["get", "--raw", &path]);
        let away = r#"drivebay_node_connected{node="node-1"} 0"#;
        assert!(page.contains(away), "{controller}:\n{page}");
    }
    // The event that CSI's external health monitor writes.
    it.event(&["PersistentVolumeClaim/data", "NodeUnreachable"]);
    let node = cluster.query_controller(&["node", "show", "node-1"]);
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
    let node = cluster.query_controller(&["node", "show", "node-1"]);
    assert_eq!(node["history"][0]["outcome"], "connected", "{node:#}");
    it.end();
}

/// Returns a pod that used its volume and has it no longer mounted in its container. A loop device is removed only when its filesystem is
/// mounted nowhere; a real drive can be unplugged at any time.
fn done_with_it(name: &str, script: &str) -> Value {
    let mut pod = pod(name, &[mounted("data", "/data")], IDLE);
    let mut first = pod["spec"]["containers"][0].clone();
    first["name"] = json!("first");
    first["command"] = json!(["/bin/sh", "-ec", script]);
    pod["spec"]["initContainers"] = json!([first]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([]);
    pod
}

/// Detaches the loop device of the only volume's drive. Returns the device and its file, with which it is attached again.
fn pull_the_drive(cluster: &Cluster) -> [String; 2] {
    let drive = volume(cluster)["drive"].clone();
    let drives = cluster.query_controller(&["drives", "--all"]);
    let drives = drives["drives"].as_array().unwrap();
    let drive = drives.iter().find(|one| one["id"] == drive).unwrap();
    let device = format!("/dev/{}", drive["kernel_name"].as_str().unwrap());
    let file = tools::must(
        "losetup",
        &["--noheadings", "--output", "BACK-FILE", &device],
    );
    let mounts = format!(
        "grep -o '^{device}p[0-9]* /var/lib/kubelet/[^ ]*' /proc/mounts | cut -d' ' -f2 | xargs -n 1 umount"
    );
    cluster.inside(&["sh", "-ec", &mounts]).unwrap();
    tools::must("losetup", &["--detach", &device]);
    [device, file.trim().to_owned()]
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_drive_that_is_missing_is_shown_at_its_node_and_at_the_claim_and_the_pod_on_it() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("missing");
    let write = "dd if=/dev/urandom of=/data/letter bs=1M count=8 conv=fsync 2>/dev/null; sha256sum </data/letter";
    it.apply(&[claim("data", 64), done_with_it("writer", write)]);
    it.runs("writer");
    let digest = it.kubectl(&["logs", "writer", "--container=first"]);
    assert_eq!(it.health_message("writer"), None);
    let [device, file] = pull_the_drive(&cluster);

    let event = it.event(&[
        "PersistentVolumeClaim/data",
        "DriveMissing: the volume's drive",
    ]);
    println!("the claim: {event}");
    it.event(&[
        "PersistentVolumeClaim/data",
        "VolumeConditionAbnormal",
        "DriveMissing",
    ]);
    let event = cluster.event(
        "default",
        &["Node/node-1", "DriveMissing", "1 volume on it"],
    );
    println!("the node: {event}");
    if cluster.version() >= (1, 37) {
        kubelet_reports_the_missing_drive(&it);
    }

    tools::must("losetup", &[&device, &file]);
    wait::until(Duration::from_secs(120), "the drive is back", || {
        let state = volume(&cluster)["state"].clone();
        (state != "missing").then_some(())
    });
    it.delete_pod("writer");
    it.apply(&[pod("reader", &[mounted("data", "/data")], IDLE)]);
    it.runs("reader");
    assert_eq!(it.digest("reader", "/data/letter", 8), digest.trim());
    if cluster.version() >= (1, 37) {
        wait::until(LIMIT, "the node's storage is well", || {
            cluster.storage_health("node-1").is_empty().then_some(())
        });
    }
    it.end();
}

/// Checks what kubelet 1.37 writes: the pod's status, the CSINode of its node, and a metric.
fn kubelet_reports_the_missing_drive(it: &Scenario) {
    let cluster = &it.cluster;
    let missing = |conditions: &[Value]| {
        let mut all = conditions.iter();
        all.find(|one| one["reason"] == "DriveMissing").cloned()
    };
    let condition = wait::until(
        LIMIT,
        "the pod has an event about the missing drive",
        || missing(&it.volume_health("writer")),
    );
    assert_eq!(condition["status"], "Inaccessible", "{condition:#}");
    println!("the pod: {}", it.health_message("writer").unwrap());
    let condition = wait::until(LIMIT, "the CSINode names the missing drive", || {
        missing(&cluster.storage_health("node-1"))
    });
    assert_eq!(condition["status"], "StorageUnreachable", "{condition:#}");
    println!("the CSINode: {condition}");
    let page = cluster.kubectl(&["get", "--raw", "/api/v1/nodes/node-1/proxy/metrics"]);
    let metric = page
        .lines()
        .find(|line| line.starts_with("csi_node_storage_health_status{"))
        .unwrap_or_else(|| panic!("no metric of the storage's health"));
    for label in [
        &format!(r#"driver_name="{DRIVER}""#),
        r#"reason="DriveMissing""#,
        r#"status="StorageUnreachable""#,
    ] {
        assert!(metric.contains(label), "{metric}");
    }
    println!("the kubelet's metrics: {metric}");
    // No program of Kubernetes 1.37.2 and no sidecar of the chart writes this.
    let claim = it.get(&["pvc", "data"]);
    assert_eq!(claim["status"]["healthStatus"], Value::Null);
}
