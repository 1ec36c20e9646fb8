//! The agent's side: one slot per drive and purpose, a child started on demand, deadlines,
//! cancel, and the difference between Busy and Stuck.

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

/// How long workers of an earlier agent may take to die before their slots are Stuck.
const LEFTOVERS: Duration = Duration::from_secs(2);
/// Longest wait for the worker server at the start.
const SERVER: Duration = Duration::from_secs(2);

/// All workers of an agent. Cheap to clone.
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

/// What the pool and its actors share. The lock is held for moments, never across an await.
pub(super) struct Inner {
    pub(super) config: PoolConfig,
    pub(super) starter: Starter,
    slots: Mutex<HashMap<WorkerKey, Entry>>,
    /// Places for idle workers.
    pub(super) spare: Semaphore,
    /// Set once the pool takes no more work: when running jobs are killed.
    stop: watch::Sender<Option<Instant>>,
    /// Changes whenever a slot ends or turns out to be unkillable.
    settled: watch::Sender<()>,
}

impl Pool {
    /// Kills workers that an earlier agent left (pid and start time must match their note); one
    /// that does not die within two seconds keeps its slot, as Stuck, for as long as it lives.
    /// Fails when the notes cannot be read: it would not be known which slots are taken.
    ///
    /// There must be no other agent alive on this directory: its workers would be killed.
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
            // Without the directory there is no note, and unmounting needs none.
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
        // So that the first jobs need not execute their workers; it is not waited for if it hangs.
        let first = Arc::clone(&inner);
        let _ = timeout(SERVER, blocking(move || first.starter.prepare())).await;
        Ok(Self { inner })
    }

    /// Runs a job in that worker. Dropping the future does not stop the job.
    ///
    /// The deadline covers waiting and running. When it passes while the job runs, the worker is
    /// killed, and the answer comes when it is gone, one second later at most; at once for a job that only looks.
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
                only_looks: J::ONLY_LOOKS,
                comes_again: J::COMES_AGAIN,
                answer,
            },
        );
        // The actor answers by itself in time; the timeout is there in case it has a bug.
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

    /// Whether a job for this worker would have to wait for another.
    pub fn is_taken(&self, worker: &WorkerKey) -> bool {
        let is_taken = |entry: &mut Entry| entry.current.is_some() || !entry.queue.is_empty();
        self.inner.entry(worker, is_taken).unwrap_or(false)
    }

    /// Cancels what it is doing (kills it) and waits until it is gone or stuck. The
    /// job's caller gets `Cancelled`; those who wait for the slot go on waiting.
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

    /// Ends a worker that stays, and with it what it keeps open, and waits until it is gone or stuck. A job that it runs is
    /// cancelled.
    pub async fn dismiss(&self, worker: impl Into<WorkerKey>) {
        let key = worker.into();
        self.cancel(key.clone()).await;
        let ended = self.inner.entry(&key, |entry| {
            let (sender, ended) = oneshot::channel();
            // It ends when the drive answers; nobody waits for that.
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

    /// The process that workers are forked from, if it runs.
    pub fn server(&self) -> Option<i32> {
        self.inner.starter.server()
    }

    /// Every slot that has a worker.
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

    /// Takes no more work, lets running jobs end until `limit`, kills the rest; never waits longer
    /// than one second past it. A worker that cannot be killed is left, with its note.
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

/// Kills a worker of an earlier agent; gives it back if it is still there at the end.
async fn kill(mut leftover: Leftover, until: Instant) -> io::Result<Option<Leftover>> {
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    let mut first = true;
    loop {
        looks.tick().await;
        let look = blocking(move || {
            if first {
                leftover.kill();
            }
            (leftover.is_gone(), leftover)
        });
        first = false;
        let gone;
        (gone, leftover) = look.await.map_err(io::Error::other)?;
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

    /// Does something with a slot; None when it is not there.
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

    /// A slot that a worker of an earlier agent still holds.
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

    /// The next request of a slot; it counts as running from now on.
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

    /// Takes a slot without work out of the table. False: work came in.
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

    /// Tells `shutdown` to look again.
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
                    // The sender is part of `self`: this does not happen.
                    return std::future::pending().await;
                }
            }
        }
    }
}
