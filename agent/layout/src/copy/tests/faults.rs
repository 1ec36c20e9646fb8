//! Drives with failed reads, failed writes and lost writes.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{
    BLOCK, Drives, Extent, FOREVER, FakeDrive, Rate, VOLUME, runs, step, step_around,
    step_giving_up,
};
use crate::{
    copy::{CopyError, engine::MOST_UNREADABLE},
    device::{Device, Medium},
    error::LayoutError,
    lost::Marked,
};
use drivebay_model::lost;

/// Fails reads for which `fails` is true: given the offset, the length and the number of reads
/// before.
struct Patchy<'a, F> {
    drive: &'a FakeDrive,
    fails: F,
    reads: AtomicUsize,
}

impl<F: Fn(u64, u64, usize) -> Option<i32>> Medium for Patchy<'_, F> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let count = self.reads.fetch_add(1, Ordering::SeqCst);
        match (self.fails)(offset, buf.len() as u64, count) {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => self.drive.read_at(offset, buf),
        }
    }
    fn size(&self) -> u64 {
        self.drive.size()
    }
    fn sector(&self) -> u64 {
        self.drive.sector()
    }
}

fn patchy<F>(drives: &Drives, fails: F) -> Patchy<'_, F> {
    Patchy {
        drive: &drives.source,
        fails,
        reads: AtomicUsize::new(0),
    }
}

fn rate() -> Rate {
    Rate::sized(FOREVER, 8 * BLOCK, 32 * BLOCK)
}

fn blocks(start: u64, len: u64) -> Extent {
    Extent {
        start: start * BLOCK,
        len: len * BLOCK,
    }
}

/// Asserts that the target has the original's bytes, except in these ranges of the volume, where it
/// has its earlier ones.
fn assert_copied_but(drives: &Drives, before: &[u8], ranges: &[Extent]) {
    let mut expected = bytes_of_source(drives);
    for range in ranges {
        let range = range.start as usize..range.end() as usize;
        expected[range.clone()].copy_from_slice(&before[range]);
    }
    assert!(drives.copy() == expected);
}

fn bytes_of_source(drives: &Drives) -> Vec<u8> {
    let healed = drives.source.clone();
    healed.unreadable.set(None);
    super::bytes(&healed, &drives.from)
}

#[test]
fn what_does_not_read_is_answered_exactly_and_not_written() {
    // One sector of 512 bytes, two blocks across the end of a piece, the first block, and the last.
    let cases = [
        (53 * BLOCK + 512, 512, blocks(53, 1)),
        (55 * BLOCK, 2 * BLOCK, blocks(55, 2)),
        (0, 512, blocks(0, 1)),
        (100 * BLOCK - 512, 512, blocks(99, 1)),
    ];
    for (at, len, expected) in cases {
        for may_match in [false, true] {
            let drives = Drives::plain(100);
            let (before, beside) = (drives.copy(), drives.beside());
            let start = drives.from[0].start + at;
            drives.source.unreadable.set(Some(Extent { start, len }));
            let progress = drives.step(0, may_match, &mut rate()).unwrap();
            assert_eq!(progress.done_bytes, 100 * BLOCK);
            assert_eq!(progress.unreadable, [expected]);
            assert_eq!(progress.written_bytes, 100 * BLOCK - expected.len);
            assert_copied_but(&drives, &before, &[expected]);
            assert!(drives.beside() == beside);
        }
    }
}

#[test]
fn a_step_ends_when_too_much_does_not_read_and_the_next_ones_find_the_rest() {
    // Every second one of 3072 blocks.
    let drives = Drives {
        source: FakeDrive::new(4096 * BLOCK, 4096),
        target: FakeDrive::new(4096 * BLOCK, 4096),
        from: vec![blocks(16, 3072)],
        to: vec![blocks(32, 1000), blocks(1500, 2072)],
    };
    drives.source.fill(blocks(0, 4096), 1);
    drives.target.fill(blocks(0, 4096), 2);
    let before = drives.copy();
    let is_bad = |offset: u64, len: u64, _| {
        let mut all = offset / BLOCK..(offset + len) / BLOCK;
        all.any(|block| block % 2 == 1).then_some(libc::EIO)
    };
    let source = patchy(&drives, is_bad);
    // The last unreadable block of a step is in the middle of a piece, or the last block of one.
    for piece in [700 * BLOCK, 512 * BLOCK] {
        let mut all = Vec::new();
        let mut done = 0;
        for count in [MOST_UNREADABLE, 512] {
            let mut rate = Rate::sized(FOREVER, piece, 8 * piece);
            let progress = step(&source, &drives, done, false, &mut rate).unwrap();
            assert_eq!(progress.unreadable.len(), count);
            done = progress.done_bytes;
            all.extend(progress.unreadable);
        }
        assert_eq!(done, 3072 * BLOCK);
        let expected: Vec<Extent> = (0..1536).map(|i| blocks(2 * i + 1, 1)).collect();
        assert!(all == expected);
        assert_copied_but(&drives, &before, &runs::joined(all));
    }
}

#[test]
fn a_step_whose_time_is_over_ends_behind_the_block_that_does_not_read() {
    let drives = Drives::plain(100);
    drives.source.unreadable.set(Some(blocks(10 + 3, 2)));
    let mut done = 0;
    let mut unreadable = Vec::new();
    for expected in [4, 5, 13] {
        let mut rate = Rate::sized(0, 8 * BLOCK, 32 * BLOCK);
        let progress = drives.step(done, false, &mut rate).unwrap();
        done = progress.done_bytes;
        assert_eq!(done, expected * BLOCK);
        unreadable.extend(progress.unreadable);
    }
    assert_eq!(unreadable, [blocks(3, 1), blocks(4, 1)]);
}

#[test]
fn what_holds_nothing_is_zeros_around_what_does_not_read_and_copied_elsewhere() {
    let drives = Drives::plain(64);
    let before = drives.copy();
    // Blocks 3 and 4 of the volume cannot be read; blocks 3 and 20 hold no data, and 20 is read
    // together with others.
    drives.source.unreadable.set(Some(blocks(10 + 3, 2)));
    let nothing = [blocks(3, 1), blocks(20, 1)];
    let done = step_around(&drives.source, &drives, (0, false), &nothing, &mut rate());
    assert_eq!(done.unwrap().unreadable, [blocks(4, 1)]);
    let mut expected = bytes_of_source(&drives);
    let (zeros, old) = (blocks(3, 1), blocks(4, 1));
    expected[zeros.start as usize..zeros.end() as usize].fill(0);
    let old = old.start as usize..old.end() as usize;
    expected[old.clone()].copy_from_slice(&before[old]);
    assert!(drives.copy() == expected);
}

#[test]
fn what_did_not_read_and_is_given_up_is_zeros_whatever_the_target_had_there() {
    for may_match in [false, true] {
        let drives = Drives::plain(100);
        drives.source.unreadable.set(Some(blocks(10 + 53, 4)));
        let unreadable = drives.step(0, may_match, &mut rate()).unwrap().unreadable;
        assert_eq!(unreadable, [blocks(53, 4)]);
        // The same step again, and a step of a later attempt.
        for may_match in [may_match, true] {
            let how = (0, may_match);
            let done = step_around(&drives.source, &drives, how, &unreadable, &mut rate()).unwrap();
            assert_eq!((done.done_bytes, done.unreadable), (100 * BLOCK, vec![]));
            let mut expected = bytes_of_source(&drives);
            expected[53 * BLOCK as usize..57 * BLOCK as usize].fill(0);
            assert!(drives.copy() == expected);
            assert!(!drives.target.is_dirty());
        }
    }
}

#[test]
fn what_is_lost_has_marks_and_is_unreadable_for_the_next_copy_until_it_is_written() {
    let drives = Drives::plain(64);
    // Blocks 3 and 4 of the volume cannot be read; half of block 4 holds data.
    drives.source.unreadable.set(Some(blocks(10 + 3, 2)));
    let lost = [
        blocks(3, 1),
        Extent {
            start: 4 * BLOCK,
            len: BLOCK / 2,
        },
    ];
    let nothing = [Extent {
        start: 4 * BLOCK + BLOCK / 2,
        len: BLOCK / 2,
    }];
    let given_up = (&nothing[..], &lost[..]);
    for may_match in [false, true] {
        let how = (0, may_match);
        let done = step_giving_up(&drives.source, &drives, how, given_up, &mut rate()).unwrap();
        assert_eq!((done.done_bytes, done.unreadable), (64 * BLOCK, vec![]));
        let mut expected = bytes_of_source(&drives);
        let half = 4 * BLOCK + BLOCK / 2;
        for at in (3 * BLOCK..half).step_by(512) {
            expected[at as usize..][..512].copy_from_slice(&lost::mark(VOLUME, at));
        }
        expected[half as usize..(5 * BLOCK) as usize].fill(0);
        assert!(drives.copy() == expected);
    }
    // The target as the source of another move: marks are no data, and what was written is.
    let of_volume = |at: u64| crate::plan::at(&drives.to, at).unwrap().start;
    let marked = |lost: &[Extent]| -> Vec<u64> {
        let source = Marked::new(&drives.target, VOLUME, &drives.to, lost);
        let reads = |block: &u64| {
            let mut bytes = [0; BLOCK as usize];
            source
                .read_at(of_volume(block * BLOCK), &mut bytes)
                .is_err()
        };
        (0..8).filter(reads).collect()
    };
    assert_eq!(marked(&lost), [3, 4]);
    // Elsewhere a mark would be the user's own bytes.
    assert_eq!(marked(&[blocks(4, 1)]), [4]);
    drives
        .target
        .write_at(of_volume(3 * BLOCK), &[1; BLOCK as usize])
        .unwrap();
    assert_eq!(marked(&lost), [4]);
}

#[test]
fn what_holds_nothing_is_not_read_again_block_by_block() {
    let drives = Drives::plain(16);
    let bad = blocks(10 + 3, 1);
    let alone = AtomicUsize::new(0);
    let source = patchy(&drives, |offset, len, _| {
        let is_bad = offset < bad.end() && offset + len > bad.start;
        if is_bad && len == BLOCK {
            alone.fetch_add(1, Ordering::SeqCst);
        }
        is_bad.then_some(libc::EIO)
    });
    let nothing = [blocks(3, 1)];
    let done = step_around(&source, &drives, (0, false), &nothing, &mut rate());
    assert_eq!(done.unwrap().unreadable, []);
    assert_eq!(alone.load(Ordering::SeqCst), 0);
}

#[test]
fn a_read_that_fails_once_loses_nothing() {
    let drives = Drives::plain(40);
    let source = patchy(&drives, |_, _, count| (count == 1).then_some(libc::EIO));
    let progress = step(&source, &drives, 0, false, &mut rate()).unwrap();
    assert_eq!(progress.unreadable, []);
    assert!(drives.copy() == drives.original());
}

#[test]
fn what_reads_once_and_not_again_is_compared_with_what_was_read() {
    let drives = Drives::plain(8);
    let once = |_, _, count| (count > 0).then_some(libc::EIO);
    let progress = step(&patchy(&drives, once), &drives, 0, false, &mut rate()).unwrap();
    assert_eq!(
        (progress.done_bytes, progress.unreadable),
        (8 * BLOCK, vec![])
    );
    assert!(drives.copy() == drives.original());
    // The target has other bytes, and there is nothing to write again.
    let drives = Drives::plain(8);
    drives.target.loses.set(Some((drives.to[0], 1)));
    let error = step(&patchy(&drives, once), &drives, 0, false, &mut rate()).unwrap_err();
    assert!(
        matches!(&error, CopyError::Source(LayoutError::Io { drive, .. }) if drive == "source"),
        "{error:?}"
    );
}

#[test]
fn a_lost_write_is_repeated_once_and_then_an_error() {
    let lost = blocks(20 + 45, 1);
    let drives = Drives::plain(100);
    drives.target.loses.set(Some((lost, 1)));
    let progress = drives.step(0, false, &mut rate()).unwrap();
    assert_eq!(progress.written_bytes, 108 * BLOCK);
    assert!(drives.copy() == drives.original());
    assert!(!drives.target.is_dirty());
    for may_match in [false, true] {
        let drives = Drives::plain(100);
        drives.target.loses.set(Some((lost, 2)));
        let error = drives.step(0, may_match, &mut rate()).unwrap_err();
        // The whole piece that holds the byte was lost.
        let differs = CopyError::Differs {
            drive: "target".into(),
            at: 40 * BLOCK,
        };
        assert_eq!(error, differs);
    }
}

#[test]
fn one_byte_that_differs_each_time_is_found_out() {
    /// Changes one byte of the data in each read.
    struct Drifts<'a>(&'a FakeDrive, AtomicUsize);
    impl Medium for Drifts<'_> {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.0.read_at(offset, buf)?;
            buf[5 * BLOCK as usize + 77] = self.1.fetch_add(1, Ordering::SeqCst) as u8;
            Ok(())
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn sector(&self) -> u64 {
            self.0.sector()
        }
    }
    let drives = Drives::plain(8);
    let source = Drifts(&drives.source, AtomicUsize::new(0));
    let error = step(&source, &drives, 0, false, &mut rate()).unwrap_err();
    let differs = CopyError::Differs {
        drive: "target".into(),
        at: 5 * BLOCK + 77,
    };
    assert_eq!(error, differs);
    // Copied, compared, copied again, compared again.
    assert_eq!(source.1.into_inner(), 4);
}

#[test]
fn other_errors_end_the_step_and_name_the_drive() {
    let drives = Drives::plain(100);
    let gone = |offset, _, _| (offset >= 50 * BLOCK).then_some(libc::ENODEV);
    let error = step(&patchy(&drives, gone), &drives, 0, false, &mut rate()).unwrap_err();
    assert!(
        matches!(&error, CopyError::Source(LayoutError::Io { drive, .. }) if drive == "source"),
        "{error:?}"
    );
    let is_target = |error: &CopyError| matches!(error, CopyError::Target(LayoutError::Io { drive, .. }) if drive == "target");
    let bad = blocks(20 + 45, 1);
    drives.target.unwritable.set(Some(bad));
    let error = drives.step(0, false, &mut rate()).unwrap_err();
    assert!(is_target(&error), "{error:?}");
    drives.target.unwritable.set(None);
    drives.target.unreadable.set(Some(bad));
    let error = drives.step(0, true, &mut rate()).unwrap_err();
    assert!(is_target(&error), "{error:?}");
    // Writing replaces the bad sector.
    drives.step(0, false, &mut rate()).unwrap();
    assert!(drives.copy() == drives.original());
    // The error survives JSON.
    let json = serde_json::to_string(&error).unwrap();
    assert_eq!(serde_json::from_str::<CopyError>(&json).unwrap(), error);
}
