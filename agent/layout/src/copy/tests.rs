//! Copies between drives in memory.

mod faults;
mod places;

use super::{
    CopyError,
    engine::{BLOCK, Copy, Side},
    rate::Rate,
};
use crate::{
    device::{Device, Medium},
    fake::FakeDrive,
    jobs::CopyProgress,
};
use drivebay_model::{DriveId, Extent, runs};
use uuid::Uuid;

const SIZE: u64 = 256 * BLOCK;
const FOREVER: u64 = 3_600_000;

/// Pseudorandom numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 20) % limit.max(1)
    }

    /// Returns random bytes, without a block that is all zeros.
    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let eight = |_| self.below(u64::MAX).to_le_bytes();
        (0..len / 8).flat_map(eight).collect()
    }

    /// Splits this many blocks into pieces at random places, in random order and without overlap.
    fn runs(&mut self, blocks: u64) -> Vec<Extent> {
        let (mut left, mut gaps) = (blocks, SIZE / BLOCK - blocks);
        let mut runs = Vec::new();
        let mut at = 0;
        while left > 0 {
            let gap = self.below(gaps.min(40) + 1);
            let len = self.below(left.min(60)) + 1;
            runs.push(Extent {
                start: (at + gap) * BLOCK,
                len: len * BLOCK,
            });
            at += gap + len;
            left -= len;
            gaps -= gap;
        }
        for i in 0..runs.len() {
            let other = self.below(runs.len() as u64) as usize;
            runs.swap(i, other);
        }
        runs
    }
}

fn bytes(dev: &impl Medium, runs: &[Extent]) -> Vec<u8> {
    let read = |run: &Extent| {
        let mut buf = vec![0; run.len as usize];
        dev.read_at(run.start, &mut buf).unwrap();
        buf
    };
    runs.iter().flat_map(read).collect()
}

/// Two drives filled with different bytes, each with a volume.
struct Drives {
    source: FakeDrive,
    from: Vec<Extent>,
    target: FakeDrive,
    to: Vec<Extent>,
}

impl Drives {
    fn new(dice: &mut Dice, blocks: u64) -> Self {
        let mut drive = |sector| {
            let drive = FakeDrive::new(SIZE, sector);
            drive.write_at(0, &dice.bytes(SIZE)).unwrap();
            drive.settle();
            drive
        };
        Self {
            source: drive(512),
            target: drive(4096),
            from: dice.runs(blocks),
            to: dice.runs(blocks),
        }
    }

    /// One run on each drive: 10 blocks and 20 blocks from the start.
    fn plain(blocks: u64) -> Self {
        let run = |start| Extent {
            start: start * BLOCK,
            len: blocks * BLOCK,
        };
        Self {
            from: vec![run(10)],
            to: vec![run(20)],
            ..Self::new(&mut Dice(7), blocks)
        }
    }

    fn step(&self, from: u64, may_match: bool, rate: &mut Rate) -> Result<CopyProgress, CopyError> {
        step(&self.source, self, from, may_match, rate)
    }

    /// Returns the bytes of the volume on the source.
    fn original(&self) -> Vec<u8> {
        bytes(&self.source, &self.from)
    }

    fn copy(&self) -> Vec<u8> {
        bytes(&self.target, &self.to)
    }

    /// Returns all bytes of the target outside the volume.
    fn beside(&self) -> Vec<u8> {
        let whole = Extent {
            start: 0,
            len: SIZE,
        };
        bytes(&self.target, &runs::without(&[whole], &self.to))
    }
}

/// Runs a step that reads the source through `source`.
fn step(
    source: &(impl Medium + Sync),
    drives: &Drives,
    from: u64,
    may_match: bool,
    rate: &mut Rate,
) -> Result<CopyProgress, CopyError> {
    step_around(source, drives, (from, may_match), &[], rate)
}

/// Runs a step that reads the source through `source`, with ranges of the volume that hold no data.
fn step_around(
    source: &(impl Medium + Sync),
    drives: &Drives,
    how: (u64, bool),
    holds_nothing: &[Extent],
    rate: &mut Rate,
) -> Result<CopyProgress, CopyError> {
    step_giving_up(source, drives, how, (holds_nothing, &[]), rate)
}

/// The volume that is copied.
const VOLUME: Uuid = Uuid::from_u128(7);

/// Runs a step with ranges of the volume that hold no data, and ranges whose data is lost.
fn step_giving_up(
    source: &(impl Medium + Sync),
    drives: &Drives,
    (from, may_match): (u64, bool),
    (holds_nothing, lost): (&[Extent], &[Extent]),
    rate: &mut Rate,
) -> Result<CopyProgress, CopyError> {
    let (here, there) = (DriveId("source".into()), DriveId("target".into()));
    let copy = Copy {
        source: Side {
            dev: source,
            id: &here,
            runs: &drives.from,
        },
        target: Side {
            dev: &drives.target,
            id: &there,
            runs: &drives.to,
        },
        may_match,
        holds_nothing,
        lost,
        volume: VOLUME,
    };
    copy.run(from, rate, &mut |_| {})
}

#[test]
fn a_copy_is_identical_whatever_the_runs_and_nothing_else_is_written() {
    let mut dice = Dice(1);
    for round in 0..30 {
        let blocks = dice.below(150) + 1;
        let drives = Drives::new(&mut dice, blocks);
        let (original, beside) = (drives.original(), drives.beside());
        let source = drives.source.clone();
        let piece = (dice.below(20) + 1) * BLOCK;
        let range = piece * (dice.below(5) + 1);
        let (budget, may_match) = ([0, FOREVER][round % 2], round % 3 == 0);
        let mut done = 0;
        let mut written = 0;
        let mut steps = 0;
        while done < blocks * BLOCK {
            let mut rate = Rate::sized(budget, piece, range);
            let progress = drives.step(done, may_match, &mut rate).unwrap();
            assert!(progress.done_bytes > done);
            assert_eq!(progress.total_bytes, blocks * BLOCK);
            assert_eq!(progress.unreadable, []);
            assert!(!drives.target.is_dirty());
            done = progress.done_bytes;
            written += progress.written_bytes;
            steps += 1;
        }
        assert_eq!(done, blocks * BLOCK);
        // Before the copy all bytes differed.
        assert_eq!(written, done);
        if budget == FOREVER {
            assert_eq!(steps, 1);
        }
        assert!(drives.copy() == original, "round {round}");
        assert!(drives.beside() == beside, "round {round}");
        assert!(drives.source.same_bytes(&source) && drives.source.log_len() == 0);
        // A repetition from any offset changes nothing.
        let mut rate = Rate::sized(FOREVER, piece, range);
        let from = dice.below(done);
        let again = drives.step(from, may_match, &mut rate).unwrap();
        assert_eq!(again.done_bytes, done);
        assert!(drives.copy() == original);
    }
}

#[test]
fn a_step_without_time_copies_one_piece_and_one_behind_the_end_none() {
    let drives = Drives::plain(100);
    let none = || Rate::sized(0, 8 * BLOCK, 32 * BLOCK);
    let first = drives.step(0, false, &mut none()).unwrap();
    assert_eq!(
        (first.done_bytes, first.written_bytes),
        (8 * BLOCK, 8 * BLOCK)
    );
    let same = drives.step(0, false, &mut none()).unwrap();
    assert_eq!(same, first);
    // An offset inside a block: starts at the first byte of that block.
    let next = drives.step(8 * BLOCK + 7, false, &mut none()).unwrap();
    assert_eq!(next.done_bytes, 16 * BLOCK);
    let writes = drives.target.writes();
    for from in [100 * BLOCK, u64::MAX] {
        let end = drives.step(from, false, &mut none()).unwrap();
        assert_eq!((end.done_bytes, end.written_bytes), (100 * BLOCK, 0));
    }
    assert_eq!(drives.target.writes(), writes);
}

#[test]
fn only_what_differs_is_written_where_an_earlier_copy_may_match() {
    let drives = Drives::plain(100);
    let rate = || Rate::sized(FOREVER, 8 * BLOCK, 32 * BLOCK);
    drives.step(0, false, &mut rate()).unwrap();
    drives.target.settle();
    let same = drives.step(0, true, &mut rate()).unwrap();
    assert_eq!((same.done_bytes, same.written_bytes), (100 * BLOCK, 0));
    assert_eq!(drives.target.writes(), 0);
    // Bytes that match may have been written by an interrupted step that did not flush them.
    assert!(drives.target.log_len() > 0);
    drives.source.rot(drives.from[0].start + 50 * BLOCK, 1);
    let changed = drives.step(0, true, &mut rate()).unwrap();
    assert_eq!(changed.written_bytes, 8 * BLOCK);
    assert_eq!(drives.target.writes(), 1);
    assert!(drives.copy() == drives.original());
    // Without `may_match` everything is written.
    let all = drives.step(0, false, &mut rate()).unwrap();
    assert_eq!(all.written_bytes, 100 * BLOCK);
}

#[test]
fn a_copy_goes_on_after_its_power_was_cut_at_any_write() {
    let mut dice = Dice(5);
    let drives = Drives::new(&mut dice, 60);
    let (original, beside) = (drives.original(), drives.beside());
    let mut done = 0;
    while done < 60 * BLOCK {
        let mut rate = Rate::sized(0, 8 * BLOCK, 8 * BLOCK);
        done = drives.step(done, false, &mut rate).unwrap().done_bytes;
        drives.target.mark(done as usize);
    }
    for at in 0..=drives.target.log_len() {
        for may_match in [false, true] {
            let (target, mark) = drives.target.after_cut(at, || dice.below(2) == 0);
            let cut = Drives {
                source: drives.source.clone(),
                target,
                from: drives.from.clone(),
                to: drives.to.clone(),
            };
            let acknowledged = mark.unwrap_or(0);
            assert!(cut.copy()[..acknowledged] == original[..acknowledged]);
            let from = [acknowledged as u64, 0][usize::from(may_match)];
            let mut rate = Rate::sized(FOREVER, 8 * BLOCK, 16 * BLOCK);
            cut.step(from, may_match, &mut rate).unwrap();
            assert!(cut.copy() == original, "cut before event {at}");
            assert!(cut.beside() == beside);
        }
    }
}

#[test]
fn a_step_ends_in_time() {
    let drives = Drives::plain(200);
    // 64 KiB pieces at 640 KiB a second: 1.2 MiB take about two seconds.
    let mut rate = Rate::new(250, Some(640 << 10));
    let progress = drives.step(0, false, &mut rate).unwrap();
    assert!(rate.is_over());
    assert!(
        (BLOCK..=320 << 10).contains(&progress.done_bytes),
        "{}",
        progress.done_bytes
    );
}
