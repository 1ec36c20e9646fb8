//! Zeroing in pieces that each take a short time, regardless of the drive's speed.

use std::time::{Duration, Instant};

use super::device::Device;
use drivebay_model::{Extent, GIB, MIB, Zeroing};

/// State of zeroing for a limited time, in pieces that each take well under a second.
#[derive(Debug)]
pub(super) struct Pace {
    piece: u64,
    begin: Instant,
    budget: Duration,
}

impl Pace {
    /// Starts with pieces of 16 MiB: 0.1 s on a disk that has to write them.
    pub(super) fn new(budget_ms: u64) -> Self {
        Self {
            piece: 16 * MIB,
            begin: Instant::now(),
            budget: Duration::from_millis(budget_ms),
        }
    }

    /// True if the time is used up.
    pub(super) fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.budget
    }

    /// Zeroes the next piece of a run, flushes it, and returns its length in bytes. The flush is
    /// part of each piece: otherwise a fast cache would make one late flush take long.
    pub(super) fn zero<D: Device + ?Sized>(
        &mut self,
        dev: &D,
        run: Extent,
        how: Zeroing,
    ) -> std::io::Result<u64> {
        let len = run.len.min(self.piece);
        let begin = Instant::now();
        let piece = Extent {
            start: run.start,
            len,
        };
        match how {
            Zeroing::Command => dev.zero(piece)?,
            Zeroing::Written | Zeroing::Fails => dev.write_zeros(piece)?,
        }
        dev.flush()?;
        self.piece = next_piece(self.piece, begin.elapsed());
        Ok(len)
    }
}

/// Returns the next piece's bytes: doubled after a piece that took under 100 ms, halved after one
/// of 400 ms or more; 1 MiB to 1 GiB.
fn next_piece(piece: u64, took: Duration) -> u64 {
    match took.as_millis() {
        0..100 => (piece * 2).min(GIB),
        100..400 => piece,
        _ => (piece / 2).max(MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{device, fake::FakeDrive};

    #[test]
    fn a_piece_is_zeroed_and_flushed_and_nothing_behind_it() {
        let drive = FakeDrive::new(64 * MIB, 4096);
        let run = |mib, len| Extent {
            start: mib * MIB,
            len: len * MIB,
        };
        drive.fill(run(0, 64), 0x5a);
        let mut pace = Pace::new(60_000);
        assert_eq!(
            pace.zero(&drive, run(8, 40), Zeroing::Command).unwrap(),
            16 * MIB
        );
        assert!(!drive.is_dirty());
        let nonzero = |run| device::first_nonzero(&drive, run).unwrap();
        assert_eq!(nonzero(run(8, 16)), None);
        assert_eq!(nonzero(run(24, 1)), Some(24 * MIB));
        assert_eq!(nonzero(run(7, 1)), Some(7 * MIB));
        // A piece does not exceed the rest of its run.
        assert_eq!(
            pace.zero(&drive, run(24, 2), Zeroing::Command).unwrap(),
            2 * MIB
        );
        assert_eq!(nonzero(run(24, 2)), None);
        assert_eq!(nonzero(run(26, 1)), Some(26 * MIB));
    }

    #[test]
    fn a_step_ends_when_its_budget_is_used_up_and_not_before() {
        assert!(Pace::new(0).is_over());
        assert!(!Pace::new(3_600_000).is_over());
    }

    #[test]
    fn pieces_adapt_to_the_drive_and_stay_small() {
        let ms = Duration::from_millis;
        assert_eq!(next_piece(16 * MIB, ms(5)), 32 * MIB);
        assert_eq!(next_piece(GIB, ms(5)), GIB);
        assert_eq!(next_piece(16 * MIB, ms(200)), 16 * MIB);
        assert_eq!(next_piece(16 * MIB, ms(900)), 8 * MIB);
        assert_eq!(next_piece(MIB, ms(5000)), MIB);
    }
}
