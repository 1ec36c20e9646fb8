//! Checks a filesystem as a job of the drive's worker.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::repeated;
use crate::{
    decode::{Checker, decode},
    device::{self, Partition},
    jobs::FsError,
    kind::{self, Facts, LiveCheck, Replay, Scrub},
    mounts,
    tools::idle::{self, End},
};
use drivebay_layout::{jobs::LayoutError, layout};
use drivebay_model::{
    CheckOutcome, DriveRef, FsType, Inconclusive, Placed, cause::chain, encryption,
};
use drivebay_sys::{direct, dm, mount, mountinfo};
use drivebay_worker::{Context, Job};

/// Limit of replaying a log, which takes as long as it would in staging.
const REPLAY: Duration = Duration::from_secs(600);

/// Method of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum How {
    /// The volume itself; it must not be mounted or held, before and after.
    Unmounted,
    /// The snapshot that `drivebay_layout::jobs::MakeSnapshot` made.
    Snapshot,
    /// The filesystem's own scrub, through this mount.
    Scrub {
        /// Path of a mount of the volume.
        at: PathBuf,
    },
    /// Several runs on the live device.
    Repeated {
        /// Number of runs, at least two.
        runs: u32,
    },
}

/// Checks one filesystem. Never changes a byte of the volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Filesystem that the volume was made with.
    pub fs_type: FsType,
    pub how: How,
    /// Limit of the whole check, milliseconds.
    pub limit_ms: u64,
}

/// Result of [Check], also of an inconclusive one. If nothing was checked, the job errs with [CheckError] instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Command that was run.
    pub tool: String,
    pub outcome: CheckOutcome,
}

/// Error of [Check]: nothing was checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CheckError {
    /// The volume's device or mount is not the expected one, or cannot be read.
    #[error(transparent)]
    Device(#[from] FsError),
    /// The drive could not be read, or does not have the volume.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The result is no longer awaited.
    #[error("the agent is gone; the check of volume {uuid} was stopped")]
    Alone { uuid: Uuid },
}

impl Job for Check {
    const NAME: &'static str = "check";
    type Answer = CheckReport;
    type Error = CheckError;

    fn run(self, context: &mut Context) -> Result<CheckReport, CheckError> {
        let facts = kind::of(self.fs_type).facts();
        let checker = match (&self.how, facts.scrub()) {
            (How::Scrub { .. }, Some(scrub)) => scrub.checker,
            _ => facts.checker,
        };
        context.step("reading the label");
        let contents = layout::read_contents(&self.drive, false)?;
        let unknown = || LayoutError::NoSuchVolume {
            drive: self.drive.id.to_string(),
            uuid: self.uuid,
        };
        let placed = contents.volume(self.uuid).ok_or_else(unknown)?;
        if let Some(reason) = &placed.ambiguous {
            return Err(CheckError::Layout(LayoutError::Ambiguous {
                uuid: self.uuid,
                reason: reason.clone(),
            }));
        }
        let work = Work {
            job: &self,
            facts,
            checker,
            until: Instant::now() + Duration::from_millis(self.limit_ms),
        };
        let outcome = match &self.how {
            How::Unmounted => work.unmounted(placed, context),
            How::Snapshot => work.snapshot(placed, context),
            How::Scrub { at } => work.scrub(placed, at, context),
            How::Repeated { runs } => work.repeated(placed, *runs, context),
        }?;
        Ok(CheckReport {
            tool: checker.command.to_owned(),
            outcome,
        })
    }
}

/// Returns the outcome of a check that another use of the volume interfered with.
fn meanwhile(what: &str) -> CheckOutcome {
    CheckOutcome::inconclusive(Inconclusive::InUse, what)
}

struct Work<'a> {
    job: &'a Check,
    facts: &'static Facts,
    checker: &'static Checker,
    until: Instant,
}

impl Work<'_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn alone(&self) -> CheckError {
        CheckError::Alone {
            uuid: self.job.uuid,
        }
    }

    /// Runs the checker; errs if the agent is gone.
    fn tool(
        &self,
        args: &[&str],
        node: &Path,
        device: &str,
        context: &mut Context,
    ) -> Result<End, CheckError> {
        idle::run(
            self.checker.program,
            args,
            node,
            device,
            self.left(),
            context,
        )
        .ok_or_else(|| self.alone())
    }

    fn unmounted(
        &self,
        placed: &Placed,
        context: &mut Context,
    ) -> Result<CheckOutcome, CheckError> {
        let partition = device::open_used(&self.job.drive, placed)?;
        context.step(&format!("opening {}", partition.device));
        if let Some(used) = used(&partition) {
            return Ok(used);
        }
        let before = mark(self.facts, &partition)?;
        // Held open, not exclusively (e2fsck does that itself), so that the name stays its own.
        let args = self.checker.arguments;
        let end = self.tool(args, &partition.node, &partition.device, context)?;
        if let Some(used) = used(&partition) {
            return Ok(used);
        }
        if mark(self.facts, &partition)? != before {
            return Ok(meanwhile("it was mounted while it was checked"));
        }
        Ok(decode(self.checker, &end))
    }

    fn repeated(
        &self,
        placed: &Placed,
        runs: u32,
        context: &mut Context,
    ) -> Result<CheckOutcome, CheckError> {
        let partition = device::open_used(&self.job.drive, placed)?;
        let mut ends = Vec::new();
        for _ in 0..runs.max(2) {
            let args = self.checker.arguments_mounted;
            let end = self.tool(args, &partition.node, &partition.device, context)?;
            let clean = matches!(end, End::Exited { code: 0, .. });
            ends.push(end);
            if clean {
                break;
            }
        }
        Ok(repeated::together(self.checker, &ends))
    }

    /// A killed process does not end the kernel's scrub; the agent's cancelling (`StopScrub`) and the guard here do.
    fn scrub(
        &self,
        placed: &Placed,
        at: &Path,
        context: &mut Context,
    ) -> Result<CheckOutcome, CheckError> {
        let Some(scrub) = self.facts.scrub() else {
            let why = format!("{} has no scrub", self.job.fs_type);
            return Ok(CheckOutcome::inconclusive(Inconclusive::Unclear, why));
        };
        let partition = device::open_used(&self.job.drive, placed)?;
        if !is_mounted_at(&partition, at)? {
            return Ok(meanwhile("it is not mounted there any more"));
        }
        let guard = StopScrubbing { scrub, at };
        let args = scrub.checker.arguments;
        let end = self.tool(args, at, &partition.device, context);
        match end {
            Ok(End::Exited { .. }) => std::mem::forget(guard),
            _ => drop(guard),
        }
        Ok(decode(scrub.checker, &end?))
    }
}

impl Work<'_> {
    fn snapshot(&self, placed: &Placed, context: &mut Context) -> Result<CheckOutcome, CheckError> {
        let gone = || {
            CheckOutcome::inconclusive(
                Inconclusive::SnapshotFull,
                "more was written to the volume than its snapshot had room for (check-reserve), or the snapshot was removed for a change of the drive",
            )
        };
        let Some(snapshot) = layout::snapshot(&self.job.drive, self.job.uuid)? else {
            return Ok(gone());
        };
        let node = device::node(&snapshot.device);
        // Held open until the end: a snapshot that is in use cannot be removed.
        let held = device::open_snapshot(&node, &snapshot)?;
        let outcome = match (placed.record.encryption(), placed.mapping_uuid()) {
            (None, _) => self.copy(&node, &snapshot.device, context)?,
            (Some(_), None) => meanwhile("it was closed, and its snapshot cannot be decrypted"),
            (Some(_), Some(like)) => {
                let decrypted = Decrypted::open(&like, snapshot.dev, self.job.uuid)?;
                self.copy(&decrypted.node(), &decrypted.device, context)?
            }
        };
        // A full snapshot answers every read with an error.
        let valid = direct::read_node(&node, 0, 4096).is_ok();
        drop(held);
        Ok(if valid { outcome } else { gone() })
    }

    /// Checks a copy of the filesystem, which is changed.
    fn copy(
        &self,
        node: &Path,
        device: &str,
        context: &mut Context,
    ) -> Result<CheckOutcome, CheckError> {
        if let Some(failed) = self.replay(node, device, context)? {
            return Ok(failed);
        }
        let end = self.tool(self.checker.arguments, node, device, context)?;
        Ok(decode(self.checker, &end))
    }

    /// Replays the log on the snapshot; returns the outcome of the check if that failed.
    fn replay(
        &self,
        node: &Path,
        device: &str,
        context: &mut Context,
    ) -> Result<Option<CheckOutcome>, CheckError> {
        let failed = |why: String| {
            let detail = format!("its log could not be replayed on a snapshot: {why}");
            Some(CheckOutcome::inconclusive(Inconclusive::DirtyLog, detail))
        };
        match &self.facts.live_check {
            LiveCheck::Snapshot(Replay::Tool {
                program,
                arguments,
                done,
            }) => {
                let limit = self.left().min(REPLAY);
                let end = idle::run(*program, arguments, node, device, limit, context)
                    .ok_or_else(|| self.alone())?;
                Ok(match end {
                    End::Exited { code, .. } if done.contains(&code) => None,
                    end => failed(match decode(self.checker, &end) {
                        too_old @ CheckOutcome::Inconclusive {
                            why: Inconclusive::ToolTooOld,
                            ..
                        } => return Ok(Some(too_old)),
                        CheckOutcome::Inconclusive { detail, .. } => detail,
                        other => other.text(),
                    }),
                })
            }
            LiveCheck::Snapshot(Replay::Mount { options }) => {
                context.step(&format!("replaying the log of {device}"));
                Ok(mount::replay(node, self.job.fs_type.as_str(), options)
                    .err()
                    .and_then(|error| failed(error.to_string())))
            }
            // Never planned: see `plan`.
            LiveCheck::Scrub(_) => Ok(failed(format!("a {} is never copied", self.job.fs_type))),
        }
    }
}

/// A device that decrypts the snapshot of an encrypted volume with the volume's own key, which the kernel has. It is removed when this is
/// dropped; that of a process which was killed, with the snapshot.
struct Decrypted {
    /// Kernel name.
    device: String,
    /// Device-mapper uuid.
    uuid: String,
    /// Held open: a repair of the drive takes one that is not for a leftover.
    held: Option<File>,
}

impl Decrypted {
    /// `like`: device-mapper uuid of the volume's mapped device; `over`: number of the snapshot's device.
    fn open(like: &str, over: (u32, u32), volume: Uuid) -> Result<Self, FsError> {
        let uuid = encryption::checked_mapping(volume);
        let failed = |error: io::Error| device::io_error("decrypting", Path::new(&uuid), error);
        dm::remove_mapped(&uuid).map_err(failed)?;
        let control = dm::Control::open().map_err(failed)?;
        let mapped = control.map_like(like, over, &uuid, &uuid).map_err(failed)?;
        let mut decrypted = Self {
            device: mapped.kernel_name,
            uuid: uuid.clone(),
            held: None,
        };
        let held = File::open(decrypted.node()).map_err(failed)?;
        decrypted.held = Some(held);
        Ok(decrypted)
    }

    fn node(&self) -> PathBuf {
        device::node(&self.device)
    }
}

impl Drop for Decrypted {
    fn drop(&mut self) {
        self.held = None;
        if let Err(error) = dm::remove_mapped(&self.uuid) {
            tracing::warn!(device = self.device, %error, "cannot remove the decrypted device of a check's snapshot yet");
        }
    }
}

/// Ends the kernel's scrub when dropped.
struct StopScrubbing<'a> {
    scrub: &'static Scrub,
    at: &'a Path,
}

impl Drop for StopScrubbing<'_> {
    fn drop(&mut self) {
        if let Err(error) = (self.scrub.cancel)(self.at) {
            tracing::warn!(at = %self.at.display(), error = %chain(&error), "cannot cancel btrfs scrub; it may continue");
        }
    }
}

/// Ends a scrub that `Check` began: killing its process does not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StopScrub {
    pub fs_type: FsType,
    /// Mount at which it was begun.
    pub at: PathBuf,
}

impl Job for StopScrub {
    const NAME: &'static str = "stop-scrub";
    /// False if there was none.
    type Answer = bool;
    type Error = FsError;

    fn run(self, context: &mut Context) -> Result<bool, FsError> {
        context.step("stopping a scrub");
        let Some(scrub) = kind::of(self.fs_type).facts().scrub() else {
            return Ok(false);
        };
        (scrub.cancel)(&self.at)
            .map_err(|error| device::io_error("stopping the scrub of", &self.at, error))
    }
}

/// Returns the outcome of a check if the device is in use or cannot be opened; None if it is free.
fn used(partition: &Partition) -> Option<CheckOutcome> {
    match partition.hold() {
        Ok(_) => None,
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Some(meanwhile("it is mounted or held open"))
        }
        Err(error) => Some(CheckOutcome::inconclusive(
            Inconclusive::CannotOpen,
            error.to_string(),
        )),
    }
}

/// Returns the blocks that a mount changes. Reads past the page cache, which XFS does not write through.
fn mark(facts: &Facts, partition: &Partition) -> Result<Vec<u8>, CheckError> {
    let mut bytes = Vec::new();
    for offset in facts.changed_by_mount {
        let block = direct::read_node(&partition.node, *offset, 4096)
            .map_err(|error: io::Error| device::io_error("reading", &partition.node, error))?;
        bytes.extend(block);
    }
    Ok(bytes)
}

fn is_mounted_at(partition: &Partition, at: &Path) -> Result<bool, CheckError> {
    let stack = mountinfo::at(&mountinfo::resolve(at))
        .map_err(|error| device::io_error("reading mountinfo for", at, io::Error::other(error)))?;
    Ok(stack
        .last()
        .is_some_and(|entry| mounts::is_mount_of(entry, partition.dev)))
}
