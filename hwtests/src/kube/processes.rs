//! Processes in the cluster's namespaces: those of pods, and those that a scenario starts beside the kubelet.

use std::time::Duration;

use super::Cluster;
use super::wait;

const LIMIT: Duration = Duration::from_secs(30);
/// The kubelet waits before it restarts a container that has ended.
const RESTART: Duration = Duration::from_secs(120);

impl Cluster {
    /// Returns the ids of the processes whose command line matches a regular expression, as found by pgrep.
    pub fn processes(&self, pattern: &str) -> Vec<String> {
        let pids = self.inside(&["pgrep", "--full", pattern]);
        // pgrep fails if there is none.
        let pids = pids.unwrap_or_default();
        pids.split_whitespace().map(str::to_owned).collect()
    }

    /// Waits until there are processes whose command line matches; one that was killed is restarted after a while.
    ///
    /// # Panics
    /// There is none in time.
    pub fn until_running(&self, pattern: &str) -> Vec<String> {
        wait::until(RESTART, &format!("a process is {pattern}"), || {
            Some(self.processes(pattern)).filter(|pids| !pids.is_empty())
        })
    }

    /// Sends a signal to the processes whose command line matches, and waits until they have ended.
    ///
    /// # Panics
    /// There is none in time, or one stays.
    pub fn signal(&self, signal: &str, pattern: &str) {
        let processes = self.until_running(pattern);
        for process in &processes {
            // Fails for one that has ended meanwhile.
            let _ = self.inside(&["kill", signal, process]);
        }
        wait::until(LIMIT, &format!("{pattern} has ended"), || {
            let left = self.processes(pattern);
            (!left.iter().any(|it| processes.contains(it))).then_some(())
        });
    }

    /// Starts a program in the node's namespaces, like a service manager; it logs to log/NAME.log.
    ///
    /// # Panics
    /// The shell that starts it fails.
    pub fn start(&self, name: &str, environment: &[&str], command: &[&str]) {
        let log = self.dir.join(format!("log/{name}.log"));
        let script = r#"log=$1; shift; setsid env "$@" >>"$log" 2>&1 </dev/null &"#;
        let words = ["sh", "-c", script, "start", log.to_str().unwrap()];
        self.inside(&[&words, environment, command].concat())
            .unwrap();
    }
}
