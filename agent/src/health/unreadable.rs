//! Finds out which sectors of a drive do not read, and which data is in them.
//!
//! What is reported as unreadable is read past the cache until it is known which sectors are; they stay known until such a read
//! succeeds, for which they are read again at intervals. A filesystem is asked once for each set of ranges in its volume, again when
//! the volume was mounted or unmounted, and at intervals, since files come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    affected::read::ReadWindows,
    evidence::unreadable::{WindowRead, to_locate},
    model::{
        Drive, DriveId, DriveRef, DriveState, Extent, FsType, Media, RecordState, Snapshot, Volume,
        VolumeState,
        cause::chain,
        unreadable::{Holds, LocatedPiece},
    },
    sys::blockstat::completed,
    tasks::Tasks,
    volumes::{Volumes, locate::Asked},
    worker::Slot,
};

/// How often it is looked what is due.
const TICK: Duration = Duration::from_secs(2);
/// Drives that are read, and filesystems that are asked, at a time.
const AT_ONCE: usize = 4;
/// Known ranges of a drive are read again after this, and then, as long as nothing changes, each time after twice as long: reads that fail
/// cost a drive seconds that others need.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// But at least so often.
const READ_AGAIN_MOST: Duration = Duration::from_secs(600);
/// Reports of one drive are collected for this long after a read: while it is used, it makes them all the time.
const REPORTED_AGAIN: Duration = Duration::from_secs(10);
/// Reported places that are read at a time.
const REPORTED: usize = 8;
/// Reported places of one drive that wait: it may report more than can be read.
const WAITING: usize = 256;
/// The worker's own limit is shorter; one read may take this long.
const READ_DEADLINE: Duration = Duration::from_secs(90);
/// A filesystem is asked again after this.
const ASK_AGAIN: Duration = Duration::from_secs(3600);
/// The same after it could not be asked.
const FAILED_AGAIN: Duration = Duration::from_secs(300);
/// It is not asked more often than this.
const SETTLES: Duration = Duration::from_secs(15);
/// The same when something else had the volume.
const LATER: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct TrackedDrive {
    reported: BTreeSet<Extent>,
    reading: bool,
    /// Of what is being read, the reported places.
    reading_reported: Vec<Extent>,
    /// What is being read, or was just now: the kernel reports these reads as it does others, and a little later.
    own: Vec<Extent>,
    not_before: Option<Instant>,
    again: Option<Instant>,
    /// How long after the last read that is.
    every: Duration,
    /// Requests that it had completed after the last read.
    completed: Option<u64>,
}

impl TrackedDrive {
    /// Places to be read, as far as there is room.
    fn report(&mut self, places: impl IntoIterator<Item = Extent>) {
        for place in places {
            if self.reported.len() < WAITING {
                self.reported.insert(place);
            }
        }
    }
}

/// What a filesystem was asked, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    pieces: Vec<Extent>,
    in_use: bool,
}

#[derive(Debug)]
struct TrackedVolume {
    question: Option<Question>,
    asking: bool,
    due: Instant,
    /// Not asked again before this, whatever has changed: ranges are found one after another.
    not_before: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Of {
    Drive(DriveId),
    Volume(Uuid),
}

enum Done {
    Read {
        found: Option<WindowRead>,
        completed: Option<u64>,
    },
    Asked(Question, Asked),
}

#[derive(Default)]
struct Followed {
    drives: BTreeMap<DriveId, TrackedDrive>,
    volumes: BTreeMap<Uuid, TrackedVolume>,
}

/// Follows drives until `stop`.
pub async fn run(volumes: Volumes, stop: CancellationToken) {
    let mut followed = Followed::default();
    let mut tasks: Tasks<Of, Done> = Tasks::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                let snapshot = volumes.inventory().current();
                if snapshot.ready {
                    followed.follow(&volumes, &snapshot);
                    followed.read(&volumes, &snapshot, &mut tasks);
                    followed.ask(&volumes, &snapshot, &mut tasks);
                }
            }
            Some((of, done)) = tasks.next() => followed.take(&volumes, of, done),
        }
    }
}

/// A drive that can be read now.
fn is_reachable(drive: &Drive) -> bool {
    drive.state == DriveState::Claimed && drive.trouble.is_none() && !drive.health.stalled()
}

impl Followed {
    fn follow(&mut self, volumes: &Volumes, snapshot: &Snapshot) {
        for (id, places) in volumes.suspects().drain() {
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
            let is_here = drive.is_some_and(|drive| drive.state != DriveState::Missing);
            let known = drive.is_some_and(|drive| !drive.health.unreadable.is_empty());
            tracked.reading || (is_here && (known || !tracked.reported.is_empty()))
        });
        self.volumes.retain(|uuid, tracked| {
            let volume = snapshot.volumes.get(uuid);
            let known = volume.is_some_and(|volume| !volume.unreadable.is_empty());
            if !known && !tracked.asking {
                volumes
                    .inventory()
                    .update(|known| known.health.locate(*uuid, Vec::new()));
            }
            known || tracked.asking
        });
    }

    fn read(&mut self, volumes: &Volumes, snapshot: &Snapshot, tasks: &mut Tasks<Of, Done>) {
        let now = Instant::now();
        for (id, tracked) in &mut self.drives {
            let drive = snapshot.drives.get(id).filter(|drive| is_reachable(drive));
            let Some(drive) = drive else { continue };
            let waits = tracked.not_before.is_some_and(|at| now < at);
            if !tracked.reading && !waits {
                tracked.own.clear();
            }
            if tracked.reading || waits || tasks.len() >= AT_ONCE {
                continue;
            }
            let again = tracked.again.is_none_or(|at| at <= now);
            let known = volumes
                .inventory()
                .health(|registry| registry.unreadable(id));
            let mut windows: Vec<Extent> = Vec::new();
            while windows.len() < REPORTED
                && let Some(place) = tracked.reported.pop_first()
            {
                // An address that a log has may be none of this drive.
                if place.end() <= drive.facts.size_bytes {
                    windows.push(place);
                }
            }
            let is_reported = !windows.is_empty();
            tracked.reading_reported.clone_from(&windows);
            // In another order each time: not all of them may be read in the time given.
            let mut ranges = known.ranges().to_vec();
            fastrand::shuffle(&mut ranges);
            if again {
                windows.extend(ranges);
            }
            if windows.is_empty() {
                continue;
            }
            tracked.reading = true;
            tracked.own = windows.iter().map(|window| around(*window)).collect();
            let task = read(
                volumes.clone(),
                drive,
                windows,
                is_reported,
                tracked.completed,
            );
            tasks.spawn(Of::Drive(id.clone()), task);
        }
    }

    fn ask(&mut self, volumes: &Volumes, snapshot: &Snapshot, tasks: &mut Tasks<Of, Done>) {
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
                asking: false,
                due: now,
                not_before: None,
            });
            let is_answered = tracked.question.as_ref() == Some(&question);
            if tracked.asking
                || tracked.not_before.is_some_and(|at| now < at)
                || tasks.len() >= AT_ONCE
                || (is_answered && now < tracked.due)
                || (tracked.question.is_none() && now < tracked.due)
                // Which sectors it is about is still being found out.
                || self.drives.get(&volume.drive).is_some_and(|of| of.reading)
            {
                continue;
            }
            tracked.asking = true;
            let (volumes, volume) = (volumes.clone(), volume.clone());
            let drive = DriveRef::from(&drive.facts);
            tasks.spawn(Of::Volume(*uuid), async move {
                let pieces = question.pieces.clone();
                let asked = volumes.locate(&volume, &drive, fs_type, pieces).await;
                Done::Asked(question, asked)
            });
        }
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
                if let Some(Done::Read { found, completed }) = done {
                    tracked.completed = completed;
                    if let Some(found) = found {
                        tracked.report(not_reached(reported, &found));
                        volumes.inventory().update(|known| {
                            let before = known.health.unreadable(&id);
                            known.health.read(&id, &found);
                            changed = known.health.unreadable(&id) != before;
                        });
                    }
                }
                tracked.every = next_interval(tracked.every, changed);
                tracked.again = Some(now + tracked.every);
            }
            (Of::Volume(uuid), Some(Done::Asked(question, asked))) => {
                let Some(tracked) = self.volumes.get_mut(&uuid) else {
                    return;
                };
                tracked.asking = false;
                tracked.not_before = Some(now + SETTLES);
                let pieces = match asked {
                    Asked::NotNow => {
                        tracked.question = None;
                        tracked.due = now + LATER;
                        return;
                    }
                    Asked::Answered(pieces) => {
                        tracked.due = now + ASK_AGAIN;
                        pieces
                    }
                    Asked::Failed(error) => {
                        tracing::warn!(volume = %uuid, error = %chain(&error), "cannot ask the filesystem which files unreadable sectors are in; will retry");
                        tracked.due = now + FAILED_AGAIN;
                        // What it answered before is of other ranges.
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
                    .inventory()
                    .update(|known| known.health.locate(uuid, pieces));
            }
            (Of::Volume(uuid), _) => {
                // It panicked, which it may do again.
                if let Some(tracked) = self.volumes.get_mut(&uuid) {
                    tracked.asking = false;
                    tracked.question = None;
                    tracked.due = now + ASK_AGAIN;
                }
            }
        }
    }
}

/// How long until known ranges are read again. Pure.
fn next_interval(last: Duration, changed: bool) -> Duration {
    if changed {
        return READ_AGAIN;
    }
    (last * 2).clamp(READ_AGAIN, READ_AGAIN_MOST)
}

/// Reported places that a read ended before: a drive does not report twice what its own logs have. Pure.
fn not_reached(reported: Vec<Extent>, found: &WindowRead) -> Vec<Extent> {
    let reached = |place: &Extent| {
        let mut done = found.done.iter();
        done.any(|done| (done.start..done.end()).contains(&place.start))
    };
    let mut left = reported;
    left.retain(|place| !reached(place));
    left
}

/// A window with what is read together with it.
fn around(window: Extent) -> Extent {
    let start = window.start - window.start % 4096;
    Extent {
        start,
        len: (window.end() - start).div_ceil(4096).saturating_mul(4096),
    }
}

/// The filesystem on a volume that was made and mounted by us.
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

fn read(
    volumes: Volumes,
    drive: &Drive,
    windows: Vec<Extent>,
    is_reported: bool,
    completed_before: Option<u64>,
) -> impl Future<Output = Done> + use<> {
    let (id, name) = (drive.id.clone(), drive.facts.kernel_name.clone());
    let sleeps = drive.facts.media == Media::Hdd;
    let job = ReadWindows {
        drive: DriveRef::from(&drive.facts),
        windows,
        unit: drive.facts.physical_sector.clamp(512, 4096),
    };
    async move {
        let before = completed(name.clone()).await;
        // A turning drive that nobody uses may be in standby.
        if sleeps && !is_reported && before.is_some() && before == completed_before {
            return Done::Read {
                found: None,
                completed: before,
            };
        }
        let run = volumes
            .pool()
            .run(&id, Slot::Background, job, READ_DEADLINE);
        let found = run.await;
        let found = match found {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::debug!(drive = %id, error = %chain(&error), "reading suspected sectors failed");
                None
            }
        };
        Done::Read {
            found,
            completed: completed(name).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_ranges_are_read_less_often_while_nothing_changes() {
        let mut every = Duration::ZERO;
        let mut seen = Vec::new();
        for changed in [true, false, false, false, false, false, true] {
            every = next_interval(every, changed);
            seen.push(every.as_secs());
        }
        assert_eq!(seen, [60, 120, 240, 480, 600, 600, 60]);
    }

    #[test]
    fn what_a_read_ended_before_is_read_the_next_time() {
        let extent = |start, len| Extent { start, len };
        let reported = vec![
            extent(4096, 4096),
            extent(8192, 4096),
            extent(1 << 30, 4096),
        ];
        let found = WindowRead {
            done: vec![extent(4096, 4096), extent(0, 512)],
            failed: vec![extent(4096, 512)],
        };
        assert_eq!(
            not_reached(reported, &found),
            [extent(8192, 4096), extent(1 << 30, 4096)]
        );
    }

    #[test]
    fn a_drive_that_reports_without_end_has_a_bounded_number_waiting() {
        let mut tracked = TrackedDrive::default();
        for block in 0..10_000 {
            let (start, len) = (block * 4096, 4096);
            tracked.report([Extent { start, len }]);
        }
        assert_eq!(tracked.reported.len(), WAITING);
    }

    #[test]
    fn what_is_read_together_with_a_window_is_whole_blocks() {
        let extent = |start, len| Extent { start, len };
        assert_eq!(around(extent(4096 + 512, 512)), extent(4096, 4096));
        assert_eq!(around(extent(4096, 8192)), extent(4096, 8192));
        assert_eq!(around(extent(u64::MAX - 10, 10)).start % 4096, 0);
    }
}
