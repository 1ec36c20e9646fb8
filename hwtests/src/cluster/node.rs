//! A simulated node of a cluster, on its own host.

use std::{fs, path::PathBuf, time::Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::LIMIT;
use crate::{
    fleet::{Command, Fleet, command::Nodes},
    netns::Host,
    wait,
};

/// A host with one simulated node.
#[derive(Debug)]
pub struct SimHost {
    /// Process of the node.
    pub fleet: Fleet,
    /// Host that it runs on.
    pub host: Host,
    /// Node id: the name given to `Cluster::node`, with a 0 appended.
    pub id: String,
    pub(super) log: PathBuf,
}

impl SimHost {
    /// Sends the node a command: `a.send(Command::HoldCreate)`.
    ///
    /// # Panics
    /// When it cannot.
    pub async fn send(&mut self, command: impl FnOnce(Nodes) -> Command) {
        let itself = self.itself();
        self.fleet.request(&command(itself)).await.unwrap();
    }

    fn itself(&self) -> Nodes {
        Nodes::Range(self.id.clone(), self.id.clone())
    }

    /// Returns the ids of the volumes on its drives, sorted.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn ids(&mut self) -> Vec<String> {
        let itself = self.itself();
        let ids = self.fleet.ids(itself).await.unwrap();
        ids.into_iter().collect()
    }

    /// Returns the CSI names of the volumes on its drives.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn names(&mut self) -> Vec<String> {
        let id = self.id.clone();
        self.fleet.names(&id).await.unwrap()
    }

    /// Waits until a volume of this name is on its drives.
    ///
    /// # Panics
    /// When there is none in time.
    pub async fn has(&mut self, name: &str) {
        let began = Instant::now();
        while !self.names().await.iter().any(|there| there == name) {
            assert!(began.elapsed() < LIMIT, "{} makes no {name}", self.id);
            tokio::time::sleep(wait::STEP).await;
        }
    }

    /// Waits until it reports this many sessions with controllers.
    ///
    /// # Panics
    /// When it has not in time.
    pub async fn has_sessions(&mut self, count: usize) {
        let began = Instant::now();
        loop {
            let (_, now) = self.fleet.connected().await.unwrap();
            if now == count {
                return;
            }
            let id = &self.id;
            assert!(
                began.elapsed() < LIMIT,
                "{id} has {now} sessions, not {count}"
            );
            tokio::time::sleep(wait::STEP).await;
        }
    }

    /// Suspends its process (SIGSTOP): its host's TCP still acknowledges data, and nothing else happens.
    ///
    /// # Panics
    /// When it does not run.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Resumes its process after `freeze`.
    ///
    /// # Panics
    /// When it does not run.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.fleet.pid().expect("the node runs");
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Waits until its log has a line with all these words; returns the line.
    ///
    /// # Panics
    /// When it has none in time.
    pub async fn wait_for_log_line(&self, words: &[&str]) -> String {
        let what = format!("{} says {words:?}", self.id);
        wait::until_async(LIMIT, &what, async || {
            wait::line(&fs::read_to_string(&self.log).ok()?, words)
        })
        .await
    }
}

impl Drop for SimHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("--- {} at {}\n{log}---", self.id, self.host.address());
        }
    }
}
