//! Claims that are created from other claims, on drives of layout `partition`.

use drivebay_hwtests::kube::{
    Cluster,
    manifest::{IDLE, claim, copy_of, mounted, pod},
};

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_clone_waits_until_its_source_is_unused_and_is_mounted_beside_it() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("clone");
    it.apply(&[
        claim("data", 64),
        pod("writer", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("writer");
    let digest = it.write("writer", "/data/letter", 8);

    // The pod is scheduled only when the clone exists, so that it does not stage the source before.
    let uses = [mounted("data", "/data"), mounted("clone", "/clone")];
    it.apply(&[
        copy_of(claim("clone", 64), "PersistentVolumeClaim", "data"),
        pod("both", &uses, IDLE),
    ]);
    let event = it.event(&[
        "PersistentVolumeClaim/clone ProvisioningFailed",
        "Aborted",
        "waits for it to be unstaged",
    ]);
    println!("the claim: {event}");
    it.delete_pod("writer");
    it.runs("both");
    for file in ["/data/letter", "/clone/letter"] {
        assert_eq!(it.digest("both", file, 8), digest, "{file}");
    }
    it.sh("both", "echo other >/clone/letter");
    assert_eq!(it.digest("both", "/data/letter", 8), digest);
    it.end();
}
