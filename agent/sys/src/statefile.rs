//! Small files of the agent itself, on the system's drive: read whole and with a size limit, written so that a crash leaves the old or the
//! new text and never a mixture.

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::{
    files::{self, Durability},
    units::human_size,
};
use tokio::{sync::Semaphore, time::timeout};

use super::offload::offload;

/// Serialises writes of state files. A write that timed out continues when its drive responds: it must not replace a later one, and others
/// must not accumulate behind it.
static WRITES: Semaphore = Semaphore::const_new(1);

/// Replaces a file's content durably, for async callers. TimedOut if that, or the end of an earlier write, takes longer than `limit`.
pub async fn save(
    path: PathBuf,
    limit: Duration,
    text: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
) -> io::Result<()> {
    let turn = timeout(limit, WRITES.acquire()).await.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "an earlier write of a state file has not ended",
        )
    })?;
    let turn = turn.map_err(io::Error::other)?;
    offload("state-save", limit, move || {
        // Released when the work ends, not when its caller times out.
        let _turn = turn;
        write_atomic(&path, &text()?)
    })
    .await?
}

/// Reads a file of at most `max` bytes; FileTooLarge if it is longer.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    // One more than allowed, to distinguish a file of `max` bytes from a longer one.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {}", human_size(max)),
        ));
    }
    Ok(bytes)
}

/// Reads a file of at most `max` bytes as text; InvalidData if it is not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read(path, max)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Replaces a file's content durably. Creates the directory (0700) if it is missing.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        make_dir(dir)?;
    }
    files::replace(path, bytes, Durability::Durable)
}

/// Creates a file durably; AlreadyExists if there is one. Creates the directory (0700) if it is missing.
pub fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut whole = path.as_os_str().to_owned();
    whole.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let whole = PathBuf::from(whole);
    write_atomic(&whole, bytes)?;
    // Unlike a rename, a link replaces nothing.
    let linked = fs::hard_link(&whole, path);
    fs::remove_file(&whole)?;
    linked?;
    match path.parent() {
        Some(dir) => fs::File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}

/// Renames an unusable file to `<name>.bad-<n>`, where nothing overwrites it, and returns that path.
pub fn move_aside(path: &Path) -> io::Result<PathBuf> {
    for n in 1..1000_u32 {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".bad-{n}"));
        let aside = PathBuf::from(name);
        if aside.symlink_metadata().is_err() {
            fs::rename(path, &aside)?;
            return Ok(aside);
        }
    }
    Err(io::Error::other(
        "there are 999 damaged files beside it already",
    ))
}

/// Returns the paths in a directory; none if it does not exist.
pub fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Removes a file. No error if it does not exist.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a directory and its parents, 0700, unless it exists.
pub fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Creates a new directory, 0700, in the system's temporary directory.
pub fn make_private_dir(prefix: &str) -> io::Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("{prefix}{}", uuid::Uuid::new_v4().simple()));
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// Removes a directory made by `make_private_dir`, with its content.
pub fn remove_private_dir(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path)
}

/// True if the path exists, also as a dangling link.
pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// True if the path is a directory, links followed.
pub fn is_dir(path: &Path) -> bool {
    path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_replaces_none() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("sub/drivebay.toml");
        write_new(&path, b"one")?;
        let again = write_new(&path, b"two").map_err(|error| error.kind());
        assert_eq!(again, Err(io::ErrorKind::AlreadyExists));
        assert_eq!(read(&path, 3)?, b"one");
        let files = fs::read_dir(dir.path().join("sub"))?.count();
        assert_eq!(files, 1, "nothing else is left");
        Ok(())
    }

    #[test]
    fn a_failed_write_leaves_the_old_text_and_no_litter() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("sub/known.json");
        write_atomic(&path, b"one")?;
        write_atomic(&path, b"two")?;
        assert_eq!(read(&path, 3)?, b"two");
        // A directory in the temporary file's place makes the next write fail.
        fs::create_dir(dir.path().join("sub/known.json.new"))?;
        assert!(write_atomic(&path, b"three").is_err());
        assert_eq!(read(&path, 3)?, b"two");
        Ok(())
    }

    #[tokio::test]
    async fn a_write_that_was_given_up_replaces_nothing_that_was_written_later() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("state.json");
        // Opening it for writing waits for a reader, like an unresponsive drive.
        let hangs = dir.path().join("state.json.new");
        nix::unistd::mkfifo(&hangs, nix::sys::stat::Mode::S_IRWXU)?;
        let limit = Duration::from_millis(200);
        let text = |text: &'static str| move || Ok(text.as_bytes().to_vec());
        for why in ["did not end", "earlier write", "earlier write"] {
            let given_up = save(path.clone(), limit, text("old")).await.unwrap_err();
            assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
            assert!(given_up.to_string().contains(why), "{given_up}");
        }
        let mut content = String::new();
        fs::File::open(&hangs)?.read_to_string(&mut content)?;
        assert_eq!(content, "old");
        // The first write ends, and its file is removed.
        save(path.clone(), Duration::from_secs(10), text("new")).await?;
        assert_eq!(fs::read_to_string(&path)?, "new");
        Ok(())
    }

    #[test]
    fn a_file_too_large_is_refused_not_cut() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("f");
        write_atomic(&path, b"1234")?;
        assert_eq!(read(&path, 4)?.len(), 4);
        assert_eq!(
            read(&path, 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
        Ok(())
    }

    #[test]
    fn damaged_files_are_kept_apart() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("f");
        for n in 1..=2 {
            write_atomic(&path, b"x")?;
            assert_eq!(move_aside(&path)?, dir.path().join(format!("f.bad-{n}")));
        }
        Ok(())
    }
}
