//! What is readied before the first drive is touched, alike in the agent and in a command that works without one.

use std::time::Duration;

use crate::{
    config::Config,
    model::{Layout, cause::chain},
    sys::{lvm, offload::offload},
};

/// Callers that may wait for one drive's slot.
pub(crate) const SLOT_QUEUE: usize = 16;
/// One step older than this is Stuck (design, invariant 6).
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(30);
/// The system's drive is in trouble when the state directory takes longer to read.
pub(crate) const STATE_VERSIONS: Duration = Duration::from_secs(10);
/// Longest `lvm version` may take at the start.
const LVM_ANSWER: Duration = Duration::from_secs(10);

/// Readies what the `lvm` layout needs; why it cannot be used, if a class may want it. Nothing here is fatal: classes of the
/// other layout work without, and the inventory reports the classes that do not.
pub(crate) async fn prepare_lvm(config: &Config) -> Option<String> {
    let wanted = config
        .classes
        .iter()
        .any(|class| class.layout != Some(Layout::Partition));
    let dir = config.runtime_dir.clone();
    let found = offload("lvm", LVM_ANSWER, move || {
        // Also without such a class: a drive that was carved with LVM stays it.
        lvm::prepare(&dir)?;
        wanted.then(lvm::presence).transpose()
    });
    match found.await {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(found))) => {
            tracing::info!(
                version = %found.version,
                snapshots = found.snapshots,
                "LVM available"
            );
            None
        }
        Ok(Err(error)) => Some(chain(&error)),
        Err(error) => {
            tracing::error!(%error, "cannot determine whether LVM works; classes with layout lvm may fail");
            None
        }
    }
}
