//! Gives a copied filesystem a UUID of its own before its first mount. `stage::format_guard` decides whether it needs one.

use super::{
    backend::probe_flushed,
    jobs::FsError,
    kind::{self, UuidChange},
    stage,
};
use drivebay_model::Signatures;
use drivebay_worker::Context;

/// Changes the UUID, flushes the device, and probes it again. Only the probe counts: xfs_db exits with 0 even if it refused.
/// Can be repeated after an interruption at any point. Errs with [FsError::NeedsRepair] if a repair is needed and not
/// allowed.
pub fn give_uuid(change: &UuidChange<'_>, context: &mut Context) -> Result<(), FsError> {
    let partition = change.partition;
    partition.must_be_free()?;
    let output = kind::of(change.fs_type).change_uuid(change, context)?;
    match probe_flushed(change.backend, partition, change.volume, context)? {
        Signatures::Found(signatures)
            if stage::is_exactly(&signatures, change.fs_type, change.to) =>
        {
            tracing::info!(
                volume = %change.volume,
                device = partition.device,
                from = %change.from,
                to = %change.to,
                "UUID of the copied filesystem changed"
            );
            Ok(())
        }
        other => Err(change.failed(&format!("{output}; then {other:?} was found"))),
    }
}
