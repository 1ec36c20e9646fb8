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
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

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

/// What must be in the file before it is believed.
#[derive(Debug)]
enum Change {
    Doubt { name: String, node: String },
    Delete { id: String, at: u64 },
}

impl Contents {
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Doubt { name, node } => {
                let nodes = self.doubts.entry(name.clone()).or_default();
                nodes.insert(node.clone());
                while self.doubts.len() > MAX_DOUBTS {
                    self.doubts.pop_first();
                }
            }
            Change::Delete { id, at } => {
                self.deleted.entry(id.clone()).or_insert(*at);
            }
        }
    }
}

/// A change that somebody waits for.
#[derive(Debug)]
struct Proposal {
    change: Change,
    done: oneshot::Sender<io::Result<()>>,
}

#[derive(Debug, Default)]
struct Kept {
    contents: Contents,
    // Grows with every change of the contents.
    changes: u64,
    // Written with the contents next, and part of them after that.
    proposed: Vec<Proposal>,
}

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    kept: Mutex<Kept>,
    // The change up to which the file holds everything.
    written: tokio::sync::Mutex<u64>,
    // The last attempt to write it failed.
    is_unsaved: AtomicBool,
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
            ..Kept::default()
        };
        Self {
            inner: Arc::new(Inner {
                path,
                kept: Mutex::new(kept),
                written: tokio::sync::Mutex::new(0),
                is_unsaved: AtomicBool::new(false),
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

    fn change<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> T {
        let mut kept = self.lock();
        let result = change(&mut kept.contents);
        kept.changes += 1;
        result
    }

    fn look<T>(&self, look: impl FnOnce(&Contents) -> T) -> T {
        look(&self.lock().contents)
    }

    /// Notes durably that the node is going to be sent a create of this name.
    ///
    /// # Errors
    /// It could not be written, and is not noted.
    pub async fn doubt(&self, name: &str, node: &str) -> Result<(), NotesError> {
        let (name, node) = (name.to_owned(), node.to_owned());
        self.save(Change::Doubt { name, node }).await
    }

    /// The same, made durable with what is written next, at the latest by `flush`.
    pub fn doubt_soon(&self, name: &str, node: &str) {
        let (name, node) = (name.to_owned(), node.to_owned());
        self.change(|contents| contents.apply(&Change::Doubt { name, node }));
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
    ///
    /// # Errors
    /// It could not be written, and is not noted.
    pub async fn note_delete(&self, id: &str) -> Result<(), NotesError> {
        let at = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let id = id.to_owned();
        self.save(Change::Delete { id, at }).await
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

    /// Whether the last attempt to write them failed.
    pub fn is_unsaved(&self) -> bool {
        self.inner.is_unsaved.load(Ordering::Relaxed)
    }

    /// Writes what has changed.
    pub async fn flush(&self) -> Result<(), NotesError> {
        let Some(path) = &self.inner.path else {
            return Ok(());
        };
        let mut written = self.inner.written.lock().await;
        if *written >= self.lock().changes {
            return Ok(());
        }
        self.write_all(path, &mut written).await
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        let kept = self.inner.kept.lock();
        kept.unwrap_or_else(PoisonError::into_inner)
    }

    // The file first, then what is believed. Whoever waits for the one that writes may find its own change written.
    async fn save(&self, change: Change) -> Result<(), NotesError> {
        let Some(path) = &self.inner.path else {
            self.change(|contents| contents.apply(&change));
            return Ok(());
        };
        let (done, mut result) = oneshot::channel();
        self.lock().proposed.push(Proposal { change, done });
        let mut written = self.inner.written.lock().await;
        let failed = |source| NotesError::Write {
            path: path.clone(),
            source,
        };
        match result.try_recv() {
            Ok(result) => return result.map_err(failed),
            Err(oneshot::error::TryRecvError::Empty) => {}
            // Whoever wrote it has gone in the middle of it.
            Err(oneshot::error::TryRecvError::Closed) => {
                return Err(failed(io::Error::from(io::ErrorKind::Interrupted)));
            }
        }
        self.write_all(path, &mut written).await
    }

    async fn write_all(&self, path: &Path, written: &mut u64) -> Result<(), NotesError> {
        let (mut contents, changes, proposed) = {
            let mut kept = self.lock();
            let proposed = std::mem::take(&mut kept.proposed);
            (kept.contents.clone(), kept.changes, proposed)
        };
        for proposal in &proposed {
            contents.apply(&proposal.change);
        }
        contents.format = FORMAT;
        let to = path.to_owned();
        let result = files::work(WRITE_DEADLINE, move || write(&to, &contents)).await;
        self.inner
            .is_unsaved
            .store(result.is_err(), Ordering::Relaxed);
        if result.is_ok() {
            let mut kept = self.lock();
            for proposal in &proposed {
                kept.contents.apply(&proposal.change);
            }
            *written = changes;
        }
        for proposal in proposed {
            let answer = match &result {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            // Whoever asked may have gone; it is in the file all the same.
            let _ = proposal.done.send(answer);
        }
        result.map_err(|source| NotesError::Write {
            path: path.to_owned(),
            source,
        })
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
        assert!(notes.is_unsaved());
        // Nor is it believed: nothing was done.
        assert!(notes.doubts("v").is_empty() && notes.undelivered_deletes("a").is_empty());
        fs::remove_dir(dir.path().join("notes.json.new")).unwrap();
        notes.doubt("w", "a").await.unwrap();
        notes.flush().await.unwrap();
        assert!(!notes.is_unsaved());
        let again = Notes::open(dir.path()).unwrap();
        assert!(again.doubts("v").is_empty() && again.undelivered_deletes("a").is_empty());
        assert_eq!(again.doubts("w"), ["a".into()].into());
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
