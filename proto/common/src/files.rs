//! Work on a program's own files and sockets, away from the threads that answer calls. Nothing here touches a drive.

use std::{io, time::Duration};

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
