//! Last known state of each node, one file per node, so that a node that is disconnected when a controller starts is still listed as
//! disconnected. Deleting the files loses no data: they only prevent that an unknown volume is taken for one that does not exist.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use drivebay_common::{tls::KeyFingerprint, units::human_size};
use drivebay_proto::{
    controller::{LastKnown, Proof, proof::Of},
    volume_id::is_node_id,
};
use prost::Message;
use tokio_util::sync::CancellationToken;

use crate::files::{self, Durability};
use drivebay_service::{
    agents::{Agent, Agents, Facts, Identity},
    bounds::{MAX_FILE_MEMORY, MAX_NODE_BYTES, decoded_file_bytes},
    catalog::Catalog,
    state_troubles::{StateKind, Trouble},
};

/// Version of the files' format. Loading fails on a newer one, which would be overwritten.
const FORMAT: u32 = 1;
const SUFFIX: &str = ".known";
/// Largest file that is read whole, bytes.
const MAX_FILE_BYTES: u64 = MAX_NODE_BYTES as u64;
/// Bytes read of a larger file, to find its format.
const FORMAT_BYTES: u64 = 16;
/// Length of the format field at the start of a file, bytes: a tag, and a number below 128.
const FORMAT_FIELD: usize = 2;
/// Interval of the search for changed nodes.
const TICK: Duration = Duration::from_secs(30);
/// Shortest interval between two writes of a connected node: newer changes are read from its agent after a restart.
const WRITE_EVERY: Duration = Duration::from_secs(300);
/// Timeout of writing one batch of files.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Files in one batch. Small enough for [`WRITE_DEADLINE`], whatever number of volumes their nodes have.
const BATCH: usize = 16;
/// Nodes written per tick at least, in a cluster of any size.
const FEW: usize = 64;

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use the state directory {path}; see --state-dir")]
    Dir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A newer controller wrote the file. It was not changed.
    #[error(
        "{path} has format {format}, and this controller reads format {FORMAT}: a newer controller wrote it. Nothing was changed. Run that controller again; or move the file away, so that its node is known again when its agent connects"
    )]
    Newer {
        path: PathBuf,
        /// Format of the file.
        format: u32,
    },
}

/// The first field, common to the files of every format.
#[derive(Clone, PartialEq, Message)]
struct Format {
    #[prost(uint32, tag = "1")]
    format: u32,
}

/// Directory of the nodes' files.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens `nodes` in this state directory, and creates both if missing. Blocks.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let dir = dir.join("nodes");
        fs::create_dir_all(&dir).map_err(|source| StoreError::Dir {
            path: dir.clone(),
            source,
        })?;
        Ok(Self { dir })
    }

    fn path(&self, node: &str) -> PathBuf {
        // A node id is 1 to 63 characters in label syntax, so it is a file name.
        self.dir.join(format!("{node}{SUFFIX}"))
    }

    /// Recalls every node with a file into `agents`, and returns their number. An unusable file is skipped and raises a finding. Blocks.
    ///
    /// # Errors
    /// The directory cannot be read, or a file has a newer format.
    pub fn load(&self, agents: &Agents) -> Result<usize, StoreError> {
        let failed = |source| StoreError::Dir {
            path: self.dir.clone(),
            source,
        };
        let mut count = 0;
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let Some(node) = node_of(&path) else { continue };
            match recall(&path, node, agents) {
                Ok(()) => count += 1,
                Err(RecallError::Newer(format)) => return Err(StoreError::Newer { path, format }),
                Err(RecallError::Unusable(error)) => {
                    tracing::warn!(path = %path.display(), %error, "cannot use last-known file; its node is not listed until its agent connects");
                    let troubles = agents.notes().troubles();
                    troubles.raise(Trouble::NotRead, StateKind::Nodes, &path, error.to_string());
                }
            }
        }
        Ok(count)
    }

    /// Retries unusable files. Clears the finding of a file that is gone or can be used. Blocks.
    fn load_again(&self, agents: &Agents) {
        let troubles = agents.notes().troubles();
        for path in troubles.files(Trouble::NotRead, StateKind::Nodes) {
            let Some(node) = node_of(&path) else { continue };
            let is_gone = path
                .symlink_metadata()
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if is_gone || recall(&path, node, agents).is_ok() {
                troubles.clear(Trouble::NotRead, StateKind::Nodes, &path);
            }
        }
    }

    fn write(&self, node: &str, bytes: &[u8]) -> io::Result<()> {
        // Without a sync: after a power failure, the former file or none will do.
        files::replace(&self.path(node), bytes, Durability::Fast)
    }

    fn remove(&self, node: &str) -> io::Result<()> {
        match fs::remove_file(self.path(node)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns the node id in a file's name; None for other files.
fn node_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(SUFFIX)
}

/// Reason why a file is not used.
enum RecallError {
    Newer(u32),
    Unusable(Box<dyn std::error::Error>),
}

/// Recalls the node of this file into `agents`. Blocks.
fn recall(path: &Path, node: &str, agents: &Agents) -> Result<(), RecallError> {
    let unusable = RecallError::Unusable;
    let (bytes, whole) = read_bounded(path).map_err(|error| unusable(error.into()))?;
    if let Some(format) = newer(&bytes) {
        return Err(RecallError::Newer(format));
    }
    let (facts, inventory) = decode(&bytes, whole, node).map_err(unusable)?;
    agents
        .recall(facts, inventory)
        .map_err(|error| unusable(error.into()))
}

/// Reads a file of at most [`MAX_FILE_BYTES`], or the first bytes of a larger one. The flag is true if the file was read whole.
fn read_bounded(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let mut file = fs::File::open(path)?;
    let whole = file.metadata()?.len() <= MAX_FILE_BYTES;
    let most = if whole { MAX_FILE_BYTES } else { FORMAT_BYTES };
    let mut bytes = Vec::new();
    (&mut file).take(most).read_to_end(&mut bytes)?;
    Ok((bytes, whole))
}

/// Returns the file's format if it is newer than [`FORMAT`]. The format is the first field, so the first bytes suffice.
fn newer(bytes: &[u8]) -> Option<u32> {
    let first = bytes.get(..bytes.len().min(FORMAT_FIELD))?;
    let Format { format } = Format::decode(bytes)
        .or_else(|_| Format::decode(first))
        .ok()?;
    (format > FORMAT).then_some(format)
}

fn decode(
    bytes: &[u8],
    whole: bool,
    node: &str,
) -> Result<(Facts, drivebay_proto::agent::InventoryUpdate), Box<dyn std::error::Error>> {
    if !whole || decoded_file_bytes(bytes) > MAX_FILE_MEMORY {
        return Err(format!(
            "it is larger than a node may be ({}, {} when decoded)",
            human_size(MAX_FILE_BYTES),
            human_size(MAX_FILE_MEMORY as u64)
        )
        .into());
    }
    let record = LastKnown::decode(bytes)?;
    if record.format != FORMAT {
        return Err(format!("format {} is not {FORMAT}", record.format).into());
    }
    let inventory = record.inventory.ok_or("no inventory in it")?;
    if inventory.node_id != node || !is_node_id(node) || !inventory.full || !inventory.ready {
        return Err("it is not a whole inventory of this node".into());
    }
    let facts = Facts {
        node: node.to_owned(),
        identity: identity(node, record.proof),
        instance: inventory.instance.clone(),
        machine_id: record.machine_id,
        version: record.version,
        address: record.address,
        copies: false,
    };
    Ok((facts, inventory))
}

// A kind of proof that this controller does not know counts as none: then the agent must show drives of the node.
fn identity(node: &str, proof: Option<Proof>) -> Option<Identity> {
    match proof?.of? {
        Of::CertificateKeySha256(key) => Some(Identity::Certificate {
            node: node.to_owned(),
            key: KeyFingerprint(key.try_into().ok()?),
        }),
        Of::ServiceAccount(_) => Some(Identity::ServiceAccount {
            node: node.to_owned(),
        }),
    }
}

fn proof(identity: Identity) -> Proof {
    let of = match identity {
        Identity::Certificate { key, .. } => Of::CertificateKeySha256(key.0.to_vec()),
        Identity::ServiceAccount { .. } => Of::ServiceAccount(true),
    };
    Proof { of: Some(of) }
}

/// The volumes of a [`LastKnown`], each as encoded in the catalog. Appended to the encoding of the rest, they become part of
/// the same message (Protocol Buffers encoding guide, "last one wins").
#[derive(Clone, PartialEq, Message)]
struct Volumes {
    #[prost(message, optional, tag = "5")]
    inventory: Option<Encoded>,
}

/// The same field of an [`InventoryUpdate`](drivebay_proto::agent::InventoryUpdate).
#[derive(Clone, PartialEq, Message)]
struct Encoded {
    #[prost(bytes = "vec", repeated, tag = "5")]
    volumes: Vec<Vec<u8>>,
}

/// Returns the contents of a node's file; None for a node that never connected or was forgotten. Volumes are written as
/// encoded in the catalog, since decoding a million of them takes seconds.
fn content(agent: &Agent, catalog: &Catalog) -> Option<Vec<u8>> {
    let facts = agent.facts()?;
    let (inventory, volumes) = agent.read_inventory(|inventory| {
        let volumes = inventory.keys().filter_map(|key| catalog.encoded(&key));
        Some((inventory.dump_without_volumes()?, volumes.collect()))
    })?;
    let record = LastKnown {
        format: FORMAT,
        machine_id: facts.machine_id,
        version: facts.version,
        address: facts.address,
        inventory: Some(inventory),
        proof: facts.identity.map(proof),
    };
    let mut bytes = record.encode_to_vec();
    let volumes = Volumes {
        inventory: Some(Encoded { volumes }),
    };
    bytes.extend(volumes.encode_to_vec());
    Some(bytes)
}

/// Version of the inventory in a node's file, and the time of the write.
#[derive(Debug, Clone)]
struct Written {
    instance: String,
    revision: u64,
    at: Instant,
}

/// Writes changed and disconnected nodes until `stop`, then all changed ones once more.
pub async fn keep(store: Store, agents: Agents, stop: CancellationToken) {
    let mut written: BTreeMap<String, Written> = BTreeMap::new();
    loop {
        let last = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(TICK) => false,
        };
        save(&store, &agents, &mut written, last).await;
        read_again(&store, &agents).await;
        agents.settle_listed(Instant::now());
        if let Err(error) = agents.notes().keep_up().await {
            tracing::error!(%error, "cannot save controller state; will retry");
        }
        if last {
            return;
        }
    }
}

async fn read_again(store: &Store, agents: &Agents) {
    let troubles = agents.notes().troubles();
    if troubles
        .files(Trouble::NotRead, StateKind::Nodes)
        .is_empty()
    {
        return;
    }
    let (store, agents) = (store.clone(), agents.clone());
    let read = files::work(WRITE_DEADLINE, move || {
        store.load_again(&agents);
        Ok(())
    });
    if let Err(error) = read.await {
        tracing::debug!(%error, "cannot read last-known files again");
    }
}

/// Priority of writing a node's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// The node was disconnected or forgotten since its last write, so the file is not up to date and its agent cannot be asked.
    Now,
    /// Taken in order, a limited number per tick: disconnected nodes first, then never written ones, then those written longest ago.
    InTurn {
        there: bool,
        before: Option<Instant>,
    },
}

/// A node whose file is outdated.
#[derive(Debug)]
struct Due {
    turn: Turn,
    agent: Arc<Agent>,
    written: Written,
}

/// Returns the node if its file must be written. `all`: also if it was written within [`WRITE_EVERY`].
fn due(agent: Arc<Agent>, before: Option<&Written>, now: Instant, all: bool) -> Option<Due> {
    let (instance, revision, there, is_known) = agent.read_inventory(|inventory| {
        let (instance, revision) = inventory.shown();
        let there = inventory.away_since().is_none();
        (
            instance.to_owned(),
            revision,
            there,
            inventory.has_inventory(),
        )
    });
    let same = before.is_some_and(|before| {
        before.instance == instance && before.revision == revision && is_known
    });
    let early = before.is_some_and(|before| before.at + WRITE_EVERY > now);
    if same || (early && there && !all) || (!is_known && before.is_none()) {
        return None;
    }
    let before = before.map(|before| before.at);
    let turn = match before {
        Some(_) if !there || !is_known => Turn::Now,
        before => Turn::InTurn { there, before },
    };
    let at = now;
    let written = Written {
        instance,
        revision,
        at,
    };
    Some(Due {
        turn,
        agent,
        written,
    })
}

/// Returns how many of this many nodes are written in one tick, in their turn. Each is written within [`WRITE_EVERY`], and
/// thousands that connected at the same time are not written at the same time, which would delay everything else for seconds.
fn in_turn(nodes: usize) -> usize {
    let ticks = WRITE_EVERY.as_secs() / TICK.as_secs();
    FEW.max(nodes.div_ceil(ticks as usize))
}

async fn save(store: &Store, agents: &Agents, written: &mut BTreeMap<String, Written>, all: bool) {
    let now = Instant::now();
    let nodes = agents.all();
    let most = in_turn(nodes.len());
    let mut due: Vec<Due> = nodes
        .into_iter()
        .filter_map(|agent| {
            let before = written.get(agent.node());
            due(agent, before, now, all)
        })
        .collect();
    due.sort_by_key(|due| due.turn);
    if !all {
        let at_once = due.partition_point(|due| due.turn == Turn::Now);
        due.truncate(at_once + most);
    }
    let troubles = agents.notes().troubles();
    for batch in due.chunks(BATCH) {
        let (to, agents) = (store.clone(), agents.clone());
        let nodes: Vec<Arc<Agent>> = batch.iter().map(|due| due.agent.clone()).collect();
        let written_now = files::work(WRITE_DEADLINE, move || {
            let catalog = agents.catalog();
            nodes.iter().try_for_each(|agent| {
                match content(agent, catalog) {
                    Some(bytes) => to.write(agent.node(), &bytes),
                    // The node was forgotten.
                    None => to.remove(agent.node()),
                }
            })
        });
        match written_now.await {
            Ok(()) => {
                troubles.clear(Trouble::NotSaved, StateKind::Nodes, &store.dir);
                for due in batch {
                    let path = store.path(due.agent.node());
                    troubles.clear(Trouble::NotRead, StateKind::Nodes, &path);
                    written.insert(due.agent.node().to_owned(), due.written.clone());
                }
            }
            Err(error) => {
                let why = error.to_string();
                if troubles.raise(Trouble::NotSaved, StateKind::Nodes, &store.dir, why) {
                    tracing::warn!(%error, "cannot save last-known node state; disconnected nodes will not be listed after a restart");
                }
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "last_known_tests.rs"]
mod tests;
