//! Runs filesystem checks when they are due, keeps their results, and records them in the health registry.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use drivebay_evidence::registry::Source;
use drivebay_fs::{
    check::{
        plan::{Facts, Plan, plan},
        schedule::{Situation, due},
        verdict,
    },
    kind, mounts,
};
use drivebay_model::{
    CheckOutcome, Checked, Drive, DriveId, DriveRef, DriveState, FsType, Layout, Mode, RecordState,
    Snapshot, Verdict, Volume, VolumeState, Zeroing, cause::chain,
};
use drivebay_node::{
    state::{StateFile, checked},
    tasks::Tasks,
    volumes::{Volumes, checks::Ended},
};
use drivebay_sys::{clock::unix_seconds, mountinfo};

/// Interval of checking what is due.
const TICK: Duration = Duration::from_secs(1);
/// Limit of concurrent checks on the node; on one drive there is one.
const AT_ONCE: usize = 2;
/// Delay before parting the left-over snapshots of a drive is retried after a failure.
const CLEAR_AGAIN: Duration = Duration::from_secs(30);
/// Delay until a check that panicked is started again, since it may panic again.
const PANICKED_AGAIN: Duration = Duration::from_secs(3600);

/// State of a volume's checks.
#[derive(Debug)]
struct Tracked {
    fs_type: FsType,
    /// State file of `checked`.
    file: StateFile<Checked>,
    checked: Checked,
    in_use: bool,
    /// Time at which it was found unmounted, unless a check has begun since.
    unmounted: Option<u64>,
    /// True if the kernel log has errors of its filesystem.
    suspected: bool,
    /// True if those errors were reported after the last check began.
    news: bool,
    running: bool,
    /// No check begins before this.
    not_before: Option<Instant>,
    /// The latest outcome no longer counts for planning, since the volume was mounted or unmounted after it.
    stale: bool,
}

/// Result of a task.
enum Done {
    Checked(Option<Ended>),
    Cleared(bool),
}

/// Tasks by the drive that they occupy, and the volume that is checked.
type Running = Tasks<(DriveId, Option<Uuid>), Done>;

/// State of all volumes and drives.
#[derive(Default)]
struct Followed {
    volumes: BTreeMap<Uuid, Tracked>,
    /// Drives on which no left-over snapshot is attached to its volume, as far as is known.
    clear: BTreeSet<DriveId>,
    /// Drives with a task.
    busy: BTreeSet<DriveId>,
    /// Drives on which no snapshots are parted before this.
    later: BTreeMap<DriveId, Instant>,
}

impl Followed {
    /// Handles a task that panicked and may have left its snapshot. Other volumes of the drive are checked meanwhile.
    fn panicked(&mut self, drive: DriveId, volume: Option<Uuid>, now: Instant) {
        self.busy.remove(&drive);
        self.clear.remove(&drive);
        self.later.insert(drive, now + CLEAR_AGAIN);
        if let Some(tracked) = volume.and_then(|uuid| self.volumes.get_mut(&uuid)) {
            tracked.running = false;
            tracked.not_before = Some(now + PANICKED_AGAIN);
        }
    }
}

impl Tracked {
    fn waits(&self, now: Instant) -> bool {
        self.running || self.not_before.is_some_and(|at| now < at)
    }
}

/// Runs checks until `stop`.
pub async fn run(volumes: Volumes, stop: CancellationToken) {
    let mut followed = Followed::default();
    let mut tasks = Running::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                // The tasks end and remove what they made; the pool waits for that, within limits.
                volumes.call_off_checks();
                tasks.detach_all();
                return;
            }
            _ = ticks.tick() => {
                let snapshot = volumes.node().inventory().current();
                if snapshot.ready {
                    follow(&volumes, &mut followed, &snapshot).await;
                    clear(&volumes, &mut followed, &mut tasks, &snapshot);
                    begin(&volumes, &mut followed, &mut tasks, &snapshot);
                }
            }
            Some(((drive, volume), done)) = tasks.next() => match done {
                Some(done) => take(&volumes, &mut followed, drive, volume, done).await,
                None => {
                    followed.panicked(drive, volume, Instant::now());
                    if let Some(uuid) = volume {
                        volumes.answer_check(uuid, None);
                    }
                }
            }
        }
    }
}

/// Returns type and UUID of the filesystem on a volume, if Drivebay has made and mounted it and the volume is ready.
fn filesystem(volume: &Volume) -> Option<(FsType, Uuid)> {
    match (&volume.placed.record.state, volume.placed.record.mode) {
        (
            RecordState::Fs {
                fs_type,
                fs_uuid,
                mounted: true,
            },
            Mode::Mount,
        ) if volume.state == VolumeState::Ready => Some((*fs_type, *fs_uuid)),
        _ => None,
    }
}

/// Adds new volumes, removes deleted ones with their state files, and updates the state of the others.
async fn follow(volumes: &Volumes, followed: &mut Followed, snapshot: &Snapshot) {
    let gone: Vec<Uuid> = followed
        .volumes
        .iter()
        .filter(|(uuid, tracked)| !tracked.running && !is_there(snapshot, **uuid))
        .map(|(uuid, _)| *uuid)
        .collect();
    for uuid in gone {
        let Some(tracked) = followed.volumes.remove(&uuid) else {
            continue;
        };
        volumes
            .node()
            .inventory()
            .update(|state| state.checked.remove(&uuid));
        if let Err(error) = tracked.file.remove().await {
            tracing::warn!(volume = %uuid, %error, "cannot remove the check result of a deleted volume");
        }
    }
    let now = unix_seconds();
    let unmounted = volumes.unmounted();
    for volume in snapshot.volumes.values() {
        let Some((fs_type, fs_uuid)) = filesystem(volume) else {
            continue;
        };
        let suspected = volumes
            .node()
            .inventory()
            .health(|registry| registry.speaks_against_filesystem(volume.uuid));
        match followed.volumes.get_mut(&volume.uuid) {
            Some(tracked) if tracked.checked.fs_uuid == fs_uuid => {
                if let Some(earlier) = tracked.file.read_again().await
                    && earlier.fs_uuid == fs_uuid
                {
                    tracked.checked.follow(earlier);
                    record(volumes, volume.uuid, &tracked.checked, fs_type);
                }
                tracked.news |= suspected && !tracked.suspected;
                tracked.suspected = suspected;
                let left = unmounted.contains(&volume.uuid);
                tracked.stale |= left || (volume.in_use && !tracked.in_use);
                if volume.in_use {
                    tracked.unmounted = None;
                } else if left || tracked.in_use {
                    tracked.unmounted = Some(now);
                }
                tracked.in_use = volume.in_use;
            }
            _ => {
                // A file that cannot be read is a finding of the host; the volume counts as never checked.
                let file = checked::file(volumes.node().state_dir(), volume.uuid);
                let kept = file.load().await;
                let checked = kept
                    .ok()
                    .flatten()
                    .filter(|kept| kept.fs_uuid == fs_uuid)
                    .unwrap_or_else(|| Checked::never(fs_uuid));
                record(volumes, volume.uuid, &checked, fs_type);
                let tracked = Tracked {
                    fs_type,
                    file,
                    checked,
                    in_use: volume.in_use,
                    unmounted: unmounted.contains(&volume.uuid).then_some(now),
                    suspected,
                    news: suspected,
                    running: false,
                    not_before: None,
                    stale: false,
                };
                followed.volumes.insert(volume.uuid, tracked);
            }
        }
    }
}

/// True if a volume exists and is not being erased; a missing one exists, too.
fn is_there(snapshot: &Snapshot, uuid: Uuid) -> bool {
    snapshot
        .volumes
        .get(&uuid)
        .is_some_and(|volume| volume.state != VolumeState::Erasing)
}

/// Parts left-over snapshots from their volumes on drives that are new, or where a check or deletion left some.
fn clear(volumes: &Volumes, followed: &mut Followed, tasks: &mut Running, snapshot: &Snapshot) {
    let littered = volumes.littered();
    followed
        .clear
        .retain(|id| snapshot.drives.contains_key(id) && !littered.contains(id));
    let now = Instant::now();
    followed.later.retain(|_, at| *at > now);
    for drive in snapshot.drives.values() {
        let lvm = layout(drive) == Some(Layout::Lvm);
        // Also on a BAD drive, which may leave once it is erased.
        if !lvm
            || drive.state != DriveState::Claimed
            || drive.trouble.is_some()
            || followed.clear.contains(&drive.id)
            || followed.later.contains_key(&drive.id)
            || !followed.busy.insert(drive.id.clone())
        {
            continue;
        }
        let (volumes, drive) = (volumes.clone(), DriveRef::from(&drive.facts));
        tasks.spawn((drive.id.clone(), None), async move {
            Done::Cleared(volumes.part_snapshots(&drive).await)
        });
    }
}

fn layout(drive: &Drive) -> Option<Layout> {
    drive.contents.as_ref().map(|contents| contents.layout)
}

/// True if the space of deleted snapshots is being erased on the drive.
fn is_erasing_stores(drive: &Drive) -> bool {
    let contents = drive.contents.as_ref();
    contents.is_some_and(|contents| {
        !contents.deleted_stores.is_empty() && contents.space.zeroing != Zeroing::Fails
    })
}

/// Returns the reason why nothing is read from a drive now.
fn trouble(drive: &Drive) -> Option<&str> {
    if drive.state != DriveState::Claimed || drive.contents.is_none() {
        Some("its drive cannot be reached now")
    } else if drive.trouble.is_some() {
        Some("its drive does not answer")
    } else if drive.health.verdict == Verdict::Bad {
        Some(
            "its drive is failing: reading all of its metadata could be too much; save the data first",
        )
    } else {
        None
    }
}

/// Begins checks that are due, within the limits.
fn begin(
    volumes: &Volumes,
    followed: &mut Followed,
    tasks: &mut Running,
    snapshot: &Arc<Snapshot>,
) {
    let config = &volumes.node().config().checks;
    let now = Instant::now();
    for (uuid, tracked) in &mut followed.volumes {
        let Some(volume) = snapshot.volumes.get(uuid) else {
            continue;
        };
        let Some(drive) = snapshot.drives.get(&volume.drive) else {
            continue;
        };
        let waits = tasks.count() >= AT_ONCE
            || tracked.waits(now)
            || filesystem(volume).is_none()
            || followed.busy.contains(&drive.id)
            || (layout(drive) == Some(Layout::Lvm) && !followed.clear.contains(&drive.id));
        if waits {
            continue;
        }
        let situation = Situation {
            now: unix_seconds(),
            unmounted: tracked.unmounted,
            news: tracked.news,
            suspected: tracked.suspected || tracked.checked.is_corrupt(),
            requested: volumes.is_check_requested(*uuid),
            concluded: tracked.checked.conclusive.as_ref().map(|check| check.at),
            begun: tracked.checked.latest.as_ref().map(|check| check.at),
            share: share(*uuid),
        };
        let Some(occasion) = due(&config.rules, &situation) else {
            continue;
        };
        let plan = planned(volumes, volume, drive, tracked);
        // Each step of erasing reads the drive with repair, which removes a snapshot that the check has not opened yet.
        if matches!(plan, Plan::Snapshot { .. }) && is_erasing_stores(drive) {
            continue;
        }
        tracing::debug!(volume = %uuid, ?occasion, ?plan, "filesystem check due");
        tracked.running = true;
        followed.busy.insert(drive.id.clone());
        let (volumes, volume) = (volumes.clone(), volume.clone());
        let (drive, fs_type) = (DriveRef::from(&drive.facts), tracked.fs_type);
        tasks.spawn((drive.id.clone(), Some(*uuid)), async move {
            Done::Checked(volumes.check(&volume, &drive, fs_type, &plan).await)
        });
    }
}

/// Returns a number between 0 and 1, different for each volume and constant.
fn share(uuid: Uuid) -> f64 {
    let (high, _) = uuid.as_u64_pair();
    (high >> 32) as f64 / f64::from(u32::MAX)
}

fn planned(volumes: &Volumes, volume: &Volume, drive: &Drive, tracked: &Tracked) -> Plan {
    let has_scrub = kind::of(tracked.fs_type).facts().scrub().is_some();
    let at = (volume.in_use && has_scrub)
        .then(|| mounted_at(volume))
        .flatten();
    let class = volumes
        .node()
        .config()
        .classes
        .iter()
        .find(|class| class.name == volume.placed.record.class);
    let latest = tracked.checked.latest.as_ref().filter(|_| !tracked.stale);
    plan(&Facts {
        fs_type: Some(tracked.fs_type),
        layout: layout(drive).unwrap_or(Layout::Partition),
        in_use: volume.in_use,
        is_encrypted: volume.placed.record.encryption().is_some(),
        trouble: trouble(drive),
        free_bytes: drive
            .contents
            .as_ref()
            .map_or(0, |contents| contents.free_bytes()),
        bytes: volume.placed.record.extent.len,
        reserve_bytes: class.map_or(0, |class| class.check_reserve_bytes),
        mounted_at: at.as_deref(),
        last: latest.map(|check| &check.outcome),
        doubtful: volumes.node().config().checks.doubtful,
    })
}

/// Returns the path of a mount of the whole volume. Reads only the mount table.
fn mounted_at(volume: &Volume) -> Option<PathBuf> {
    let (_, dev) = volume.placed.used_device()?;
    let entries = mountinfo::read()
        .inspect_err(
            |error| tracing::warn!(error = %chain(error), "cannot read mountinfo; scrub skipped"),
        )
        .ok()?;
    entries
        .into_iter()
        .find(|entry| entry.root == std::path::Path::new("/") && mounts::is_mount_of(entry, dev))
        .map(|entry| entry.mount_point)
}

/// Processes the result of a task on a drive, or on a volume of it.
async fn take(
    volumes: &Volumes,
    followed: &mut Followed,
    drive: DriveId,
    volume: Option<Uuid>,
    done: Done,
) {
    followed.busy.remove(&drive);
    let (uuid, ended) = match (done, volume) {
        (Done::Checked(ended), Some(uuid)) => (uuid, ended),
        (Done::Cleared(true), _) => {
            followed.clear.insert(drive);
            return;
        }
        (Done::Cleared(false) | Done::Checked(_), _) => {
            followed.later.insert(drive, Instant::now() + CLEAR_AGAIN);
            return;
        }
    };
    let Some(tracked) = followed.volumes.get_mut(&uuid) else {
        return;
    };
    tracked.running = false;
    // Not begun, since a call had the volume. It stays due.
    let Some(ended) = ended else { return };
    if ended.litter {
        followed.clear.remove(&drive);
    }
    volumes.answer_check(uuid, ended.result.clone());
    // Called off: its occasion has passed, or comes again with the next unmount.
    let Some(check) = ended.result else { return };
    tracked.unmounted = None;
    tracked.news = false;
    tracked.stale = false;
    let before = tracked.checked.latest.as_ref().map(|check| &check.outcome);
    if before != Some(&check.outcome) {
        let (outcome, took_ms, tool) = (check.outcome.text(), check.took_ms, &check.tool);
        match &check.outcome {
            CheckOutcome::Corrupt { .. } => {
                tracing::error!(volume = %uuid, %drive, tool, took_ms, outcome, "filesystem check completed");
            }
            CheckOutcome::NotCheckable { .. } => {
                tracing::debug!(volume = %uuid, %drive, outcome, "filesystem check deferred");
            }
            _ => {
                tracing::info!(volume = %uuid, %drive, tool, took_ms, outcome, "filesystem check completed");
            }
        }
    }
    tracked.checked.take(check);
    record(volumes, uuid, &tracked.checked, tracked.fs_type);
    // A failure is logged, and a finding of the host.
    let _ = tracked.file.save(tracked.checked.clone()).await;
}

/// Records the result, and the condition that follows from it.
fn record(volumes: &Volumes, uuid: Uuid, checked: &Checked, fs_type: FsType) {
    let conditions = verdict::conditions(checked, fs_type);
    volumes.node().inventory().update(|state| {
        state.checked.insert(uuid, checked.clone());
        state.health.record(uuid, Source::Check, conditions);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_node::state::StateDir;

    #[test]
    fn a_check_that_panicked_is_begun_again_after_a_while() {
        let (drive, uuid) = (DriveId("serial-x".to_owned()), Uuid::from_u128(1));
        let mut followed = Followed::default();
        let tracked = Tracked {
            fs_type: FsType::Ext4,
            file: checked::file(&StateDir::new("/nowhere"), uuid),
            checked: Checked::never(Uuid::from_u128(2)),
            in_use: false,
            unmounted: None,
            suspected: false,
            news: false,
            running: true,
            not_before: None,
            stale: false,
        };
        followed.volumes.insert(uuid, tracked);
        followed.busy.insert(drive.clone());
        followed.clear.insert(drive.clone());
        let now = Instant::now();
        followed.panicked(drive.clone(), Some(uuid), now);

        assert!(followed.busy.is_empty(), "the drive's other volumes wait");
        assert!(followed.clear.is_empty() && followed.later.contains_key(&drive));
        let tracked = followed.volumes.get(&uuid);
        assert!(tracked.is_some_and(|one| one.waits(now) && !one.waits(now + PANICKED_AGAIN)));
    }
}
