//! The nodes as they were last known, one file each, so that a node that is away when a controller starts is
//! still listed as away. Disposable: no data is lost with these files, and nothing is decided by them but
//! that "not known" is not "does not exist".

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
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
    agents::{Agents, Facts, Identity},
    bounds::{MAX_FILE_MEMORY, MAX_NODE_BYTES, decoded_file_bytes},
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
/// Files written in one go while others wait.
const BATCH: usize = 64;

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

    fn write(&self, node: &str, known: &LastKnown) -> io::Result<()> {
        // After a power failure the former file, or none, is as good.
        files::replace(&self.path(node), &known.encode_to_vec(), Durability::Fast)
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

async fn save(store: &Store, agents: &Agents, written: &mut BTreeMap<String, Written>, all: bool) {
    let now = Instant::now();
    let mut due = Vec::new();
    for agent in agents.all() {
        let (instance, revision, away, known) = agent.look(|inventory| {
            let (instance, revision) = inventory.shown();
            (
                instance.to_owned(),
                revision,
                inventory.away_since().is_some(),
                inventory.known(),
            )
        });
        let before = written.get(agent.node());
        let same = before.is_some_and(|before| {
            before.instance == instance && before.revision == revision && known
        });
        let early = before.is_some_and(|before| before.at + WRITE_EVERY > now);
        if same || (early && !away && !all) || (!known && before.is_none()) {
            continue;
        }
        let at = now;
        due.push((
            agent,
            Written {
                instance,
                revision,
                at,
            },
        ));
    }
    for batch in due.chunks(BATCH) {
        let files: Vec<_> = batch
            .iter()
            .map(|(agent, _)| {
                let inventory = agent.look(|inventory| inventory.dump(agents.catalog()));
                let facts = agent.facts();
                let known = inventory.zip(facts).map(|(inventory, facts)| LastKnown {
                    format: FORMAT,
                    machine_id: facts.machine_id,
                    version: facts.version,
                    address: facts.address,
                    inventory: Some(inventory),
                    proof: facts.identity.map(proof),
                });
                (agent.node().to_owned(), known)
            })
            .collect();
        let store = store.clone();
        let written_now = files::work(WRITE_DEADLINE, move || {
            files.iter().try_for_each(|(node, known)| match known {
                Some(known) => store.write(node, known),
                // Given up.
                None => store.remove(node),
            })
        });
        match written_now.await {
            Ok(()) => {
                for (agent, now_written) in batch {
                    written.insert(agent.node().to_owned(), now_written.clone());
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
    use drivebay_proto::agent::{InventoryUpdate, Volume};
    use tokio::sync::watch;

    use super::*;
    use crate::{agents::ForgottenNodes, notes::Notes};

    const ID: &str = "00000000-0000-4000-8000-000000000001@n1";

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
            volumes: vec![Volume {
                id: ID.into(),
                name: "v".into(),
                state: "ready".into(),
                ..Volume::default()
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

        let (after, _keep) = agents();
        assert_eq!(store.load(&after).unwrap(), 1);
        assert!(after.volume(ID).is_ok());
        assert_eq!(after.get("n1").unwrap().facts(), Some(facts()));
        assert!(!after.get("n1").unwrap().connected());

        forgotten_nodes.send_replace([("n1".to_owned(), 1)].into());
        before.forget_given_up();
        save(&store, &before, &mut written, false).await;
        let (last, _keep) = agents();
        assert_eq!(store.load(&last).unwrap(), 0);
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
        store.write("n1", &known(FORMAT, "n2")).unwrap();
        store.write("n2", &known(FORMAT - 1, "n2")).unwrap();
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
        store.write("n3", &known).unwrap();
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
