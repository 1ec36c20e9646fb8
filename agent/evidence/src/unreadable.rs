//! Unreadable ranges of a drive: their list, their owners, and the finding and conditions that follow. Pure.
//!
//! A range is unreadable from a read past the cache that failed on it, whatever reported it first, until such a read
//! succeeds.

use std::collections::BTreeSet;

use drivebay_model::{
    Drive, Finding,
    condition::{Condition, Reason},
    finding::Code,
    units::{count, human_size},
    unreadable::{Holds, UnreadableRange},
};

mod owners;
mod ranges;

use owners::NOT_LOOKED_UP;

pub use owners::{Located, describe, lost, to_locate};
pub use ranges::{MOST_RANGES, UnreadableRanges};

/// Returns a finding if the drive has unreadable ranges.
pub fn finding(ranges: &UnreadableRanges) -> Option<Finding> {
    (!ranges.is_empty()).then(|| {
        Finding::new(
            Code::ReadFailed,
            "a place on it does not read; move the data off, and replace the drive",
        )
    })
}

/// Returns the least number of files that the ranges hold. Named files are counted once. Files without a name may be the
/// same in several ranges, so that only the largest number of one range is added.
pub fn affected_files(ranges: &[UnreadableRange]) -> usize {
    let named: BTreeSet<&String> = ranges
        .iter()
        .flat_map(|range| range.holds.files().0)
        .collect();
    let more = ranges.iter().map(|range| range.holds.files().1).max();
    named.len() + more.unwrap_or(0) as usize
}

/// Returns the condition of a volume with these unreadable ranges, all of which must be its own; None if there is none.
pub fn condition(drive: &Drive, ranges: &[UnreadableRange]) -> Option<Condition> {
    let what = affected(ranges)?;
    Some(Condition::new(
        Reason::ReadFailed,
        format!(
            "sectors under this volume on drive {} do not read: {what}; `drivebay-agent volume show` on the node names them; save the data, and move it off the drive",
            drive.id
        ),
    ))
}

/// Returns the condition of a volume with these lost sectors; None if there is none.
pub fn lost_condition(ranges: &[UnreadableRange]) -> Option<Condition> {
    let what = affected(ranges)?;
    let bytes = ranges.iter().map(|range| range.extent.len).sum();
    Some(Condition::new(
        Reason::SectorsLost,
        format!(
            "{} of this volume could not be read on a drive that it has moved off, and read as errors until they are written: {what}; `drivebay-agent volume show` on the node names them; restore or delete what is affected",
            human_size(bytes)
        ),
    ))
}

/// Returns what is affected by these ranges; None if there is none.
fn affected(ranges: &[UnreadableRange]) -> Option<String> {
    if ranges.is_empty() {
        return None;
    }
    let any = |of: fn(&Holds) -> bool| ranges.iter().any(|range| of(&range.holds));
    let mut parts = Vec::new();
    match affected_files(ranges) {
        0 => {}
        1 => parts.push("1 file is affected".to_owned()),
        files => parts.push(format!("{} are affected", count(files, "file"))),
    }
    if any(|holds| matches!(holds, Holds::FilesystemMetadata)) {
        parts.push("filesystem metadata is affected".to_owned());
    }
    if any(|holds| matches!(holds, Holds::Unknown { why } if why == NOT_LOOKED_UP)) {
        parts.push("affected files are being looked up".to_owned());
    }
    if any(|holds| matches!(holds, Holds::Unknown { why } if why != NOT_LOOKED_UP)) {
        parts.push("which files are affected cannot be told of all of it".to_owned());
    }
    if any(|holds| matches!(holds, Holds::RawBlock)) {
        parts.push("what is stored there only the user of the raw volume knows".to_owned());
    }
    if parts.is_empty() {
        parts.push("no file is affected".to_owned());
    }
    Some(parts.join(", "))
}

#[cfg(test)]
mod tests;
