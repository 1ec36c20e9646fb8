//! Persisted state of absent things: drives that were present with their volumes, and deletions whose volumes may be on
//! a missing drive or on a copy.
//!
//! Drives are authoritative; this state covers only what cannot be read from an absent drive. Losing it loses no data:
//! missing drives are then not listed, and a volume deleted while its drive was missing returns as live and has to be
//! deleted again. `merge` decides, purely; `Store` keeps the two files.

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
pub mod receipts;
pub mod underway;

pub use dir::{StateDir, StateKind};
pub use file::{Damage, Saved, StateFile, Stored, TRY_EVERY};
pub use merge::{Merged, Sight, merge, recalled, recalled_deletions};

/// Format of both files; a file of another version is not read.
const VERSION: u32 = StateKind::Known.version();

/// Drives that carry our label for this node, as last seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastKnown {
    pub drives: BTreeMap<DriveId, KnownDrive>,
    /// Creations with an unknown outcome, by CSI name. Omitted if empty, as by agents that did not record them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_doubt: BTreeMap<String, Doubt>,
}

/// A creation with an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// Drive on which it was attempted.
    pub drive: DriveId,
    /// Volume that may exist on that drive.
    pub uuid: Uuid,
}

/// Last known state of a drive with our label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDrive {
    /// Facts when the drive was last read.
    pub facts: DriveFacts,
    /// Class for which the drive was claimed.
    pub class: String,
    /// Bytes that all volumes on it together can use.
    pub usable_bytes: u64,
    pub layout: Layout,
    /// Uuid in the drive's label.
    pub drive_uuid: Uuid,
    pub volumes: Vec<Record>,
    /// Volumes that were on the drive, are not any more, and were not deleted through this agent: they were removed manually.
    #[serde(default)]
    pub vanished: Vec<Record>,
    /// True if it was cordoned and had no volumes: it is not kept as a missing drive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
    /// Unix time, seconds; informational only.
    pub last_seen: u64,
}

/// Deletions, persisted so that a volume that appears again, on its drive or on a copy of it, stays deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstones {
    /// By the volume's uuid.
    pub volumes: BTreeMap<Uuid, Tombstone>,
}

impl Tombstones {
    /// Returns volumes that may still have data on a drive.
    pub fn open(&self) -> impl Iterator<Item = &Uuid> {
        let open = self.volumes.iter();
        open.filter(|(_, of)| !of.drives.is_empty())
            .map(|(uuid, _)| uuid)
    }
}

/// One of them. It outlives the deletion: a copy of the drive may appear later, and the volume on it is still deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Drives that may still have the volume; empty once it was erased from each.
    pub drives: BTreeSet<DriveId>,
    pub name: String,
    /// Unix time, seconds; informational only.
    pub deleted_at: u64,
    /// Seconds for which the volume has been present again, counted only while an agent runs: a jump of the wall clock must not shorten a
    /// quarantine.
    pub quarantined_seconds: u64,
    /// True: no quarantine, because the volume was never acknowledged (its creation had an unknown outcome).
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

/// Writing a state file failed. Its new contents are not durable.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}; is the system's drive full or read-only?")]
pub struct StateError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

#[derive(Debug, Default)]
pub struct Loaded {
    pub known: LastKnown,
    pub tombstones: Tombstones,
}

/// The files of `LastKnown` and `Tombstones`.
#[derive(Debug)]
pub struct Store {
    last_known: StateFile<LastKnown>,
    tombstones: StateFile<Tombstones>,
}

impl Store {
    /// Keeps the files in `dir`. Reads nothing yet.
    pub fn new(dir: &StateDir) -> Self {
        Self {
            last_known: StateFile::new(dir),
            tombstones: StateFile::new(dir),
        }
    }

    /// Reads both files. Never fails: a file that cannot be used counts as empty, and is a finding.
    pub async fn load(&self) -> Loaded {
        Loaded {
            known: self
                .last_known
                .load()
                .await
                .ok()
                .flatten()
                .unwrap_or_default(),
            tombstones: self
                .tombstones
                .load()
                .await
                .ok()
                .flatten()
                .unwrap_or_default(),
        }
    }

    /// Retries reading the files that could not be read, when due; None: nothing new. The caller must merge the result
    /// with the current state before either file is written.
    pub async fn read_again(&self) -> (Option<LastKnown>, Option<Tombstones>) {
        let tombstones = self.tombstones.read_again().await;
        (self.last_known.read_again().await, tombstones)
    }

    #[cfg(test)]
    pub(crate) fn make_due(&self) {
        self.last_known.make_due();
        self.tombstones.make_due();
    }

    /// Writes the state of drives durably.
    pub async fn save_known(&self, last_known: LastKnown) -> Result<(), StateError> {
        self.last_known.save(last_known).await
    }

    /// Writes the tombstones durably. A deletion is acknowledged only after this.
    pub async fn save_tombstones(&self, tombstones: Tombstones) -> Result<(), StateError> {
        self.tombstones.save(tombstones).await
    }
}

impl Stored for LastKnown {
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
    // The version first: a newer format may have other fields.
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
