//! Sectors in LVM's part of a drive of ours that do not read and that nobody needs. LVM reads and writes it in pieces of 128 KiB:
//! one such sector fails every command on the drive, although label, header and committed text are whole.

use std::{io, ops::Range};

use super::{
    label::AREA,
    metadata::{Committed, Location},
    plan,
};
use crate::device::Device;
use drivebay_sys::direct::is_of_medium;

/// Bytes that are read at once while looking.
const PIECE: u64 = 64 * 1024;
/// A physical sector of most drives: part of one cannot be written while the rest does not read.
const BLOCK: u64 = 4096;
/// A drive that has more such blocks than this is failing; zeros would not stay.
const MOST: usize = 64;

/// Writes zeros over the sectors that do not read, durably, unless they belong to the label, the area's header or the committed
/// text, which have repairs of their own. Answers how many blocks that were; none on a PV that is laid out in another way, where
/// a volume may lie in their place.
///
/// # Errors
/// The drive fails otherwise than at a place, a sector cannot be written, or there are too many.
pub fn mend<D: Device + ?Sized>(dev: &D, committed: &Committed) -> io::Result<usize> {
    // A copy does not say where the text lies.
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

/// False: the place does not read. Another error says nothing of it.
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

/// Blocks of LVM's part that do not read: all of them, or one more than are mended.
fn unreadable<D: Device + ?Sized>(dev: &D) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    for piece in parts(0..plan::METADATA_END, PIECE) {
        if reads(dev, &piece)? {
            continue;
        }
        for block in parts(piece, BLOCK) {
            if !reads(dev, &block)? {
                found.push(block);
            }
            if found.len() > MOST {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// What has repairs of its own: the sectors with the label, the header and the committed text.
fn needed(location: Location) -> [Range<u64>; 4] {
    const SECTOR: u64 = 512;
    let text = AREA.start + location.offset;
    let end = text + location.size;
    // It goes on behind the header when it reaches the area's end.
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
