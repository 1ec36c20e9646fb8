//! `[checks]`: when filesystems are checked, and how. Pure.

use std::time::Duration;

use super::{
    check::{Notes, duration},
    raw::RawChecks,
};
use crate::check::{
    plan::Doubtful,
    schedule::{Rules, Window},
};

/// Runs of `method = "repeated"` when nobody says otherwise.
const REPEATS: i32 = 5;

/// How filesystems are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksConfig {
    /// When.
    pub rules: Rules,
    /// Longest one check may take.
    pub timeout: Duration,
    /// What is done where no answer can be believed.
    pub doubtful: Doubtful,
}

/// Checks the section.
pub fn check(raw: &RawChecks, notes: &mut Notes) -> ChecksConfig {
    let flag = |given: &Option<super::section::At<bool>>| given.as_ref().is_none_or(|at| at.value);
    let window = raw.window.as_ref().and_then(|at| {
        let window = Window::parse(&at.value);
        if window.is_none() {
            notes.wrong(
                at,
                format!(
                    "{:?} is not a part of the day; write for example \"02:00-05:00\" (UTC)",
                    at.value
                ),
            );
        }
        window
    });
    let minute = (Duration::from_secs(60), "1m");
    let none = (Duration::ZERO, "0s");
    let interval = duration(raw.interval.as_ref(), "24h", none, notes);
    let timeout = duration(raw.timeout.as_ref(), "1h", minute, notes);
    let repeated = raw
        .method
        .as_ref()
        .and_then(|at| notes.choice(at, &[("trusted", false), ("repeated", true)]))
        .unwrap_or(false);
    let runs = match &raw.repeats {
        Some(at) if !(2..=20).contains(&at.value) => {
            notes.wrong(at, "must be between 2 and 20");
            REPEATS
        }
        Some(at) => at.value,
        None => REPEATS,
    };
    if repeated {
        if let Some(at) = &raw.method {
            notes.odd(
                at,
                "runs on a mounted filesystem are often wrong, however often they are repeated; volumes will be called damaged that are not",
            );
        }
    } else if let Some(at) = &raw.repeats {
        notes.odd(at, "means nothing without method = \"repeated\"");
    }
    ChecksConfig {
        rules: Rules {
            enabled: flag(&raw.enabled),
            after_unstage: flag(&raw.after_unstage),
            window,
            interval,
        },
        timeout,
        doubtful: if repeated {
            Doubtful::Repeat {
                runs: runs.unsigned_abs(),
            }
        } else {
            Doubtful::Leave
        },
    }
}
