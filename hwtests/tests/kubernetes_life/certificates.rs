//! Certificates that the controllers' pods generate, and those of an administrator, with the commands of deploy/docs/security.md.

use std::path::PathBuf;

use drivebay_hwtests::{
    kube::{Cluster, Install, LIMIT, NAMESPACE, wait},
    long_scenario, program, tools,
};
use serde_json::Value;

const SECRETS: [&str; 2] = ["drivebay-controller-tls", "drivebay-nodes-ca"];
const CA: &str = "drivebay-controller-ca";

/// Creates a CA and the certificates of the controller and the node, and the controller's Secret. Returns the directory of the files.
pub(crate) fn make(cluster: &Cluster) -> PathBuf {
    // The Secrets of another installation.
    delete(cluster);
    let dir = cluster.dir().join("certs");
    let controller = program::controller().unwrap();
    let controller = controller.to_str().unwrap();
    let path = dir.to_str().unwrap();
    tools::must("rm", &["-rf", path]);
    tools::must(controller, &["certs", "init", "--dir", path]);
    tools::must(controller, &["certs", "node", "node-1", "--dir", path]);
    secret(cluster, SECRETS[0], path, "controller");
    dir
}

fn secret(cluster: &Cluster, secret: &str, dir: &str, name: &str) {
    cluster.kubectl(&[
        "--namespace",
        NAMESPACE,
        "create",
        "secret",
        "generic",
        secret,
        &format!("--from-file=ca.crt={dir}/ca.pem"),
        &format!("--from-file=tls.crt={dir}/{name}.pem"),
        &format!("--from-file=tls.key={dir}/{name}-key.pem"),
    ]);
}

/// Deletes the Secrets: if certificates are generated, the next controller's pod creates them again under these names.
pub(crate) fn delete(cluster: &Cluster) {
    let words = ["--namespace", NAMESPACE, "delete", "secret"];
    cluster.kubectl(&[&words[..], &SECRETS, &["--ignore-not-found"]].concat());
}

/// Returns the contents of the controller's Secret and of the CA's ConfigMap, which agents trust.
fn kept(cluster: &Cluster) -> [Value; 2] {
    [["secret", SECRETS[0]], ["configmap", CA]]
        .map(|words| cluster.get(NAMESPACE, &words)["data"].clone())
}

fn restart(cluster: &Cluster) {
    let words = ["--namespace", NAMESPACE, "rollout", "restart"];
    cluster.kubectl(&[&words[..], &["deployment/drivebay-controller"]].concat());
    cluster.drivebay_is_up();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn generated_certificates_are_made_once_and_kept_by_upgrades() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    let made = kept(&cluster);
    assert!(made[0]["tls.key"].is_string(), "{:?}", made[1]);
    restart(&cluster);
    cluster.upgrade(&Install::default(), &[]).unwrap();
    cluster.drivebay_is_up();
    assert!(kept(&cluster) == made, "the certificates are others");

    // As left by a chart that created them itself: managed by Helm.
    for (kind, name) in [("secret", SECRETS[0]), ("configmap", CA)] {
        let to = ["--namespace", NAMESPACE];
        let release = format!("meta.helm.sh/release-namespace={NAMESPACE}");
        let annotations = ["meta.helm.sh/release-name=drivebay", &release];
        let label = ["app.kubernetes.io/managed-by=Helm", "--overwrite"];
        cluster.kubectl(&[&to[..], &["annotate", kind, name], &annotations].concat());
        cluster.kubectl(&[&to[..], &["label", kind, name], &label].concat());
    }
    // The first upgrade renders them once more, the second one does not.
    for _ in 0..2 {
        cluster.upgrade(&Install::default(), &[]).unwrap();
        assert!(
            kept(&cluster) == made,
            "helm has taken the certificates away"
        );
    }

    delete(&cluster);
    restart(&cluster);
    let renewed = kept(&cluster);
    assert!(renewed[0]["tls.key"].is_string() && renewed != made);
    // Agents trust the new CA once the kubelet has updated their volume.
    wait::until(
        LIMIT,
        "the agent has a session with a new controller",
        || {
            let node = cluster.query_controller(&["node", "show", "node-1"]);
            (node["state"] == "connected").then_some(())
        },
    );
}
