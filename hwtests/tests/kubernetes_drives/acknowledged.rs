//! Findings that are acknowledged by a task, where the nodes' configuration allows it. A script in smartctl's place replays answers.

use drivebay_hwtests::{
    kube::{Cluster, Install, LIMIT, wait},
    long_scenario, replay,
};
use serde_json::{Value, json};

use super::plugin::plugin;

/// Returns the object of a drive with findings.
fn suspect(cluster: &Cluster, value: i64) -> Option<Value> {
    let has = |drive: &Value| {
        let counts = drive["status"]["counts"].as_array();
        counts.is_some_and(|all| all.iter().any(|one| one["value"] == value))
    };
    cluster.list("default", &["drives"]).into_iter().find(has)
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn findings_are_acknowledged_with_their_counts_unless_one_got_worse() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    let dir = cluster.dir().join("smart");
    replay::smartctl(&dir, 0);
    cluster.installed();
    cluster.drivebay_is_up();
    // One drive alone: findings outlive this scenario, and other scenarios need space.
    let device = wait::until(LIMIT, "a drive has an object", || {
        let drives = cluster.list("default", &["drives"]);
        let of_class = drives
            .iter()
            .find(|drive| drive["status"]["class"] == "loop");
        of_class?["status"]["device"].as_str().map(str::to_owned)
    });
    replay::pending_sectors_of(&dir, &device, 3);
    let path = dir.display().to_string();
    cluster.install(&Install::with(json!({"agent": {
        "driveVerbs": ["cordon", "locate", "evacuate", "acknowledge"],
        "config": {"smart": {
            "smartctl": format!("{path}/smartctl"),
            "device": [{"match": "loop*", "type": "sat"}],
        }},
        "extraVolumes": [{"name": "smart", "hostPath": {"path": path}}],
        "extraVolumeMounts": [{"name": "smart", "mountPath": path}],
    }})));
    cluster.drivebay_is_up();
    let drive = wait::until(LIMIT, "a drive has 3 pending sectors", || {
        suspect(&cluster, 3)
    });
    let name = drive["metadata"]["name"].as_str().unwrap();
    println!("{}", cluster.kubectl(&["get", "drive", name]));
    println!("{}", plugin(&cluster, &["health"]).unwrap_err());

    // An order about what the drive had before is refused by the agent.
    let printed = plugin(
        &cluster,
        &["acknowledge", name, "--note", "cable", "--print"],
    )
    .unwrap();
    replay::pending_sectors_of(&dir, &device, 5);
    let agent = [
        "-n",
        "drivebay",
        "exec",
        "ds/drivebay-agent",
        "--",
        "drivebay-agent",
        "rescan",
    ];
    wait::until(LIMIT, "the drive has 5 pending sectors", || {
        cluster.kubectl(&agent);
        let now = cluster.get("default", &["drive", name]);
        let counts = now["status"]["counts"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        counts.iter().any(|one| one["value"] == 5).then_some(())
    });
    let created = cluster.inside_with(
        &["kubectl", "create", "-f", "-", "-o", "name"],
        printed.as_bytes(),
    );
    let task = created.unwrap().trim().to_owned();
    let ended = wait::until(LIMIT, "the task has ended", || {
        let task = cluster.get("default", &[&task]);
        (task["status"]["phase"] == "Failed").then_some(task)
    });
    let message = ended["status"]["message"].as_str().unwrap();
    println!("{message}");
    assert!(message.contains("is 5, and 3 is named"), "{message}");

    // It takes new volumes again, so that later scenarios can use it.
    let acknowledge = ["acknowledge", name, "--note", "cable", "--use"];
    let output = plugin(&cluster, &acknowledge).unwrap();
    println!("{output}");
    assert!(output.contains("1 finding acknowledged"), "{output}");
    wait::until(LIMIT, "the object shows it", || {
        let now = cluster.get("default", &["drive", name]);
        let health = now["status"]["health"].as_str()?;
        (health.ends_with("(ack)") && now["status"]["counts"].is_null()).then_some(())
    });
    println!("{}", cluster.kubectl(&["get", "drive", name]));
    cluster.kubectl(&["delete", "drivetasks", "--all"]);
    cluster.install(&Install::default());
}
