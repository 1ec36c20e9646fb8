//! Limits of unauthenticated connections, by source and in total.
//!
//! When all slots are taken, a connection displaces the oldest one of the source that has most, so that a source that opens many
//! connections and sends nothing takes no slots from others. Between sources of equal counts, a connection waits until another one is
//! authenticated or closed, or until the oldest has used up its time: nodes that all reconnect after a restart do not displace each other.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// Source of connections: an IPv4 address, the /64 network of an IPv6 address, which a single host may own, or this machine
/// over a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    Local,
    V4(Ipv4Addr),
    V6(u64),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("unix"),
            Self::V4(address) => address.fmt(f),
            Self::V6(network) => {
                write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(*network) << 64))
            }
        }
    }
}

/// Limits of unauthenticated connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    /// Per source, including those that wait for a slot.
    pub of_source: usize,
    /// In total, including those that wait; twice as many for sources with few connections.
    pub open: usize,
    /// Slots. A connection holds one from its handshake until it is authenticated or closed.
    pub at_work: usize,
    /// Time that each connection has before one of a source with an equal count may displace it.
    pub patience: Duration,
}

/// Sources with fewer connections than this have a higher total limit.
const FEW: usize = 4;

#[derive(Debug, Default)]
struct Unauthenticated {
    next: u64,
    open: usize,
    // Connections that hold a slot, in the order of arrival.
    pending: BTreeMap<u64, Pending>,
    sources: HashMap<Source, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    at_work: usize,
    // Serialises the waiting connections of the source.
    waiting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Pending {
    source: Source,
    since: Instant,
    turned_away: CancellationToken,
}

/// Limiter of unauthenticated connections. Clones share the counts.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimit {
    most: Most,
    standing: Arc<Mutex<Unauthenticated>>,
    left: Arc<Notify>,
    waiting: Arc<tokio::sync::Mutex<()>>,
}

/// An unauthenticated connection; dropping it decrements the counts.
#[derive(Debug)]
pub(super) struct Open {
    limit: ConnectionLimit,
    source: Source,
}

/// A connection's slot; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Place {
    limit: ConnectionLimit,
    number: u64,
    turned_away: CancellationToken,
}

impl ConnectionLimit {
    pub(super) fn new(most: Most) -> Self {
        Self {
            most,
            standing: Arc::default(),
            left: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// Counts a connection of this source; None if it exceeds a limit and must be closed.
    pub(super) fn open(&self, source: Source) -> Option<Open> {
        let mut standing = self.lock();
        let of_source = standing
            .sources
            .get(&source)
            .map_or(0, |counts| counts.open);
        let most = if of_source < FEW {
            2 * self.most.open
        } else {
            self.most.open
        };
        if of_source >= self.most.of_source || standing.open >= most {
            return None;
        }
        standing.open += 1;
        standing.sources.entry(source).or_default().open += 1;
        drop(standing);
        Some(Open {
            limit: self.clone(),
            source,
        })
    }

    // Takes a slot, or returns the time at which to try again at the latest.
    fn try_enter(&self, source: Source, now: Instant) -> Result<Place, Instant> {
        let mut standing = self.lock();
        if standing.pending.len() >= self.most.at_work {
            let own = standing.at_work(source);
            let heaviest = standing.sources.values().map(|counts| counts.at_work).max();
            let heaviest = heaviest.unwrap_or(0);
            // Displaces one of a source with more connections than the newcomer's would have; else one of a source with no fewer.
            let unequal = heaviest > own + 1;
            let least = if unequal { heaviest } else { own };
            let oldest = standing
                .pending
                .iter()
                .find(|(_, one)| standing.at_work(one.source) >= least)
                .map(|(number, one)| (*number, one.since + self.most.patience));
            let Some((number, until)) = oldest else {
                return Err(now + self.most.patience);
            };
            if !unequal && until > now {
                return Err(until);
            }
            if let Some(oldest) = standing.remove(number) {
                oldest.turned_away.cancel();
            }
        }
        let number = standing.next;
        standing.next += 1;
        let turned_away = CancellationToken::new();
        let pending = Pending {
            source,
            since: now,
            turned_away: turned_away.clone(),
        };
        standing.pending.insert(number, pending);
        standing.sources.entry(source).or_default().at_work += 1;
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

impl Unauthenticated {
    fn at_work(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, |counts| counts.at_work)
    }

    fn remove(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        if let Some(counts) = self.sources.get_mut(&pending.source) {
            counts.at_work -= 1;
        }
        self.forget(pending.source);
        Some(pending)
    }

    fn forget(&mut self, source: Source) {
        let counts = self.sources.get(&source);
        if counts.is_some_and(|counts| counts.open + counts.at_work == 0) {
            self.sources.remove(&source);
        }
    }
}

impl Open {
    /// Takes a slot. Waits for one, and may displace another connection.
    pub(super) async fn enter(&self) -> Place {
        let limit = &self.limit;
        let Ok(place) = limit.try_enter(self.source, Instant::now()) else {
            return self.wait().await;
        };
        place
    }

    async fn wait(&self) -> Place {
        let limit = &self.limit;
        let gate = {
            let mut standing = limit.lock();
            standing
                .sources
                .entry(self.source)
                .or_default()
                .waiting
                .clone()
        };
        let _first_of_source = gate.lock().await;
        let _first = limit.waiting.lock().await;
        loop {
            let until = match limit.try_enter(self.source, Instant::now()) {
                Ok(place) => return place,
                Err(until) => until,
            };
            tokio::select! {
                () = limit.left.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut standing = self.limit.lock();
        standing.open -= 1;
        if let Some(counts) = standing.sources.get_mut(&self.source) {
            counts.open -= 1;
        }
        standing.forget(self.source);
    }
}

impl Place {
    /// Completes when another connection has displaced this one.
    pub(super) async fn turned_away(&self) {
        self.turned_away.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limit.lock().remove(self.number);
        self.limit.left.notify_one();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {

    use super::*;

    fn limit(at_work: usize, patience: Duration) -> ConnectionLimit {
        ConnectionLimit::new(Most {
            of_source: 100,
            open: 1000,
            at_work,
            patience,
        })
    }

    fn from(number: u8) -> Source {
        Source::from(IpAddr::from([10, 0, 0, number]))
    }

    async fn enter(limit: &ConnectionLimit, source: Source) -> (Open, Place) {
        let open = limit.open(source).unwrap();
        let place = open.enter().await;
        (open, place)
    }

    #[test]
    fn one_host_is_one_source() {
        let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.2"), source("10.0.0.1"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:0:1"));
        assert_ne!(source("2001:db8:0:1::1"), source("2001:db8::1"));
        assert_eq!(source("2001:db8:0:1::1").to_string(), "2001:db8:0:1::/64");
    }

    #[tokio::test]
    async fn a_source_with_many_connections_makes_way_at_once_for_others_and_not_for_itself() {
        let limit = limit(4, Duration::from_secs(3600));
        let mut crowd = Vec::new();
        for _ in 0..4 {
            crowd.push(enter(&limit, from(1)).await);
        }
        assert!(limit.try_enter(from(1), Instant::now()).is_err());
        let mut honest = Vec::new();
        for number in 2..5 {
            honest.push(enter(&limit, from(number)).await);
        }
        let away = crowd
            .iter()
            .filter(|(_, place)| place.turned_away.is_cancelled());
        assert_eq!(away.count(), 3);
        assert!(
            honest
                .iter()
                .all(|(_, place)| !place.turned_away.is_cancelled())
        );
        // Now all are equal.
        assert!(limit.try_enter(from(9), Instant::now()).is_err());
        drop((crowd, honest));
        assert_eq!(limit.count(), 0);
        assert!(limit.lock().sources.is_empty());
    }

    #[tokio::test]
    async fn a_source_that_waits_evicts_none_but_its_own() {
        let limit = limit(3, Duration::ZERO);
        let (_open, honest) = enter(&limit, from(2)).await;
        let (_one, first) = enter(&limit, from(1)).await;
        let _second = enter(&limit, from(1)).await;
        let _third = enter(&limit, from(1)).await;
        assert!(!honest.turned_away.is_cancelled());
        first.turned_away().await;
    }

    #[test]
    fn what_is_over_the_number_of_a_source_or_of_all_is_closed() {
        let limit = ConnectionLimit::new(Most {
            of_source: 10,
            open: 15,
            at_work: 1,
            patience: Duration::ZERO,
        });
        let open = |source: Source, times: usize| -> Vec<Open> {
            (0..times).filter_map(|_| limit.open(source)).collect()
        };
        let one = open(from(1), 20);
        assert_eq!(one.len(), 10);
        let other = open(from(2), 20);
        // Sources with few connections have a higher limit, since they may be legitimate.
        assert_eq!(other.len(), 5);
        let few: usize = (3..30).map(|source| open(from(source), 1).len()).sum();
        assert_eq!(few, 27);
        drop((one, other));
        assert_eq!(open(from(1), 20).len(), 10);
    }

    #[tokio::test]
    async fn a_newcomer_waits_while_no_equal_has_had_its_time_and_enters_when_one_is_through() {
        let limit = limit(2, Duration::from_secs(3600));
        let (_a, first) = enter(&limit, from(1)).await;
        let (_b, second) = enter(&limit, from(2)).await;
        let open = limit.open(from(3)).unwrap();
        let mut third = std::pin::pin!(open.enter());
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
    async fn an_equal_is_turned_away_when_its_time_is_up_and_not_before() {
        let limit = limit(1, Duration::from_secs(10));
        let begun = Instant::now();
        let first = limit.try_enter(from(1), begun).unwrap();
        let until = begun + Duration::from_secs(10);
        for source in [from(1), from(2)] {
            let early = limit.try_enter(source, until - Duration::from_millis(1));
            assert_eq!(early.unwrap_err(), until);
        }
        assert!(!first.turned_away.is_cancelled());
        assert!(limit.try_enter(from(2), until).is_ok());
        assert!(first.turned_away.is_cancelled());
    }
}
