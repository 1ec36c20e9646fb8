//! Allocation of a drive, read from its partition table with sfdisk, independently of the agent's code.

use std::{os::unix::fs::FileExt, path::Path};

use drivebay_hwtests::{MIB, tools};

/// Offset of the label's partition, bytes. Volumes begin after it.
const LABEL_START: u64 = MIB;
/// Length of the label's partition, bytes.
const LABEL_LEN: u64 = 4 * MIB;
/// Sectors after the last usable one of a table with 128 entries: header and entries. Before the first usable one is the protective MBR,
/// too.
const BACK: u64 = 33;
const SECTOR: u64 = 512;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Partition GUID in lower case: a volume's uuid, or the GUID that an erased volume's partition was given.
    pub(crate) uuid: String,
}

/// Partition table of one drive.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    /// True if the drive has a partition table of Drivebay; else it is blank.
    pub(crate) claimed: bool,
    /// All partitions except the label's.
    pub(crate) parts: Vec<Part>,
    /// Free runs: start and length, bytes.
    pub(crate) free: Vec<(u64, u64)>,
}

impl Disk {
    /// Reads the table of a drive of `bytes` bytes.
    pub(crate) fn read(device: &Path, bytes: u64) -> Result<Self, String> {
        let node = device.display().to_string();
        let text = match tools::run("sfdisk", &["-J", &node]) {
            Ok(text) => text,
            // A blank drive has no table.
            Err(_) if is_zero(device, 0, 65536)? => return Ok(Self::blank(bytes)),
            Err(error) => return Err(error.to_string()),
        };
        let json: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| format!("{node}: {error}"))?;
        let table = &json["partitiontable"];
        // A claim that was interrupted before it wrote the primary GPT, although sfdisk may find the backup; the next claim starts over.
        if is_zero(device, SECTOR, SECTOR)? {
            return Ok(Self::blank(bytes));
        }
        Self::of_table(table, &node)
    }

    fn blank(bytes: u64) -> Self {
        let from = LABEL_START + LABEL_LEN;
        let to = (bytes / SECTOR - BACK) * SECTOR / MIB * MIB;
        Self {
            claimed: false,
            parts: Vec::new(),
            free: vec![(from, to - from)],
        }
    }

    fn of_table(table: &serde_json::Value, node: &str) -> Result<Self, String> {
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or_default();
        let mut parts: Vec<Part> = table["partitions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|part| {
                let name = part["node"].as_str().unwrap_or_default();
                Part {
                    number: name
                        .rsplit('p')
                        .next()
                        .and_then(|digits| digits.parse().ok())
                        .unwrap_or_default(),
                    start: number(&part["start"]) * SECTOR,
                    len: number(&part["size"]) * SECTOR,
                    uuid: part["uuid"].as_str().unwrap_or_default().to_lowercase(),
                }
            })
            .collect();
        parts.sort_by_key(|part| part.start);
        if parts
            .first()
            .is_none_or(|label| (label.start, label.len) != (LABEL_START, LABEL_LEN))
        {
            return Err(format!("{node} does not begin with a label: {parts:?}"));
        }
        let mut at = LABEL_START + LABEL_LEN;
        let end = (number(&table["lastlba"]) + 1) * SECTOR / MIB * MIB;
        let parts = parts.split_off(1);
        let mut free = Vec::new();
        for part in &parts {
            if part.start < at
                || part.start + part.len > end
                || part.start % MIB != 0
                || part.len % MIB != 0
            {
                return Err(format!(
                    "{node}: {part:?} overlaps another one, or lies askew: {parts:?}"
                ));
            }
            if part.start > at {
                free.push((at, part.start - at));
            }
            at = part.start + part.len;
        }
        if end > at {
            free.push((at, end - at));
        }
        Ok(Self {
            claimed: true,
            parts,
            free,
        })
    }

    /// Returns the total free space, bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.iter().map(|run| run.1).sum()
    }

    /// Returns the length of the longest free run, bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.free.iter().map(|run| run.1).max().unwrap_or(0)
    }

    /// Returns the length that a partition could be extended to in place, bytes.
    pub(crate) fn growth(&self, part: &Part) -> u64 {
        let end = part.start + part.len;
        let behind = self.free.iter().find(|run| run.0 == end);
        part.len + behind.map_or(0, |run| run.1)
    }
}

/// True if the bytes from `at` to `at + len` are zeros.
fn is_zero(device: &Path, at: u64, len: u64) -> Result<bool, String> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    std::fs::File::open(device)
        .and_then(|node| node.read_exact_at(&mut bytes, at))
        .map_err(|error| format!("{}: {error}", device.display()))?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}
