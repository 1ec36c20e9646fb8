//! State of the controller that outlives its process: the nodes that were sent a create whose outcome is unknown, and the volumes of
//! forgotten nodes that were deleted.
//!
//! Losing it loses no volume data: a create in doubt may leave a volume without a claim (`volumes --unclaimed` lists it), and a forgotten
//! node that returns lists deleted volumes as existing. It is one file, written whole under another name, synced and renamed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::state_troubles::{StateKind, StateTroubles, Trouble};
use drivebay_common::files::{self, Durability};

/// Version of the file's format. [`Notes::open`] fails on a newer one.
const FORMAT: u32 = 1;
const FILE: &str = "notes.json";
/// Timeout of one write of a few kilobytes, including its sync.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// Largest number of CSI names in doubt. Beyond it, no further create is begun; concurrent ones may exceed it slightly.
const MAX_DOUBTS: usize = 10_000;
/// Time for which a node has to be connected after it was last sent a create of a name until that doubt ends without an answer: no
/// create takes as long, so the node lists the volume or has none.
const DOUBT_ENDS_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The state file cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum NotesError {
    #[error("cannot make the state directory {path}; see --state-dir")]
    Dir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A newer controller wrote the file. It was not changed.
    #[error(
        "{path} has format {format}, and this controller reads format {FORMAT}: a newer controller wrote it. Nothing was changed. Run that controller again; or move the file away, to lose which creates are in doubt and which volumes of forgotten nodes were deleted"
    )]
    Newer {
        path: PathBuf,
        /// The file's value of `format`.
        format: String,
    },
    /// Nothing was recorded: an earlier doubt would have to be dropped, and a repeat of its create could make a second volume.
    #[error(
        "{MAX_DOUBTS} creates have an unknown outcome, so no further one is begun; see that the agents run: a doubt ends when the call is repeated, and otherwise after the node has been connected for a day. Forget nodes that never return with `node forget`"
    )]
    Full,
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
    /// Volumes deleted while their node was forgotten, with the time of the deletion in seconds since 1970.
    deleted: BTreeMap<String, u64>,
    /// Forgotten nodes that have returned, with the time of the `node forget` that this ended, in seconds since 1970.
    #[serde(default)]
    returned: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Format {
    format: serde_json::Value,
}

/// A change that is saved to the file before it takes effect in memory.
#[derive(Debug)]
enum Change {
    Doubt { name: String, node: String },
    Delete { id: String, at: u64 },
}

impl Contents {
    /// Merges contents that were recorded earlier than these. Of the same id, `deleted` takes the earlier record and `returned`
    /// keeps this one.
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

    fn settle(&mut self, name: &str, node: &str) {
        if let Some(nodes) = self.doubts.get_mut(name) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.doubts.remove(name);
            }
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Doubt { name, node } => {
                let nodes = self.doubts.entry(name.clone()).or_default();
                nodes.insert(node.clone());
            }
            Change::Delete { id, at } => {
                self.deleted.entry(id.clone()).or_insert(*at);
            }
        }
    }
}

/// A change that waits to be written, and the channel for the result of the write.
#[derive(Debug)]
struct Proposal {
    change: Change,
    done: oneshot::Sender<io::Result<()>>,
}

#[derive(Debug, Default)]
struct Kept {
    contents: Contents,
    // Increases with every change of the contents that is still to be written.
    changes: u64,
    // By name and node of a doubt: since when each look has found the node connected or forgotten, and no further create was sent.
    listed_since: HashMap<(String, String), Instant>,
    // Changes that the next write adds to the file. They become part of `contents` when that write succeeds.
    proposed: Vec<Proposal>,
    // Error of the last read of the file, if it failed. While it is set, the file is not written.
    unread: Option<String>,
}

#[derive(Debug)]
struct Inner {
    path: Option<PathBuf>,
    kept: Mutex<Kept>,
    // Value of `changes` at the last successful write. The lock serialises writes.
    written: tokio::sync::Mutex<u64>,
    troubles: StateTroubles,
}

/// Handle to the state file. Clones share one state.
#[derive(Debug, Clone)]
pub struct Notes {
    inner: Arc<Inner>,
}

impl Notes {
    /// Returns empty state that is never written to a file.
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

    /// Opens the state file in this directory, which is created if missing. Moves a damaged file aside and starts empty. Leaves an
    /// unreadable file as it is, and fails durable changes until [`keep_up`](Self::keep_up) has read it. Both raise a finding. Blocks.
    ///
    /// # Errors
    /// The directory cannot be created, or a newer controller wrote the file.
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

    pub fn troubles(&self) -> &StateTroubles {
        &self.inner.troubles
    }

    /// Retries the read of an unreadable file, clears the finding of a damaged copy that was removed, and writes pending changes.
    /// Must be called periodically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn keep_up(&self) -> Result<(), NotesError> {
        let Some(path) = &self.inner.path else {
            return Ok(());
        };
        self.read_again(path).await;
        let troubles = &self.inner.troubles;
        for copy in troubles.files(Trouble::SetAside, StateKind::Notes) {
            let at = copy.clone();
            let metadata = files::work(WRITE_DEADLINE, move || at.symlink_metadata().map(drop));
            if metadata
                .await
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            {
                troubles.clear(Trouble::SetAside, StateKind::Notes, &copy);
            }
        }
        self.flush().await
    }

    // The file's contents are older than those in memory. The lock keeps the file from being written meanwhile.
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

    fn inspect<T>(&self, inspect: impl FnOnce(&Contents) -> T) -> T {
        inspect(&self.lock().contents)
    }

    /// Records durably, before the node is sent a create of this name, that the create's outcome is unknown.
    ///
    /// # Errors
    /// The file cannot be written, or too many names are in doubt; nothing was recorded.
    pub async fn doubt(&self, name: &str, node: &str) -> Result<(), NotesError> {
        self.has_room(name)?;
        let change = self.new_doubt(name, node);
        self.save(change).await
    }

    /// Records the same in memory. The next write makes it durable, at the latest [`flush`](Self::flush).
    ///
    /// # Errors
    /// Too many names are in doubt; nothing was recorded.
    pub fn doubt_soon(&self, name: &str, node: &str) -> Result<(), NotesError> {
        self.has_room(name)?;
        let change = self.new_doubt(name, node);
        self.change(|contents| contents.apply(&change));
        Ok(())
    }

    // From now on, the earlier time for which the node was listed says nothing.
    fn new_doubt(&self, name: &str, node: &str) -> Change {
        let (name, node) = (name.to_owned(), node.to_owned());
        let of_doubt = (name.clone(), node.clone());
        self.lock().listed_since.remove(&of_doubt);
        Change::Doubt { name, node }
    }

    fn has_room(&self, name: &str) -> Result<(), NotesError> {
        let has_room = |contents: &Contents| {
            contents.doubts.len() < MAX_DOUBTS || contents.doubts.contains_key(name)
        };
        match self.inspect(has_room) {
            true => Ok(()),
            false => Err(NotesError::Full),
        }
    }

    /// Ends the doubt after the node's final answer. The next write makes that durable.
    pub fn settle(&self, name: &str, node: &str) {
        self.change(|contents| contents.settle(name, node));
    }

    /// Ends the doubts of nodes for which `is_known` was true at each call of this function for a day: a node is connected with a
    /// complete inventory, or forgotten. Must be called periodically.
    pub fn settle_listed(&self, is_known: impl Fn(&str) -> bool, now: Instant) {
        let nodes: BTreeSet<String> = self.all_doubts().into_iter().flatten().collect();
        let known: BTreeSet<String> = nodes.into_iter().filter(|node| is_known(node)).collect();
        // One lock for all of it: a doubt that is recorded meanwhile must not end with the earlier one.
        let mut kept = self.lock();
        let Kept {
            contents,
            changes,
            listed_since,
            ..
        } = &mut *kept;
        let is_listed = |name: &str, node: &str| {
            let nodes = contents.doubts.get(name);
            known.contains(node) && nodes.is_some_and(|nodes| nodes.contains(node))
        };
        listed_since.retain(|(name, node), _| is_listed(name, node));
        for (name, nodes) in &contents.doubts {
            for node in nodes.intersection(&known) {
                let of_doubt = (name.clone(), node.clone());
                listed_since.entry(of_doubt).or_insert(now);
            }
        }
        let has_ended = |since: &Instant| now.saturating_duration_since(*since) >= DOUBT_ENDS_AFTER;
        for ((name, node), _) in listed_since.extract_if(|_, since| has_ended(since)) {
            tracing::info!(name, node, "create in doubt ended without an answer");
            contents.settle(&name, &node);
            *changes += 1;
        }
    }

    /// Returns the nodes that were sent a create of this name and have not given a final answer.
    pub fn doubts(&self, name: &str) -> BTreeSet<String> {
        self.inspect(|contents| contents.doubts.get(name).cloned().unwrap_or_default())
    }

    /// Returns the nodes of each name in doubt, one set for each name.
    pub fn all_doubts(&self) -> Vec<BTreeSet<String>> {
        self.inspect(|contents| contents.doubts.values().cloned().collect())
    }

    /// Records durably that this volume of a forgotten node was deleted. An earlier record of the same volume keeps its time.
    ///
    /// # Errors
    /// The file cannot be written; nothing was recorded.
    pub async fn note_delete(&self, id: &str) -> Result<(), NotesError> {
        let at = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let id = id.to_owned();
        self.save(Change::Delete { id, at }).await
    }

    /// Returns the ids of the volumes of this node that were deleted while it was forgotten.
    pub fn undelivered_deletes(&self, node: &str) -> Vec<String> {
        self.inspect(|contents| {
            let ids = contents.deleted.keys();
            ids.filter(|id| id.rsplit_once('@').is_some_and(|(_, on)| on == node))
                .cloned()
                .collect()
        })
    }

    /// Removes the record of a delete that the node's agent has persisted itself.
    pub fn delete_delivered(&self, id: &str) {
        self.change(|contents| contents.deleted.remove(id));
    }

    /// Records that a forgotten node has returned. `given_up_at`: time of the `node forget` that this ends, seconds since 1970.
    pub fn returned(&self, node: &str, given_up_at: u64) {
        self.change(|contents| contents.returned.insert(node.to_owned(), given_up_at));
    }

    /// True if the node has returned since it was forgotten at this time, seconds since 1970.
    pub fn has_returned(&self, node: &str, given_up_at: u64) -> bool {
        self.inspect(|contents| contents.returned.get(node) == Some(&given_up_at))
    }

    /// Writes the file if anything has changed since the last write. Does nothing for state without a file.
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

    // The file is written before the change takes effect in memory. One write saves all proposals, so this one may be written
    // already when the lock is acquired.
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
            // The task that took this proposal was cancelled before its write ended.
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
            // The receiver may have been dropped; the change is in the file nonetheless.
            let _ = proposal.done.send(answer);
        }
        result.map_err(|source| NotesError::Write {
            path: path.to_owned(),
            source,
        })
    }
}

/// Path to which a damaged file is moved.
fn aside(path: &Path) -> PathBuf {
    path.with_file_name(format!("{FILE}.damaged"))
}

/// Reads the file. None if it does not exist, or was damaged and moved aside. The inner error: it cannot be read, or is damaged and
/// cannot be moved aside. The outer error: a newer controller wrote it. Blocks.
fn read(path: &Path, troubles: &StateTroubles) -> Result<io::Result<Option<Contents>>, NotesError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
        Err(error) => return Ok(Err(error)),
    };
    // The format is checked first: a newer file may have other fields.
    if let Ok(Format { format }) = serde_json::from_slice(&text)
        && format.as_u64().is_none_or(|number| number > FORMAT.into())
    {
        return Err(NotesError::Newer {
            path: path.to_owned(),
            format: format.to_string(),
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
