//! The agent's side: one slot per drive and purpose, a child started on demand, deadlines,
//! cancel, and the difference between Busy and Stuck.

use std::{path::PathBuf, time::Duration};

use super::Job;
use crate::model::DriveId;

/// What a drive's workers are for. Each slot has at most one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Steps of RPCs and probes.
    Foreground,
    /// Erasing, checks, SMART: yields to mutating calls.
    Background,
    /// Unmounting, so that it never waits behind a stuck step.
    Unmount,
}

/// How the pool behaves.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The program to run as `<program> worker` (our own).
    pub program: PathBuf,
    /// Where running workers are noted (pid and start time), to be found by the next agent.
    pub notes_dir: PathBuf,
    /// A worker without work for this long is let go.
    pub idle: Duration,
    /// One step older than this is Stuck.
    pub stuck_after: Duration,
    /// Callers that may wait for a slot; the next one is told Busy.
    pub queue: usize,
}

/// Why a job has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error + 'static> {
    /// Others are before it, and its deadline passed or the queue is full.
    #[error("drive {drive} is busy ({step}); try again")]
    Busy {
        /// Identity.
        drive: DriveId,
        /// What it is doing.
        step: String,
    },
    /// One step hangs.
    #[error("drive {drive} is stuck: {step} has not returned for {age_s} s; check the drive (dmesg), it may need to be replaced")]
    Stuck {
        /// Identity.
        drive: DriveId,
        /// What it is doing.
        step: String,
        /// For how long, in whole seconds.
        age_s: u64,
    },
    /// The deadline passed while it ran; the worker was killed.
    #[error("{job} on drive {drive} did not end within {limit_ms} ms (at {step})")]
    Deadline {
        /// Identity.
        drive: DriveId,
        /// Job name.
        job: &'static str,
        /// Milliseconds.
        limit_ms: u64,
        /// The step it was in.
        step: String,
    },
    /// Cancelled by a more urgent call.
    #[error("{job} on drive {drive} was cancelled")]
    Cancelled {
        /// Identity.
        drive: DriveId,
        /// Job name.
        job: &'static str,
    },
    /// The worker died or spoke nonsense.
    #[error("the worker of drive {drive} failed during {job}: {why}")]
    Worker {
        /// Identity.
        drive: DriveId,
        /// Job name.
        job: &'static str,
        /// How.
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
    /// Identity.
    pub drive: DriveId,
    /// Which slot.
    pub slot: Slot,
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

/// All workers of an agent. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    config: std::sync::Arc<PoolConfig>,
}

impl Pool {
    /// Kills workers that an earlier agent left (pid and start time must match their note); one
    /// that does not die within two seconds keeps its slot, as Stuck, for as long as it lives.
    pub async fn new(config: PoolConfig) -> std::io::Result<Self> {
        Ok(Self { config: std::sync::Arc::new(config) })
    }

    /// Runs a job in a drive's slot. Dropping the future does not stop the job.
    pub async fn run<J: Job>(
        &self,
        drive: &DriveId,
        slot: Slot,
        job: J,
        deadline: Duration,
    ) -> Result<J::Answer, RunError<J::Error>> {
        let _ = (&self.config, drive, slot, job, deadline);
        todo!()
    }

    /// Cancels what the slot is doing (kills its worker) and waits until it is gone or stuck.
    pub async fn cancel(&self, drive: &DriveId, slot: Slot) {
        let _ = (drive, slot);
        todo!()
    }

    /// Every slot that has a worker.
    pub fn status(&self) -> Vec<SlotStatus> {
        todo!()
    }

    /// Takes no more work, lets running jobs end until `limit`, kills the rest; never waits longer
    /// than one second past it.
    pub async fn shutdown(&self, limit: Duration) {
        let _ = limit;
        todo!()
    }
}
