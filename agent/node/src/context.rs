//! State shared by everything that serves, watches or changes a node: its configuration, inventory, workers and mounts.

use std::{sync::Arc, time::Duration};

use crate::{
    inventory::{Inventory, wire::Sender},
    mounts::Mounts,
    state::StateDir,
};
use drivebay_config::Config;
use drivebay_evidence::mounts::Expected;
use drivebay_model::DriveId;
use drivebay_worker::{Job, Pool, RunError, WorkerKey};

/// State of a node. Cheap to clone; all clones share it.
#[derive(Debug, Clone)]
pub struct NodeContext {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    inventory: Arc<Inventory>,
    pool: Pool,
    sender: Sender,
    state_dir: StateDir,
    mounts: Mounts,
    expected: Expected,
}

impl NodeContext {
    pub fn new(config: Config, pool: Pool, inventory: Arc<Inventory>, sender: Sender) -> Self {
        Self {
            inner: Arc::new(Inner {
                state_dir: StateDir::new(&config.state_dir),
                mounts: Mounts::new(inventory.clone()),
                expected: Expected::default(),
                config,
                inventory,
                pool,
                sender,
            }),
        }
    }

    /// Returns the configuration as read at start.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    pub fn inventory(&self) -> &Arc<Inventory> {
        &self.inner.inventory
    }

    /// Returns the worker processes, which run everything that can block on a drive.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Returns the converter of snapshots to messages of the protocol.
    pub fn sender(&self) -> &Sender {
        &self.inner.sender
    }

    pub fn state_dir(&self) -> &StateDir {
        &self.inner.state_dir
    }

    /// Returns the mounts as last read.
    pub fn mounts(&self) -> &Mounts {
        &self.inner.mounts
    }

    /// Returns the mounts that are expected to be present.
    pub fn expected(&self) -> &Expected {
        &self.inner.expected
    }

    /// Runs a job in a worker. If it is stuck, that is recorded for its drive until a scan has an answer from the
    /// drive.
    pub(crate) async fn run<J: Job>(
        &self,
        worker: impl Into<WorkerKey>,
        job: J,
        limit: Duration,
    ) -> Result<J::Answer, RunError<J::Error>> {
        let key = worker.into();
        let done = self.pool().run(key.clone(), job, limit).await;
        if let (Some(drive), Err(error)) = (key.drive(), &done) {
            self.record_stuck(drive, error);
        }
        done
    }

    pub(crate) fn record_stuck<E: std::error::Error>(&self, drive: &DriveId, error: &RunError<E>) {
        if let RunError::Stuck { .. } = error {
            let text = error.trouble();
            self.inventory().update(|state| {
                state.stuck.insert(drive.clone(), text);
            });
        }
    }
}
