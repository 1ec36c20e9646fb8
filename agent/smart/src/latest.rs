//! The last SMART poll of each drive and its failures: written by the polling task, read by metrics.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::{FailureReason, Outcome, reading::Reading};
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
        let told = drives.entry(drive.clone()).or_default();
        told.asleep = matches!(outcome, Outcome::Standby);
        if let Outcome::Answered(facts) = outcome {
            let reading = Reading::of(facts, logical_sector);
            told.reading = Some(match &told.reading {
                Some(before) => reading.after(before),
                None => reading,
            });
            if failure.is_none() {
                told.polled_at = Some(now);
            }
        }
        if let Some(reason) = failure {
            *told.failures.entry(reason).or_default() += 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Failure, fixtures};

    #[test]
    fn a_poll_that_fails_keeps_what_was_told_with_its_age_and_is_counted() {
        let told = LatestPolls::default();
        let drive = DriveId("d".into());
        let answer = Outcome::Answered(Box::new(fixtures::changed(fixtures::NVME, &[])));
        told.took(&drive, &answer, None, 512, 100);
        let failed = Outcome::Failed(Failure {
            reason: FailureReason::Timeout,
            detail: String::new(),
        });
        for now in [200, 300] {
            told.took(&drive, &failed, Some(FailureReason::Timeout), 512, now);
        }
        let seen = &told.all()[&drive];
        assert_eq!(seen.polled_at, Some(100));
        assert_eq!(seen.reading.as_ref().unwrap().temperature, Some(38));
        assert_eq!(seen.failures, BTreeMap::from([(FailureReason::Timeout, 2)]));
        told.took(&drive, &Outcome::Standby, None, 512, 400);
        assert!(told.all()[&drive].asleep);
        told.retain(|_| false);
        assert!(told.all().is_empty());
    }
}
