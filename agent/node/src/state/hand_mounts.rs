//! Manual mounts: which volume is mounted where, and whether also at each start of the host.
//!
//! Distinguishes an operator's mounts from an orchestrator's, which neither may remove for the other, and is the only
//! record of what to mount after a reboot. One small file in the state directory. Losing it loses no data.

use std::{io, path::PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Damage, Saved, StateDir, StateError, StateKind, Stored};

/// Format of the file; one of a newer version is refused at start.
const VERSION: u32 = StateKind::ManualMounts.version();

/// A manual mount, requested by `MountVolume` and not by CSI; at most one per volume. Recorded before it is made, and taken back if that
/// fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandMount {
    pub volume: Uuid,
    /// Name of the volume; informational, and for lookups while its drive is missing.
    pub name: String,
    /// Path as in the mount table: finding it again accesses no drive.
    pub path: PathBuf,
    /// True for a raw volume, whose device is bind-mounted onto a file.
    pub block: bool,
    /// Mount options in addition to the volume's own.
    pub flags: Vec<String>,
    pub read_only: bool,
    /// True: mounted at each start of the host. False: recorded until it is unmounted or the host is booted.
    pub persist: bool,
    /// File with the secret of an encrypted volume that is mounted at each start of the host. Kept as text only: nothing here reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
}

/// Contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct File {
    version: u32,
    mounts: Vec<HandMount>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            version: VERSION,
            mounts: Vec::new(),
        }
    }
}

impl Stored for File {
    const KIND: StateKind = StateKind::ManualMounts;

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        Ok(serde_json::from_slice(bytes)?)
    }

    fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }
}

/// Manual mounts of this host, at most one per volume.
#[derive(Debug)]
pub struct HandMounts(Saved<File>);

impl HandMounts {
    /// Creates an empty list; `load` reads the file.
    pub fn new(dir: &StateDir) -> Self {
        Self(Saved::new(dir))
    }

    /// Reads the file. While it cannot be read, no mount is added or removed.
    pub async fn load(&self) {
        self.0.load().await;
    }

    /// Retries reading the file if it could not be read, when due.
    pub async fn read_again(&self) {
        self.0.read_again().await;
    }

    /// Returns why the file could not be read: the manual mounts are unknown then. None when they are known.
    pub fn unread(&self) -> Option<String> {
        self.0.unread()
    }

    /// Returns every manual mount.
    pub fn all(&self) -> Vec<HandMount> {
        self.0.inspect(|file| file.mounts.clone())
    }

    /// Returns the manual mount of a volume.
    pub fn of(&self, volume: Uuid) -> Option<HandMount> {
        let is_it = |one: &&HandMount| one.volume == volume;
        self.0
            .inspect(|file| file.mounts.iter().find(is_it).cloned())
    }

    /// Adds a mount durably, in place of an earlier one of its volume.
    ///
    /// # Errors
    /// The mount could not be saved, and was not added.
    pub async fn put(&self, mount: HandMount) -> Result<(), StateError> {
        let put = |file: &mut File| {
            file.mounts.retain(|one| one.volume != mount.volume);
            file.mounts.push(mount);
        };
        self.0.change(put).await
    }

    /// Removes the mount of a volume durably.
    ///
    /// # Errors
    /// The removal could not be saved, and was not made.
    pub async fn remove(&self, volume: Uuid) -> Result<(), StateError> {
        let remove = |file: &mut File| file.mounts.retain(|one| one.volume != volume);
        self.0.change(remove).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::golden;

    const NAME: &str = StateKind::ManualMounts.name();

    fn mount(n: u128, path: &str, persist: bool) -> HandMount {
        HandMount {
            volume: Uuid::from_u128(n),
            name: format!("v{n}"),
            path: path.into(),
            block: false,
            flags: vec!["noatime".into()],
            read_only: false,
            persist,
            key_file: None,
        }
    }

    async fn loaded(dir: &Path) -> HandMounts {
        let mounts = HandMounts::new(&StateDir::new(dir));
        mounts.load().await;
        mounts
    }

    #[tokio::test]
    async fn what_was_put_is_known_to_the_next_agent_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = loaded(dir.path()).await;
        mounts.put(mount(1, "/a", false)).await.unwrap();
        mounts.put(mount(2, "/b", true)).await.unwrap();
        mounts.put(mount(1, "/c", true)).await.unwrap();
        let written = std::fs::read(dir.path().join(NAME)).unwrap();
        golden::compare(NAME, &written);
        let next = loaded(dir.path()).await;
        assert_eq!(
            next.all(),
            [mount(2, "/b", true), mount(1, "/c", true)],
            "one per volume"
        );
        next.remove(Uuid::from_u128(2)).await.unwrap();
        next.remove(Uuid::from_u128(9)).await.unwrap();
        let last = loaded(dir.path()).await;
        assert_eq!(last.of(Uuid::from_u128(1)), Some(mount(1, "/c", true)));
        assert_eq!(last.of(Uuid::from_u128(2)), None);
    }

    #[tokio::test]
    async fn a_mount_that_cannot_be_saved_is_not_known_and_one_whose_removal_cannot_be_is() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = loaded(dir.path()).await;
        mounts.put(mount(1, "/a", true)).await.unwrap();
        std::fs::create_dir(dir.path().join("hand-mounts.json.new")).unwrap();
        assert!(mounts.put(mount(2, "/b", true)).await.is_err());
        for _ in 0..2 {
            assert!(mounts.remove(Uuid::from_u128(1)).await.is_err());
        }
        assert_eq!(mounts.all(), [mount(1, "/a", true)]);
        assert_eq!(loaded(dir.path()).await.all(), mounts.all());
    }

    #[tokio::test]
    async fn a_damaged_file_is_put_aside_and_one_that_cannot_be_read_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NAME), "{ torn").unwrap();
        let mounts = loaded(dir.path()).await;
        assert_eq!((mounts.all(), mounts.unread()), (vec![], None));
        assert!(dir.path().join("hand-mounts.json.bad-1").exists());
        mounts.put(mount(1, "/a", true)).await.unwrap();

        let other = tempfile::tempdir().unwrap();
        // A directory cannot be read as a file.
        std::fs::create_dir(other.path().join(NAME)).unwrap();
        let mounts = loaded(other.path()).await;
        assert!(mounts.unread().is_some());
        assert!(mounts.put(mount(1, "/a", true)).await.is_err());
        assert_eq!(mounts.all(), []);
        assert!(other.path().join(NAME).is_dir());
    }
}
