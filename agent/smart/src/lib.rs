//! SMART: polling a drive, and its verdict.
//!
//! `collect` runs smartctl (in the drive's worker, because it blocks); `facts` is its output, typed; `rules` (pure) derives findings and
//! conditions from facts; `history` (pure) keeps what growth, hysteresis and acknowledgements need. `plausible` (pure) drops numbers that
//! cannot be true before anything reads them. `thresholds` has all thresholds in one table. After a failed poll a drive keeps its last
//! verdict, marked as stale, and the failure is counted. `reading` is the numbers of an answer in SI units, and `latest` keeps the last one
//! of each drive with its counters' last week, for metrics and the agent's service.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod collect;
pub mod facts;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
#[path = "../../../proto/golden.rs"]
mod golden;
pub mod history;
pub mod job;
mod json;
mod judge;
pub mod latest;
mod lifetime;
pub mod outcome;
mod plausible;
pub mod reading;
pub mod rules;
pub mod slow;
pub mod thresholds;

pub use collect::{Poll, Polled, poll};
pub use facts::Facts;
pub use history::{Acknowledgement, History};
pub use judge::{Assessment, judge};
pub use latest::{LatestCounters, LatestPoll, LatestPolls};
pub use outcome::{Failure, FailureReason, Outcome};
pub use reading::Reading;
pub use rules::{RuleFinding, Severity, SmartCode, SmartCondition, Verdict};
pub use thresholds::Thresholds;
