//! Finds the unreadable sectors of a drive, and the data in them.
//!
//! Places reported as unreadable are read past the cache until the unreadable sectors are known; they stay known until such
//! a read succeeds, for which they are read again at intervals. A filesystem is queried once for each set of ranges in its
//! volume, again when the volume was mounted or unmounted, and at intervals, since files come and go.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::collected::CollectedEvidence;
use drivebay_model::{
    Drive, DriveId, DriveState, Extent, Snapshot,
    cause::chain,
    unreadable::{Holds, LocatedPiece, WindowRead},
};
use drivebay_node::{
    context::NodeContext,
    tasks::Tasks,
    volumes::{Volumes, locate::LocateResult},
};

mod lookup;
mod read;

use lookup::{FAILED_AGAIN, LATER, Question, RETRY_INTERVAL, SETTLES, TrackedVolume};
use read::{REPORTED_AGAIN, TrackedDrive, next_interval, not_reached};

/// Interval of checking what is due.
const TICK: Duration = Duration::from_secs(2);
/// Limit of concurrent reads of drives and queries of filesystems.
const AT_ONCE: usize = 4;

#[derive(Debug, PartialEq, Eq, Hash)]
enum Of {
    Drive(DriveId),
    Volume(Uuid),
}

enum Done {
    Read {
        result: Option<WindowRead>,
        completed: Option<u64>,
    },
    Located(Question, LocateResult),
}

#[derive(Default)]
struct Followed {
    drives: BTreeMap<DriveId, TrackedDrive>,
    volumes: BTreeMap<Uuid, TrackedVolume>,
}

/// Finds unreadable sectors and their data until `stop`.
pub async fn run(volumes: Volumes, evidence: CollectedEvidence, stop: CancellationToken) {
    let mut followed = Followed::default();
    let mut tasks: Tasks<Of, Done> = Tasks::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                let snapshot = volumes.node().inventory().current();
                if snapshot.ready {
                    followed.follow(volumes.node(), &evidence, &snapshot);
                    followed.read(&volumes, &snapshot, &mut tasks);
                    followed.query(&volumes, &snapshot, &mut tasks);
                }
            }
            Some((of, done)) = tasks.next() => followed.take(&volumes, of, done),
        }
    }
}

/// True if the drive can be read now.
fn is_reachable(drive: &Drive) -> bool {
    drive.state == DriveState::Claimed && drive.trouble.is_none() && !drive.health.stalled()
}

impl Followed {
    fn follow(&mut self, node: &NodeContext, evidence: &CollectedEvidence, snapshot: &Snapshot) {
        for (id, places) in evidence.suspects().drain() {
            let tracked = self.drives.entry(id).or_default();
            let own = |place: &Extent| {
                let mut own = tracked.own.iter();
                own.any(|window| (window.start..window.end()).contains(&place.start))
            };
            let others: Vec<Extent> = places.into_iter().filter(|place| !own(place)).collect();
            tracked.report(others);
        }
        for (id, drive) in &snapshot.drives {
            if !drive.health.unreadable.is_empty() {
                self.drives.entry(id.clone()).or_default();
            }
        }
        self.drives.retain(|id, tracked| {
            let drive = snapshot.drives.get(id);
            let is_here = drive.is_some_and(|drive| drive.state.is_present());
            let is_unreadable = drive.is_some_and(|drive| !drive.health.unreadable.is_empty());
            tracked.reading || (is_here && (is_unreadable || !tracked.reported.is_empty()))
        });
        self.volumes.retain(|uuid, tracked| {
            let volume = snapshot.volumes.get(uuid);
            let is_unreadable = volume.is_some_and(|volume| !volume.unreadable.is_empty());
            if !is_unreadable && !tracked.querying {
                node.inventory()
                    .update(|state| state.health.locate(*uuid, Vec::new()));
            }
            is_unreadable || tracked.querying
        });
    }

    fn take(&mut self, volumes: &Volumes, of: Of, done: Option<Done>) {
        let now = Instant::now();
        match (of, done) {
            (Of::Drive(id), done) => {
                let Some(tracked) = self.drives.get_mut(&id) else {
                    return;
                };
                tracked.reading = false;
                tracked.not_before = Some(now + REPORTED_AGAIN);
                let mut changed = false;
                let reported = std::mem::take(&mut tracked.reading_reported);
                if let Some(Done::Read { result, completed }) = done {
                    tracked.completed = completed;
                    tracked.report(not_reached(reported, result.as_ref()));
                    if let Some(result) = result {
                        volumes.node().inventory().update(|state| {
                            let before = state.health.unreadable(&id);
                            state.health.read(&id, &result);
                            changed = state.health.unreadable(&id) != before;
                        });
                    }
                }
                tracked.every = next_interval(tracked.every, changed);
                tracked.again = Some(now + tracked.every);
            }
            (Of::Volume(uuid), Some(Done::Located(question, result))) => {
                let Some(tracked) = self.volumes.get_mut(&uuid) else {
                    return;
                };
                tracked.querying = false;
                tracked.not_before = Some(now + SETTLES);
                let pieces = match result {
                    LocateResult::NotNow => {
                        tracked.question = None;
                        tracked.due = now + LATER;
                        return;
                    }
                    LocateResult::Answered(pieces) => {
                        tracked.due = now + RETRY_INTERVAL;
                        pieces
                    }
                    LocateResult::Failed(error) => {
                        tracing::warn!(volume = %uuid, error = %chain(&error), "cannot ask the filesystem which files unreadable sectors are in; will retry");
                        tracked.due = now + FAILED_AGAIN;
                        // The earlier result is of other ranges.
                        let why = "the filesystem could not be asked; the agent's log says why";
                        let holds = Holds::Unknown {
                            why: why.to_owned(),
                        };
                        let unknown = |extent: &Extent| LocatedPiece {
                            extent: *extent,
                            holds: holds.clone(),
                        };
                        question.pieces.iter().map(unknown).collect()
                    }
                };
                tracked.question = Some(question);
                volumes
                    .node()
                    .inventory()
                    .update(|state| state.health.locate(uuid, pieces));
            }
            (Of::Volume(uuid), _) => {
                // The task panicked, and may panic again.
                if let Some(tracked) = self.volumes.get_mut(&uuid) {
                    tracked.querying = false;
                    tracked.question = None;
                    tracked.due = now + RETRY_INTERVAL;
                }
            }
        }
    }
}
