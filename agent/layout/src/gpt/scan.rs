//! Scans any GPT, also a foreign one or one of another shape: reads and compares both copies. Reads
//! only; defects are described, not repaired.

use std::io;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::codec::{self, Fields};
use crate::device::Medium;
use drivebay_model::LABEL_TYPE;

/// Most bytes of entries; a table with more counts as damaged. The usual one has 16 KiB.
const MOST_ENTRY_BYTES: u64 = 1 << 20;

/// The state of a GPT, both copies read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GptState {
    /// No trace of one.
    None,
    /// Both copies valid and equal.
    Whole,
    /// Remains of a GPT, or copies that are not both valid and equal; the text lists the problems.
    Damaged(String),
}

/// Result of scanning a drive for a GPT.
#[derive(Debug, PartialEq, Eq)]
pub struct GptScan {
    pub state: GptState,
    /// True if a valid copy begins with Drivebay's label partition.
    pub ours: bool,
    /// Type GUIDs in the valid copies, sorted.
    pub types: Vec<String>,
}

/// Result of reading one copy.
#[derive(Debug)]
enum Copy {
    Absent,
    Bad(String),
    Good(Table),
}

#[derive(Debug)]
struct Table {
    lba: u64,
    fields: Fields,
    entries: Vec<u8>,
}

/// Scans both ends of a drive for a GPT, also for headers of other sector sizes. Errs if a sector
/// cannot be read.
pub fn scan<D: Medium + ?Sized>(dev: &D) -> io::Result<GptScan> {
    let (size, sector) = (dev.size(), dev.sector());
    let last = (size / sector).saturating_sub(1);
    if last < 3 {
        return Ok(GptScan {
            state: GptState::None,
            ours: false,
            types: Vec::new(),
        });
    }
    let mbr = read(dev, 0, sector)?;
    let primary = copy(dev, 1, last)?;
    let mut backup = copy(dev, last, last)?;
    let mut problems = Vec::new();
    if let (Copy::Good(table), Copy::Absent) = (&primary, &backup)
        && table.fields.other_lba < last
    {
        backup = copy(dev, table.fields.other_lba, last)?;
        problems.push("its backup is not at the end of the drive (the drive grew, or an image was copied onto it)".to_owned());
    }
    for other in [512_u64, 4096].into_iter().filter(|other| *other != sector) {
        for offset in [other, (size / other).saturating_sub(1) * other] {
            // Read whole sectors of the device around it.
            let start = offset / sector * sector;
            let bytes = read(dev, start, sector)?;
            if bytes
                .get((offset - start) as usize..)
                .is_some_and(codec::has_signature)
            {
                problems.push(format!("a header for sectors of {other} bytes is at byte {offset}, and the drive has sectors of {sector}"));
            }
        }
    }
    Ok(decide(&mbr, &primary, &backup, problems))
}

fn decide(mbr: &[u8], primary: &Copy, backup: &Copy, mut problems: Vec<String>) -> GptScan {
    let (protective, hybrid) = protective_mbr(mbr);
    for (name, copy) in [("primary", primary), ("backup", backup)] {
        if let Copy::Bad(why) = copy {
            problems.push(format!("its {name} copy is damaged: {why}"));
        }
    }
    match (primary, backup) {
        (Copy::Absent, Copy::Absent) if problems.is_empty() && !protective => {}
        (Copy::Absent, Copy::Absent) if protective => {
            problems.push("only a protective MBR is there".to_owned())
        }
        (Copy::Good(_), Copy::Absent) => problems.push("its backup copy is missing".to_owned()),
        (Copy::Absent, Copy::Good(_)) => problems.push("only its backup copy is there".to_owned()),
        (Copy::Good(one), Copy::Good(two)) => {
            if !one.fields.agrees(&two.fields) || one.entries != two.entries {
                problems.push("its two copies differ".to_owned());
            } else if one.lba != two.fields.other_lba || two.lba != one.fields.other_lba {
                problems.push("its two copies do not name each other".to_owned());
            }
        }
        _ => {}
    }
    let good: Vec<&Table> = [primary, backup]
        .into_iter()
        .filter_map(|copy| {
            if let Copy::Good(table) = copy {
                Some(table)
            } else {
                None
            }
        })
        .collect();
    if !good.is_empty() && !protective {
        problems.push("its protective MBR is missing".to_owned());
    }
    if hybrid {
        problems.push("its MBR has further partitions (a hybrid MBR)".to_owned());
    }
    let mut types: Vec<String> = good
        .iter()
        .flat_map(|table| table.types())
        .map(|kind| kind.to_string())
        .collect();
    types.sort();
    types.dedup();
    GptScan {
        state: match (problems.is_empty(), good.is_empty()) {
            (true, true) => GptState::None,
            (true, false) => GptState::Whole,
            (false, _) => GptState::Damaged(problems.join("; ")),
        },
        ours: good
            .iter()
            .any(|table| table.first_type() == Some(LABEL_TYPE)),
        types,
    }
}

/// Returns whether there is a protective entry, and whether there are other entries beside it.
fn protective_mbr(mbr: &[u8]) -> (bool, bool) {
    let Some((table, [0x55, 0xaa])) = mbr.get(446..512).and_then(|part| part.split_at_checked(64))
    else {
        return (false, false);
    };
    let kinds: Vec<u8> = table.chunks(16).map(|entry| entry[4]).collect();
    let protective = kinds.contains(&0xee);
    (
        protective,
        protective && kinds.iter().filter(|kind| **kind != 0).count() > 1,
    )
}

fn copy<D: Medium + ?Sized>(dev: &D, lba: u64, last: u64) -> io::Result<Copy> {
    let sector = dev.sector();
    let header = read(dev, lba * sector, sector)?;
    if !codec::has_signature(&header) {
        return Ok(Copy::Absent);
    }
    let fields = match codec::decode_fields(&header, lba) {
        Ok(fields) => fields,
        Err(why) => return Ok(Copy::Bad(why)),
    };
    let len = u64::from(fields.entry_count) * u64::from(fields.entry_bytes);
    let fits = fields.array_lba >= 2
        && fields
            .array_lba
            .checked_add(len.div_ceil(sector))
            .is_some_and(|end| end <= last + 1);
    let shape = fields.entry_bytes >= 128 && fields.entry_bytes.is_multiple_of(8);
    if !fits || !shape || len == 0 || len > MOST_ENTRY_BYTES {
        return Ok(Copy::Bad(format!(
            "its entries make no sense ({} of {} bytes at sector {})",
            fields.entry_count, fields.entry_bytes, fields.array_lba
        )));
    }
    let whole = len.div_ceil(sector) * sector;
    let mut entries = read(dev, fields.array_lba * sector, whole)?;
    entries.truncate(len as usize);
    if crc32fast::hash(&entries) != fields.array_crc {
        return Ok(Copy::Bad("the checksum of its entries is wrong".to_owned()));
    }
    Ok(Copy::Good(Table {
        lba,
        fields,
        entries,
    }))
}

fn read<D: Medium + ?Sized>(dev: &D, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    dev.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

impl Table {
    fn used(&self) -> impl Iterator<Item = &[u8]> {
        self.entries
            .chunks_exact(self.fields.entry_bytes as usize)
            .filter(|entry| entry[..16] != [0; 16])
    }

    fn types(&self) -> impl Iterator<Item = Uuid> {
        self.used()
            .filter_map(|entry| Uuid::from_slice_le(&entry[..16]).ok())
    }

    /// Returns the type of the partition that is first on the drive.
    fn first_type(&self) -> Option<Uuid> {
        self.used()
            .min_by_key(|entry| codec::le64(entry, 32))
            .and_then(|entry| Uuid::from_slice_le(&entry[..16]).ok())
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
