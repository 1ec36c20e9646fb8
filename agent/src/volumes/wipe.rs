//! `drive wipe`: making a used drive blank, on an operator's explicit word.

use drivebay_proto::agent::WipeDriveProgress;
use tokio::sync::mpsc;
use tonic::Status;

use super::{VolumeError, Volumes, guard::Guard, guard::Key};
use crate::{
    carve::jobs::{CarveError, WipeStep},
    inventory::assemble::is_live,
    model::{Drive, DriveRef, DriveState, RejectCode, Snapshot},
    worker::{RunError, Slot},
};

/// Longest one piece may take.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);
/// A piece works for about this long, in milliseconds, so that progress is seen.
const BUDGET_MS: u64 = 1000;

/// A wipe that was allowed to begin.
#[derive(Debug)]
pub struct Wipe {
    drive: DriveRef,
    going: Vec<uuid::Uuid>,
    _guard: Guard,
}

/// Why this drive may not be wiped. Pure; the worker asks the kernel again (O_EXCL) before it writes.
fn refusal(snapshot: &Snapshot, drive: &Drive) -> Option<String> {
    if matches!(drive.state, DriveState::Missing | DriveState::Unprobed) {
        return Some("it cannot be reached now".to_owned());
    }
    let live: Vec<String> = snapshot
        .volumes
        .values()
        .filter(|volume| volume.drive == drive.id && is_live(volume.state))
        .map(|volume| volume.uuid.to_string())
        .collect();
    if !live.is_empty() {
        return Some(format!(
            "it holds Drivebay volumes ({}); delete them first",
            live.join(", ")
        ));
    }
    let in_use: Vec<String> = drive
        .rejects
        .iter()
        .filter(|reject| {
            matches!(
                reject.code,
                RejectCode::NotADisk
                    | RejectCode::Partition
                    | RejectCode::Remote
                    | RejectCode::HiddenPath
                    | RejectCode::MultipathMember
                    | RejectCode::ReadOnly
                    | RejectCode::ZeroSize
                    | RejectCode::NotRunning
                    | RejectCode::Holders
                    | RejectCode::Mounted
                    | RejectCode::SwapInUse
                    | RejectCode::Busy
                    | RejectCode::SystemDrive
                    | RejectCode::HostUnknown
                    | RejectCode::DuplicateIdentity
                    | RejectCode::Unreadable
            )
        })
        .map(|reject| format!("{}: {}", reject.code, reject.detail))
        .collect();
    (!in_use.is_empty()).then(|| in_use.join("; "))
}

/// The drive of this identity or kernel name.
pub(crate) fn named<'a>(snapshot: &'a Snapshot, name: &str) -> Result<&'a Drive, VolumeError> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    snapshot
        .drives
        .values()
        .find(|drive| drive.id.0 == name || drive.facts.kernel_name == name)
        .ok_or_else(|| VolumeError::Invalid {
            field: "drive",
            why: format!(
                "no drive {name:?} on this node; `drivebay-agent drives --all` lists them"
            ),
        })
}

impl Volumes {
    /// Checks that a wipe may begin: the drive is named, its identity is spelled out, nothing uses it.
    pub fn begin_wipe(&self, name: &str, confirm: &str) -> Result<Wipe, VolumeError> {
        let snapshot = self.inner.inventory.current();
        let drive = named(&snapshot, name)?;
        if confirm != drive.id.0 {
            return Err(VolumeError::Invalid {
                field: "confirm",
                why: format!(
                    "wiping {name} destroys everything on it; spell out its identity to go on: {}",
                    drive.id
                ),
            });
        }
        if let Some(why) = refusal(&snapshot, drive) {
            return Err(VolumeError::NotWiped {
                drive: drive.id.clone(),
                why,
            });
        }
        let guard = self.held(Key::Drive(drive.id.clone()), &format!("drive {}", drive.id))?;
        let placed = drive.contents.iter().flat_map(|found| &found.volumes);
        Ok(Wipe {
            drive: DriveRef::from(&drive.facts),
            // None of them is a live one of ours: those were refused above.
            going: placed.map(|placed| placed.record.uuid).collect(),
            _guard: guard,
        })
    }

    /// Wipes, a piece at a time. Goes on when nobody listens: half a wipe helps nobody.
    pub async fn wipe(
        &self,
        wipe: Wipe,
        progress: &mpsc::Sender<Result<WipeDriveProgress, Status>>,
    ) -> Result<WipeDriveProgress, VolumeError> {
        let mut done = 0;
        tracing::warn!(drive = %wipe.drive.id, "drive wipe requested by operator");
        loop {
            let step = WipeStep {
                drive: wipe.drive.clone(),
                from_bytes: done,
                going: wipe.going.clone(),
                budget_ms: BUDGET_MS,
            };
            let answer = self
                .run(&wipe.drive.id, Slot::Foreground, step, DEADLINE)
                .await
                .map_err(|error| match error {
                    RunError::Job(CarveError::Busy { reason, .. }) => VolumeError::NotWiped {
                        drive: wipe.drive.id.clone(),
                        why: reason,
                    },
                    error => error.into(),
                })?;
            done = answer.done_bytes;
            let finished = done >= answer.total_bytes;
            let now = WipeDriveProgress {
                done_bytes: done,
                total_bytes: answer.total_bytes,
                finished,
            };
            if finished {
                tracing::warn!(drive = %wipe.drive.id, "drive wiped");
                return Ok(now);
            }
            // A listener that is slow or gone misses a progress line, nothing else.
            let _ = progress.try_send(Ok(now));
        }
    }
}
