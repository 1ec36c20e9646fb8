//! `[checks]`: schedule and method of filesystem checks. Pure.

use std::time::Duration;

use super::{
    raw::{Checks, Method},
    report::{Report, value},
};
use drivebay_fs::check::{
    plan::Doubtful,
    schedule::{Rules, Window},
};

/// Default number of runs for `method = "repeated"`.
const REPEATS: i32 = 5;

/// Settings of filesystem checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksConfig {
    pub rules: Rules,
    /// Limit of one check.
    pub timeout: Duration,
    /// Handling of mounted volumes that cannot be checked reliably.
    pub doubtful: Doubtful,
}

/// Checks the section and applies defaults.
pub(super) fn check(raw: &Checks, report: &mut Report) -> ChecksConfig {
    let window = report.parse(raw.window.as_ref(), |text| {
        Window::parse(text).ok_or_else(|| {
            format!("{text:?} is not a part of the day; write for example \"02:00-05:00\" (UTC)")
        })
    });
    let runs = *value(&raw.repeats).unwrap_or(&REPEATS);
    if let Some(at) = &raw.repeats
        && !(2..=20).contains(&runs)
    {
        report.error(at, "must be between 2 and 20");
    }
    let repeated = value(&raw.method) == Some(&Method::Repeated);
    match (&raw.method, &raw.repeats) {
        (Some(at), _) if repeated => report.warn(
            at,
            "runs on a mounted filesystem are often wrong, however often they are repeated; volumes will be called damaged that are not",
        ),
        (_, Some(at)) if !repeated => {
            report.warn(at, "means nothing without method = \"repeated\"");
        }
        _ => {}
    }
    ChecksConfig {
        rules: Rules {
            enabled: value(&raw.enabled) != Some(&false),
            after_unstage: value(&raw.after_unstage) != Some(&false),
            window,
            interval: value(&raw.interval).map_or(Duration::from_hours(24), |it| it.0),
        },
        timeout: value(&raw.timeout).map_or(Duration::from_hours(1), |it| it.0),
        doubtful: if repeated {
            Doubtful::Repeat {
                runs: runs.unsigned_abs(),
            }
        } else {
            Doubtful::Leave
        },
    }
}
