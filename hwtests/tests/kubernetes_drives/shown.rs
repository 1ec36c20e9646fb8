//! Drive objects as kubectl shows them: columns, conditions, watches, and objects that return.

use std::time::Duration;

use drivebay_hwtests::{
    kube::{
        Cluster, LIMIT,
        manifest::{IDLE, claim, mounted, pod},
        wait,
    },
    tools,
};
use serde_json::Value;

fn drives(cluster: &Cluster) -> Vec<Value> {
    cluster.list("default", &["drives"])
}

/// Returns the object of the drive that has the volume of this claim, NAMESPACE/NAME, by the controller's list: the object itself may
/// name the claim a minute later.
pub(super) fn drive_of_claim(cluster: &Cluster, claim: &str) -> Value {
    wait::until(LIMIT, &format!("the volume of {claim} is listed"), || {
        let volumes = cluster.query_controller(&["volumes"]);
        let mut volumes = volumes["volumes"].as_array()?.iter();
        let volume = volumes.find(|volume| volume["claim"] == claim)?;
        let of = |drive: &Value| drive["status"]["drive"] == volume["drive"];
        drives(cluster).into_iter().find(of)
    })
}

/// Waits until a drive's object names this claim, NAMESPACE/NAME; returns the object.
pub(super) fn drive_with_claim(cluster: &Cluster, claim: &str) -> Value {
    let has = |drive: &Value| {
        let volumes = drive["status"]["volumes"].as_array();
        volumes.is_some_and(|all| all.iter().any(|volume| volume["claim"] == claim))
    };
    wait::until(LIMIT, &format!("a drive's object names {claim}"), || {
        drives(cluster).into_iter().find(has)
    })
}

/// Returns a condition of a drive: its status, reason and time.
fn condition(drive: &Value, type_: &str) -> [String; 3] {
    let all = drive["status"]["conditions"].as_array().cloned();
    let one = all.unwrap_or_default().into_iter();
    let one = one.into_iter().find(|one| one["type"] == type_);
    let one = one.unwrap_or_default();
    ["status", "reason", "lastTransitionTime"]
        .map(|key| one[key].as_str().unwrap_or_default().to_owned())
}

/// Waits until a drive's object has this status of a condition.
fn until_condition(cluster: &Cluster, name: &str, type_: &str, status: &str) -> Value {
    wait::until(LIMIT, &format!("{name} is {type_}={status}"), || {
        let drive = cluster.get("default", &["drive", name]);
        (condition(&drive, type_)[0] == status).then_some(drive)
    })
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn drives_are_listed_described_and_watched_and_return_when_they_are_deleted() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("drive-objects");
    it.apply(&[
        claim("data", 64),
        pod("user", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("user");
    let claimed = format!("{}/data", it.name);
    let used = drive_with_claim(&cluster, &claimed);
    let used = used["metadata"]["name"].as_str().unwrap().to_owned();

    let table = cluster.kubectl(&["get", "drives"]);
    println!("{table}");
    let mut lines = table.lines();
    let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        head,
        [
            "NAME", "NODE", "BAY", "MODEL", "SIZE", "FREE", "CLASS", "HEALTH", "REASON", "AGE"
        ]
    );
    let row = lines.find(|line| line.starts_with(&used)).unwrap();
    for cell in ["node-1", "6 GiB", "loop"] {
        assert!(row.contains(cell), "{cell}: {row}");
    }
    println!(
        "{}",
        cluster.kubectl(&["get", "drives", "--output", "wide"])
    );
    let of_node = [
        "get",
        "drives",
        "--field-selector",
        "status.node=node-1",
        "--output",
        "name",
    ];
    assert_eq!(
        cluster.kubectl(&of_node).lines().count(),
        drives(&cluster).len()
    );

    let text = cluster.kubectl(&["describe", "drive", &used]);
    println!("{text}");
    for part in [
        &claimed,
        "Volumes:",
        "Conditions:",
        "AcceptingVolumes",
        "Last Transition Time",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // A watch shows a change by another client, and that the controller reverts it.
    cluster.start(
        "watch-drives",
        &[],
        &["kubectl", "get", "drives", "--watch", "--output", "wide"],
    );
    let watched = || {
        let log = cluster.log("watch-drives");
        let lines = log.lines().filter(|line| line.starts_with(&used));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    wait::until(LIMIT, "the watch has listed the drives", || {
        (!watched().is_empty()).then_some(())
    });
    let patch = r#"{"status":{"health":"BAD"}}"#;
    cluster.kubectl(&["patch", "drive", &used, "--type=merge", "--patch", patch]);
    wait::until(LIMIT, "the object is as the agent reports", || {
        let health = cluster.get("default", &["drive", &used])["status"]["health"].clone();
        (health != "BAD").then_some(())
    });
    wait::until(LIMIT, "the watch has shown both", || {
        let lines = watched();
        (lines.iter().any(|line| line.contains("BAD")) && lines.len() >= 3).then_some(())
    });
    println!("{}", cluster.log("watch-drives"));
    cluster.signal("-TERM", "kubectl get drives --watch");

    // Deleted objects return, and volumes are not affected.
    let before = drives(&cluster).len();
    cluster.kubectl(&["delete", "drives", "--all"]);
    wait::until(LIMIT, "all objects are back", || {
        (drives(&cluster).len() == before).then_some(())
    });
    it.sh("user", "echo still >/data/here; sync");
    let back = cluster.get("default", &["drive", &used]);
    assert!(
        back["status"]["volumes"].to_string().contains(&claimed),
        "{back:#}"
    );
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn a_missing_drive_keeps_its_object_with_a_condition() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("missing-object");
    // A volume, so that the drive is claimed and reported as missing.
    it.apply(&[
        claim("data", 64),
        pod("user", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("user");
    let used = drive_of_claim(&cluster, &format!("{}/data", it.name));
    it.delete_pod("user");
    let name = used["metadata"]["name"].as_str().unwrap();
    let [_, _, conflict_since] = condition(&used, "Conflict");
    let device = format!("/dev/{}", used["status"]["device"].as_str().unwrap());
    let file = tools::must(
        "losetup",
        &["--noheadings", "--output", "BACK-FILE", &device],
    );
    // A device that is mounted would be detached when it is unmounted.
    let unmounted = format!("! grep -q '^{device}p' /proc/mounts");
    wait::until(LIMIT, "the volume is not mounted", || {
        cluster.inside(&["sh", "-c", &unmounted]).ok()
    });
    tools::must("losetup", &["--detach", &device]);

    let missing = until_condition(&cluster, name, "Present", "False");
    assert_eq!(
        condition(&missing, "Present")[1],
        "DriveMissing",
        "{missing:#}"
    );
    assert_eq!(missing["status"]["state"], "missing", "{missing:#}");
    // A condition that did not change has kept its time over the write.
    assert_eq!(
        condition(&missing, "Conflict")[2],
        conflict_since,
        "{missing:#}"
    );
    println!("{}", cluster.kubectl(&["get", "drive", name]));
    println!("{}", cluster.kubectl(&["describe", "drive", name]));

    tools::must("losetup", &[&device, file.trim()]);
    wait::until(Duration::from_secs(120), "the drive is back", || {
        let drive = cluster.get("default", &["drive", name]);
        (condition(&drive, "Present")[0] == "True").then_some(())
    });
    it.end();
}
