//! Suspends volumes for snapshots of one point in time, and resumes volumes that were left suspended.
//!
//! A suspend does not end while the drive does not answer, even if its worker is killed, and the volume is suspended once the drive
//! answers. Resuming is therefore repeated in the same worker: either the one that suspended the volume, which resumes it itself as long as
//! it lives, or its replacement, which starts only after the first has ended. If neither reports a suspended volume, there is none.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::volumes::{VolumeError, Volumes};
use drivebay_layout::jobs::{
    LayoutError, Member, ResumeLeft, SUSPENDED, TakeTogether, TakenTogether,
};
use drivebay_model::{DriveRef, cause::chain};
use drivebay_worker::{Job, JobTarget, Lane, RunError, Slot, WorkerKey};

/// Includes locking all drives, and the time that slow drives take to answer.
const TOGETHER_DEADLINE: Duration = Duration::from_secs(60);
/// Includes 10 s for the locks of drives, and 5 s for a drive that does not answer.
const RESUME_DEADLINE: Duration = Duration::from_secs(20);
/// Pause between attempts to resume; shorter than the time after which an idle worker exits.
const AGAIN: Duration = Duration::from_secs(3);
/// Group of the workers whose jobs suspend or resume volumes of several drives.
const WORKERS: &str = "snapshots";
/// Group of the workers that resume volumes while a worker of `WORKERS` is blocked.
const SUBSTITUTES: &str = "resume";

/// Result of an attempt to resume.
enum Attempt {
    /// No volume is suspended.
    Done,
    /// Reason why a volume may still be suspended.
    Failed(String),
    /// The agent is stopping; the next one resumes the volumes at its start.
    Stopping,
}

impl Volumes {
    /// Restarts the snapshots of a group at one point in time. `drives`: those of the members, ordered by id. After an error all volumes
    /// are resumed, or will be when their drive answers.
    pub(super) async fn suspend_together(
        &self,
        group: Uuid,
        drives: Vec<DriveRef>,
        members: Vec<Member>,
    ) -> Result<TakenTogether, VolumeError> {
        let devices = members.iter().flat_map(|one| {
            let devices = [Some(&one.origin), Some(&one.snapshot), one.mapping.as_ref()];
            devices.into_iter().flatten().cloned()
        });
        let only = devices.collect();
        let job = TakeTogether {
            drives,
            members,
            patience_ms: SUSPENDED.as_millis() as u64,
        };
        let worker = WorkerKey::of_group(WORKERS, Slot::Foreground).on(Lane::Volume(group));
        let taken = self.run_suspending(worker, job, TOGETHER_DEADLINE, Some(only));
        Ok(taken.await?)
    }

    /// Runs a job that suspends volumes itself. Errs with `Stopping` while the agent stops. After another error all volumes are resumed, or
    /// will be when their drive answers. `only`: the devices that the job suspends, by their device-mapper uuids; None: they are not known,
    /// and all of Drivebay's are resumed.
    pub(in crate::volumes) async fn run_suspending<J>(
        &self,
        worker: WorkerKey,
        job: J,
        limit: Duration,
        only: Option<Vec<String>>,
    ) -> Result<J::Answer, RunError<LayoutError>>
    where
        J: Job<Error = LayoutError>,
    {
        let suspending = &self.inner.snapshots.suspending;
        let _suspends = suspending.token();
        if suspending.is_closed() {
            return Err(RunError::Stopping);
        }
        let taken = self.node.run(worker.clone(), job, limit).await;
        match &taken {
            Ok(_) => {}
            // The other volumes are resumed; this drive is handled in the background.
            Err(RunError::Job(error @ LayoutError::StillSuspended { .. })) => {
                self.keep_resuming(worker, only, chain(error));
            }
            Err(RunError::Job(_)) => {}
            // The worker died, perhaps before it had resumed all volumes.
            Err(_) => self.resume(worker, only).await,
        }
        taken
    }

    /// Resumes volumes that an earlier agent and its workers left suspended. Must be called before the first job of an agent.
    pub async fn resume_left(&self) {
        let worker = WorkerKey::of_group(WORKERS, Slot::Foreground);
        // Workers of an earlier agent that cannot end because a drive does not answer.
        let left = self.node.pool().status().into_iter().map(|slot| slot.key);
        let left = left.filter(|key| key.target == worker.target && *key != worker);
        for key in left.collect::<Vec<_>>() {
            let why = "a worker of an earlier agent has not ended".to_owned();
            self.keep_resuming(key, None, why);
        }
        self.resume(worker, None).await;
    }

    /// Resumes devices: `only` these, by their device-mapper uuids; None: all of Drivebay's. After a failed attempt this is repeated in the
    /// background.
    async fn resume(&self, worker: WorkerKey, only: Option<Vec<String>>) {
        if let Attempt::Failed(why) = self.try_resume(&worker, only.as_ref()).await {
            self.keep_resuming(worker, only, why);
        }
    }

    /// Repeats resuming in the background until no device is suspended or the agent stops. `why`: reason of the last failure.
    fn keep_resuming(&self, worker: WorkerKey, only: Option<Vec<String>>, why: String) {
        tracing::error!(%worker, error = why, "volumes may be suspended; resuming them is repeated until it succeeds; check `dmsetup info` and the drives");
        let (this, mut why) = (self.clone(), why);
        self.inner.snapshots.suspending.spawn(async move {
            loop {
                sleep(AGAIN).await;
                match this.try_resume(&worker, only.as_ref()).await {
                    Attempt::Done => {
                        tracing::info!(%worker, "no volume is left suspended");
                        return;
                    }
                    Attempt::Stopping => return,
                    Attempt::Failed(next) => {
                        if next != why {
                            tracing::warn!(%worker, error = next, "volumes may still be suspended");
                        }
                        why = next;
                    }
                }
            }
        });
    }

    async fn try_resume(&self, worker: &WorkerKey, only: Option<&Vec<String>>) -> Attempt {
        match self.resume_in(worker.clone(), only).await {
            Ok(()) => Attempt::Done,
            Err(RunError::Stopping) => Attempt::Stopping,
            Err(error @ RunError::Job(_)) => Attempt::Failed(chain(&error)),
            Err(error) => {
                // A drive that blocks this worker must not keep volumes of other drives suspended.
                let substitute = WorkerKey {
                    target: JobTarget::Group(SUBSTITUTES.to_owned()),
                    ..worker.clone()
                };
                if let Err(error) = self.resume_in(substitute, only).await {
                    tracing::debug!(%worker, error = %chain(&error), "cannot resume volumes in another worker either");
                }
                Attempt::Failed(error.trouble())
            }
        }
    }

    async fn resume_in(
        &self,
        worker: WorkerKey,
        only: Option<&Vec<String>>,
    ) -> Result<(), RunError<LayoutError>> {
        let job = ResumeLeft {
            only: only.cloned(),
        };
        let devices = self.node.run(worker, job, RESUME_DEADLINE).await?;
        if !devices.is_empty() {
            tracing::warn!(?devices, "resumed volumes that were left suspended");
        }
        Ok(())
    }

    /// Waits until no volume is suspended; false if that takes longer than `limit`. Must be called after `drain`, which prevents that
    /// further ones are suspended.
    pub async fn until_resumed(&self, limit: Duration) -> bool {
        let suspending = &self.inner.snapshots.suspending;
        timeout(limit, suspending.wait()).await.is_ok()
    }
}
