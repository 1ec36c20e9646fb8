//! Queries filesystems about the contents of unreadable ranges: decides which, and when.

use std::time::Duration;

use tokio::time::Instant;

use super::{AT_ONCE, Done, Followed, Of, is_reachable};
use drivebay_evidence::unreadable::to_locate;
use drivebay_model::{DriveRef, Extent, FsType, RecordState, Snapshot, Volume, VolumeState};
use drivebay_node::{tasks::Tasks, volumes::Volumes};

/// Interval of querying a filesystem again.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(3600);
/// Delay of the next query after a failed one.
pub(super) const FAILED_AGAIN: Duration = Duration::from_secs(300);
/// Least time between two queries of a filesystem.
pub(super) const SETTLES: Duration = Duration::from_secs(15);
/// Delay of the next query if another operation had the volume.
pub(super) const LATER: Duration = Duration::from_secs(5);

/// Query of a filesystem, and whether it was in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) pieces: Vec<Extent>,
    in_use: bool,
}

#[derive(Debug)]
pub(super) struct TrackedVolume {
    pub(super) question: Option<Question>,
    pub(super) querying: bool,
    pub(super) due: Instant,
    /// Not queried before this, whatever has changed: ranges are found one after another.
    pub(super) not_before: Option<Instant>,
}

impl Followed {
    pub(super) fn query(
        &mut self,
        volumes: &Volumes,
        snapshot: &Snapshot,
        tasks: &mut Tasks<Of, Done>,
    ) {
        let now = Instant::now();
        for (uuid, volume) in &snapshot.volumes {
            let Some(fs_type) = filesystem(volume) else {
                continue;
            };
            let drive = snapshot.drives.get(&volume.drive);
            let Some(drive) = drive.filter(|drive| is_reachable(drive)) else {
                continue;
            };
            let question = Question {
                pieces: to_locate(&volume.unreadable, *uuid),
                in_use: volume.in_use,
            };
            if question.pieces.is_empty() {
                continue;
            }
            let tracked = self.volumes.entry(*uuid).or_insert(TrackedVolume {
                question: None,
                querying: false,
                due: now,
                not_before: None,
            });
            let is_answered = tracked.question.as_ref() == Some(&question);
            if tracked.querying
                || tracked.not_before.is_some_and(|at| now < at)
                || tasks.count() >= AT_ONCE
                || (is_answered && now < tracked.due)
                || (tracked.question.is_none() && now < tracked.due)
                // The unreadable sectors are still being determined.
                || self.drives.get(&volume.drive).is_some_and(|of| of.reading)
            {
                continue;
            }
            tracked.querying = true;
            let (volumes, volume) = (volumes.clone(), volume.clone());
            let drive = DriveRef::from(&drive.facts);
            tasks.spawn(Of::Volume(*uuid), async move {
                let pieces = question.pieces.clone();
                let result = volumes.locate(&volume, &drive, fs_type, pieces).await;
                Done::Located(question, result)
            });
        }
    }
}

/// Returns the filesystem on a volume, if Drivebay has made and mounted it and the volume is ready.
fn filesystem(volume: &Volume) -> Option<FsType> {
    match volume.placed.record.state {
        RecordState::Fs {
            fs_type,
            mounted: true,
            ..
        } if volume.state == VolumeState::Ready => Some(fs_type),
        _ => None,
    }
}
