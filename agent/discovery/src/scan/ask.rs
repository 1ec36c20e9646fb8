//! Asks drives' workers what is on their drives, several at a time. A drive that hangs costs its own entry and nothing
//! else: after a while the scan goes on without it, and a later one has its answer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::Future,
    mem,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc},
    task::{self, JoinSet},
    time::timeout,
};

use super::{Scanned, Settings, Target};
use drivebay_layout::{
    error::Fault,
    jobs::{CarveError, Look},
    probe::{Probe, ProbeError, Probed},
};
use drivebay_model::{ClaimPolicy, Contents, DriveRef, Stamp, cause::chain};
use drivebay_worker::{Pool, RunError, Slot};

/// A drive's answers, as far as its worker gave any.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The probe's result; None when it was not run or gave no answer (then `trouble` says why).
    pub probed: Option<Result<Probed, ProbeError>>,
    /// What is on it, when the probe says it is ours and it was read. For a drive that gives no answer now
    /// (`trouble`) it is what was read last.
    pub contents: Option<Contents>,
    /// Why our label could not be read.
    pub label_trouble: Option<String>,
    /// Why the host could not read it, when that is not the drive's fault.
    pub host_trouble: Option<String>,
    /// A claim of ours was cut off before its label was written; the next claim finishes it.
    pub unfinished: bool,
    /// Why its worker gave no answer (stuck, busy, died), in a sentence. Such a drive is never Available.
    pub trouble: Option<String>,
    /// Its worker is stuck, as opposed to busy or dead.
    pub stuck: bool,
    /// Looks in a row that it was too slow for; what stands here is of before them.
    pub late: u32,
    /// Looks in a row in which it answered and could not be read.
    pub unread: u32,
    /// Of what state `contents` were when its worker was asked; None: nothing was known.
    pub begun: Option<Stamp>,
}

impl From<Scanned> for Seen {
    fn from(old: Scanned) -> Self {
        Self {
            begun: old.seen.contents.as_ref().map(Contents::stamp),
            ..old.seen
        }
    }
}

/// So many looks in a row may end by their deadline before a drive that was seen well counts as one that gives no
/// answer. Its worker could be ended each time, so no request of it hangs: it is only slow, under its tenants' load most
/// of all, and its volumes work. A drive on which requests stand still is reported by the health tasks meanwhile.
pub(super) const LATE_MAX: u32 = 5;

/// The two questions to a drive's worker, apart from the pool so that tests can answer them.
pub(super) trait DriveReader: Clone + Send + Sync + 'static {
    fn probe(
        &self,
        job: Probe,
        limit: Duration,
    ) -> impl Future<Output = Result<Probed, RunError<ProbeError>>> + Send;
    fn look(
        &self,
        job: Look,
        limit: Duration,
    ) -> impl Future<Output = Result<Contents, RunError<CarveError>>> + Send;
}

impl DriveReader for Pool {
    async fn probe(&self, job: Probe, limit: Duration) -> Result<Probed, RunError<ProbeError>> {
        let id = job.drive.id.clone();
        self.run((&id, Slot::Foreground), job, limit).await
    }

    async fn look(&self, job: Look, limit: Duration) -> Result<Contents, RunError<CarveError>> {
        let id = job.drive.id.clone();
        self.run((&id, Slot::Foreground), job, limit).await
    }
}

/// Questions to drives' workers. One that is not answered in `Settings::patience` stays open when the scan ends, which
/// shows its drive as it was, and is answered to a later one: a drive that hangs delays no other.
#[derive(Debug, Default)]
pub struct Questions {
    open: JoinSet<Seen>,
    asked: HashMap<task::Id, Question>,
    /// For the next scan.
    answers: Vec<(DriveRef, Seen)>,
    /// Kernel names of drives that the next scan asks once more.
    again: BTreeSet<String>,
}

#[derive(Debug)]
struct Question {
    drive: DriveRef,
    /// Something happened to the drive meanwhile, so that the next scan asks once more.
    again: bool,
}

impl Questions {
    /// Waits until there are answers that no scan has shown, and names their drives; forever when there is no open
    /// question. The next scan shows them. Nothing is lost when the caller stops waiting.
    pub async fn answered(&mut self) -> BTreeSet<String> {
        loop {
            if !self.answers.is_empty() {
                let answers = self.answers.iter();
                return answers
                    .map(|(drive, _)| drive.kernel_name.clone())
                    .collect();
            }
            match self.next().await {
                Some((_, Some(question), seen)) => self.ended(question, seen),
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    async fn next(&mut self) -> Option<(task::Id, Option<Question>, Seen)> {
        let ended = self.open.join_next_with_id().await?;
        Some(self.joined(ended))
    }

    /// Takes in what has been answered by now.
    fn collect(&mut self) {
        while let Some(ended) = self.open.try_join_next_with_id() {
            if let (_, Some(question), seen) = self.joined(ended) {
                self.ended(question, seen);
            }
        }
    }

    fn joined(
        &mut self,
        ended: Result<(task::Id, Seen), task::JoinError>,
    ) -> (task::Id, Option<Question>, Seen) {
        let (id, seen) = match ended {
            Ok(ended) => ended,
            // One that panicked leaves its drive unscanned.
            Err(error) => (error.id(), not_scanned()),
        };
        (id, self.asked.remove(&id), seen)
    }

    /// An answer to a question of an earlier scan.
    fn ended(&mut self, question: Question, seen: Seen) {
        if question.again {
            self.again.insert(question.drive.kernel_name.clone());
        }
        self.answers.push((question.drive, seen));
    }

    fn ask(
        &mut self,
        drive: DriveRef,
        question: impl Future<Output = Seen> + Send + 'static,
    ) -> task::Id {
        let id = self.open.spawn(question).id();
        let again = false;
        self.asked.insert(id, Question { drive, again });
        id
    }

    fn of(&mut self, drive: &DriveRef) -> Option<&mut Question> {
        let mut open = self.asked.values_mut();
        open.find(|question| question.drive == *drive)
    }
}

/// Of a drive whose worker has given no answer at all.
fn not_scanned() -> Seen {
    Seen {
        trouble: Some("it was not scanned".into()),
        ..Seen::default()
    }
}

/// Looks at all targets, in their order. The first answer of one of which nothing was known is sent to `answered` at once, with its
/// place among them.
pub(super) async fn gather(
    reader: &impl DriveReader,
    targets: Vec<Target>,
    only: Option<&BTreeSet<String>>,
    previous: Vec<Scanned>,
    settings: &Settings,
    questions: &mut Questions,
    answered: mpsc::UnboundedSender<(usize, Seen)>,
) -> Vec<Seen> {
    let mut before: BTreeMap<String, Scanned> = previous
        .into_iter()
        .map(|drive| (drive.facts.kernel_name.clone(), drive))
        .collect();
    if settings.patience.is_none() {
        // Whoever waits for everything does not want what was asked before.
        while questions.next().await.is_some() {}
        questions.answers.clear();
    }
    questions.collect();
    // Of drives that are gone by now, nobody wants them.
    let mut answers = mem::take(&mut questions.answers);
    let again = mem::take(&mut questions.again);
    let mut seen: Vec<Seen> = vec![not_scanned(); targets.len()];
    let permits = Arc::new(Semaphore::new(settings.at_once.max(1)));
    let (overdue, mut overdues) = mpsc::channel(targets.len().max(1));
    let shows = only.is_some_and(BTreeSet::is_empty);
    // Those that this scan waits for, and whether it is their first.
    let mut waiting: HashMap<task::Id, (usize, bool)> = HashMap::new();
    for (index, target) in targets.into_iter().enumerate() {
        let Some(slot) = seen.get_mut(index) else {
            continue;
        };
        let Some(policy) = target.probe else {
            *slot = Seen::default();
            continue;
        };
        let drive = target.drive;
        let old = before
            .remove(&drive.kernel_name)
            // A name moves; only the same device's past counts.
            .filter(|old| DriveRef::from(&old.facts) == drive)
            .map(Seen::from);
        let asked = only.is_none_or(|names| names.contains(&drive.kernel_name))
            || again.contains(&drive.kernel_name);
        let answer = answers.iter().position(|(of, _)| *of == drive);
        let answer = answer.map(|at| answers.swap_remove(at).1);
        let is_shown = answer.is_some() && !asked;
        let old = answer.or(old);
        if let Some(answer) = old.as_ref().filter(|_| is_shown) {
            *slot = answer.clone();
            continue;
        }
        if let Some(open) = questions.of(&drive) {
            open.again |= asked;
            *slot = still_silent(old);
            continue;
        }
        // A scan that only shows answers asks none that failed again, or two of them would take turns for ever.
        let is_kept = |old: &Seen| old.is_well() || (shows && old.trouble.is_some());
        if let Some(old) = old.as_ref().filter(|old| !asked && is_kept(old)) {
            *slot = old.clone();
            continue;
        }
        *slot = still_silent(old.clone());
        let (reader, permits, overdue) = (reader.clone(), Arc::clone(&permits), overdue.clone());
        let (limit, patience) = (settings.deadline, settings.patience);
        let known = old.as_ref().and_then(|old| old.contents.as_ref());
        let (of, begun) = (drive.clone(), known.map(Contents::stamp));
        let is_first = old.is_none();
        let id = questions.ask(drive, async move {
            // The semaphore is never closed.
            let permit = permits.acquire_owned().await;
            let mut seeing = pin!(async {
                let seen = see(&reader, of, policy, old, limit).await;
                Seen { begun, ..seen }
            });
            if let Some(patience) = patience {
                if let Ok(seen) = timeout(patience, &mut seeing).await {
                    return seen;
                }
                // Its turn is over: others are asked meanwhile.
                drop(permit);
                // The scan may have ended; there is room for every drive.
                let _ = overdue.try_send(task::id());
            }
            seeing.await
        });
        waiting.insert(id, (index, is_first));
    }
    while !waiting.is_empty() {
        tokio::select! {
            Some((id, question, answer)) = questions.next() => {
                let place = waiting.remove(&id);
                let slot = place.and_then(|(index, _)| seen.get_mut(index));
                if let Some((index, true)) = place && answer.is_well() {
                    // Nobody may want to know.
                    let _ = answered.send((index, answer.clone()));
                }
                match (slot, question) {
                    (Some(slot), _) => *slot = answer,
                    (None, Some(question)) => questions.ended(question, answer),
                    (None, None) => {}
                }
            }
            Some(id) = overdues.recv() => {
                waiting.remove(&id);
            }
        }
    }
    seen
}

/// A drive that has been asked and has not answered yet stays what it was; when nothing was known of it, that is why.
fn still_silent(old: Option<Seen>) -> Seen {
    match old {
        Some(old) if old.is_well() || old.trouble.is_some() => old,
        old => Seen {
            begun: old.as_ref().and_then(|old| old.begun),
            contents: old.and_then(|old| old.contents),
            trouble: Some("it has not answered the first scan yet".into()),
            ..Seen::default()
        },
    }
}

async fn see(
    reader: &impl DriveReader,
    drive: DriveRef,
    policy: Option<ClaimPolicy>,
    old: Option<Seen>,
    limit: Duration,
) -> Seen {
    let probe = Probe {
        drive: drive.clone(),
        policy,
    };
    let probed = match reader.probe(probe, limit).await {
        Ok(probed) => Ok(probed),
        Err(RunError::Job(error)) => Err(error),
        Err(error) => return no_answer(&error, old),
    };
    let mut seen = Seen {
        probed: Some(probed),
        ..Seen::default()
    };
    if matches!(&seen.probed, Some(Ok(probed)) if probed.ours.is_some()) {
        match reader
            .look(
                Look {
                    drive,
                    repair: false,
                },
                limit,
            )
            .await
        {
            Ok(contents) => seen.contents = Some(contents),
            Err(RunError::Job(CarveError::Unlabelled { .. })) => seen.unfinished = true,
            Err(RunError::Job(error)) => match error.fault() {
                Fault::Drive => seen.label_trouble = Some(chain(&error)),
                Fault::Host => return kept(chain(&error), old),
                Fault::Moment => return not_now(chain(&error), old),
            },
            Err(error) => return no_answer(&error, old),
        }
    }
    if seen.label_trouble.is_some() || matches!(seen.probed, Some(Err(_))) {
        seen.unread = old.map_or(0, |old| old.unread).saturating_add(1);
    }
    seen
}

/// The host could not read the drive, which says nothing of it: it stays what it was, however often.
fn kept(why: String, old: Option<Seen>) -> Seen {
    let host_trouble = Some(why.clone());
    match old {
        Some(old) if old.is_well() => Seen {
            host_trouble,
            ..old
        },
        old => Seen {
            contents: old.and_then(|old| old.contents),
            trouble: Some(why),
            host_trouble,
            ..Seen::default()
        },
    }
}

/// A drive that could not be read at this moment stays what it was a few times.
fn not_now(why: String, old: Option<Seen>) -> Seen {
    match old {
        Some(old) if old.is_well() && old.late < LATE_MAX => Seen {
            late: old.late + 1,
            ..old
        },
        old => Seen {
            contents: old.and_then(|old| old.contents),
            trouble: Some(why),
            ..Seen::default()
        },
    }
}

impl Seen {
    fn is_well(&self) -> bool {
        self.trouble.is_none() && self.probed.is_some()
    }
}

/// A drive whose worker gave no answer keeps what was known of its volumes. Busy with an RPC is no trouble
/// at all when it was seen well before, and neither is to be slow a few times.
fn no_answer<E: std::error::Error + 'static>(error: &RunError<E>, old: Option<Seen>) -> Seen {
    match (error, old) {
        (RunError::Busy { .. }, Some(old)) if old.is_well() => old,
        (RunError::Deadline { .. }, old) => not_now(error.trouble(), old),
        (_, old) => Seen {
            contents: old.and_then(|old| old.contents),
            trouble: Some(error.trouble()),
            stuck: matches!(error, RunError::Stuck { .. }),
            ..Seen::default()
        },
    }
}
