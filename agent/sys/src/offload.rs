//! Runs short blocking work of the agent itself (files on the system's drive, sysfs, /proc) outside the async workers, with a deadline.
//!
//! Each call gets a thread of its own instead of one of tokio's pool, so that a call that never returns delays neither later ones nor the
//! agent's end. Work on a drive belongs in that drive's worker process, not here. Callers run one at a time, so threads do not accumulate.

use std::{io, time::Duration};

use drivebay_model::units::human_duration;

use tokio::sync::oneshot;

/// Runs `work` on a thread of its own, named `what`. TimedOut if it takes longer than `limit`; the thread then continues in the background.
pub async fn offload<T: Send + 'static>(
    what: &'static str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new()
        .name(what.to_owned())
        .spawn(move || {
            // The caller may have timed out.
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

/// Runs short work of the worker pool (/proc, its records, starting a child) on tokio's blocking pool. Unlike `offload` it has no deadline:
/// its callers have one, and nothing in it may block on a drive.
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
