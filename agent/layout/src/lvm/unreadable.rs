//! Repairs unreadable sectors without data in LVM's part of a drive. LVM reads and writes that part
//! in pieces of 128 KiB: one such sector fails every command on the drive, although label, header
//! and committed text are valid.

use std::{io, ops::Range};

use super::{
    label::AREA,
    metadata::{Committed, Location},
    plan,
};
use crate::device::Device;
use drivebay_sys::direct::is_of_medium;

/// Bytes of one read during the search.
const PIECE: u64 = 64 * 1024;
/// Bytes of a physical sector of most drives: a part of it cannot be written while the rest is
/// unreadable.
const BLOCK: u64 = 4096;
/// Most unreadable blocks that are repaired: a drive with more is failing, and zeros would not
/// last.
const MOST: usize = 64;

/// Overwrites unreadable sectors with zeros, durably, except those of the label, the area's header
/// and the committed text, which have repairs of their own. Returns the number of blocks that were
/// overwritten; 0 for a PV with another arrangement, where a volume may be at that place.
///
/// # Errors
/// The drive fails in another way than at one place, a sector cannot be written, or there are too
/// many.
pub fn mend<D: Device + ?Sized>(dev: &D, committed: &Committed) -> io::Result<usize> {
    // A copy has no place in the metadata area.
    let Some(location) = committed.location else {
        return Ok(0);
    };
    if committed.header.metadata != [AREA] || committed.vg.pv.pe_start < plan::METADATA_END {
        return Ok(0);
    }
    let needed = needed(location);
    let is_needed = |of: &Range<u64>| {
        needed
            .iter()
            .any(|range| range.start < of.end && of.start < range.end)
    };
    let blocks = unreadable(dev)?;
    if blocks.len() > MOST {
        return Err(io::Error::other(format!(
            "more than {MOST} blocks of LVM's metadata area do not read"
        )));
    }
    let mut mended = 0;
    for block in blocks {
        let part = if is_needed(&block) {
            dev.sector()
        } else {
            BLOCK
        };
        let mut lost = false;
        for part in parts(block, part).filter(|part| !is_needed(part)) {
            if !reads(dev, &part)? {
                dev.write_at(part.start, &vec![0; (part.end - part.start) as usize])?;
                lost = true;
            }
        }
        mended += usize::from(lost);
    }
    if mended > 0 {
        dev.flush()?;
    }
    Ok(mended)
}

/// False if the place is unreadable. Other errors do not concern the place, and are returned.
fn reads<D: Device + ?Sized>(dev: &D, of: &Range<u64>) -> io::Result<bool> {
    let mut bytes = vec![0; (of.end - of.start) as usize];
    match dev.read_at(of.start, &mut bytes) {
        Ok(()) => Ok(true),
        Err(error) if is_of_medium(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn parts(of: Range<u64>, by: u64) -> impl Iterator<Item = Range<u64>> {
    of.step_by(by as usize).map(move |at| at..at + by)
}

/// Returns the unreadable blocks of LVM's part: all of them, or one more than are repaired.
fn unreadable<D: Device + ?Sized>(dev: &D) -> io::Result<Vec<Range<u64>>> {
    let mut blocks = Vec::new();
    for piece in parts(0..plan::METADATA_END, PIECE) {
        if reads(dev, &piece)? {
            continue;
        }
        for block in parts(piece, BLOCK) {
            if !reads(dev, &block)? {
                blocks.push(block);
            }
            if blocks.len() > MOST {
                return Ok(blocks);
            }
        }
    }
    Ok(blocks)
}

/// Returns the ranges that have repairs of their own: the sectors of the label, the header and the
/// committed text.
fn needed(location: Location) -> [Range<u64>; 4] {
    const SECTOR: u64 = 512;
    let text = AREA.start + location.offset;
    let end = text + location.size;
    // At the end of the area the text continues behind the header.
    let more = end.saturating_sub(AREA.end());
    let behind = AREA.start + SECTOR;
    [
        SECTOR..2 * SECTOR,
        AREA.start..behind,
        text..end.min(AREA.end()),
        behind..behind + more,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_reaches_the_end_of_the_area_is_needed_behind_the_header_too() {
        let location = |offset, size| Location {
            offset,
            size,
            checksum: 0,
        };
        let [_, _, text, rest] = needed(location(AREA.len - 512, 1025));
        assert_eq!(text, AREA.end() - 512..AREA.end());
        assert_eq!(rest, AREA.start + 512..AREA.start + 512 + 513);
        let [label, header, text, rest] = needed(location(512, 100));
        assert_eq!((label, header), (512..1024, 4096..4608));
        assert_eq!((text, rest.is_empty()), (4608..4708, true));
    }
}
