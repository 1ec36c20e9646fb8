//! Metrics of the agent: its drives, volumes, classes and workers, from the snapshot and from recorded results. A scrape starts no process
//! and accesses no drive.
//!
//! `View` holds all values at one time, and converting it into series is pure. Only values that a drive reported are shown, old ones
//! with their age.

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

/// All values that are shown, at one time.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub snapshot: Arc<Snapshot>,
    /// Results of the last SMART polls.
    pub polls: BTreeMap<DriveId, LatestPoll>,
    /// Latencies of the drives' requests.
    pub speeds: BTreeMap<DriveId, Speed>,
    /// The last sample of each volume, and the time since then.
    pub samples: HashMap<Uuid, (Usage, Duration)>,
    pub moves: Vec<MoveStatus>,
    pub slots: Vec<SlotStatus>,
    /// Unix time of the last complete scan, in seconds.
    pub scanned_at: Option<u64>,
    /// Number of snapshots deleted because they expired, since the agent started.
    pub expired_snapshots: u64,
    /// Errors of the agent's state files.
    pub state_files: Troubles,
    /// Current Unix time, in seconds.
    pub now: u64,
}

impl View {
    /// Adds the series of all values in this view to `into`. Pure.
    pub fn put(&self, into: &mut Families) {
        drives::put(self, into);
        latency::put(self, into);
        volumes::put(self, into);
        moves::put(self, into);
        node::put(self, into);
    }
}

/// Returns every definition of the agent, for documents and tests.
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

/// Metrics source of the agent.
#[derive(Debug)]
pub struct Metrics {
    node: NodeContext,
    volumes: Volumes,
    evidence: CollectedEvidence,
    ready: watch::Receiver<bool>,
    certificate: Certificate,
}

impl Metrics {
    /// Creates the metrics of this node. `ready`: every served interface can respond.
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
            polls: self.evidence.polls().all(),
            speeds: self.evidence.speeds().all(),
            samples: self.volumes.last_samples(),
            moves: self.volumes.list_moves(),
            slots: self.node.pool().status(),
            scanned_at: self.node.inventory().scanned_at(),
            expired_snapshots: self.volumes.expired_snapshots(),
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
