//! Drivebay uninstalled and installed again while a pod uses a volume.

use drivebay_hwtests::kube::wait;
use drivebay_hwtests::{
    kube::{
        Cluster, DRIVER, LIMIT, NAMESPACE,
        manifest::{IDLE, claim, mounted, pod},
    },
    long_scenario,
};

use crate::Writer;

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_pod_goes_on_while_drivebay_is_uninstalled_and_installed_again() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
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
    only_what_the_page_lists_is_left(&cluster);
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

    let attachments = cluster.list("default", &["volumeattachments"]);
    assert!(attachments.is_empty(), "{attachments:#?}");

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

/// Checks that only the objects remain which deploy/docs/uninstall.md lists for `helm uninstall`: the CSIDriver and the namespace, with the
/// sidecars' leases and the certificates.
fn only_what_the_page_lists_is_left(cluster: &Cluster) {
    let kinds = |namespaced: &str| {
        let words = ["api-resources", "--verbs=list", "--output=name", namespaced];
        let all = cluster.kubectl(&words);
        // Not objects of an installation.
        let wanted = |kind: &&str| !kind.starts_with("events");
        all.lines().filter(wanted).collect::<Vec<_>>().join(",")
    };
    let names = |words: &[&str]| {
        let all = cluster.kubectl(&[words, &["--output=name"]].concat());
        let kubernetes = ["configmap/kube-root-ca.crt", "serviceaccount/default"];
        let ours = |name: &&str| !kubernetes.contains(name);
        let mut names: Vec<String> = all.lines().filter(ours).map(str::to_owned).collect();
        names.sort();
        names
    };
    let labelled = "--selector=app.kubernetes.io/part-of=drivebay";
    let global = names(&["get", &kinds("--namespaced=false"), labelled]);
    assert_eq!(global, ["csidriver.storage.k8s.io/csi.drivebay.io"]);
    let kinds = kinds("--namespaced=true");
    let inside = || names(&["--namespace", NAMESPACE, "get", &kinds]);
    let stays = [
        "configmap/drivebay-controller-ca",
        "secret/drivebay-controller-tls",
        "lease.coordination.k8s.io/csi-drivebay-io",
        // Present if another scenario had the attacher installed before.
        "lease.coordination.k8s.io/external-attacher-leader-csi-drivebay-io",
        "lease.coordination.k8s.io/external-health-monitor-leader-csi.drivebay.io",
        "lease.coordination.k8s.io/external-resizer-csi-drivebay-io",
    ];
    // Capacities are removed a moment later, with the Deployment that owned them.
    let may_stay = |name: &String| stays.contains(&name.as_str());
    let only = wait::poll(LIMIT, || inside().iter().all(may_stay).then_some(()));
    assert!(only.is_some(), "{:?}", inside());
}
