//! Copies of LVM's metadata text that are durable on the drive.
//!
//! LVM writes a new text and then the header that points to it, without a flush between. A power
//! failure may keep the header and lose the text, and then no program can read the VG. So after
//! each change, once everything is flushed, the text is written to one of two slots in space that
//! LVM does not use, and is flushed too. If the committed text is torn, the copy is the last
//! acknowledged one, and LVM's own `pvck --repairtype metadata` restores it.
//!
//! # Format
//! The PV's bootloader area, in two halves. Each begins with a header of 4096 bytes, little-endian,
//! then the text. The last 4 KiB of each hold the record of free space (`zeroed`).
//!
//! | bytes      | what                                                        |
//! |------------|-------------------------------------------------------------|
//! | 0..8       | magic: `DRVBAYMD`                                           |
//! | 8..12      | format: 1                                                   |
//! | 12..16     | bytes of the text                                           |
//! | 16..24     | seqno of the text; the valid slot with the higher one wins  |
//! | 24..28     | CRC-32 (IEEE 802.3) of the text                             |
//! | 28..4092   | zeros                                                       |
//! | 4092..4096 | CRC-32 of bytes 0..4092                                     |

use std::io;

use crate::{
    device::{self, Device, Medium},
    zeroed,
};
use drivebay_model::{Extent, units::human_size};

const MAGIC: &[u8; 8] = b"DRVBAYMD";
const FORMAT: u32 = 1;
const HEADER: usize = 4096;

/// A copy of the metadata text, with valid checksums of header and text and in the format of this
/// version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    pub text: Vec<u8>,
    pub seqno: u64,
    slot: u64,
}

/// True if a copy was ever written to a bootloader area, valid or not. Errs if a slot cannot be
/// read, as it could have one.
pub fn has_traces<D: Medium + ?Sized>(dev: &D, area: Extent) -> io::Result<bool> {
    device::any((0..2).map(|slot| {
        let header = header(dev, area, slot)?;
        Ok(header.is_some_and(|header| header.starts_with(MAGIC)))
    }))
}

/// Returns the format of a copy that a newer version of Drivebay wrote, which this one neither
/// reads nor overwrites. An unreadable slot is ignored.
pub fn newer<D: Medium + ?Sized>(dev: &D, area: Extent) -> Option<u32> {
    (0..2).find_map(|slot| {
        let header = header(dev, area, slot).ok()??;
        let format = number(&header, 8);
        (is_whole(&header) && format > FORMAT).then_some(format)
    })
}

fn refuse_newer<D: Medium + ?Sized>(dev: &D, area: Extent) -> io::Result<()> {
    newer(dev, area).map_or(Ok(()), |format| {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            why_newer(format),
        ))
    })
}

/// Returns the reason for refusing a drive with a copy of this format.
pub fn why_newer(format: u32) -> String {
    format!(
        "the copy of its LVM metadata has format {format}, and this version of Drivebay knows {FORMAT}; use the version that wrote it, or a later one"
    )
}

/// Returns the newest valid copy in a bootloader area. Errs if a slot cannot be read, as it may
/// hold the newest, or has a newer format.
pub fn newest<D: Medium + ?Sized>(dev: &D, area: Extent) -> io::Result<Option<Copy>> {
    refuse_newer(dev, area)?;
    let copies = [read(dev, area, 0)?, read(dev, area, 1)?];
    Ok(copies.into_iter().flatten().max_by_key(|copy| copy.seqno))
}

/// Writes a copy of this text durably. The text must be durable in LVM's own place. The newest copy
/// is not overwritten. An unreadable slot is written first, which makes a drive replace a bad
/// sector.
pub fn keep<D: Device + ?Sized>(dev: &D, area: Extent, text: &[u8], seqno: u64) -> io::Result<()> {
    refuse_newer(dev, area)?;
    let slots = [read(dev, area, 0), read(dev, area, 1)];
    let bad = slots.iter().position(Result::is_err);
    let whole = slots.into_iter().flatten().flatten();
    let newest = whole.max_by_key(|copy| copy.seqno);
    let is_kept = newest
        .as_ref()
        .is_some_and(|copy| copy.seqno == seqno && copy.text == text);
    if is_kept && bad.is_none() {
        return Ok(());
    }
    let other = newest.as_ref().map_or(0, |copy| 1 - copy.slot);
    let slot = bad.map_or(other, |bad| bad as u64);
    let raw = encode(text, seqno);
    if raw.len() as u64 > half(area) - zeroed::SLOT {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the metadata text has {}", human_size(text.len() as u64)),
        ));
    }
    dev.write_at(area.start + slot * half(area), &raw)?;
    dev.flush()?;
    match newest {
        // An administrator restored an older version: the version that it replaced must not win.
        Some(copy) if copy.seqno >= seqno && !is_kept => {
            dev.write_at(area.start + copy.slot * half(area), &vec![0; HEADER])?;
            dev.flush()
        }
        _ => Ok(()),
    }
}

/// Returns the slots of the record of free space, at the end of each half; None if there is no
/// room.
pub(super) fn of_free_space(area: Extent) -> Option<zeroed::Slots> {
    let half = half(area);
    let at = |n: u64| area.start + n * half - zeroed::SLOT;
    (half > HEADER as u64 + zeroed::SLOT).then(|| [at(1), at(2)])
}

fn half(area: Extent) -> u64 {
    area.len / 2 / HEADER as u64 * HEADER as u64
}

fn encode(text: &[u8], seqno: u64) -> Vec<u8> {
    let mut raw = vec![0; HEADER];
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let fields: [(usize, &[u8]); 5] = [
        (0, MAGIC),
        (8, &FORMAT.to_le_bytes()),
        (12, &len.to_le_bytes()),
        (16, &seqno.to_le_bytes()),
        (24, &crc32fast::hash(text).to_le_bytes()),
    ];
    for (at, bytes) in fields {
        raw[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let crc = crc32fast::hash(&raw[..HEADER - 4]);
    raw[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
    raw.extend_from_slice(text);
    raw.resize(raw.len().next_multiple_of(HEADER), 0);
    raw
}

/// Returns the header of a slot; None if there is no room for one.
fn header<D: Medium + ?Sized>(dev: &D, area: Extent, slot: u64) -> io::Result<Option<Vec<u8>>> {
    let half = half(area);
    if half < HEADER as u64 || area.end() > dev.size() {
        return Ok(None);
    }
    let mut header = vec![0; HEADER];
    dev.read_at(area.start + slot * half, &mut header)?;
    Ok(Some(header))
}

fn number(header: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]))
}

fn is_whole(header: &[u8]) -> bool {
    header.starts_with(MAGIC)
        && number(header, HEADER - 4) == crc32fast::hash(&header[..HEADER - 4])
}

fn read<D: Medium + ?Sized>(dev: &D, area: Extent, slot: u64) -> io::Result<Option<Copy>> {
    let Some(header) = header(dev, area, slot)? else {
        return Ok(None);
    };
    let (half, number) = (half(area), |at| number(&header, at));
    let start = area.start + slot * half;
    let good =
        is_whole(&header) && number(8) == FORMAT && u64::from(number(12)) <= half - HEADER as u64;
    if !good {
        return Ok(None);
    }
    let len = number(12) as usize;
    let mut text = vec![0; len.next_multiple_of(HEADER)];
    dev.read_at(start + HEADER as u64, &mut text)?;
    text.truncate(len);
    let seqno = u64::from(number(16)) | u64::from(number(20)) << 32;
    Ok((crc32fast::hash(&text) == number(24)).then_some(Copy { text, seqno, slot }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDrive;
    use crate::golden;
    use drivebay_model::MIB;

    const AREA: Extent = Extent {
        start: 3 * MIB,
        len: 5 * MIB,
    };

    #[test]
    fn a_copy_is_written_and_read_as_the_golden_one() {
        let golden = golden::compare("metadata-copy.bin", &encode(b"text of a group", 7));
        let drive = FakeDrive::new(16 * MIB, 512);
        let whole = golden.len().next_multiple_of(512);
        let raw = [golden.clone(), vec![0; whole - golden.len()]].concat();
        drive.write_at(AREA.start, &raw).unwrap();
        let copy = newest(&drive, AREA).unwrap().unwrap();
        assert_eq!((copy.seqno, &*copy.text), (7, &b"text of a group"[..]));
    }

    #[test]
    fn the_newest_copy_is_found_and_is_never_written_over() {
        let drive = FakeDrive::new(16 * MIB, 512);
        assert_eq!(newest(&drive, AREA).unwrap(), None);
        for seqno in 1..6_u64 {
            let text = vec![b'a' + seqno as u8; 1000 * seqno as usize];
            keep(&drive, AREA, &text, seqno).unwrap();
            let copy = newest(&drive, AREA).unwrap().unwrap();
            assert_eq!((copy.seqno, &copy.text), (seqno, &text));
        }
        // The slot of the newest copy is torn: the one before is still valid.
        let copy = newest(&drive, AREA).unwrap().unwrap();
        let torn = AREA.start + copy.slot * half(AREA) + 4096;
        drive.write_at(torn, &[0; 512]).unwrap();
        assert_eq!(newest(&drive, AREA).unwrap().unwrap().seqno, 4);
    }

    #[test]
    fn a_version_that_went_back_wins_over_the_one_it_replaced() {
        let drive = FakeDrive::new(16 * MIB, 512);
        keep(&drive, AREA, b"nine", 9).unwrap();
        keep(&drive, AREA, b"three", 3).unwrap();
        assert_eq!(newest(&drive, AREA).unwrap().unwrap().text, b"three");
    }

    #[test]
    fn a_text_that_does_not_fit_is_refused_before_anything_is_written() {
        let drive = FakeDrive::new(16 * MIB, 4096);
        keep(&drive, AREA, b"small", 1).unwrap();
        let large = vec![b'x'; (3 * MIB) as usize];
        assert!(keep(&drive, AREA, &large, 2).is_err());
        assert_eq!(newest(&drive, AREA).unwrap().unwrap().text, b"small");
    }

    #[test]
    fn a_slot_that_does_not_read_is_written_and_the_whole_one_left_alone() {
        for bad in 0..2 {
            let drive = FakeDrive::new(16 * MIB, 512);
            keep(&drive, AREA, b"one", 1).unwrap();
            keep(&drive, AREA, b"two", 2).unwrap();
            drive.unreadable.set(Some(Extent {
                start: AREA.start + bad * half(AREA),
                len: 512,
            }));
            assert!(newest(&drive, AREA).is_err());
            assert!(has_traces(&drive, AREA).unwrap());
            keep(&drive, AREA, b"two", 2).unwrap();
            // If the newest one could be read, there are two copies of it now; otherwise the one
            // before is still there.
            for (gone, left) in [(0, b"two"), (1, [b"two", b"one"][bad as usize])] {
                let drive = drive.clone();
                drive.rot(AREA.start + gone * half(AREA), 1);
                assert_eq!(newest(&drive, AREA).unwrap().unwrap().text, left, "{bad}");
            }
        }
    }

    #[test]
    fn a_copy_of_a_newer_format_is_neither_read_nor_overwritten() {
        for slot in 0..2 {
            let drive = FakeDrive::new(16 * MIB, 512);
            keep(&drive, AREA, b"one", 1).unwrap();
            keep(&drive, AREA, b"two", 2).unwrap();
            let start = AREA.start + slot * half(AREA);
            let mut raw = encode(b"of tomorrow", 3);
            raw[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
            let crc = crc32fast::hash(&raw[..HEADER - 4]);
            raw[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
            drive.write_at(start, &raw).unwrap();

            assert_eq!(newer(&drive, AREA), Some(FORMAT + 1));
            for refused in [
                newest(&drive, AREA).map(drop),
                keep(&drive, AREA, b"three", 3),
            ] {
                let error = refused.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
                assert!(error.to_string().contains("format 2"), "{error}");
            }
            let mut left = vec![0; raw.len()];
            drive.read_at(start, &mut left).unwrap();
            assert_eq!(left, raw, "slot {slot}");
        }
    }

    #[test]
    fn an_area_outside_of_the_drive_holds_no_copy() {
        let drive = FakeDrive::new(4 * MIB, 512);
        assert_eq!(newest(&drive, AREA).unwrap(), None);
    }
}
