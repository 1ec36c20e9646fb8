//! Polling until a condition holds, with a deadline and a message for its failure.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Polling interval of every function here except `poll_every`.
pub const STEP: Duration = Duration::from_millis(25);

/// Polls until there is a result; None if the deadline passed.
pub fn poll<T>(limit: Duration, check: impl FnMut() -> Option<T>) -> Option<T> {
    poll_every(STEP, limit, check)
}

/// Like `poll` with another interval, for expensive checks.
pub fn poll_every<T>(
    step: Duration,
    limit: Duration,
    mut check: impl FnMut() -> Option<T>,
) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(result) = check() {
            return Some(result);
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
pub fn until<T>(limit: Duration, what: &str, check: impl FnMut() -> Option<T>) -> T {
    poll(limit, check).unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}

/// Like `until`, for an asynchronous check.
///
/// # Panics
/// When the deadline passes; the message has `what`.
pub async fn until_async<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    what: &str,
    check: impl FnMut() -> F,
) -> T {
    poll_async(limit, check)
        .await
        .unwrap_or_else(|| panic!("not within {} s: {what}", limit.as_secs()))
}

/// Like `poll`, for an asynchronous check.
pub async fn poll_async<T, F: Future<Output = Option<T>>>(
    limit: Duration,
    mut check: impl FnMut() -> F,
) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(result) = check().await {
            return Some(result);
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
