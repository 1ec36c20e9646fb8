//! Checking as a job of the drive's worker.

use std::{
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    decode::{Checker, End, decode},
    repeated, tool,
};
use crate::{
    device::{self, Partition},
    jobs::FsError,
};
use drivebay_layout::{self as carve, jobs::CarveError};
use drivebay_model::{CheckOutcome, DriveRef, FsType, Inconclusive, Placed, cause::chain};
use drivebay_sys::{btrfs, direct, mount, mountinfo};
use drivebay_worker::{Context, Job};

/// Replaying a log takes as long as staging would.
const REPLAY: Duration = Duration::from_secs(600);

/// How to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum How {
    /// The volume itself; it must be in nobody's hands, before and after.
    Unmounted,
    /// The snapshot that `carve::jobs::SnapshotStep` made.
    Snapshot,
    /// btrfs' own scrub, by way of this mount.
    Scrub {
        /// A mount of the volume.
        at: PathBuf,
    },
    /// Several runs on the live device.
    Repeated {
        /// Runs.
        runs: u32,
    },
}

/// Checks one filesystem. It never changes a byte of the volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// What it was made with.
    pub fs_type: FsType,
    pub how: How,
    /// Longest all of it may take, in milliseconds.
    pub limit_ms: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// The command that said so.
    pub tool: String,
    /// What it means.
    pub outcome: CheckOutcome,
}

/// Why nothing was checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CheckError {
    /// The volume is not there, or not as it should be.
    #[error(transparent)]
    Device(#[from] FsError),
    /// The same of the drive.
    #[error(transparent)]
    Carve(#[from] CarveError),
    /// Nobody waits for the answer any more.
    #[error("the agent is gone; the check of volume {uuid} was stopped")]
    Alone { uuid: Uuid },
}

impl Job for Check {
    const NAME: &'static str = "check";
    type Answer = Looked;
    type Error = CheckError;

    fn run(self, context: &mut Context) -> Result<Looked, CheckError> {
        let checker = match self.how {
            How::Scrub { .. } => Checker::BtrfsScrub,
            _ => Checker::of(self.fs_type),
        };
        context.step("reading the label");
        let contents = carve::layout::look(&self.drive, false)?;
        let unknown = || CarveError::NoSuchVolume {
            drive: self.drive.id.to_string(),
            uuid: self.uuid,
        };
        let placed = contents.volume(self.uuid).ok_or_else(unknown)?;
        if let Some(reason) = &placed.ambiguous {
            return Err(CheckError::Carve(CarveError::Ambiguous {
                uuid: self.uuid,
                reason: reason.clone(),
            }));
        }
        let work = Work {
            job: &self,
            checker,
            until: Instant::now() + Duration::from_millis(self.limit_ms),
        };
        let outcome = match &self.how {
            How::Unmounted => work.unmounted(placed, context),
            How::Snapshot => work.snapshot(context),
            How::Scrub { at } => work.scrub(placed, at, context),
            How::Repeated { runs } => work.repeated(placed, *runs, context),
        }?;
        Ok(Looked {
            tool: checker.command().to_owned(),
            outcome,
        })
    }
}

/// Says that something else came between.
fn meanwhile(what: &str) -> CheckOutcome {
    CheckOutcome::inconclusive(Inconclusive::InUse, what)
}

struct Work<'a> {
    job: &'a Check,
    checker: Checker,
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

    fn tool(&self, node: &Path, device: &str, context: &mut Context) -> Result<End, CheckError> {
        tool::run(self.checker, node, device, self.left(), context).ok_or_else(|| self.alone())
    }

    fn unmounted(
        &self,
        placed: &Placed,
        context: &mut Context,
    ) -> Result<CheckOutcome, CheckError> {
        let partition = device::open(&self.job.drive, placed)?;
        context.step(&format!("opening {}", partition.device));
        if let Some(used) = used(&partition) {
            return Ok(used);
        }
        let before = mark(&partition)?;
        // It is held open, not exclusively (e2fsck asks for that itself), so its name stays its own.
        let end = self.tool(&partition.node, &partition.device, context)?;
        if let Some(used) = used(&partition) {
            return Ok(used);
        }
        if mark(&partition)? != before {
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
        let partition = device::open(&self.job.drive, placed)?;
        let mut ends = Vec::new();
        for _ in 0..runs.max(2) {
            let end = match self.checker {
                // Without -f it refuses a device that is mounted.
                Checker::XfsRepair => {
                    let args = vec!["-n".into(), "-f".into(), partition.node.clone().into()];
                    let limit = self.left();
                    tool::run_tool("xfs_repair", args, &partition.device, limit, context)
                        .ok_or_else(|| self.alone())?
                }
                _ => self.tool(&partition.node, &partition.device, context)?,
            };
            let clean = matches!(end, End::Exited { code: 0, .. });
            ends.push(end);
            if clean {
                break;
            }
        }
        Ok(repeated::together(self.checker, &ends))
    }

    /// A killed process does not end the kernel's scrub of it; the agent's cancelling (`StopScrub`) and this do.
    fn scrub(
        &self,
        placed: &Placed,
        at: &Path,
        context: &mut Context,
    ) -> Result<CheckOutcome, CheckError> {
        let partition = device::open(&self.job.drive, placed)?;
        if !is_mounted_at(&partition, at)? {
            return Ok(meanwhile("it is not mounted there any more"));
        }
        let stop = at.to_owned();
        let guard = StopScrubbing(&stop);
        let end = self.tool(at, &partition.device, context);
        match end {
            Ok(End::Exited { .. }) => std::mem::forget(guard),
            _ => drop(guard),
        }
        Ok(decode(self.checker, &end?))
    }
}

impl Work<'_> {
    fn snapshot(&self, context: &mut Context) -> Result<CheckOutcome, CheckError> {
        let gone = || {
            CheckOutcome::inconclusive(
                Inconclusive::SnapshotFull,
                "more was written to the volume than its snapshot had room for (check-reserve), or the snapshot was removed for a change of the drive",
            )
        };
        let Some(snapshot) = carve::layout::snapshot(&self.job.drive, self.job.uuid)? else {
            return Ok(gone());
        };
        let node = device::node(&snapshot.device);
        // Held open until the end: nobody removes a snapshot that is in use.
        let held = device::open_snapshot(&node, &snapshot)?;
        let outcome = match self.replay(&node, &snapshot.device, context)? {
            Some(failed) => failed,
            None => decode(self.checker, &self.tool(&node, &snapshot.device, context)?),
        };
        // A snapshot that became full answers every read with an error.
        let valid = direct::read_node(&node, 0, 4096).is_ok();
        drop(held);
        Ok(if valid { outcome } else { gone() })
    }

    /// Replays the log, on the snapshot. Some: that failed.
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
        match self.job.fs_type {
            FsType::Ext4 => {
                let args = ["-E", "journal_only", "-p"].map(Into::into);
                let args = args.into_iter().chain([node.into()]).collect();
                let limit = self.left().min(REPLAY);
                let end = tool::run_tool("e2fsck", args, device, limit, context)
                    .ok_or_else(|| self.alone())?;
                Ok(match end {
                    // 1: the journal was replayed.
                    End::Exited { code: 0 | 1, .. } => None,
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
            FsType::Xfs => {
                context.step(&format!("replaying the log of {device}"));
                Ok(mount::replay(node, "xfs", &["nouuid"])
                    .err()
                    .and_then(|error| failed(error.to_string())))
            }
            // Never planned: see `plan`.
            FsType::Btrfs => Ok(failed("a btrfs is never copied".to_owned())),
        }
    }
}

/// Ends the kernel's scrub when it goes.
struct StopScrubbing<'a>(&'a Path);

impl Drop for StopScrubbing<'_> {
    fn drop(&mut self) {
        if let Err(error) = btrfs::cancel_scrub(self.0) {
            tracing::warn!(at = %self.0.display(), error = %chain(&error), "cannot cancel btrfs scrub; it may continue");
        }
    }
}

/// Ends a scrub that `Check` began: killing the process that waits for it does not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StopScrub {
    /// The mount it was begun at.
    pub at: PathBuf,
}

impl Job for StopScrub {
    const NAME: &'static str = "stop-scrub";
    /// False when there was none.
    type Answer = bool;
    type Error = FsError;

    fn run(self, context: &mut Context) -> Result<bool, FsError> {
        context.step("stopping a scrub");
        btrfs::cancel_scrub(&self.at)
            .map_err(|error| device::io_error("stopping the scrub of", &self.at, error))
    }
}

/// What the check comes to when somebody holds the device.
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

/// Where the superblocks are that every mount changes: of ext4 and XFS in the first 4 KiB, of btrfs at 64 KiB. Past the page cache, which
/// XFS does not write through.
fn mark(partition: &Partition) -> Result<Vec<u8>, CheckError> {
    let read = |offset| {
        direct::read_node(&partition.node, offset, 4096)
            .map_err(|error: io::Error| device::io_error("reading", &partition.node, error))
    };
    let mut bytes = read(0)?;
    bytes.extend(read(64 << 10)?);
    Ok(bytes)
}

fn is_mounted_at(partition: &Partition, at: &Path) -> Result<bool, CheckError> {
    let stack = mountinfo::at(&mountinfo::resolve(at))
        .map_err(|error| device::io_error("reading mountinfo for", at, io::Error::other(error)))?;
    Ok(stack
        .last()
        .is_some_and(|entry| device::is_mount_of(entry, partition.dev)))
}
