//! The kernel's counters of a drive for one minute, and the load that derives from them.

use std::ops::Add;

use serde::{Deserialize, Serialize};

/// Minimum of requests in a minute for a meaningful mean. The agent's own probe of a drive is one request.
pub const MIN_REQUESTS: u64 = 60;
/// Minimum of requests that are enough if they waited for `LONG_WAIT_MS` in total: a drive that takes seconds for a request cannot complete
/// sixty.
const FEW_REQUESTS: u64 = 5;
const LONG_WAIT_MS: u64 = 10_000;
/// Minimum of waiting time, milliseconds: the kernel counts whole ones, and with fewer, rounding is more than a tenth.
const MIN_WAIT_MS: u64 = 20;

/// Reading or writing. A drive may be slow in one direction only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// Returns the word in metrics, JSON and text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Read => Self::Write,
            Self::Write => Self::Read,
        }
    }
}

/// Counters of the requests of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    pub requests: u64,
    pub bytes: u64,
    /// Sum of the times of all requests, from the queue to their completion, milliseconds.
    pub wait_ms: u64,
}

impl Flow {
    fn since(self, before: Self) -> Option<Self> {
        Some(Self {
            requests: self.requests.checked_sub(before.requests)?,
            bytes: self.bytes.checked_sub(before.bytes)?,
            wait_ms: self.wait_ms.checked_sub(before.wait_ms)?,
        })
    }

    /// Returns the mean time of a request, milliseconds; None with too few requests for a mean.
    pub fn latency_ms(&self) -> Option<f64> {
        let enough = self.has_mean(1) && self.wait_ms >= MIN_WAIT_MS;
        enough.then(|| self.wait_ms as f64 / self.requests as f64)
    }

    /// True if there are enough requests for a mean. `part`: the fraction of a minute, e.g. 2 for half of one.
    fn has_mean(&self, part: u64) -> bool {
        let few = self.requests * part >= FEW_REQUESTS && self.wait_ms * part >= LONG_WAIT_MS;
        self.requests * part >= MIN_REQUESTS || few
    }
}

impl Add for Flow {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bytes: self.bytes + other.bytes,
            wait_ms: self.wait_ms + other.wait_ms,
        }
    }
}

/// The kernel's counters since the device appeared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: Flow,
    pub writes: Flow,
    pub flushes: u64,
    /// Time with at least one request at the drive, milliseconds.
    pub busy_ms: u64,
}

impl Counters {
    /// Returns the difference to `before`; None if the counters were reset.
    pub fn since(&self, before: &Self, millis: u64) -> Option<Slice> {
        Some(Slice {
            millis,
            reads: self.reads.since(before.reads)?,
            writes: self.writes.since(before.writes)?,
            flushes: self.flushes.checked_sub(before.flushes)?,
            busy_ms: self.busy_ms.checked_sub(before.busy_ms)?,
        })
    }
}

/// A few seconds of one drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    pub millis: u64,
    pub reads: Flow,
    pub writes: Flow,
    pub flushes: u64,
    pub busy_ms: u64,
}

impl Slice {
    fn flow(&self, direction: Direction) -> &Flow {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    fn sum<'a>(slices: impl IntoIterator<Item = &'a Self>) -> Self {
        slices.into_iter().fold(Self::default(), |sum, slice| Self {
            millis: sum.millis + slice.millis,
            reads: sum.reads + slice.reads,
            writes: sum.writes + slice.writes,
            flushes: sum.flushes + slice.flushes,
            busy_ms: sum.busy_ms + slice.busy_ms,
        })
    }
}

/// One minute of one drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Minute {
    pub millis: u64,
    pub reads: Flow,
    pub writes: Flow,
    /// Load of each direction; None if there are too few requests.
    pub(super) read: Option<Load>,
    pub(super) write: Option<Load>,
}

impl Minute {
    /// Sums up slices. `erasing`, `checking`: the agent erased on the drive, or checked a filesystem, in this minute.
    pub fn new(slices: &[Slice], erasing: bool, checking: bool) -> Self {
        let whole = Slice::sum(slices);
        Self {
            millis: whole.millis,
            reads: whole.reads,
            writes: whole.writes,
            read: Load::new(slices, Direction::Read, checking, erasing),
            write: Load::new(slices, Direction::Write, erasing, false),
        }
    }

    pub fn flow(&self, direction: Direction) -> &Flow {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    /// Returns the throughput of this direction, bytes per second.
    pub fn throughput(&self, direction: Direction) -> f64 {
        throughput(self.flow(direction), self.millis)
    }

    /// Returns the load of this direction; None if there are too few requests.
    pub fn load(&self, direction: Direction) -> Option<&Load> {
        match direction {
            Direction::Read => self.read.as_ref(),
            Direction::Write => self.write.as_ref(),
        }
    }
}

fn throughput(flow: &Flow, millis: u64) -> f64 {
    flow.bytes as f64 * 1000.0 / millis.max(1) as f64
}

/// Number of requests that erasing keeps at the drive.
const ERASING_DEPTH: f64 = 2.0;
/// Throughput of the other direction, bytes per second, below which it has no effect.
const OTHER_UNIT: f64 = 4e6;

/// Work of a drive in one direction, and the latency of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub latency_ms: f32,
    /// Mean size of a request, bytes.
    pub size: f32,
    /// Mean size of the requests of both directions, weighted by bytes: they fill the queue.
    pub mean_size: f32,
    /// Mean number of requests at the drive while it was busy; at least 1.
    pub depth: f32,
    /// Requests of this direction per second.
    pub rate: f32,
    /// Throughput of the other direction: number of doublings above 4 MB/s.
    pub other: f32,
    /// Flushes per write: number of doublings, from 0 (none) to 8 (one each).
    pub flushed: f32,
    /// True if the agent's own requests are a part of it.
    pub ours: bool,
}

impl Load {
    /// Returns the load in the seconds that are typical of the minute. A mean over the whole minute would be that of its worst second: a
    /// burst of a few seconds has most of the requests, all of them queued, and a queue that is short on average. `ours`: the agent's own
    /// requests are a part of it. `erased`: the agent erased at the same time.
    fn new(slices: &[Slice], direction: Direction, ours: bool, erased: bool) -> Option<Self> {
        if !Slice::sum(slices).flow(direction).has_mean(1) {
            return None;
        }
        let latency = |slice: &Slice| {
            let flow = slice.flow(direction);
            flow.wait_ms as f64 / flow.requests.max(1) as f64
        };
        let mut with: Vec<&Slice> = slices
            .iter()
            .filter(|slice| slice.flow(direction).requests > 0)
            .collect();
        with.sort_by(|a, b| latency(a).total_cmp(&latency(b)));
        let edge = with.len() / 4;
        let typical = Slice::sum(with.get(edge..with.len() - edge)?.iter().copied());
        let flow = typical.flow(direction);
        if !flow.has_mean(4) || flow.wait_ms < MIN_WAIT_MS {
            return None;
        }
        // Flushes count for writes: a write that waits for one takes as long.
        let flushed = match direction {
            Direction::Read => 0.0,
            Direction::Write => (typical.flushes as f64 / flow.requests as f64).min(1.0),
        };
        let all = typical.reads + typical.writes;
        let mut depth = all.wait_ms as f64 / typical.busy_ms.max(1) as f64;
        let size = |flow: &Flow| (flow.bytes as f64 / flow.requests.max(1) as f64).max(512.0);
        // By bytes: a few large requests load the drive more than many small ones.
        let weighed = |flow: &Flow| flow.bytes as f64 * size(flow);
        let mut mean_size =
            (weighed(&typical.reads) + weighed(&typical.writes)) / all.bytes.max(1) as f64;
        if erased {
            // Erasing has few requests, all of them large: they are subtracted from the queue, and do not raise the mean size.
            depth -= ERASING_DEPTH;
            mean_size = size(flow);
        }
        let other = throughput(typical.flow(direction.other()), typical.millis);
        Some(Self {
            latency_ms: (flow.wait_ms as f64 / flow.requests as f64) as f32,
            size: size(flow) as f32,
            mean_size: mean_size.max(512.0) as f32,
            depth: depth.max(1.0) as f32,
            rate: (flow.requests as f64 * 1000.0 / typical.millis.max(1) as f64) as f32,
            other: (1.0 + other / OTHER_UNIT).log2() as f32,
            flushed: (1.0 + 255.0 * flushed).log2() as f32,
            ours,
        })
    }
}
