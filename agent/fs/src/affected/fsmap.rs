//! Interprets the records of FS_IOC_GETFSMAP for a range. Pure.

use std::collections::BTreeSet;

use drivebay_model::Extent;
use drivebay_sys::fsmap::{Record, SPECIAL_OWNER};

/// FMR_OWN_FREE and FMR_OWN_UNKNOWN of linux/fsmap.h.
pub(crate) const FREE: u64 = 1;
pub(crate) const UNKNOWN: u64 = 2;

/// Owner of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Free,
    Metadata,
    Inode(u64),
    /// In use, and the filesystem does not record by what.
    Unknown,
}

/// Returns the pieces of a range with their owners, in order, without overlaps; a piece that files share has several.
pub(crate) fn owners(range: Extent, records: &[Record]) -> Vec<(Extent, BTreeSet<Owner>)> {
    let owned: Vec<(Extent, Owner)> = records
        .iter()
        .filter_map(|record| {
            let here = Extent {
                start: record.physical,
                len: record.length,
            };
            Some((here.overlap(range)?, owner(record)))
        })
        .collect();
    let ends = owned
        .iter()
        .flat_map(|(piece, _)| [piece.start, piece.end()]);
    let ends: Vec<u64> = BTreeSet::from_iter(ends).into_iter().collect();
    let pieces = ends.windows(2).filter_map(|two| {
        let &[start, end] = two else { return None };
        let len = end - start;
        let of: BTreeSet<Owner> = owned
            .iter()
            .filter(|(piece, _)| piece.start <= start && end <= piece.end())
            .map(|(_, owner)| *owner)
            .collect();
        (!of.is_empty()).then_some((Extent { start, len }, of))
    });
    pieces.collect()
}

/// Returns the parts of a range that are in none of these pieces, which must be in order.
pub(crate) fn gaps(range: Extent, pieces: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut all = Vec::new();
    let mut at = range.start;
    let inside = pieces.into_iter().filter_map(|piece| piece.overlap(range));
    let ends = inside.map(|piece| (piece.start, piece.end()));
    for (start, end) in ends.chain([(range.end(), range.end())]) {
        if at < start {
            let len = start - at;
            all.push(Extent { start: at, len });
        }
        at = at.max(end);
    }
    all
}

/// Adds the rest of a range to the pieces found in it, with an unknown owner: ext4 leaves out blocks that it has reserved
/// for growing files.
pub(crate) fn with_gaps(
    range: Extent,
    mut pieces: Vec<(Extent, BTreeSet<Owner>)>,
) -> Vec<(Extent, BTreeSet<Owner>)> {
    let gaps = gaps(range, pieces.iter().map(|(piece, _)| *piece)).into_iter();
    pieces.extend(gaps.map(|gap| (gap, BTreeSet::from([Owner::Unknown]))));
    pieces
}

pub(crate) fn owner(record: &Record) -> Owner {
    match (record.flags & SPECIAL_OWNER != 0, record.owner) {
        (false, inode) => Owner::Inode(inode),
        (true, FREE) => Owner::Free,
        (true, UNKNOWN) => Owner::Unknown,
        (true, _) => Owner::Metadata,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_cut_to_the_range_and_give_its_owners() {
        let extent = |start, len| Extent { start, len };
        let record = |start, len, owner, special: bool| {
            let flags = if special { SPECIAL_OWNER } else { 0 };
            Record::new(extent(start, len), owner, flags)
        };
        let metadata = (u64::from(b'X') << 32) | 3;
        let records = [
            record(0, 4096, metadata, true),
            record(4096, 8192, 131, false),
            // Shared.
            record(4096, 8192, 132, false),
            record(12288, 4096, FREE, true),
            record(16384, 4096, UNKNOWN, true),
            record(20480, 4096, 1, false),
        ];
        assert_eq!(
            owners(extent(2048, 16384), &records),
            [
                (extent(2048, 2048), [Owner::Metadata].into()),
                (
                    extent(4096, 8192),
                    [Owner::Inode(131), Owner::Inode(132)].into()
                ),
                (extent(12288, 4096), [Owner::Free].into()),
                (extent(16384, 2048), [Owner::Unknown].into()),
            ]
        );
        assert_eq!(owners(extent(1 << 20, 4096), &records), []);
    }

    #[test]
    fn what_no_record_is_about_is_not_left_out() {
        let extent = |start, len| Extent { start, len };
        let pieces = [extent(4096, 4096), extent(12288, 4096)];
        assert_eq!(
            gaps(extent(0, 20480), pieces),
            [extent(0, 4096), extent(8192, 4096), extent(16384, 4096)]
        );
        // Pieces outside the range fill nothing of it.
        assert_eq!(gaps(extent(4096, 4096), pieces), []);
        assert_eq!(gaps(extent(8192, 4096), pieces), [extent(8192, 4096)]);
        assert_eq!(gaps(extent(4096, 4096), []), [extent(4096, 4096)]);
    }
}
