//! Types shared by the pool and its callers: slots, configuration, errors, and the state of a slot.

use std::{fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{JobTarget, WorkerKey};
use drivebay_model::units::{human_millis, human_seconds};

/// Purpose of a worker of a drive. Each slot has at most one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Slot {
    /// Steps of RPCs and probes.
    Foreground,
    /// Staging: mkfs and a log replay may take minutes, and what other volumes of the drive need does not wait for them.
    Stage,
    /// Erasing and SMART, in steps of a second or so.
    Background,
    /// Checks of filesystems: they may take an hour, and neither erasing nor SMART waits for them. A mutating
    /// call on the volume ends one.
    Check,
    /// Unmounting, so that it never waits behind a stuck step.
    Unmount,
    /// Publishing a raw volume and keeping its device open for as long as it is published: a lane for each volume, whose
    /// worker stays until it is dismissed.
    Hold,
}

impl Slot {
    pub const ALL: [Self; 6] = [
        Self::Foreground,
        Self::Stage,
        Self::Background,
        Self::Check,
        Self::Unmount,
        Self::Hold,
    ];

    /// Returns the name in logs, metrics and file names; the same as in serde.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Foreground => "foreground",
            Self::Stage => "stage",
            Self::Background => "background",
            Self::Check => "check",
            Self::Unmount => "unmount",
            Self::Hold => "hold",
        }
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Configuration of a pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The program that is run as `<program> worker` and `<program> worker-server`: the agent's
    /// own.
    pub program: PathBuf,
    /// Directory of the records of running workers (pid and start time), which the next agent
    /// reads.
    pub notes_dir: PathBuf,
    /// True: workers are forked by a server and share its memory. False: each is executed.
    pub fork: bool,
    /// Time after which a worker that is kept for the next call is ended; others are ended after
    /// five seconds, or this time if it is shorter.
    pub idle: Duration,
    /// Idle workers of all drives together; a further one is ended when its job is done, unless it
    /// is kept for the next call.
    pub spare: usize,
    /// Age of one step from which the slot is Stuck.
    pub stuck_after: Duration,
    /// Callers that may wait for a slot; a further one gets Busy.
    pub queue: usize,
}

/// Default number of idle workers of an agent: each has 0.3 MiB of its own, and calls for 64 drives
/// at once leave 192 of them behind. A call without an idle worker waits for a fork.
pub const SPARE: usize = 48;
/// Time after which a worker without work is ended, unless it is kept for the next call.
pub(super) const SHORT: Duration = Duration::from_secs(5);
/// Largest duration that is kept as given: longer ones, which mean no limit, are cut to it.
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl PoolConfig {
    /// Returns the time for which a worker stays after a job. Only foreground workers are kept, for
    /// a job that is repeated: NodeGetVolumeStats, which the kubelet calls every one to two minutes
    /// and which must start no process. Others can wait for a fork, except `Hold` workers whose job
    /// succeeded: they keep a device open. Pure.
    pub(super) fn stay(&self, slot: Slot, comes_again: bool, is_done: bool) -> Duration {
        match slot {
            Slot::Hold if is_done => FOREVER,
            Slot::Foreground if comes_again => self.idle,
            _ => self.idle.min(SHORT),
        }
    }
}

/// Reason for a job without an answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error + 'static> {
    /// Other requests are before it, and its deadline passed or the queue is full.
    #[error("{target} is busy ({step}); try again")]
    Busy {
        target: JobTarget,
        /// Current job and step of the slot.
        step: String,
    },
    /// One step of the slot takes too long, or its worker cannot be killed.
    #[error(
        "{target} is stuck: {step} has not returned for {}; check the drive (dmesg), it may need to be replaced",
        human_seconds(*age_s)
    )]
    Stuck {
        target: JobTarget,
        /// Current job and step of the slot.
        step: String,
        /// Age of the step, in whole seconds.
        age_s: u64,
    },
    /// The deadline passed while the job ran; the worker was killed.
    #[error("{job} on {target} did not end within {} (at {step})", human_millis(*limit_ms))]
    Deadline {
        target: JobTarget,
        job: &'static str,
        /// Deadline of the call, which covers waiting and running, milliseconds.
        limit_ms: u64,
        /// Step that the job was in.
        step: String,
    },
    /// Another call cancelled the job.
    #[error("{job} on {target} was cancelled")]
    Cancelled {
        target: JobTarget,
        job: &'static str,
    },
    /// The worker could not be started, exited, or sent an invalid reply.
    #[error("the worker of {target} failed during {job}: {why}")]
    Worker {
        target: JobTarget,
        job: &'static str,
        why: String,
    },
    /// The agent is stopping.
    #[error("the agent is stopping")]
    Stopping,
    /// The job ran and returned this error.
    #[error(transparent)]
    Job(E),
}

/// State of a slot, for metrics and tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotStatus {
    pub key: WorkerKey,
    /// Pid of the worker; None if it has none.
    pub pid: Option<i32>,
    /// Current job and step; None if no job runs.
    pub step: Option<String>,
    /// Age of the step; zero if no job runs.
    pub age: Duration,
    pub stuck: bool,
    /// Number of jobs that wait for the slot, without the one that runs.
    pub waiting: usize,
}

impl<E: std::error::Error + 'static> RunError<E> {
    /// Returns the error without the age of a stuck step: what is shown of a drive and its volumes
    /// must not change with it.
    pub fn trouble(&self) -> String {
        match self {
            Self::Stuck { step, .. } => format!(
                "it is stuck: {step} has not returned; check the drive (dmesg), it may need to be replaced"
            ),
            other => drivebay_model::cause::chain(other),
        }
    }

    /// Converts the error of the job; other errors stay as they are.
    pub fn map_job<F: std::error::Error + 'static>(self, f: impl FnOnce(E) -> F) -> RunError<F> {
        match self {
            Self::Busy { target, step } => RunError::Busy { target, step },
            Self::Stuck {
                target,
                step,
                age_s,
            } => RunError::Stuck {
                target,
                step,
                age_s,
            },
            Self::Deadline {
                target,
                job,
                limit_ms,
                step,
            } => RunError::Deadline {
                target,
                job,
                limit_ms,
                step,
            },
            Self::Cancelled { target, job } => RunError::Cancelled { target, job },
            Self::Worker { target, job, why } => RunError::Worker { target, job, why },
            Self::Stopping => RunError::Stopping,
            Self::Job(error) => RunError::Job(f(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::ReadError;

    #[test]
    fn only_a_foreground_worker_stays_for_a_job_that_comes_again_and_one_that_holds_for_ever() {
        let config = |secs| PoolConfig {
            program: "p".into(),
            notes_dir: "n".into(),
            fork: true,
            idle: Duration::from_secs(secs),
            spare: 1,
            stuck_after: Duration::ZERO,
            queue: 1,
        };
        let stay = |secs, slot, again| config(secs).stay(slot, again, true).as_secs();
        assert_eq!(stay(150, Slot::Foreground, true), 150);
        assert_eq!(stay(150, Slot::Foreground, false), 5);
        for slot in [Slot::Stage, Slot::Background, Slot::Check, Slot::Unmount] {
            assert_eq!(stay(150, slot, true), 5);
        }
        assert_eq!(stay(150, Slot::Hold, false), FOREVER.as_secs());
        assert_eq!(config(150).stay(Slot::Hold, false, false), SHORT);
        assert_eq!(stay(1, Slot::Background, false), 1);
    }

    #[test]
    fn the_trouble_of_a_hanging_step_does_not_change_with_its_age() {
        let stuck = |age_s| RunError::<ReadError>::Stuck {
            target: JobTarget::Drive(drivebay_model::DriveId("d".into())),
            step: "probe: open".into(),
            age_s,
        };
        assert_eq!(stuck(31).trouble(), stuck(3600).trouble());
        assert!(stuck(31).trouble().contains("probe: open"));
    }
}
