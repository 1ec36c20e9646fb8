//! Common code of giving a copied filesystem another UUID.

use std::io;

use uuid::Uuid;

use super::arguments;
use crate::{
    backend::StageBackend,
    device::{Partition, io_error},
    jobs::FsError,
    tools::{self, Program},
};
use drivebay_model::{Cause, FsType};
use drivebay_sys::{cmd::Output, mount};
use drivebay_worker::Context;

/// Change of the UUID of a copied filesystem.
pub struct UuidChange<'a> {
    pub backend: &'a dyn StageBackend,
    /// Device of the copy, which must not be mounted; the original may be. The filesystem may be smaller, and its log not
    /// replayed.
    pub partition: &'a Partition,
    pub fs_type: FsType,
    /// Uuid of the volume that has the copy, for messages and errors only.
    pub volume: Uuid,
    /// UUID of the filesystem on the device, which is that of the original.
    pub from: Uuid,
    /// UUID in the volume's record, which the filesystem gets.
    pub to: Uuid,
    /// Options that it will be mounted with.
    pub options: &'a [String],
    /// A repair is allowed, without a limit of time.
    pub may_repair: bool,
}

impl UuidChange<'_> {
    /// Runs a tool on the device; returns its exit code (None: a signal ended it), and its output for a message.
    pub(super) fn run(
        &self,
        program: Program,
        args: &[&str],
        context: &mut Context,
    ) -> Result<(Option<i32>, String), FsError> {
        let mut args = arguments(args.iter().copied());
        args.push(self.partition.node.clone().into());
        let on = (self.partition.device.as_str(), None);
        let output = tools::run(self.backend, program, args, on, context)?;
        // tune2fs and xfs_db give their reasons on stdout.
        let all = Output {
            stderr: format!("{}\n{}", output.stderr, output.stdout),
            ..output
        };
        let message = format!("{}: {}", program.name, tools::excerpt(&all));
        Ok((all.code, message))
    }

    /// Runs a tool that repairs the filesystem, and that exits with one of the codes `done` if it has. Errs with
    /// `NeedsRepair` if no repair is allowed.
    pub(super) fn repair(
        &self,
        program: Program,
        args: &[&str],
        done: &[i32],
        context: &mut Context,
    ) -> Result<(), FsError> {
        let device = &self.partition.device;
        if !self.may_repair {
            return Err(FsError::NeedsRepair {
                uuid: self.volume,
                fs_type: self.fs_type,
                device: device.clone(),
            });
        }
        let (code, message) = self.run(program, args, context)?;
        if !code.is_some_and(|code| done.contains(&code)) {
            return Err(self.failed(&message));
        }
        tracing::warn!(
            device,
            tool = program.name,
            "copied filesystem repaired before its UUID is changed"
        );
        Ok(())
    }

    /// Makes the kernel replay the log with these mount options, without a mount, and drops the page cache of the device.
    pub(super) fn replay(&self, options: &[&str], context: &mut Context) -> Result<(), FsError> {
        let (node, device) = (&self.partition.node, &self.partition.device);
        let step = format!("replaying the log of {device}");
        let replayed = tools::watched(device, &step, context, || {
            mount::replay(node, self.fs_type.as_str(), options)
        });
        let replayed = replayed.unwrap_or_else(|_| Err(io::Error::other("its thread died")));
        replayed.map_err(|error| {
            let what = format!(
                "replaying the log of the copied {} of volume {} (see dmesg) on",
                self.fs_type, self.volume
            );
            io_error(&what, node, error)
        })?;
        self.partition.drop_cache();
        Ok(())
    }

    pub(crate) fn failed(&self, why: &str) -> FsError {
        FsError::Io {
            what: format!(
                "giving the copied {} of volume {} the UUID {} on",
                self.fs_type, self.volume, self.to
            ),
            path: self.partition.device.clone(),
            source: Cause::text(format!(
                "{why}. It is not mounted, and its original is not concerned: if the repeated call fails, too, copy it again"
            )),
        }
    }
}
