//! Limits connections that are not authenticated yet.
//!
//! At the limit a new connection waits until another one is authenticated or closed, or until the oldest has had its time and
//! is closed: an honest handshake takes milliseconds. Whoever opens connections and sends nothing keeps nobody out, and nodes
//! that all reconnect after a restart do not push each other out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
struct Unauthenticated {
    next: u64,
    // In the order of arrival.
    pending: BTreeMap<u64, Pending>,
}

#[derive(Debug)]
struct Pending {
    since: Instant,
    turned_away: CancellationToken,
}

/// Clones share one limit.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimit {
    most: usize,
    patience: Duration,
    standing: Arc<Mutex<Unauthenticated>>,
    left: Arc<Notify>,
}

/// One connection's place; freed when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    limit: ConnectionLimit,
    number: u64,
    turned_away: CancellationToken,
}

impl ConnectionLimit {
    /// For so many at a time; each has this long before it may have to make way.
    pub(super) fn new(most: usize, patience: Duration) -> Self {
        Self {
            most,
            patience,
            standing: Arc::default(),
            left: Arc::default(),
        }
    }

    /// A place for a newcomer, when there is one; somebody else's, if need be. One newcomer waits at a time.
    pub(super) async fn enter(&self) -> Place {
        loop {
            let until = match self.try_enter(Instant::now()) {
                Ok(place) => return place,
                Err(until) => until,
            };
            tokio::select! {
                () = self.left.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    // A place, or until when to wait for one at most.
    fn try_enter(&self, now: Instant) -> Result<Place, Instant> {
        let mut standing = self.lock();
        if standing.pending.len() >= self.most
            && let Some(oldest) = standing.pending.first_entry()
        {
            let until = oldest.get().since + self.patience;
            if until > now {
                return Err(until);
            }
            oldest.remove().turned_away.cancel();
        }
        let number = standing.next;
        standing.next += 1;
        let turned_away = CancellationToken::new();
        let stranger = Pending {
            since: now,
            turned_away: turned_away.clone(),
        };
        standing.pending.insert(number, stranger);
        drop(standing);
        Ok(Place {
            limit: self.clone(),
            number,
            turned_away,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Unauthenticated> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.lock().pending.len()
    }
}

impl Place {
    /// Waits until the place is somebody else's.
    pub(super) async fn turned_away(&self) {
        self.turned_away.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.lock().pending.remove(&self.number);
        self.limit.left.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_stranger_makes_way_and_who_has_left_takes_no_place() {
        let limit = ConnectionLimit::new(2, Duration::ZERO);
        let (first, second) = (limit.enter().await, limit.enter().await);
        drop(second);
        let third = limit.enter().await;
        assert!(!first.turned_away.is_cancelled());
        let fourth = limit.enter().await;
        first.turned_away().await;
        assert!(!third.turned_away.is_cancelled() && !fourth.turned_away.is_cancelled());
        assert_eq!(limit.count(), 2);
        drop(first);
        assert_eq!(limit.count(), 2);
        drop((third, fourth));
        assert_eq!(limit.count(), 0);
    }

    #[tokio::test]
    async fn a_newcomer_waits_while_nobody_has_had_his_time_and_enters_when_one_is_through() {
        let limit = ConnectionLimit::new(2, Duration::from_secs(3600));
        let (first, second) = (limit.enter().await, limit.enter().await);
        let mut third = std::pin::pin!(limit.enter());
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = &mut third => panic!("the limit is full"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(second);
        third.await;
        assert!(!first.turned_away.is_cancelled());
    }

    #[tokio::test]
    async fn a_stranger_is_turned_away_when_his_time_is_up_and_not_before() {
        let limit = ConnectionLimit::new(1, Duration::from_secs(10));
        let begun = Instant::now();
        let first = limit.try_enter(begun).unwrap();
        let until = begun + Duration::from_secs(10);
        let early = limit.try_enter(until - Duration::from_millis(1));
        assert_eq!(early.unwrap_err(), until);
        assert!(!first.turned_away.is_cancelled());
        assert!(limit.try_enter(until).is_ok());
        assert!(first.turned_away.is_cancelled());
    }
}
