//! DriveTasks: one for each operation, who may create which, and orders that are not carried out a second time.

use std::time::Duration;

use drivebay_hwtests::{
    kube::{
        Cluster, LIMIT, NAMESPACE, Scenario,
        manifest::{IDLE, claim, mounted, stateful_set},
        wait,
    },
    long_scenario, tools,
};
use serde_json::{Value, json};

use super::shown::drive_of_claim;

/// Returns this time, by which an order is issued, as RFC 3339.
fn issued(ago: Duration) -> String {
    let at = format!("--date={} seconds ago", ago.as_secs());
    let at = tools::must("date", &["--utc", &at, "+%Y-%m-%dT%H:%M:%SZ"]);
    at.trim().to_owned()
}

fn admin(cluster: &Cluster) -> String {
    let path = "jsonpath={.status.userInfo.username}";
    cluster.kubectl(&["auth", "whoami", "--output", path])
}

/// Returns a task with these fields of its specification besides.
fn task(name: &str, drive: &str, by: &str, operation: &Value) -> Value {
    let mut spec = json!({"drive": drive, "by": by, "issuedAt": issued(Duration::ZERO)});
    for (key, value) in operation.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({
        "apiVersion": "drivebay.io/v1alpha1",
        "kind": "DriveTask",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Creates a task, as this user if one is given. Returns what kubectl printed, or the reason of the refusal.
fn create(cluster: &Cluster, task: &Value, user: Option<&str>) -> Result<String, String> {
    let mut words = vec!["kubectl", "create", "-f", "-"];
    if let Some(user) = user {
        words.extend(["--as", user]);
    }
    let created = cluster.inside_with(&words, task.to_string().as_bytes());
    created.map_err(|error| error.to_string())
}

/// Waits until a task is in this phase; returns its status.
fn until(cluster: &Cluster, name: &str, phase: &str) -> Value {
    wait::until(LIMIT, &format!("task {name} is {phase}"), || {
        let task = cluster.get("default", &["drivetask", name]);
        let is = task["status"]["phase"] == phase;
        if !is
            && matches!(
                task["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            )
        {
            panic!("{name} is not {phase}: {:#}", task["status"]);
        }
        is.then(|| task["status"].clone())
    })
}

/// Creates a task as the administrator and waits until it ends in this phase; returns its status.
fn carried_out(
    cluster: &Cluster,
    name: &str,
    drive: &str,
    operation: &Value,
    phase: &str,
) -> Value {
    let by = admin(cluster);
    create(cluster, &task(name, drive, &by, operation), None).unwrap();
    let status = until(cluster, name, phase);
    println!(
        "{}",
        cluster.kubectl(&["get", "drivetask", name, "--output", "wide"])
    );
    status
}

fn accepts(cluster: &Cluster, drive: &str, status: &str) {
    wait::until(
        LIMIT,
        &format!("{drive} is AcceptingVolumes={status}"),
        || {
            let drive = cluster.get("default", &["drive", drive]);
            let conditions = drive["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.unwrap_or_default().into_iter();
            let is = |one: &Value| one["type"] == "AcceptingVolumes" && one["status"] == status;
            conditions.any(|one| is(&one)).then_some(())
        },
    );
}

fn name_of(drive: &Value) -> String {
    drive["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Starts a pod with a volume; returns the name of the object of its drive.
fn with_volume(it: &Scenario, set: &str) -> String {
    it.apply(&[stateful_set(
        set,
        1,
        &[claim("data", 64)],
        &[mounted("data", "/data")],
        IDLE,
    )]);
    it.runs(&format!("{set}-0"));
    let claimed = format!("{}/data-{set}-0", it.name);
    name_of(&drive_of_claim(&it.cluster, &claimed))
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn each_operation_is_carried_out_by_a_task_and_shown_in_its_status() {
    let cluster = Cluster::running();
    long_scenario!(cluster);
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("drive-tasks");
    let cluster = &it.cluster;
    let drive = with_volume(&it, "db");
    let digest = it.write("db-0", "/data/letter", 8);

    let reason = json!({"cordon": {"reason": "noisy"}});
    carried_out(cluster, "cordon-1", &drive, &reason, "Succeeded");
    accepts(cluster, &drive, "False");
    let object = cluster.get("default", &["drive", &drive]);
    let cordon = object["status"]["cordon"].as_str().unwrap();
    let by = admin(cluster);
    for part in ["noisy", "DriveTask cordon-1", by.as_str()] {
        assert!(cordon.contains(part), "{part}: {cordon}");
    }
    carried_out(
        cluster,
        "uncordon-1",
        &drive,
        &json!({"uncordon": {}}),
        "Succeeded",
    );
    accepts(cluster, &drive, "True");

    // A file has no light, and nodes do not let controllers acknowledge unless their configuration says so.
    let status = carried_out(
        cluster,
        "locate-1",
        &drive,
        &json!({"locate": {"on": true}}),
        "Failed",
    );
    assert_eq!(status["reason"], "Refused", "{status:#}");
    let findings = json!({"acknowledge": {"findings": [{"code": "PendingSectors"}]}});
    let status = carried_out(cluster, "acknowledge-1", &drive, &findings, "Failed");
    assert_eq!(status["reason"], "DeniedByNode", "{status:#}");
    let status = carried_out(
        cluster,
        "typo-1",
        "wwn-typo",
        &json!({"cordon": {}}),
        "Failed",
    );
    assert_eq!(status["reason"], "DriveNotFound", "{status:#}");

    // A task cannot be changed, and has one operation.
    let patch = r#"{"spec":{"drive":"wwn-other"}}"#;
    let changed = cluster.try_kubectl(&[
        "patch",
        "drivetask",
        "cordon-1",
        "--type=merge",
        "-p",
        patch,
    ]);
    let text = changed.unwrap_err().to_string();
    assert!(text.contains("a task cannot be changed"), "{text}");
    let two = json!({"cordon": {}, "uncordon": {}});
    let text = create(cluster, &task("two", &drive, &by, &two), None).unwrap_err();
    assert!(text.contains("exactly one of"), "{text}");

    // A second evacuation of the node waits for the first one, which waits for a pod.
    let other = with_volume(&it, "web");
    let evacuate = json!({"evacuate": {}});
    let first = task("evacuate-1", &drive, &by, &evacuate);
    create(cluster, &first, None).unwrap();
    let status = wait::until(LIMIT, "the volume waits for its pod", || {
        let task = cluster.get("default", &["drivetask", "evacuate-1"]);
        (task["status"]["reason"] == "WaitingForVolumes").then(|| task["status"].clone())
    });
    assert_eq!(status["phase"], "Running", "{status:#}");
    let second = match other == drive {
        // The volumes are on one drive: any other one does.
        true => {
            let all = cluster.list("default", &["drives"]);
            let mut all = all.iter().map(name_of);
            all.find(|name| *name != drive).unwrap()
        }
        false => other,
    };
    create(cluster, &task("evacuate-2", &second, &by, &evacuate), None).unwrap();
    wait::until(LIMIT, "the second one waits", || {
        let task = cluster.get("default", &["drivetask", "evacuate-2"]);
        (task["status"]["reason"] == "WaitingForNode").then_some(())
    });
    println!(
        "{}",
        cluster.kubectl(&["get", "drivetasks", "--output", "wide"])
    );
    // One that is Pending is withdrawn by its deletion.
    cluster.kubectl(&["delete", "drivetask", "evacuate-2"]);

    for set in ["db", "web"] {
        it.kubectl(&["scale", "statefulset", set, "--replicas=0"]);
    }
    it.has_no_pods();
    let status = until(cluster, "evacuate-1", "Succeeded");
    println!("{status:#}");
    assert!(status["volumesMoved"].as_i64() >= Some(1), "{status:#}");
    it.kubectl(&["scale", "statefulset", "db", "--replicas=1"]);
    it.runs("db-0");
    assert_eq!(it.digest("db-0", "/data/letter", 8), digest);
    let claimed = format!("{}/data-db-0", it.name);
    let moved = wait::until(LIMIT, "the claim is on another drive", || {
        let now = name_of(&drive_of_claim(cluster, &claimed));
        (now != drive).then_some(now)
    });
    it.kubectl(&["scale", "statefulset", "db", "--replicas=0"]);
    it.has_no_pods();

    // Back by replacing that drive with the first one, once the old place there is erased.
    let agent = ["--namespace", NAMESPACE, "exec", "ds/drivebay-agent", "--"];
    let retire = ["drivebay-agent", "drive", "retire"];
    let identity = cluster.get("default", &["drive", &drive])["status"]["drive"].clone();
    let retire = [&retire[..], &[identity.as_str().unwrap(), "--by=test"]].concat();
    println!("{}", cluster.kubectl(&[&agent[..], &retire].concat()));
    carried_out(
        cluster,
        "uncordon-2",
        &drive,
        &json!({"uncordon": {}}),
        "Succeeded",
    );
    let replace = json!({"replace": {"with": drive}, "ttlSecondsAfterFinished": 0});
    create(cluster, &task("replace-1", &moved, &by, &replace), None).unwrap();
    wait::until(LIMIT, "the finished task is deleted", || {
        let task = cluster.get("default", &["drivetask", "replace-1"]);
        task.is_null().then_some(())
    });
    assert_eq!(name_of(&drive_of_claim(cluster, &claimed)), drive);
    carried_out(
        cluster,
        "uncordon-3",
        &moved,
        &json!({"uncordon": {}}),
        "Succeeded",
    );
    it.had_no_failed_call();
    cluster.kubectl(&["delete", "drivetasks", "--all"]);
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn an_order_of_a_backup_or_of_a_created_again_object_is_not_carried_out() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("task-orders");
    let cluster = &it.cluster;
    // Only a claimed drive can be cordoned.
    let drive = with_volume(&it, "ordered");
    let by = admin(cluster);
    let mut old = task("restored", &drive, &by, &json!({"cordon": {}}));
    old["spec"]["issuedAt"] = issued(Duration::from_secs(3700)).into();
    create(cluster, &old, None).unwrap();
    let status = until(cluster, "restored", "Failed");
    assert_eq!(status["reason"], "Expired", "{status:#}");
    accepts(cluster, &drive, "True");

    let once = task("once", &drive, &by, &json!({"cordon": {}}));
    create(cluster, &once, None).unwrap();
    until(cluster, "once", "Succeeded");
    carried_out(
        cluster,
        "back",
        &drive,
        &json!({"uncordon": {}}),
        "Succeeded",
    );
    cluster.kubectl(&["delete", "drivetask", "once"]);
    create(cluster, &once, None).unwrap();
    let status = until(cluster, "once", "Failed");
    assert_eq!(status["reason"], "AlreadyCarriedOut", "{status:#}");
    accepts(cluster, &drive, "True");
    cluster.kubectl(&["delete", "drivetasks", "--all"]);
    it.end();
}

#[test]
#[ignore = "needs a cluster: hwtests/kubernetes"]
fn each_operation_needs_its_own_right() {
    let cluster = Cluster::running();
    cluster.installed();
    cluster.drivebay_is_up();
    let it = cluster.scenario("task-rights");
    let cluster = &it.cluster;
    let drives = wait::until(LIMIT, "there are drives", || {
        let names: Vec<String> = cluster
            .list("default", &["drives"])
            .iter()
            .map(name_of)
            .collect();
        (names.len() > 1).then_some(names)
    });
    let [drive, other] = [&drives[0], &drives[1]];
    let user = |account: &str| format!("system:serviceaccount:{}:{account}", it.name);
    let bind = |account: &str, role: &str| {
        it.kubectl(&["create", "serviceaccount", account]);
        cluster.kubectl(&[
            "create",
            "clusterrolebinding",
            &format!("tasks-{account}"),
            &format!("--clusterrole={role}"),
            &format!("--serviceaccount={}:{account}", it.name),
        ]);
    };
    // Each right on one drive alone.
    let operations = [
        ("cordon", json!({"cordon": {}})),
        ("uncordon", json!({"uncordon": {}})),
        ("evacuate", json!({"evacuate": {}})),
        ("replace", json!({"replace": {"with": drive}})),
        ("locate", json!({"locate": {"on": false}})),
        (
            "acknowledge",
            json!({"acknowledge": {"findings": [{"code": "A"}]}}),
        ),
    ];
    for (verb, _) in &operations {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": format!("tasks-{verb}")},
            "rules": [
                {"apiGroups": ["drivebay.io"], "resources": ["drivetasks"], "verbs": ["create"]},
                {"apiGroups": ["drivebay.io"], "resources": ["drives"], "verbs": [verb], "resourceNames": [drive]},
            ],
        });
        cluster.apply("default", &[role]);
        bind(verb, &format!("tasks-{verb}"));
    }
    bind("reader", "drivebay-drives-reader");

    // `--dry-run=server` admits a task and does not store it.
    let may = |account: &str, name: &str, operation: &Value| {
        let user = user(account);
        let task = task("dry", name, &user, operation);
        let words = [
            "kubectl",
            "create",
            "-f",
            "-",
            "--dry-run=server",
            "--as",
            &user,
        ];
        let made = cluster.inside_with(&words, task.to_string().as_bytes());
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    // All at once for each account: kubectl says which tasks of a list are admitted.
    for (account, _) in &operations {
        let user = user(account);
        let tasks = operations
            .iter()
            .map(|(verb, operation)| task(verb, drive, &user, operation));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": tasks.collect::<Vec<_>>()});
        let words = [
            "kubectl",
            "create",
            "-f",
            "-",
            "--dry-run=server",
            "--as",
            &user,
        ];
        let error = cluster
            .inside_with(&words, list.to_string().as_bytes())
            .unwrap_err();
        let message = error.to_string();
        for (verb, _) in &operations {
            let is_admitted = message.contains(&format!("drivetask.drivebay.io/{verb} created"));
            assert_eq!(is_admitted, account == verb, "{account} {verb}: {message}");
        }
    }
    let refused = may("cordon", drive, &operations[2].1).unwrap_err();
    println!("{refused}");
    assert!(
        refused.contains("needs the verb evacuate on drives.drivebay.io"),
        "{refused}"
    );
    // Neither on another drive, nor to one.
    assert!(may("cordon", other, &operations[0].1).is_err());
    assert!(may("evacuate", drive, &json!({"evacuate": {"to": [other]}})).is_err());
    assert!(may("evacuate", drive, &json!({"evacuate": {"to": [drive]}})).is_ok());
    assert!(may("replace", drive, &json!({"replace": {"with": other}})).is_err());
    let refused = may("reader", drive, &operations[0].1).unwrap_err();
    assert!(refused.contains("cannot create resource"), "{refused}");
    let listed = cluster.try_kubectl(&["get", "drives", "--as", &user("reader")]);
    assert!(listed.is_ok(), "{listed:?}");

    // A task in the name of another user is refused.
    let forged = task("forged", drive, &user("evacuate"), &operations[0].1);
    let refused = create(cluster, &forged, Some(&user("cordon"))).unwrap_err();
    assert!(
        refused.contains("spec.by has to be the name of the user"),
        "{refused}"
    );

    for (verb, _) in &operations {
        cluster.kubectl(&["delete", "clusterrole", &format!("tasks-{verb}")]);
    }
    let accounts = operations.iter().map(|(verb, _)| *verb).chain(["reader"]);
    for account in accounts {
        cluster.kubectl(&["delete", "clusterrolebinding", &format!("tasks-{account}")]);
    }
    it.end();
}
