//! What the kernel counted of a drive in one minute, and the load that follows from it.

use std::ops::Add;

use serde::{Deserialize, Serialize};

/// Requests a minute below which a mean says nothing. A drive's own look at itself is one.
pub const MIN_REQUESTS: u64 = 60;
/// Fewer say something when they waited together for so long: a drive that takes seconds for a request cannot do sixty.
const FEW_REQUESTS: u64 = 5;
const LONG_WAIT_MS: u64 = 10_000;
/// The kernel counts whole milliseconds: with fewer, rounding is more than a tenth.
const MIN_WAIT_MS: u64 = 20;

/// Reading or writing. A drive may be slow at one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// The word in metrics, JSON and text.
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

/// Requests of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    pub requests: u64,
    pub bytes: u64,
    /// The time that all of them took together, from the queue to their completion.
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

    /// Mean time of a request in milliseconds; None with too few of them to tell.
    pub fn latency_ms(&self) -> Option<f64> {
        let enough = self.tells(1) && self.wait_ms >= MIN_WAIT_MS;
        enough.then(|| self.wait_ms as f64 / self.requests as f64)
    }

    /// Whether there is enough to tell, as a part of a minute: 2 is half of one.
    fn tells(&self, part: u64) -> bool {
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
    /// The time with at least one request at the drive.
    pub busy_ms: u64,
}

impl Counters {
    /// What came since `before`; None when the counters began again.
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
    /// How long it was.
    pub millis: u64,
    pub reads: Flow,
    pub writes: Flow,
    /// The load of each direction; None when there is too little to tell.
    pub(super) read: Option<Load>,
    pub(super) write: Option<Load>,
}

impl Minute {
    /// A minute of these slices, in which the agent erased on the drive or checked a filesystem.
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

    /// One side of it.
    pub fn flow(&self, direction: Direction) -> &Flow {
        match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        }
    }

    /// Bytes a second.
    pub fn throughput(&self, direction: Direction) -> f64 {
        throughput(self.flow(direction), self.millis)
    }

    /// The load of this direction; None when there is too little to tell.
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

/// Requests that erasing has at the drive.
const ERASING_DEPTH: f64 = 2.0;
/// Bytes a second of the other direction below which it disturbs nobody.
const OTHER_UNIT: f64 = 4e6;

/// What a drive had to do in one direction, and how long a request took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub latency_ms: f32,
    /// Mean bytes of a request.
    pub size: f32,
    /// Of both directions, by bytes: what fills the queue.
    pub mean_size: f32,
    /// Mean requests at the drive while it was busy; at least 1.
    pub depth: f32,
    /// Requests a second.
    pub rate: f32,
    /// Throughput of the other direction: doublings above 4 MB/s.
    pub other: f32,
    /// Flushes a write: doublings, from 0 (none) to 8 (one each).
    pub flushed: f32,
    /// The agent's own work is part of it.
    pub ours: bool,
}

impl Load {
    /// The load in the seconds that are typical of the minute. A mean over all of it would be that of its worst second: a burst
    /// of a few seconds has most of the requests, all of them queued, and a queue that is short on average. `ours`: the agent's
    /// own work is part of it. `erased`: the agent erased beside it.
    fn new(slices: &[Slice], direction: Direction, ours: bool, erased: bool) -> Option<Self> {
        if !Slice::sum(slices).flow(direction).tells(1) {
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
        if !flow.tells(4) || flow.wait_ms < MIN_WAIT_MS {
            return None;
        }
        // Flushes belong to writes: a write that waits for one takes as long.
        let flushed = match direction {
            Direction::Read => 0.0,
            Direction::Write => (typical.flushes as f64 / flow.requests as f64).min(1.0),
        };
        let all = typical.reads + typical.writes;
        let mut depth = all.wait_ms as f64 / typical.busy_ms.max(1) as f64;
        let size = |flow: &Flow| (flow.bytes as f64 / flow.requests.max(1) as f64).max(512.0);
        // By bytes: a few large requests take more of the drive than many small ones.
        let weighed = |flow: &Flow| flow.bytes as f64 * size(flow);
        let mut mean_size =
            (weighed(&typical.reads) + weighed(&typical.writes)) / all.bytes.max(1) as f64;
        if erased {
            // Erasing has few requests, all large: they are taken out of the queue, and do not make the rest of it large.
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
