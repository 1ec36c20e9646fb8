//! Certificates that an administrator makes, with the commands of deploy/docs/security.md.

use std::path::PathBuf;

use drivebay_hwtests::{
    kube::{Cluster, NAMESPACE},
    program, tools,
};

const SECRETS: [&str; 2] = ["drivebay-controller-tls", "drivebay-nodes-ca"];

/// A CA, the controller's certificate and the node's, and the controller's as a Secret; the directory they are in.
pub(crate) fn make(cluster: &Cluster) -> PathBuf {
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

/// Deletes the Secrets: helm makes others under these names when it generates certificates.
pub(crate) fn delete(cluster: &Cluster) {
    let words = ["--namespace", NAMESPACE, "delete", "secret"];
    cluster.kubectl(&[&words[..], &SECRETS, &["--ignore-not-found"]].concat());
}
