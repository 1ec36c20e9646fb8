//! The arithmetic of the `lvm` layout: the places on a PV of Drivebay, and the PEs of a volume.
//!
//! A PV of Drivebay has LVM's label and its metadata area up to 3 MiB; two slots for copies of the
//! metadata text (`backup`) up to 8 MiB, which are a bootloader area for LVM and not used by it;
//! then PEs of 1 MiB, and nothing in the last MiB of the drive. A text uses at most half of the
//! metadata area, so that the next one fits beside it: 1.5 MiB, enough for about a thousand
//! volumes.

use drivebay_model::{Extent, MIB};

/// Bytes of a physical extent (PE) in a VG of Drivebay; volume sizes are multiples of it.
pub const EXTENT_BYTES: u64 = MIB;
/// End of LVM's metadata area, bytes from the start of the drive. It begins at 4 KiB.
pub const METADATA_END: u64 = 3 * MIB;
/// Place of the copies of the metadata text.
pub const COPIES: Extent = Extent {
    start: METADATA_END,
    len: 5 * MIB,
};
/// First byte of the first PE.
pub const FIRST_PE: u64 = COPIES.start + COPIES.len;

/// Bytes at the end of the drive that no volume gets: backup GPTs, md superblocks 0.90 and 1.0, and
/// ZFS labels are searched for there, and a volume's user must not be able to write one. A VG
/// without them is refused.
pub const TAIL: u64 = MIB;

/// Returns the bytes of the PV on a drive of this size.
pub fn pv_bytes(size: u64) -> u64 {
    size.saturating_sub(TAIL) / EXTENT_BYTES * EXTENT_BYTES
}

/// Returns the bytes available to volumes on a drive of this size after claiming it; 0 if it is too
/// small.
pub fn claimable_bytes(size: u64) -> u64 {
    pv_bytes(size).saturating_sub(FIRST_PE)
}

/// Chooses free runs for this many bytes, in the order of the drive: the beginning of the first run
/// that is large enough, else the largest runs, as few as possible. None if all of them together
/// are too small.
pub fn allocate(free: &[Extent], len: u64) -> Option<Vec<Extent>> {
    if let Some(run) = free.iter().find(|run| run.len >= len) {
        return Some(vec![Extent {
            start: run.start,
            len,
        }]);
    }
    let mut by_size = free.to_vec();
    by_size.sort_by_key(|run| (std::cmp::Reverse(run.len), run.start));
    let mut taken = Vec::new();
    let mut left = len;
    for run in by_size {
        if left == 0 {
            break;
        }
        let piece = run.len.min(left);
        taken.push(Extent {
            start: run.start,
            len: piece,
        });
        left -= piece;
    }
    taken.sort_unstable();
    (left == 0 && len > 0).then_some(taken)
}

/// Chooses free runs for `by` more bytes of a volume that ends at byte `end`, first what follows it
/// directly. None if they are too small.
pub fn grow(free: &[Extent], end: u64, by: u64) -> Option<Vec<Extent>> {
    let Some(behind) = free.iter().find(|run| run.start == end) else {
        return allocate(free, by);
    };
    let first = Extent {
        start: end,
        len: behind.len.min(by),
    };
    if first.len == by {
        return Some(vec![first]);
    }
    let others: Vec<Extent> = free.iter().filter(|run| *run != behind).copied().collect();
    let mut runs = allocate(&others, by - first.len)?;
    runs.push(first);
    runs.sort_unstable();
    Some(runs)
}

/// Returns a PV with the PEs of these runs, as LVM's commands take it: `/dev/sda:0-9:20-20`.
pub fn pe_ranges(node: &str, first_pe: u64, extent_bytes: u64, runs: &[Extent]) -> String {
    runs.iter().fold(node.to_owned(), |text, run| {
        let first = (run.start - first_pe) / extent_bytes;
        let last = first + run.len / extent_bytes - 1;
        format!("{text}:{first}-{last}")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(start: u64, len: u64) -> Extent {
        Extent {
            start: start * MIB,
            len: len * MIB,
        }
    }

    /// Existing drives have these values: with others, copies and volumes would be searched for at
    /// the wrong place.
    #[test]
    fn copies_lie_from_3_to_8_mib_and_volumes_behind_them() {
        assert_eq!(METADATA_END, 3 << 20);
        assert_eq!((COPIES.start, COPIES.end()), (3 << 20, 8 << 20));
        assert_eq!(FIRST_PE, 8 << 20);
        assert_eq!((EXTENT_BYTES, TAIL), (1 << 20, 1 << 20));
    }

    #[test]
    fn nothing_is_allocated_where_nothing_is_free() {
        assert_eq!(allocate(&[], 0), None);
        assert_eq!(allocate(&[], MIB), None);
        assert_eq!(grow(&[], 8 * MIB, MIB), None);
    }

    #[test]
    fn no_volume_has_the_last_mebibyte_of_its_drive() {
        for size in [64 * MIB, 64 * MIB + 512, 65 * MIB - 512, 1 << 40] {
            let end = FIRST_PE + claimable_bytes(size);
            assert!(end <= size - MIB && end > size - 2 * MIB, "{size}");
        }
        for small in [0, MIB, FIRST_PE, FIRST_PE + MIB, FIRST_PE + 2 * MIB - 1] {
            assert_eq!(claimable_bytes(small), 0, "{small}");
        }
    }

    #[test]
    fn one_run_is_taken_when_one_is_enough_and_few_otherwise() {
        let free = [run(10, 2), run(20, 5), run(30, 4), run(40, 9)];
        assert_eq!(allocate(&free, 5 * MIB), Some(vec![run(20, 5)]));
        assert_eq!(allocate(&free, MIB), Some(vec![run(10, 1)]));
        assert_eq!(
            allocate(&free, 12 * MIB),
            Some(vec![run(20, 3), run(40, 9)])
        );
        assert_eq!(allocate(&free, 20 * MIB), Some(free.to_vec()));
        assert_eq!(allocate(&free, 21 * MIB), None);
    }

    #[test]
    fn growth_goes_on_behind_the_volume_as_far_as_it_can() {
        let free = [run(10, 2), run(20, 5)];
        assert_eq!(grow(&free, 20 * MIB, 5 * MIB), Some(vec![run(20, 5)]));
        assert_eq!(
            grow(&free, 10 * MIB, 3 * MIB),
            Some(vec![run(10, 2), run(20, 1)])
        );
        assert_eq!(grow(&free, 15 * MIB, MIB), Some(vec![run(10, 1)]));
        assert_eq!(grow(&free, 20 * MIB, 8 * MIB), None);
    }

    #[test]
    fn ranges_are_inclusive() {
        let runs = [run(8, 1), run(28, 10)];
        assert_eq!(
            pe_ranges("/dev/sda", 8 * MIB, MIB, &runs),
            "/dev/sda:0-0:20-29"
        );
    }

    #[test]
    fn the_last_extent_counts() {
        assert_eq!(claimable_bytes(FIRST_PE + 6 * MIB), 5 * MIB);
        assert_eq!(claimable_bytes(FIRST_PE + 6 * MIB - 1), 4 * MIB);
        assert_eq!(claimable_bytes(MIB), 0);
    }

    proptest! {
        #[test]
        fn what_is_taken_is_free_disjoint_and_exactly_as_much(
            lens in proptest::collection::vec((1..5_u64, 1..9_u64), 0..12), want in 1..60_u64, end in 0..90_u64,
        ) {
            let mut at = 8;
            let free: Vec<Extent> = lens.iter().map(|(gap, len)| {
                at += gap;
                let free_run = run(at, *len);
                at += len;
                free_run
            }).collect();
            let total: u64 = free.iter().map(|run| run.len).sum();
            for taken in [allocate(&free, want * MIB), grow(&free, end * MIB, want * MIB)] {
                let Some(taken) = taken else {
                    prop_assert!(total < want * MIB);
                    continue;
                };
                prop_assert_eq!(taken.iter().map(|run| run.len).sum::<u64>(), want * MIB);
                for (i, one) in taken.iter().enumerate() {
                    prop_assert!(free.iter().any(|run| run.start <= one.start && one.end() <= run.end()));
                    prop_assert!(taken[i + 1..].iter().all(|other| one.end() <= other.start));
                }
            }
        }
    }
}
