//! Asking a volume's filesystem what its unreadable sectors hold, among the other work on volumes: it takes the place of a
//! check, so it gives way to whatever a check gives way to.

use std::time::Duration;

use super::{Volumes, guard::VolumeGuard};
use drivebay_fs::locate::{Locate, LocateError};
use drivebay_model::{DriveRef, Extent, FsType, Volume, unreadable::LocatedPiece};
use drivebay_worker::{Job, RunError, Slot};

/// Longest the worker looks.
const LIMIT: Duration = Duration::from_secs(90);
/// It is ended from outside this much later.
const GRACE: Duration = Duration::from_secs(15);
/// Between two attempts to end one that has not begun yet.
const AGAIN: Duration = Duration::from_millis(100);

/// What came of asking.
#[derive(Debug)]
pub enum Asked {
    /// The filesystem has answered.
    Answered(Vec<LocatedPiece>),
    /// It cannot be asked; why.
    Failed(RunError<LocateError>),
    /// Something else has the volume or the drive's slot: later.
    NotNow,
}

impl Volumes {
    /// Asks for pieces of a volume. Ended by the calls that end a check; they wait until nothing of it holds the volume.
    pub async fn locate(
        &self,
        volume: &Volume,
        drive: &DriveRef,
        fs_type: FsType,
        pieces: Vec<Extent>,
    ) -> Asked {
        self.locate_for(None, volume, drive, fs_type, pieces).await
    }

    /// The same for a caller that may hold the volume.
    pub(super) async fn locate_for(
        &self,
        held: Option<&VolumeGuard>,
        volume: &Volume,
        drive: &DriveRef,
        fs_type: FsType,
        pieces: Vec<Extent>,
    ) -> Asked {
        let Some(place) = self.begin_check(volume, Locate::NAME, held) else {
            return Asked::NotNow;
        };
        // Until the job's worker is done with it, or gone: nobody unmounts meanwhile.
        let turn = if volume.in_use {
            match self.may_look_now(volume.uuid) {
                Some(turn) => Some(turn),
                None => return Asked::NotNow,
            }
        } else {
            None
        };
        let mounted_at = match &turn {
            Some(_) => match self.node.expected().path_of(volume.uuid) {
                Some(path) => Some(path),
                None => return Asked::NotNow,
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
                        return Asked::NotNow;
                    }
                }
            }
        };
        match result {
            Ok(pieces) => Asked::Answered(pieces),
            Err(RunError::Cancelled { .. } | RunError::Stopping | RunError::Busy { .. }) => {
                Asked::NotNow
            }
            Err(error) => Asked::Failed(error),
        }
    }
}
