//! Samples each drive at intervals: reads a little of it past the cache, samples its filesystems, and
//! compares its volumes' devices with what the last scan found.
//!
//! Jobs on a drive run in a worker that drives share, and once the drive is too slow for that one in its own background
//! slot, where a hang is detected as a stall. A rotating drive that was not used since the last sample is not woken.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::collected::CollectedEvidence;
use drivebay_evidence::{
    device::{self, Debounced},
    reading,
    registry::Source,
};
use drivebay_fs::jobs::{Device, Stats, Usage};
use drivebay_model::{
    Drive, DriveId, DriveRef, DriveState, Extent, Media, Mode, Snapshot,
    cause::chain,
    condition::{Condition, Reason},
};
use drivebay_node::{
    tasks::Tasks,
    volumes::{Volumes, stats::unreadable},
};
use drivebay_sys::{
    blockstat::{SYSFS_DEADLINE, completed},
    offload::offload,
};
use drivebay_worker::{
    RunError,
    read::{ReadError, ReadSample},
};

/// Interval of sampling a drive.
const EVERY: Duration = Duration::from_secs(60);
/// Limit of drives that are sampled concurrently.
const AT_ONCE: usize = 8;
/// Interval of checking which drives are due.
const TICK: Duration = Duration::from_secs(2);
/// Interval of comparing devices, in ticks.
const DEVICES_EVERY: u32 = 5;
/// Limit of one read. A drive that recovers a bad sector takes several seconds, and reports it in the end.
const READ_DEADLINE: Duration = Duration::from_secs(60);
/// Limit of one statfs, including the wait for the slot.
const STATS_DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
struct Tracked {
    due: Option<Instant>,
    sampling: bool,
    // Number of completed requests after the last sample.
    completed: Option<u64>,
}

/// Sample of one drive to take.
struct Task {
    id: DriveId,
    drive: DriveRef,
    sleeps: bool,
    completed: Option<u64>,
    place: u64,
    filesystems: Vec<(Uuid, Stats)>,
}

/// Result of one sample.
#[derive(Debug, Default)]
struct Sampled {
    completed: Option<u64>,
    usages: Vec<(Uuid, Usage)>,
}

/// Samples drives and compares devices until `stop`.
pub async fn run(volumes: Volumes, evidence: CollectedEvidence, stop: CancellationToken) {
    let mut drives: BTreeMap<DriveId, Tracked> = BTreeMap::new();
    let mut samples: Tasks<DriveId, Sampled> = Tasks::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut debounced, mut count) = (Debounced::default(), 0u32);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                let snapshot = volumes.node().inventory().current();
                if count.is_multiple_of(DEVICES_EVERY) {
                    compare_devices(&volumes, &snapshot, &mut debounced).await;
                }
                count = count.wrapping_add(1);
                follow(&mut drives, &snapshot);
                let most = AT_ONCE.saturating_sub(samples.count());
                for task in due(&volumes, &mut drives, &snapshot, most) {
                    samples.spawn(task.id.clone(), sample_drive(volumes.clone(), evidence.clone(), task));
                }
            }
            Some((id, result)) = samples.next() => match result {
                Some(result) => take(&volumes, &mut drives, &id, result),
                None => if let Some(tracked) = drives.get_mut(&id) {
                    tracked.sampling = false;
                },
            },
        }
    }
}

/// Adds new drives, and removes those that are no longer present.
fn follow(drives: &mut BTreeMap<DriveId, Tracked>, snapshot: &Snapshot) {
    let here = |drive: &Drive| drive.state.is_present();
    drives.retain(|id, tracked| tracked.sampling || snapshot.drives.get(id).is_some_and(here));
    for (id, _) in snapshot.drives.iter().filter(|(_, drive)| is_ours(drive)) {
        drives.entry(id.clone()).or_insert_with(|| Tracked {
            // Spread over time for drives that appear together.
            due: Some(Instant::now() + Duration::from_secs(10).mul_f64(fastrand::f64())),
            ..Tracked::default()
        });
    }
}

fn is_ours(drive: &Drive) -> bool {
    drive.state == DriveState::Claimed
}

fn due(
    volumes: &Volumes,
    drives: &mut BTreeMap<DriveId, Tracked>,
    snapshot: &Snapshot,
    most: usize,
) -> Vec<Task> {
    let now = Instant::now();
    let ready = drives
        .iter_mut()
        .filter(|(_, tracked)| !tracked.sampling && tracked.due.is_some_and(|due| due <= now));
    ready
        .filter_map(|(id, tracked)| {
            let drive = snapshot.drives.get(id).filter(|drive| is_ours(drive))?;
            tracked.due = Some(now + EVERY.mul_f64(fastrand::f64().mul_add(0.2, 0.9)));
            tracked.sampling = true;
            let place = reading::place(drive, fastrand::f64(), fastrand::f64());
            Some(Task {
                id: id.clone(),
                drive: DriveRef::from(&drive.facts),
                sleeps: drive.facts.media == Media::Hdd,
                completed: tracked.completed,
                place,
                filesystems: filesystems(volumes, snapshot, id),
            })
        })
        .take(most)
        .collect()
}

/// Returns the drive's mounted filesystems, each with one of its paths.
fn filesystems(volumes: &Volumes, snapshot: &Snapshot, drive: &DriveId) -> Vec<(Uuid, Stats)> {
    let here = snapshot.volumes.values().filter(|volume| {
        volume.drive == *drive && volume.in_use && volume.placed.record.mode == Mode::Mount
    });
    here.filter_map(|volume| {
        let path: PathBuf = volumes.node().expected().path_of(volume.uuid)?;
        let job = Stats {
            path,
            device: Device::of(&volume.placed)?,
            block: false,
        };
        Some((volume.uuid, job))
    })
    .collect()
}

async fn sample_drive(volumes: Volumes, evidence: CollectedEvidence, task: Task) -> Sampled {
    let Task {
        id, drive, place, ..
    } = task;
    let name = drive.kernel_name.clone();
    let before = completed(name.clone()).await;
    let unused = before.is_some() && before == task.completed;
    if task.sleeps && unused {
        return Sampled {
            completed: before,
            ..Sampled::default()
        };
    }
    let mut result = Sampled::default();
    let sample = ReadSample {
        drive: drive.clone(),
        offset: place,
        len: reading::SAMPLE,
    };
    match volumes.run_sample(&id, sample, READ_DEADLINE).await {
        Ok(_) => {}
        Err(RunError::Job(error @ (ReadError::Read { .. } | ReadError::Short { .. }))) => {
            tracing::warn!(drive = %id, error = %chain(&error), "drive read check failed");
            let (start, len) = (place, u64::from(reading::SAMPLE));
            evidence.suspects().add(&id, Extent { start, len });
        }
        // It was not read, which is no evidence. A drive that hangs is detected as a stall.
        Err(error) => {
            tracing::debug!(drive = %id, error = %chain(&error), "drive read check skipped");
        }
    }
    for (volume, stats) in task.filesystems {
        let Some(_turn) = volumes.may_sample(volume).await else {
            continue;
        };
        match volumes.run_sample(&id, stats, STATS_DEADLINE).await {
            Ok(usage) => result.usages.push((volume, usage)),
            Err(RunError::Job(error)) => {
                tracing::debug!(%volume, error = %chain(&error), "volume statistics sample failed");
            }
            Err(error) => {
                tracing::debug!(drive = %id, error = %chain(&error), "volume statistics samples of the drive failed");
                break;
            }
        }
    }
    result.completed = completed(name).await;
    result
}

fn take(volumes: &Volumes, drives: &mut BTreeMap<DriveId, Tracked>, id: &DriveId, result: Sampled) {
    let Some(tracked) = drives.get_mut(id) else {
        return;
    };
    tracked.sampling = false;
    tracked.completed = result.completed;
    let snapshot = volumes.node().inventory().current();
    let inventory = volumes.node().inventory();
    let here = snapshot
        .volumes
        .values()
        .filter(|volume| volume.drive == *id);
    let here: Vec<Uuid> = here.map(|volume| volume.uuid).collect();
    let mut reading: BTreeMap<Uuid, Vec<Condition>> = BTreeMap::new();
    for volume in &here {
        let mut conditions: Vec<Condition> = Vec::new();
        match result.usages.iter().find(|(sampled, _)| sampled == volume) {
            Some((_, usage)) => conditions.extend(unreadable(usage)),
            // Not sampled now: the earlier result about its filesystem stays, as long as it is mounted.
            None => conditions.extend(inventory.health(|registry| {
                let mounted = snapshot
                    .volumes
                    .get(volume)
                    .is_some_and(|volume| volume.in_use);
                let previous = registry.conditions_of(*volume, Source::Reading).iter();
                let previous =
                    previous.filter(|condition| mounted && condition.reason == Reason::Unreadable);
                previous.cloned().collect::<Vec<_>>()
            })),
        }
        if !conditions.is_empty() {
            reading.insert(*volume, conditions);
        }
    }
    volumes
        .node()
        .inventory()
        .record_conditions(Source::Reading, here.into_iter(), reading);
    for (volume, usage) in result.usages {
        volumes.take_sample(volume, usage);
    }
}

async fn compare_devices(volumes: &Volumes, snapshot: &Snapshot, debounced: &mut Debounced) {
    let compared = device::volumes_to_check(snapshot);
    if compared.is_empty() && debounced.is_empty() {
        return;
    }
    let comparison = offload("devices", SYSFS_DEADLINE, move || {
        let conditions = compared.into_iter().map(|(volume, placed)| {
            let name = placed.device.as_deref().unwrap_or_default();
            let state = device::read(Path::new("/sys"), name)?;
            Ok((volume, device::judge(&placed, state.as_ref())))
        });
        conditions.collect::<std::io::Result<BTreeMap<_, _>>>()
    });
    let mut by_volume = match comparison.await.and_then(|result| result) {
        Ok(by_volume) => by_volume,
        Err(error) => {
            tracing::warn!(%error, "cannot inspect volume devices; will retry");
            return;
        }
    };
    // Dropped if the device that was compared has changed since, or a call is changing it.
    let now = volumes.node().inventory().current();
    by_volume.retain(|volume, conditions| {
        let placed = |of: &Snapshot| of.volumes.get(volume).map(|volume| volume.placed.clone());
        !conditions.is_empty() && placed(snapshot) == placed(&now) && !volumes.is_changing(*volume)
    });
    let wrong = debounced.update(by_volume);
    volumes.node().inventory().record_conditions(
        Source::Device,
        now.volumes.keys().copied(),
        wrong,
    );
}
