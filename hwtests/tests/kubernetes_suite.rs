//! Kubernetes' own External Storage suite against Drivebay. Run by hwtests/kubernetes --long.

use drivebay_hwtests::{
    kube::{
        Cluster, Install,
        suite::{LeftOut, Specs},
    },
    lab::progress::print_progress,
    long_scenario,
};
use serde_json::json;

const SPECS: Specs = Specs {
    driver: "driver.yaml",
    only: &[],
    left_out: &[
        LeftOut {
            names: &["[Disruptive]"],
            why: "restarts kubelets over ssh; hwtests/kubernetes kills and starts them itself (life, volumes)",
        },
        LeftOut {
            names: &[
                "[Feature:Windows]",
                "[Feature:SELinux",
                "[Feature:VolumeAttributesClass]",
            ],
            why: "Windows nodes, SELinux hosts and VolumeAttributesClasses are not there",
        },
        LeftOut {
            names: &[
                "[Feature:VolumeSnapshotDataSource]",
                "volume and its clone from pods",
            ],
            why: "partitions have no snapshots, and are copied while nobody uses them; kubernetes_snapshots runs these with layout lvm",
        },
        LeftOut {
            names: &[
                "Inline-volume",
                "Pre-provisioned PV",
                "CSI Ephemeral-volume",
            ],
            why: "volumes that a driver makes without a claim; Drivebay has none",
        },
        LeftOut {
            names: &["any volume data source"],
            why: "fills volumes with hello-populator and volume-data-source-validator, whose images cannot be had here",
        },
    ],
};

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn the_external_storage_suite_passes() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    // XFS, since this machine may not grow a mounted ext4 (CAP_SYS_RESOURCE); the lab's guest does.
    let mut class = json!({"name": "loop", "layout": "partition", "fs": "xfs"});
    class["select"] = json!({"path": [cluster.drives_pattern()]});
    cluster.uninstall_if_installed();
    cluster.install(&Install::with(json!({"classes": [class]})));
    let free = cluster.free();
    print_progress("External Storage suite: begun; it takes 25 minutes and more");
    cluster.passes(&SPECS);
    cluster.nothing_is_unclaimed();
    cluster.until_free(free);
    cluster.uninstall();
}
