//! NodeGetVolumeStats: one fresh sample within its deadline, else the last one and its age.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{STATS_DEADLINE, VolumeError, Volumes};
use crate::{
    fs::jobs::{FsError, Stats, Usage},
    model::{Mode, Volume, snapshot::Trouble},
    worker::{RunError, Slot},
};

/// The last sample of each volume.
#[derive(Debug, Default)]
pub struct Samples(Mutex<HashMap<Uuid, (Usage, Instant)>>);

impl Samples {
    fn put(&self, uuid: Uuid, usage: Usage) {
        self.lock().insert(uuid, (usage, Instant::now()));
    }

    fn last(&self, uuid: Uuid) -> Option<(Usage, Duration)> {
        self.lock()
            .get(&uuid)
            .map(|(usage, at)| (usage.clone(), at.elapsed()))
    }

    /// Every volume's, with its age.
    pub fn all(&self) -> HashMap<Uuid, (Usage, Duration)> {
        self.lock()
            .iter()
            .map(|(uuid, (usage, at))| (*uuid, (usage.clone(), at.elapsed())))
            .collect()
    }

    /// Forgets a volume.
    pub fn forget(&self, uuid: Uuid) {
        self.lock().remove(&uuid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, (Usage, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What NodeGetVolumeStats knows.
#[derive(Debug, Clone)]
pub struct Sample {
    /// How full it is.
    pub usage: Usage,
    /// The volume with the troubles known now.
    pub volume: Volume,
}

/// What a sample shows to be wrong. Pure.
pub fn troubles(usage: &Usage, staging_given: bool) -> Vec<Trouble> {
    let mut found = Vec::new();
    let mut add = |status: &str, reason: &str, message: String| {
        found.push(Trouble {
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
        });
    };
    if staging_given && !usage.staged {
        add(
            "INACCESSIBLE",
            "StagingMountMissing",
            "the staging path is not mounted any more; delete the pod so that the volume is mounted again".to_owned(),
        );
    }
    if let Some(errno) = usage.unreadable {
        add(
            "INACCESSIBLE",
            "Unreadable",
            format!(
                "the filesystem does not read ({}); see the kernel log, and check the drive",
                std::io::Error::from_raw_os_error(errno)
            ),
        );
    }
    if usage.read_only {
        add(
            "DEGRADED",
            "ReadOnly",
            "the filesystem turned read-only; see the kernel log, save the data, and check the filesystem".to_owned(),
        );
    }
    found
}

impl Volumes {
    /// Samples the volume at this path.
    pub async fn stats(
        &self,
        id: &str,
        path: &str,
        staging: Option<&str>,
    ) -> Result<Sample, VolumeError> {
        let volume = self.require(id)?;
        let uuid = volume.uuid;
        let (Some(dev), Some(device)) = (volume.placed.dev, volume.placed.device.clone()) else {
            return self.stale(&volume, path);
        };
        let job = Stats {
            path: path.into(),
            staging_path: staging.map(Into::into),
            dev,
            device,
            block: volume.placed.record.mode == Mode::Block,
        };
        match self
            .inner
            .pool
            .run(&volume.drive, Slot::Foreground, job, STATS_DEADLINE)
            .await
        {
            Ok(usage) => {
                let mut found = troubles(&usage, staging.is_some());
                if self.meant_read_only(&volume, path) {
                    found.retain(|trouble| trouble.reason != "ReadOnly");
                }
                self.inner.samples.put(uuid, usage.clone());
                self.inner.inventory.put_troubles(uuid, found);
                Ok(Sample {
                    usage,
                    volume: self.require(id)?,
                })
            }
            Err(RunError::Job(error @ FsError::NotHere { .. })) => {
                Err(VolumeError::Fs(RunError::Job(error)))
            }
            Err(error) => {
                self.note_stuck(&volume.drive, &error);
                match self.inner.samples.last(uuid) {
                    Some((usage, age)) => {
                        tracing::warn!(volume = %uuid, age_s = age.as_secs(), error = %crate::model::cause::chain(&error), "no fresh sample; answering with the last");
                        let mut volume = self.require(id)?;
                        if volume.troubles.is_empty() {
                            volume.troubles.push(not_answering(&volume));
                        }
                        Ok(Sample { usage, volume })
                    }
                    None => self.stale(&volume, path).or(Err(VolumeError::Fs(error))),
                }
            }
        }
    }

    /// Without a sample there is still the size: a known volume's trouble must be seen, and without
    /// usage the kubelet never looks at it.
    fn stale(&self, volume: &Volume, path: &str) -> Result<Sample, VolumeError> {
        if !path.starts_with('/') {
            return Err(VolumeError::NotFound {
                id: format!("{} at {path}", volume.uuid),
            });
        }
        let mut volume = volume.clone();
        if volume.troubles.is_empty() {
            volume.troubles.push(not_answering(&volume));
        }
        let last = self.inner.samples.last(volume.uuid).map(|(usage, _)| usage);
        Ok(Sample {
            usage: last.unwrap_or(Usage {
                total_bytes: volume.placed.record.extent.len,
                available_bytes: 0,
                used_bytes: 0,
                inodes: None,
                read_only: false,
                unreadable: None,
                staged: true,
            }),
            volume,
        })
    }
}

fn not_answering(volume: &Volume) -> Trouble {
    Trouble {
        status: "INACCESSIBLE".to_owned(),
        reason: "NoAnswer".to_owned(),
        message: format!("drive {} did not answer in time; check it", volume.drive),
    }
}
