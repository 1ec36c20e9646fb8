//! Memory of absent things: drives that were here with their volumes, and deletions, whose volumes may be on a drive that is
//! missing, or on a copy.
//!
//! Drives are the truth; this is only what cannot be read from a drive that is not there. Losing it
//! loses no data: missing drives are then not listed, and a volume deleted while its drive was away comes back
//! as a live one, to be deleted again. `merge` decides, purely; `Store` keeps the two files.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use drivebay_model::{DriveFacts, DriveId, Layout, Record};

pub mod checked;
pub mod dir;
pub mod file;
pub mod hand_mounts;
pub mod histories;
pub mod merge;
pub mod moves;
pub mod newer;
pub mod underway;

pub use dir::{StateDir, StateKind};
pub use file::{Damage, Saved, StateFile, Stored, TRY_EVERY};
pub use merge::{Merged, Sight, merge, recalled, recalled_deletions};

/// Format of both files; a file of another version is not read.
const VERSION: u32 = StateKind::Known.version();

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
    /// It was cordoned and had nothing on it: nobody misses it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
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
}

/// The two files.
#[derive(Debug)]
pub struct Store {
    known: StateFile<Known>,
    tombstones: StateFile<Tombstones>,
}

impl Store {
    /// Keeps them in `dir`.
    pub fn new(dir: &StateDir) -> Self {
        Self {
            known: StateFile::new(dir),
            tombstones: StateFile::new(dir),
        }
    }

    /// Reads both. Never fails: a file that cannot be used counts as empty, and is a finding.
    pub async fn load(&self) -> Loaded {
        Loaded {
            known: self.known.load().await.ok().flatten().unwrap_or_default(),
            tombstones: self
                .tombstones
                .load()
                .await
                .ok()
                .flatten()
                .unwrap_or_default(),
        }
    }

    /// Reads again what could not be read, when it is due; None: nothing new. What is known since is to be put together with it before
    /// either file is written.
    pub async fn read_again(&self) -> (Option<Known>, Option<Tombstones>) {
        let tombstones = self.tombstones.read_again().await;
        (self.known.read_again().await, tombstones)
    }

    #[cfg(test)]
    pub(crate) fn make_due(&self) {
        self.known.make_due();
        self.tombstones.make_due();
    }

    /// Writes what is known, durably.
    pub async fn save_known(&self, known: Known) -> Result<(), StateError> {
        self.known.save(known).await
    }

    /// Writes the tombstones, durably. A deletion is acknowledged only after this.
    pub async fn save_tombstones(&self, tombstones: Tombstones) -> Result<(), StateError> {
        self.tombstones.save(tombstones).await
    }
}

impl Stored for Known {
    const KIND: StateKind = StateKind::Known;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        parse(bytes)
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        versioned(self)
    }
}

impl Stored for Tombstones {
    const KIND: StateKind = StateKind::Tombstones;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        parse(bytes)
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        versioned(self)
    }
}

pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damage> {
    // The version first: a newer format may not even look like ours.
    let VersionOnly { version } = serde_json::from_slice(bytes)?;
    if version != VERSION {
        return Err(format!("it has version {version}, this agent reads version {VERSION}").into());
    }
    Ok(serde_json::from_slice::<Versioned<T>>(bytes)?.value)
}

fn versioned<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let version = VERSION;
    Ok(serde_json::to_vec_pretty(&Versioned { version, value })?)
}

#[cfg(test)]
mod tests;
