//! The ranges of a drive that do not read: which are known, what they belong to, and what follows for the drive and its
//! volumes. Pure.
//!
//! A range is known once a read past the cache failed on it, whoever reported it first, and until such a read succeeds.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    carve::{gpt, lvm::plan},
    model::{
        Contents, Drive, Extent, Finding, Layout, MIB, Mode, Placed, RecordState,
        condition::{Condition, Reason},
        finding::Code,
        unreadable::{Holds, LocatedPiece, UnreadableRange},
    },
};

/// Ranges of one drive that are kept; what touches is one range.
pub const MOST_RANGES: usize = 64;
/// A range is kept in pieces of at most this many bytes, so that reading one again is bounded.
const LONGEST: u64 = MIB;
/// Why a range of a mounted volume has no owner yet.
const NOT_LOOKED_UP: &str = "it is being looked up";

/// The known ranges of one drive, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRanges {
    ranges: Vec<Extent>,
    /// There were more than are kept.
    #[serde(default)]
    more: bool,
}

/// What reading a window found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowRead {
    /// What was read, or failed to be.
    pub done: Vec<Extent>,
    /// Of that, what failed.
    pub failed: Vec<Extent>,
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
fn without(range: Extent, gap: Extent) -> Vec<Extent> {
    let before = piece(range.start, gap.start.min(range.end()));
    let behind = piece(gap.end().max(range.start), range.end());
    [before, behind].into_iter().flatten().collect()
}

fn piece(start: u64, end: u64) -> Option<Extent> {
    (start < end).then(|| Extent {
        start,
        len: end - start,
    })
}

/// What two ranges have in common.
pub fn common(a: Extent, b: Extent) -> Option<Extent> {
    piece(a.start.max(b.start), a.end().min(b.end()))
}

/// In order, without overlaps; what touches is one, up to the longest piece.
fn merged(mut ranges: Vec<Extent>) -> Vec<Extent> {
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

/// What the filesystems of volumes answered, by volume: pieces in the order of the volume.
pub type Located = BTreeMap<Uuid, Vec<LocatedPiece>>;

/// The known ranges with their owners; a range that several own is cut.
pub fn describe(
    drive: &Drive,
    known: &UnreadableRanges,
    located: &Located,
) -> Vec<UnreadableRange> {
    let mut all = Vec::new();
    for range in &known.ranges {
        let Some(contents) = &drive.contents else {
            all.push(nobodys(*range, Holds::NotClaimed));
            continue;
        };
        let mut at = range.start;
        while at < range.end() {
            let rest = Extent {
                start: at,
                len: range.end() - at,
            };
            let found = first_piece(contents, drive.facts.size_bytes, rest, located);
            // A piece always ends behind its start.
            at = found.extent.end().max(at + 1);
            match all.last_mut() {
                Some(last) if continues(last, &found) => last.extent.len += found.extent.len,
                _ => all.push(found),
            }
        }
    }
    all
}

fn continues(last: &UnreadableRange, next: &UnreadableRange) -> bool {
    let touches = last.extent.end() == next.extent.start;
    let same = (last.volume, &last.holds) == (next.volume, &next.holds);
    touches && same && (last.volume.is_none() || last.offset + last.extent.len == next.offset)
}

fn nobodys(extent: Extent, holds: Holds) -> UnreadableRange {
    UnreadableRange {
        extent,
        volume: None,
        offset: 0,
        holds,
    }
}

/// The beginning of `rest` as far as one owner has it.
fn first_piece(contents: &Contents, size: u64, rest: Extent, located: &Located) -> UnreadableRange {
    let begins = |owned: &Extent| owned.start <= rest.start && rest.start < owned.end();
    let cut = |owned: Extent| common(owned, rest).unwrap_or(rest);
    for placed in &contents.volumes {
        let mut offset = 0;
        for owned in placed.lies_at() {
            if begins(owned) {
                let extent = cut(*owned);
                let offset = offset + (extent.start - owned.start);
                return in_volume(placed, extent, offset, located);
            }
            offset += owned.len;
        }
    }
    for (what, owned) in own_metadata(contents.layout, size) {
        if begins(&owned) {
            let what = what.to_owned();
            return nobodys(cut(owned), Holds::DrivebayMetadata { what });
        }
    }
    for (name, owned) in &contents.strangers {
        if begins(owned) {
            let name = name.clone();
            return nobodys(cut(*owned), Holds::Foreign { name });
        }
    }
    // Up to where somebody's begins.
    let owned = contents.volumes.iter().flat_map(Placed::lies_at).copied();
    let owned = owned
        .chain(own_metadata(contents.layout, size).map(|(_, owned)| owned))
        .chain(contents.strangers.iter().map(|(_, owned)| *owned));
    let next = owned
        .map(|owned| owned.start)
        .filter(|start| *start > rest.start);
    let end = next.min().unwrap_or(u64::MAX).min(rest.end());
    let free = piece(rest.start, end).unwrap_or(rest);
    nobodys(free, Holds::Unallocated)
}

/// Where Drivebay's own structures lie on a drive of this layout.
fn own_metadata(layout: Layout, size: u64) -> impl Iterator<Item = (&'static str, Extent)> {
    let table = gpt::ARRAY_BYTES + 2 * 4096;
    let own = match layout {
        Layout::Partition => vec![
            (
                "primary partition table",
                Extent {
                    start: 0,
                    len: table,
                },
            ),
            ("label", gpt::LABEL_EXTENT),
            (
                "backup partition table",
                Extent {
                    start: size.saturating_sub(table),
                    len: table,
                },
            ),
        ],
        Layout::Lvm => vec![
            (
                "LVM label and metadata",
                Extent {
                    start: 0,
                    len: plan::METADATA_END,
                },
            ),
            ("copies of the LVM metadata", plan::COPIES),
        ],
    };
    own.into_iter()
}

fn in_volume(placed: &Placed, extent: Extent, offset: u64, located: &Located) -> UnreadableRange {
    let record = &placed.record;
    let found = |extent: Extent, holds: Holds| UnreadableRange {
        extent,
        volume: Some(record.uuid),
        offset,
        holds,
    };
    match &record.state {
        RecordState::Erasing { .. } => return found(extent, Holds::Erasing),
        RecordState::Creating | RecordState::New | RecordState::Fs { mounted: false, .. } => {
            return found(extent, Holds::Unformatted);
        }
        RecordState::Block => return found(extent, Holds::RawBlock),
        RecordState::Fs { .. } if record.mode == Mode::Block => {
            return found(extent, Holds::RawBlock);
        }
        RecordState::Fs { .. } => {}
    }
    let here = Extent {
        start: offset,
        len: extent.len,
    };
    let answered = located.get(&record.uuid).into_iter().flatten();
    let mut until = here.end();
    for one in answered {
        if one.extent.start <= offset && offset < one.extent.end() {
            let len = one.extent.end().min(here.end()) - offset;
            return found(Extent { len, ..extent }, one.holds.clone());
        }
        if one.extent.start > offset {
            until = until.min(one.extent.start);
        }
    }
    let why = NOT_LOOKED_UP.to_owned();
    let len = until - offset;
    found(Extent { len, ..extent }, Holds::Unknown { why })
}

/// The pieces of a volume that do not read, within the volume, of a filesystem that can be asked.
pub fn to_locate(described: &[UnreadableRange], volume: Uuid) -> Vec<Extent> {
    let of_filesystem = |range: &&UnreadableRange| {
        range.volume == Some(volume)
            && !matches!(
                range.holds,
                Holds::Erasing | Holds::Unformatted | Holds::RawBlock
            )
    };
    let pieces = described.iter().filter(of_filesystem);
    let pieces = pieces.map(|range| Extent {
        start: range.offset,
        len: range.extent.len,
    });
    merged(pieces.collect())
}

/// What the ranges say against the drive.
pub fn finding(known: &UnreadableRanges) -> Option<Finding> {
    (!known.is_empty()).then(|| {
        Finding::new(
            Code::ReadFailed,
            "a place on it does not read; move the data off, and replace the drive",
        )
    })
}

/// How many files ranges hold at least, and whether there are more than that: names are counted once, and of those that
/// are not named it is not known which of them are the same.
pub fn affected_files(ranges: &[UnreadableRange]) -> usize {
    let named: BTreeSet<&String> = ranges
        .iter()
        .flat_map(|range| range.holds.files().0)
        .collect();
    let more = ranges.iter().map(|range| range.holds.files().1).max();
    named.len() + more.unwrap_or(0) as usize
}

/// What the ranges of a volume mean for it. `ranges`: its own.
pub fn condition(drive: &Drive, ranges: &[UnreadableRange]) -> Option<Condition> {
    if ranges.is_empty() {
        return None;
    }
    let any = |of: fn(&Holds) -> bool| ranges.iter().any(|range| of(&range.holds));
    let mut parts = Vec::new();
    match affected_files(ranges) {
        0 => {}
        1 => parts.push("1 file is affected".to_owned()),
        files => parts.push(format!("{files} files are affected")),
    }
    if any(|holds| matches!(holds, Holds::FilesystemMetadata)) {
        parts.push("filesystem metadata is affected".to_owned());
    }
    if any(|holds| matches!(holds, Holds::Unknown { why } if why == NOT_LOOKED_UP)) {
        parts.push("affected files are being looked up".to_owned());
    }
    if any(|holds| matches!(holds, Holds::Unknown { why } if why != NOT_LOOKED_UP)) {
        parts.push("which files are affected cannot be told of all of it".to_owned());
    }
    if any(|holds| matches!(holds, Holds::RawBlock)) {
        parts.push("what is stored there only the user of the raw volume knows".to_owned());
    }
    if parts.is_empty() {
        parts.push("no file is affected".to_owned());
    }
    let what = parts.join(", ");
    Some(Condition::new(
        Reason::ReadFailed,
        format!(
            "sectors under this volume on drive {} do not read: {what}; `drivebay-agent volume show` on the node names them; save the data, and move it off the drive",
            drive.id
        ),
    ))
}

#[cfg(test)]
#[path = "unreadable_tests.rs"]
mod tests;
