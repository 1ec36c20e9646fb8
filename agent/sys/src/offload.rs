//! Short blocking work of the agent itself (files on the system's drive, sysfs, /proc), away from
//! the async workers and with a deadline.
//!
//! Each call gets a thread of its own instead of one of tokio's pool: a call that never returns then holds
//! up neither later ones nor the agent's end. Work on a drive belongs into that drive's worker process,
//! not here. Callers run one at a time, so threads do not pile up.

use std::{io, time::Duration};

use drivebay_model::units::human_duration;

use tokio::sync::oneshot;

/// Runs `work` on its own thread; TimedOut when it takes longer than `limit` (it is then left to itself).
pub async fn offload<T: Send + 'static>(
    what: &'static str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name(what.to_owned())
        .spawn(move || {
            // The caller may have stopped waiting.
            let _ = sender.send(work());
        })?;
    match tokio::time::timeout(limit, receiver).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(io::Error::other(format!("{what}: its thread panicked"))),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{what} did not end within {}", human_duration(limit)),
        )),
    }
}

/// Runs short work of the worker pool's own (/proc, its notes, starting a child) on tokio's blocking pool.
/// Unlike `offload` it has no deadline of its own: its callers have one, and nothing in it can block on a drive.
pub fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_hangs_is_left_behind() -> io::Result<()> {
        let (release, hold) = std::sync::mpsc::channel::<()>();
        let error = offload("hang", Duration::from_millis(20), move || hold.recv())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(offload("quick", Duration::from_secs(5), || 7).await?, 7);
        drop(release);
        Ok(())
    }
}
