//! Both copies of a GPT, read and compared. Reads only; what is damaged is named, never repaired.

use uuid::Uuid;

use super::probe::GptState;
use crate::model::LABEL_TYPE;

const MAGIC: &[u8; 8] = b"EFI PART";
/// UEFI: the header's own length is at least this.
const HEADER_LEN: usize = 92;
/// A table with more bytes of entries than this is taken for damaged; the usual one has 16 KiB.
const MOST_ENTRY_BYTES: u64 = 1 << 20;

/// Reads `len` bytes at a byte offset; the error is the caller's.
pub(super) type Reader<'a, E> = &'a mut dyn FnMut(u64, usize) -> Result<Vec<u8>, E>;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GptScan {
    pub(super) state: GptState,
    /// A valid copy begins with our label partition.
    pub(super) ours: bool,
    /// Type GUIDs in the valid copies, sorted.
    pub(super) types: Vec<String>,
}

/// One copy.
#[derive(Debug)]
enum Copy {
    Absent,
    Bad(String),
    Good(Table),
}

#[derive(Debug)]
struct Table {
    my_lba: u64,
    other_lba: u64,
    /// Everything that both copies must agree on: usable range, disk GUID, entry size and count.
    shared: Vec<u8>,
    entries: Vec<u8>,
    entry_len: usize,
}

/// Looks at both ends of a disk.
pub(super) fn scan<E>(size: u64, sector: u32, read: Reader<'_, E>) -> Result<GptScan, E> {
    let sector = u64::from(sector.max(512));
    let last = (size / sector).saturating_sub(1);
    if last < 3 {
        return Ok(GptScan {
            state: GptState::None,
            ours: false,
            types: Vec::new(),
        });
    }
    let mbr = read(0, sector as usize)?;
    let primary = copy(1, last, sector, read)?;
    let mut backup = copy(last, last, sector, read)?;
    let mut problems = Vec::new();
    if let (Copy::Good(table), Copy::Absent) = (&primary, &backup)
        && table.other_lba != last
        && table.other_lba < last
    {
        backup = copy(table.other_lba, last, sector, read)?;
        problems.push("its backup is not at the end of the drive (the drive grew, or an image was copied onto it)".to_owned());
    }
    for other in [512_u64, 4096].into_iter().filter(|other| *other != sector) {
        for offset in [other, (size / other).saturating_sub(1) * other] {
            // Read whole sectors of the device around it.
            let start = offset / sector * sector;
            let bytes = read(start, sector.max(512) as usize)?;
            if bytes
                .get((offset - start) as usize..)
                .is_some_and(|tail| tail.starts_with(MAGIC))
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
            if one.shared != two.shared || one.entries != two.entries {
                problems.push("its two copies differ".to_owned());
            } else if one.my_lba != two.other_lba || two.my_lba != one.other_lba {
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

/// Whether there is a protective entry, and whether others stand beside it.
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

fn copy<E>(lba: u64, last: u64, sector: u64, read: Reader<'_, E>) -> Result<Copy, E> {
    let header = read(lba * sector, sector as usize)?;
    if !header.starts_with(MAGIC) {
        return Ok(Copy::Absent);
    }
    let head = match Header::parse(&header, lba) {
        Ok(head) => head,
        Err(why) => return Ok(Copy::Bad(why)),
    };
    let len = u64::from(head.entry_count) * u64::from(head.entry_len);
    let fits = head.entries_lba >= 2
        && head
            .entries_lba
            .checked_add(len.div_ceil(sector))
            .is_some_and(|end| end <= last + 1);
    let shape = head.entry_len >= 128 && head.entry_len.is_multiple_of(8);
    if !fits || !shape || len == 0 || len > MOST_ENTRY_BYTES {
        return Ok(Copy::Bad(format!(
            "its entries make no sense ({} of {} bytes at sector {})",
            head.entry_count, head.entry_len, head.entries_lba
        )));
    }
    let mut entries = read(
        head.entries_lba * sector,
        (len.div_ceil(sector) * sector) as usize,
    )?;
    entries.truncate(len as usize);
    if crc32fast::hash(&entries) != head.entries_crc {
        return Ok(Copy::Bad("the checksum of its entries is wrong".to_owned()));
    }
    Ok(Copy::Good(Table {
        my_lba: lba,
        other_lba: head.other_lba,
        shared: head.shared,
        entries,
        entry_len: head.entry_len as usize,
    }))
}

struct Header {
    other_lba: u64,
    entries_lba: u64,
    entry_count: u32,
    entry_len: u32,
    entries_crc: u32,
    shared: Vec<u8>,
}

impl Header {
    fn parse(sector: &[u8], lba: u64) -> Result<Self, String> {
        let len = word(sector, 12) as usize;
        let Some(bytes) = sector.get(..len).filter(|_| len >= HEADER_LEN) else {
            return Err(format!("its header says it has {len} bytes"));
        };
        let mut zeroed = bytes.to_vec();
        zeroed[16..20].fill(0);
        if crc32fast::hash(&zeroed) != word(bytes, 16) {
            return Err("the checksum of its header is wrong".to_owned());
        }
        if long(bytes, 24) != lba {
            return Err(format!(
                "its header says it is at sector {}, and it is at {lba}",
                long(bytes, 24)
            ));
        }
        Ok(Self {
            other_lba: long(bytes, 32),
            entries_lba: long(bytes, 72),
            entry_count: word(bytes, 80),
            entry_len: word(bytes, 84),
            entries_crc: word(bytes, 88),
            // First and last usable sector, disk GUID; entry count, size and checksum.
            shared: [&bytes[40..72], &bytes[80..92]].concat(),
        })
    }
}

impl Table {
    fn used(&self) -> impl Iterator<Item = &[u8]> {
        self.entries
            .chunks_exact(self.entry_len)
            .filter(|entry| entry[..16] != [0; 16])
    }

    fn types(&self) -> impl Iterator<Item = Uuid> {
        self.used()
            .filter_map(|entry| Uuid::from_slice_le(&entry[..16]).ok())
    }

    /// Type of the partition that lies first on the drive.
    fn first_type(&self) -> Option<Uuid> {
        self.used()
            .min_by_key(|entry| long(entry, 32))
            .and_then(|entry| Uuid::from_slice_le(&entry[..16]).ok())
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|part| part.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|part| part.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
#[path = "gptscan_tests.rs"]
mod tests;
