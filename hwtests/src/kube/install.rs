//! Installing Drivebay as deploy/docs/install-kubernetes.md says, and asking it.

use std::{fs, time::Duration};

use serde_json::{Value, json};

use super::wait;
use super::{Cluster, LIMIT};
use crate::Trouble;

/// The namespace it is installed in.
pub const NAMESPACE: &str = "drivebay";
/// The CSI driver's name.
pub const DRIVER: &str = "csi.drivebay.io";
/// The StorageClass of the one class of drives.
pub const CLASS: &str = "drivebay-loop";

/// The chart, for helm.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart");

/// The values that helm is given.
#[derive(Debug, Clone)]
pub struct Install {
    /// Merged over the scenarios' own values.
    pub values: Value,
}

impl Default for Install {
    fn default() -> Self {
        Self { values: json!({}) }
    }
}

/// Puts `over` on top of `base`, member by member.
pub fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

impl Install {
    /// With these values besides.
    pub fn with(values: Value) -> Self {
        Self { values }
    }

    fn all(&self, cluster: &Cluster) -> Value {
        let mut values = json!({
            "image": {"repository": "drivebay.test/drivebay"},
            "clusterName": cluster.name(),
            "classes": [{"name": "loop", "layout": "partition", "select": {"path": [cluster.drives_pattern()]}}],
            "agent": {
                "allowLoop": true,
                "machineId": cluster.dir().join("etc/machine-id"),
                "erase": {"maxBytesPerSecond": "unlimited"},
            },
            // Conditions within seconds instead of minutes.
            "healthMonitor": {"interval": "5s"},
            // Two replicas do not fit the time that two cores have; a scenario has two.
            "controller": {"replicas": 1},
            "provisioner": {"extraArgs": ["--capacity-poll-interval=5s"]},
            "page": {"enabled": true},
        });
        merge(&mut values, &self.values);
        values
    }
}

impl Cluster {
    /// helm; what it printed.
    ///
    /// # Panics
    /// It failed.
    pub fn helm(&self, words: &[&str]) -> String {
        self.try_helm(words).unwrap()
    }

    /// helm; what it printed.
    ///
    /// # Errors
    /// helm failed; the error has its output.
    pub fn try_helm(&self, words: &[&str]) -> Result<String, Trouble> {
        let helm = self.helm.to_str().unwrap();
        self.inside(&[&[helm], words].concat())
    }

    /// Writes the values of an installation into a file; its path.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn values(&self, install: &Install) -> String {
        let values = self.dir.join("values.json");
        fs::write(&values, install.all(self).to_string()).unwrap();
        values.to_str().unwrap().to_owned()
    }

    /// `helm upgrade --install` with these values and further options.
    ///
    /// # Errors
    /// helm or the API server refuses; the error has its output.
    pub fn upgrade(&self, install: &Install, options: &[&str]) -> Result<String, Trouble> {
        let values = self.values(install);
        let words = ["upgrade", "--install", "drivebay", CHART];
        let with = ["--namespace", NAMESPACE, "--values", &values];
        self.try_helm(&[&words[..], &with, options].concat())
    }

    /// Makes the namespace that Drivebay is installed in, with the commands of deploy/docs/install-kubernetes.md.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn namespace(&self) {
        if self.get("default", &["namespace", NAMESPACE]).is_null() {
            self.kubectl(&["create", "namespace", NAMESPACE]);
            let label = "pod-security.kubernetes.io/enforce=privileged";
            self.kubectl(&["label", "namespace", NAMESPACE, label]);
        }
    }

    /// Installs Drivebay if it is not installed, and waits until the kubelet has registered it.
    ///
    /// # Panics
    /// It does not come up.
    pub fn install(&self, install: &Install) {
        self.plug_drives();
        self.namespace();
        self.upgrade(install, &[]).unwrap();
        self.drivebay_is_up();
    }

    /// Installs it with the scenarios' usual values, unless it is.
    pub fn installed(&self) {
        let releases = self.helm(&["list", "--namespace", NAMESPACE, "--short"]);
        let usual = self.dir.join("usual-values");
        if releases.trim().is_empty() || !usual.exists() {
            self.install(&Install::default());
            fs::write(usual, "").unwrap();
        }
    }

    /// Uninstalls it, if it is installed: for a scenario with other values.
    pub fn uninstall_if_installed(&self) {
        let releases = self.helm(&["list", "--namespace", NAMESPACE, "--short"]);
        if !releases.trim().is_empty() {
            self.uninstall();
        }
    }

    /// Uninstalls it, and waits until its pods are gone.
    ///
    /// # Panics
    /// helm refuses.
    pub fn uninstall(&self) {
        let _ = fs::remove_file(self.dir.join("usual-values"));
        self.helm(&["uninstall", "drivebay", "--namespace", NAMESPACE, "--wait"]);
        wait::until(LIMIT, "Drivebay's pods are gone", || {
            self.list(NAMESPACE, &["pods"]).is_empty().then_some(())
        });
    }

    /// Waits until agent and controller are ready, and the kubelet has registered the driver.
    ///
    /// # Panics
    /// Not within minutes: with what the pods say.
    pub fn drivebay_is_up(&self) {
        let rolled = |what: &str| {
            let words = [
                "--namespace",
                NAMESPACE,
                "rollout",
                "status",
                what,
                "--timeout=300s",
            ];
            if let Err(trouble) = self.try_kubectl(&words) {
                let pods = self.try_kubectl(&["--namespace", NAMESPACE, "describe", "pods"]);
                panic!("{trouble}\n{}", pods.unwrap_or_default());
            }
        };
        rolled(&format!("daemonset/{}-agent", self.prefix));
        rolled(&format!("deployment/{}-controller", self.prefix));
        self.is_registered();
    }

    /// Waits until the kubelet has registered the driver on its node.
    ///
    /// # Panics
    /// It does not: with what the kubelet logged of it.
    pub fn is_registered(&self) {
        let registered = wait::poll(Duration::from_secs(60), || {
            let node = self.get("default", &["csinode", "node-1"]);
            let drivers = node["spec"]["drivers"].as_array()?.clone();
            drivers.into_iter().find(|driver| driver["name"] == DRIVER)
        });
        if registered.is_none() {
            let log = self.log("kubelet");
            let lines: Vec<&str> = log.lines().filter(|line| line.contains(DRIVER)).collect();
            let last = &lines[lines.len().saturating_sub(10)..];
            panic!(
                "the kubelet has not registered {DRIVER}:\n{}",
                last.join("\n")
            );
        }
    }

    /// `drivebay-controller ... -o json`, asked in a controller's pod.
    ///
    /// # Panics
    /// It fails for a while.
    pub fn query_controller(&self, words: &[&str]) -> Value {
        let controller = format!("deploy/{}-controller", self.prefix);
        let exec = ["--namespace", NAMESPACE, "exec", &controller, "--"];
        let command = [&exec[..], &["drivebay-controller"], words, &["-o", "json"]].concat();
        wait::until(LIMIT, "the controller answers", || {
            serde_json::from_str(&self.try_kubectl(&command).ok()?).ok()
        })
    }

    /// Total free bytes of the claimed and available drives that the controller reports. Drives of other tests may be among them.
    pub fn free(&self) -> u64 {
        let drives = self.query_controller(&["drives"]);
        drives
            .as_array()
            .or_else(|| drives["drives"].as_array())
            .into_iter()
            .flatten()
            .filter(|drive| drive["state"] == "claimed" || drive["state"] == "available")
            .map(|drive| drive["free_bytes"].as_u64().unwrap_or_default())
            .sum()
    }

    /// Waits until exactly `bytes` are free.
    ///
    /// # Panics
    /// If that takes too long, with the number of free bytes.
    pub fn until_free(&self, bytes: u64) {
        let reached = wait::poll(LIMIT, || (self.free() == bytes).then_some(()));
        assert!(
            reached.is_some(),
            "{} bytes are free, and {bytes} were before",
            self.free()
        );
    }

    /// Volumes that no PersistentVolume names, as `drivebay-controller volumes --unclaimed` lists them.
    fn unclaimed(&self) -> Result<Vec<Value>, Trouble> {
        let volumes = self.get("default", &["pv"]);
        let controller = format!("deploy/{}-controller", self.prefix);
        let namespace = ["--namespace", NAMESPACE];
        let exec = ["exec", "--stdin", &controller, "--"];
        let mut words = vec!["drivebay-controller", "volumes", "-o", "json"];
        // It refuses a list without a volume of Drivebay, which is most often the wrong list.
        if volumes.to_string().contains(DRIVER) {
            words.extend(["--unclaimed", "-"]);
        }
        let command = [&["kubectl"], &namespace[..], &exec, &words].concat();
        let output = self.inside_with(&command, volumes.to_string().as_bytes())?;
        let mut listed: Value = serde_json::from_str(&output)
            .map_err(|error| Trouble::doing(format!("reading {output}"), &error))?;
        match listed["volumes"].take() {
            Value::Array(volumes) => Ok(volumes),
            _ => Err(Trouble::new(format!("no list of volumes: {output}"))),
        }
    }

    /// Waits until there is no volume that no PersistentVolume names.
    ///
    /// # Panics
    /// There is one: with all of them.
    pub fn nothing_is_unclaimed(&self) {
        let none = || {
            self.unclaimed()
                .is_ok_and(|left| left.is_empty())
                .then_some(())
        };
        let reached = wait::poll(LIMIT, none);
        assert!(reached.is_some(), "left over: {:?}", self.unclaimed());
    }
}
