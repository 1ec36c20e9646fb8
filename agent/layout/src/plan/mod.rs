//! Pure decisions: free space, the place of a volume, and the combination of records, table and
//! kernel (`reconcile`).

pub(super) mod advance;
mod place;
mod reconcile;
#[cfg(test)]
mod tests;

pub use place::{growable, place, without};
pub use reconcile::{Step, View, explains, reconcile};

use super::gpt::{LABEL_EXTENT, Table};
use drivebay_model::{Extent, MIB};

/// Starts and sizes of volumes are multiples of this, in bytes: a multiple of every sector, page
/// and common flash block, and the alignment of partitioning tools.
pub const EXTENT_BYTES: u64 = MIB;

/// Returns the space of all volumes of a drive: without the label and both copies of the table.
pub fn usable(table: &Table) -> Extent {
    let start = LABEL_EXTENT
        .end()
        .max((table.first_usable * table.sector).next_multiple_of(EXTENT_BYTES));
    let end = (table.last_usable + 1) * table.sector / EXTENT_BYTES * EXTENT_BYTES;
    Extent {
        start,
        len: end.saturating_sub(start),
    }
}

/// Returns the bytes available to volumes on a drive of this size after claiming it; 0 if it is too
/// small.
pub fn claimable_bytes(size: u64, sector: u64) -> u64 {
    let nil = uuid::Uuid::nil();
    Table::fresh(nil, nil, size, sector).map_or(0, |table| usable(&table).len)
}

/// Returns the smallest aligned run that contains this one.
pub fn aligned(run: Extent) -> Extent {
    let start = run.start / EXTENT_BYTES * EXTENT_BYTES;
    let end = run.start.saturating_add(run.len);
    let end = end.checked_next_multiple_of(EXTENT_BYTES).unwrap_or(end);
    Extent {
        start,
        len: end - start,
    }
}

/// Returns the aligned runs of `within` that are not occupied, in order.
pub fn free_runs(within: Extent, occupied: &[Extent]) -> Vec<Extent> {
    let mut taken: Vec<Extent> = occupied
        .iter()
        .filter(|run| run.len > 0)
        .map(|&run| aligned(run))
        .collect();
    taken.sort_unstable();
    let mut free = Vec::new();
    let mut at = within.start;
    for run in taken {
        let start = run.start.min(within.end());
        if start > at {
            free.push(Extent {
                start: at,
                len: start - at,
            });
        }
        at = at.max(run.end());
    }
    if within.end() > at {
        free.push(Extent {
            start: at,
            len: within.end() - at,
        });
    }
    free
}

/// Returns a volume's size for a requested one: whole extents, at least one. None on overflow.
pub fn rounded(size: u64) -> Option<u64> {
    size.max(1).checked_next_multiple_of(EXTENT_BYTES)
}

/// Returns the bytes to which a volume could grow at its place.
pub fn growth_limit(free: &[Extent], extent: Extent) -> u64 {
    let behind = free.iter().find(|run| run.start == extent.end());
    extent.len + behind.map_or(0, |run| run.len)
}

/// True if two runs have a byte in common. Accepts any numbers, also those of an invalid record.
pub fn overlap(a: Extent, b: Extent) -> bool {
    let end = |run: Extent| run.start.saturating_add(run.len);
    a.len > 0 && b.len > 0 && a.start < end(b) && b.start < end(a)
}

/// Returns the place of byte `done` of these runs, and how many bytes follow it in the same run;
/// None behind the end.
pub fn at(runs: &[Extent], done: u64) -> Option<Extent> {
    let mut left = done;
    for run in runs {
        if left < run.len {
            return Some(Extent {
                start: run.start + left,
                len: run.len - left,
            });
        }
        left -= run.len;
    }
    None
}
