//! Asks a volume's filesystem what its unreadable sectors hold, alongside other operations on volumes. Registered like
//! a check, and cancelled by whatever cancels a check.

use std::time::Duration;

use super::{Volumes, guard::VolumeGuard};
use drivebay_fs::locate::{Locate, LocateError};
use drivebay_model::{DriveRef, Extent, FsType, Volume, unreadable::LocatedPiece};
use drivebay_worker::{Job, RunError, Slot};

/// Longest time that the worker works.
const LIMIT: Duration = Duration::from_secs(90);
/// The agent cancels it this much later.
const GRACE: Duration = Duration::from_secs(15);
/// Interval between attempts to cancel one that has not begun yet.
const AGAIN: Duration = Duration::from_millis(100);

/// Result of [`Volumes::locate`].
#[derive(Debug)]
pub enum LocateResult {
    /// The filesystem has answered.
    Answered(Vec<LocatedPiece>),
    /// The filesystem cannot be asked.
    Failed(RunError<LocateError>),
    /// The volume or the drive's slot is taken: retry later.
    NotNow,
}

impl Volumes {
    /// Asks for pieces of a volume. Cancelled by the calls that cancel a check; they wait until it no longer holds the
    /// volume.
    pub async fn locate(
        &self,
        volume: &Volume,
        drive: &DriveRef,
        fs_type: FsType,
        pieces: Vec<Extent>,
    ) -> LocateResult {
        self.locate_for(None, volume, drive, fs_type, pieces).await
    }

    /// Like `locate`, for a caller that may hold the volume.
    pub(super) async fn locate_for(
        &self,
        held: Option<&VolumeGuard>,
        volume: &Volume,
        drive: &DriveRef,
        fs_type: FsType,
        pieces: Vec<Extent>,
    ) -> LocateResult {
        let Some(place) = self.begin_check(volume, Locate::NAME, held) else {
            return LocateResult::NotNow;
        };
        // Held until the job's worker is done or gone: the volume is not unmounted meanwhile.
        let turn = if volume.in_use {
            match self.try_permit(volume.uuid) {
                Some(turn) => Some(turn),
                None => return LocateResult::NotNow,
            }
        } else {
            None
        };
        let mounted_at = match &turn {
            Some(_) => match self.node.expected().path_of(volume.uuid) {
                Some(path) => Some(path),
                None => return LocateResult::NotNow,
            },
            None => None,
        };
        let job = Locate {
            drive: drive.clone(),
            uuid: volume.uuid,
            fs_type,
            mounted_at,
            pieces,
            limit_ms: u64::try_from(LIMIT.as_millis()).unwrap_or(u64::MAX),
        };
        let mut run = std::pin::pin!(self.node.run((&drive.id, Slot::Check), job, LIMIT + GRACE));
        let result = tokio::select! {
            biased;
            result = &mut run => result,
            () = place.stopped() => {
                loop {
                    self.node.pool().cancel((&drive.id, Slot::Check)).await;
                    if tokio::time::timeout(AGAIN, &mut run).await.is_ok() {
                        return LocateResult::NotNow;
                    }
                }
            }
        };
        match result {
            Ok(pieces) => LocateResult::Answered(pieces),
            Err(RunError::Cancelled { .. } | RunError::Stopping | RunError::Busy { .. }) => {
                LocateResult::NotNow
            }
            Err(error) => LocateResult::Failed(error),
        }
    }
}
