//! A running cluster, as started by hwtests/kubernetes. Everything is done and observed through kubectl, helm and the node's own programs,
//! as by a user.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use crate::{Trouble, tools};

mod api_server;
mod drives;
mod guest;
mod install;
pub mod manifest;
mod pods;
mod processes;
pub mod suite;
pub mod wait;

pub use api_server::ApiServer;
pub use guest::{GUEST_CLASS, GuestNode, GuestScenario};
pub use install::{CHART, CLASS, DRIVER, Install, NAMESPACE, merge};

/// Skips a scenario that takes minutes, with a message, unless `hwtests/kubernetes --long` runs.
#[macro_export]
macro_rules! long_scenario {
    ($cluster:expr) => {
        $crate::left_out!(
            !$cluster.long(),
            "takes minutes; hwtests/kubernetes --long runs it"
        );
    };
}

/// Limit for starting a pod, creating a volume or writing an event. Generous, since two cores run a whole cluster, and one of its nodes may
/// be emulated.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Handle of the cluster that hwtests/kubernetes started, and of an installation of Drivebay in it (`named`). Drop does not stop the
/// cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    dir: PathBuf,
    helm: PathBuf,
    version: String,
    long: bool,
    /// Prefix of the names of the installation's objects.
    prefix: String,
}

impl Cluster {
    /// Returns the cluster that hwtests/kubernetes started.
    ///
    /// # Panics
    /// There is none.
    pub fn running() -> Self {
        let variable = |name: &str| {
            env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run hwtests/kubernetes"))
        };
        Self {
            dir: variable("DRIVEBAY_CLUSTER").into(),
            helm: variable("DRIVEBAY_HELM").into(),
            version: variable("DRIVEBAY_CLUSTER_VERSION"),
            long: !variable("DRIVEBAY_CLUSTER_LONG").is_empty(),
            prefix: "drivebay".to_owned(),
        }
    }

    /// Selects an installation with this `nameOverride`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        let prefix = name.to_owned();
        Self { prefix, ..self }
    }

    /// Returns its directory: logs, certificates, files of drives.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns its Drivebay cluster name. Agents use every drive labelled with it, so two clusters on one machine need different ones.
    pub fn name(&self) -> String {
        let dir = self.dir.file_name().unwrap_or_default();
        format!("kubernetes-test-{}", dir.to_string_lossy())
    }

    /// True if scenarios that take minutes are run too.
    pub fn long(&self) -> bool {
        self.long
    }

    /// Returns Kubernetes' version, e.g. (1, 37).
    pub fn version(&self) -> (u32, u32) {
        let mut parts = self.version.trim_start_matches('v').split('.');
        let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap();
        (next(), next())
    }

    /// Runs a program in the cluster's namespaces; returns its output.
    ///
    /// # Errors
    /// It exited with a status other than 0; the error has its output.
    pub fn inside(&self, words: &[&str]) -> Result<String, Trouble> {
        self.inside_with(words, b"")
    }

    /// Like `inside`, with standard input.
    ///
    /// # Errors
    /// It ended with another code than 0.
    pub fn inside_with(&self, words: &[&str], input: &[u8]) -> Result<String, Trouble> {
        let mut child = Command::new(self.dir.join("inside"))
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // Small enough for a pipe's buffer, or read at once by the program.
        child.stdin.take().unwrap().write_all(input)?;
        let output = child.wait_with_output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(Trouble::new(format!(
            "{}: {}: {}{}",
            words.join(" "),
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        )))
    }

    /// Runs kubectl; returns its output.
    ///
    /// # Errors
    /// It failed; the error has its output.
    pub fn try_kubectl(&self, words: &[&str]) -> Result<String, Trouble> {
        self.inside(&[&["kubectl"], words].concat())
    }

    /// Runs kubectl; returns its output.
    ///
    /// # Panics
    /// It failed.
    pub fn kubectl(&self, words: &[&str]) -> String {
        self.try_kubectl(words).unwrap()
    }

    /// Runs `kubectl apply` for these objects.
    ///
    /// # Panics
    /// They are refused.
    pub fn apply(&self, namespace: &str, objects: &[Value]) {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let words = ["kubectl", "--namespace", namespace, "apply", "-f", "-"];
        self.inside_with(&words, list.to_string().as_bytes())
            .unwrap();
    }

    /// Returns one object, or a list of them: `get(&["pvc", "data"])`; Null if there is none.
    ///
    /// # Panics
    /// kubectl fails for minutes: a failed call does not mean that the object does not exist.
    pub fn get(&self, namespace: &str, words: &[&str]) -> Value {
        let before = ["--namespace", namespace, "get", "--ignore-not-found"];
        let words = [&before, words, &["--output", "json"]].concat();
        let text = wait::until(LIMIT, "kubectl get answers", || {
            self.try_kubectl(&words).ok()
        });
        match text.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        }
    }

    /// Returns the items of a list.
    pub fn list(&self, namespace: &str, words: &[&str]) -> Vec<Value> {
        match self.get(namespace, words)["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    /// Waits until an object has a value at a JSON pointer, e.g. ("/status/phase", "Bound").
    ///
    /// # Panics
    /// Not within [`LIMIT`]; the message has the actual value and the object's events.
    pub fn until(&self, namespace: &str, words: &[&str], pointer: &str, expected: &str) {
        let reached = wait::poll(LIMIT, || {
            let now = self.get(namespace, words);
            let text = match now.pointer(pointer)? {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            (text == expected).then_some(())
        });
        if reached.is_none() {
            let now = self.get(namespace, words);
            panic!(
                "{} has no {pointer} {expected} within {LIMIT:?}: {}\n{}",
                words.join("/"),
                now["status"],
                self.events(namespace).join("\n")
            );
        }
    }

    /// Returns all events of a namespace, as "Kind/name reason: message".
    pub fn events(&self, namespace: &str) -> Vec<String> {
        let of = |event: &Value| {
            let object = &event["involvedObject"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            format!(
                "{}/{} {}: {}",
                text(&object["kind"]),
                text(&object["name"]),
                text(&event["reason"]),
                text(&event["message"])
            )
        };
        self.list(namespace, &["events"]).iter().map(of).collect()
    }

    /// Waits for an event with all these words, and returns it.
    ///
    /// # Panics
    /// There is none within [`LIMIT`]; the message has all events.
    pub fn event(&self, namespace: &str, words: &[&str]) -> String {
        let has = |event: &String| words.iter().all(|word| event.contains(word));
        wait::poll(LIMIT, || self.events(namespace).into_iter().find(has)).unwrap_or_else(|| {
            panic!(
                "no event with {words:?} in {namespace}:\n{}",
                self.events(namespace).join("\n")
            )
        })
    }

    /// Starts ("start"), stops ("stop") or kills ("kill") a program of the node, e.g. "kubelet".
    ///
    /// # Panics
    /// There is none of this name.
    pub fn service(&self, action: &str, name: &str) {
        tools::run(self.dir.join("services").to_str().unwrap(), &[action, name]).unwrap();
    }

    /// Kills and restarts the kubelet, and waits until it has registered the driver again.
    ///
    /// # Panics
    /// It does not.
    pub fn restart_kubelet(&self) {
        let registered = || {
            let log = self.log("kubelet");
            let of = |line: &&str| line.contains("Register new plugin") && line.contains(DRIVER);
            log.lines().filter(of).count()
        };
        let before = registered();
        self.service("kill", "kubelet");
        self.service("start", "kubelet");
        wait::until(LIMIT, "the kubelet registers the driver again", || {
            (registered() > before).then_some(())
        });
    }

    /// Returns the conditions of the driver's storage that the kubelet wrote into its node's CSINode, since Kubernetes 1.37.
    pub fn storage_health(&self, node: &str) -> Vec<Value> {
        let node = self.get("default", &["csinode", node]);
        let drivers = node["status"]["storageHealth"].as_array();
        let ours = drivers.into_iter().flatten();
        let ours = ours.filter(|it| it["name"] == DRIVER);
        let conditions = ours.filter_map(|it| it["healthConditions"].as_array().cloned());
        conditions.flatten().collect()
    }

    /// Returns the size of the largest volume that the published capacities of the default class allow, bytes; None without capacities.
    pub fn largest_volume(&self) -> Option<u64> {
        let of = |capacity: &Value| {
            let size = capacity["maximumVolumeSize"].as_str()?;
            (capacity["storageClassName"] == CLASS).then(|| bytes(size))
        };
        let published = self.list(NAMESPACE, &["csistoragecapacities"]);
        published.iter().filter_map(of).max()
    }

    /// Returns the log of a program of the node.
    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(format!("log/{name}.log"))).unwrap_or_default()
    }

    /// Creates a Kubernetes namespace for a scenario.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn scenario(&self, name: &str) -> Scenario {
        self.kubectl(&["create", "namespace", name]);
        Scenario {
            cluster: self.clone(),
            name: name.to_owned(),
            free: self.free(),
            ended: false,
        }
    }
}

/// Parses a Kubernetes quantity as bytes.
fn bytes(quantity: &str) -> u64 {
    let digits = quantity.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().unwrap();
    match &quantity[digits.len()..] {
        "" => number,
        "Ki" => number << 10,
        "Mi" => number << 20,
        "Gi" => number << 30,
        unit => panic!("{quantity}: no unit {unit}"),
    }
}

/// A scenario: a Kubernetes namespace, and the free space before it. Dropped without an `end`, it fails, and takes its objects with it, so
/// that the next scenario does not find them.
#[derive(Debug)]
pub struct Scenario {
    /// Cluster that has the namespace.
    pub cluster: Cluster,
    /// Name of the namespace, which `Cluster::scenario` created and `end` deletes.
    pub name: String,
    free: u64,
    ended: bool,
}

impl Drop for Scenario {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let of_namespace = ["--namespace", &self.name];
        let describe = ["describe", "statefulset,pod,pvc"];
        let description = self
            .cluster
            .try_kubectl(&[&of_namespace[..], &describe].concat());
        let file = format!("log/{}.describe.txt", self.name);
        let _ = fs::write(
            self.cluster.dir().join(file),
            description.unwrap_or_default(),
        );
        let delete = [
            "delete",
            "statefulset,deployment,pod,pvc",
            "--all",
            "--timeout=60s",
        ];
        let _ = self
            .cluster
            .try_kubectl(&[&of_namespace[..], &delete].concat());
        let _ = self
            .cluster
            .try_kubectl(&["delete", "namespace", &self.name, "--timeout=60s"]);
        assert!(
            std::thread::panicking(),
            "scenario {} was not ended",
            self.name
        );
    }
}

impl Scenario {
    /// Deletes all of its objects, and waits until Drivebay has all the space back and there are no volumes without a claim.
    ///
    /// # Panics
    /// Something is left behind.
    pub fn end(mut self) {
        let (cluster, name) = (&self.cluster, self.name.as_str());
        cluster.kubectl(&[
            "--namespace",
            name,
            "delete",
            "statefulset,deployment,pod,pvc",
            "--all",
            "--timeout=300s",
        ]);
        cluster.kubectl(&["delete", "namespace", name, "--timeout=300s"]);
        wait::until(LIMIT, "no PersistentVolume of Drivebay is left", || {
            let of = |volume: &Value| volume["spec"]["claimRef"]["namespace"] == name;
            let volumes = cluster.list("default", &["pv"]);
            (!volumes.iter().any(of)).then_some(())
        });
        cluster.nothing_is_unclaimed();
        cluster.until_free(self.free);
        self.ended = true;
    }
}
