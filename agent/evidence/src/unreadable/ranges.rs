//! List of unreadable ranges of a drive.

use serde::{Deserialize, Serialize};

use drivebay_model::{Extent, MIB, unreadable::WindowRead};

/// Limit of ranges that are kept per drive.
pub const MOST_RANGES: usize = 64;
/// Touching ranges are merged up to this many bytes, so that reading one again is bounded.
const LONGEST: u64 = MIB;

/// Unreadable ranges of one drive, sorted by offset, without overlaps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRanges {
    pub(super) ranges: Vec<Extent>,
    /// True if there were more ranges than are kept.
    #[serde(default)]
    more: bool,
}

impl UnreadableRanges {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges, sorted by offset.
    pub fn ranges(&self) -> &[Extent] {
        &self.ranges
    }

    /// True if there were more ranges than are kept.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Removes what was read, then adds what failed. Keeps at most [MOST_RANGES].
    pub fn take(&mut self, read: &WindowRead) {
        let mut ranges = std::mem::take(&mut self.ranges);
        for done in &read.done {
            ranges = ranges
                .into_iter()
                .flat_map(|range| without(range, *done))
                .collect();
        }
        ranges.extend(read.failed.iter().copied().filter(|range| range.len > 0));
        self.ranges = merged(ranges);
        if self.ranges.len() > MOST_RANGES {
            self.more = true;
            self.ranges.truncate(MOST_RANGES);
        }
        if self.ranges.is_empty() {
            self.more = false;
        }
    }
}

/// Returns the parts of a range that are not in `gap`.
pub(super) fn without(range: Extent, gap: Extent) -> Vec<Extent> {
    let before = piece(range.start, gap.start.min(range.end()));
    let behind = piece(gap.end().max(range.start), range.end());
    [before, behind].into_iter().flatten().collect()
}

pub(super) fn piece(start: u64, end: u64) -> Option<Extent> {
    (start < end).then(|| Extent {
        start,
        len: end - start,
    })
}

/// Sorts ranges, removes overlaps, and merges touching ones up to [LONGEST] bytes.
pub(super) fn merged(mut ranges: Vec<Extent>) -> Vec<Extent> {
    ranges.sort_unstable();
    let mut all: Vec<Extent> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if range.end() <= last.end() => {}
            Some(last) if range.start <= last.end() && range.end() - last.start <= LONGEST => {
                last.len = range.end() - last.start;
            }
            Some(last) if range.start < last.end() => {
                let (start, end) = (last.end(), range.end());
                all.extend(piece(start, end));
            }
            _ => all.push(range),
        }
    }
    all
}
