//! Decides which entries of a log of unreadable data still count. A log keeps its entries forever: a sector that was unreadable years ago
//! has been written, replaced or read since.

use super::rule::{Hit, Input, Limit};
use crate::{
    facts::{Detail, LoggedError, SelfTest, SelfTestResult},
    plausible::{AHEAD, Field, WRAP, number, self_tests},
};

/// Counts the entries that are not outdated by a later extended self-test that passed, which read the whole medium, or by
/// `uncorrectable-hours` of power-on time. An entry without hours is never outdated.
pub(super) fn counting(input: &Input<'_>, log: &[LoggedError]) -> Option<Hit> {
    let wraps = matches!(input.facts.detail, Detail::Ata(_));
    let power_on = number(input.facts, Field::PowerOnHours);
    let hour = |logged: u64| unwrapped(logged, power_on.filter(|_| wraps));
    let limit = Limit("uncorrectable-hours").of(input.limits);
    let passed = self_tests(input.facts)
        .into_iter()
        .filter(|test| test.kind == SelfTest::EXTENDED && test.result == SelfTestResult::Passed)
        .filter_map(|test| test.hours.map(hour))
        .max();
    let counts = |error: &&LoggedError| {
        let Some(at) = error.hours.map(hour) else {
            return true;
        };
        let is_old = power_on.is_some_and(|now| now.saturating_sub(at) > limit);
        !is_old && passed.is_none_or(|passed| passed <= at)
    };
    let counting: Vec<&LoggedError> = log.iter().filter(counts).collect();
    let count = u64::try_from(counting.len()).unwrap_or(u64::MAX);
    let newest = counting.iter().map(|error| error.number).max()?;
    Some(Hit {
        level: Some(newest.max(count)),
        ..Hit::value(count)
    })
}

/// Returns the power-on hour of a logged one, which has 16 bits: the latest that is possible and not in the future.
pub(super) fn unwrapped(logged: u64, power_on: Option<u64>) -> u64 {
    let now = power_on.unwrap_or(0).saturating_add(AHEAD);
    match now.checked_sub(logged) {
        Some(ago) if logged < WRAP => logged.saturating_add(ago / WRAP * WRAP),
        _ => logged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_hours_are_the_latest_that_have_passed() {
        for (logged, power_on, hours) in [
            (1000, Some(2000), 1000),
            (1000, None, 1000),
            (464, Some(66_001), 66_000),
            (64_000, Some(66_000), 64_000),
            // The drive's own count is late.
            (2050, Some(2000), 2050),
            (465, Some(66_000), 66_001),
            // NVMe does not wrap.
            (70_000, None, 70_000),
            (u64::MAX, Some(u64::MAX), u64::MAX),
        ] {
            assert_eq!(unwrapped(logged, power_on), hours, "{logged} {power_on:?}");
        }
    }
}
