//! Self-tests: which failed ones count, and which is which after the hours have wrapped.

use super::rule::{Hit, Input};
use crate::smart::facts::{Ata, Detail, ExitStatus, SelfTest, SelfTestResult};

/// Self-test results of the electronics and of the mechanics.
const FATAL: [(u8, &str); 2] = [(5, "electronics"), (6, "mechanics")];
/// ATA's and SCSI's logs count hours in 16 bits.
const WRAP: u64 = 1 << 16;
/// Passed self-tests of any kind that outdate a failed one of a SAS drive.
const OTHERS: usize = 5;
/// Hours from that to the last of them.
const APART: u64 = 1000;
/// The hour in the log may be ahead of the drive's own count, which some drives update rarely.
const AHEAD: u64 = 100;

/// The newest results up to one that passed: a later failure of another kind does not clear a fatal one.
pub(super) fn fatal(ata: &Ata) -> Vec<Hit> {
    let since_passed = ata
        .self_tests
        .iter()
        .take_while(|test| test.result != SelfTestResult::Passed);
    let fatal = since_passed.into_iter().find_map(|test| {
        let SelfTestResult::Failed(code) = test.result else {
            return None;
        };
        let (_, part) = FATAL.iter().find(|(fatal, _)| *fatal == code)?;
        Some(Hit {
            what: (*part).to_owned(),
            ..Hit::value(test.hours.unwrap_or(1))
        })
    });
    fatal.into_iter().collect()
}

/// A failed self-test counts until a later one passes: one of its own kind, or an extended one. A SAS drive's is also
/// outdated by enough others over enough time: its counters and its background scan tell of the medium.
pub(super) fn failed(input: &Input<'_>) -> Vec<Hit> {
    let tests = input.facts.self_tests();
    let is_scsi = matches!(input.facts.detail, Detail::Scsi(_));
    let mut passed: Vec<u64> = Vec::new();
    let mut last_pass: Option<u64> = None;
    let mut failed: Option<&SelfTest> = None;
    for test in tests {
        match test.result {
            SelfTestResult::Passed => {
                passed.push(test.kind);
                last_pass = last_pass.or(test.hours);
            }
            SelfTestResult::Failed(_)
                if is_scsi
                    && passed.len() >= OTHERS
                    && test
                        .hours
                        .zip(last_pass)
                        .is_some_and(|(failed, last)| last >= failed.saturating_add(APART)) => {}
            SelfTestResult::Failed(_)
                if !passed.contains(&test.kind) && !passed.contains(&SelfTest::EXTENDED) =>
            {
                failed = Some(test);
                break;
            }
            _ => {}
        }
    }
    // The bit says that the log has a failure of any age: it only stands in for a log that was not read.
    let bit = tests.is_empty() && input.facts.exit.has(ExitStatus::SELF_TEST);
    if failed.is_none() && !bit {
        return Vec::new();
    }
    let hours = failed.and_then(|test| test.hours).unwrap_or(1);
    let wraps = matches!(input.facts.detail, Detail::Ata(_) | Detail::Scsi(_));
    let power_on = input.facts.power_on_hours.filter(|_| wraps);
    vec![Hit {
        level: Some(unwrapped(hours, power_on)),
        ..Hit::value(hours)
    }]
}

/// The hour since the drive was new: the latest that ends in the logged 16 bits and is not in the future.
fn unwrapped(logged: u64, power_on: Option<u64>) -> u64 {
    let now = power_on.unwrap_or(0).saturating_add(AHEAD);
    match now.checked_sub(logged) {
        Some(ago) if logged < WRAP => logged.saturating_add(ago / WRAP * WRAP),
        _ => logged,
    }
}

/// Whether two hours are of one entry, seen before and after the drive's own count passed a multiple of 65,536.
pub(super) fn is_same(level: u64, acknowledged: u64) -> bool {
    level.abs_diff(acknowledged).is_multiple_of(WRAP)
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
            // The drive's own count is behind.
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
