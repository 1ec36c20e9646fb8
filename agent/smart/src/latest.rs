//! The last SMART poll of each drive and its failures, and its counters' values: written by the polling task, read by metrics and the
//! agent's service.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::{FailureReason, Outcome, history::CounterPoints, reading::Reading};
use drivebay_model::DriveId;

/// Last SMART poll of one drive, and its failures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatestPoll {
    /// Numbers of the last answer; values that only a deep poll reads may be older.
    pub reading: Option<Reading>,
    /// Time of the last poll with health data, unix seconds.
    pub polled_at: Option<u64>,
    /// True if the drive was in standby at the last poll, and was not woken.
    pub asleep: bool,
    /// Number of polls without health data since the agent started, by reason.
    pub failures: BTreeMap<FailureReason, u64>,
}

/// Last SMART poll of every drive that is polled.
#[derive(Debug, Default)]
pub struct LatestPolls(Mutex<BTreeMap<DriveId, LatestPoll>>);

impl LatestPolls {
    /// Records the outcome of a poll at `now` (unix seconds). `failure`: reason why the poll has no health data.
    pub fn took(
        &self,
        drive: &DriveId,
        outcome: &Outcome,
        failure: Option<FailureReason>,
        logical_sector: u32,
        now: u64,
    ) {
        let mut drives = self.lock();
        let latest = drives.entry(drive.clone()).or_default();
        latest.asleep = matches!(outcome, Outcome::Standby);
        if let Outcome::Answered(facts) = outcome {
            let reading = Reading::of(facts, logical_sector);
            latest.reading = Some(match &latest.reading {
                Some(before) => reading.after(before),
                None => reading,
            });
            if failure.is_none() {
                latest.polled_at = Some(now);
            }
        }
        if let Some(reason) = failure {
            *latest.failures.entry(reason).or_default() += 1;
        }
    }

    /// Drops the drives for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&DriveId) -> bool) {
        self.lock().retain(|drive, _| keep(drive));
    }

    /// Returns a copy, by drive.
    pub fn all(&self) -> BTreeMap<DriveId, LatestPoll> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<DriveId, LatestPoll>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters' values in the last week of every drive that is polled. Apart from [`LatestPolls`], which metrics copy as a whole.
#[derive(Debug, Default)]
pub struct LatestCounters(Mutex<BTreeMap<DriveId, CounterPoints>>);

impl LatestCounters {
    /// Replaces the values of a drive.
    pub fn set(&self, drive: &DriveId, points: CounterPoints) {
        self.lock().insert(drive.clone(), points);
    }

    /// Returns a copy of the values of a drive; empty for one that has none.
    pub fn of(&self, drive: &DriveId) -> CounterPoints {
        self.lock().get(drive).cloned().unwrap_or_default()
    }

    /// Drops the drives for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&DriveId) -> bool) {
        self.lock().retain(|drive, _| keep(drive));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<DriveId, CounterPoints>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, fixtures, history::Counter};

    #[test]
    fn a_poll_that_fails_keeps_the_last_reading_with_its_age_and_is_counted() {
        let polls = LatestPolls::default();
        let drive = DriveId("d".into());
        let answer = Outcome::Answered(Box::new(fixtures::changed(fixtures::NVME, &[])));
        polls.took(&drive, &answer, None, 512, 100);
        let failed = Outcome::Failed(Failure {
            reason: FailureReason::Timeout,
            detail: String::new(),
        });
        for now in [200, 300] {
            polls.took(&drive, &failed, Some(FailureReason::Timeout), 512, now);
        }
        let latest = &polls.all()[&drive];
        assert_eq!(latest.polled_at, Some(100));
        assert_eq!(latest.reading.as_ref().unwrap().temperature, Some(38));
        assert_eq!(
            latest.failures,
            BTreeMap::from([(FailureReason::Timeout, 2)])
        );
        polls.took(&drive, &Outcome::Standby, None, 512, 400);
        assert!(polls.all()[&drive].asleep);
        polls.retain(|_| false);
        assert!(polls.all().is_empty());
    }

    #[test]
    fn counters_of_a_drive_are_those_set_last_until_it_is_dropped() {
        let counters = LatestCounters::default();
        let drive = DriveId("d".into());
        assert!(counters.of(&drive).is_empty());
        let points = |value| vec![(Counter::PendingSectors, vec![(0, 0), (60, value)])];
        counters.set(&drive, points(1));
        counters.set(&drive, points(2));
        assert_eq!(counters.of(&drive), points(2));
        counters.retain(|_| false);
        assert!(counters.of(&drive).is_empty());
    }
}
