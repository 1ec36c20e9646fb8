//! Operations that staging and growing need: label, probe, tools. A trait, so that tests can put real filesystems on devices
//! without a label.

use std::path::Path;

use uuid::Uuid;

use super::{
    device::{Partition, io_error},
    jobs::FsError,
};
use drivebay_layout::{
    jobs::{Changed, LayoutError},
    layout,
};
use drivebay_model::{Cause, Contents, DriveRef, RecordState, Secret, Signatures};
use drivebay_sys::{
    blkid,
    cmd::{self, CmdError, Output, Tool},
};
use drivebay_worker::Context;

/// Drive and tool operations of staging and growing.
pub trait StageBackend: Sync {
    /// Reads label and table. With `repair`, also repairs what is safe to repair, and adds the partitions that the kernel
    /// lacks.
    fn read_contents(&self, drive: &DriveRef, repair: bool) -> Result<Contents, LayoutError>;
    /// Moves the record of a volume to another state, durably.
    fn advance(
        &self,
        drive: &DriveRef,
        uuid: Uuid,
        to: RecordState,
    ) -> Result<Changed, LayoutError>;
    /// Probes a device for signatures. An error does not mean that it is empty.
    fn probe(&self, node: &Path) -> Result<Signatures, Cause>;
    /// Runs a tool until it ends.
    fn run(&self, tool: &Tool) -> Result<Output, CmdError>;
    /// Runs a tool that reads the secret from its standard input until it ends.
    fn run_with_secret(&self, tool: &Tool, secret: &Secret) -> Result<Output, CmdError> {
        cmd::run_with_input(tool, secret.expose())
    }
}

/// Flushes the volume's device to the drive, and probes it again.
pub fn probe_flushed(
    backend: &dyn StageBackend,
    partition: &Partition,
    volume: Uuid,
    context: &mut Context,
) -> Result<Signatures, FsError> {
    context.step(&format!("flushing {}", partition.device));
    partition
        .flush()
        .map_err(|error| io_error("flushing", &partition.node, error))?;
    backend
        .probe(&partition.node)
        .map_err(|source| FsError::Probe {
            uuid: volume,
            device: partition.device.clone(),
            source,
        })
}

/// Backend for real drives.
#[derive(Debug, Clone, Copy)]
pub struct Real;

impl StageBackend for Real {
    fn read_contents(&self, drive: &DriveRef, repair: bool) -> Result<Contents, LayoutError> {
        layout::read_contents(drive, repair)
    }

    fn advance(
        &self,
        drive: &DriveRef,
        uuid: Uuid,
        to: RecordState,
    ) -> Result<Changed, LayoutError> {
        layout::advance(drive, uuid, &to)
    }

    fn probe(&self, node: &Path) -> Result<Signatures, Cause> {
        blkid::probe_device(node).map_err(|error| Cause::new(&error))
    }

    fn run(&self, tool: &Tool) -> Result<Output, CmdError> {
        cmd::run(tool)
    }
}
