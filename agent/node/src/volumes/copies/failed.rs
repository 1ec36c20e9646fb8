//! Copies that failed permanently, with the reason, until a repeat of the creation was answered with it. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::CopyStatus;

/// Largest number of kept failures; the oldest is removed first.
const MOST: usize = 64;
/// Time after which a creation that was not repeated counts as abandoned.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Latest failures, one per name, in the order in which they occurred.
#[derive(Debug, Default)]
pub(super) struct Failed(Vec<(Instant, CopyStatus)>);

impl Failed {
    /// Adds a failed copy, whose `waits_for` is the reason.
    pub(super) fn add(&mut self, status: CopyStatus, now: Instant) {
        self.forget(now);
        self.0.retain(|(_, one)| one.name != status.name);
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push((now, status));
    }

    /// Removes and returns the failed copy to a volume of this name.
    pub(super) fn take(&mut self, name: &str) -> Option<CopyStatus> {
        let at = self.0.iter().position(|(_, one)| one.name == name)?;
        Some(self.0.remove(at).1)
    }

    /// Returns all kept failures, sorted by name.
    pub(super) fn all(&mut self, now: Instant) -> Vec<CopyStatus> {
        self.forget(now);
        let mut all: Vec<CopyStatus> = self.0.iter().map(|(_, one)| one.clone()).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn forget(&mut self, now: Instant) {
        self.0
            .retain(|(at, _)| now.saturating_duration_since(*at) < KEPT);
    }
}

#[cfg(test)]
mod tests {
    use drivebay_model::DriveId;
    use uuid::Uuid;

    use super::*;

    fn failed(name: &str, why: &str) -> CopyStatus {
        CopyStatus {
            uuid: Uuid::nil(),
            name: name.into(),
            source: None,
            from: None,
            to: DriveId("wwn-1".into()),
            done_bytes: 0,
            total_bytes: 0,
            bytes_per_second: 0,
            eta_seconds: 0,
            waits_for: why.into(),
        }
    }

    #[test]
    fn a_failure_is_listed_until_it_was_answered_once() {
        let now = Instant::now();
        let mut all = Failed::default();
        all.add(failed("b", "first"), now);
        all.add(failed("a", "other"), now);
        all.add(failed("b", "second"), now);
        let names = |all: Vec<CopyStatus>| all.into_iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(all.all(now)), ["a", "b"]);
        assert_eq!(all.take("b"), Some(failed("b", "second")));
        assert_eq!(all.take("b"), None);
        assert_eq!(names(all.all(now)), ["a"]);
    }

    #[test]
    fn failures_that_nobody_requests_are_forgotten_after_a_day_or_when_there_are_too_many() {
        let now = Instant::now();
        let mut all = Failed::default();
        for number in 0..=MOST {
            all.add(failed(&number.to_string(), ""), now);
        }
        assert_eq!(all.all(now).len(), MOST);
        assert_eq!(all.take("0"), None);
        assert!(all.take("1").is_some());
        all.add(failed("late", ""), now + KEPT / 2);
        let left = all.all(now + KEPT);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].name, "late");
    }
}
