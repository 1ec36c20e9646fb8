//! A result that is expensive to read, shared by all requests for a while.

use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use tokio::sync::Semaphore;

use super::RECENT;

/// The last result and its moment. One reading at a time; others wait for its result.
#[derive(Debug)]
pub(super) struct Recent<T> {
    last: Mutex<Option<(Instant, T)>>,
    reading: Semaphore,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self {
            last: Mutex::new(None),
            reading: Semaphore::new(1),
        }
    }
}

impl<T: Clone> Recent<T> {
    /// Returns the last result if it is younger than [`RECENT`], else that of `read`.
    pub(super) async fn get(&self, read: impl Future<Output = T>) -> T {
        let place = self.reading.acquire().await;
        let lock = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = lock()
            .as_ref()
            .filter(|(at, _)| at.elapsed() < RECENT)
            .map(|(_, last)| last.clone());
        if let Some(recent) = recent {
            return recent;
        }
        let result = read.await;
        *lock() = Some((Instant::now(), result.clone()));
        drop(place);
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn requests_within_the_time_share_one_reading() {
        let reads = AtomicUsize::new(0);
        let recent = Recent::default();
        let read = || async {
            tokio::task::yield_now().await;
            reads.fetch_add(1, Ordering::Relaxed)
        };
        let both = tokio::join!(recent.get(read()), recent.get(read()));
        assert_eq!(both, (0, 0));
        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }
}
