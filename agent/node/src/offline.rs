//! Operations on drives and volumes by a command, where no agent runs: under the agent's lock, so that none starts
//! meanwhile, with workers and one scan of all drives. Nothing is served, repaired or claimed.

use std::{io, sync::Arc, time::Duration};

use drivebay_proto::agent::InventoryUpdate;

use crate::{
    context::NodeContext,
    inventory::{Inventory, wire::Sender},
    keeper::Keeper,
    lock::{self, AgentLock, LockError},
    mounts::MountTableError,
    preparation::{prepare_lvm, refuse_newer_state, workers},
    scan_loop,
    state::{self, StateDir, Store, newer::NewerState},
    volumes::Volumes,
};
use drivebay_config::Config;
use drivebay_discovery::claim::Rules;
use drivebay_worker::Pool;

/// Longest time for the workers to end.
const WORKERS: Duration = Duration::from_secs(1);

/// Starting without an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Newer(#[from] NewerState),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// Without the persisted state of drives it is unknown what is on them.
    #[error("cannot use persisted state: {0}")]
    State(String),
    #[error("the drive scan failed: {0}")]
    Scan(String),
    #[error(transparent)]
    Mounts(#[from] MountTableError),
}

/// A node's drives, without an agent.
#[derive(Debug)]
pub struct Offline {
    volumes: Volumes,
    pool: Pool,
    _lock: AgentLock,
}

impl Offline {
    /// Takes the lock, starts the workers and scans every drive.
    pub async fn begin(config: Config) -> Result<Self, OfflineError> {
        let io = |what| move |source| OfflineError::Io { what, source };
        let lock = lock::acquire(&config.runtime_dir)?;
        refuse_newer_state(&config)
            .await
            .map_err(io("read the versions of the state files"))??;
        let lvm_unavailable = prepare_lvm(&config).await;
        let pool = workers(&config).await.map_err(io("start the workers"))?;
        let state_dir = StateDir::new(&config.state_dir);
        let loaded = Store::new(&state_dir).load().await;
        let troubles = state::dir::findings(&state_dir.troubles());
        if !troubles.is_empty() {
            let texts: Vec<String> = troubles.into_iter().map(|one| one.message).collect();
            return Err(OfflineError::State(texts.join("; ")));
        }
        let inventory = Arc::new(Inventory::new(config.classes.clone(), config.quarantine));
        inventory.update(|inventory_state| {
            inventory_state.recall(loaded.known);
            inventory_state.tombstones = loaded.tombstones;
            inventory_state.lvm_unavailable = lvm_unavailable;
        });
        let sender = Sender {
            node: config.node_id.clone(),
            instance: uuid::Uuid::new_v4().to_string(),
            classes: config.classes.clone(),
        };
        let rules = Rules {
            cluster: config.cluster.clone(),
            node: config.node_id.clone(),
            allow_loop: config.allow_loop,
            classes: config.classes.clone(),
        };
        // Nothing writes state here: requests to the keeper fail.
        let (keeper, _) = Keeper::new();
        let node = NodeContext::new(config, pool.clone(), inventory, sender);
        node.mounts().refresh()?;
        let scanned = scan_loop::scan_once(node.clone(), rules).await;
        scanned.map_err(OfflineError::Scan)?;
        Ok(Self {
            volumes: Volumes::new(node, keeper),
            pool,
            _lock: lock,
        })
    }

    /// Returns the operations on volumes and drives.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Returns the inventory as an agent would report it.
    pub fn inventory(&self) -> InventoryUpdate {
        let snapshot = self.volumes.node().inventory().current();
        self.volumes.node().sender().full(&snapshot)
    }

    /// Ends the workers, and releases the lock.
    pub async fn end(self) {
        self.pool.shutdown(WORKERS).await;
    }
}
