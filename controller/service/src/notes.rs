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
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::state_troubles::{StateKind, StateTroubles, Trouble};
use drivebay_common::files::{self, Durability};

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
    /// Puts what was noted earlier before this.
    fn follow(&mut self, earlier: Self) {
        for (name, nodes) in earlier.doubts {
            self.doubts.entry(name).or_default().extend(nodes);
        }
        for (id, at) in earlier.deleted {
            self.deleted.insert(id, at);
        }
        for (node, at) in earlier.returned {
            self.returned.entry(node).or_insert(at);
        }
    }

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
    // Why the file's contents are not known, if so: then it is not written.
    unread: Option<String>,
}

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    kept: Mutex<Kept>,
    // The change up to which the file holds everything.
    written: tokio::sync::Mutex<u64>,
    troubles: StateTroubles,
}

/// The notes. Clones share them.
#[derive(Debug, Clone)]
pub struct Notes {
    inner: Arc<Inner>,
}

impl Notes {
    /// Notes that end with this process.
    pub fn in_memory() -> Self {
        Self::new(None, Kept::default(), StateTroubles::default())
    }

    fn new(path: Option<PathBuf>, kept: Kept, troubles: StateTroubles) -> Self {
        Self {
            inner: Arc::new(Inner {
                path,
                kept: Mutex::new(kept),
                written: tokio::sync::Mutex::new(0),
                troubles,
            }),
        }
    }

    /// The notes in this directory, which is made if need be. A damaged file is put aside; one that cannot be read is left as it is,
    /// and nothing is noted durably until `keep_up` has read it. Both are findings. Blocks.
    pub fn open(dir: &Path) -> Result<Self, NotesError> {
        fs::create_dir_all(dir).map_err(|source| NotesError::Dir {
            path: dir.to_owned(),
            source,
        })?;
        let path = dir.join(FILE);
        let troubles = StateTroubles::default();
        let aside = aside(&path);
        if aside.symlink_metadata().is_ok() {
            troubles.raise(Trouble::SetAside, StateKind::Notes, &aside, String::new());
        }
        let kept = match read(&path, &troubles)? {
            Ok(contents) => Kept {
                contents: contents.unwrap_or_default(),
                ..Kept::default()
            },
            Err(error) => {
                let why = error.to_string();
                tracing::error!(path = %path.display(), %error, "cannot read controller state; it is not overwritten");
                troubles.raise(Trouble::NotRead, StateKind::Notes, &path, why.clone());
                Kept {
                    unread: Some(why),
                    ..Kept::default()
                }
            }
        };
        Ok(Self::new(Some(path), kept, troubles))
    }

    /// What is wrong with the controller's state files.
    pub fn troubles(&self) -> &StateTroubles {
        &self.inner.troubles
    }

    /// Reads the file again if it could not be read, looks whether a copy that was moved aside is still there, and writes what has
    /// changed. To be called from time to time.
    ///
    /// # Errors
    /// It could not be written.
    pub async fn keep_up(&self) -> Result<(), NotesError> {
        let Some(path) = &self.inner.path else {
            return Ok(());
        };
        self.read_again(path).await;
        let troubles = &self.inner.troubles;
        for copy in troubles.files(Trouble::SetAside, StateKind::Notes) {
            let at = copy.clone();
            let looked = files::work(WRITE_DEADLINE, move || at.symlink_metadata().map(drop));
            if looked
                .await
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            {
                troubles.clear(Trouble::SetAside, StateKind::Notes, &copy);
            }
        }
        self.flush().await
    }

    // What was noted since comes after what the file has. Nothing is written meanwhile.
    async fn read_again(&self, path: &Path) {
        let _written = self.inner.written.lock().await;
        if self.lock().unread.is_none() {
            return;
        }
        let (at, troubles) = (path.to_owned(), self.inner.troubles.clone());
        let read = files::work(WRITE_DEADLINE, move || {
            read(&at, &troubles).map_err(io::Error::other)?
        });
        let Ok(contents) = read.await else { return };
        let mut kept = self.lock();
        kept.contents.follow(contents.unwrap_or_default());
        kept.changes += 1;
        kept.unread = None;
        drop(kept);
        let troubles = &self.inner.troubles;
        troubles.clear(Trouble::NotRead, StateKind::Notes, path);
        tracing::info!(path = %path.display(), "controller state read after an earlier failure");
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
        let unread = self.lock().unread.clone();
        let result = match unread {
            Some(why) => Err(io::Error::other(format!(
                "its earlier contents could not be read and are not overwritten: {why}"
            ))),
            None => files::work(WRITE_DEADLINE, move || write(&to, &contents)).await,
        };
        let troubles = &self.inner.troubles;
        match &result {
            Ok(()) => troubles.clear(Trouble::NotSaved, StateKind::Notes, path),
            Err(error) => {
                let why = error.to_string();
                troubles.raise(Trouble::NotSaved, StateKind::Notes, path, why)
            }
        };
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

/// Where a damaged file is moved.
fn aside(path: &Path) -> PathBuf {
    path.with_file_name(format!("{FILE}.damaged"))
}

/// The file's contents; None: there is none, or it was damaged, and was moved aside. The inner error: it cannot be read, or is
/// damaged and cannot be moved aside. Blocks.
fn read(path: &Path, troubles: &StateTroubles) -> Result<io::Result<Option<Contents>>, NotesError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
        Err(error) => return Ok(Err(error)),
    };
    // The format first: a newer one need not look like ours.
    if let Ok(Format { format }) = serde_json::from_slice(&text)
        && format.as_u64().is_none_or(|found| found > FORMAT.into())
    {
        return Err(NotesError::Newer {
            path: path.to_owned(),
            found: format.to_string(),
        });
    }
    match serde_json::from_slice::<Contents>(&text) {
        Ok(contents) if contents.format == FORMAT => Ok(Ok(Some(contents))),
        damaged => {
            let aside = aside(path);
            tracing::error!(
                path = %path.display(),
                aside = %aside.display(),
                error = damaged.err().map(|error| error.to_string()),
                "damaged controller state moved aside; starting with empty state"
            );
            Ok(fs::rename(path, &aside).map(|()| {
                troubles.raise(Trouble::SetAside, StateKind::Notes, &aside, String::new());
                None
            }))
        }
    }
}

fn write(path: &Path, contents: &Contents) -> io::Result<()> {
    files::replace(path, &serde_json::to_vec(contents)?, Durability::Durable)
}

#[cfg(test)]
#[path = "notes_tests.rs"]
mod tests;
