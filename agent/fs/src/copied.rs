//! A copied filesystem gets a UUID of its own before it is mounted for the first time. Whether it does is `stage::format_guard`'s
//! decision.

use super::{
    backend::probe_flushed,
    jobs::FsError,
    kind::{self, UuidChange},
    stage,
};
use drivebay_model::Signatures;
use drivebay_worker::Context;

/// Gives it, flushes it to the drive, and probes it again. Only that counts: xfs_db ends with 0 also when it has refused. Can be
/// repeated after it was cut off at any point. Fails with [FsError::NeedsRepair] if that takes a repair and none may be made.
pub fn give_uuid(change: &UuidChange<'_>, context: &mut Context) -> Result<(), FsError> {
    let partition = change.partition;
    partition.must_be_free()?;
    let said = kind::of(change.fs_type).change_uuid(change, context)?;
    match probe_flushed(change.backend, partition, change.volume, context)? {
        Signatures::Found(found) if stage::is_exactly(&found, change.fs_type, change.to) => {
            tracing::info!(
                volume = %change.volume,
                device = partition.device,
                from = %change.from,
                to = %change.to,
                "UUID of the copied filesystem changed"
            );
            Ok(())
        }
        other => Err(change.failed(&format!("{said}; then {other:?} was found"))),
    }
}
