//! Evidence that a drive is slow, and when it becomes a finding. Evidence is summed up by minute (a CUSUM of the logarithm of the
//! slowdown), so that five minutes at three times the latency are enough, bursts add up, and one bad minute is not enough.

use serde::{Deserialize, Serialize};

/// Slowdown, as a factor, from which on a minute is outside.
pub(super) const OUTSIDE: f64 = 1.65;
/// Evidence from which on a drive is slow.
const RAISE: f64 = 1.2;
/// Minimum of minutes outside among the last `LATELY`.
const AT_LEAST: u32 = 4;
const LATELY: u32 = 8;
/// Minimum of the mean slowdown over all minutes outside.
const CLEARLY: f64 = 1.9;
/// Highest and lowest evidence of one minute.
const MOST: f64 = 0.8;
const LEAST: f64 = -0.3;
/// Slowdown below which a minute of a slow drive is healthy …
const WELL: f64 = 1.5;
/// … and number of healthy minutes, less three for each one outside, after which the drive is not slow any more.
const CLEAR: u32 = 60;
/// Upper bound of the evidence, so that it decays in time.
const FULL: f64 = 4.0;

/// State of one direction of one drive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tracker {
    evidence: f64,
    /// True bits are minutes outside; the lowest bit is the latest minute.
    recent: u32,
    /// Unix time of the first minute outside of the current run.
    began: Option<u64>,
    /// Sums over the run: minutes outside, and logarithms of observed and expected milliseconds.
    minutes: u32,
    observed: f64,
    expected: f64,
    /// Set while the drive is slow.
    slow: Option<Outcome>,
    /// Count of healthy minutes since the drive became slow.
    well: u32,
    /// Slowdown that an operator acknowledged.
    acknowledged: Option<f64>,
}

/// Numbers of a slow drive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Mean latency over the minutes outside, milliseconds.
    pub observed_ms: f64,
    pub expected_ms: f64,
    /// Unix time of the first minute outside.
    pub since: u64,
}

impl Outcome {
    /// Returns the slowdown as a factor.
    pub fn factor(&self) -> f64 {
        self.observed_ms / self.expected_ms.max(f64::MIN_POSITIVE)
    }
}

impl Tracker {
    /// Adds the minute of `at` (unix seconds), with the observed and the expected latency in milliseconds. Without these the state does not
    /// change.
    pub fn feed(&mut self, at: u64, latencies: Option<(f64, f64)>) {
        let Some((observed, expected)) = latencies else {
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
                let slowdown = self
                    .so_far()
                    .filter(|slowdown| slowdown.factor() >= CLEARLY);
                if self.evidence >= RAISE && lately >= AT_LEAST && slowdown.is_some() {
                    self.slow = slowdown;
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
        // The numbers stay those at which it was found, unless it becomes much worse.
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

    /// True if the current minutes count as those of a healthy drive.
    pub(super) fn is_well(&self) -> bool {
        self.slow.is_none() && self.evidence < 0.3
    }

    /// Returns the slowdown, whether it is acknowledged or not.
    pub fn slow(&self) -> Option<Outcome> {
        self.slow
    }

    /// Returns the slowdown, unless it is acknowledged and less than twice as bad as then.
    pub fn counts(&self) -> Option<Outcome> {
        self.slow.filter(|slow| {
            self.acknowledged
                .is_none_or(|acknowledged_factor| slow.factor() >= 2.0 * acknowledged_factor)
        })
    }

    /// Acknowledges the slowdown. Returns true if it counted before.
    pub fn acknowledge(&mut self) -> bool {
        let counted = self.counts();
        if let Some(slow) = counted {
            self.acknowledged = Some(slow.factor());
        }
        counted.is_some()
    }

    /// Withdraws the acknowledgement: the slowdown counts again.
    pub fn withdraw(&mut self) {
        self.acknowledged = None;
    }
}
