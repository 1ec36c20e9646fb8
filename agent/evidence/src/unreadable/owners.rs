//! Finds the owners of unreadable ranges.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::ranges::{UnreadableRanges, merged, piece};
use drivebay_layout::{gpt, lvm::plan};
use drivebay_model::{
    Contents, Drive, Extent, Layout, Mode, Placed, RecordState,
    unreadable::{Holds, LocatedPiece, UnreadableRange},
};

/// Reason why a range of a mounted volume has no known contents yet.
pub(super) const NOT_LOOKED_UP: &str = "it is being looked up";

/// Contents of unreadable ranges by volume, as its filesystem reports them, sorted by offset in the volume.
pub type Located = BTreeMap<Uuid, Vec<LocatedPiece>>;

/// Returns the unreadable ranges with their owners; a range with several owners is split.
pub fn describe(
    drive: &Drive,
    unreadable: &UnreadableRanges,
    located: &Located,
) -> Vec<UnreadableRange> {
    let mut all = Vec::new();
    for range in &unreadable.ranges {
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
            let piece = first_piece(contents, drive.facts.size_bytes, rest, located);
            // A piece always ends behind its start.
            at = piece.extent.end().max(at + 1);
            match all.last_mut() {
                Some(last) if continues(last, &piece) => last.extent.len += piece.extent.len,
                _ => all.push(piece),
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

/// Returns the first part of `rest` that has one owner or none.
fn first_piece(contents: &Contents, size: u64, rest: Extent, located: &Located) -> UnreadableRange {
    let begins = |owned: &Extent| owned.start <= rest.start && rest.start < owned.end();
    let cut = |owned: Extent| owned.overlap(rest).unwrap_or(rest);
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
    // Unallocated, up to the next extent with an owner.
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

/// Returns the extents of Drivebay's own structures on a drive of this layout and size in bytes.
pub(super) fn own_metadata(
    layout: Layout,
    size: u64,
) -> impl Iterator<Item = (&'static str, Extent)> {
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
    let range = |extent: Extent, holds: Holds| UnreadableRange {
        extent,
        volume: Some(record.uuid),
        offset,
        holds,
    };
    match &record.state {
        RecordState::Erasing { .. } => return range(extent, Holds::Erasing),
        RecordState::Creating | RecordState::New | RecordState::Fs { mounted: false, .. } => {
            return range(extent, Holds::Unformatted);
        }
        RecordState::Block => return range(extent, Holds::RawBlock),
        RecordState::Fs { .. } if record.mode == Mode::Block => {
            return range(extent, Holds::RawBlock);
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
            return range(Extent { len, ..extent }, one.holds.clone());
        }
        if one.extent.start > offset {
            until = until.min(one.extent.start);
        }
    }
    let why = NOT_LOOKED_UP.to_owned();
    let len = until - offset;
    range(Extent { len, ..extent }, Holds::Unknown { why })
}

/// Returns the lost sectors of a volume, where they are on its drive, with their contents. Empty for one that is deleted.
pub fn lost(placed: &Placed, located: &Located) -> Vec<UnreadableRange> {
    let mut all = Vec::new();
    if placed.record.is_erasing() {
        return all;
    }
    for range in placed.record.lost().unwrap_or_default() {
        let mut begins = 0;
        for owned in placed.lies_at() {
            let of_volume = Extent {
                start: begins,
                len: owned.len,
            };
            begins += owned.len;
            let mut rest = of_volume.overlap(range);
            while let Some(here) = rest {
                let extent = Extent {
                    start: owned.start + (here.start - of_volume.start),
                    len: here.len,
                };
                let found = in_volume(placed, extent, here.start, located);
                // A piece always ends behind its start.
                rest = piece(here.start + found.extent.len.max(1), here.end());
                all.push(found);
            }
        }
    }
    all
}

/// Returns the unreadable pieces of a volume that its filesystem can look up, relative to the volume's start.
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
