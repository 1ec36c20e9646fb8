//! One copy of a table to and from bytes.

use uuid::Uuid;

use super::{ARRAY_BYTES, ENTRIES, ENTRY_BYTES, Entry, Table, Which};

const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER_BYTES: u32 = 92;

/// `N` bytes at `at`; zeros where there are none.
pub(super) fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = from.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}

/// Copies `what` to `at`.
pub(super) fn put(to: &mut [u8], at: usize, what: &[u8]) {
    if let Some(part) = to.get_mut(at..at + what.len()) {
        part.copy_from_slice(what);
    }
}

fn le32(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

fn le64(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

/// The entry array, the same in both copies.
pub(super) fn encode_array(table: &Table) -> Vec<u8> {
    table.entries.iter().flat_map(|entry| entry.0).collect()
}

/// The header of one copy, one sector long.
pub(super) fn encode_header(table: &Table, which: Which) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(table.sector).unwrap_or(512)];
    let (mine, other, array) = match which {
        Which::Primary => (1, table.last_lba, 2),
        Which::Backup => (table.last_lba, 1, table.last_lba - ARRAY_BYTES / table.sector),
    };
    put(&mut out, 0, SIGNATURE);
    put(&mut out, 8, &REVISION.to_le_bytes());
    put(&mut out, 12, &HEADER_BYTES.to_le_bytes());
    put(&mut out, 24, &u64::to_le_bytes(mine));
    put(&mut out, 32, &u64::to_le_bytes(other));
    put(&mut out, 40, &table.first_usable.to_le_bytes());
    put(&mut out, 48, &table.last_usable.to_le_bytes());
    put(&mut out, 56, &table.disk_guid.to_bytes_le());
    put(&mut out, 72, &u64::to_le_bytes(array));
    put(&mut out, 80, &(ENTRIES as u32).to_le_bytes());
    put(&mut out, 84, &(ENTRY_BYTES as u32).to_le_bytes());
    put(&mut out, 88, &crc32fast::hash(&encode_array(table)).to_le_bytes());
    let crc = crc32fast::hash(out.get(..HEADER_BYTES as usize).unwrap_or_default());
    put(&mut out, 16, &crc.to_le_bytes());
    out
}

/// A header that was checked, before its array is.
pub(super) struct Header {
    pub(super) last_lba: u64,
    array_crc: u32,
    disk_guid: Uuid,
    first_usable: u64,
    last_usable: u64,
}

/// Whether the sector has the signature at all.
pub(super) fn has_signature(sector: &[u8]) -> bool {
    sector.starts_with(SIGNATURE)
}

/// Checks a header that was read at `lba` of a drive whose last sector is `end`.
pub(super) fn decode_header(raw: &[u8], which: Which, lba: u64, end: u64, sector: u64) -> Result<Header, String> {
    let size = le32(raw, 12) as usize;
    if !(HEADER_BYTES as usize..=raw.len()).contains(&size) {
        return Err(format!("header length {size}"));
    }
    let mut body = raw.get(..size).unwrap_or_default().to_vec();
    put(&mut body, 16, &[0; 4]);
    if crc32fast::hash(&body) != le32(raw, 16) {
        return Err("header checksum".into());
    }
    let (my_lba, other, array_lba) = (le64(raw, 24), le64(raw, 32), le64(raw, 72));
    let (number, entry_bytes) = (le32(raw, 80), le32(raw, 84));
    let array = ARRAY_BYTES / sector;
    let last_lba = match which {
        Which::Primary => other,
        Which::Backup => lba,
    };
    if le32(raw, 8) != REVISION || number != ENTRIES as u32 || entry_bytes != ENTRY_BYTES as u32 {
        return Err(format!("{number} entries of {entry_bytes} bytes are not supported"));
    }
    if last_lba > end {
        return Err(format!("it is for a drive of {} sectors; this one has {}", last_lba + 1, end + 1));
    }
    let expected = match which {
        Which::Primary => (1, other, 2),
        Which::Backup => (lba, 1, lba.saturating_sub(array)),
    };
    if (my_lba, other, array_lba) != expected {
        return Err(format!("addresses (self {my_lba}, other {other}, entries {array_lba})"));
    }
    let (first_usable, last_usable) = (le64(raw, 40), le64(raw, 48));
    if first_usable < 2 + array || last_usable < first_usable || last_usable >= last_lba.saturating_sub(array) {
        return Err(format!("usable sectors {first_usable} to {last_usable}"));
    }
    Ok(Header {
        last_lba,
        array_crc: le32(raw, 88),
        disk_guid: Uuid::from_bytes_le(bytes(raw, 56)),
        first_usable,
        last_usable,
    })
}

/// Checks the array that belongs to a checked header.
pub(super) fn decode_array(header: &Header, raw: &[u8], sector: u64) -> Result<Table, String> {
    if crc32fast::hash(raw) != header.array_crc {
        return Err("entries checksum".into());
    }
    let entries: Vec<Entry> = raw.chunks_exact(ENTRY_BYTES).map(|chunk| Entry(bytes(chunk, 0))).collect();
    for (number, entry) in (1..).zip(&entries).filter(|(_, entry): &(u32, _)| entry.is_used()) {
        let (first, last) = (entry.first_lba(), entry.last_lba());
        if first < header.first_usable || last < first || last > header.last_usable {
            return Err(format!("entry {number} lies at sectors {first} to {last}"));
        }
    }
    Ok(Table {
        disk_guid: header.disk_guid,
        sector,
        last_lba: header.last_lba,
        first_usable: header.first_usable,
        last_usable: header.last_usable,
        entries,
    })
}
