//! NodeGetVolumeStats: one fresh sample within its deadline, else the last one and its age.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};
use uuid::Uuid;

use super::{STATS_DEADLINE, VolumeError, Volumes, samplers::Patience};
use drivebay_evidence::{mounts, registry::Source, space};
use drivebay_fs::jobs::{Device, FsError, Stats, Usage};
use drivebay_model::{
    DriveId, Mode, Volume, VolumeState,
    condition::{Condition, Reason},
};
use drivebay_sys::mountinfo;
use drivebay_worker::{Job, RunError, Slot};

/// Longest time for which a background sample may delay others with the same worker: longer than on any drive that
/// answers, except while one recovers a bad sector.
const SAMPLE_LIMIT: Duration = Duration::from_secs(2);
/// Longest time for which unmounting waits for a running sample: longer than on any drive that answers.
const TURN: Duration = Duration::from_secs(2);

/// Last sample of each volume, and the locks that order sampling and unmounting.
#[derive(Debug, Default)]
pub struct Samples {
    last: Mutex<HashMap<Uuid, (Usage, Instant)>>,
    // Read-locked while a mount point is open, write-locked while it is unmounted, which would fail as busy.
    turns: Mutex<HashMap<Uuid, Arc<tokio::sync::RwLock<()>>>>,
}

impl Samples {
    fn put(&self, uuid: Uuid, usage: Usage) {
        self.lock().insert(uuid, (usage, Instant::now()));
    }

    fn last(&self, uuid: Uuid) -> Option<(Usage, Duration)> {
        self.lock()
            .get(&uuid)
            .map(|(usage, at)| (usage.clone(), at.elapsed()))
    }

    /// Returns the last sample of every volume, with its age.
    pub fn all(&self) -> HashMap<Uuid, (Usage, Duration)> {
        self.lock()
            .iter()
            .map(|(uuid, (usage, at))| (*uuid, (usage.clone(), at.elapsed())))
            .collect()
    }

    /// Removes the sample and the lock of a volume.
    pub fn forget(&self, uuid: Uuid) {
        self.lock().remove(&uuid);
        self.turns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&uuid);
    }

    fn turn(&self, uuid: Uuid) -> Arc<tokio::sync::RwLock<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(uuid).or_default().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, (Usage, Instant)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answer to NodeGetVolumeStats. If no sample can be taken, `usage` is that of the last one, or, without one, only the size.
#[derive(Debug, Clone)]
pub struct Sample {
    pub usage: Usage,
    /// The volume with its current conditions.
    pub volume: Volume,
}

/// Derives conditions from a sample. Pure.
pub fn conditions(usage: &Usage) -> Vec<Condition> {
    let read_only = usage.read_only.then(|| {
        Condition::new(
            Reason::ReadOnly,
            "the filesystem turned read-only; see the kernel log, save the data, and check the filesystem",
        )
    });
    unreadable(usage).into_iter().chain(read_only).collect()
}

/// Returns the condition of a filesystem that cannot be read, by a sample; None when it can. Pure.
pub fn unreadable(usage: &Usage) -> Option<Condition> {
    let errno = usage.unreadable?;
    Some(Condition::new(
        Reason::Unreadable,
        format!(
            "the filesystem does not read ({}); see the kernel log, and check the drive",
            std::io::Error::from_raw_os_error(errno)
        ),
    ))
}

impl Volumes {
    /// Samples the volume at this path. Its conditions follow from our own records and from the sample; a path that is
    /// not the volume's is no evidence about it.
    pub async fn stats(&self, id: &str, path: &str) -> Result<Sample, VolumeError> {
        let volume = self.require(id)?;
        let uuid = volume.uuid;
        let Some(device) = Device::of(&volume.placed) else {
            return self.by_mounts(&volume, path);
        };
        let turn = self.inner.samples.turn(uuid).read_owned();
        let Ok(_turn) = tokio::time::timeout(STATS_DEADLINE, turn).await else {
            // Being unmounted: no evidence about the drive.
            return self.stale(&volume, path, None);
        };
        let block = volume.placed.record.mode == Mode::Block;
        let resolved = mountinfo::resolve(Path::new(path));
        let is_node = block && path.starts_with("/dev/");
        if !is_node && !self.is_at(&volume, &resolved)? {
            // The path is not accessed: it may be another's mount, and hang.
            return self.not_at(&volume, path, &resolved, "the volume is not mounted there");
        }
        let job = Stats {
            path: path.into(),
            device,
            block,
        };
        match self.sample(&volume.drive, job).await {
            Ok(usage) => {
                let mut observed = conditions(&usage);
                if self.meant_read_only(path) {
                    observed.retain(|condition| condition.reason != Reason::ReadOnly);
                }
                self.inner.samples.put(uuid, usage.clone());
                self.node.inventory().put_conditions(uuid, observed);
                self.record_space(uuid, &usage);
                Ok(Sample {
                    usage,
                    volume: self.require(id)?,
                })
            }
            Err(RunError::Job(FsError::NotHere { why, .. })) => {
                self.not_at(&volume, path, &resolved, &why)
            }
            // Only these are evidence that the drive does not answer; a busy worker, or one that ended, is not.
            Err(error @ (RunError::Deadline { .. } | RunError::Stuck { .. })) => {
                // At debug level: the drive's condition is logged once, and samples continue while it lasts.
                tracing::debug!(volume = %uuid, error = %drivebay_model::cause::chain(&error), "volume statistics sample failed; answering with the last one");
                let silent = Some(not_answering(&volume));
                self.stale(&self.require(id)?, path, silent)
            }
            Err(_) => self.stale(&self.require(id)?, path, None),
        }
    }

    /// True if the mount table has the volume at this path. Reads the table again before it returns false.
    fn is_at(&self, volume: &Volume, resolved: &Path) -> Result<bool, VolumeError> {
        let inventory = self.node.inventory();
        let is_known = || inventory.is_mounted_at(&volume.placed, resolved);
        if is_known() {
            return Ok(true);
        }
        // A parent directory may have been renamed.
        self.node.mounts().reread_of_volumes()?;
        Ok(is_known())
    }

    /// Answers for a volume that is not at this path: with a condition if our own records expect it there, else with
    /// the error `NotHere`.
    fn not_at(
        &self,
        volume: &Volume,
        path: &str,
        resolved: &Path,
        why: &str,
    ) -> Result<Sample, VolumeError> {
        let Some(role) = self.node.expected().role(volume.uuid, resolved) else {
            return Err(VolumeError::Fs(RunError::Job(FsError::NotHere {
                path: path.to_owned(),
                why: why.to_owned(),
            })));
        };
        let mut sample = self.stale(volume, path, None)?;
        let missing = mounts::missing(role, resolved);
        let current = &mut sample.volume.conditions;
        let is_reported = |condition: &Condition| {
            condition.reason == Reason::WrongDevice || condition.reason == missing.reason
        };
        if !current.iter().any(is_reported) {
            current.push(missing);
        }
        Ok(sample)
    }

    async fn sample(&self, drive: &DriveId, job: Stats) -> Result<Usage, RunError<FsError>> {
        let patience = Patience {
            shared: STATS_DEADLINE,
            own: STATS_DEADLINE,
            slot: Slot::Foreground,
        };
        let samplers = &self.inner.samplers;
        let done = self.sample_by(samplers, drive, job, patience).await;
        if let Err(error) = &done {
            self.node.record_stuck(drive, error);
        }
        done
    }

    /// Runs a job on a drive without a call for it, in the background slot.
    pub async fn run_sample<J: Job + Clone>(
        &self,
        drive: &DriveId,
        job: J,
        limit: Duration,
    ) -> Result<J::Answer, RunError<J::Error>> {
        let patience = Patience {
            shared: SAMPLE_LIMIT,
            own: limit,
            slot: Slot::Background,
        };
        self.sample_by(&self.inner.lookers, drive, job, patience)
            .await
    }

    /// Waits for permission to access the volume's filesystem without a call for it, held until dropped; None while a
    /// call is changing the volume.
    pub async fn may_sample(&self, uuid: Uuid) -> Option<OwnedRwLockReadGuard<()>> {
        let turn = self.inner.samples.turn(uuid).read_owned().await;
        (!self.is_changing(uuid)).then_some(turn)
    }

    /// Returns permission to open the volume's mount point, held until dropped; None while it is being unmounted.
    pub fn try_permit(&self, uuid: Uuid) -> Option<OwnedRwLockReadGuard<()>> {
        self.inner.samples.turn(uuid).try_read_owned().ok()
    }

    /// Waits, at most `TURN`, until no sample accesses the volume's filesystem. None begins until the result is
    /// dropped: an open mount point makes unmounting fail as busy. None is returned if a sample still runs.
    pub(super) async fn settle_samples(&self, uuid: Uuid) -> Option<OwnedRwLockWriteGuard<()>> {
        let turn = self.inner.samples.turn(uuid).write_owned();
        let settled = tokio::time::timeout(TURN, turn).await;
        if settled.is_err() {
            tracing::warn!(volume = %uuid, "volume statistics still in progress; unmounting anyway");
        }
        settled.ok()
    }

    /// Records the conditions of a volume's space, from a sample.
    fn record_space(&self, uuid: Uuid, usage: &Usage) {
        let inventory = self.node.inventory();
        let before =
            inventory.health(|registry| registry.conditions_of(uuid, Source::Space).to_vec());
        // A filesystem that cannot be read gives no evidence about its space.
        if usage.unreadable.is_some() || usage.total_bytes == 0 {
            return;
        }
        let snapshot = inventory.current();
        let Some(volume) = snapshot.volumes.get(&uuid) else {
            return;
        };
        let wrong = space::judge(volume.placed.record.mode, usage, &before);
        inventory.record_conditions(Source::Space, std::iter::once(uuid), [(uuid, wrong)].into());
    }

    /// Stores a sample that was taken without a call.
    pub fn take_sample(&self, uuid: Uuid, usage: Usage) {
        if usage.unreadable.is_none() && !usage.read_only {
            self.node.inventory().put_conditions(uuid, Vec::new());
        }
        self.record_space(uuid, &usage);
        self.inner.samples.put(uuid, usage);
    }

    /// Returns the volume's conditions. Samples it if it is mounted at a given path; a path where it is not mounted is
    /// no evidence: mounting it there may only have been tried.
    pub async fn health(
        &self,
        id: &str,
        path: &str,
        staging: &str,
    ) -> Result<Vec<Condition>, VolumeError> {
        let volume = self.require(id)?;
        let mounted = |path: &&str| volume.mounts.iter().any(|at| at == path);
        if let Some(path) = [path, staging].iter().find(|path| mounted(path)) {
            match self.stats(id, path).await {
                Ok(sample) => return Ok(sample.volume.conditions),
                // Unmounted in between; the known conditions are still reported.
                Err(VolumeError::Fs(RunError::Job(FsError::NotHere { .. }))) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.require(id)?.conditions)
    }

    /// Answers from the mount table for a volume whose device is unknown: its drive was not scanned yet, is missing, or
    /// cannot be read.
    fn by_mounts(&self, volume: &Volume, path: &str) -> Result<Sample, VolumeError> {
        let resolved = mountinfo::resolve(Path::new(path));
        let is_mounted = self.node.mounts().count_at(&resolved) > 0;
        let is_scanned = volume.state != VolumeState::NotScanned;
        let role = self.node.expected().role(volume.uuid, &resolved);
        match (role, is_mounted) {
            // The owner of the mount is not known yet.
            (None, true) if !is_scanned => Err(VolumeError::NotScanned {
                uuid: volume.uuid,
                drive: volume.drive.clone(),
            }),
            (_, true) => self.stale(volume, path, None),
            (_, false) => self.not_at(volume, path, &resolved, "nothing is mounted there"),
        }
    }

    /// Returns the last sample or, without one, only the size: a volume's conditions must be visible, and the kubelet
    /// ignores a volume without usage. `otherwise`: condition if no other is known.
    fn stale(
        &self,
        volume: &Volume,
        path: &str,
        otherwise: Option<Condition>,
    ) -> Result<Sample, VolumeError> {
        if !path.starts_with('/') {
            return Err(VolumeError::NotFound {
                id: format!("{} at {path}", volume.uuid),
            });
        }
        let mut volume = volume.clone();
        if volume.conditions.is_empty() {
            volume.conditions.extend(otherwise);
        }
        let last = self.inner.samples.last(volume.uuid).map(|(usage, _)| usage);
        Ok(Sample {
            usage: last.unwrap_or(Usage {
                total_bytes: volume.placed.record.size_bytes(),
                available_bytes: 0,
                used_bytes: 0,
                inodes: None,
                read_only: false,
                unreadable: None,
            }),
            volume,
        })
    }
}

fn not_answering(volume: &Volume) -> Condition {
    Condition::new(
        Reason::NoAnswer,
        format!("drive {} did not answer in time; check it", volume.drive),
    )
}
