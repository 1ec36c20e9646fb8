//! The record of the progress of erasing a deleted LV, written directly to the last 4 KiB of the
//! LV, at least every GiB. It is a part of what is erased, and the last of it.
//!
//! # The note
//! Bytes 0..8 `DRVBAYER`, 8..24 the erase guid (RFC 9562 order), 24..32 erased bytes
//! (little-endian), 32..4092 zeros, then the CRC-32 of all before. The guid was generated when the
//! volume was deleted and is part of the LV's name, so no bytes that a tenant wrote are mistaken
//! for a record.

use std::io;

use uuid::Uuid;

use crate::device::{Device, Medium};
use drivebay_model::Extent;

/// Bytes of a note: whole sectors of any size.
const NOTE: u64 = 4096;
const MAGIC: &[u8; 8] = b"DRVBAYER";

fn place(runs: &[Extent]) -> Option<u64> {
    runs.last()
        .filter(|run| run.len >= NOTE)
        .map(|run| run.end() - NOTE)
}

/// Returns the erased bytes; None if there is no valid record with this guid.
pub(super) fn read<D: Medium + ?Sized>(
    dev: &D,
    runs: &[Extent],
    guid: Uuid,
) -> io::Result<Option<u64>> {
    let Some(at) = place(runs) else {
        return Ok(None);
    };
    let mut raw = vec![0; NOTE as usize];
    dev.read_at(at, &mut raw)?;
    let mut done = [0; 8];
    done.copy_from_slice(&raw[24..32]);
    let done = u64::from_le_bytes(done);
    let total: u64 = runs.iter().map(|run| run.len).sum();
    Ok((done < total && raw == note(guid, done)).then_some(done))
}

pub(super) fn write<D: Device + ?Sized>(
    dev: &D,
    runs: &[Extent],
    guid: Uuid,
    done: u64,
) -> io::Result<()> {
    if let Some(at) = place(runs) {
        dev.write_at(at, &note(guid, done))?;
        dev.flush()?;
    }
    Ok(())
}

fn note(guid: Uuid, done: u64) -> Vec<u8> {
    let mut raw = vec![0; NOTE as usize];
    raw[..8].copy_from_slice(MAGIC);
    raw[8..24].copy_from_slice(guid.as_bytes());
    raw[24..32].copy_from_slice(&done.to_le_bytes());
    let end = raw.len() - 4;
    let crc = crc32fast::hash(&raw[..end]);
    raw[end..].copy_from_slice(&crc.to_le_bytes());
    raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeDrive;
    use crate::golden;
    use drivebay_model::{GIB, MIB};

    fn run(start: u64, len: u64) -> Extent {
        Extent {
            start: start * MIB,
            len: len * MIB,
        }
    }

    #[test]
    fn a_note_is_believed_only_of_its_own_erasing() {
        let drive = FakeDrive::new(64 * MIB, 512);
        let (runs, guid) = ([run(20, 4), run(9, 2)], Uuid::new_v4());
        assert_eq!(read(&drive, &runs, guid).unwrap(), None);
        write(&drive, &runs, guid, 3 * MIB).unwrap();
        assert_eq!(read(&drive, &runs, guid).unwrap(), Some(3 * MIB));
        // Another deletion, another place, and a record with more bytes than the runs have.
        assert_eq!(read(&drive, &runs, Uuid::new_v4()).unwrap(), None);
        assert_eq!(read(&drive, &runs[..1], guid).unwrap(), None);
        write(&drive, &runs, guid, 6 * MIB).unwrap();
        assert_eq!(read(&drive, &runs, guid).unwrap(), None);
        // One bit is changed.
        write(&drive, &runs, guid, MIB).unwrap();
        drive.rot(11 * MIB - NOTE + 100, 1);
        assert_eq!(read(&drive, &runs, guid).unwrap(), None);
    }

    /// A record has no version: unless it is exactly as written here it is ignored, and erasing
    /// starts again.
    #[test]
    fn a_note_is_written_and_read_as_the_golden_one_and_no_other_is_believed() {
        let guid = Uuid::from_u128(0xc192_8e47);
        let (runs, done) = ([run(8, 3072)], 2_298_478_592);
        let raw = golden::compare("erase-note.bin", &note(guid, done));
        let drive = FakeDrive::new(8 * GIB, 512);
        let place = place(&runs).unwrap();
        drive.write_at(place, &raw).unwrap();
        assert_eq!(read(&drive, &runs, guid).unwrap(), Some(done));
        // Another magic, or a byte in the part that is zeros today, each with a valid checksum.
        for (offset, value) in [(7, b'2'), (32, 1), (4091, 1)] {
            let mut other = raw.clone();
            other[offset] = value;
            let end = other.len() - 4;
            let crc = crc32fast::hash(&other[..end]);
            other[end..].copy_from_slice(&crc.to_le_bytes());
            drive.write_at(place, &other).unwrap();
            assert_eq!(read(&drive, &runs, guid).unwrap(), None, "{offset}");
        }
    }
}
