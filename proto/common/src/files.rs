//! Work on a program's own files and sockets, away from the threads that answer calls. Nothing here touches a drive.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Runs this on a thread of its own and waits for it, at most `limit`; it goes on after that.
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

/// Whether a power failure may undo a replacement that was answered with Ok.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It may not: the file is synced before it gets its name, and the directory after.
    Durable,
    /// It may: the former version, or none, is as good then.
    Fast,
}

/// Replaces a file as a whole, mode 0600: `<name>.new` is written beside it and renamed. A failure leaves the former version.
/// Blocks.
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
        // A half-written one is of no use to anybody.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    match durability {
        Durability::Durable => fs::File::open(dir)?.sync_all(),
        Durability::Fast => Ok(()),
    }
}
