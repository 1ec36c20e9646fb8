//! A volume that is moved to another drive between two pods of one claim.

use drivebay_hwtests::kube::{
    Cluster, LIMIT, NAMESPACE, Scenario,
    manifest::{IDLE, claim, mounted, stateful_set},
    wait,
};
use serde_json::Value;

const CLAIM: &str = "data-db-0";

/// Returns the controller's listing of the claim's volume.
fn volume(it: &Scenario) -> Value {
    let claim = it.get(&["pvc", CLAIM]);
    let name = claim["spec"]["volumeName"].as_str().unwrap();
    let mut listed = it.cluster.query_controller(&["volumes", name]);
    listed["volumes"][0].take()
}

fn drive(it: &Scenario) -> String {
    volume(it)["drive"].as_str().unwrap().to_owned()
}

/// Runs a program of Drivebay as an operator does, and returns its output.
fn operator(it: &Scenario, whose: &str, words: &[&str]) -> String {
    let exec = ["--namespace", NAMESPACE, "exec", whose, "--"];
    it.cluster.kubectl(&[&exec, words].concat())
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_pod_finds_its_data_on_another_drive_after_its_own_was_evacuated_and_retired() {
    let cluster = Cluster::running();
    cluster.installed();
    let it = cluster.scenario("evacuated");
    it.apply(&[stateful_set(
        "db",
        1,
        &[claim("data", 64)],
        &[mounted("data", "/data")],
        IDLE,
    )]);
    it.runs("db-0");
    let digest = it.write("db-0", "/data/letter", 8);
    let (old, handle) = (drive(&it), volume(&it)["id"].clone());
    let controller = "deploy/drivebay-controller";
    let evacuate = [
        "drivebay-controller",
        "drive",
        "evacuate",
        &old,
        "--no-wait",
        "--by=test",
    ];
    let output = operator(&it, controller, &evacuate);
    println!("{output}");
    let event = it.event(&[
        &format!("PersistentVolumeClaim/{CLAIM} VolumeMoving"),
        "on node",
    ]);
    println!("{event}");
    // The volume is not moved while the pod uses it.
    assert_eq!(it.digest("db-0", "/data/letter", 8), digest);
    assert_eq!(drive(&it), old);

    it.kubectl(&["scale", "statefulset", "db", "--replicas=0"]);
    it.has_no_pods();
    wait::until(LIMIT, "the volume is on another drive", || {
        (drive(&it) != old).then_some(())
    });
    it.kubectl(&["scale", "statefulset", "db", "--replicas=1"]);
    it.runs("db-0");
    assert_eq!(it.digest("db-0", "/data/letter", 8), digest);
    assert_eq!(volume(&it)["id"], handle);
    it.had_no_failed_call();
    // The event is due while the old place is kept, until the drive is retired.
    let moved = format!("PersistentVolumeClaim/{CLAIM} VolumeMoved");
    println!("{}", it.event(&[&moved, "its old place is kept"]));

    // The exit code confirms that the drive may be disposed of.
    let retire = ["drivebay-agent", "drive", "retire", &old, "--by=test"];
    let output = operator(&it, "ds/drivebay-agent", &retire);
    println!("{output}");
    let uncordon = [
        "drivebay-controller",
        "drive",
        "uncordon",
        &old,
        "--by=test",
    ];
    operator(&it, controller, &uncordon);
    it.end();
}
