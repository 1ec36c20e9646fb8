//! Polling until a condition holds, with a deadline and a message for its failure.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Default polling interval.
pub const STEP: Duration = Duration::from_millis(25);

/// Polls until there is a result; None if the deadline passed.
pub fn poll<T>(limit: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    poll_every(STEP, limit, look)
}

/// Like `poll` with another interval, for expensive checks.
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

/// Polls until there is a result.
///
/// # Panics
/// When the deadline passes; the message has `what`.
pub fn until<T>(limit: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(limit, look).unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}

/// Like `until`, for an asynchronous check.
///
/// # Panics
/// When the deadline passes; the message has `what`.
pub async fn until_async<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    look: impl FnMut() -> F,
) -> T {
    poll_async(limit, look)
        .await
        .unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}

/// Like `poll`, for an asynchronous check.
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

/// Returns the first line with all these words.
pub fn line(text: &str, words: &[&str]) -> Option<String> {
    let has = |line: &&str| words.iter().all(|word| line.contains(word));
    text.lines().find(has).map(str::to_owned)
}
