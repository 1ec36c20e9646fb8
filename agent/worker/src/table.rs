//! The state of every slot, and the answers that follow from it. Has no side effects besides
//! answers; the actor (`slot`) runs the jobs.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{RunError, SlotStatus, WorkerKey, job::Outcome};

/// Reason for a request without outcome: any `RunError` but `Job`.
pub(super) type Refusal = RunError<Infallible>;

/// A job that waits for its slot.
#[derive(Debug)]
pub(super) struct QueuedJob {
    pub job: &'static str,
    pub arguments: Value,
    pub limit: Duration,
    pub deadline: Instant,
    /// True if the job changes nothing (`Job::READ_ONLY`): at its deadline it is answered before
    /// its worker is ended.
    pub read_only: bool,
    /// True if the job is called again and again (`Job::COMES_AGAIN`): a foreground worker is kept
    /// for the next call.
    pub comes_again: bool,
    pub answer: oneshot::Sender<Result<Outcome, Refusal>>,
}

impl QueuedJob {
    /// Answers the request with an error; does nothing if its caller does not wait any more.
    pub(super) fn refuse(self, refusal: Refusal) {
        let _ = self.answer.send(Err(refusal));
    }
}

/// The job that a slot runs, until its worker is free again or gone.
#[derive(Debug)]
pub(super) struct Current {
    pub job: String,
    pub step: Option<String>,
    /// Start of the step, or of the job before its first step.
    pub since: Instant,
    /// Makes the actor kill the worker.
    pub cancel: Arc<Notify>,
    /// Notified when the job ends or the worker turns out to be unkillable.
    pub waiting: Vec<oneshot::Sender<()>>,
}

impl Current {
    pub(super) fn new(job: impl Into<String>, step: Option<&str>, since: Instant) -> Self {
        Self {
            job: job.into(),
            step: step.map(str::to_owned),
            since,
            cancel: Arc::new(Notify::new()),
            waiting: Vec::new(),
        }
    }

    /// Returns job and step, for error messages and status.
    pub(super) fn text(&self) -> String {
        match &self.step {
            Some(step) => format!("{}: {step}", self.job),
            None => self.job.clone(),
        }
    }
}

/// State of one slot.
#[derive(Debug)]
pub(super) struct Entry {
    pub key: WorkerKey,
    pub queue: VecDeque<QueuedJob>,
    /// Makes the actor check the queue.
    pub wake: Arc<Notify>,
    pub pid: Option<i32>,
    pub current: Option<Current>,
    /// True if its worker was killed and still runs, or cannot be ended for another reason.
    pub unkillable: bool,
    /// Notified when the worker ends; it ends as soon as it has no work.
    pub leaving: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
pub(super) enum Next {
    /// A job to run; it is `current` already.
    Job(QueuedJob),
    Idle,
}

impl Entry {
    pub(super) fn new(key: &WorkerKey) -> Self {
        Self {
            key: key.clone(),
            queue: VecDeque::new(),
            wake: Arc::new(Notify::new()),
            pid: None,
            current: None,
            unkillable: false,
            leaving: Vec::new(),
        }
    }

    fn busy(&self) -> Refusal {
        RunError::Busy {
            target: self.key.target.clone(),
            step: self
                .current
                .as_ref()
                .map_or_else(|| "its worker is changing".to_owned(), Current::text),
        }
    }

    /// Returns the error of a Stuck slot: it has an unkillable worker, or one step is older than
    /// `after`. None otherwise.
    pub(super) fn stuck(&self, now: Instant, after: Duration) -> Option<Refusal> {
        let current = self.current.as_ref()?;
        let age = now.saturating_duration_since(current.since);
        (self.unkillable || age >= after).then(|| RunError::Stuck {
            target: self.key.target.clone(),
            step: current.text(),
            age_s: age.as_secs(),
        })
    }

    /// Queues a request, or refuses it at once as Stuck or Busy.
    pub(super) fn admit(&mut self, request: QueuedJob, now: Instant, after: Duration, room: usize) {
        if let Some(stuck) = self.stuck(now, after) {
            return request.refuse(stuck);
        }
        // When nothing runs, one more than may wait: it runs at once.
        let room = room + usize::from(self.current.is_none());
        if self.queue.len() >= room {
            let busy = self.busy();
            return request.refuse(busy);
        }
        self.queue.push_back(request);
        self.wake.notify_one();
    }

    /// Refuses the requests that are past their deadline, or all if the slot is Stuck. Returns the
    /// time of the next sweep; None if no request waits.
    pub(super) fn sweep(&mut self, now: Instant, after: Duration) -> Option<Instant> {
        if self.stuck(now, after).is_some() {
            for request in std::mem::take(&mut self.queue) {
                if let Some(stuck) = self.stuck(now, after) {
                    request.refuse(stuck);
                }
            }
        }
        let (late, rest): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|request| request.deadline <= now);
        self.queue = rest;
        for request in late {
            let busy = self.busy();
            request.refuse(busy);
        }
        let stuck_at = self
            .current
            .as_ref()
            .map(|current| current.since + after)
            .filter(|_| !self.queue.is_empty());
        let deadlines = self.queue.iter().map(|request| request.deadline);
        deadlines.chain(stuck_at).min()
    }

    /// Makes the next request the current one, if there is one.
    pub(super) fn next(&mut self, now: Instant, after: Duration) -> Next {
        self.sweep(now, after);
        match self.queue.pop_front() {
            Some(request) => {
                self.current = Some(Current::new(request.job, None, now));
                Next::Job(request)
            }
            None => Next::Idle,
        }
    }

    /// True if a caller still waits for its worker to end.
    pub(super) fn is_dismissed(&mut self) -> bool {
        self.leaving.retain(|waiting| !waiting.is_closed());
        !self.leaving.is_empty()
    }

    /// Records that the running job began a step.
    pub(super) fn step(&mut self, name: String, now: Instant) {
        if let Some(current) = &mut self.current {
            current.step = Some(name);
            current.since = now;
        }
    }

    /// Ends the current job; the worker is free or gone.
    pub(super) fn release(&mut self) {
        self.unkillable = false;
        self.notify_waiting();
        self.current = None;
    }

    /// Marks the worker as unkillable.
    pub(super) fn hold(&mut self) {
        self.unkillable = true;
        self.notify_waiting();
    }

    fn notify_waiting(&mut self) {
        for waiting in self
            .current
            .iter_mut()
            .flat_map(|current| current.waiting.drain(..))
        {
            let _ = waiting.send(());
        }
    }

    /// Returns the state for metrics and tables; None if the slot has no worker and no job.
    pub(super) fn status(&self, now: Instant, after: Duration) -> Option<SlotStatus> {
        if self.pid.is_none() && self.current.is_none() {
            return None;
        }
        let current = self.current.as_ref();
        Some(SlotStatus {
            key: self.key.clone(),
            pid: self.pid,
            step: current.map(Current::text),
            age: current.map_or(Duration::ZERO, |current| {
                now.saturating_duration_since(current.since)
            }),
            stuck: self.stuck(now, after).is_some(),
            waiting: self.queue.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slot;
    use drivebay_model::DriveId;

    const AFTER: Duration = Duration::from_secs(30);

    type Answer = oneshot::Receiver<Result<Outcome, Refusal>>;

    fn request(now: Instant, limit: Duration) -> (QueuedJob, Answer) {
        let (answer, receiver) = oneshot::channel();
        let request = QueuedJob {
            job: "look",
            arguments: Value::Null,
            limit,
            deadline: now + limit,
            read_only: false,
            comes_again: false,
            answer,
        };
        (request, receiver)
    }

    fn entry() -> Entry {
        Entry::new(&(&DriveId("d".into()), Slot::Foreground).into())
    }

    fn submit(entry: &mut Entry, now: Instant, secs: u64, room: usize) -> Answer {
        let (request, answer) = request(now, Duration::from_secs(secs));
        entry.admit(request, now, AFTER, room);
        answer
    }

    fn is_waiting(answer: &mut Answer) -> bool {
        matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    fn refusal(mut answer: Answer) -> Refusal {
        answer.try_recv().unwrap().unwrap_err()
    }

    #[test]
    fn the_queue_is_bounded_and_the_next_caller_gets_busy_at_once() {
        let (mut entry, now) = (entry(), Instant::now());
        let mut first = submit(&mut entry, now, 60, 1);
        assert!(matches!(entry.next(now, AFTER), Next::Job(_)));
        let mut second = submit(&mut entry, now, 60, 1);
        let third = submit(&mut entry, now, 60, 1);
        assert!(is_waiting(&mut second) && !is_waiting(&mut first));
        assert!(matches!(refusal(third), RunError::Busy { step, .. } if step == "look"));
    }

    #[test]
    fn a_slot_with_no_room_to_wait_still_runs_one_job() {
        let (mut entry, now) = (entry(), Instant::now());
        let mut first = submit(&mut entry, now, 60, 0);
        assert!(is_waiting(&mut first));
        let second = submit(&mut entry, now, 60, 0);
        assert!(matches!(refusal(second), RunError::Busy { .. }));
    }

    #[test]
    fn who_waits_past_the_deadline_gets_busy_with_the_step() {
        let (mut entry, now) = (entry(), Instant::now());
        let _running = submit(&mut entry, now, 60, 4);
        assert!(matches!(entry.next(now, AFTER), Next::Job(_)));
        entry.step("writing".into(), now);
        let late = submit(&mut entry, now, 2, 4);
        let mut patient = submit(&mut entry, now, 50, 4);
        assert_eq!(entry.sweep(now, AFTER), Some(now + Duration::from_secs(2)));
        let later = now + Duration::from_secs(2);
        assert_eq!(entry.sweep(later, AFTER), Some(now + AFTER));
        assert!(matches!(refusal(late), RunError::Busy { step, .. } if step == "look: writing"));
        assert!(is_waiting(&mut patient));
    }

    #[test]
    fn stuck_is_one_old_step_not_many_young_ones() {
        let (mut entry, now) = (entry(), Instant::now());
        let _running = submit(&mut entry, now, 600, 4);
        assert!(matches!(entry.next(now, AFTER), Next::Job(_)));
        let half = Duration::from_secs(20);
        entry.step("one".into(), now + half);
        entry.step("two".into(), now + half * 2);
        let mut waiting = submit(&mut entry, now + half * 2, 600, 4);
        assert!(entry.stuck(now + half * 3, AFTER).is_none());
        assert!(is_waiting(&mut waiting));

        // 30 s later every caller gets it, queued or new.
        let then = now + half * 2 + AFTER;
        entry.sweep(then, AFTER);
        assert!(matches!(
            refusal(waiting),
            RunError::Stuck { age_s: 30, .. }
        ));
        let new = submit(&mut entry, then, 600, 4);
        assert!(matches!(refusal(new), RunError::Stuck { step, .. } if step == "look: two"));

        // The slot is not Stuck any more when the next step begins.
        entry.step("three".into(), then);
        assert!(entry.stuck(then, AFTER).is_none());
    }

    #[test]
    fn an_unkillable_worker_is_stuck_at_any_age_until_it_is_gone() {
        let (mut entry, now) = (entry(), Instant::now());
        let _running = submit(&mut entry, now, 1, 4);
        assert!(matches!(entry.next(now, AFTER), Next::Job(_)));
        entry.hold();
        assert!(matches!(
            refusal(submit(&mut entry, now, 60, 4)),
            RunError::Stuck { age_s: 0, .. }
        ));
        entry.release();
        assert!(is_waiting(&mut submit(&mut entry, now, 60, 4)));
    }

    #[test]
    fn who_waited_too_long_is_not_run() {
        let (mut entry, now) = (entry(), Instant::now());
        let late = submit(&mut entry, now, 1, 4);
        let next = entry.next(now + Duration::from_secs(1), AFTER);
        assert!(matches!(next, Next::Idle));
        assert!(matches!(refusal(late), RunError::Busy { .. }));
    }

    #[test]
    fn who_cancels_is_notified_when_the_worker_is_gone_or_known_to_stay() {
        let (mut entry, now) = (entry(), Instant::now());
        for end in [Entry::release, Entry::hold] {
            entry.current = Some(Current::new("erase", None, now));
            let (sender, mut receiver) = oneshot::channel();
            entry.current.as_mut().unwrap().waiting.push(sender);
            assert!(receiver.try_recv().is_err());
            end(&mut entry);
            assert!(receiver.try_recv().is_ok());
        }
    }
}
