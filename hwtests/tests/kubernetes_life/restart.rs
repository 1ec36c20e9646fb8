//! Drivebay's processes replaced and killed under pods that use volumes.

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::{
    kube::{
        Cluster, DRIVER, Install, LIMIT, NAMESPACE, Scenario,
        manifest::{IDLE, claim, mounted, pod},
    },
    long_scenario,
};
use serde_json::{Value, json};

use crate::Writer;

/// Command lines of the agent and the controller in their pods, for pgrep. Those of workers differ.
const AGENT: &str = "^drivebay-agent run ";
const CONTROLLER: &str = "^drivebay-controller run ";

/// Number of claims in a burst.
const CLAIMS: usize = 30;

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_rollout_of_the_agent_loses_no_write_of_a_pod() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("rollout");
    let writer = Writer::start(&it);
    let before = cluster.processes(AGENT);

    cluster.kubectl(&[
        "--namespace",
        NAMESPACE,
        "rollout",
        "restart",
        "daemonset/drivebay-agent",
    ]);
    cluster.drivebay_is_up();
    assert_ne!(cluster.processes(AGENT), before);
    let lines = writer.lost_nothing();
    println!("{lines} lines were acknowledged");
    it.end();
}

/// Returns the names of the claims of a burst, such as "data-7".
fn names() -> impl Iterator<Item = String> {
    (1..=CLAIMS).map(|number| format!("data-{number}"))
}

/// Waits until at least `count` claims are bound.
fn bound(it: &Scenario, count: usize) {
    wait::until(LIMIT, &format!("{count} claims are bound"), || {
        let claims = it.cluster.list(&it.name, &["pvc"]);
        let is_bound = |claim: &&Value| claim["status"]["phase"] == "Bound";
        (claims.iter().filter(is_bound).count() >= count).then_some(())
    });
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn killed_agent_controller_and_kubelet_make_each_of_thirty_volumes_once() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("killed");
    let writer = Writer::start(&it);
    let objects = names().flat_map(|name| {
        let pod = pod(&name, &[mounted(&name, "/data")], IDLE);
        [claim(&name, 32), pod]
    });
    it.apply(&objects.collect::<Vec<Value>>());

    // The writer's claim has been bound before.
    bound(&it, 4);
    cluster.signal("-KILL", AGENT);
    bound(&it, 10);
    cluster.signal("-KILL", CONTROLLER);
    bound(&it, 16);
    // Without its kubelet it would not be restarted.
    cluster.until_running(AGENT);
    cluster.service("kill", "kubelet");
    cluster.signal("-KILL", AGENT);
    cluster.service("start", "kubelet");

    for name in names() {
        it.until(&["pvc", &name], "/status/phase", "Bound");
        it.runs(&name);
    }
    let lines = writer.lost_nothing();
    println!("{lines} lines were acknowledged");
    one_volume_for_each_claim(&it, CLAIMS + 1);
    it.end();
}

/// Checks that there are as many volumes as claims and PersistentVolumes, that no two PersistentVolumes share a volume, and that none is
/// unclaimed.
fn one_volume_for_each_claim(it: &Scenario, claims: usize) {
    let cluster = &it.cluster;
    let ours = |volume: &&Value| {
        volume["spec"]["csi"]["driver"] == DRIVER
            && volume["spec"]["claimRef"]["namespace"] == it.name.as_str()
    };
    let objects = cluster.list("default", &["pv"]);
    let mut handles: Vec<&str> = objects
        .iter()
        .filter(ours)
        .map(|volume| volume["spec"]["csi"]["volumeHandle"].as_str().unwrap())
        .collect();
    assert_eq!(handles.len(), claims);
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), claims, "two PersistentVolumes share one");
    let volumes = cluster.query_controller(&["volumes"]);
    let volumes = volumes["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), claims, "{volumes:#?}");
    cluster.nothing_is_unclaimed();
}

/// Returns the pod that holds the provisioner's lease.
fn leader(cluster: &Cluster) -> String {
    let pods: Vec<String> = cluster
        .list(NAMESPACE, &["pods"])
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .filter(|name| name.starts_with("drivebay-controller"))
        .collect();
    wait::until(LIMIT, "a provisioner leads", || {
        let lease = cluster.get(NAMESPACE, &["lease", &DRIVER.replace('.', "-")]);
        let holder = lease["spec"]["holderIdentity"].as_str()?.to_owned();
        pods.iter().find(|pod| holder.contains(*pod)).cloned()
    })
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_claim_that_waits_while_the_leading_controller_is_deleted_is_bound_by_the_other() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    cluster
        .upgrade(&Install::with(json!({"controller": {"replicas": 2}})), &[])
        .unwrap();
    cluster.drivebay_is_up();
    let it = cluster.scenario("leader");
    let first = leader(&cluster);

    let objects: Vec<Value> = (1..=6)
        .flat_map(|number| {
            let name = format!("data-{number}");
            let pod = pod(&name, &[mounted(&name, "/data")], IDLE);
            [claim(&name, 32), pod]
        })
        .collect();
    it.apply(&objects);
    cluster.kubectl(&[
        "--namespace",
        NAMESPACE,
        "delete",
        "pod",
        &first,
        "--grace-period=0",
        "--force",
    ]);
    let pending = it
        .cluster
        .list(&it.name, &["pvc"])
        .iter()
        .filter(|claim| claim["status"]["phase"] == "Pending")
        .count();
    println!("{pending} claims wait while the leader goes");
    for number in 1..=6 {
        it.runs(&format!("data-{number}"));
    }
    one_volume_for_each_claim(&it, 6);
    assert_ne!(leader(&cluster), first);
    cluster.upgrade(&Install::default(), &[]).unwrap();
    cluster.drivebay_is_up();
    it.end();
}
