//! One file of the state directory: read at start, replaced as a whole, and in effect only once saved.
//!
//! Every state file is a `StateFile`: one that cannot be saved, cannot be read or was damaged is a finding, and one
//! that cannot be read is never overwritten. `Saved` holds a value whose only source is the file: the value in memory
//! changes after the file.

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

/// Longest time for reading or writing one file. Exceeding it means that the system's drive does not respond.
const DEADLINE: Duration = Duration::from_secs(10);

/// Delay after which a file that could not be read is read again.
const AGAIN: Duration = Duration::from_secs(15);
/// The same delay after a timeout: each attempt holds a thread.
const AGAIN_AFTER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Interval at which a task that holds a file calls `read_again`.
pub const TRY_EVERY: Duration = Duration::from_secs(20);

/// Error of decoding a state file: the bytes are damaged, or of another version.
pub type Damage = Box<dyn Error + Send + Sync>;

/// Value of a state file.
pub trait Stored: Sized + Send + 'static {
    /// Kind of the file: determines its path, its version and its largest size.
    const KIND: StateKind;

    /// Decodes the bytes of the file.
    ///
    /// # Errors
    /// The bytes are damaged, or of another version.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Damage>;

    /// Encodes the value as it is written to the file.
    ///
    /// # Errors
    /// The value cannot be encoded.
    fn to_bytes(&self) -> io::Result<Vec<u8>>;
}

/// A state file on disk that holds a `T`.
#[derive(Debug)]
pub struct StateFile<T> {
    dir: StateDir,
    path: PathBuf,
    /// Set while the file's contents are unknown: then it is not written, either.
    unread: Mutex<Option<Unread>>,
    of: PhantomData<fn() -> T>,
}

/// A file that could not be read.
#[derive(Debug, Clone)]
struct Unread {
    why: String,
    again_at: Instant,
}

/// Result of reading a state file.
enum Content<T> {
    Value(T),
    Absent,
    Damaged { why: String, aside: PathBuf },
}

impl<T: Stored> StateFile<T> {
    /// Returns the single file of this kind.
    pub fn new(dir: &StateDir) -> Self {
        Self::at(dir, dir.path_of(T::KIND))
    }

    /// Returns the file of one drive or volume. `name` must not contain `/`.
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns why the file's contents are unknown; None when they are known.
    pub fn unread(&self) -> Option<String> {
        let unread = self.lock_unread();
        unread.as_ref().map(|unread| unread.why.clone())
    }

    fn lock_unread(&self) -> MutexGuard<'_, Option<Unread>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file. None: it does not exist, or was damaged and has been moved aside.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged and cannot be moved aside. It is left unchanged, and is not written until
    /// it was read.
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

    /// Retries reading a file that could not be read, at most every 15 s, or every 30 min after a timeout. Its contents
    /// take precedence over changes since: the caller must merge both before the file is saved. None: there is nothing
    /// new, or the file does not exist any more and may be saved from now on.
    pub async fn read_again(&self) -> Option<T> {
        let due = self.lock_unread().as_ref()?.again_at;
        if Instant::now() < due {
            return None;
        }
        let read = self.load().await.ok()?;
        tracing::info!(path = %self.path.display(), "state file read after an earlier failure");
        read
    }

    /// Makes the next attempt to read due now.
    #[cfg(any(test, feature = "test-support"))]
    pub fn make_due(&self) {
        if let Some(unread) = self.lock_unread().as_mut() {
            unread.again_at = Instant::now();
        }
    }

    /// Replaces the file durably.
    ///
    /// # Errors
    /// The file has its previous contents. After a timeout it may have either.
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
                // Logged once, until it is saved or fails for another reason.
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

    /// Removes the file of a drive or volume that no longer exists. Succeeds if the file is absent.
    ///
    /// # Errors
    /// The file may still exist.
    pub async fn remove(&self) -> io::Result<()> {
        for trouble in [Trouble::NotSaved, Trouble::NotRead] {
            self.dir.clear(trouble, T::KIND, &self.path);
        }
        let path = self.path.clone();
        offload("state-remove", DEADLINE, move || statefile::remove(&path)).await?
    }
}

/// Reads the file, and moves it aside if it is damaged. Blocks.
fn read<T: Stored>(path: &Path) -> io::Result<Content<T>> {
    let why = match statefile::read(path, T::KIND.max_bytes()) {
        Ok(bytes) => match T::from_bytes(&bytes) {
            Ok(value) => return Ok(Content::Value(value)),
            // Written by a newer agent: not damaged, and not to be moved.
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

/// A value whose only source is its file.
#[derive(Debug)]
pub struct Saved<T> {
    file: StateFile<T>,
    value: Mutex<T>,
    /// Held by the task that changes the value. True: a save failed or was interrupted, and the file may have another
    /// value.
    turn: tokio::sync::Mutex<bool>,
}

impl<T: Stored + Clone + Default + PartialEq> Saved<T> {
    /// Creates the default value; `load` reads the file.
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

    /// Reads the file. One that cannot be read counts as empty and cannot be changed.
    pub async fn load(&self) {
        // Logged, and a finding.
        if let Ok(read) = self.file.load().await {
            *self.lock() = read.unwrap_or_default();
        }
    }

    /// Retries reading a file that could not be read. The value was not changed since, so the file's contents replace
    /// it.
    pub async fn read_again(&self) {
        // No change begins between reading the file and storing its value.
        let _turn = self.turn.lock().await;
        if let Some(read) = self.file.read_again().await {
            *self.lock() = read;
        }
    }

    /// Returns why the contents are unknown; None when they are known.
    pub fn unread(&self) -> Option<String> {
        self.file.unread()
    }

    /// Calls `inspect` with the value that the file holds.
    pub fn inspect<R>(&self, inspect: impl FnOnce(&T) -> R) -> R {
        inspect(&self.lock())
    }

    /// Changes the file, then the value in memory. Skips the write when nothing changes and the file is known to have
    /// the value.
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
        let reported = findings(&dir.troubles()).into_iter();
        reported.map(|finding| finding.code).collect()
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
            assert_eq!(saved.inspect(|text| text.0.clone()), "one");
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
        assert_eq!(again.inspect(|text| text.0.clone()), "two");
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
        // The path is readable and writable again, but the contents of the file were not read yet.
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "kept").unwrap();
        let other = saved.change(|text| text.0 = "other".into()).await;
        assert!(other.is_err(), "{other:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
        saved.load().await;
        assert_eq!(saved.inspect(|text| text.0.clone()), "kept");
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
        assert_eq!(saved.inspect(|text| text.0.clone()), "one");
        saved.change(|text| text.0.push_str(" two")).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one two");
        assert_eq!(codes(&state), [""; 0]);
    }

    #[tokio::test]
    async fn a_file_of_a_newer_agent_that_appears_while_this_one_runs_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        let file = StateFile::<crate::state::LastKnown>::new(&state);
        let newer = r#"{"version": 2, "drives": 7}"#;
        fs::write(file.path(), newer).unwrap();
        file.load().await.unwrap_err();
        file.make_due();
        assert!(file.read_again().await.is_none());
        file.save(crate::state::LastKnown::default())
            .await
            .unwrap_err();
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
