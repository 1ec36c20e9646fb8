//! Reads places of a drive that are reported or known as unreadable: decides which, and when.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use super::{AT_ONCE, Done, Followed, Of, is_reachable};
use drivebay_fs::affected::read::ReadWindows;
use drivebay_model::{
    Drive, DriveRef, Extent, Media, Snapshot, cause::chain, unreadable::WindowRead,
};
use drivebay_node::{tasks::Tasks, volumes::Volumes};
use drivebay_sys::blockstat::completed;
use drivebay_worker::Slot;

/// Interval of reading known ranges again, doubled each time that nothing changes: failing reads cost a drive seconds that
/// other requests need.
const READ_AGAIN: Duration = Duration::from_secs(60);
/// Longest interval of reading known ranges again.
const READ_AGAIN_MOST: Duration = Duration::from_secs(600);
/// Time after a read for which reports of the drive are collected: while it is used, it makes them all the time.
pub(super) const REPORTED_AGAIN: Duration = Duration::from_secs(10);
/// Limit of reported places per read job.
const REPORTED: usize = 8;
/// Limit of reported places that wait per drive: it may report more than can be read.
const WAITING: usize = 256;
/// Limit of a job. The worker's own limit is shorter; one read may take this long.
const READ_DEADLINE: Duration = Duration::from_secs(90);

#[derive(Debug, Default)]
pub(super) struct TrackedDrive {
    pub(super) reported: BTreeSet<Extent>,
    pub(super) reading: bool,
    /// Reported places among those being read.
    pub(super) reading_reported: Vec<Extent>,
    /// Windows that are being read, or were just now: the kernel reports these reads as it does others, and a little later.
    pub(super) own: Vec<Extent>,
    pub(super) not_before: Option<Instant>,
    pub(super) again: Option<Instant>,
    /// Current interval of reading known ranges again.
    pub(super) every: Duration,
    /// Number of completed requests after the last read.
    pub(super) completed: Option<u64>,
}

impl TrackedDrive {
    /// Queues places to be read, as far as there is room.
    pub(super) fn report(&mut self, places: impl IntoIterator<Item = Extent>) {
        for place in places {
            if self.reported.len() < WAITING {
                self.reported.insert(place);
            }
        }
    }
}

impl Followed {
    pub(super) fn read(
        &mut self,
        volumes: &Volumes,
        snapshot: &Snapshot,
        tasks: &mut Tasks<Of, Done>,
    ) {
        let now = Instant::now();
        for (id, tracked) in &mut self.drives {
            let drive = snapshot.drives.get(id).filter(|drive| is_reachable(drive));
            let Some(drive) = drive else { continue };
            let waits = tracked.not_before.is_some_and(|at| now < at);
            if !tracked.reading && !waits {
                tracked.own.clear();
            }
            if tracked.reading || waits || tasks.count() >= AT_ONCE {
                continue;
            }
            let again = tracked.again.is_none_or(|at| at <= now);
            let unreadable = volumes
                .node()
                .inventory()
                .health(|registry| registry.unreadable(id));
            let mut windows: Vec<Extent> = Vec::new();
            while windows.len() < REPORTED
                && let Some(place) = tracked.reported.pop_first()
            {
                // An address in a log may be beyond this drive.
                if place.end() <= drive.facts.size_bytes {
                    windows.push(place);
                }
            }
            let is_reported = !windows.is_empty();
            tracked.reading_reported.clone_from(&windows);
            // In another order each time: the time may not suffice for all of them.
            let mut ranges = unreadable.ranges().to_vec();
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
}

/// Returns the time until known ranges are read again. Pure.
pub(super) fn next_interval(last: Duration, changed: bool) -> Duration {
    if changed {
        return READ_AGAIN;
    }
    (last * 2).clamp(READ_AGAIN, READ_AGAIN_MOST)
}

/// Returns the reported places that a read did not reach, all if it failed: a drive does not report the entries of its logs
/// twice. Pure.
pub(super) fn not_reached(mut reported: Vec<Extent>, result: Option<&WindowRead>) -> Vec<Extent> {
    if let Some(result) = result {
        reported.retain(|place| {
            let mut done = result.done.iter();
            !done.any(|done| (done.start..done.end()).contains(&place.start))
        });
    }
    reported
}

/// Returns a window extended to the blocks that are read together with it.
fn around(window: Extent) -> Extent {
    let start = window.start - window.start % 4096;
    Extent {
        start,
        len: (window.end() - start).div_ceil(4096).saturating_mul(4096),
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
        // A rotating drive that is not used may be in standby.
        if sleeps && !is_reported && before.is_some() && before == completed_before {
            return Done::Read {
                result: None,
                completed: before,
            };
        }
        let run = volumes
            .node()
            .pool()
            .run((&id, Slot::Background), job, READ_DEADLINE);
        let result = run.await;
        let result = match result {
            Ok(result) => Some(result),
            Err(error) => {
                tracing::debug!(drive = %id, error = %chain(&error), "reading suspected sectors failed");
                None
            }
        };
        Done::Read {
            result,
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
        let mut seconds = Vec::new();
        for changed in [true, false, false, false, false, false, true] {
            every = next_interval(every, changed);
            seconds.push(every.as_secs());
        }
        assert_eq!(seconds, [60, 120, 240, 480, 600, 600, 60]);
    }

    #[test]
    fn what_a_read_did_not_reach_is_read_the_next_time() {
        let extent = |start, len| Extent { start, len };
        let reported = vec![
            extent(4096, 4096),
            extent(8192, 4096),
            extent(1 << 30, 4096),
        ];
        let result = WindowRead {
            done: vec![extent(4096, 4096), extent(0, 512)],
            failed: vec![extent(4096, 512)],
        };
        assert_eq!(
            not_reached(reported.clone(), Some(&result)),
            [extent(8192, 4096), extent(1 << 30, 4096)]
        );
        // Nothing was learned: a failed job is no evidence about the drive.
        assert_eq!(not_reached(reported.clone(), None), reported);
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
