//! Waiting for something to become true, with a deadline and a sentence for when it does not.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How often is looked.
pub const STEP: Duration = Duration::from_millis(25);

/// Looks until there is an answer; None when the deadline passed.
pub fn poll<T>(limit: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    poll_every(STEP, limit, look)
}

/// As `poll`, for a look that costs much.
pub fn poll_every<T>(
    step: Duration,
    limit: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(step);
    }
}

/// Looks until there is an answer.
///
/// # Panics
/// When the deadline passes, saying what was waited for.
pub fn until<T>(limit: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(limit, look).unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}

/// As `until`, for a look that has to wait itself.
///
/// # Panics
/// When the deadline passes, saying what was waited for.
pub async fn until_async<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    look: impl FnMut() -> F,
) -> T {
    poll_async(limit, look)
        .await
        .unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}

/// As `poll`, for a look that has to wait itself.
pub async fn poll_async<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    mut look: impl FnMut() -> F,
) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        tokio::time::sleep(STEP).await;
    }
}

/// The first line that has all these words.
pub fn line(text: &str, words: &[&str]) -> Option<String> {
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    text.lines().find(has).map(str::to_owned)
}
