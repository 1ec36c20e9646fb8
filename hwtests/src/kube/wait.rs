//! Polling of kubectl. It is a large program, and starting it every few milliseconds would take CPU time from the cluster.

use std::time::Duration;

use crate::wait;

const STEP: Duration = Duration::from_millis(300);

/// Like [`wait::poll`], with a longer interval.
pub fn poll<T>(limit: Duration, check: impl FnMut() -> Option<T>) -> Option<T> {
    wait::poll_every(STEP, limit, check)
}

/// Like [`wait::until`], with a longer interval.
///
/// # Panics
/// When the deadline passes; the message has `what`.
pub fn until<T>(limit: Duration, what: &str, check: impl FnMut() -> Option<T>) -> T {
    poll(limit, check).unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}
