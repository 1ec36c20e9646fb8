//! What metrics and commands show of a drive's latencies.

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

/// Minutes of a chart.
const CHART: usize = 60;

/// A direction in which a drive is slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    pub direction: Direction,
    pub outcome: Outcome,
    /// An operator has seen it, and it is no worse since.
    pub acknowledged: bool,
}

/// One drive.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Speed {
    /// Unix time of the end of the last minute; 0: none yet.
    pub at: u64,
    pub peers: Peers,
    pub peer_count: usize,
    pub read: Side,
    pub write: Side,
}

impl Speed {
    /// One side of it.
    pub fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }
}

/// One direction of one drive.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// Of the last minute, per second.
    pub bytes_per_second: f64,
    pub requests_per_second: f64,
    /// Of the last minute; None: too few requests.
    pub latency_ms: Option<f64>,
    /// What the load of the last minute should cost; None: nobody can tell.
    pub expected_ms: Option<f64>,
    /// The usual latency of the drive itself over the minutes that are kept.
    pub own_ms: Option<f64>,
    /// Mean latency of each of the last minutes, the latest last; None: too few requests.
    pub history_ms: Vec<Option<f64>>,
    /// It is slow, whether that counts or is acknowledged.
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

    /// Observed by expected, of the last minute.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.latency_ms? / self.expected_ms?.max(f64::MIN_POSITIVE))
    }
}

/// The last minute of each drive: written by the task that compares, read by metrics and commands.
#[derive(Debug, Default)]
pub struct LatestSpeeds(Mutex<BTreeMap<DriveId, Speed>>);

impl LatestSpeeds {
    /// Replaces all of it.
    pub fn put(&self, speeds: BTreeMap<DriveId, Speed>) {
        *self.lock() = speeds;
    }

    /// All of it.
    pub fn all(&self) -> BTreeMap<DriveId, Speed> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DriveId, Speed>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two digits that matter.
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
