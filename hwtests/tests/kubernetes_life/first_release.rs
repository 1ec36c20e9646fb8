//! The first release, installed as plain manifests, taken over by helm with the current chart.
//!
//! Only the objects are the first release's (hwtests/cluster/first-release.yaml); the programs in the image are today's,
//! since nobody has built the first release's image here.

use std::fs;

use drivebay_hwtests::{
    kube::{
        Cluster, Install, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod},
    },
    long_scenario,
};

use serde_json::json;

use crate::{Writer, certificates};

const MANIFEST: &str = include_str!("../../cluster/first-release.yaml");

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn an_upgrade_from_the_first_release_loses_no_write_and_makes_new_volumes() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.uninstall_if_installed();
    cluster.plug_drives();
    cluster.namespace();
    let manifest = MANIFEST
        .replace("/cluster-directory", cluster.dir().to_str().unwrap())
        .replace("cluster-name", &cluster.name());
    let file = cluster.dir().join("first-release.yaml");
    fs::write(&file, manifest).unwrap();
    certificates::make(&cluster);
    certificates::give_nodes_the_ca(&cluster);
    let words = ["--namespace", NAMESPACE, "apply", "-f"];
    cluster.kubectl(&[&words[..], &[file.to_str().unwrap()]].concat());
    cluster.drivebay_is_up();
    let it = cluster.scenario("first-release");
    let writer = Writer::start(&it);

    // As deploy/docs/upgrade.md says of a change from manifests to helm.
    let install = Install::with(json!({"certificates": {"source": "existing", "nodes": "signed"}}));
    cluster
        .upgrade(&install, &["--take-ownership", "--force-conflicts"])
        .unwrap();
    cluster.drivebay_is_up();
    it.apply(&[
        claim("new", 64),
        pod("new", &[mounted("new", "/data")], IDLE),
    ]);
    it.runs("new");
    writer.lost_nothing();
    it.end();
    cluster.uninstall();
    certificates::delete(&cluster);
}
