//! `agent.config` and `agent.groups`.

use drivebay_hwtests::{
    kube::{
        Cluster, Install, LIMIT, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod},
        wait,
    },
    long_scenario,
};
use serde_json::{Value, json};

fn generation(cluster: &Cluster) -> Value {
    cluster.get(NAMESPACE, &["daemonset", "drivebay-agent"])["metadata"]["generation"].clone()
}

/// Returns the verdicts of this cluster's drives, by identity.
fn verdicts(cluster: &Cluster) -> Vec<(String, String)> {
    let drives = cluster.query_controller(&["drives"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    drives["drives"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|drive| drive["class"] == "loop")
        .map(|drive| (text(&drive["id"]), text(&drive["verdict"])))
        .collect()
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_mistake_in_the_configuration_stops_an_upgrade_with_the_agents_message() {
    let cluster = Cluster::running();
    cluster.installed();
    let before = generation(&cluster);
    let mistaken = Install::with(json!({"agent": {"config": {"checks": {"repeats": "many"}}}}));
    let refused = cluster.upgrade(&mistaken, &[]).unwrap_err().to_string();
    assert!(
        refused.contains("[checks] repeats: must be a whole number"),
        "{refused}"
    );
    assert_eq!(
        generation(&cluster),
        before,
        "the agents have been replaced"
    );
    // The remains of the failed upgrade do not block the next one.
    cluster.install(&Install::default());
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn an_override_given_as_a_value_decides_a_drives_verdict() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let drives = verdicts(&cluster);
    let (drive, verdict) = drives.first().unwrap().clone();
    assert_ne!(verdict, "BAD", "{drives:?}");
    let overrides = json!([{"drive": drive, "verdict": "bad", "reason": "for a test"}]);
    cluster.install(&Install::with(
        json!({"agent": {"config": {"health": {"override": overrides}}}}),
    ));
    wait::until(LIMIT, "the drive is BAD", || {
        let bad = (drive.clone(), "BAD".to_owned());
        verdicts(&cluster).contains(&bad).then_some(())
    });
    cluster.install(&Install::default());
    wait::until(LIMIT, "the drive has its own verdict", || {
        let own = (drive.clone(), verdict.clone());
        verdicts(&cluster).contains(&own).then_some(())
    });
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_node_has_the_agent_of_its_group_and_keeps_its_volumes() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("group");
    it.apply(&[
        claim("data", 64),
        pod("data", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("data");
    let digest = it.write("data", "/data/letter", 4);

    cluster.kubectl(&["label", "node", "node-1", "rack=archive"]);
    let groups = json!([{
        "name": "archive",
        "nodeSelector": {"rack": "archive"},
        "config": {"checks": {"repeats": 7}},
    }]);
    cluster.install(&Install::with(json!({"agent": {"groups": groups}})));
    only_agent(&cluster, "drivebay-agent-archive");
    assert_eq!(it.digest("data", "/data/letter", 4), digest);
    it.apply(&[
        claim("more", 64),
        pod("more", &[mounted("more", "/data")], IDLE),
    ]);
    it.runs("more");

    cluster.kubectl(&["label", "node", "node-1", "rack-"]);
    only_agent(&cluster, "drivebay-agent");
    assert_eq!(it.digest("data", "/data/letter", 4), digest);
    it.end();
    cluster.install(&Install::default());
}

/// Waits until the only agent on the node is that of this DaemonSet, and is ready.
fn only_agent(cluster: &Cluster, name: &str) {
    let what = format!("the node's agent is of {name}");
    wait::until(LIMIT, &what, || {
        let sets = cluster.list(NAMESPACE, &["daemonsets"]);
        let ready = |set: &&Value| set["status"]["numberReady"] == 1;
        let wanted = |set: &&Value| set["status"]["desiredNumberScheduled"] != 0;
        let named = |set: &Value| set["metadata"]["name"] == name;
        let mut on_nodes = sets.iter().filter(wanted);
        let only = on_nodes.next()?;
        (named(only) && ready(&only) && on_nodes.next().is_none()).then_some(())
    });
    let pods = || {
        let pods = cluster.list(NAMESPACE, &["pods"]);
        let of_set = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
        pods.iter().filter(of_set).count()
    };
    wait::until(LIMIT, "the former agent is gone", || {
        (pods() == 1).then_some(())
    });
    cluster.is_registered();
}
