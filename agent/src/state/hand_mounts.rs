//! Mounts that were made by hand: which volume is mounted where, and whether at each start of the host, too.
//!
//! It tells a person's mounts from an orchestrator's, which are nobody else's to take away, and it is all that remembers what
//! is to be mounted after a reboot. One small file in the state directory. Losing it loses no data.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::StateError;
use crate::sys::{offload::offload, statefile};

/// Format of the file; one of a newer version is refused at the start.
pub(crate) const VERSION: u32 = 1;
/// Its name in the state directory.
pub(crate) const NAME: &str = "hand-mounts.json";
/// Bytes; a thousand mounts are 300 KiB.
const MAX_FILE: u64 = 16 * 1024 * 1024;
/// Reading or writing takes no longer than this, or the system's drive is in trouble.
const DEADLINE: Duration = Duration::from_secs(10);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandMount {
    pub volume: Uuid,
    /// For people, and to find the volume while its drive is missing.
    pub name: String,
    /// As the mount table has it: to find it again asks no drive.
    pub path: PathBuf,
    /// A raw volume, whose device is bound onto a file.
    pub block: bool,
    /// Added to the volume's own.
    pub flags: Vec<String>,
    pub read_only: bool,
    /// At each start of the host. Else it is known until it is unmounted or the host is booted.
    pub persist: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    version: u32,
    mounts: Vec<HandMount>,
}

#[derive(Debug, Default)]
struct Inner {
    mounts: Vec<HandMount>,
    /// Why the file could not be read: then it is not written, either.
    unread: Option<String>,
}

/// All of this host, one per volume. Clones are the same.
#[derive(Debug, Clone)]
pub struct HandMounts {
    path: PathBuf,
    inner: Arc<Mutex<Inner>>,
}

impl HandMounts {
    /// Kept in this directory; nothing is known before `load`.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join(NAME),
            inner: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file. A damaged one is put aside; one that cannot be read is left, and so are the mounts that it names.
    pub async fn load(&self) {
        let path = self.path.clone();
        let done = offload("hand-mounts", DEADLINE, move || read(&path)).await;
        let mut inner = self.lock();
        match done.and_then(|read| read) {
            Ok(mounts) => inner.mounts = mounts,
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "cannot read the list of mounts made by hand; none is added or removed until the agent restarts");
                inner.unread = Some(error.to_string());
            }
        }
    }

    /// Why the file could not be read, if so: what is mounted by hand is not known then.
    pub fn unread(&self) -> Option<String> {
        self.lock().unread.clone()
    }

    /// Every one.
    pub fn all(&self) -> Vec<HandMount> {
        self.lock().mounts.clone()
    }

    /// That of a volume.
    pub fn of(&self, volume: Uuid) -> Option<HandMount> {
        let inner = self.lock();
        inner
            .mounts
            .iter()
            .find(|one| one.volume == volume)
            .cloned()
    }

    /// Adds or replaces the one of its volume, durably.
    ///
    /// # Errors
    /// It is not known whether it is in the file.
    pub async fn put(&self, mount: HandMount) -> Result<(), StateError> {
        self.change(|mounts| {
            mounts.retain(|one| one.volume != mount.volume);
            mounts.push(mount);
        })
        .await
    }

    /// Forgets the one of a volume, durably.
    ///
    /// # Errors
    /// It is not known whether it is in the file.
    pub async fn remove(&self, volume: Uuid) -> Result<(), StateError> {
        if self.of(volume).is_none() {
            return Ok(());
        }
        self.change(|mounts| mounts.retain(|one| one.volume != volume))
            .await
    }

    async fn change(&self, change: impl FnOnce(&mut Vec<HandMount>)) -> Result<(), StateError> {
        let failed = |source| StateError {
            path: self.path.clone(),
            source,
        };
        {
            let mut inner = self.lock();
            if let Some(why) = &inner.unread {
                return Err(failed(io::Error::other(why.clone())));
            }
            change(&mut inner.mounts);
        }
        // What is there when it is this write's turn: a later change is never replaced by an earlier one.
        let inner = self.inner.clone();
        let text = move || {
            let inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
            let file = File {
                version: VERSION,
                mounts: inner.mounts.clone(),
            };
            Ok(serde_json::to_vec_pretty(&file)?)
        };
        statefile::save(self.path.clone(), DEADLINE, text)
            .await
            .map_err(failed)
    }
}

fn read(path: &Path) -> io::Result<Vec<HandMount>> {
    let bytes = match statefile::read(path, MAX_FILE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    match serde_json::from_slice::<File>(&bytes) {
        Ok(file) => Ok(file.mounts),
        Err(error) => {
            let aside = statefile::move_aside(path)?;
            tracing::error!(%error, aside = %aside.display(), "invalid list of mounts made by hand moved aside; mount the volumes again with --persist");
            Ok(Vec::new())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::golden;

    fn mount(n: u128, path: &str, persist: bool) -> HandMount {
        HandMount {
            volume: Uuid::from_u128(n),
            name: format!("v{n}"),
            path: path.into(),
            block: false,
            flags: vec!["noatime".into()],
            read_only: false,
            persist,
        }
    }

    async fn loaded(dir: &Path) -> HandMounts {
        let mounts = HandMounts::new(dir);
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
