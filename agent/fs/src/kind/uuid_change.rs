//! Giving a copied filesystem another UUID: what all of them have in common.

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

/// What is changed.
pub struct UuidChange<'a> {
    pub backend: &'a dyn StageBackend,
    /// Its device; the filesystem may be smaller, and its log not replayed. It is mounted nowhere; its original may be.
    pub partition: &'a Partition,
    pub fs_type: FsType,
    /// The volume, for messages.
    pub volume: Uuid,
    /// The UUID that it has.
    pub from: Uuid,
    /// The UUID that it is to have.
    pub to: Uuid,
    /// The options that it will be mounted with.
    pub options: &'a [String],
    /// A repair may be made, however long it takes.
    pub may_repair: bool,
}

impl UuidChange<'_> {
    /// Runs a tool on the device: its exit code (None: a signal ended it), and what it said.
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
        let said = format!("{}: {}", program.name, tools::excerpt(&all));
        Ok((all.code, said))
    }

    /// Runs a tool that repairs the filesystem, and ends with one of these codes when it has.
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
        let (code, said) = self.run(program, args, context)?;
        if !code.is_some_and(|code| done.contains(&code)) {
            return Err(self.failed(&said));
        }
        tracing::warn!(
            device,
            tool = program.name,
            "copied filesystem repaired before its UUID is changed"
        );
        Ok(())
    }

    /// Has the kernel replay the log, by a mount with these options that nobody sees.
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
