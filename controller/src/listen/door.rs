//! How many strangers may stand in the door: connections that have not shown who they are yet.
//!
//! When there are too many, the one that has stood there longest has to go, since an honest handshake takes
//! milliseconds: whoever opens connections and says nothing keeps nobody out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
struct Standing {
    next: u64,
    // In the order of arrival.
    strangers: BTreeMap<u64, CancellationToken>,
}

/// The door. Clones are the same door.
#[derive(Debug, Clone)]
pub(super) struct Door {
    most: usize,
    standing: Arc<Mutex<Standing>>,
}

/// One stranger's place; given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    door: Door,
    number: u64,
    turned_away: CancellationToken,
}

impl Door {
    /// For so many at a time.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            standing: Arc::default(),
        }
    }

    /// A place for a newcomer; somebody else's, if need be.
    pub(super) fn enter(&self) -> Place {
        let mut standing = self.lock();
        if standing.strangers.len() >= self.most
            && let Some((_, oldest)) = standing.strangers.pop_first()
        {
            oldest.cancel();
        }
        let number = standing.next;
        standing.next += 1;
        let turned_away = CancellationToken::new();
        standing.strangers.insert(number, turned_away.clone());
        drop(standing);
        Place {
            door: self.clone(),
            number,
            turned_away,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.lock().strangers.len()
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
        self.door.lock().strangers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_stranger_makes_way_and_who_has_left_takes_no_place() {
        let door = Door::new(2);
        let (first, second) = (door.enter(), door.enter());
        drop(second);
        let third = door.enter();
        assert!(!first.turned_away.is_cancelled());
        let fourth = door.enter();
        first.turned_away().await;
        assert!(!third.turned_away.is_cancelled() && !fourth.turned_away.is_cancelled());
        assert_eq!(door.count(), 2);
        drop(first);
        assert_eq!(door.count(), 2);
        drop((third, fourth));
        assert_eq!(door.count(), 0);
    }
}
