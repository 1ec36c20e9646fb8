//! The words that the pool and its callers share: slots, how the pool behaves, why a job has no
//! answer, what a slot is doing.

use std::{fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{JobTarget, WorkerKey};
use drivebay_model::units::{human_millis, human_seconds};

/// What a drive's workers are for. Each slot has at most one child.
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
    /// Every slot there is.
    pub const ALL: [Self; 6] = [
        Self::Foreground,
        Self::Stage,
        Self::Background,
        Self::Check,
        Self::Unmount,
        Self::Hold,
    ];

    /// The word in logs, metrics and file names; the same as in serde.
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

/// How the pool behaves.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The program to run as `<program> worker` and `<program> worker-server` (our own).
    pub program: PathBuf,
    /// Where running workers are noted (pid and start time), to be found by the next agent.
    pub notes_dir: PathBuf,
    /// Whether workers are forked by a server and share its memory; else each is executed.
    pub fork: bool,
    /// A worker that is kept for the next call is let go after this long; others after seconds.
    pub idle: Duration,
    /// Idle workers of all drives together; one more leaves when its job is done, unless it is kept for the next call.
    pub spare: usize,
    /// One step older than this is Stuck.
    pub stuck_after: Duration,
    /// Callers that may wait for a slot; the next one gets Busy.
    pub queue: usize,
}

/// Idle workers of an agent: each has 0.3 MiB of its own, and calls for 64 drives at once leave 192 of them behind. A call that
/// finds none waits for a fork.
pub const SPARE: usize = 48;
/// A worker without work leaves after this, unless it is kept for the next call.
pub(super) const SHORT: Duration = Duration::from_secs(5);
/// Longest time that is kept apart from "for ever".
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

impl PoolConfig {
    /// How long a worker stays after a job. Only the foreground's is kept for a job that comes again: NodeGetVolumeStats, which
    /// the kubelet calls every one to two minutes and which must start no process. Others can wait for a fork, but for those that
    /// hold something, whose job did not fail. Pure.
    pub(super) fn stay(&self, slot: Slot, comes_again: bool, is_done: bool) -> Duration {
        match slot {
            Slot::Hold if is_done => FOREVER,
            Slot::Foreground if comes_again => self.idle,
            _ => self.idle.min(SHORT),
        }
    }
}

/// Why a job has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error + 'static> {
    /// Others are before it, and its deadline passed or the queue is full.
    #[error("{target} is busy ({step}); try again")]
    Busy {
        target: JobTarget,
        /// What it is doing.
        step: String,
    },
    /// One step hangs.
    #[error(
        "{target} is stuck: {step} has not returned for {}; check the drive (dmesg), it may need to be replaced",
        human_seconds(*age_s)
    )]
    Stuck {
        target: JobTarget,
        /// What it is doing.
        step: String,
        /// For how long, in whole seconds.
        age_s: u64,
    },
    /// The deadline passed while it ran; the worker was killed.
    #[error("{job} on {target} did not end within {} (at {step})", human_millis(*limit_ms))]
    Deadline {
        target: JobTarget,
        job: &'static str,
        /// Milliseconds.
        limit_ms: u64,
        /// The step it was in.
        step: String,
    },
    /// Cancelled by a more urgent call.
    #[error("{job} on {target} was cancelled")]
    Cancelled {
        target: JobTarget,
        job: &'static str,
    },
    /// The worker died or spoke nonsense.
    #[error("the worker of {target} failed during {job}: {why}")]
    Worker {
        target: JobTarget,
        job: &'static str,
        why: String,
    },
    /// The agent is stopping.
    #[error("the agent is stopping")]
    Stopping,
    /// The job ran and failed.
    #[error(transparent)]
    Job(E),
}

/// What a slot is doing, for metrics and tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotStatus {
    pub key: WorkerKey,
    /// The worker's pid, when there is one.
    pub pid: Option<i32>,
    /// Job and step, when it is running one.
    pub step: Option<String>,
    /// How long that step has been running.
    pub age: Duration,
    /// Whether it is stuck.
    pub stuck: bool,
    /// Callers waiting.
    pub waiting: usize,
}

impl<E: std::error::Error + 'static> RunError<E> {
    /// The same in words that stay the same for as long as the trouble does: what is shown of a drive and
    /// its volumes must not change with the age of a hanging step.
    pub fn trouble(&self) -> String {
        match self {
            Self::Stuck { step, .. } => format!(
                "it is stuck: {step} has not returned; check the drive (dmesg), it may need to be replaced"
            ),
            other => drivebay_model::cause::chain(other),
        }
    }

    /// The same with another error of the job.
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
