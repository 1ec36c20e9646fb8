//! One file of the state directory: read at the start, replaced as a whole, and believed only as far as it was saved.
//!
//! Every state file is a `StateFile`, so that one that cannot be saved, cannot be read or was damaged is a finding, and what cannot
//! be read is never overwritten. `Saved` is one whose value nothing but the file holds: memory changes after the file did.

use std::{
    error::Error,
    io,
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    StateError,
    dir::{StateDir, StateKind, Trouble},
    newer,
};
use drivebay_model::cause::chain;
use drivebay_sys::{offload::offload, statefile};

/// Reading or writing one file takes no longer than this, or the system's drive is in trouble.
const DEADLINE: Duration = Duration::from_secs(10);

/// A file that could not be read is read again after this …
const AGAIN: Duration = Duration::from_secs(15);
/// … and one whose drive did not answer in time after this: each attempt holds a thread.
const AGAIN_AFTER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How often a task that holds a file calls `read_again`.
pub const TRY_EVERY: Duration = Duration::from_secs(20);

/// Why bytes are no state of this agent's.
pub type Damage = Box<dyn Error + Send + Sync>;

/// What a state file holds.
pub trait Stored: Sized + Send + 'static {
    /// Which file it is.
    const KIND: StateKind;

    /// Reads it.
    ///
    /// # Errors
    /// The bytes are damaged, or of another version.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage>;

    /// As it is written.
    ///
    /// # Errors
    /// It cannot be encoded.
    fn to_bytes(&self) -> io::Result<Vec<u8>>;
}

/// The file.
#[derive(Debug)]
pub struct StateFile<T> {
    dir: StateDir,
    path: PathBuf,
    /// Set while its contents are not known: then it is not written, either.
    unread: Mutex<Option<Unread>>,
    of: PhantomData<fn() -> T>,
}

/// A file that could not be read.
#[derive(Debug, Clone)]
struct Unread {
    why: String,
    again_at: Instant,
}

/// What a file is found to be.
enum Content<T> {
    Value(T),
    Absent,
    Damaged { why: String, aside: PathBuf },
}

impl<T: Stored> StateFile<T> {
    /// The file of this kind.
    pub fn new(dir: &StateDir) -> Self {
        Self::at(dir, dir.path_of(T::KIND))
    }

    /// One of many, for a drive or volume. `name` takes no `/`.
    pub fn of(dir: &StateDir, name: &str) -> Self {
        Self::at(dir, dir.path_of(T::KIND).join(format!("{name}.json")))
    }

    fn at(dir: &StateDir, path: PathBuf) -> Self {
        Self {
            dir: dir.clone(),
            path,
            unread: Mutex::new(None),
            of: PhantomData,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why its contents are not known, if so.
    pub fn unread(&self) -> Option<String> {
        let unread = self.lock_unread();
        unread.as_ref().map(|unread| unread.why.clone())
    }

    fn lock_unread(&self) -> MutexGuard<'_, Option<Unread>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file; None: there is none, or it was damaged, and was moved aside.
    ///
    /// # Errors
    /// It cannot be read, or is damaged and cannot be moved aside. It is left as it is, and not written until it was read.
    pub async fn load(&self) -> io::Result<Option<T>> {
        let path = self.path.clone();
        let read = offload("state-read", DEADLINE, move || read::<T>(&path)).await;
        let content = match read.and_then(|read| read) {
            Ok(content) => content,
            Err(error) => {
                let why = error.to_string();
                if self
                    .dir
                    .raise(Trouble::NotRead, T::KIND, &self.path, why.clone())
                {
                    tracing::error!(path = %self.path.display(), %error, "cannot read state file; it is not overwritten");
                }
                let pause = match error.kind() {
                    io::ErrorKind::TimedOut => AGAIN_AFTER_TIMEOUT,
                    _ => AGAIN,
                };
                *self.lock_unread() = Some(Unread {
                    why,
                    again_at: Instant::now() + pause,
                });
                return Err(error);
            }
        };
        *self.lock_unread() = None;
        self.dir.clear(Trouble::NotRead, T::KIND, &self.path);
        Ok(match content {
            Content::Value(value) => Some(value),
            Content::Absent => None,
            Content::Damaged { why, aside } => {
                tracing::error!(path = %self.path.display(), error = why, aside = %aside.display(), "damaged state file moved aside; starting without it");
                self.dir
                    .raise(Trouble::SetAside, T::KIND, &aside, String::new());
                None
            }
        })
    }

    /// Reads a file again that could not be read, every 15 s at most; of a drive that does not answer, every 30 min. What it holds
    /// comes before what is known since: until the caller has put both together, the file must not be saved. None: nothing is new,
    /// or there is no file any more, which may be saved from now on.
    pub async fn read_again(&self) -> Option<T> {
        let due = self.lock_unread().as_ref()?.again_at;
        if Instant::now() < due {
            return None;
        }
        let read = self.load().await.ok()?;
        tracing::info!(path = %self.path.display(), "state file read after an earlier failure");
        read
    }

    /// Makes the next attempt due now.
    #[cfg(any(test, feature = "test-support"))]
    pub fn make_due(&self) {
        if let Some(unread) = self.lock_unread().as_mut() {
            unread.again_at = Instant::now();
        }
    }

    /// Replaces the file, durably.
    ///
    /// # Errors
    /// The file has what it had. After a timeout it may have either.
    pub async fn save(&self, value: T) -> Result<(), StateError> {
        let saved = match self.unread() {
            Some(why) => Err(io::Error::other(format!(
                "its earlier contents could not be read and are not overwritten: {why}"
            ))),
            None => statefile::save(self.path.clone(), DEADLINE, move || value.to_bytes()).await,
        };
        match saved {
            Ok(()) => {
                if self.dir.clear(Trouble::NotSaved, T::KIND, &self.path) {
                    tracing::info!(path = %self.path.display(), "state file saved again");
                }
                Ok(())
            }
            Err(source) => {
                // Once, until it is saved or fails for another reason.
                if self
                    .dir
                    .raise(Trouble::NotSaved, T::KIND, &self.path, source.to_string())
                {
                    tracing::error!(path = %self.path.display(), error = %source, "cannot save state file; will retry");
                }
                let path = self.path.clone();
                Err(StateError { path, source })
            }
        }
    }

    /// Removes the file, of a drive or volume that is no more. It may be gone already.
    ///
    /// # Errors
    /// It is still there.
    pub async fn remove(&self) -> io::Result<()> {
        for trouble in [Trouble::NotSaved, Trouble::NotRead] {
            self.dir.clear(trouble, T::KIND, &self.path);
        }
        let path = self.path.clone();
        offload("state-remove", DEADLINE, move || statefile::remove(&path)).await?
    }
}

/// Blocks.
fn read<T: Stored>(path: &Path) -> io::Result<Content<T>> {
    let why = match statefile::read(path, T::KIND.max_bytes()) {
        Ok(bytes) => match T::from_bytes(&bytes) {
            Ok(value) => return Ok(Content::Value(value)),
            // A newer agent's: not damaged, and not to be moved.
            Err(damage) if newer::newer(&bytes, T::KIND.version()).is_some() => {
                return Err(io::Error::other(chain(&*damage)));
            }
            Err(damage) => chain(&*damage),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Absent),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => error.to_string(),
        Err(error) => return Err(error),
    };
    match statefile::move_aside(path) {
        Ok(aside) => Ok(Content::Damaged { why, aside }),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("it is damaged ({why}) and cannot be moved aside: {error}"),
        )),
    }
}

/// A value of which the file is the only truth.
#[derive(Debug)]
pub struct Saved<T> {
    file: StateFile<T>,
    value: Mutex<T>,
    /// Held by who changes it. True: the file may have another value, since saving this one was given up.
    turn: tokio::sync::Mutex<bool>,
}

impl<T: Stored + Clone + Default + PartialEq> Saved<T> {
    /// Nothing is known before `load`.
    pub fn new(dir: &StateDir) -> Self {
        Self {
            file: StateFile::new(dir),
            value: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file. One that cannot be read counts as empty, and cannot be changed.
    pub async fn load(&self) {
        // Logged, and a finding.
        if let Ok(read) = self.file.load().await {
            *self.lock() = read.unwrap_or_default();
        }
    }

    /// Reads a file again that could not be read. Nothing was changed since: what it holds is what is known.
    pub async fn read_again(&self) {
        // No change begins between the reading and the believing.
        let _turn = self.turn.lock().await;
        if let Some(read) = self.file.read_again().await {
            *self.lock() = read;
        }
    }

    /// Why the contents are not known, if so.
    pub fn unread(&self) -> Option<String> {
        self.file.unread()
    }

    /// Looks at what the file holds.
    pub fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock())
    }

    /// Changes the file, then what is known.
    ///
    /// # Errors
    /// The change could not be saved, and was not made.
    pub async fn change(&self, change: impl FnOnce(&mut T) + Send) -> Result<(), StateError> {
        let mut unsure = self.turn.lock().await;
        let mut next = self.lock().clone();
        change(&mut next);
        if !*unsure && next == *self.lock() && self.unread().is_none() {
            return Ok(());
        }
        *unsure = true;
        self.file.save(next.clone()).await?;
        *unsure = false;
        *self.lock() = next;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::state::dir::findings;

    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    struct Text(String);

    impl Stored for Text {
        const KIND: StateKind = StateKind::ManualMounts;

        fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
            Ok(Self(String::from_utf8(bytes.to_vec())?))
        }

        fn to_bytes(&self) -> io::Result<Vec<u8>> {
            Ok(self.0.clone().into_bytes())
        }
    }

    fn codes(dir: &StateDir) -> Vec<String> {
        let found = findings(&dir.troubles()).into_iter();
        found.map(|finding| finding.code).collect()
    }

    #[tokio::test]
    async fn what_could_not_be_saved_is_not_believed_and_is_a_finding_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let saved = Saved::<Text>::new(&state);
        saved.load().await;
        saved.change(|text| text.0 = "one".into()).await.unwrap();
        // A directory in the temporary file's place makes each write fail, also for root.
        let in_the_way = dir.path().join("hand-mounts.json.new");
        fs::create_dir(&in_the_way).unwrap();
        for _ in 0..2 {
            let error = saved
                .change(|text| text.0 = "two".into())
                .await
                .unwrap_err();
            assert!(error.to_string().contains("hand-mounts.json"), "{error}");
            assert_eq!(saved.look(|text| text.0.clone()), "one");
        }
        assert_eq!(codes(&state), ["StateNotSaved"]);
        fs::remove_dir(in_the_way).unwrap();
        saved.change(|_| ()).await.unwrap();
        assert_eq!(
            codes(&state),
            [""; 0],
            "written again, although nothing changes"
        );
        saved.change(|text| text.0 = "two".into()).await.unwrap();
        let again = Saved::<Text>::new(&state);
        again.load().await;
        assert_eq!(again.look(|text| text.0.clone()), "two");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_left_and_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let path = state.path_of(StateKind::ManualMounts);
        fs::create_dir(&path).unwrap();
        let saved = Saved::<Text>::new(&state);
        saved.load().await;
        assert!(saved.unread().is_some());
        assert_eq!(codes(&state), ["StateNotRead"]);
        let same = saved.change(|_| ()).await;
        assert!(same.is_err() && path.is_dir(), "{same:?}");
        // It could be replaced, and reads again: still nobody knows what was in it.
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        let other = saved.change(|text| text.0 = "other".into()).await;
        assert!(other.is_err(), "{other:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        saved.load().await;
        assert_eq!(saved.look(|text| text.0.clone()), "kept");
        saved.change(|text| text.0 = "one".into()).await.unwrap();
        assert_eq!(codes(&state), [""; 0]);
    }

    #[tokio::test]
    async fn a_file_that_could_not_be_read_is_read_again_once_that_is_due_and_not_saved_before() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let path = state.path_of(StateKind::ManualMounts);
        fs::create_dir(&path).unwrap();
        let saved = Saved::<Text>::new(&state);
        saved.load().await;
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "one").unwrap();
        saved.read_again().await;
        assert!(saved.unread().is_some(), "not again so soon");
        saved
            .change(|text| text.0 = "two".into())
            .await
            .unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        saved.file.make_due();
        saved.read_again().await;
        assert_eq!(saved.look(|text| text.0.clone()), "one");
        saved.change(|text| text.0.push_str(" two")).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one two");
        assert_eq!(codes(&state), [""; 0]);
    }

    #[tokio::test]
    async fn a_file_of_a_newer_agent_that_appears_while_this_one_runs_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let file = StateFile::<crate::state::Known>::new(&state);
        let newer = r#"{"version": 2, "drives": 7}"#;
        fs::write(file.path(), newer).unwrap();
        file.load().await.unwrap_err();
        file.make_due();
        assert!(file.read_again().await.is_none());
        file.save(crate::state::Known::default()).await.unwrap_err();
        assert_eq!(fs::read_to_string(file.path()).unwrap(), newer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(codes(&state), ["StateNotSaved", "StateNotRead"]);
    }

    #[tokio::test]
    async fn a_damaged_file_is_moved_aside_and_is_a_finding() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        fs::write(state.path_of(StateKind::ManualMounts), [0xff]).unwrap();
        let file = StateFile::<Text>::new(&state);
        assert_eq!(file.load().await.unwrap(), None);
        assert_eq!(
            fs::read(dir.path().join("hand-mounts.json.bad-1")).unwrap(),
            [0xff]
        );
        assert_eq!(codes(&state), ["StateLost"]);
        file.save(Text("one".into())).await.unwrap();
        assert_eq!(codes(&state), ["StateLost"], "until it is removed");
    }
}
