//! Writing in an order that a power cut cannot break: backup array, flush, backup header,
//! flush, primary array, flush, primary header, flush. At each moment at least one copy is
//! whole, and when both are, the backup is the newer one. Call it under the drive's flock.

use std::io;

use super::{ARRAY_BYTES, Found, Table, Which, codec, read};
use crate::carve::device::Device;

/// Writes a new version of the table, and reads it back.
pub fn write<D: Device + ?Sized>(dev: &D, table: &Table) -> io::Result<()> {
    write_copy(dev, table, Which::Backup)?;
    write_copy(dev, table, Which::Primary)?;
    match read(dev)? {
        Found::Whole(found) if found == *table => Ok(()),
        other => Err(io::Error::other(format!(
            "the partition table did not read back as written: {other:?}"
        ))),
    }
}

/// Writes one copy, array before header.
pub fn write_copy<D: Device + ?Sized>(dev: &D, table: &Table, which: Which) -> io::Result<()> {
    let (array, header) = match which {
        Which::Primary => (2, 1),
        Which::Backup => (table.last_lba - ARRAY_BYTES / table.sector, table.last_lba),
    };
    dev.write_at(array * table.sector, &codec::encode_array(table))?;
    dev.flush()?;
    dev.write_at(header * table.sector, &codec::encode_header(table, which))?;
    dev.flush()
}

/// Writes a first table: the protective MBR, then both copies.
pub fn create<D: Device + ?Sized>(dev: &D, table: &Table) -> io::Result<()> {
    dev.write_at(0, &protective_mbr(table))?;
    dev.flush()?;
    write(dev, table)
}

/// In the boot code area of a protective MBR that we wrote.
const MBR_MARK: &[u8] = b"drivebay";
/// Its byte.
const MBR_MARK_AT: usize = 400;

/// Whether a first sector is a protective MBR of ours, by its mark alone.
pub fn is_our_mbr(first: &[u8]) -> bool {
    first.get(MBR_MARK_AT..MBR_MARK_AT + MBR_MARK.len()) == Some(MBR_MARK)
}

/// The protective MBR: one partition of type 0xEE over the whole drive. The boot code area says
/// whose it is, which is how an interrupted claim is told from somebody's wiped table.
pub fn protective_mbr(table: &Table) -> Vec<u8> {
    let mut out = vec![0; usize::try_from(table.sector).unwrap_or(512)];
    codec::put(&mut out, MBR_MARK_AT, MBR_MARK);
    codec::put(&mut out, 446, &[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff]);
    codec::put(&mut out, 454, &1u32.to_le_bytes());
    codec::put(
        &mut out,
        458,
        &u32::try_from(table.last_lba)
            .unwrap_or(u32::MAX)
            .to_le_bytes(),
    );
    codec::put(&mut out, 510, &[0x55, 0xaa]);
    out
}
