//! Pauses after failed attempts. Pure.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;
use uuid::Uuid;

/// A pause that doubles with each further failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// Pause after the first failure.
    pub(super) first: Duration,
    pub(super) most: Duration,
}

impl Rest {
    /// Returns the pause after this many failures and one more.
    pub(super) fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.most)
    }
}

/// Returns the volumes that must not be retried at `now`, and the time of the earliest retry among them.
pub(super) fn resting(
    until: impl Iterator<Item = (Uuid, Option<Instant>)>,
    now: Instant,
) -> (BTreeSet<Uuid>, Option<Instant>) {
    let until = until.filter_map(|(uuid, until)| Some((uuid, until.filter(|until| *until > now)?)));
    let until: Vec<(Uuid, Instant)> = until.collect();
    let first = until.iter().map(|(_, until)| *until).min();
    (until.into_iter().map(|(uuid, _)| uuid).collect(), first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_fail_become_rarer() {
        let rest = Rest {
            first: Duration::from_secs(10),
            most: Duration::from_secs(60 * 60),
        };
        let seconds = |failures| rest.after(failures).as_secs();
        assert_eq!([0, 1, 2, 9, 40].map(seconds), [10, 20, 40, 3600, 3600]);
    }

    #[test]
    fn only_volumes_whose_rest_is_not_over_are_left_alone() {
        let now = Instant::now();
        let later = |seconds| Some(now + Duration::from_secs(seconds));
        let volumes: Vec<Uuid> = (1..=4).map(Uuid::from_u128).collect();
        let until = [later(9), None, Some(now), later(3)];
        let all = volumes.iter().copied().zip(until);
        assert_eq!(
            resting(all, now),
            (BTreeSet::from([volumes[0], volumes[3]]), later(3))
        );
    }
}
