//! What lies on a drive, counted from its partition table by sfdisk: none of the agent's code is in this.

use std::{os::unix::fs::FileExt, path::Path};

use drivebay_hwtests::{MIB, tools};

/// Volumes begin behind the label, which has the first bytes from 1 MiB on.
const LABEL_START: u64 = MIB;
/// Bytes of the label's partition.
const LABEL_LEN: u64 = 4 * MIB;
/// Sectors in front of the first and behind the last usable one of a table with 128 entries: header, entries, and in front the
/// protective MBR.
const BACK: u64 = 33;
const SECTOR: u64 = 512;

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Its own GUID, in lower case: a volume's uuid, or what an erased one was renamed to.
    pub(crate) uuid: String,
}

/// A drive as its table has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    /// It has a partition table of ours; else it is blank.
    pub(crate) claimed: bool,
    /// Everything but the label.
    pub(crate) parts: Vec<Part>,
    /// Free runs: start, bytes.
    pub(crate) free: Vec<(u64, u64)>,
}

impl Disk {
    /// Reads a drive of so many bytes.
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
        // A claim that was cut off before its first GPT, although sfdisk may find the second one: the next claim begins again.
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

    /// All that is free, bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.iter().map(|run| run.1).sum()
    }

    /// The largest volume that fits, bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.free.iter().map(|run| run.1).max().unwrap_or(0)
    }

    /// How long a partition could become where it lies, bytes.
    pub(crate) fn growth(&self, part: &Part) -> u64 {
        let end = part.start + part.len;
        let behind = self.free.iter().find(|run| run.0 == end);
        part.len + behind.map_or(0, |run| run.1)
    }
}

/// Whether so many bytes from this one on are zeros.
fn is_zero(device: &Path, at: u64, len: u64) -> Result<bool, String> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    std::fs::File::open(device)
        .and_then(|node| node.read_exact_at(&mut bytes, at))
        .map_err(|error| format!("{}: {error}", device.display()))?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}
