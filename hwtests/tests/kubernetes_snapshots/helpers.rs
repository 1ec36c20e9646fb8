//! Steps that several scenarios share.

use drivebay_hwtests::{
    kube::{
        Cluster, GUEST_CLASS, GuestNode, LIMIT, Scenario,
        manifest::{claim_of, snapshot},
        wait,
    },
    lab::letters::has_no_snapshots,
};
use serde_json::{Value, json};

/// Serial numbers of the guest's drives.
pub(crate) const DRIVES: [&str; 2] = ["bay-left", "bay-right"];

pub(crate) fn guest_claim(name: &str, mib: u64) -> Value {
    claim_of(name, mib, GUEST_CLASS, "Filesystem", "ReadWriteOnce")
}

/// Returns a script that writes numbered lines to a file `log` in each of these directories in turn, each durable before the next.
pub(crate) fn writes(directories: &str) -> String {
    format!(
        "n=0; while :; do
           for at in {directories}; do
             printf '%08d\\n' $n | dd of=$at/log bs=9 seek=$n conv=notrunc,fsync 2>/dev/null
           done
           echo $n >/tmp/written; n=$((n + 1))
         done"
    )
}

/// Returns the number of the last line that is durable in all files. Retries, since the writer truncates the file with it each time.
pub(crate) fn written(it: &Scenario, pod: &str) -> usize {
    wait::until(LIMIT, "the writer says how far it is", || {
        let text = it.try_sh(pod, "cat /tmp/written").ok()?;
        text.trim().parse().ok()
    })
}

/// Waits until the writer has written `lines` more.
pub(crate) fn advances(it: &Scenario, pod: &str, lines: usize) {
    let from = written(it, pod);
    wait::until(LIMIT, "the writer goes on", || {
        (written(it, pod) >= from + lines).then_some(())
    });
    assert_eq!(it.restarts(pod), 0, "a write failed");
}

/// Returns the number of lines of a file that no process writes to; checks that their numbers have no gap.
pub(crate) fn lines(it: &Scenario, pod: &str, file: &str) -> usize {
    let text = it.sh(pod, &format!("cat {file}"));
    for (number, line) in text.lines().enumerate() {
        assert_eq!(line, format!("{number:08}"), "{file}");
    }
    text.lines().count()
}

/// Waits until a VolumeSnapshot is ready to use.
pub(crate) fn is_ready(it: &Scenario, name: &str) {
    it.until(&["volumesnapshot", name], "/status/readyToUse", "true");
}

pub(crate) fn snapshot_of_class(name: &str, claim: &str, class: &str) -> Value {
    let mut snapshot = snapshot(name, claim);
    snapshot["spec"]["volumeSnapshotClassName"] = json!(class);
    snapshot
}

/// Returns a VolumeGroupSnapshot of the claims whose label `group` is its name, of the default class.
pub(crate) fn group(name: &str) -> Value {
    json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1",
        "kind": "VolumeGroupSnapshot",
        "metadata": {"name": name},
        "spec": {"source": {"selector": {"matchLabels": {"group": name}}}},
    })
}

/// Returns the claim with the label of a group.
pub(crate) fn member(mut claim: Value, group: &str) -> Value {
    claim["metadata"]["labels"] = json!({"group": group});
    claim
}

/// Waits until an object's error contains all these words, and returns it.
pub(crate) fn error_of(it: &Scenario, object: &[&str], words: &[&str]) -> String {
    let mut last = Value::Null;
    let message = wait::poll(LIMIT, || {
        last = it.get(object)["status"]["error"]["message"].clone();
        let text = last.as_str()?;
        let has_all = words.iter().all(|word| text.contains(word));
        has_all.then(|| text.to_owned())
    });
    message.unwrap_or_else(|| panic!("{object:?} has no error with {words:?}: {last}"))
}

pub(crate) fn delete(it: &Scenario, kind: &str, name: &str) {
    it.kubectl(&["delete", kind, name, "--timeout=300s"]);
}

/// Waits until neither Kubernetes nor the guest's drives have a snapshot.
pub(crate) fn nothing_of_snapshots(node: &GuestNode, cluster: &Cluster) {
    let kinds =
        "volumesnapshots,volumesnapshotcontents,volumegroupsnapshots,volumegroupsnapshotcontents";
    wait::until(LIMIT, "Kubernetes has no snapshots", || {
        let left = cluster.try_kubectl(&["get", kinds, "--all-namespaces", "--output", "name"]);
        left.ok()?.trim().is_empty().then_some(())
    });
    has_no_snapshots(node.guest());
}
