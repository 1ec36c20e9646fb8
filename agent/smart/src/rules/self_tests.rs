//! Decides which failed self-tests count.

use super::{
    error_age::unwrapped,
    rule::{Hit, Input},
};
use crate::{
    facts::{Detail, ExitStatus, Facts, SelfTest, SelfTestResult},
    plausible::{self, WRAP},
};

/// Results of self-tests for failed electronics and mechanics.
const FATAL: [(u8, &str); 2] = [(5, "electronics"), (6, "mechanics")];
/// Number of passed self-tests of any kind that outdate a failed one of a SAS drive.
const OTHERS: usize = 5;
/// Hours from the failed one to the last of them, at least.
const APART: u64 = 1000;

/// Returns a fatal result among the newest ones up to one that passed: a later failure of another kind does not clear it.
pub(super) fn fatal(facts: &Facts) -> Vec<Hit> {
    let tests = plausible::self_tests(facts).into_iter();
    let mut since_passed = tests.take_while(|test| test.result != SelfTestResult::Passed);
    let fatal = since_passed.find_map(|test| {
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

/// Returns the newest failed self-test that is not outdated: by a later one of its kind, or an extended one, that passed. One of a SAS
/// drive is also outdated by enough others over enough time: counters and background scan cover the medium.
pub(super) fn failed(input: &Input<'_>) -> Vec<Hit> {
    let tests = plausible::self_tests(input.facts);
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
    // The bit is set for a failure of any age: it only replaces a log that was not read.
    let bit = input.facts.self_tests().is_empty() && input.facts.exit.has(ExitStatus::SELF_TEST);
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

/// True if two hours are of one entry, read before and after the drive's own count passed a multiple of 65,536.
pub(super) fn is_same(level: u64, acknowledged: u64) -> bool {
    level.abs_diff(acknowledged).is_multiple_of(WRAP)
}
