//! The little that should outlive a controller process: which node was sent which create whose outcome is
//! not known, and which volumes of given-up nodes were deleted.
//!
//! Disposable like everything here: without it a create in doubt may leave a volume that nobody claims
//! (`volumes --unclaimed` lists it), and a node that comes back after all shows what was deleted as live. No data
//! is lost either way. One file, written whole under another name, synced and renamed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::files::{self, Durability};

/// The file's format. A controller does not start on a newer one.
const FORMAT: u32 = 1;
const FILE: &str = "notes.json";
/// A disk that takes longer to write a few kilobytes is in trouble.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// Names in doubt that are kept; beyond, the first by name are dropped.
const MAX_DOUBTS: usize = 10_000;

/// A note could not be made durable.
#[derive(Debug, thiserror::Error)]
pub enum NotesError {
    /// The directory.
    #[error("cannot make the state directory {path}; see --state-dir")]
    Dir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Reading.
    #[error("cannot read {path}; remove it if it is damaged, no data is lost by that")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A newer controller has been here.
    #[error(
        "{path} has format {found}, and this controller reads format {FORMAT}: a newer controller wrote it. Nothing was changed. Run that controller again; or move the file away, to lose which creates are in doubt and which volumes of forgotten nodes were deleted"
    )]
    Newer {
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// Writing.
    #[error("cannot write {path}, so nothing was done; make room or see --state-dir")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Contents {
    format: u32,
    /// By CSI name: the nodes that were sent a create and have not given a final answer.
    doubts: BTreeMap<String, BTreeSet<String>>,
    /// Volumes deleted while their node was given up, with the time in unix seconds.
    deleted: BTreeMap<String, u64>,
    /// Nodes that came back after they were given up, with the time of the giving up that this ended, unix seconds.
    #[serde(default)]
    returned: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Format {
    format: serde_json::Value,
}

#[derive(Debug, Default)]
struct Kept {
    contents: Contents,
    // Grows with every change.
    changes: u64,
}

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    kept: Mutex<Kept>,
    // The change up to which the file holds everything.
    written: tokio::sync::Mutex<u64>,
}

/// The notes. Clones share them.
#[derive(Debug, Clone)]
pub struct Notes {
    inner: Arc<Inner>,
}

impl Notes {
    /// Notes that end with this process.
    pub fn in_memory() -> Self {
        Self::new(None, Contents::default())
    }

    fn new(path: Option<PathBuf>, contents: Contents) -> Self {
        let kept = Kept {
            contents,
            changes: 0,
        };
        Self {
            inner: Arc::new(Inner {
                path,
                kept: Mutex::new(kept),
                written: tokio::sync::Mutex::new(0),
            }),
        }
    }

    /// The notes in this directory, which is made if need be. A damaged file is put aside, with a warning. Blocks.
    pub fn open(dir: &Path) -> Result<Self, NotesError> {
        fs::create_dir_all(dir).map_err(|source| NotesError::Dir {
            path: dir.to_owned(),
            source,
        })?;
        let path = dir.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::new(Some(path), Contents::default()));
            }
            Err(source) => return Err(NotesError::Read { path, source }),
        };
        // The format first: a newer one need not look like ours.
        if let Ok(Format { format }) = serde_json::from_slice(&text)
            && format.as_u64().is_none_or(|found| found > FORMAT.into())
        {
            let found = format.to_string();
            return Err(NotesError::Newer { path, found });
        }
        let contents = match serde_json::from_slice::<Contents>(&text) {
            Ok(contents) if contents.format == FORMAT => contents,
            damaged => {
                let aside = dir.join(format!("{FILE}.damaged"));
                tracing::warn!(
                    path = %path.display(),
                    aside = %aside.display(),
                    error = damaged.err().map(|error| error.to_string()),
                    "damaged controller state moved aside; starting with empty state"
                );
                fs::rename(&path, &aside).map_err(|source| NotesError::Read {
                    path: path.clone(),
                    source,
                })?;
                Contents::default()
            }
        };
        Ok(Self::new(Some(path), contents))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> (T, u64) {
        let mut kept = self
            .inner
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut kept.contents);
        kept.changes += 1;
        (result, kept.changes)
    }

    fn look<T>(&self, look: impl FnOnce(&Contents) -> T) -> T {
        let kept = self
            .inner
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        look(&kept.contents)
    }

    /// Notes durably that the node is going to be sent a create of this name.
    pub async fn doubt(&self, name: &str, node: &str) -> Result<(), NotesError> {
        let change = self.note_doubt(name, node);
        self.written(change).await
    }

    /// The same, made durable with what is written next, at the latest by `flush`.
    pub fn doubt_soon(&self, name: &str, node: &str) {
        self.note_doubt(name, node);
    }

    fn note_doubt(&self, name: &str, node: &str) -> u64 {
        let ((), change) = self.change(|contents| {
            contents
                .doubts
                .entry(name.to_owned())
                .or_default()
                .insert(node.to_owned());
            while contents.doubts.len() > MAX_DOUBTS {
                contents.doubts.pop_first();
            }
        });
        change
    }

    /// The node has given its final answer.
    pub fn settle(&self, name: &str, node: &str) {
        self.change(|contents| {
            if let Some(nodes) = contents.doubts.get_mut(name) {
                nodes.remove(node);
                if nodes.is_empty() {
                    contents.doubts.remove(name);
                }
            }
        });
    }

    /// The nodes that were sent a create of this name and have not given a final answer.
    pub fn doubts(&self, name: &str) -> BTreeSet<String> {
        self.look(|contents| contents.doubts.get(name).cloned().unwrap_or_default())
    }

    /// For each name in doubt, its nodes.
    pub fn all_doubts(&self) -> Vec<BTreeSet<String>> {
        self.look(|contents| contents.doubts.values().cloned().collect())
    }

    /// Notes durably that this volume of a forgotten node was deleted.
    pub async fn note_delete(&self, id: &str) -> Result<(), NotesError> {
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let ((), change) = self.change(|contents| {
            contents.deleted.entry(id.to_owned()).or_insert(now);
        });
        self.written(change).await
    }

    /// The volumes of this node that were deleted while it was forgotten.
    pub fn undelivered_deletes(&self, node: &str) -> Vec<String> {
        self.look(|contents| {
            let ids = contents.deleted.keys();
            ids.filter(|id| id.rsplit_once('@').is_some_and(|(_, on)| on == node))
                .cloned()
                .collect()
        })
    }

    /// The node itself knows now that the volume was deleted.
    pub fn delete_delivered(&self, id: &str) {
        self.change(|contents| contents.deleted.remove(id));
    }

    /// The node has come back, so its giving up at this time (unix seconds) no longer holds.
    pub fn returned(&self, node: &str, given_up_at: u64) {
        self.change(|contents| contents.returned.insert(node.to_owned(), given_up_at));
    }

    /// Whether the node has come back since it was given up at this time.
    pub fn has_returned(&self, node: &str, given_up_at: u64) -> bool {
        self.look(|contents| contents.returned.get(node) == Some(&given_up_at))
    }

    /// Writes what has changed.
    pub async fn flush(&self) -> Result<(), NotesError> {
        let changes = self
            .inner
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .changes;
        self.written(changes).await
    }

    // Sees to it that the file holds this change. Whoever waits for the one that writes may find its own change written.
    async fn written(&self, change: u64) -> Result<(), NotesError> {
        let Some(path) = self.inner.path.clone() else {
            return Ok(());
        };
        let mut written = self.inner.written.lock().await;
        if *written >= change {
            return Ok(());
        }
        let (mut contents, changes) = {
            let kept = self
                .inner
                .kept
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            (kept.contents.clone(), kept.changes)
        };
        contents.format = FORMAT;
        let to = path.clone();
        let result = files::work(WRITE_DEADLINE, move || write(&to, &contents)).await;
        result.map_err(|source| NotesError::Write { path, source })?;
        *written = changes;
        Ok(())
    }
}

fn write(path: &Path, contents: &Contents) -> io::Result<()> {
    files::replace(path, &serde_json::to_vec(contents)?, Durability::Durable)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::golden;

    #[tokio::test]
    async fn what_was_noted_durably_is_there_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        notes.doubt("v", "a").await.unwrap();
        notes.doubt("v", "b").await.unwrap();
        notes.note_delete("x@a").await.unwrap();
        let again = Notes::open(dir.path()).unwrap();
        assert_eq!(again.doubts("v"), ["a".into(), "b".into()].into());
        assert_eq!(again.undelivered_deletes("a"), ["x@a"]);
        assert!(again.undelivered_deletes("b").is_empty());
        again.settle("v", "a");
        again.settle("v", "b");
        again.delete_delivered("x@a");
        again.flush().await.unwrap();
        let last = Notes::open(dir.path()).unwrap();
        assert!(last.doubts("v").is_empty() && last.undelivered_deletes("a").is_empty());
    }

    #[tokio::test]
    async fn the_golden_file_is_read_and_written_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/notes.json");
        fs::copy(golden, dir.path().join(FILE)).unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        assert_eq!(notes.doubts("v"), ["a".into(), "b".into()].into());
        assert_eq!(notes.undelivered_deletes("a"), ["x@a"]);
        assert!(notes.has_returned("c", 1_795_410_496));
        notes.doubt("v", "a").await.unwrap();
        golden::compare(FILE, &fs::read(dir.path().join(FILE)).unwrap());
    }

    #[tokio::test]
    async fn a_damaged_file_is_put_aside_and_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{ torn").unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        notes.doubt("v", "a").await.unwrap();
        let aside = dir.path().join(format!("{FILE}.damaged"));
        assert_eq!(fs::read_to_string(aside).unwrap(), "{ torn");
    }

    #[test]
    fn a_file_of_a_newer_format_is_refused_and_left_as_it_is() {
        for format in ["2", "4294967296", "\"2\""] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE);
            let text = format!("{{\"format\":{format},\"doubts\":[]}}");
            fs::write(&path, &text).unwrap();
            let refused = Notes::open(dir.path());
            assert!(
                matches!(&refused, Err(NotesError::Newer { found, .. }) if found == format),
                "{refused:?}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        fs::create_dir(dir.path().join("notes.json.new")).unwrap();
        assert!(matches!(
            notes.doubt("v", "a").await,
            Err(NotesError::Write { .. })
        ));
        assert!(notes.note_delete("x@a").await.is_err());
    }

    #[tokio::test]
    async fn many_notes_at_once_are_all_written() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        let all = (0..200).map(|n| {
            let notes = notes.clone();
            tokio::spawn(async move { notes.doubt(&format!("v{n}"), "a").await })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap().unwrap();
        }
        let again = Notes::open(dir.path()).unwrap();
        assert!((0..200).all(|n| again.doubts(&format!("v{n}")).len() == 1));
    }
}
