//! Drivebay uninstalled and installed again while a pod uses a volume.

use drivebay_hwtests::{
    kube::{
        Cluster, DRIVER, LIMIT, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod},
    },
    wait,
};

use crate::Writer;

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_pod_goes_on_while_drivebay_is_uninstalled_and_installed_again() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("uninstall");
    let writer = Writer::start(&it);
    for name in ["deleted", "waits"] {
        it.apply(&[claim(name, 32), pod(name, &[mounted(name, "/data")], IDLE)]);
    }
    it.runs("deleted");
    it.runs("waits");
    let digest = it.write("waits", "/data/letter", 4);
    it.delete_pod("deleted");
    it.delete_pod("waits");

    cluster.uninstall();
    only_the_namespace_is_left(&cluster);
    wait::until(LIMIT, "the kubelet has no driver any more", || {
        let node = cluster.get("default", &["csinode", "node-1"]);
        (!node.to_string().contains(DRIVER)).then_some(())
    });
    writer.goes_on();
    // A claim that is deleted meanwhile, and a pod that starts meanwhile: both wait.
    let volume = it.get(&["pvc", "deleted"])["spec"]["volumeName"].clone();
    let volume = volume.as_str().unwrap();
    it.kubectl(&["delete", "pvc", "deleted", "--timeout=60s"]);
    cluster.until("default", &["pv", volume], "/status/phase", "Released");
    it.apply(&[pod("waits", &[mounted("waits", "/data")], IDLE)]);
    it.event(&["Pod/waits", "driver name csi.drivebay.io not found"]);

    cluster.installed();
    it.runs("waits");
    assert_eq!(it.digest("waits", "/data/letter", 4), digest);
    wait::until(
        LIMIT,
        "the volume that was deleted meanwhile is gone",
        || {
            let left = cluster.get("default", &["pv", volume]);
            left.is_null().then_some(())
        },
    );
    writer.lost_nothing();
    it.end();
}

/// What deploy/README.md says stays after `helm uninstall`: the namespace, with the sidecars' leases in it.
fn only_the_namespace_is_left(cluster: &Cluster) {
    let kinds = cluster.kubectl(&["api-resources", "--verbs=list", "--output=name"]);
    // Events and metrics are no objects of an installation.
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && !kind.contains("metrics"))
        .collect();
    let kinds = kinds.join(",");
    let labelled = "--selector=app.kubernetes.io/part-of=drivebay";
    let left = || cluster.kubectl(&["get", &kinds, "-A", labelled, "--output=name"]);
    // Capacities go with the Deployment that owned them, a moment later.
    let gone = wait::poll(LIMIT, || left().trim().is_empty().then_some(()));
    assert!(gone.is_some(), "{}", left());
    let inside = || {
        let words = ["--namespace", NAMESPACE, "get", &kinds, "--output=name"];
        let all = cluster.kubectl(&words);
        let kubernetes = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
        let ours = |name: &&str| !kubernetes.contains(name);
        let mut names: Vec<String> = all.lines().filter(ours).map(str::to_owned).collect();
        names.sort();
        names
    };
    let leases = [
        "lease.coordination.k8s.io/csi-drivebay-io",
        "lease.coordination.k8s.io/external-health-monitor-leader-csi.drivebay.io",
        "lease.coordination.k8s.io/external-resizer-csi-drivebay-io",
    ];
    let only = wait::poll(LIMIT, || (inside() == leases).then_some(()));
    assert!(only.is_some(), "{:?}", inside());
}
