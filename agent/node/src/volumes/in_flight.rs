//! Creations that were sent to a drive and are not answered yet. Their space is counted, so that concurrent creations
//! go to different drives, and none is sent to a drive that another has just filled.
//!
//! Kept in memory only, to improve the choice: without it a drive is tried that refuses.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::placement::{Candidate, Choice, InFlight};

/// All creations in flight of a node. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Creations(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Creations in the order in which they were sent.
    sent: Mutex<BTreeMap<u64, InFlight>>,
    /// Notified when one of them has ended.
    ended: Notify,
}

/// A creation in flight, which ends when this is dropped. Its result must be in the inventory by then.
#[derive(Debug)]
pub struct Sent {
    all: Creations,
    number: u64,
}

/// Creations in flight prevent the choice of a drive, and did not end in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StillInFlight;

impl Creations {
    /// Chooses a drive for one more creation, and counts it as sent there. Waits while only creations in flight prevent
    /// that. None: no drive can take it.
    ///
    /// `choose` is called with the creations in flight, and must use the inventory of that moment.
    pub async fn send(
        &self,
        until: Instant,
        bytes: u64,
        group: Option<&str>,
        choose: impl Fn(&[InFlight]) -> Choice,
    ) -> Result<Option<(Candidate, Sent)>, StillInFlight> {
        loop {
            // Before the choice: one that ends after it must not be missed.
            let ended = self.0.ended.notified();
            {
                let mut sent = self.lock();
                let in_flight: Vec<InFlight> = sent.values().cloned().collect();
                let choice = choose(&in_flight);
                if let Some(first) = choice.candidates.into_iter().next() {
                    let number = sent.last_key_value().map_or(0, |(last, _)| last + 1);
                    let drive = first.drive.clone();
                    let group = group.map(str::to_owned);
                    sent.insert(
                        number,
                        InFlight {
                            drive,
                            bytes,
                            group,
                        },
                    );
                    let all = self.clone();
                    return Ok(Some((first, Sent { all, number })));
                }
                if !choice.others_later {
                    return Ok(None);
                }
            }
            timeout_at(until, ended).await.map_err(|_| StillInFlight)?;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, InFlight>> {
        self.0.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
        self.all.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use drivebay_model::DriveId;

    /// One drive that takes one creation at a time, if it takes any.
    fn one_at_a_time(room: bool) -> impl Fn(&[InFlight]) -> Choice {
        move |in_flight| Choice {
            candidates: (room && in_flight.is_empty())
                .then(|| Candidate {
                    drive: DriveId("wwn-a".into()),
                    claim: false,
                })
                .into_iter()
                .collect(),
            others_later: !in_flight.is_empty(),
            awaits_poll: false,
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn a_creation_waits_for_one_in_flight_and_goes_on_when_that_ends() {
        let creations = Creations::default();
        let first = creations.send(soon(), 1, None, one_at_a_time(true)).await;
        let (_, first) = first.unwrap().unwrap();
        let mut second = Box::pin(creations.send(soon(), 1, None, one_at_a_time(true)));
        assert!(futures_pending(&mut second).await);
        drop(first);
        assert!(second.await.unwrap().is_some());
        assert!(creations.lock().is_empty());
    }

    #[tokio::test]
    async fn what_the_one_in_flight_has_filled_is_refused_and_not_waited_for() {
        let creations = Creations::default();
        let first = creations.send(soon(), 1, None, one_at_a_time(true)).await;
        let (_, first) = first.unwrap().unwrap();
        let mut second = Box::pin(creations.send(soon(), 1, None, one_at_a_time(false)));
        assert!(futures_pending(&mut second).await);
        drop(first);
        assert!(second.await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_at_its_deadline() {
        let creations = Creations::default();
        let first = creations.send(soon(), 1, None, one_at_a_time(true)).await;
        let _first = first.unwrap().unwrap();
        let second = creations.send(soon(), 1, None, one_at_a_time(true)).await;
        assert_eq!(second.map(|_| ()), Err(StillInFlight));
    }

    async fn futures_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
        })
        .await
    }
}
