//! Load of a drive: streams of requests, closed-loop or open-loop.
//!
//! | load | streams |
//! |---|---|
//! | fio random | 70 % random reads and 30 % random writes of 4–16 KiB, 1–32 outstanding, or at a rate |
//! | fio sequential | one to three streams of 128 KiB–1 MiB, reads or writes |
//! | database | random reads of 8–16 KiB at a rate, writes that each wait for a flush or every eighth does |
//! | web | reads of 16–64 KiB at a rate that follows the time of day, few writes |
//! | backup | idle, then an hour of sequential reads |
//! | idle | less than a request a second |
//!
//! On top: bursts of 5 to 90 s with three to ten times the rate, a day that is 2 h long with a third of the load at night, and
//! depth that changes every half hour.

use fastrand::Rng;

use super::device::{between, normal};

/// Position of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    Random,
    Sequential,
}

#[derive(Debug, Clone, Copy)]
enum Arrival {
    /// Closed loop: this many are outstanding at any time, with a pause in milliseconds after each.
    Closed(f64, f64),
    /// Open loop: this many per second, with a limit of outstanding ones.
    Open(f64, f64),
}

/// A stream in one second.
#[derive(Debug, Clone)]
pub(super) struct Offered {
    pub(super) reads: bool,
    pub(super) pattern: Pattern,
    /// Bytes per request.
    pub(super) size: f64,
    /// Flushes per write, whose latency includes them: 0 to 1; 0 for reads.
    pub(super) flushed: f64,
    /// Relative distance of positions: 1 on average.
    pub(super) reach: f64,
    arrival: Arrival,
}

impl Offered {
    /// Returns requests per second for this latency.
    pub(super) fn rate(&self, latency_ms: f64) -> f64 {
        match self.arrival {
            Arrival::Closed(depth, pause) => depth * 1000.0 / (latency_ms + pause).max(1e-3),
            Arrival::Open(rate, most) => rate.min(most * 1000.0 / latency_ms.max(1e-3)),
        }
    }

    /// Returns the same stream with another intensity.
    fn times(&self, factor: f64) -> Self {
        let arrival = match self.arrival {
            Arrival::Closed(depth, pause) => {
                Arrival::Closed((depth * factor.sqrt()).max(0.2), pause)
            }
            Arrival::Open(rate, most) => Arrival::Open(rate * factor, most),
        };
        Self {
            arrival,
            ..self.clone()
        }
    }

    /// Returns the agent's erasing: large writes at a limited rate.
    pub(super) fn erasing() -> Self {
        Self {
            reads: false,
            pattern: Pattern::Sequential,
            size: 1e6,
            flushed: 0.0,
            reach: 1.0,
            arrival: Arrival::Open(100.0, 2.0),
        }
    }

    /// Returns the agent's check: sequences of reads, with pauses.
    pub(super) fn checking() -> Self {
        Self {
            reads: true,
            pattern: Pattern::Random,
            size: 32e3,
            flushed: 0.0,
            reach: 0.7,
            arrival: Arrival::Closed(1.0, 0.2),
        }
    }
}

/// Kind of load, by which `Load::draw` chooses streams, sizes and rates; see the table of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    FioRandom,
    FioSequential,
    Database,
    Web,
    Backup,
    Idle,
}

impl Profile {
    pub(super) const BUSY: [Self; 4] = [
        Self::FioRandom,
        Self::FioSequential,
        Self::Database,
        Self::Web,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::FioRandom => "random",
            Self::FioSequential => "sequential",
            Self::Database => "database",
            Self::Web => "web",
            Self::Backup => "backup",
            Self::Idle => "idle",
        }
    }
}

/// Load of one drive over time.
#[derive(Debug, Clone)]
pub(super) struct Load {
    streams: Vec<Offered>,
    /// Rate of this drive relative to its neighbours.
    share: f64,
    /// Length of a day in seconds; 0: none.
    day: f64,
    phase: f64,
    bursts: bool,
    burst: f64,
    strength: f64,
    depth_changes: bool,
    depth: f64,
    minute: f64,
    /// Period of a backup, seconds.
    window: Option<(f64, f64)>,
}

impl Load {
    /// Returns a random load of this profile for drives that serve `speed` small random requests per second, one at a time.
    pub(super) fn draw(rng: &mut Rng, profile: Profile, speed: f64, seconds: f64) -> Self {
        let one = |reads, pattern, size, flushed, arrival| Offered {
            reads,
            pattern,
            size,
            flushed,
            reach: 1.0,
            arrival,
        };
        let kib = 1024.0;
        let mut window = None;
        let streams = match profile {
            Profile::FioRandom => {
                let size = kib * [4.0, 8.0, 16.0][rng.usize(..3)];
                let closed = rng.bool();
                let depth = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0][rng.usize(..6)];
                let rate = speed * between(rng, 0.05, 0.5);
                let part_of = |part: f64| {
                    if closed {
                        Arrival::Closed((depth * part).max(0.3), 0.0)
                    } else {
                        Arrival::Open(rate * part, 64.0)
                    }
                };
                vec![
                    one(true, Pattern::Random, size, 0.0, part_of(0.7)),
                    one(false, Pattern::Random, size, 0.0, part_of(0.3)),
                ]
            }
            Profile::FioSequential => {
                let size = kib * [128.0, 256.0, 512.0, 1024.0][rng.usize(..4)];
                let reads = rng.bool();
                let depth = f64::from(rng.u8(1..=3));
                vec![one(
                    reads,
                    Pattern::Sequential,
                    size,
                    0.0,
                    Arrival::Closed(depth, between(rng, 0.0, 5.0)),
                )]
            }
            Profile::Database => {
                let rate = speed * between(rng, 0.03, 0.3);
                let flushed = if rng.bool() { 1.0 } else { 0.125 };
                vec![
                    one(
                        true,
                        Pattern::Random,
                        kib * [8.0, 16.0][rng.usize(..2)],
                        0.0,
                        Arrival::Open(rate, 64.0),
                    ),
                    one(
                        false,
                        Pattern::Random,
                        kib * 8.0,
                        flushed,
                        Arrival::Open(rate * between(rng, 0.1, 0.5), 32.0),
                    ),
                ]
            }
            Profile::Web => {
                let rate = speed * between(rng, 0.02, 0.3);
                vec![
                    one(
                        true,
                        Pattern::Random,
                        kib * between(rng, 16.0, 64.0),
                        0.0,
                        Arrival::Open(rate, 64.0),
                    ),
                    one(
                        false,
                        Pattern::Random,
                        kib * 4.0,
                        0.0,
                        Arrival::Open(rate * 0.05, 16.0),
                    ),
                ]
            }
            Profile::Backup => {
                let begin = between(rng, 0.1, 0.7) * seconds;
                window = Some((begin, begin + 3600.0));
                vec![one(
                    true,
                    Pattern::Sequential,
                    kib * 256.0,
                    0.0,
                    Arrival::Closed(1.0, 0.5),
                )]
            }
            Profile::Idle => vec![one(
                true,
                Pattern::Random,
                kib * 4.0,
                0.0,
                Arrival::Open(between(rng, 0.01, 0.9), 4.0),
            )],
        };
        Self {
            streams,
            share: 1.0,
            day: if rng.bool() { 7200.0 } else { 0.0 },
            phase: rng.f64(),
            bursts: rng.bool(),
            burst: 0.0,
            strength: 1.0,
            depth_changes: rng.u8(..4) == 0,
            depth: 1.0,
            minute: 1.0,
            window,
        }
    }

    /// Returns a similar load for a neighbour, whose rate differs by up to the factor `uneven`.
    pub(super) fn neighbour(&self, rng: &mut Rng, uneven: f64) -> Self {
        let mut other = self.clone();
        other.share = (uneven.ln() * between(rng, -0.5, 0.5)).exp();
        for stream in &mut other.streams {
            stream.reach = between(rng, 0.85, 1.15);
        }
        other
    }

    /// Ensures that there is a stream of reads: otherwise slow reads would have no effect.
    pub(super) fn reading(mut self) -> Self {
        if let [only] = self.streams.as_mut_slice() {
            only.reads = true;
        }
        self
    }

    /// Multiplies the load by a factor.
    pub(super) fn busier(mut self, factor: f64) -> Self {
        self.share *= factor;
        self
    }

    pub(super) fn begin_minute(&mut self, rng: &mut Rng, at: f64) {
        self.minute = (0.15 * normal(rng)).exp();
        if self.depth_changes && ((at / 60.0) as u64).is_multiple_of(30) {
            self.depth = [0.5, 1.0, 2.0, 4.0][rng.usize(..4)];
        }
    }

    /// Returns the streams of this second.
    pub(super) fn second(&mut self, rng: &mut Rng, at: f64) -> Vec<Offered> {
        if self
            .window
            .is_some_and(|(from, to)| !(from..to).contains(&at))
        {
            return Vec::new();
        }
        if self.burst > 0.0 {
            self.burst -= 1.0;
        } else if self.bursts && rng.f64() < 1.0 / 400.0 {
            self.burst = between(rng, 5.0, 90.0);
            self.strength = between(rng, 3.0, 10.0);
        }
        let mut factor = self.share * self.minute * self.depth;
        if self.day > 0.0 {
            let turn = std::f64::consts::TAU * (at / self.day + self.phase);
            factor *= 0.66 + 0.34 * turn.sin();
        }
        if self.burst > 0.0 {
            factor *= self.strength;
        }
        self.streams
            .iter()
            .map(|stream| stream.times(factor))
            .collect()
    }
}
