//! Writes tables in an order that survives a power failure: backup array, flush, backup header,
//! flush, primary array, flush, primary header, flush. At each moment at least one copy is whole,
//! and if both are, the backup is the newer one. The caller must hold the drive's flock.

use std::io;

use super::{ARRAY_BYTES, GptCopies, Table, Which, codec, read};
use crate::device::Device;

/// Writes a new version of the table durably, and verifies it by reading back.
pub fn write<D: Device + ?Sized>(dev: &D, table: &Table) -> io::Result<()> {
    write_copy(dev, table, Which::Backup)?;
    write_copy(dev, table, Which::Primary)?;
    match read(dev)? {
        GptCopies::Whole(read_back) if read_back == *table => Ok(()),
        other => Err(io::Error::other(format!(
            "the partition table did not read back as written: {other:?}"
        ))),
    }
}

/// Writes one copy durably, the array before the header.
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

/// Bytes that most drives with 512-byte logical sectors read, write and replace as one block.
const PHYSICAL: u64 = 4096;

/// Overwrites the unreadable blocks of one copy, with zeros where no data can be read: a drive
/// replaces a bad block only when all of it is written, and the sectors of a table are less than
/// that. A block that is also part of a partition is not written. The caller must write the copy
/// next.
pub fn clear_unreadable<D: Device + ?Sized>(
    dev: &D,
    table: &Table,
    which: Which,
) -> io::Result<()> {
    let (start, end) = match which {
        Which::Primary => (0, 2 * table.sector + ARRAY_BYTES),
        Which::Backup => (
            table.last_lba * table.sector - ARRAY_BYTES,
            (table.last_lba + 1) * table.sector,
        ),
    };
    let mut block = vec![0; PHYSICAL as usize];
    for at in (start / PHYSICAL * PHYSICAL..end).step_by(PHYSICAL as usize) {
        let len = PHYSICAL.min(dev.size() - at);
        let block = block.get_mut(..len as usize).unwrap_or_default();
        let is_free = table.partitions().all(|(_, entry)| {
            let extent = entry.extent(table.sector);
            extent.end() <= at || at + len <= extent.start
        });
        if is_free && dev.read_at(at, block).is_err() {
            for (offset, sector) in (at..)
                .step_by(table.sector as usize)
                .zip(block.chunks_mut(table.sector as usize))
            {
                if dev.read_at(offset, sector).is_err() {
                    sector.fill(0);
                }
            }
            dev.write_at(at, block)?;
        }
    }
    dev.flush()
}

/// Writes the first table of a drive: the protective MBR, then both copies.
pub fn create<D: Device + ?Sized>(dev: &D, table: &Table) -> io::Result<()> {
    dev.write_at(0, &protective_mbr(table))?;
    dev.flush()?;
    write(dev, table)
}

/// Mark of Drivebay in the boot code area of its protective MBRs.
const MBR_MARK: &[u8] = b"drivebay";
/// Offset of the mark in the sector.
const MBR_MARK_AT: usize = 400;

/// True if a first sector has the mark of Drivebay's protective MBR; nothing else is checked.
pub fn is_our_mbr(first: &[u8]) -> bool {
    first.get(MBR_MARK_AT..MBR_MARK_AT + MBR_MARK.len()) == Some(MBR_MARK)
}

/// Returns the protective MBR: one partition of type 0xEE over the whole drive. Its boot code area
/// has Drivebay's mark, which distinguishes an interrupted claim from another program's wiped
/// table.
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
