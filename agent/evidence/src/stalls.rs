//! Drives that have requests and complete none. Pure.
//!
//! A hung drive is `running` to the kernel for two minutes and more; requests in flight and counters that do not change show
//! it earlier (linux.md, "Hung disk").

use std::{collections::BTreeMap, time::Duration};

use drivebay_model::DriveId;
use drivebay_sys::blockstat::Activity;

/// A drive that completes no request for this time is stalled. The slowest normal request, a flush of a shingled drive's
/// cache, takes a few seconds.
pub const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    completed: u64,
    // Time since which it has requests in flight and this count.
    since: Duration,
}

/// Last counters of each drive with requests in flight.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stalls(BTreeMap<DriveId, Progress>);

impl Stalls {
    /// Stores the current counters, and returns the drives that are stalled. Of a drive that is not in `activities` the counters and the
    /// time of its stall are dropped.
    pub fn update(
        &mut self,
        activities: &BTreeMap<DriveId, Activity>,
        now: Duration,
    ) -> Vec<DriveId> {
        let mut next = BTreeMap::new();
        let mut stalled = Vec::new();
        for (id, activity) in activities {
            if activity.in_flight == 0 {
                continue;
            }
            let since = match self.0.get(id) {
                Some(progress) if progress.completed == activity.completed => progress.since,
                _ => now,
            };
            if now.saturating_sub(since) >= LIMIT {
                stalled.push(id.clone());
            }
            let completed = activity.completed;
            next.insert(id.clone(), Progress { completed, since });
        }
        self.0 = next;
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_stand_still_for_ten_seconds_are_a_stall() {
        let mut stalls = Stalls::default();
        for (at, in_flight, completed, stalled) in [
            (0, 0, 5, false),
            (100, 0, 5, false),
            // Busy and working.
            (101, 3, 6, false),
            (111, 3, 7, false),
            // No request completes.
            (112, 3, 8, false),
            (121, 3, 8, false),
            (122, 3, 8, true),
            (130, 64, 8, true),
            // One completed.
            (132, 63, 9, false),
            (141, 63, 9, false),
            (142, 63, 9, true),
            // All completed.
            (144, 0, 72, false),
            (160, 1, 72, false),
        ] {
            let activity = Activity {
                in_flight,
                completed,
            };
            let activities = [(DriveId("d".into()), activity)].into();
            let drives = stalls.update(&activities, Duration::from_secs(at));
            assert_eq!(!drives.is_empty(), stalled, "at {at} s");
        }
    }

    #[test]
    fn a_drive_that_was_away_begins_anew() {
        let mut stalls = Stalls::default();
        let activity = Activity {
            in_flight: 1,
            completed: 1,
        };
        let activities = [(DriveId("d".into()), activity)].into();
        stalls.update(&activities, Duration::ZERO);
        stalls.update(&BTreeMap::new(), Duration::from_secs(5));
        assert!(
            stalls
                .update(&activities, Duration::from_secs(12))
                .is_empty()
        );
        assert_eq!(stalls.update(&activities, Duration::from_secs(22)).len(), 1);
    }
}
