//! Memory of absent things: drives that were here with their volumes, and deletions, whose volumes may be on a drive that is
//! missing, or on a copy.
//!
//! Drives are the truth; this is only what cannot be read from a drive that is not there. Losing it
//! loses no data: missing drives are then not listed, and a volume deleted while its drive was away comes back
//! as a live one, to be deleted again. `merge` decides, purely; `Store` keeps the two files.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{
    model::{DriveFacts, DriveId, Layout, Record, cause::chain},
    sys::{offload::offload, statefile},
};

pub mod hand_mounts;
pub mod merge;
pub mod underway;

pub use merge::{Merged, Sight, merge};

/// Format of both files; a file of another version is not read.
pub(crate) const VERSION: u32 = 1;
/// A state file larger than this (bytes) is damaged; ten thousand volumes are about 10 MiB.
const MAX_FILE: u64 = 256 * 1024 * 1024;
/// Reading or writing one file takes no longer than this, or the system's drive is in trouble.
const IO_DEADLINE: Duration = Duration::from_secs(10);

/// Drives that carry our label for this node, as last seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// By identity.
    pub drives: BTreeMap<DriveId, KnownDrive>,
    /// Creations of which it is not known what came of them, by CSI name. Not written when there is none, as by agents that did
    /// not write them down.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_doubt: BTreeMap<String, Doubt>,
}

/// A creation of which it is not known what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Where it was tried.
    pub drive: DriveId,
    /// The volume that may be there.
    pub uuid: Uuid,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDrive {
    /// Facts when it was last read.
    pub facts: DriveFacts,
    /// The class it was claimed for.
    pub class: String,
    /// Bytes volumes could have on it in all.
    pub usable_bytes: u64,
    /// How it is carved.
    pub layout: Layout,
    /// The uuid in its label.
    pub drive_uuid: Uuid,
    /// Its volumes' records.
    pub volumes: Vec<Record>,
    /// Volumes that were on it, are not any more, and that nobody deleted here: somebody took them away by hand.
    #[serde(default)]
    pub vanished: Vec<Record>,
    /// Unix seconds; for people only, nothing is decided by it.
    pub last_seen: u64,
}

/// Acknowledged deletions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstones {
    /// By the volume's identity.
    pub volumes: BTreeMap<Uuid, Tombstone>,
}

impl Tombstones {
    /// Volumes of which something may be left on a drive.
    pub fn open(&self) -> impl Iterator<Item = &Uuid> {
        let open = self.volumes.iter();
        open.filter(|(_, of)| !of.drives.is_empty())
            .map(|(uuid, _)| uuid)
    }
}

/// One of them. It outlives the deletion: a copy of the drive may appear later, and the volume on it is still deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The drives that may still have it; none: it was seen to be erased from each.
    pub drives: BTreeSet<DriveId>,
    /// Its CSI name.
    pub name: String,
    /// Unix seconds; for people only.
    pub deleted_at: u64,
    /// How long the volume has been here again, in seconds, counted by agents that ran: a wall clock
    /// that jumps must not shorten a quarantine.
    pub quarantined_seconds: u64,
    /// Without quarantine: the volume was never acknowledged (its creation had an unknown outcome).
    pub released: bool,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    value: T,
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
}

/// Why a state file could not be written. What it would have said is not durable.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}; is the system's drive full or read-only?")]
pub struct StateError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// What was found at start.
#[derive(Debug, Default)]
pub struct Loaded {
    pub known: Known,
    pub tombstones: Tombstones,
    /// Files that could not be used, in sentences for the log; they were moved aside.
    pub troubles: Vec<String>,
}

/// The two files.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Keeps them in `dir` (made when it is missing).
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    fn known_path(&self) -> PathBuf {
        self.dir.join("known.json")
    }

    fn tombstones_path(&self) -> PathBuf {
        self.dir.join("tombstones.json")
    }

    /// Reads both. Never fails: a file that cannot be used is reported, moved aside, and counts as empty.
    pub async fn load(&self) -> Loaded {
        let (known, tombstones) = (self.known_path(), self.tombstones_path());
        let loaded = offload("state-load", IO_DEADLINE, move || {
            let mut troubles = Vec::new();
            Loaded {
                known: read_or_move_aside(&known, &mut troubles),
                tombstones: read_or_move_aside(&tombstones, &mut troubles),
                troubles,
            }
        });
        loaded.await.unwrap_or_else(|error| Loaded {
            troubles: vec![format!(
                "cannot read the state of absent drives from {}: {error}",
                self.dir.display()
            )],
            ..Loaded::default()
        })
    }

    /// Writes what is known, durably.
    pub async fn save_known(&self, known: Known) -> Result<(), StateError> {
        save(self.known_path(), known).await
    }

    /// Writes the tombstones, durably. A deletion is acknowledged only after this.
    pub async fn save_tombstones(&self, tombstones: Tombstones) -> Result<(), StateError> {
        save(self.tombstones_path(), tombstones).await
    }
}

fn read_or_move_aside<T: DeserializeOwned + Default>(path: &Path, troubles: &mut Vec<String>) -> T {
    let bytes = match statefile::read(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return T::default(),
        Err(error) => {
            troubles.push(unusable(path, &error));
            return T::default();
        }
    };
    match parse(&bytes) {
        Ok(value) => value,
        Err(error) => {
            troubles.push(unusable(path, &*error));
            T::default()
        }
    }
}

/// Moves it aside and says so: the next save must not overwrite what a person may still want to read.
fn unusable(path: &Path, error: &(dyn std::error::Error + 'static)) -> String {
    let kept = match statefile::move_aside(path) {
        Ok(aside) => format!("it was kept as {}", aside.display()),
        Err(error) => format!("and it could not be moved aside ({error})"),
    };
    format!(
        "{} cannot be used: {}; {kept}. No data is lost: drives are read again when they are here",
        path.display(),
        chain(error)
    )
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Box<dyn std::error::Error>> {
    // The version first: a newer format may not even look like ours.
    let VersionOnly { version } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        return Err(format!("it has version {version}, this agent reads version {VERSION}").into());
    }
    Ok(serde_json::from_slice::<Versioned<T>>(bytes)?.value)
}

async fn save<T: Serialize + Send + 'static>(path: PathBuf, value: T) -> Result<(), StateError> {
    let text = move || {
        let version = VERSION;
        Ok(serde_json::to_vec_pretty(&Versioned { version, value })?)
    };
    statefile::save(path.clone(), IO_DEADLINE, text)
        .await
        .map_err(|source| StateError { path, source })
}

#[cfg(test)]
mod tests;
