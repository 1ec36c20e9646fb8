//! What staging and growing stand on: the label, the probe, the tools. A trait, so that tests can put
//! real filesystems on devices that have no label.

use std::path::Path;

use uuid::Uuid;

use super::{
    device::{Partition, io_error},
    jobs::FsError,
};
use drivebay_layout::{
    jobs::{CarveError, Changed},
    layout,
};
use drivebay_model::{Cause, Contents, DriveRef, RecordState, Signatures};
use drivebay_sys::{
    blkid,
    cmd::{self, CmdError, Output, Tool},
};
use drivebay_worker::Context;

/// The parts that others do.
pub trait StageBackend: Sync {
    /// Reads label and table; with `repair` also mends what is safe to mend and gives the kernel the
    /// partitions it lacks.
    fn look(&self, drive: &DriveRef, repair: bool) -> Result<Contents, CarveError>;
    /// Moves a record on, durably.
    fn advance(&self, drive: &DriveRef, uuid: Uuid, to: RecordState)
    -> Result<Changed, CarveError>;
    /// Probes a device for signatures; an error is not emptiness.
    fn probe(&self, node: &Path) -> Result<Signatures, Cause>;
    /// Runs a tool to its end.
    fn run(&self, tool: &Tool) -> Result<Output, CmdError>;
}

/// Flushes what was written to the volume's device, and probes it again.
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

/// The real ones.
#[derive(Debug, Clone, Copy)]
pub struct Real;

impl StageBackend for Real {
    fn look(&self, drive: &DriveRef, repair: bool) -> Result<Contents, CarveError> {
        layout::look(drive, repair)
    }

    fn advance(
        &self,
        drive: &DriveRef,
        uuid: Uuid,
        to: RecordState,
    ) -> Result<Changed, CarveError> {
        layout::advance(drive, uuid, &to)
    }

    fn probe(&self, node: &Path) -> Result<Signatures, Cause> {
        blkid::probe_device(node).map_err(|error| Cause::new(&error))
    }

    fn run(&self, tool: &Tool) -> Result<Output, CmdError> {
        cmd::run(tool)
    }
}
