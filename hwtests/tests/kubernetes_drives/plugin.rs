//! `kubectl drivebay`: lists, and operations that it requests and waits for.

use drivebay_hwtests::kube::{
    Cluster, LIMIT,
    manifest::{IDLE, claim, mounted, pod},
    wait,
};
use serde_json::Value;

use super::shown::drive_of_claim;

/// Runs the plugin through kubectl; returns its output, or that and the exit code in the text of the error.
pub(super) fn plugin(cluster: &Cluster, words: &[&str]) -> Result<String, String> {
    let ran = cluster.try_kubectl(&[&["drivebay"], words].concat());
    ran.map_err(|error| error.to_string())
}

fn json(cluster: &Cluster, words: &[&str]) -> Value {
    let text = plugin(cluster, &[words, &["--output", "json"]].concat()).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn the_plugin_lists_and_acts_with_the_rights_of_its_user() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("plugin");
    let cluster = &it.cluster;
    it.apply(&[
        claim("data", 64),
        pod("user", &[mounted("data", "/data")], IDLE),
    ]);
    it.runs("user");
    let claimed = format!("{}/data", it.name);
    let object = drive_of_claim(cluster, &claimed);
    let name = object["metadata"]["name"].as_str().unwrap();
    let device = object["status"]["device"].as_str().unwrap();

    for list in ["drives", "nodes", "volumes", "tasks"] {
        let text = plugin(cluster, &[list]).unwrap();
        println!("$ kubectl drivebay {list}\n{text}");
    }
    // Scenarios of snapshots install the CRDs.
    let crd = "volumesnapshotcontents.snapshot.storage.k8s.io";
    let has_snapshots = cluster.try_kubectl(&["get", "crd", crd]).is_ok();
    match plugin(cluster, &["snapshots"]) {
        Ok(text) => assert!(has_snapshots, "{text}"),
        Err(text) => assert!(
            !has_snapshots && text.contains("install the CRDs"),
            "{text}"
        ),
    }
    let drives = json(cluster, &["drives"]);
    let mut all = drives["drives"].as_array().unwrap().iter();
    let listed = all.find(|drive| drive["name"] == name).unwrap();
    assert_eq!(listed["node"], "node-1", "{listed:#}");
    println!(
        "{}",
        plugin(cluster, &["drives", "--output", "wide"]).unwrap()
    );
    println!(
        "{}",
        plugin(cluster, &["health"]).unwrap_or_else(|error| error)
    );

    // By the name that a person sees, and whole.
    let place = format!("node-1:{device}");
    let output = plugin(cluster, &["cordon", &place, "--reason", "noisy"]).unwrap();
    println!("{output}");
    assert!(output.contains("takes no new volumes"), "{output}");
    wait::until(LIMIT, "the list shows the cordon", || {
        let text = plugin(cluster, &["drives", &place]).unwrap();
        text.contains("Cordoned").then_some(())
    });
    // The object was written for the cordon, with the claim.
    let volumes = json(cluster, &["volumes", "--namespace", &it.name]);
    let [volume] = volumes["volumes"].as_array().unwrap().as_slice() else {
        panic!("{volumes:#}");
    };
    assert_eq!(
        (&volume["claim"], &volume["drive"]),
        (&claimed.into(), &name.into())
    );
    let typo = plugin(cluster, &["cordon", "node-1:nvme9n9"]).unwrap_err();
    assert!(
        typo.contains("there is no drive") && typo.contains("exit status: 6"),
        "{typo}"
    );
    let output = plugin(cluster, &["uncordon", &place]).unwrap();
    assert!(output.contains("takes new volumes"), "{output}");
    // Refused by the drive, and shown with the reason.
    let refused = plugin(cluster, &["locate", &place, "on"]).unwrap_err();
    println!("{refused}");
    assert!(
        refused.contains("Refused") && refused.contains("exit status: 1"),
        "{refused}"
    );
    let nothing = plugin(cluster, &["acknowledge", &place]).unwrap_err();
    assert!(nothing.contains("nothing to acknowledge"), "{nothing}");
    let printed = plugin(cluster, &["evacuate", &place, "--hold", "--print"]).unwrap();
    assert!(
        printed.contains("kind: DriveTask") && printed.contains("hold: true"),
        "{printed}"
    );

    // A volume in use waits; the command ends with exit code 8, and the volume moves when its pod is gone.
    let waits = plugin(cluster, &["evacuate", &place]).unwrap_err();
    println!("{waits}");
    assert!(waits.contains("exit status: 8"), "{waits}");
    it.delete_pod("user");
    wait::until(LIMIT, "the task has ended", || {
        let tasks = json(cluster, &["tasks"]);
        let mut tasks = tasks["tasks"].as_array().unwrap().iter();
        let is = |task: &&Value| task["status"]["operation"] == "Evacuate";
        (tasks.find(is)?["status"]["phase"] == "Succeeded").then_some(())
    });
    println!(
        "{}",
        plugin(cluster, &["tasks", "--output", "wide"]).unwrap()
    );
    plugin(cluster, &["uncordon", &place]).unwrap();

    // Without a right the API server's reason is shown.
    it.kubectl(&["create", "serviceaccount", "nobody"]);
    let token = it.kubectl(&["create", "token", "nobody"]);
    let config = cluster.kubectl(&[
        "config",
        "view",
        "--raw",
        "--minify",
        "--flatten",
        "--output",
        "json",
    ]);
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = serde_json::json!({"token": token.trim()});
    let file = format!("/tmp/kubeconfig-{}", it.name);
    cluster
        .inside_with(&["tee", &file], config.to_string().as_bytes())
        .unwrap();
    let denied = plugin(cluster, &["drives", "--kubeconfig", &file]).unwrap_err();
    println!("{denied}");
    assert!(
        denied.contains("cannot list resource") && denied.contains("exit status: 4"),
        "{denied}"
    );
    cluster.inside(&["rm", &file]).unwrap();
    cluster.kubectl(&["delete", "drivetasks", "--all"]);
    it.end();
}
