//! A drive without any table: not ours, or one whose claim was interrupted before it, or one that lost it.

use std::io;

use uuid::Uuid;

use crate::carve::{
    claimable::EDGE,
    device::{self, Device},
    error::{CarveError, damaged, io_error, not_ours},
    gpt::{self, Table},
    record,
};
use crate::model::{DriveId, Extent};

/// A drive without any table: not ours, unless our label is still there.
pub(super) fn without_table<D: Device>(dev: &D, id: &DriveId) -> Result<CarveError, CarveError> {
    let traces = record::has_traces(dev).map_err(io_error(id, "looking for a label"))?;
    Ok(if traces {
        let reason = "both copies of the partition table are gone, and our label is still there";
        damaged(id, reason.into())
    } else if before_table(dev)
        .map_err(io_error(id, "looking for a claim"))?
        .is_some()
    {
        CarveError::Unlabelled {
            drive: id.to_string(),
        }
    } else {
        not_ours(id)
    })
}

/// Tells a claim that stopped before its first header from an empty drive and from everything
/// else: our own protective MBR, at most the entry of a label partition, and zeros all around.
pub(super) fn before_table<D: Device>(dev: &D) -> io::Result<Option<Table>> {
    let nil = Uuid::nil();
    let Some(table) = Table::fresh(nil, nil, dev.size(), dev.sector()) else {
        return Ok(None);
    };
    let sector = dev.sector();
    let mut first = vec![0; usize::try_from(sector).unwrap_or(512)];
    dev.read_at(0, &mut first)?;
    if first != gpt::protective_mbr(&table) {
        return Ok(None);
    }
    let array = array_start(&table);
    let mut raw = vec![0; gpt::ARRAY_BYTES as usize];
    dev.read_at(array, &mut raw)?;
    let label = raw.starts_with(&crate::model::LABEL_TYPE.to_bytes_le());
    let rest = raw.get(gpt::ENTRY_BYTES..).unwrap_or_default();
    if raw.iter().any(|&byte| byte != 0) && !(label && rest.iter().all(|&byte| byte == 0)) {
        return Ok(None);
    }
    let end = array + gpt::ARRAY_BYTES;
    for run in [
        Extent {
            start: sector,
            len: EDGE.min(array) - sector,
        },
        Extent {
            start: array.saturating_sub(EDGE).max(sector),
            len: array - array.saturating_sub(EDGE).max(sector),
        },
        Extent {
            start: end,
            len: dev.size() - end,
        },
    ] {
        if device::first_nonzero(dev, run)?.is_some() {
            return Ok(None);
        }
    }
    Ok(Some(table))
}

/// Where the backup array lies.
pub(super) fn array_start(table: &Table) -> u64 {
    table.last_lba * table.sector - gpt::ARRAY_BYTES
}
