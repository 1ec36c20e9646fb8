//! Preparation before the first drive is accessed, shared by the agent and by commands that work without one.

use std::{io, time::Duration};

use crate::state::newer::{self, NewerState};
use drivebay_config::Config;
use drivebay_fs::{
    kernel_options::{self, OptionsCheck},
    parse_mount_flags,
};
use drivebay_model::{Layout, cause::chain};
use drivebay_sys::{lvm, offload::offload};
use drivebay_worker::{Pool, PoolConfig, SPARE};

/// Callers that may wait for one drive's slot.
const SLOT_QUEUE: usize = 16;
/// Age from which a running step counts as Stuck (design, invariant 6).
const STUCK_AFTER: Duration = Duration::from_secs(30);
/// Longest time for reading the state directory. Exceeding it means that the system's drive does not respond.
const STATE_VERSIONS: Duration = Duration::from_secs(10);
/// Longest duration of `lvm version` at start.
const LVM_ANSWER: Duration = Duration::from_secs(10);

/// Refuses state files of a newer version, before anything is read, moved aside or written.
pub async fn refuse_newer_state(config: &Config) -> io::Result<Result<(), NewerState>> {
    let dir = config.state_dir.clone();
    offload("state-versions", STATE_VERSIONS, move || {
        newer::refuse(&dir)
    })
    .await
}

/// Starts the worker pool, and ends the workers that an earlier agent left.
pub async fn workers(config: &Config) -> io::Result<Pool> {
    Pool::new(PoolConfig {
        program: std::env::current_exe()?,
        notes_dir: config.runtime_dir.join("workers"),
        fork: true,
        idle: config.worker_idle,
        spare: SPARE,
        stuck_after: STUCK_AFTER,
        queue: SLOT_QUEUE,
    })
    .await
}

/// Logs the classes whose volumes cannot be mounted with the options of the class. The agent starts all the same: a
/// newer kernel may have dropped an option that only one of the classes has.
pub async fn warn_of_mount_options(config: &Config) {
    for class in &config.classes {
        let Ok(flags) = parse_mount_flags(&class.mount_options) else {
            continue;
        };
        if let OptionsCheck::Refused { options, why } =
            kernel_options::check_on_thread(class.fs_type, flags).await
        {
            tracing::error!(
                class = class.name,
                options,
                reason = why,
                "kernel refuses mount options of a class; its volumes cannot be mounted"
            );
        }
    }
}

/// Prepares the `lvm` layout. Returns why it cannot be used, if a class may want it. Nothing here is fatal: classes of
/// the other layout work without it, and the inventory reports the classes that do not.
pub async fn prepare_lvm(config: &Config) -> Option<String> {
    let wanted = config
        .classes
        .iter()
        .any(|class| class.layout == Layout::Lvm);
    let dir = config.runtime_dir.clone();
    let prepared = offload("lvm", LVM_ANSWER, move || {
        // Also without such a class: a drive that was claimed with that layout keeps it.
        lvm::prepare(&dir)?;
        wanted.then(lvm::presence).transpose()
    });
    match prepared.await {
        Ok(Ok(None)) => None,
        Ok(Ok(Some(presence))) => {
            tracing::info!(
                version = %presence.version,
                snapshots = presence.snapshots,
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
