//! Manifests of databases that the documents have, with the CRDs of their operators.

use std::{env, fs, path::Path};

use drivebay_hwtests::{kube::Cluster, long_scenario};

/// Kind of CloudNativePG that the manifest has.
const CRD: &str = "clusters.postgresql.cnpg.io";

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn the_manifest_for_cloudnative_pg_is_accepted_by_the_api_server() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    let crds = env::var("DRIVEBAY_CNPG_CRDS").unwrap();
    let crd = fs::read(Path::new(&crds).join("postgresql.cnpg.io_clusters.yaml")).unwrap();
    let apply = ["kubectl", "apply", "--server-side", "--filename", "-"];
    cluster.inside_with(&apply, &crd).unwrap();
    let established = ["wait", "--for=condition=Established", "--timeout=30s"];
    cluster.kubectl(&[&established[..], &["crd", CRD]].concat());

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = root.join("deploy/values/databases/cloudnative-pg.yaml");
    let manifest = fs::read_to_string(manifest).unwrap();
    // A field that the operator does not have is an error.
    let words = ["kubectl", "apply", "--validate=strict", "--filename", "-"];
    let output = cluster.inside_with(&words, manifest.as_bytes()).unwrap();
    println!("{output}");
    let typo = manifest.replace("walStorage", "walStorag");
    let refused = cluster.inside_with(&words, typo.as_bytes()).unwrap_err();
    assert!(refused.to_string().contains("spec.walStorag"), "{refused}");
    let delete = ["kubectl", "delete", "--filename", "-"];
    cluster.inside_with(&delete, manifest.as_bytes()).unwrap();
    cluster.kubectl(&["delete", "crd", CRD]);
}
