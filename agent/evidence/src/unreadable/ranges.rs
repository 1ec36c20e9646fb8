//! Which ranges of a drive are known not to read.

use serde::{Deserialize, Serialize};

use drivebay_model::{Extent, MIB, unreadable::WindowRead};

/// Ranges of one drive that are kept; what touches is one range.
pub const MOST_RANGES: usize = 64;
/// A range is kept in pieces of at most this many bytes, so that reading one again is bounded.
const LONGEST: u64 = MIB;

/// The known ranges of one drive, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRanges {
    pub(super) ranges: Vec<Extent>,
    /// There were more than are kept.
    #[serde(default)]
    more: bool,
}

impl UnreadableRanges {
    /// None is known.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// In the order of the drive.
    pub fn ranges(&self) -> &[Extent] {
        &self.ranges
    }

    /// There were more than are kept.
    pub fn has_more(&self) -> bool {
        self.more
    }

    /// Takes what reading a window found.
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

/// What of a range is not in `gap`.
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

/// In order, without overlaps; what touches is one, up to the longest piece.
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
