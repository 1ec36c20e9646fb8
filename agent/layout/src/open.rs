//! Opens real drives, verifies their identity, and locks them against other programs; used by both
//! layouts.

use std::time::Duration;

use super::{
    device::Device,
    error::{LayoutError, io_error},
};
use drivebay_model::{DriveId, DriveRef, Extent};
use drivebay_sys::{
    blockdev::{BlockDev, BlockDevError},
    drive::OpenError,
};

/// Time after which waiting for the drive's flock fails. Well-behaved holders (udevd probing, a
/// table being written) need well under a second.
pub(super) const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Opens a drive for changes: identity verified, with its exclusive flock. Errs with `Locked` after
/// `LOCK_LIMIT`.
pub(super) fn locked(drive: &DriveRef) -> Result<BlockDev, LayoutError> {
    locked_within(drive, LOCK_LIMIT)
}

/// Opens a drive like `locked`, but waits up to `limit` for the flock.
pub(super) fn locked_within(drive: &DriveRef, limit: Duration) -> Result<BlockDev, LayoutError> {
    let mut dev = BlockDev::open(drive).map_err(|error| open_error(drive, error))?;
    dev.lock(limit).map_err(|error| lock_error(drive, error))?;
    Ok(dev)
}

/// Opens a drive for reading, with a shared flock: without it a concurrent change by another worker
/// would look like damage.
pub(super) fn shared(drive: &DriveRef) -> Result<BlockDev, LayoutError> {
    let mut dev = BlockDev::open(drive).map_err(|error| open_error(drive, error))?;
    dev.lock_shared(LOCK_LIMIT)
        .map_err(|error| lock_error(drive, error))?;
    Ok(dev)
}

/// Opens a drive with O_EXCL and its flock. Errs if another process may still be zeroing a part of
/// it.
pub(super) fn exclusive(drive: &DriveRef) -> Result<BlockDev, LayoutError> {
    let mut dev = BlockDev::open_exclusive(drive).map_err(|error| open_error(drive, error))?;
    lock(&mut dev)?;
    let whole = Extent {
        start: 0,
        len: drive.size_bytes,
    };
    nobody_zeroes(&dev, &drive.id, &[whole])?;
    Ok(dev)
}

/// Fails while another process has reserved some of these bytes for zeroing and has not ended:
/// their contents are undefined until then.
pub(super) fn nobody_zeroes(
    dev: &dyn Device,
    id: &DriveId,
    runs: &[Extent],
) -> Result<(), LayoutError> {
    for run in runs {
        let held = dev.held(*run);
        if let Some(held) = held.map_err(io_error(id, "asking who zeroes bytes of it"))? {
            return Err(LayoutError::StillZeroed {
                drive: id.to_string(),
                start: held.start,
                end: held.end(),
            });
        }
    }
    Ok(())
}

/// Releases the drive's flock for zeroing these runs; they are reserved instead for as long as
/// `dev` exists. Errs if another process has reserved some of them.
pub(super) fn unlock_to_zero(dev: &mut BlockDev, runs: &[Extent]) -> Result<(), LayoutError> {
    let id = dev.drive().id.clone();
    nobody_zeroes(dev, &id, runs)?;
    dev.unlock_holding(runs.iter().map(|run| (run.start, run.len)))
        .map_err(io_error(&id, "holding the bytes to be zeroed"))
}

/// Takes the drive's flock again.
pub(super) fn lock(dev: &mut BlockDev) -> Result<(), LayoutError> {
    dev.lock(LOCK_LIMIT)
        .map_err(|error| lock_error(&dev.drive().clone(), error))
}

fn open_error(drive: &DriveRef, error: OpenError) -> LayoutError {
    let id = drive.id.to_string();
    let another = |device| LayoutError::NotThisDrive {
        drive: drive.id.to_string(),
        kernel_name: drive.kernel_name.clone(),
        seen: device,
    };
    match error {
        OpenError::NotThisDrive { seen: device, .. } => another(device),
        OpenError::Gone { .. } => another("no device".to_owned()),
        OpenError::Busy(node) => LayoutError::Busy {
            drive: id,
            reason: format!(
                "{node} or a partition of it is mounted, or held by another device or program"
            ),
        },
        OpenError::Io { node, source } => LayoutError::Io {
            drive: id,
            what: format!("opening {node}"),
            source: source.into(),
        },
    }
}

fn lock_error(drive: &DriveRef, error: BlockDevError) -> LayoutError {
    match error {
        BlockDevError::Open(error) => open_error(drive, error),
        BlockDevError::Locked { waited_ms, .. } => LayoutError::Locked {
            drive: drive.id.to_string(),
            waited_ms,
        },
    }
}
