//! Pods of a scenario: started, asked, ended.

use serde_json::Value;

use super::wait;
use super::{LIMIT, Scenario};
use crate::Trouble;

impl Scenario {
    /// Runs `kubectl apply` for these objects in the scenario's namespace.
    ///
    /// # Panics
    /// They are refused.
    pub fn apply(&self, objects: &[Value]) {
        self.cluster.apply(&self.name, objects);
    }

    /// kubectl in this namespace.
    ///
    /// # Errors
    /// It failed.
    pub fn try_kubectl(&self, words: &[&str]) -> Result<String, Trouble> {
        self.cluster
            .try_kubectl(&[&["--namespace", &self.name], words].concat())
    }

    /// kubectl in this namespace.
    ///
    /// # Panics
    /// It failed.
    pub fn kubectl(&self, words: &[&str]) -> String {
        self.try_kubectl(words).unwrap()
    }

    /// One object of this namespace; Null when there is none.
    pub fn get(&self, words: &[&str]) -> Value {
        self.cluster.get(&self.name, words)
    }

    /// Waits until an object has a value at a JSON pointer.
    pub fn until(&self, words: &[&str], pointer: &str, expected: &str) {
        self.cluster.until(&self.name, words, pointer, expected);
    }

    /// Waits for an event with all these words.
    pub fn event(&self, words: &[&str]) -> String {
        self.cluster.event(&self.name, words)
    }

    /// Waits until a pod runs.
    pub fn runs(&self, pod: &str) {
        self.until(&["pod", pod], "/status/phase", "Running");
        self.until(&["pod", pod], "/status/containerStatuses/0/ready", "true");
    }

    /// Runs a script in a pod's container.
    ///
    /// # Errors
    /// It failed.
    pub fn try_sh(&self, pod: &str, script: &str) -> Result<String, Trouble> {
        self.try_kubectl(&["exec", pod, "--", "/bin/sh", "-ec", script])
    }

    /// Runs a script in a pod's container; what it printed.
    ///
    /// # Panics
    /// It failed.
    pub fn sh(&self, pod: &str, script: &str) -> String {
        self.try_sh(pod, script).unwrap().trim().to_owned()
    }

    /// Writes random bytes into a file (or device) and syncs them; returns their digest.
    pub fn write(&self, pod: &str, path: &str, mib: u64) -> String {
        let script = format!(
            "dd if=/dev/urandom of=/tmp/letter bs=1M count={mib} 2>/dev/null
             dd if=/tmp/letter of={path} bs=1M conv=fsync,notrunc 2>/dev/null
             sha256sum </tmp/letter; rm /tmp/letter"
        );
        self.sh(pod, &script)
    }

    /// The digest of a file's (or device's) first MiBs.
    pub fn digest(&self, pod: &str, path: &str, mib: u64) -> String {
        let script =
            format!("set -o pipefail; dd if={path} bs=1M count={mib} 2>/dev/null | sha256sum");
        self.sh(pod, &script)
    }

    /// Deletes a pod and waits until it is gone.
    pub fn delete_pod(&self, pod: &str) {
        self.kubectl(&["delete", "pod", pod, "--timeout=300s"]);
    }

    /// Bytes of a claim's volume, as its status says.
    pub fn capacity(&self, claim: &str) -> String {
        let claim = self.get(&["pvc", claim]);
        claim["status"]["capacity"]["storage"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Asks for another size.
    pub fn resize(&self, claim: &str, mib: u64) {
        let patch = format!(r#"{{"spec":{{"resources":{{"requests":{{"storage":"{mib}Mi"}}}}}}}}"#);
        self.kubectl(&["patch", "pvc", claim, "--patch", &patch]);
    }

    /// Which pod has this name now.
    pub fn uid(&self, pod: &str) -> String {
        self.get(&["pod", pod])["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Number of restarts of a pod's first container.
    pub fn restarts(&self, pod: &str) -> u64 {
        self.get(&["pod", pod])["status"]["containerStatuses"][0]["restartCount"]
            .as_u64()
            .unwrap()
    }

    /// Kills the kubelet and starts it, and waits until it knows this pod again.
    ///
    /// # Panics
    /// It does not.
    pub fn restart_kubelet(&self, pod: &str) {
        self.cluster.restart_kubelet();
        let what = format!("the kubelet runs a program in {pod}");
        wait::until(LIMIT, &what, || self.try_sh(pod, "true").ok());
    }

    /// Ends a pod's container, and waits until it was started again.
    ///
    /// # Panics
    /// It was not.
    pub fn restart_container(&self, pod: &str) {
        let before = self.restarts(pod);
        // Its connection may end before its answer.
        let _ = self.try_sh(pod, "kill 1");
        let pointer = "/status/containerStatuses/0/restartCount";
        self.until(&["pod", pod], pointer, &(before + 1).to_string());
        self.runs(pod);
    }

    /// Waits until there are no pods.
    ///
    /// # Panics
    /// They stay.
    pub fn has_no_pods(&self) {
        self.has_no("pods");
    }

    /// Waits until there are no claims.
    ///
    /// # Panics
    /// They stay.
    pub fn has_no_claims(&self) {
        self.has_no("pvc");
    }

    fn has_no(&self, kind: &str) {
        let what = format!("{} has no {kind}", self.name);
        wait::until(LIMIT, &what, || {
            let list = self.try_kubectl(&["get", kind, "--output", "name"]);
            list.is_ok_and(|list| list.trim().is_empty()).then_some(())
        });
    }

    /// Returns the conditions of a pod's volumes in its status, which Kubernetes has since 1.37.
    pub fn volume_health(&self, pod: &str) -> Vec<Value> {
        let pod = self.get(&["pod", pod]);
        let volumes = pod["status"]["volumeHealth"].as_array();
        let volumes = volumes.into_iter().flatten();
        let conditions = volumes.filter_map(|it| it["healthConditions"].as_array().cloned());
        conditions.flatten().collect()
    }

    /// The same in words; before 1.37 the kubelet's event. None: all is well.
    pub fn health_message(&self, pod: &str) -> Option<String> {
        if self.cluster.version() >= (1, 37) {
            let conditions = self.volume_health(pod);
            return (!conditions.is_empty()).then(|| Value::from(conditions).to_string());
        }
        let of = format!("Pod/{pod} VolumeConditionAbnormal");
        let events = self.cluster.events(&self.name);
        events.into_iter().find(|event| event.starts_with(&of))
    }

    /// Looks for events that say that a call of the driver failed.
    ///
    /// # Panics
    /// There are such.
    pub fn had_no_failed_call(&self) {
        let mut events = self.cluster.events(&self.name);
        events.retain(|event| event.contains("rpc error"));
        assert!(events.is_empty(), "{}", events.join("\n"));
    }
}
