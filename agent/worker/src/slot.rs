//! The actor of one slot: takes requests one by one, runs them in a child, and ends the child.
//! Exists while there is work, a child, or a worker that cannot be killed.

use std::{
    future::Future, os::unix::process::ExitStatusExt, pin::pin, process::ExitStatus, sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};

use super::{
    RunError, Slot, WorkerKey,
    handle::{Worker, WorkerAnswer},
    job::Outcome,
    notes::Leftover,
    pool::Inner,
    table::{Current, Entry, QueuedJob, Refusal},
    terms::SHORT,
};
use drivebay_sys::offload::blocking;

/// Limit for a killed worker to exit; then its slot is Stuck. Also the limit for an idle worker to
/// exit before it is killed.
pub(super) const REAP: Duration = Duration::from_secs(1);
/// Interval of checking whether a worker of an earlier agent is gone. It is not a child of this
/// agent, so its exit is not signalled.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Reason for ending a job by force.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Deadline,
    Cancelled,
    Stopping,
}

/// Runs the requests of one worker slot, one at a time.
pub(super) struct Actor {
    inner: Arc<Inner>,
    key: WorkerKey,
    wake: Arc<Notify>,
    worker: Option<Worker>,
    /// Time at which the worker is ended if it has no work.
    stays_until: Instant,
    /// True if the worker stays also when all permits for idle workers are taken.
    is_kept: bool,
}

impl Actor {
    pub(super) fn new(inner: Arc<Inner>, key: WorkerKey, wake: Arc<Notify>) -> Self {
        Self {
            inner,
            key,
            wake,
            worker: None,
            stays_until: Instant::now(),
            is_kept: false,
        }
    }

    /// Runs until there is no work and no worker; the slot has been removed from the table then.
    pub(super) async fn run(mut self, leftover: Option<Leftover>) {
        if let Some(leftover) = leftover {
            self.outwait(leftover).await;
        }
        loop {
            if let Some(request) = self.inner.next(&self.key) {
                let comes_again = request.comes_again;
                let is_done = self.serve(request).await;
                let config = &self.inner.config;
                let stay = config.stay(self.key.slot, comes_again, is_done);
                self.is_kept |= stay > SHORT;
                self.stays_until = self.stays_until.max(Instant::now() + stay);
            } else if self.worker.is_some() {
                self.idle().await;
            } else if self.inner.retire(&self.key) {
                return;
            }
        }
    }

    fn entry<R>(&self, act: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.inner.entry(&self.key, act)
    }

    /// Awaits `doing`, and meanwhile answers queued requests at their deadlines or when the slot
    /// becomes Stuck.
    async fn attend<F: Future>(&self, doing: F) -> F::Output {
        let mut doing = pin!(doing);
        loop {
            let after = self.inner.config.stuck_after;
            let next_sweep = self
                .entry(|entry| entry.sweep(Instant::now(), after))
                .flatten();
            let timer = async {
                match next_sweep {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                output = &mut doing => return output,
                () = self.wake.notified() => {}
                () = timer => {}
            }
        }
    }

    async fn outwait(&self, leftover: Leftover) {
        let leftover = Arc::new(leftover);
        self.attend(async {
            let mut ticks = tokio::time::interval(POLL_INTERVAL);
            loop {
                ticks.tick().await;
                let leftover = Arc::clone(&leftover);
                if matches!(blocking(move || leftover.is_gone()).await, Ok(true)) {
                    return;
                }
            }
        })
        .await;
        tracing::info!(drive = self.key.drive().map(display), slot = %self.key.slot, "worker of an earlier agent exited");
        self.free();
    }

    /// Keeps an idle worker until there is work, its time is over, it is dismissed, or there are
    /// enough other idle ones.
    async fn idle(&mut self) {
        let Some(mut worker) = self.worker.take() else {
            return;
        };
        let stopping = self.inner.is_stopping();
        let inner = Arc::clone(&self.inner);
        // A worker that keeps a file open is not idle.
        let place = match self.key.slot {
            Slot::Hold => None,
            _ => inner.spare.try_acquire().ok(),
        };
        let may_stay = !self.entry(Entry::is_dismissed).unwrap_or(false);
        let limit = sleep_until(match may_stay && (place.is_some() || self.is_kept) {
            true => self.stays_until,
            false => Instant::now(),
        });
        tokio::select! {
            biased;
            // Polled before the queue: a worker that exited must not get a job.
            () = worker.spoils(), if !stopping => worker.kill(),
            () = self.wake.notified(), if !stopping && may_stay => {
                self.worker = Some(worker);
                return;
            }
            () = limit, if !stopping => worker.hang_up().await,
            else => worker.hang_up().await,
        }
        self.is_kept = false;
        let step = Some("the idle worker has not exited");
        self.entry(|entry| {
            let waiting = std::mem::take(&mut entry.leaving);
            entry.current = Some(Current {
                waiting,
                ..Current::new("exit", step, Instant::now())
            });
        });
        if self.attend(timeout(REAP, worker.gone())).await.is_err() {
            self.end(worker).await;
        } else {
            self.free();
        }
    }

    /// Runs a job and answers its caller. True if the job returned without an error and the worker
    /// can take more.
    async fn serve(&mut self, request: QueuedJob) -> bool {
        let QueuedJob {
            job,
            arguments,
            limit,
            deadline,
            read_only,
            answer,
            ..
        } = request;
        let answer = |result: Result<Outcome, Refusal>| {
            if answer.send(result).is_err() {
                tracing::debug!(job, "job result discarded; no caller waits for it");
            }
        };
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => match self.start(deadline).await {
                Ok(worker) => worker,
                Err(Unstarted::Failed(why)) => {
                    self.free();
                    answer(Err(
                        self.failed(job, format!("it could not be started: {why}"))
                    ));
                    return false;
                }
                Err(Unstarted::Cut(cut, starting)) => {
                    let refusal = self.cut(cut, job, limit);
                    self.hold();
                    answer(Err(refusal));
                    if let Ok(Ok(worker)) = self.attend(starting).await {
                        self.set_pid(Some(worker.pid));
                        self.worker = Some(worker);
                    }
                    self.entry(Entry::release);
                    return false;
                }
            },
        };
        self.set_pid(Some(worker.pid));
        let on_step = |name| {
            self.entry(|entry| entry.step(name, Instant::now()));
        };
        let reply = self
            .attend(self.unless_cut(deadline, worker.run(job, arguments, on_step)))
            .await;
        match reply {
            Ok(WorkerAnswer::Done(outcome)) => {
                self.worker = Some(worker);
                self.entry(Entry::release);
                let is_done = outcome.is_ok();
                answer(Ok(outcome));
                return is_done;
            }
            Ok(WorkerAnswer::Last(outcome)) => {
                answer(Ok(outcome));
                self.end(worker).await;
            }
            Err(cut) if read_only => {
                answer(Err(self.cut(cut, job, limit)));
                self.end(worker).await;
            }
            failure => {
                worker.kill();
                let gone = self.attend(timeout(REAP, worker.gone())).await;
                let refusal = match failure {
                    Err(cut) => self.cut(cut, job, limit),
                    Ok(WorkerAnswer::Nonsense(why)) => self.failed(job, why),
                    Ok(_) => self.failed(job, death(gone.as_ref().ok().copied().flatten())),
                };
                if gone.is_ok() {
                    self.free();
                    answer(Err(refusal));
                } else {
                    self.hold();
                    answer(Err(refusal));
                    self.outlast(worker).await;
                }
            }
        }
        false
    }

    /// Starts a worker. That may hang too: the agent's own program may be on a stuck drive.
    async fn start(&self, deadline: Instant) -> Result<Worker, Unstarted> {
        self.entry(|entry| entry.step("starting a worker".to_owned(), Instant::now()));
        let (inner, key) = (Arc::clone(&self.inner), self.key.clone());
        let mut starting = blocking(move || Worker::start(&inner.starter, &inner.config, &key));
        match self.attend(self.unless_cut(deadline, &mut starting)).await {
            Ok(Ok(Ok(worker))) => {
                self.entry(|entry| {
                    if let Some(current) = &mut entry.current {
                        (current.step, current.since) = (None, Instant::now());
                    }
                });
                Ok(worker)
            }
            Ok(Ok(Err(error))) => Err(Unstarted::Failed(error.to_string())),
            Ok(Err(error)) => Err(Unstarted::Failed(error.to_string())),
            Err(cut) => Err(Unstarted::Cut(cut, starting)),
        }
    }

    async fn unless_cut<F: Future>(&self, deadline: Instant, doing: F) -> Result<F::Output, Cut> {
        let cancel = self.entry(|entry| {
            entry
                .current
                .as_ref()
                .map(|current| Arc::clone(&current.cancel))
        });
        let cancel = cancel.flatten().unwrap_or_default();
        tokio::select! {
            biased;
            output = doing => Ok(output),
            () = cancel.notified() => Err(Cut::Cancelled),
            () = self.inner.kill_time() => Err(Cut::Stopping),
            () = sleep_until(deadline) => Err(Cut::Deadline),
        }
    }

    /// Kills a worker; the slot is Stuck while it does not exit.
    async fn end(&self, mut worker: Worker) {
        worker.kill();
        if self.attend(timeout(REAP, worker.gone())).await.is_err() {
            self.hold();
            self.outlast(worker).await;
        } else {
            self.free();
        }
    }

    /// Makes the slot Stuck, regardless of the age of its step.
    fn hold(&self) {
        self.entry(Entry::hold);
        self.inner.settled();
    }

    /// Waits for a worker that was killed and has not exited.
    async fn outlast(&self, mut worker: Worker) {
        let (key, pid) = (&self.key, worker.pid);
        tracing::error!(drive = key.drive().map(display), slot = %key.slot, pid,
            "worker or its tool cannot be killed; its slot is stuck until the drive answers");
        self.attend(worker.gone()).await;
        tracing::info!(drive = key.drive().map(display), slot = %key.slot, pid, "stuck worker exited");
        self.free();
    }

    /// Frees the slot: it has no worker and no job any more.
    fn free(&self) {
        self.set_pid(None);
        self.entry(Entry::release);
    }

    fn set_pid(&self, pid: Option<i32>) {
        self.entry(|entry| entry.pid = pid);
    }

    fn cut(&self, cut: Cut, job: &'static str, limit: Duration) -> Refusal {
        let target = self.key.target.clone();
        match cut {
            Cut::Cancelled => RunError::Cancelled { target, job },
            Cut::Stopping => RunError::Stopping,
            Cut::Deadline => RunError::Deadline {
                target,
                job,
                limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
                step: self
                    .entry(|entry| {
                        entry
                            .current
                            .as_ref()
                            .and_then(|current| current.step.clone())
                    })
                    .flatten()
                    .unwrap_or_else(|| "its first step".to_owned()),
            },
        }
    }

    fn failed(&self, job: &'static str, why: String) -> Refusal {
        RunError::Worker {
            target: self.key.target.clone(),
            job,
            why,
        }
    }
}

/// Reason for not having a worker.
enum Unstarted {
    Failed(String),
    Cut(Cut, JoinHandle<std::io::Result<Worker>>),
}

fn death(status: Option<ExitStatus>) -> String {
    match status {
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("it exited with code {code}"),
            (_, Some(signal)) => format!("it was killed by signal {signal}"),
            _ => "it ended".to_owned(),
        },
        None => "it hung up and does not end".to_owned(),
    }
}
