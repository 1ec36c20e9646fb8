//! Waiting for what kubectl shows. It is a large program, and starting it every few milliseconds would take the processors
//! from the cluster that is waited for.

use std::time::Duration;

use crate::wait;

const STEP: Duration = Duration::from_millis(300);

/// As [`wait::poll`].
pub fn poll<T>(limit: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    wait::poll_every(STEP, limit, look)
}

/// As [`wait::until`].
///
/// # Panics
/// When the deadline passes, saying what was waited for.
pub fn until<T>(limit: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(limit, look).unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}
