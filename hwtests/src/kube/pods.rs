//! Pods of a scenario: started, asked, ended.

use serde_json::Value;

use super::Scenario;
use crate::Trouble;

impl Scenario {
    /// Applies objects.
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

    /// Writes bytes that nobody can guess into a file (or device) and makes them durable; their digest.
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
        let script = format!("dd if={path} bs=1M count={mib} 2>/dev/null | sha256sum");
        self.sh(pod, &script)
    }

    /// Deletes a pod and waits until it is gone.
    pub fn delete_pod(&self, pod: &str) {
        self.kubectl(&["delete", "pod", pod, "--timeout=120s"]);
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
}
