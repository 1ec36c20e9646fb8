//! Latencies of a drive for metrics and commands.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    comparison::Judged,
    minute::Direction,
    tracker::{Outcome, Tracker},
};
use drivebay_model::DriveId;
pub use drivebay_model::words::Peers;

/// Number of minutes in a chart.
const CHART: usize = 60;

/// A direction in which a drive is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    pub direction: Direction,
    pub outcome: Outcome,
    /// True if an operator acknowledged it and it has not become worse since.
    pub acknowledged: bool,
}

/// Latest values of one drive.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Speed {
    /// Unix time of the end of the last minute; 0 if there is none yet.
    pub at: u64,
    pub peers: Peers,
    pub peer_count: usize,
    pub read: Side,
    pub write: Side,
}

impl Speed {
    pub fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}

/// Latest values of one direction of one drive.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// Throughput in the last minute.
    pub bytes_per_second: f64,
    pub requests_per_second: f64,
    /// Mean latency in the last minute; None with too few requests.
    pub latency_ms: Option<f64>,
    /// Expected latency at the load of the last minute; None without a comparison.
    pub expected_ms: Option<f64>,
    /// Median latency of the drive itself over the minutes that are kept.
    pub own_ms: Option<f64>,
    /// Mean latency of each of the last minutes, the latest last; None with too few requests.
    pub history_ms: Vec<Option<f64>>,
    /// Set while the drive is slow, whether that is acknowledged or not.
    pub slow: Option<Outcome>,
    pub acknowledged: bool,
}

impl Side {
    pub(super) fn of(direction: Direction, minutes: &VecDeque<Judged>, tracker: &Tracker) -> Self {
        let latency = |judged: &Judged| judged.minute.flow(direction).latency_ms();
        let Some(last) = minutes.back() else {
            return Self::default();
        };
        let seconds = last.minute.millis.max(1) as f64 / 1000.0;
        let mut all: Vec<f64> = minutes.iter().filter_map(latency).collect();
        let from = minutes.len().saturating_sub(CHART);
        Self {
            bytes_per_second: last.minute.throughput(direction),
            requests_per_second: last.minute.flow(direction).requests as f64 / seconds,
            latency_ms: latency(last),
            expected_ms: last.score(direction).map(|score| score.expected_ms),
            own_ms: super::reference::median(&mut all),
            history_ms: minutes.iter().skip(from).map(latency).collect(),
            slow: tracker.slow(),
            acknowledged: tracker.slow().is_some() && tracker.counts().is_none(),
        }
    }

    /// Returns the observed latency divided by the expected one, for the last minute.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.latency_ms? / self.expected_ms?.max(f64::MIN_POSITIVE))
    }
}

/// Latest values of each drive: written by the task that compares drives, read by metrics and commands.
#[derive(Debug, Default)]
pub struct LatestSpeeds(Mutex<BTreeMap<DriveId, Speed>>);

impl LatestSpeeds {
    /// Replaces the values of all drives.
    pub fn put(&self, speeds: BTreeMap<DriveId, Speed>) {
        *self.lock() = speeds;
    }

    /// Returns a copy, by drive.
    pub fn all(&self) -> BTreeMap<DriveId, Speed> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DriveId, Speed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number with two significant digits.
pub fn rounded(value: f64) -> String {
    let digits = 1 - value.abs().max(1e-3).log10().floor() as i32;
    let digits = usize::try_from(digits.max(0)).unwrap_or(0);
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
