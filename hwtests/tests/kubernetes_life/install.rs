//! Drivebay installed with values other than the defaults.

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::{
    kube::{
        Cluster, DRIVER, Install, LIMIT, NAMESPACE, Scenario,
        manifest::{IDLE, claim, mounted, pod},
    },
    long_scenario,
};
use serde_json::{Value, json};

use crate::certificates;

/// Creates a claim and a pod with this name, writes a file, and returns its digest.
fn claim_and_pod(it: &Scenario, name: &str) -> String {
    it.apply(&[claim(name, 64), pod(name, &[mounted(name, "/data")], IDLE)]);
    it.runs(name);
    it.until(&["pvc", name], "/status/phase", "Bound");
    it.write(name, "/data/letter", 4)
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_provisioner_on_each_node_makes_volumes_and_deletes_those_from_before() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("node-deployment");
    let before = claim_and_pod(&it, "before");

    cluster.uninstall();
    let values = json!({"provisioner": {"nodeDeployment": true}});
    cluster.install(&Install::with(values));
    claim_and_pod(&it, "after");
    assert_eq!(it.digest("before", "/data/letter", 4), before);
    assert_eq!(provisioners(&cluster), ["drivebay-agent"]);
    it.end();

    cluster.uninstall();
    wait::until(LIMIT, "the published capacities are gone", || {
        let capacities = cluster.list(NAMESPACE, &["csistoragecapacities"]);
        capacities.is_empty().then_some(())
    });
    cluster.installed();
    assert_eq!(provisioners(&cluster), ["drivebay-controller"]);
}

/// Returns the names of the DaemonSets and Deployments that have a provisioner.
fn provisioners(cluster: &Cluster) -> Vec<String> {
    let has = |object: &&Value| {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array();
        containers
            .into_iter()
            .flatten()
            .any(|container| container["name"] == "provisioner")
    };
    let objects = cluster.list(NAMESPACE, &["daemonset,deployment"]);
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    objects.iter().filter(has).map(name).collect()
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn the_attacher_attaches_a_volume_and_detaches_it_after_the_pod() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let it = cluster.scenario("attacher");
    let install = Install::with(json!({"attacher": {"enabled": true}}));

    // deploy/docs/upgrade.md: refused until the CSIDriver is deleted.
    let refused = cluster.upgrade(&install, &[]).unwrap_err().to_string();
    assert!(refused.contains("field is immutable"), "{refused}");
    cluster.kubectl(&["delete", "csidriver", DRIVER]);
    cluster.install(&install);

    claim_and_pod(&it, "data");
    let volume = it.get(&["pvc", "data"])["spec"]["volumeName"].clone();
    let attachments = || -> Vec<Value> {
        let of = |it: &Value| it["spec"]["source"]["persistentVolumeName"] == volume;
        let all = cluster.list("default", &["volumeattachments"]);
        all.into_iter().filter(of).collect()
    };
    let attached = attachments();
    assert_eq!(attached.len(), 1, "{attached:#?}");
    assert_eq!(attached[0]["status"]["attached"], true);
    assert_eq!(attached[0]["spec"]["attacher"], DRIVER);
    assert_eq!(attached[0]["spec"]["nodeName"], "node-1");
    it.delete_pod("data");
    wait::until(LIMIT, "the VolumeAttachment is gone", || {
        attachments().is_empty().then_some(())
    });
    it.end();
    cluster.uninstall();
    cluster.kubectl(&["delete", "csidriver", DRIVER]);
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn nodes_with_certificates_of_their_own_on_the_host_make_volumes() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.uninstall_if_installed();
    cluster.plug_drives();
    cluster.namespace();

    let certs = certificates::make(&cluster);
    cluster.install(&Install::with(json!({"certificates": {
        "source": "existing",
        "nodes": "host",
        "hostDirectory": certs.join("nodes/node-1"),
    }})));

    let it = cluster.scenario("certificates");
    claim_and_pod(&it, "data");
    it.end();
    cluster.uninstall();
    certificates::delete(&cluster);
}
