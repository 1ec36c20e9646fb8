//! What layouts know of encrypted volumes: how a header is destroyed. Their keys and contents are
//! known to the crate of filesystems only.

use std::io;

use super::{
    device::Device,
    error::{LayoutError, io_error},
};
use drivebay_model::{DriveId, Extent, MIB, Placed};

/// Returns the ranges of the drive with the header of an encrypted volume in these runs, with all its
/// key slots; none if it is not encrypted. Pure.
pub(super) fn header(runs: &[Extent], placed: &Placed) -> Vec<Extent> {
    let mut left = placed.record.header_bytes();
    let mut header = Vec::new();
    for run in runs {
        let len = run.len.min(left);
        if len == 0 {
            break;
        }
        header.push(Extent { len, ..*run });
        left -= len;
    }
    header
}

/// Overwrites a header with zeros, durably, and reads them back past the page cache.
///
/// # Errors
/// `NotErased`: other bytes were read back. `Io`: the drive failed. The space is erased later in
/// either case, and is not free before it reads as zeros.
pub(super) fn destroy<D: Device + ?Sized>(
    dev: &D,
    id: &DriveId,
    header: &[Extent],
) -> Result<(), LayoutError> {
    let failed =
        |source: io::Error| io_error(id, "destroying the header of an encrypted volume")(source);
    for run in header {
        dev.write_zeros(*run).map_err(failed)?;
    }
    if header.is_empty() {
        return Ok(());
    }
    dev.flush().map_err(failed)?;
    let mut bytes = vec![0; MIB as usize];
    for run in header {
        let mut at = run.start;
        while at < run.end() {
            let len = MIB.min(run.end() - at);
            let piece = bytes.get_mut(..len as usize).unwrap_or_default();
            dev.read_at(at, piece).map_err(failed)?;
            if let Some(nonzero) = piece.iter().position(|byte| *byte != 0) {
                return Err(LayoutError::NotErased {
                    drive: id.to_string(),
                    offset: at + nonzero as u64,
                });
            }
            at += len;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{device::Medium, fake::FakeDrive};
    use drivebay_model::{Encryption, RecordState, samples};

    #[test]
    fn a_header_lies_in_the_first_runs_and_nothing_else_is_destroyed() {
        let mut placed = samples::placed(1, RecordState::New);
        let run = |start, len| Extent {
            start: start * MIB,
            len: len * MIB,
        };
        let runs = [run(4, 8), run(40, 4), run(20, 8)];
        assert_eq!(header(&runs, &placed), []);
        let encryption = Encryption {
            header: Uuid::from_u128(7),
        };
        encryption.keep(&mut placed.record.parameters);
        let all = header(&runs, &placed);
        assert_eq!(all, [run(4, 8), run(40, 4), run(20, 4)]);

        let drive = FakeDrive::new(64 * MIB, 512);
        for at in [4, 11, 12, 40, 43, 44, 20, 23, 24] {
            drive.write_at(at * MIB, &[7; 4096]).unwrap();
        }
        destroy(&drive, &DriveId("sda".to_owned()), &all).unwrap();
        let at = |at: u64| {
            let mut byte = [0; 512];
            drive.read_at(at * MIB, &mut byte).unwrap();
            byte[0]
        };
        assert_eq!([4, 11, 40, 43, 20, 23].map(at), [0; 6]);
        assert_eq!([12, 44, 24].map(at), [7; 3]);
    }
}
