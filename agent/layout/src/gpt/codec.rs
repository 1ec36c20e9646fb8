//! Converts one copy of a table to and from bytes.

use uuid::Uuid;

use super::{ARRAY_BYTES, ENTRIES, ENTRY_BYTES, Entry, Table, Which};

const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION: u32 = 0x0001_0000;
const HEADER_BYTES: u32 = 92;

/// Returns the `N` bytes at `at`; zeros if there are fewer.
pub(super) fn bytes<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = from.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}

/// Copies `what` to `at`; does nothing if it does not fit.
pub(super) fn put(to: &mut [u8], at: usize, what: &[u8]) {
    if let Some(part) = to.get_mut(at..at + what.len()) {
        part.copy_from_slice(what);
    }
}

fn le32(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

pub(super) fn le64(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}

/// Returns the entry array, which is the same in both copies.
pub(super) fn encode_array(table: &Table) -> Vec<u8> {
    table.entries.iter().flat_map(|entry| entry.0).collect()
}

/// Returns the header of one copy, one sector long.
pub(super) fn encode_header(table: &Table, which: Which) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(table.sector).unwrap_or(512)];
    let (mine, other, array) = match which {
        Which::Primary => (1, table.last_lba, 2),
        Which::Backup => (
            table.last_lba,
            1,
            table.last_lba - ARRAY_BYTES / table.sector,
        ),
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
    put(
        &mut out,
        88,
        &crc32fast::hash(&encode_array(table)).to_le_bytes(),
    );
    let crc = crc32fast::hash(out.get(..HEADER_BYTES as usize).unwrap_or_default());
    put(&mut out, 16, &crc.to_le_bytes());
    out
}

/// A checked header, whose array is not checked yet.
pub(super) struct Header {
    pub(super) last_lba: u64,
    array_crc: u32,
    disk_guid: Uuid,
    first_usable: u64,
    last_usable: u64,
}

/// True if the sector begins with the signature of a GPT header.
pub(super) fn has_signature(sector: &[u8]) -> bool {
    sector.starts_with(SIGNATURE)
}

/// A header of any shape, whose checksum and own address are right.
#[derive(Debug)]
pub(super) struct Fields {
    revision: u32,
    pub(super) other_lba: u64,
    first_usable: u64,
    last_usable: u64,
    disk_guid: Uuid,
    pub(super) array_lba: u64,
    pub(super) entry_count: u32,
    pub(super) entry_bytes: u32,
    pub(super) array_crc: u32,
}

impl Fields {
    /// True if the copies agree in all fields that they share: usable range, disk GUID, and count,
    /// size and checksum of the entries.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        let shared = |one: &Self| {
            (
                (one.first_usable, one.last_usable, one.disk_guid),
                (one.entry_count, one.entry_bytes, one.array_crc),
            )
        };
        shared(self) == shared(other)
    }
}

/// Reads a header from the sector `lba`. Err: a description of the defect.
pub(super) fn decode_fields(raw: &[u8], lba: u64) -> Result<Fields, String> {
    let size = le32(raw, 12) as usize;
    let Some(whole) = raw.get(..size).filter(|_| size >= HEADER_BYTES as usize) else {
        return Err(format!("its header says it has {size} bytes"));
    };
    let mut body = whole.to_vec();
    put(&mut body, 16, &[0; 4]);
    if crc32fast::hash(&body) != le32(raw, 16) {
        return Err("the checksum of its header is wrong".into());
    }
    let my_lba = le64(raw, 24);
    if my_lba != lba {
        return Err(format!(
            "its header says it is at sector {my_lba}, and it is at {lba}"
        ));
    }
    Ok(Fields {
        revision: le32(raw, 8),
        other_lba: le64(raw, 32),
        first_usable: le64(raw, 40),
        last_usable: le64(raw, 48),
        disk_guid: Uuid::from_bytes_le(bytes(raw, 56)),
        array_lba: le64(raw, 72),
        entry_count: le32(raw, 80),
        entry_bytes: le32(raw, 84),
        array_crc: le32(raw, 88),
    })
}

/// Checks that a header has the shape that Drivebay writes, on a drive whose last sector is `end`.
/// Err: a description of the defect.
pub(super) fn decode_header(
    raw: &[u8],
    which: Which,
    lba: u64,
    end: u64,
    sector: u64,
) -> Result<Header, String> {
    let fields = decode_fields(raw, lba)?;
    let (number, entry_bytes) = (fields.entry_count, fields.entry_bytes);
    if fields.revision != REVISION || number != ENTRIES as u32 || entry_bytes != ENTRY_BYTES as u32
    {
        return Err(format!(
            "{number} entries of {entry_bytes} bytes are not supported"
        ));
    }
    let array = ARRAY_BYTES / sector;
    let (other, array_lba) = (fields.other_lba, fields.array_lba);
    let (last_lba, expected) = match which {
        Which::Primary => (other, (other, 2)),
        Which::Backup => (lba, (1, lba.saturating_sub(array))),
    };
    if last_lba > end {
        return Err(format!(
            "it is for a drive of {} sectors; this one has {}",
            last_lba.saturating_add(1),
            end + 1
        ));
    }
    if (other, array_lba) != expected {
        return Err(format!(
            "addresses (self {lba}, other {other}, entries {array_lba})"
        ));
    }
    let (first_usable, last_usable) = (fields.first_usable, fields.last_usable);
    if first_usable < 2 + array
        || last_usable < first_usable
        || last_usable >= last_lba.saturating_sub(array)
    {
        return Err(format!("usable sectors {first_usable} to {last_usable}"));
    }
    Ok(Header {
        last_lba,
        array_crc: fields.array_crc,
        disk_guid: fields.disk_guid,
        first_usable,
        last_usable,
    })
}

/// Checks the entry array of a checked header. Err: a description of the defect.
pub(super) fn decode_array(header: &Header, raw: &[u8], sector: u64) -> Result<Table, String> {
    if crc32fast::hash(raw) != header.array_crc {
        return Err("the checksum of its entries is wrong".into());
    }
    let entries: Vec<Entry> = raw
        .chunks_exact(ENTRY_BYTES)
        .map(|chunk| Entry(bytes(chunk, 0)))
        .collect();
    for (number, entry) in (1..)
        .zip(&entries)
        .filter(|(_, entry): &(u32, _)| entry.is_used())
    {
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
