//! The time of a step of a copy, and its rate.

use std::time::{Duration, Instant};

use drivebay_model::MIB;

/// Bytes that are read and written at once. Measured with O_DIRECT on simulated drives: at 2 GB/s
/// pieces of 1 MiB cost 7 % of the throughput, and 8 MiB gain nothing; at 150 MB/s a piece takes 30
/// ms.
pub(super) const PIECE: u64 = 4 * MIB;

/// Bytes that are flushed and compared at once. At the start of each range nothing overlaps the
/// first read, and a disk seeks back once for comparing: with 64 MiB that costs 5 % at 200 MB/s
/// (measured, without the seek), with 128 MiB 3 %, and an interrupted step repeats twice as much.
pub(super) const RANGE: u64 = 64 * MIB;

/// Bytes of the smallest piece.
const SMALLEST: u64 = 64 << 10;

/// Time limit and rate limit of a step.
#[derive(Debug)]
pub(super) struct Rate {
    begin: Instant,
    budget: Duration,
    /// None: as fast as the drives are.
    bytes_per_second: Option<u64>,
    copied: u64,
    #[cfg(test)]
    sizes: Option<(u64, u64)>,
}

impl Rate {
    pub(super) fn new(budget_ms: u64, bytes_per_second: Option<u64>) -> Self {
        Self {
            begin: Instant::now(),
            budget: Duration::from_millis(budget_ms),
            bytes_per_second: bytes_per_second.map(|rate| rate.max(1)),
            copied: 0,
            #[cfg(test)]
            sizes: None,
        }
    }

    /// Replaces the sizes of pieces and ranges, in bytes.
    #[cfg(test)]
    pub(super) fn sized(budget_ms: u64, piece: u64, range: u64) -> Self {
        Self {
            sizes: Some((piece, range)),
            ..Self::new(budget_ms, None)
        }
    }

    /// Returns the time limit of the step, from its start.
    pub(super) fn budget(&self) -> Duration {
        self.budget
    }

    pub(super) fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.budget
    }

    /// Returns the bytes of a piece: a quarter of a second's, so that a low rate is kept evenly.
    pub(super) fn piece(&self) -> u64 {
        #[cfg(test)]
        if let Some((piece, _)) = self.sizes {
            return piece;
        }
        self.bytes_per_second.map_or(PIECE, |rate| {
            (rate / 4).clamp(SMALLEST, PIECE) / SMALLEST * SMALLEST
        })
    }

    /// Returns the bytes of a range: a second's, since comparing it has no rate limit.
    pub(super) fn range(&self) -> u64 {
        #[cfg(test)]
        if let Some((_, range)) = self.sizes {
            return range;
        }
        let piece = self.piece();
        let second = self.bytes_per_second.unwrap_or(RANGE);
        second.clamp(piece, RANGE.max(piece)) / piece * piece
    }

    /// Counts copied bytes; waits until the rate allows for them, or the time is over.
    #[allow(
        clippy::disallowed_methods,
        reason = "nothing is waited for: the time itself is what a rate is about"
    )]
    pub(super) fn copied(&mut self, bytes: u64) {
        self.copied = self.copied.saturating_add(bytes);
        let Some(rate) = self.bytes_per_second else {
            return;
        };
        let until = due(self.copied, rate).min(self.budget);
        let wait = until.saturating_sub(self.begin.elapsed());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }
}

/// Returns the time from the start after which this many bytes may have been copied. Pure.
fn due(bytes: u64, bytes_per_second: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(bytes_per_second.max(1));
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_rate_has_small_pieces_and_ranges_of_whole_pieces() {
        let sizes = |rate| {
            let rate = Rate::new(0, rate);
            (rate.piece(), rate.range())
        };
        assert_eq!(sizes(None), (PIECE, RANGE));
        assert_eq!(sizes(Some(u64::MAX)), (PIECE, RANGE));
        assert_eq!(sizes(Some(17 * MIB)), (PIECE, 16 * MIB));
        assert_eq!(sizes(Some(MIB)), (MIB / 4, MIB));
        assert_eq!(sizes(Some(0)), (SMALLEST, SMALLEST));
    }

    #[test]
    fn bytes_are_due_at_the_rate() {
        assert_eq!(due(10 * MIB, 5 * MIB), Duration::from_secs(2));
        assert_eq!(due(u64::MAX, 0), Duration::from_micros(u64::MAX));
    }

    #[test]
    fn a_rate_is_waited_for_within_the_budget_only() {
        let mut rate = Rate::new(60_000, Some(10 * MIB));
        rate.copied(MIB);
        assert!(rate.begin.elapsed() >= Duration::from_millis(100));
        let mut rate = Rate::new(20, Some(1));
        rate.copied(MIB);
        assert!(rate.is_over());
        assert!(rate.begin.elapsed() < Duration::from_secs(30));
    }
}
