//! Space about to be given out, and space that was erased: what must be true of its bytes.

use std::io;

use super::{
    device::{self, Device},
    error::{CarveError, io_error},
    open,
    record::FreeSpace,
};
use crate::model::{DriveId, Extent, MIB};

/// Makes sure that space about to be given out holds nothing of a former tenant.
///
/// A drive that was claimed blank and has erased everything it freed is all zeros, and that is
/// checked: the first and last MiB and 64 samples. A byte that is not zero means that an
/// assumption of ours is wrong, so the space is not given out. Otherwise (`FreeSpace::Unknown`)
/// what may be there is the operator's choice, by `claim = "signature-free"` or
/// `erase = "signatures"`; then both ends are zeroed, where signatures live, so that nothing
/// old is mistaken for a filesystem of the new volume.
pub(super) fn ready(
    dev: &dyn Device,
    id: &DriveId,
    free_space: FreeSpace,
    runs: &[Extent],
) -> Result<(), CarveError> {
    open::nobody_zeroes(dev, id, runs)?;
    match free_space {
        FreeSpace::Zeros => is_zeros(dev, id, runs, "checking that free space is zeros"),
        FreeSpace::Unknown => {
            zero_ends(dev, runs).map_err(io_error(id, "zeroing both ends of free space"))
        }
    }
}

/// Fails where a byte is found that is not zero: all of both ends and 64 samples are looked at.
pub(super) fn is_zeros(
    dev: &dyn Device,
    id: &DriveId,
    runs: &[Extent],
    what: &str,
) -> Result<(), CarveError> {
    for run in runs {
        let found =
            device::sample_nonzero(dev, *run, MIB.min(run.len)).map_err(io_error(id, what))?;
        if let Some(offset) = found {
            return Err(CarveError::NotErased {
                drive: id.to_string(),
                offset,
            });
        }
    }
    Ok(())
}

/// Makes the first and last MiB of each run zeros, durably.
pub(super) fn zero_ends(dev: &dyn Device, runs: &[Extent]) -> io::Result<()> {
    for run in runs {
        let edge = MIB.min(run.len);
        for start in [run.start, run.end() - edge] {
            dev.zero(Extent { start, len: edge })?;
        }
    }
    dev.flush()
}
