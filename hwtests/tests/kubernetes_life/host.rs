//! The agent as a process of the host beside a kubelet, as systemd/drivebay-agent.service runs it.

use std::fs;

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::{
    kube::{
        CHART, Cluster, DRIVER, LIMIT, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod},
    },
    program,
};

/// The agent's command line, for pgrep. That of its workers differs.
const AGENT: &str = "drivebay-agent run --config /";
const PROVISIONER: &str = "csi-provisioner --csi-address";

/// Starts the agent, and waits until it serves.
fn start_agent(cluster: &Cluster) {
    let agent = program::agent().unwrap();
    let config = cluster.dir().join("host.toml");
    let text = format!(
        r#"[node]
name = "node-1"
cluster = "{}"
[discovery]
allow-loop = true
[erase]
max-bytes-per-second = "unlimited"
[[class]]
name = "loop"
layout = "partition"
[class.select]
path = ["{}"]
"#,
        cluster.name(),
        cluster.drives_pattern()
    );
    fs::write(&config, text).unwrap();
    let command = [
        agent.to_str().unwrap(),
        "run",
        "--config",
        config.to_str().unwrap(),
        "--headless",
    ];
    cluster.start("host-agent", &[], &command);
    cluster.is_registered();
}

/// Starts the provisioner of a node deployment beside the agent.
fn start_provisioner(cluster: &Cluster) {
    let kubeconfig = cluster.dir().join("auth/admin.kubeconfig");
    let socket = format!("--csi-address=/var/lib/kubelet/plugins/{DRIVER}/csi.sock");
    let command = [
        "csi-provisioner",
        &socket,
        &format!("--kubeconfig={}", kubeconfig.display()),
        "--node-deployment",
        "--strict-topology",
        "--immediate-topology=false",
        "--extra-create-metadata",
        "--enable-capacity",
        "--capacity-ownerref-level=-1",
        "--capacity-poll-interval=5s",
    ];
    let namespace = format!("NAMESPACE={NAMESPACE}");
    let environment = ["NODE_NAME=node-1", "POD_NAME=host", &namespace];
    cluster.start("host-provisioner", &environment, &command);
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn an_agent_on_the_host_registers_with_the_kubelet_and_serves_pods() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("host");
    cluster.uninstall();
    let objects = cluster.helm(&[
        "template",
        "drivebay",
        CHART,
        "--values",
        &cluster.values(&drivebay_hwtests::kube::Install::default()),
        "--show-only=templates/csidriver.yaml",
        "--show-only=templates/storageclasses.yaml",
    ]);
    cluster
        .inside_with(&["kubectl", "apply", "-f", "-"], objects.as_bytes())
        .unwrap();

    start_agent(&cluster);
    start_provisioner(&cluster);
    it.apply(&[
        claim("data", 64),
        pod("data", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("data");
    let digest = it.write("data", "/data/letter", 4);

    cluster.signal("-TERM", AGENT);
    is_unregistered(&cluster);
    assert_eq!(it.digest("data", "/data/letter", 4), digest);
    start_agent(&cluster);
    // The provisioner exits when the driver's socket is closed; a service manager restarts it.
    start_provisioner(&cluster);
    assert_eq!(it.digest("data", "/data/letter", 4), digest);
    it.delete_pod("data");
    it.apply(&[pod("again", &[mounted("data", "/data")], IDLE)]);
    it.runs("again");
    assert_eq!(it.digest("again", "/data/letter", 4), digest);

    it.delete_pod("again");
    it.kubectl(&["delete", "pvc", "data", "--timeout=60s"]);
    wait::until(LIMIT, "the PersistentVolume is gone", || {
        let volumes = cluster.list("default", &["pv"]);
        volumes.is_empty().then_some(())
    });
    cluster.signal("-TERM", PROVISIONER);
    cluster.signal("-TERM", AGENT);
    is_unregistered(&cluster);
    let capacities = ["delete", "csistoragecapacities", "--all"];
    cluster.kubectl(&[&["--namespace", NAMESPACE], &capacities[..]].concat());
    cluster
        .inside_with(&["kubectl", "delete", "-f", "-"], objects.as_bytes())
        .unwrap();
    cluster.installed();
    it.end();
}

/// Waits until the kubelet has removed the driver from its node.
fn is_unregistered(cluster: &Cluster) {
    wait::until(LIMIT, "the kubelet has unregistered the driver", || {
        let node = cluster.get("default", &["csinode", "node-1"]);
        (!node.to_string().contains(DRIVER)).then_some(())
    });
}
