//! Finds the unreadable sectors within a window, with as few failing reads as possible: each may take a drive seconds. Pure
//! but for the reads, which the caller does, and the clock.

use std::time::Instant;

use drivebay_model::{Extent, unreadable::WindowRead};

/// Bytes read at a time while nothing fails.
pub(super) const CHUNK: u64 = 128 << 10;

/// Reads windows, with a limit of reads that may fail.
pub(super) struct Reader<F> {
    /// Reads a piece; false if it cannot be read.
    pub(super) read: F,
    /// Size of the smallest piece, bytes.
    pub(super) unit: u64,
    /// Number of reads that may still fail.
    pub(super) failures: u32,
    /// A read that fails after this time is the last that may fail.
    pub(super) until: Instant,
}

impl<E, F: FnMut(Extent) -> Result<bool, E>> Reader<F> {
    /// Reads a window. A piece that fails when no more reads may fail is reported as a whole: the next time it is read in
    /// smaller pieces.
    pub(super) fn window(&mut self, window: Extent) -> Result<WindowRead, E> {
        let mut all = WindowRead::default();
        let mut at = window.start;
        while at < window.end() && self.failures > 0 {
            let chunk = Extent {
                start: at,
                len: (window.end() - at).min(CHUNK),
            };
            if !self.reads(chunk)? {
                self.split(chunk, &mut all.failed)?;
            }
            all.done.push(chunk);
            at = chunk.end();
        }
        Ok(all)
    }

    fn reads(&mut self, piece: Extent) -> Result<bool, E> {
        let reads = (self.read)(piece)?;
        if !reads {
            self.failures = self.failures.saturating_sub(1);
            if Instant::now() >= self.until {
                self.failures = 0;
            }
        }
        Ok(reads)
    }

    /// Splits a piece that cannot be read as a whole.
    fn split(&mut self, piece: Extent, failed: &mut Vec<Extent>) -> Result<(), E> {
        let units = piece.len / self.unit;
        if units < 2 || self.failures == 0 {
            failed.push(piece);
            return Ok(());
        }
        let first = Extent {
            start: piece.start,
            len: units / 2 * self.unit,
        };
        let second = Extent {
            start: first.end(),
            len: piece.len - first.len,
        };
        let first_reads = self.reads(first)?;
        if !first_reads {
            self.split(first, failed)?;
        }
        // If the first half was read, the second is known to fail, unless the drive has recovered meanwhile: that is only
        // worth a read where there is nothing left to be split.
        let skips_read = (first_reads && second.len > self.unit) || self.failures == 0;
        if skips_read || !self.reads(second)? {
            self.split(second, failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn extent(start: u64, len: u64) -> Extent {
        Extent { start, len }
    }

    fn find(bad: &[u64], window: Extent, unit: u64, failures: u32) -> (WindowRead, u32, u32) {
        let (mut reads, mut failed) = (0, 0);
        let read = |piece: Extent| -> Result<bool, Infallible> {
            reads += 1;
            assert_eq!((piece.start % unit, piece.len % unit), (0, 0));
            let fails = bad.iter().any(|at| (piece.start..piece.end()).contains(at));
            failed += u32::from(fails);
            Ok(!fails)
        };
        let mut reader = Reader {
            read,
            unit,
            failures,
            until: Instant::now() + Duration::from_secs(60),
        };
        let result = reader.window(window).unwrap();
        (result, reads, failed)
    }

    #[test]
    fn a_window_that_reads_is_read_once() {
        let (result, reads, failed) = find(&[], extent(0, MIB), 512, 64);
        assert_eq!(
            (result.failed.len(), result.done.len(), reads, failed),
            (0, 8, 8, 0)
        );
    }

    #[test]
    fn the_very_sectors_are_found_with_few_reads_that_fail() {
        let bad = [300 * 1024, 300 * 1024 + 512, 301 * 1024];
        let (result, _, failed) = find(&bad, extent(0, MIB), 512, 64);
        let expected: Vec<Extent> = bad.iter().map(|at| extent(*at, 512)).collect();
        assert_eq!(result.failed, expected);
        assert!(failed <= 20, "{failed}");
        let (result, _, failed) = find(&bad[..1], extent(0, MIB), 4096, 64);
        assert_eq!(result.failed, [extent(300 * 1024, 4096)]);
        assert!(failed <= 7, "{failed}");
    }

    #[test]
    fn a_window_that_does_not_read_at_all_costs_no_more_than_its_bound() {
        let bad: Vec<u64> = (0..MIB / 512).map(|sector| sector * 512).collect();
        let (result, _, failed) = find(&bad, extent(0, MIB), 512, 20);
        assert_eq!(failed, 20);
        // Bytes that were read are either unreadable or done; all others are neither.
        let done: u64 = result.done.iter().map(|piece| piece.len).sum();
        let lost: u64 = result.failed.iter().map(|piece| piece.len).sum();
        assert_eq!((done, lost), (CHUNK, CHUNK));
    }

    #[test]
    fn when_the_time_is_over_what_fails_counts_as_a_whole() {
        let read = |piece: Extent| -> Result<bool, Infallible> { Ok(piece.start != 0) };
        let mut reader = Reader {
            read,
            unit: 512,
            failures: 64,
            until: Instant::now(),
        };
        let result = reader.window(extent(0, MIB)).unwrap();
        assert_eq!(result.failed, [extent(0, CHUNK)]);
        assert_eq!(result.done, [extent(0, CHUNK)]);
    }

    #[test]
    fn sectors_anywhere_are_found_exactly() {
        for seed in 0..200u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bad: Vec<u64> = (0..random.u64(0..6))
                .map(|_| random.u64(0..MIB / 512) * 512)
                .collect();
            bad.sort_unstable();
            bad.dedup();
            let (result, ..) = find(&bad, extent(0, MIB), 512, 1000);
            let expected: Vec<Extent> = bad.iter().map(|at| extent(*at, 512)).collect();
            assert_eq!(result.failed, expected, "seed {seed}");
        }
    }
}
