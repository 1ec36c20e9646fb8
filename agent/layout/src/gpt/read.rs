//! Reads both copies, checks each one alone, then compares them.

use std::io;

use super::{ARRAY_BYTES, Table, Which, codec};
use crate::device::Medium;

/// Result of reading both copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GptCopies {
    /// Neither copy has the signature of a table.
    None,
    /// Both copies valid and equal.
    Whole(Table),
    /// One copy is valid, the other is not, and can be restored from it.
    One {
        table: Table,
        /// The copy that is not valid.
        damaged: Which,
        /// A description of its defect.
        why: String,
    },
    /// Both are valid and differ: a change was interrupted, or another program changed one.
    Differ {
        /// The copy at the start of the drive.
        primary: Table,
        /// The copy at its end, which Drivebay writes first.
        backup: Table,
    },
    /// There is a table, but no valid copy of it.
    Damaged(String),
}

/// Result of reading one copy.
enum Copy {
    Absent,
    Bad(String),
    Unreadable(io::Error),
    Good(Table),
}

impl Copy {
    fn why(self) -> String {
        match self {
            Self::Absent => "absent".into(),
            Self::Bad(why) => why,
            Self::Unreadable(error) => format!("unreadable: {error}"),
            Self::Good(_) => "valid".into(),
        }
    }
}

/// Reads and compares both copies. A copy whose sectors cannot be read counts as damaged only if
/// the other one is valid; otherwise this errs, since a failed read proves nothing.
pub fn read<D: Medium + ?Sized>(dev: &D) -> io::Result<GptCopies> {
    let end = (dev.size() / dev.sector()).saturating_sub(1);
    let primary = read_copy(dev, Which::Primary, 1, end);
    let at = match &primary {
        Copy::Good(table) => table.last_lba,
        _ => end,
    };
    let backup = read_copy(dev, Which::Backup, at, end);
    Ok(match (primary, backup) {
        (Copy::Good(primary), Copy::Good(backup)) if primary == backup => GptCopies::Whole(primary),
        (Copy::Good(primary), Copy::Good(backup)) => GptCopies::Differ { primary, backup },
        (Copy::Good(table), bad) => GptCopies::One {
            table,
            damaged: Which::Backup,
            why: bad.why(),
        },
        (bad, Copy::Good(table)) => GptCopies::One {
            table,
            damaged: Which::Primary,
            why: bad.why(),
        },
        (Copy::Unreadable(error), _) | (_, Copy::Unreadable(error)) => return Err(error),
        (Copy::Absent, Copy::Absent) => GptCopies::None,
        (primary, backup) => GptCopies::Damaged(format!(
            "primary: {}; backup: {}",
            primary.why(),
            backup.why()
        )),
    })
}

/// Logical sector sizes of drives, in bytes.
const SECTORS: [u64; 2] = [512, 4096];

/// Returns the sector size that a table of Drivebay was written with, if it differs from the
/// drive's present one: a USB dock or another HBA may show a drive with other sectors. None: there
/// is no such table.
pub fn written_sector<D: Medium + ?Sized>(dev: &D) -> io::Result<Option<u64>> {
    for sector in SECTORS.into_iter().filter(|one| *one != dev.sector()) {
        let is_ours = match read(&Resectored { dev, sector })? {
            GptCopies::Whole(table) | GptCopies::One { table, .. } => table.is_ours(),
            GptCopies::Differ { primary, backup } => primary.is_ours() || backup.is_ours(),
            GptCopies::None | GptCopies::Damaged(_) => false,
        };
        if is_ours {
            return Ok(Some(sector));
        }
    }
    Ok(None)
}

/// A drive as if it had another sector size. Reads whole sectors of the drive.
struct Resectored<'a, D: ?Sized> {
    dev: &'a D,
    sector: u64,
}

impl<D: Medium + ?Sized> Medium for Resectored<'_, D> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let real = self.dev.sector();
        let start = offset / real * real;
        let skip = (offset - start) as usize;
        let end = (skip + buf.len()).next_multiple_of(usize::try_from(real).unwrap_or(4096));
        let mut bytes = vec![0; end];
        self.dev.read_at(start, &mut bytes)?;
        bytes.drain(..skip);
        bytes.truncate(buf.len());
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.dev.size() / self.dev.sector() * self.dev.sector()
    }

    fn sector(&self) -> u64 {
        self.sector
    }
}

fn read_copy<D: Medium + ?Sized>(dev: &D, which: Which, lba: u64, end: u64) -> Copy {
    let sector = dev.sector();
    let array = ARRAY_BYTES / sector;
    // Size of the smallest drive that holds both copies and the protective MBR.
    if end < 2 * array + 3 || lba < array + 2 && which == Which::Backup {
        return Copy::Absent;
    }
    let mut raw = vec![0; usize::try_from(sector).unwrap_or(512)];
    if let Err(error) = dev.read_at(lba * sector, &mut raw) {
        return Copy::Unreadable(error);
    }
    if !codec::has_signature(&raw) {
        return Copy::Absent;
    }
    let header = match codec::decode_header(&raw, which, lba, end, sector) {
        Ok(header) => header,
        Err(why) => return Copy::Bad(why),
    };
    let at = match which {
        Which::Primary => 2,
        Which::Backup => lba - array,
    };
    let mut raw = vec![0; ARRAY_BYTES as usize];
    if let Err(error) = dev.read_at(at * sector, &mut raw) {
        return Copy::Unreadable(error);
    }
    match codec::decode_array(&header, &raw, sector) {
        Ok(table) => Copy::Good(table),
        Err(why) => Copy::Bad(why),
    }
}

/// Contents of the first sector of a drive with a GPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSector {
    /// A protective MBR, without which kernels ignore the table.
    Protective,
    /// Every byte of the sector is zero.
    Blank,
    /// Remains of a protective MBR with some bad bits: no signature of an MBR, or one entry, at the
    /// start sector of a protective MBR's. Some superblocks have no such signature either; they
    /// extend into the next sector, so this is conclusive only if the primary copy is whole.
    Damaged,
    /// Other contents with the signature of an MBR.
    Foreign,
}

pub fn first_sector<D: Medium + ?Sized>(dev: &D) -> io::Result<FirstSector> {
    let mut raw = vec![0; usize::try_from(dev.sector()).unwrap_or(512)];
    dev.read_at(0, &mut raw)?;
    if raw.iter().all(|&byte| byte == 0) {
        return Ok(FirstSector::Blank);
    }
    let signed = codec::bytes::<2>(&raw, 510) == [0x55, 0xaa];
    let entries = (0..4).map(|i| codec::bytes::<16>(&raw, 446 + 16 * i));
    let used: Vec<[u8; 16]> = entries.filter(|entry| entry[4] != 0).collect();
    Ok(match used.as_slice() {
        _ if !signed => FirstSector::Damaged,
        used if used.iter().any(|entry| entry[4] == 0xee) => FirstSector::Protective,
        [entry] if entry[8..12] == 1u32.to_le_bytes() => FirstSector::Damaged,
        _ => FirstSector::Foreign,
    })
}
