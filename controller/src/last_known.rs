//! The nodes as they were last known, one file each, so that a node that is away when a controller starts is
//! still listed as away. Disposable: no data is lost with these files, and nothing is decided by them but
//! that "not known" is not "does not exist".

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use drivebay_common::tls::KeyFingerprint;
use drivebay_proto::{
    controller::{LastKnown, Proof, proof::Of},
    volume_id::is_node_id,
};
use prost::Message;
use tokio_util::sync::CancellationToken;

use crate::{
    agents::{Agent, Agents, Facts, Identity},
    bounds::{MAX_FILE_MEMORY, MAX_NODE_BYTES, decoded_file_bytes},
    catalog::Catalog,
    files::{self, Durability},
};

/// The files' format. A controller does not start on a newer one, which it would overwrite.
const FORMAT: u32 = 1;
const SUFFIX: &str = ".known";
/// Largest file that is read, bytes.
const MAX_FILE_BYTES: u64 = MAX_NODE_BYTES as u64;
/// What is read of a larger one, for its format.
const FORMAT_BYTES: u64 = 16;
/// Bytes of the format in front of a file: a tag, and a number below 128.
const FORMAT_FIELD: usize = 2;
/// How often changed nodes are looked for.
const TICK: Duration = Duration::from_secs(30);
/// A node that is there is written at most this often: what is new on it since is asked of it anyway.
const WRITE_EVERY: Duration = Duration::from_secs(300);
/// A batch of files takes no longer, or the disk is in trouble.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// Files written in one go, within [`WRITE_DEADLINE`] however many volumes their nodes have.
const BATCH: usize = 16;
/// So few nodes are written whenever they are due.
const FEW: usize = 64;

/// The files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory.
    #[error("cannot use the state directory {path}; see --state-dir")]
    Dir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A newer controller has been here.
    #[error(
        "{path} has format {found}, and this controller reads format {FORMAT}: a newer controller wrote it. Nothing was changed. Run that controller again; or move the file away, so that its node is known again when its agent connects"
    )]
    Newer {
        path: PathBuf,
        /// What it says.
        found: u32,
    },
}

/// What a file of any format says first.
#[derive(Clone, PartialEq, Message)]
struct Format {
    #[prost(uint32, tag = "1")]
    format: u32,
}

/// Where the files are.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// In this state directory, which is made if need be. Blocks.
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

    /// Tells `agents` of every node there is a file of. A file that cannot be read is left out, with a warning; one of a newer
    /// format is an error. Blocks.
    pub fn load(&self, agents: &Agents) -> Result<usize, StoreError> {
        let failed = |source| StoreError::Dir {
            path: self.dir.clone(),
            source,
        };
        let mut count = 0;
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(node) = name.and_then(|name| name.strip_suffix(SUFFIX)) else {
                continue;
            };
            let bytes = read_bounded(&path);
            if let Some(found) = bytes.as_ref().ok().and_then(|(bytes, _)| newer(bytes)) {
                return Err(StoreError::Newer { path, found });
            }
            let known = bytes
                .map_err(Box::from)
                .and_then(|(bytes, whole)| decode(&bytes, whole, node));
            match known {
                Ok((facts, inventory)) => match agents.recall(facts, inventory) {
                    Ok(()) => count += 1,
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "invalid last-known file ignored");
                    }
                },
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot read last-known file; ignored");
                }
            }
        }
        Ok(count)
    }

    fn write(&self, node: &str, bytes: &[u8]) -> io::Result<()> {
        // After a power failure the former file, or none, is as good.
        files::replace(&self.path(node), bytes, Durability::Fast)
    }

    fn remove(&self, node: &str) -> io::Result<()> {
        match fs::remove_file(self.path(node)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A file's bytes, or the first of them if it is larger than any that this controller writes; and whether these are all.
fn read_bounded(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let mut file = fs::File::open(path)?;
    let whole = file.metadata()?.len() <= MAX_FILE_BYTES;
    let most = if whole { MAX_FILE_BYTES } else { FORMAT_BYTES };
    let mut bytes = Vec::new();
    (&mut file).take(most).read_to_end(&mut bytes)?;
    Ok((bytes, whole))
}

/// The format of a file, when it is newer than ours. It is the first field, so the first bytes have it.
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
            "it is larger than a node may be ({MAX_FILE_BYTES} bytes, {MAX_FILE_MEMORY} when decoded)"
        )
        .into());
    }
    let known = LastKnown::decode(bytes)?;
    if known.format != FORMAT {
        return Err(format!("format {} is not {FORMAT}", known.format).into());
    }
    let inventory = known.inventory.ok_or("no inventory in it")?;
    if inventory.node_id != node || !is_node_id(node) || !inventory.full || !inventory.ready {
        return Err("it is not a whole inventory of this node".into());
    }
    let facts = Facts {
        node: node.to_owned(),
        identity: identity(node, known.proof),
        instance: inventory.instance.clone(),
        machine_id: known.machine_id,
        version: known.version,
        address: known.address,
    };
    Ok((facts, inventory))
}

// A proof that this controller does not know is none: its node's agent proves itself by its drives.
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

/// The volumes of a [`LastKnown`], each as it is encoded. Put after the encoding of the rest, they become part of the same
/// message (the encoding guide of protocol buffers, "last one wins").
#[derive(Clone, PartialEq, Message)]
struct Volumes {
    #[prost(message, optional, tag = "5")]
    inventory: Option<Encoded>,
}

/// The volumes of an [`InventoryUpdate`](drivebay_proto::agent::InventoryUpdate).
#[derive(Clone, PartialEq, Message)]
struct Encoded {
    #[prost(bytes = "vec", repeated, tag = "5")]
    volumes: Vec<Vec<u8>>,
}

/// The content of a node's file; None for a node that never connected or was forgotten. Volumes are written as the catalog has
/// them encoded: decoding a million of them takes seconds.
fn content(agent: &Agent, catalog: &Catalog) -> Option<Vec<u8>> {
    let facts = agent.facts()?;
    let (inventory, volumes) = agent.look(|inventory| {
        let volumes = inventory.keys().filter_map(|key| catalog.encoded(&key));
        Some((inventory.dump_without_volumes()?, volumes.collect()))
    })?;
    let known = LastKnown {
        format: FORMAT,
        machine_id: facts.machine_id,
        version: facts.version,
        address: facts.address,
        inventory: Some(inventory),
        proof: facts.identity.map(proof),
    };
    let mut bytes = known.encode_to_vec();
    let volumes = Volumes {
        inventory: Some(Encoded { volumes }),
    };
    bytes.extend(volumes.encode_to_vec());
    Some(bytes)
}

/// What the file of a node holds.
#[derive(Debug, Clone)]
struct Written {
    instance: String,
    revision: u64,
    at: Instant,
}

/// Writes nodes as they change and as they go away, until `stop`; then what has changed once more.
pub async fn keep(store: Store, agents: Agents, stop: CancellationToken) {
    let mut written: BTreeMap<String, Written> = BTreeMap::new();
    loop {
        let last = tokio::select! {
            () = stop.cancelled() => true,
            () = tokio::time::sleep(TICK) => false,
        };
        save(&store, &agents, &mut written, last).await;
        if let Err(error) = agents.notes().flush().await {
            tracing::error!(%error, "cannot save controller state; will retry");
        }
        if last {
            return;
        }
    }
}

/// How soon a node's file is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// It went away, or was given up, since it was written: what the file says is not asked of it any more.
    Now,
    /// The next ones among those that were never written, or longest ago; those that are away first.
    InTurn {
        there: bool,
        before: Option<Instant>,
    },
}

/// A node whose file is out of date.
#[derive(Debug)]
struct Due {
    turn: Turn,
    agent: Arc<Agent>,
    written: Written,
}

/// Whether a node is due.
fn due(agent: Arc<Agent>, before: Option<&Written>, now: Instant, all: bool) -> Option<Due> {
    let (instance, revision, there, known) = agent.look(|inventory| {
        let (instance, revision) = inventory.shown();
        let there = inventory.away_since().is_none();
        (instance.to_owned(), revision, there, inventory.known())
    });
    let same = before
        .is_some_and(|before| before.instance == instance && before.revision == revision && known);
    let early = before.is_some_and(|before| before.at + WRITE_EVERY > now);
    if same || (early && there && !all) || (!known && before.is_none()) {
        return None;
    }
    let before = before.map(|before| before.at);
    let turn = match before {
        Some(_) if !there || !known => Turn::Now,
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

/// How many of this many nodes are written in their turn in one go: each comes within [`WRITE_EVERY`], and thousands that
/// connected together are not written together, which would slow down everything else for seconds.
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
    for batch in due.chunks(BATCH) {
        let (store, agents) = (store.clone(), agents.clone());
        let nodes: Vec<Arc<Agent>> = batch.iter().map(|due| due.agent.clone()).collect();
        let written_now = files::work(WRITE_DEADLINE, move || {
            let catalog = agents.catalog();
            nodes.iter().try_for_each(|agent| {
                match content(agent, catalog) {
                    Some(bytes) => store.write(agent.node(), &bytes),
                    // Given up.
                    None => store.remove(agent.node()),
                }
            })
        });
        match written_now.await {
            Ok(()) => {
                for due in batch {
                    written.insert(due.agent.node().to_owned(), due.written.clone());
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot save last-known node state; disconnected nodes will not be listed after a restart");
                return;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use drivebay_proto::agent::{Class, InventoryUpdate, Volume};
    use tokio::sync::watch;

    use super::*;
    use crate::golden;
    use crate::{agents::ForgottenNodes, notes::Notes};

    const ID: &str = "00000000-0000-4000-8000-000000000001@n1";
    const OTHER: &str = "00000000-0000-4000-8000-000000000002@n1";
    const PROVISIONED: &str = "pvc-00000000-0000-4000-8000-000000000003";

    fn agents() -> (Agents, watch::Sender<ForgottenNodes>) {
        let (sender, receiver) = watch::channel(ForgottenNodes::new());
        (Agents::new(receiver, Notes::in_memory()), sender)
    }

    fn facts() -> Facts {
        Facts {
            node: "n1".into(),
            identity: Some(Identity::Certificate {
                node: "n1".into(),
                key: KeyFingerprint([7; 32]),
            }),
            instance: "a".into(),
            machine_id: "m".into(),
            version: "1".into(),
            address: "1.2.3.4:5".into(),
        }
    }

    fn inventory() -> InventoryUpdate {
        InventoryUpdate {
            node_id: "n1".into(),
            instance: "a".into(),
            revision: 3,
            full: true,
            ready: true,
            volumes: [(ID, "v"), (OTHER, PROVISIONED)]
                .map(|(id, name)| Volume {
                    id: id.into(),
                    name: name.into(),
                    state: "ready".into(),
                    drive: "wwn-a".into(),
                    ..Volume::default()
                })
                .into(),
            classes: vec![Class {
                name: "bulk".into(),
                ..Class::default()
            }],
            ..InventoryUpdate::default()
        }
    }

    #[tokio::test]
    async fn a_node_that_is_away_is_listed_after_a_restart_and_a_given_up_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (before, forgotten_nodes) = agents();
        before.recall(facts(), inventory()).unwrap();
        let mut written = BTreeMap::new();
        save(&store, &before, &mut written, false).await;
        let file = fs::read(dir.path().join("nodes/n1.known")).unwrap();
        golden::compare("node.known", &file);

        let (after, _keep) = agents();
        assert_eq!(store.load(&after).unwrap(), 1);
        let dump = |agents: &Agents| {
            let agent = agents.get("n1").unwrap();
            agent.look(|inventory| inventory.dump(agents.catalog()))
        };
        assert_eq!(dump(&after), Some(inventory()));
        assert_eq!(dump(&before), Some(inventory()));
        assert_eq!(after.get("n1").unwrap().facts(), Some(facts()));
        assert!(!after.get("n1").unwrap().connected());

        forgotten_nodes.send_replace([("n1".to_owned(), 1)].into());
        before.forget_given_up();
        save(&store, &before, &mut written, false).await;
        let (last, _keep) = agents();
        assert_eq!(store.load(&last).unwrap(), 0);
    }

    #[tokio::test]
    async fn thousands_of_nodes_are_written_in_turns_and_one_that_went_away_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (agents, _keep) = agents();
        let nodes: Vec<String> = (0..1000).map(|n| format!("n{n}")).collect();
        let recall = |node: &str, revision| {
            let facts = Facts {
                node: node.into(),
                ..facts()
            };
            let update = InventoryUpdate {
                node_id: node.into(),
                revision,
                volumes: Vec::new(),
                ..inventory()
            };
            agents.recall(facts, update).unwrap();
        };
        for node in &nodes {
            recall(node, 3);
        }
        let mut written = BTreeMap::new();
        save(&store, &agents, &mut written, false).await;
        assert_eq!(written.len(), 100, "a tenth of them");
        let first = written.keys().next().unwrap().clone();
        recall(&first, 4);
        save(&store, &agents, &mut written, false).await;
        assert_eq!(written.len(), 200);
        assert_eq!(written.get(&first).unwrap().revision, 4);
        save(&store, &agents, &mut written, true).await;
        assert_eq!(written.len(), 1000, "all at the end");
        assert_eq!(in_turn(3), FEW);
    }

    #[tokio::test]
    async fn a_file_of_another_node_format_or_none_at_all_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let known = |format, node: &str| LastKnown {
            format,
            inventory: Some(InventoryUpdate {
                node_id: node.into(),
                ..inventory()
            }),
            ..LastKnown::default()
        };
        store
            .write("n1", &known(FORMAT, "n2").encode_to_vec())
            .unwrap();
        store
            .write("n2", &known(FORMAT - 1, "n2").encode_to_vec())
            .unwrap();
        fs::write(store.path("n3"), b"\xff\xfe garbage").unwrap();
        fs::write(store.path("n4"), b"").unwrap();
        let (agents, _keep) = agents();
        assert_eq!(store.load(&agents).unwrap(), 0);
    }

    #[tokio::test]
    async fn a_file_that_is_larger_than_a_node_may_be_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let file = fs::File::create(store.path("n1")).unwrap();
        file.set_len(4 << 30).unwrap();
        // Small on disk, and large when decoded: volumes without content.
        let mut bombs = LastKnown {
            format: FORMAT,
            ..LastKnown::default()
        }
        .encode_to_vec();
        let volumes = [0x2a, 0].repeat(4 << 20);
        bombs.push(0x2a);
        prost::encoding::encode_varint(volumes.len() as u64, &mut bombs);
        bombs.extend(volumes);
        fs::write(store.path("n2"), &bombs).unwrap();
        let too_many = InventoryUpdate {
            volumes: (0..=crate::bounds::MAX_VOLUMES)
                .map(|n| Volume {
                    id: format!("00000000-0000-4000-8000-{n:012}@n3"),
                    ..Volume::default()
                })
                .collect(),
            node_id: "n3".into(),
            ..inventory()
        };
        let known = LastKnown {
            format: FORMAT,
            inventory: Some(too_many),
            ..LastKnown::default()
        };
        store.write("n3", &known.encode_to_vec()).unwrap();
        let (agents, _keep) = agents();
        assert_eq!(store.load(&agents).unwrap(), 0);
        assert!(agents.catalog().is_empty());
        // One of a newer format is never written over, however large it is.
        file.set_len(0).unwrap();
        fs::write(store.path("n1"), [0x08, 0x02]).unwrap();
        file.set_len(4 << 30).unwrap();
        assert!(store.load(&agents).is_err());
    }

    #[tokio::test]
    async fn a_file_of_a_newer_format_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        // Its other fields need not be ours: 2 is a number here.
        let later = [0x08, 0x02, 0x10, 0x07];
        fs::write(store.path("n1"), later).unwrap();
        let (agents, _keep) = agents();
        let refused = store.load(&agents).unwrap_err();
        assert!(
            matches!(refused, StoreError::Newer { found: 2, .. }),
            "{refused}"
        );
        assert_eq!(fs::read(store.path("n1")).unwrap(), later);
    }
}
