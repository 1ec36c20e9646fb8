//! The agent's side: one slot per drive and purpose, children started on demand, deadlines,
//! cancellation, and the difference between Busy and Stuck.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};

pub use super::terms::{PoolConfig, RunError, SPARE, Slot, SlotStatus};
use super::{
    Job, WorkerKey,
    notes::{self, Leftover},
    slot::{Actor, REAP},
    table::{Current, Entry, Next, QueuedJob},
    terms::FOREVER,
};
use drivebay_sys::{offload::blocking, start::Starter};

/// Limit for workers of an earlier agent to exit after SIGKILL; then their slots are Stuck.
const LEFTOVERS: Duration = Duration::from_secs(2);
/// Limit for starting the worker server.
const SERVER: Duration = Duration::from_secs(2);

/// All workers of an agent. Clones share them.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("config", &self.inner.config)
            .finish_non_exhaustive()
    }
}

/// State shared by the pool and its actors. The lock is held briefly, never across an await.
pub(super) struct Inner {
    pub(super) config: PoolConfig,
    pub(super) starter: Starter,
    slots: Mutex<HashMap<WorkerKey, Entry>>,
    /// Permits for idle workers.
    pub(super) spare: Semaphore,
    /// Set when the pool accepts no more work: the time at which running jobs are killed.
    stop: watch::Sender<Option<Instant>>,
    /// Signals that a slot ended, or has a worker that cannot be killed.
    settled: watch::Sender<()>,
}

impl Pool {
    /// Kills workers that an earlier agent left (pid and start time must match their record). One
    /// that does not exit within two seconds keeps its slot Stuck until it does. Errs if the
    /// records cannot be read: the pool would not know which slots are taken.
    ///
    /// No other agent may run with this directory: its workers would be killed.
    pub async fn new(config: PoolConfig) -> io::Result<Self> {
        let inner = Arc::new(Inner {
            starter: Starter::new(config.program.clone(), config.fork),
            spare: Semaphore::new(config.spare),
            config,
            slots: Mutex::default(),
            stop: watch::Sender::new(None),
            settled: watch::Sender::new(()),
        });
        let dir = inner.config.notes_dir.clone();
        let leftovers = blocking(move || match notes::make_dir(&dir) {
            // Without the directory there are no records, and unmounting needs none.
            Err(error) if notes::is_absent(&dir) => {
                tracing::error!(path = %dir.display(), %error, "cannot make the directory for worker records; unmounting works without, make room in the runtime directory for everything else");
                Ok(Vec::new())
            }
            made => made.and_then(|()| notes::read_all(&dir)),
        });
        let leftovers = leftovers.await.map_err(io::Error::other)??;
        let until = Instant::now() + LEFTOVERS;
        let mut killing = JoinSet::new();
        for leftover in leftovers {
            killing.spawn(kill(leftover, until));
        }
        while let Some(killed) = killing.join_next().await {
            if let Some(leftover) = killed.map_err(io::Error::other)?? {
                inner.block(leftover);
            }
        }
        // The first jobs then need not wait for an exec of the program. After a timeout the pool
        // starts without the server.
        let first = Arc::clone(&inner);
        let _ = timeout(SERVER, blocking(move || first.starter.prepare())).await;
        Ok(Self { inner })
    }

    /// Runs a job in that worker. Dropping the future does not stop the job.
    ///
    /// The deadline covers waiting and running. If it passes while the job runs, the worker is
    /// killed, and the answer comes when it is gone, one second later at most; at once for a job
    /// that only reads.
    pub async fn run<J: Job>(
        &self,
        worker: impl Into<WorkerKey>,
        job: J,
        deadline: Duration,
    ) -> Result<J::Answer, RunError<J::Error>> {
        let key = worker.into();
        let target = key.target.clone();
        let broken = |why: String| RunError::Worker {
            target: target.clone(),
            job: J::NAME,
            why,
        };
        let arguments = serde_json::to_value(job)
            .map_err(|error| broken(format!("the job cannot be written as JSON: {error}")))?;
        let (answer, answered) = oneshot::channel();
        let at = Instant::now() + deadline.min(FOREVER);
        self.inner.submit(
            key,
            QueuedJob {
                job: J::NAME,
                arguments,
                limit: deadline,
                deadline: at,
                read_only: J::READ_ONLY,
                comes_again: J::COMES_AGAIN,
                answer,
            },
        );
        // The actor answers in time by itself; the timeout guards against a bug in it.
        match timeout_at(at + 5 * REAP, answered).await {
            Ok(Ok(Ok(Ok(answer)))) => serde_json::from_value(answer)
                .map_err(|error| broken(format!("its answer does not fit the job: {error}"))),
            Ok(Ok(Ok(Err(error)))) => match serde_json::from_value(error) {
                Ok(error) => Err(RunError::Job(error)),
                Err(error) => Err(broken(format!("its error does not fit the job: {error}"))),
            },
            Ok(Ok(Err(refusal))) => Err(refusal.map_job(|never| match never {})),
            Ok(Err(_)) | Err(_) => Err(broken("its slot gave no answer".to_owned())),
        }
    }

    /// True if a job runs or waits in this slot, so that a further one would have to wait.
    pub fn is_taken(&self, worker: &WorkerKey) -> bool {
        let is_taken = |entry: &mut Entry| entry.current.is_some() || !entry.queue.is_empty();
        self.inner.entry(worker, is_taken).unwrap_or(false)
    }

    /// Kills the worker if it runs a job, and waits until it is gone or stuck, five seconds at
    /// most. The job's caller gets `Cancelled`; jobs that wait for the slot keep waiting.
    pub async fn cancel(&self, worker: impl Into<WorkerKey>) {
        let key = worker.into();
        let ended = self.inner.entry(&key, |entry| {
            let current = entry.current.as_mut().filter(|_| !entry.unkillable)?;
            let (sender, ended) = oneshot::channel();
            current.waiting.push(sender);
            current.cancel.notify_one();
            Some(ended)
        });
        if let Some(ended) = ended.flatten() {
            let _ = timeout(5 * REAP, ended).await;
        }
    }

    /// Ends a worker, which closes the file that it keeps open, and waits until it is gone or
    /// stuck, five seconds at most. A job that it runs is cancelled.
    pub async fn dismiss(&self, worker: impl Into<WorkerKey>) {
        let key = worker.into();
        self.cancel(key.clone()).await;
        let ended = self.inner.entry(&key, |entry| {
            let (sender, ended) = oneshot::channel();
            // An unkillable worker ends when its drive answers; that is not waited for.
            (!entry.unkillable).then(|| {
                entry.leaving.push(sender);
                entry.wake.notify_one();
                ended
            })
        });
        if let Some(ended) = ended.flatten() {
            let _ = timeout(5 * REAP, ended).await;
        }
    }

    /// Returns the pid of the process that forks workers; None if it does not run.
    pub fn server(&self) -> Option<i32> {
        self.inner.starter.server()
    }

    /// Returns the state of every slot that has a worker or runs a job, sorted by key.
    pub fn status(&self) -> Vec<SlotStatus> {
        let (now, after) = (Instant::now(), self.inner.config.stuck_after);
        let slots = self.inner.lock();
        let mut all: Vec<_> = slots
            .values()
            .filter_map(|entry| entry.status(now, after))
            .collect();
        drop(slots);
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// Accepts no more work, lets running jobs end until `limit`, kills the rest, and returns one
    /// second after `limit` at the latest. A worker that cannot be killed is left, with its record.
    pub async fn shutdown(&self, limit: Duration) {
        let kill_at = Instant::now() + limit.min(FOREVER);
        let mut settled = self.inner.settled.subscribe();
        self.inner.stop_at(kill_at);
        let rest = async {
            while !self.inner.is_at_rest() {
                if settled.changed().await.is_err() {
                    return;
                }
            }
        };
        if timeout_at(kill_at + REAP, rest).await.is_err() || !self.inner.lock().is_empty() {
            let left: Vec<_> = self
                .status()
                .into_iter()
                .filter_map(|slot| slot.pid)
                .collect();
            tracing::warn!(
                ?left,
                "workers still running at shutdown; the next agent finds them by their records"
            );
        }
    }
}

/// Kills a worker of an earlier agent; returns its record if it still runs at `until`.
async fn kill(mut leftover: Leftover, until: Instant) -> io::Result<Option<Leftover>> {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    let mut first = true;
    loop {
        ticks.tick().await;
        let check = blocking(move || {
            if first {
                leftover.kill();
            }
            (leftover.is_gone(), leftover)
        });
        first = false;
        let gone;
        (gone, leftover) = check.await.map_err(io::Error::other)?;
        if gone {
            return Ok(None);
        }
        if Instant::now() >= until {
            return Ok(Some(leftover));
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<WorkerKey, Entry>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `act` with a slot's entry; None if there is no such slot.
    pub(super) fn entry<R>(&self, key: &WorkerKey, act: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.lock().get_mut(key).map(act)
    }

    fn submit(self: &Arc<Self>, key: WorkerKey, request: QueuedJob) {
        let mut slots = self.lock();
        if self.is_stopping() {
            return request.refuse(RunError::Stopping);
        }
        let entry = slots.entry(key).or_insert_with_key(|key| {
            let entry = Entry::new(key);
            let actor = Actor::new(Arc::clone(self), key.clone(), Arc::clone(&entry.wake));
            tokio::spawn(actor.run(None));
            entry
        });
        let PoolConfig {
            stuck_after, queue, ..
        } = self.config;
        entry.admit(request, Instant::now(), stuck_after, queue);
    }

    /// Blocks the slot of an earlier agent's worker that cannot be killed, until it exits.
    fn block(self: &Arc<Self>, leftover: Leftover) {
        let key = leftover.key.clone();
        tracing::error!(drive = key.drive().map(display), slot = %key.slot, pid = leftover.pid(),
            "worker of an earlier agent cannot be killed; its slot is stuck until it exits");
        let now = Instant::now();
        let since = now.checked_sub(leftover.age).unwrap_or(now);
        let mut entry = Entry::new(&key);
        entry.pid = leftover.pid();
        entry.current = Some(Current::new("a job of an earlier agent", None, since));
        entry.unkillable = true;
        let actor = Actor::new(Arc::clone(self), key.clone(), Arc::clone(&entry.wake));
        self.lock().insert(key, entry);
        tokio::spawn(actor.run(Some(leftover)));
    }

    /// Takes the next request of a slot, which becomes its current job; None if there is none, or
    /// the pool stops.
    pub(super) fn next(&self, key: &WorkerKey) -> Option<QueuedJob> {
        let mut slots = self.lock();
        let entry = slots.get_mut(key)?;
        if self.is_stopping() {
            for request in entry.queue.drain(..) {
                request.refuse(RunError::Stopping);
            }
        }
        match entry.next(Instant::now(), self.config.stuck_after) {
            Next::Job(request) => Some(request),
            Next::Idle => None,
        }
    }

    /// Removes a slot without work from the table. False: it has queued work, and stays.
    pub(super) fn retire(&self, key: &WorkerKey) -> bool {
        let mut slots = self.lock();
        if slots.get(key).is_some_and(|entry| !entry.queue.is_empty()) {
            return false;
        }
        slots.remove(key);
        drop(slots);
        self.settled();
        true
    }

    /// Wakes `shutdown` to test again whether all slots are at rest.
    pub(super) fn settled(&self) {
        self.settled.send_replace(());
    }

    fn is_at_rest(&self) -> bool {
        self.lock().values().all(|entry| entry.unkillable)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    fn stop_at(&self, kill_at: Instant) {
        let mut slots = self.lock();
        self.stop.send_modify(|stop| {
            *stop = Some(stop.map_or(kill_at, |earlier| earlier.min(kill_at)));
        });
        for entry in slots.values_mut() {
            for request in entry.queue.drain(..) {
                request.refuse(RunError::Stopping);
            }
            entry.wake.notify_one();
        }
    }

    /// Returns when running jobs must end because the agent stops.
    pub(super) async fn kill_time(&self) {
        let mut stop = self.stop.subscribe();
        loop {
            let at = *stop.borrow_and_update();
            let passed = async {
                match at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = passed => return,
                changed = stop.changed() => if changed.is_err() {
                    // The sender is part of `self`, so this cannot happen.
                    return std::future::pending().await;
                }
            }
        }
    }
}
