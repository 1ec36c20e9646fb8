//! I/O on a program's own files and sockets, off the threads that serve calls. Nothing here touches a drive.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Runs blocking work on another thread and waits for at most `limit`; then errs with `TimedOut`, while the work continues.
#[allow(clippy::disallowed_methods)]
pub async fn work<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::time::timeout(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("not done within {} s", limit.as_secs()),
        )),
    }
}

/// Guarantee of a replacement that returned Ok, across a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Kept: the file is synced before the rename, and the directory after it.
    Durable,
    /// None: after a power failure the file may be the former version, or missing.
    Fast,
}

/// Replaces a file as a whole, mode 0600: writes `<name>.new` beside it and renames that. Leaves the former version if writing or renaming
/// fails. The path must have a directory. Blocks.
pub fn replace(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a path with a directory is needed",
        )
    })?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(bytes)?;
        if durability == Durability::Durable {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)
    };
    if let Err(error) = write() {
        // An incomplete file is of no use.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    match durability {
        Durability::Durable => fs::File::open(dir)?.sync_all(),
        Durability::Fast => Ok(()),
    }
}
