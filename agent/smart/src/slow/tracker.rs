//! How long a drive has been outside, and when that is a finding: evidence adds up minute by minute (a CUSUM of the logarithm of
//! the slowdown), so that five minutes at three times the latency are enough, bursts add up, and one bad minute is not.

use serde::{Deserialize, Serialize};

/// A drive is outside when it takes so many times what is expected.
pub(super) const OUTSIDE: f64 = 1.65;
/// Evidence with which it is slow.
const RAISE: f64 = 1.2;
/// Minutes outside that it takes in any case, of the last `LATELY`.
const AT_LEAST: u32 = 4;
const LATELY: u32 = 8;
/// Over all minutes outside it takes at least so many times what is expected.
const CLEARLY: f64 = 1.9;
/// What one minute can add and take away.
const MOST: f64 = 0.8;
const LEAST: f64 = -0.3;
/// Below so many times what is expected a slow drive is well …
const WELL: f64 = 1.5;
/// … and not slow any more after so many such minutes more than others.
const CLEAR: u32 = 60;
/// Evidence never is more than this, so that it is forgotten in time.
const FULL: f64 = 4.0;

/// One direction of one drive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tracker {
    evidence: f64,
    /// The last minutes, the latest in the lowest bit: outside or not.
    recent: u32,
    /// Unix time at which the present run began.
    began: Option<u64>,
    /// Sums over the run: minutes, and logarithms of observed and expected milliseconds.
    minutes: u32,
    observed: f64,
    expected: f64,
    /// It is slow.
    slow: Option<Outcome>,
    /// Minutes in which it was well, since it is slow.
    well: u32,
    /// The slowdown that an operator has seen.
    acknowledged: Option<f64>,
}

/// A slow drive, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Milliseconds a request, over the minutes outside.
    pub observed_ms: f64,
    pub expected_ms: f64,
    /// Unix time of the first minute outside.
    pub since: u64,
}

impl Outcome {
    /// How many times what is expected.
    pub fn factor(&self) -> f64 {
        self.observed_ms / self.expected_ms.max(f64::MIN_POSITIVE)
    }
}

impl Tracker {
    /// Takes in a minute that began at `at`: how long a request took and what was expected. Without an expectation nothing is
    /// learned.
    pub fn feed(&mut self, at: u64, told: Option<(f64, f64)>) {
        let Some((observed, expected)) = told else {
            return;
        };
        let factor = (observed / expected).max(f64::MIN_POSITIVE);
        let outside = factor >= OUTSIDE;
        self.recent = (self.recent << 1) | u32::from(outside);
        let step = (factor.ln() - OUTSIDE.ln()).clamp(LEAST, MOST);
        self.evidence = (self.evidence + step).clamp(0.0, FULL);
        if outside {
            self.began.get_or_insert(at);
            self.minutes += 1;
            self.observed += observed.ln();
            self.expected += expected.ln();
        }
        match self.slow {
            None => {
                let lately = (self.recent & ((1 << LATELY) - 1)).count_ones();
                let found = self.so_far().filter(|found| found.factor() >= CLEARLY);
                if self.evidence >= RAISE && lately >= AT_LEAST && found.is_some() {
                    self.slow = found;
                    self.well = 0;
                } else if self.evidence <= 0.0 {
                    self.forget();
                }
            }
            Some(slow) => self.follow(slow, factor),
        }
    }

    fn follow(&mut self, slow: Outcome, factor: f64) {
        if factor < WELL {
            self.well += 1;
        } else if factor >= OUTSIDE {
            self.well = self.well.saturating_sub(3);
        }
        if self.well >= CLEAR {
            *self = Self::default();
            return;
        }
        // Its numbers are those with which it was found, unless it is much worse.
        let worse = self.so_far();
        if let Some(worse) = worse.filter(|worse| worse.factor() >= 2.0 * slow.factor()) {
            self.slow = Some(Outcome {
                since: slow.since,
                ..worse
            });
        }
        if self.minutes >= 30 {
            self.forget_half();
        }
    }

    fn so_far(&self) -> Option<Outcome> {
        let minutes = f64::from(self.minutes.max(1));
        Some(Outcome {
            observed_ms: (self.observed / minutes).exp(),
            expected_ms: (self.expected / minutes).exp(),
            since: self.began?,
        })
    }

    fn forget(&mut self) {
        self.began = None;
        self.minutes = 0;
        self.observed = 0.0;
        self.expected = 0.0;
    }

    fn forget_half(&mut self) {
        self.minutes /= 2;
        self.observed /= 2.0;
        self.expected /= 2.0;
    }

    /// Whether minutes count as those of a healthy drive.
    pub(super) fn is_well(&self) -> bool {
        self.slow.is_none() && self.evidence < 0.3
    }

    /// That it is slow, whether an operator has seen it or not.
    pub fn slow(&self) -> Option<Outcome> {
        self.slow
    }

    /// That it is slow, unless an operator has seen it and it is no worse since.
    pub fn counts(&self) -> Option<Outcome> {
        self.slow.filter(|slow| {
            self.acknowledged
                .is_none_or(|known| slow.factor() >= 2.0 * known)
        })
    }

    /// An operator has seen it. True when there was something to be seen.
    pub fn acknowledge(&mut self) -> bool {
        let counted = self.counts();
        if let Some(slow) = counted {
            self.acknowledged = Some(slow.factor());
        }
        counted.is_some()
    }

    /// What an operator has seen counts again.
    pub fn withdraw(&mut self) {
        self.acknowledged = None;
    }
}
