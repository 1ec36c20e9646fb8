//! What the agent tells Prometheus: its drives, volumes, classes and workers, from the snapshot and from what was
//! noted when they were looked at last. A scrape looks at nothing itself: it runs nothing and asks no drive.
//!
//! `View` is everything at one moment, and turning it into series is pure. Only values that a drive reported are shown; what is
//! old has its age beside it.

mod drives;
mod latency;
mod moves;
mod node;
mod volumes;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use drivebay_common::metrics::{Certificate, Def, Exposed, Families, build};
use tokio::sync::watch;
use uuid::Uuid;

use drivebay_fs::jobs::Usage;
use drivebay_health::CollectedEvidence;
use drivebay_model::{DriveId, Snapshot};
use drivebay_node::{
    context::NodeContext,
    state::dir::Troubles,
    volumes::{Volumes, moves::MoveStatus},
};
use drivebay_smart::{LatestPoll, slow::Speed};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::SlotStatus;

/// Everything that is shown, at one moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Drives, volumes, classes.
    pub snapshot: Arc<Snapshot>,
    /// What drives said of themselves.
    pub told: BTreeMap<DriveId, LatestPoll>,
    /// How long drives' requests take.
    pub speeds: BTreeMap<DriveId, Speed>,
    /// The last sample of each volume, and its age.
    pub samples: HashMap<Uuid, (Usage, Duration)>,
    /// Moves of volumes to other drives.
    pub moves: Vec<MoveStatus>,
    /// The workers' slots.
    pub slots: Vec<SlotStatus>,
    /// When the last scan was completed, unix seconds.
    pub scanned_at: Option<u64>,
    /// What is wrong with the agent's state files.
    pub state_files: Troubles,
    /// Now, unix seconds.
    pub now: u64,
}

impl View {
    /// Puts every series in.
    pub fn put(&self, into: &mut Families) {
        drives::put(self, into);
        latency::put(self, into);
        volumes::put(self, into);
        moves::put(self, into);
        node::put(self, into);
    }
}

/// Every definition of the agent's own, for documents and tests.
pub fn definitions() -> Vec<Def> {
    let tables = [
        drives::DEFINITIONS,
        latency::DEFINITIONS,
        volumes::DEFINITIONS,
        moves::DEFINITIONS,
        node::DEFINITIONS,
    ];
    tables.concat()
}

/// The agent, for a scrape.
#[derive(Debug)]
pub struct Metrics {
    node: NodeContext,
    volumes: Volumes,
    evidence: CollectedEvidence,
    ready: watch::Receiver<bool>,
    certificate: Certificate,
}

impl Metrics {
    /// Of this node. `ready`: all that is served can answer.
    pub fn new(
        volumes: Volumes,
        evidence: CollectedEvidence,
        ready: watch::Receiver<bool>,
        certificate: Certificate,
    ) -> Self {
        Self {
            node: volumes.node().clone(),
            volumes,
            evidence,
            ready,
            certificate,
        }
    }
}

impl Exposed for Metrics {
    fn collect(&self, into: &mut Families) {
        build(into, "agent", env!("CARGO_PKG_VERSION"));
        let view = View {
            snapshot: self.node.inventory().current(),
            told: self.evidence.polls().all(),
            speeds: self.evidence.speeds().all(),
            samples: self.volumes.last_samples(),
            moves: self.volumes.list_moves(),
            slots: self.node.pool().status(),
            scanned_at: self.node.inventory().scanned_at(),
            state_files: self.node.state_dir().troubles(),
            now: unix_seconds(),
        };
        view.put(into);
        self.certificate.put(into);
    }

    fn ready(&self) -> bool {
        *self.ready.borrow()
    }
}

#[cfg(test)]
mod tests;
