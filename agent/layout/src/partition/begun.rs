//! A drive without a table: it is not Drivebay's, its claim was interrupted before the table, or it
//! lost the table.

use std::io;

use uuid::Uuid;

use crate::{
    claimable::EDGE,
    device::{self, Device},
    error::{LayoutError, damaged, io_error, not_ours, other_sector},
    gpt::{self, Table},
    record,
};
use drivebay_model::{DriveId, Extent};

/// Returns the error for a drive without a table: not Drivebay's, unless it still has a label, or a
/// table for sectors of another size, or a claim was interrupted.
pub(super) fn without_table<D: Device>(dev: &D, id: &DriveId) -> Result<LayoutError, LayoutError> {
    let written = gpt::written_sector(dev).map_err(io_error(id, "looking for a table"))?;
    if let Some(written) = written {
        return Ok(other_sector(id, written, dev.sector()));
    }
    let traces = record::has_traces(dev).map_err(io_error(id, "looking for a label"))?;
    Ok(if traces {
        let reason = "both copies of the partition table are gone, and our label is still there";
        damaged(id, reason.into())
    } else if before_table(dev)
        .map_err(io_error(id, "looking for a claim"))?
        .is_some()
    {
        LayoutError::Unlabelled {
            drive: id.to_string(),
        }
    } else {
        not_ours(id)
    })
}

/// Returns the first table of a claim that was interrupted before its first header; None for all
/// other drives. Such a drive has Drivebay's protective MBR, at most the entry of a label
/// partition, and zeros around them.
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
    let label = raw.starts_with(&drivebay_model::LABEL_TYPE.to_bytes_le());
    let rest = raw.get(gpt::ENTRY_BYTES..).unwrap_or_default();
    if raw.iter().any(|&byte| byte != 0) && !(label && rest.iter().all(|&byte| byte == 0)) {
        return Ok(None);
    }
    let end = array + gpt::ARRAY_BYTES;
    let [_, tail] = ends(dev.size()).map(|run| run.start.max(sector));
    for run in [
        Extent {
            start: sector,
            len: EDGE.min(array) - sector,
        },
        Extent {
            start: tail,
            len: array - tail,
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

/// Returns both ends of a drive, which are zeros when a claim begins.
pub(super) fn ends(size: u64) -> [Extent; 2] {
    let len = EDGE.min(size);
    [0, size - len].map(|start| Extent { start, len })
}

/// Returns the first byte of the backup array.
pub(super) fn array_start(table: &Table) -> u64 {
    table.last_lba * table.sector - gpt::ARRAY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::Medium,
        fake::FakeDrive,
        marks::{self, Mark},
        partition::{
            Session,
            tests::{SIZE, furnished, id},
        },
    };
    use drivebay_model::MIB;

    /// Returns a drive with the same bytes and another sector size.
    fn attached_with(drive: &FakeDrive, sector: u64) -> FakeDrive {
        let other = FakeDrive::new(SIZE, sector);
        let mut piece = vec![0; MIB as usize];
        for start in (0..SIZE).step_by(MIB as usize) {
            drive.read_at(start, &mut piece).unwrap();
            other.write_at(start, &piece).unwrap();
        }
        other.settle();
        other
    }

    #[test]
    fn a_drive_with_other_sectors_than_its_table_was_written_with_is_not_damaged_and_stays_as_it_is()
     {
        for (written, now) in [(512, 4096), (4096, 512)] {
            let before = furnished(written);
            let drive = attached_with(&before, now);
            assert_eq!(marks::read(&drive).unwrap(), Mark::OtherSector(written));
            for repair in [false, true] {
                let error = Session::open(&drive, &id(), repair).unwrap_err();
                assert!(matches!(error, LayoutError::OtherSector { .. }), "{error}");
                let text = error.to_string();
                for word in [
                    format!("written with sectors of {written} bytes"),
                    format!("sectors of {now} bytes now"),
                ] {
                    assert!(text.contains(&word), "{text}");
                }
                assert!(!text.contains("wipe"), "{text}");
            }
            assert_eq!(drive.log_len(), 0, "written to");
            // One valid copy is sufficient: a dock may hide the last sectors.
            let end = SIZE - MIB;
            drive.write_at(end, &vec![0; MIB as usize]).unwrap();
            assert_eq!(marks::read(&drive).unwrap(), Mark::OtherSector(written));
            // Attached as before, the drive is unchanged.
            let back = attached_with(&attached_with(&before, now), written);
            assert!(Session::open(&back, &id(), false).is_ok());
        }
    }

    #[test]
    fn a_table_of_somebody_else_for_other_sectors_is_not_ours() {
        for sector in [512, 4096] {
            assert_eq!(
                gpt::written_sector(&FakeDrive::new(SIZE, sector)).unwrap(),
                None
            );
            assert_eq!(gpt::written_sector(&furnished(sector)).unwrap(), None);
        }
    }
}
