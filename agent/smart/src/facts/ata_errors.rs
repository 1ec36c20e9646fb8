//! Entries of an ATA error log for data that could not be read.

use super::{LoggedError, LoggedPlace, ata::MOST};
use crate::json::Node;

/// Bit of the error register after a read or a queued write: uncorrectable data (ACS-4, 6.3).
const UNCORRECTABLE: u64 = 1 << 6;
/// Bit of the error register after a read: address mark not found (ATA-3, 6.2.9). Some drives still use it.
const NO_ADDRESS_MARK: u64 = 1;
/// WRITE FPDMA QUEUED. smartctl calls bit 6 WP after any write.
const QUEUED_WRITE: u64 = 0x61;
/// smartctl's words for an entry whose data was not read, and for one that means this only after a queued write.
const UNREADABLE_WORDS: [&str; 2] = ["UNC", "AMNF"];
const WRITE_PROTECTED: &str = "WP";
/// Commands that read sectors: READ SECTORS, READ DMA, READ MULTIPLE, READ FPDMA QUEUED, READ VERIFY, and their EXT forms.
const READS: [u64; 13] = [
    0x20, 0x21, 0x24, 0x25, 0x26, 0x29, 0x2a, 0x2b, 0x40, 0x42, 0x60, 0xc4, 0xc8,
];

/// Longest description of an error, characters; smartctl writes less. A description that is cut off would have another address.
const DESCRIPTION: usize = 256;
/// Address in the summary error log, which has 28 bits, of a sector that does not fit.
const BEYOND_SUMMARY: u64 = 0x0fff_ffff;

/// Returns the entries of the error log whose data was not read, and their sectors; also those of queued writes. Bit 6 has another meaning
/// after other commands.
pub(super) fn error_log(root: Node<'_>) -> (Option<Vec<LoggedError>>, Vec<LoggedPlace>) {
    let log = root.get("ata_smart_error_log");
    let kinds = ["extended", "summary"].map(|kind| log.get(kind));
    let entries = kinds.into_iter().find(|kind| kind.get("table").exists());
    let Some(log) = entries else {
        // A log without entries is not written as a table.
        let empty = kinds.iter().any(|kind| kind.get("count").u64() == Some(0));
        return (empty.then(Vec::new), Vec::new());
    };
    let (mut errors, mut places) = (Vec::new(), Vec::new());
    for entry in log.get("table").items().take(MOST) {
        let description = entry.get("error_description").text(DESCRIPTION);
        let command = entry
            .get("previous_commands")
            .items()
            .next()
            .and_then(|command| command.path(&["registers", "command"]).u64());
        let error = entry.path(&["completion_registers", "error"]).u64();
        if is_uncorrectable(&description, error, command) {
            let number = entry.get("error_number").u64().unwrap_or(0);
            errors.push(LoggedError {
                number,
                hours: entry.get("lifetime_hours").u64(),
            });
            let lba = address(&description);
            places.extend(lba.map(|lba| LoggedPlace { entry: number, lba }));
        }
    }
    (
        Some(LoggedError::newest(errors)),
        LoggedPlace::newest(places),
    )
}

/// True if the data could not be read, by the words of smartctl's description, else by the registers.
fn is_uncorrectable(description: &str, error: Option<u64>, command: Option<u64>) -> bool {
    let is_read = command.is_none_or(|command| READS.contains(&command));
    let is_queued_write = command.is_none_or(|command| command == QUEUED_WRITE);
    if description.is_empty() {
        let has = |bit: u64| error.is_some_and(|error| error & bit != 0);
        return has(UNCORRECTABLE) && (is_read || is_queued_write)
            || has(NO_ADDRESS_MARK) && is_read;
    }
    description
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| UNREADABLE_WORDS.contains(&word) || word == WRITE_PROTECTED && is_queued_write)
}

/// Returns the sector in smartctl's description of an error. The registers are not used: their `lba` lacks four bits of a short command,
/// which are in `device`.
fn address(description: &str) -> Option<u64> {
    let (_, rest) = description.split_once("at LBA = 0x")?;
    let digits = rest.split(' ').next()?;
    let lba = u64::from_str_radix(digits, 16).ok()?;
    (lba != BEYOND_SUMMARY).then_some(lba)
}
