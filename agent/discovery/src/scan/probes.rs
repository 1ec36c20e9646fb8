//! Queries drives' workers, several at a time. An unresponsive drive affects its own entry only: after `Settings::patience` the scan
//! continues without it, and a later scan uses its result.

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
    jobs::{LayoutError, ReadDrive},
    probe::{Probe, ProbeError, Probed},
};
use drivebay_model::{ClaimPolicy, Contents, DriveRef, Stamp, cause::chain};
use drivebay_worker::{Pool, RunError, Slot};

/// Results for a drive, as far as its worker gave any.
#[derive(Debug, Clone, Default)]
pub struct ProbeResults {
    /// Result of the probe; None if it was not run or gave no result (`trouble` has the reason then).
    pub probed: Option<Result<Probed, ProbeError>>,
    /// Contents, if the drive has Drivebay's label and they were read. For an unresponsive drive (`trouble`) those that were read last.
    pub contents: Option<Contents>,
    /// Error of reading Drivebay's label.
    pub label_trouble: Option<String>,
    /// Error of the host in reading the contents, if the drive is not its cause.
    pub host_trouble: Option<String>,
    /// True if a claim was interrupted before its label was written; the next claim completes it.
    pub unfinished: bool,
    /// Reason why the worker gave no result (stuck, busy, died), as a sentence. Such a drive is never Available.
    pub trouble: Option<String>,
    /// True if the worker is stuck, as opposed to busy or dead.
    pub stuck: bool,
    /// Number of consecutive scans that ended by their deadline; the other fields are from before them.
    pub late: u32,
    /// Number of consecutive scans in which the drive responded and could not be read.
    pub unread: u32,
    /// State of `contents` when the worker was queried; None: there were none.
    pub begun: Option<Stamp>,
}

impl From<Scanned> for ProbeResults {
    fn from(old: Scanned) -> Self {
        Self {
            begun: old.seen.contents.as_ref().map(Contents::stamp),
            ..old.seen
        }
    }
}

/// Consecutive scans that may end by their deadline before a drive whose scan had succeeded counts as unresponsive. The worker could be
/// ended each time, so no request of it is stuck: the drive is only slow, mostly under its tenants' load, and its volumes work. A drive
/// with stuck requests is reported by the health tasks meanwhile.
pub(super) const LATE_MAX: u32 = 5;

/// The two queries to a drive's worker, separate from the pool so that tests can implement them.
pub(super) trait DriveReader: Clone + Send + Sync + 'static {
    fn probe(
        &self,
        job: Probe,
        limit: Duration,
    ) -> impl Future<Output = Result<Probed, RunError<ProbeError>>> + Send;
    fn read_contents(
        &self,
        job: ReadDrive,
        limit: Duration,
    ) -> impl Future<Output = Result<Contents, RunError<LayoutError>>> + Send;
}

impl DriveReader for Pool {
    async fn probe(&self, job: Probe, limit: Duration) -> Result<Probed, RunError<ProbeError>> {
        let id = job.drive.id.clone();
        self.run((&id, Slot::Foreground), job, limit).await
    }

    async fn read_contents(
        &self,
        job: ReadDrive,
        limit: Duration,
    ) -> Result<Contents, RunError<LayoutError>> {
        let id = job.drive.id.clone();
        self.run((&id, Slot::Foreground), job, limit).await
    }
}

/// Queries to drives' workers. A query without a result within `Settings::patience` stays open when the scan ends, which keeps the drive's
/// previous state, and its result goes to a later scan: an unresponsive drive delays no other.
#[derive(Debug, Default)]
pub struct Questions {
    open: JoinSet<ProbeResults>,
    queries: HashMap<task::Id, Question>,
    /// Results for the next scan.
    answers: Vec<(DriveRef, ProbeResults)>,
    /// Kernel names of drives that the next scan queries again.
    again: BTreeSet<String>,
}

#[derive(Debug)]
struct Question {
    drive: DriveRef,
    /// True if the drive changed meanwhile, so that the next scan queries it again.
    again: bool,
}

impl Questions {
    /// Waits until there are results that no scan has reported, and returns their drives' kernel names; waits forever if no query is open.
    /// The next scan reports them. Cancel-safe.
    pub async fn answered(&mut self) -> BTreeSet<String> {
        loop {
            if !self.answers.is_empty() {
                let answers = self.answers.iter();
                return answers
                    .map(|(drive, _)| drive.kernel_name.clone())
                    .collect();
            }
            match self.next().await {
                Some((_, Some(question), entry)) => self.ended(question, entry),
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    async fn next(&mut self) -> Option<(task::Id, Option<Question>, ProbeResults)> {
        let ended = self.open.join_next_with_id().await?;
        Some(self.joined(ended))
    }

    /// Processes the queries that have ended by now.
    fn collect(&mut self) {
        while let Some(ended) = self.open.try_join_next_with_id() {
            if let (_, Some(question), entry) = self.joined(ended) {
                self.ended(question, entry);
            }
        }
    }

    fn joined(
        &mut self,
        ended: Result<(task::Id, ProbeResults), task::JoinError>,
    ) -> (task::Id, Option<Question>, ProbeResults) {
        let (id, entry) = match ended {
            Ok(ended) => ended,
            // A query that panicked leaves its drive unscanned.
            Err(error) => (error.id(), not_scanned()),
        };
        (id, self.queries.remove(&id), entry)
    }

    /// Keeps the result of an earlier scan's query for the next scan.
    fn ended(&mut self, question: Question, entry: ProbeResults) {
        if question.again {
            self.again.insert(question.drive.kernel_name.clone());
        }
        self.answers.push((question.drive, entry));
    }

    fn query(
        &mut self,
        drive: DriveRef,
        question: impl Future<Output = ProbeResults> + Send + 'static,
    ) -> task::Id {
        let id = self.open.spawn(question).id();
        let again = false;
        self.queries.insert(id, Question { drive, again });
        id
    }

    fn of(&mut self, drive: &DriveRef) -> Option<&mut Question> {
        let mut open = self.queries.values_mut();
        open.find(|question| question.drive == *drive)
    }
}

/// Returns the entry of a drive whose worker has given no result at all.
fn not_scanned() -> ProbeResults {
    ProbeResults {
        trouble: Some("it was not scanned".into()),
        ..ProbeResults::default()
    }
}

/// Queries all targets, and returns the results in their order. The first successful result of a drive without a previous one is sent to
/// `answered` at once, with its index.
pub(super) async fn gather(
    reader: &impl DriveReader,
    targets: Vec<Target>,
    only: Option<&BTreeSet<String>>,
    previous: Vec<Scanned>,
    settings: &Settings,
    questions: &mut Questions,
    answered: mpsc::UnboundedSender<(usize, ProbeResults)>,
) -> Vec<ProbeResults> {
    let mut before: BTreeMap<String, Scanned> = previous
        .into_iter()
        .map(|drive| (drive.facts.kernel_name.clone(), drive))
        .collect();
    if settings.patience.is_none() {
        // A scan that waits for every drive ignores results of earlier queries.
        while questions.next().await.is_some() {}
        questions.answers.clear();
    }
    questions.collect();
    // Results of drives that are gone are dropped.
    let mut answers = mem::take(&mut questions.answers);
    let again = mem::take(&mut questions.again);
    let mut entries: Vec<ProbeResults> = vec![not_scanned(); targets.len()];
    let permits = Arc::new(Semaphore::new(settings.at_once.max(1)));
    let (overdue, mut overdues) = mpsc::channel(targets.len().max(1));
    let shows = only.is_some_and(BTreeSet::is_empty);
    // Queries that this scan waits for: index of the target, and whether it is the drive's first result.
    let mut waiting: HashMap<task::Id, (usize, bool)> = HashMap::new();
    for (index, target) in targets.into_iter().enumerate() {
        let Some(slot) = entries.get_mut(index) else {
            continue;
        };
        let Some(policy) = target.probe else {
            *slot = ProbeResults::default();
            continue;
        };
        let drive = target.drive;
        let old = before
            .remove(&drive.kernel_name)
            // A kernel name may be reused; only the same device's previous result counts.
            .filter(|old| DriveRef::from(&old.facts) == drive)
            .map(ProbeResults::from);
        let is_requested = only.is_none_or(|names| names.contains(&drive.kernel_name))
            || again.contains(&drive.kernel_name);
        let answer = answers.iter().position(|(of, _)| *of == drive);
        let answer = answer.map(|at| answers.swap_remove(at).1);
        let is_shown = answer.is_some() && !is_requested;
        let old = answer.or(old);
        if let Some(answer) = old.as_ref().filter(|_| is_shown) {
            *slot = answer.clone();
            continue;
        }
        if let Some(open) = questions.of(&drive) {
            open.again |= is_requested;
            *slot = still_silent(old);
            continue;
        }
        // A scan that only reports results does not query failed drives again; else two of them would be queried in turn without end.
        let is_kept = |old: &ProbeResults| old.is_well() || (shows && old.trouble.is_some());
        if let Some(old) = old.as_ref().filter(|old| !is_requested && is_kept(old)) {
            *slot = old.clone();
            continue;
        }
        *slot = still_silent(old.clone());
        let (reader, permits, overdue) = (reader.clone(), Arc::clone(&permits), overdue.clone());
        let (limit, patience) = (settings.deadline, settings.patience);
        let contents = old.as_ref().and_then(|old| old.contents.as_ref());
        let (of, begun) = (drive.clone(), contents.map(Contents::stamp));
        let is_first = old.is_none();
        let id = questions.query(drive, async move {
            // The semaphore is never closed.
            let permit = permits.acquire_owned().await;
            let mut seeing = pin!(async {
                let entry = see(&reader, of, policy, old, limit).await;
                ProbeResults { begun, ..entry }
            });
            if let Some(patience) = patience {
                if let Ok(entry) = timeout(patience, &mut seeing).await {
                    return entry;
                }
                // The permit is released, so that others are queried meanwhile.
                drop(permit);
                // The scan may have ended; the channel has space for every drive.
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
                let slot = place.and_then(|(index, _)| entries.get_mut(index));
                if let Some((index, true)) = place && answer.is_well() {
                    // The receiver may be gone.
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
    entries
}

/// Returns the entry of a drive that has been queried and has not responded yet: its previous one; if there was none, one with that as the
/// reason.
fn still_silent(old: Option<ProbeResults>) -> ProbeResults {
    match old {
        Some(old) if old.is_well() || old.trouble.is_some() => old,
        old => ProbeResults {
            begun: old.as_ref().and_then(|old| old.begun),
            contents: old.and_then(|old| old.contents),
            trouble: Some("it has not answered the first scan yet".into()),
            ..ProbeResults::default()
        },
    }
}

async fn see(
    reader: &impl DriveReader,
    drive: DriveRef,
    policy: Option<ClaimPolicy>,
    old: Option<ProbeResults>,
    limit: Duration,
) -> ProbeResults {
    let probe = Probe {
        drive: drive.clone(),
        policy,
        past_own_table: false,
    };
    let probed = match reader.probe(probe, limit).await {
        Ok(probed) => Ok(probed),
        Err(RunError::Job(error)) => Err(error),
        Err(error) => return no_answer(&error, old),
    };
    let mut entry = ProbeResults {
        probed: Some(probed),
        ..ProbeResults::default()
    };
    if matches!(&entry.probed, Some(Ok(probed)) if probed.ours.is_some()) {
        match reader
            .read_contents(
                ReadDrive {
                    drive,
                    repair: false,
                },
                limit,
            )
            .await
        {
            Ok(contents) => entry.contents = Some(contents),
            Err(RunError::Job(LayoutError::Unlabelled { .. })) => entry.unfinished = true,
            Err(RunError::Job(error)) => match error.fault() {
                Fault::Drive => entry.label_trouble = Some(chain(&error)),
                Fault::Host => return kept(chain(&error), old),
                Fault::Moment => return not_now(chain(&error), old),
            },
            Err(error) => return no_answer(&error, old),
        }
    }
    if entry.label_trouble.is_some() || matches!(entry.probed, Some(Err(_))) {
        entry.unread = old.map_or(0, |old| old.unread).saturating_add(1);
    }
    entry
}

/// Returns the entry of a drive that the host could not read, which is no evidence about the drive: its previous state, for any number of
/// times.
fn kept(why: String, old: Option<ProbeResults>) -> ProbeResults {
    let host_trouble = Some(why.clone());
    match old {
        Some(old) if old.is_well() => ProbeResults {
            host_trouble,
            ..old
        },
        old => ProbeResults {
            contents: old.and_then(|old| old.contents),
            trouble: Some(why),
            host_trouble,
            ..ProbeResults::default()
        },
    }
}

/// Returns the entry of a drive that could not be read in time: its previous state, for `LATE_MAX` times.
fn not_now(why: String, old: Option<ProbeResults>) -> ProbeResults {
    match old {
        Some(old) if old.is_well() && old.late < LATE_MAX => ProbeResults {
            late: old.late + 1,
            ..old
        },
        old => ProbeResults {
            contents: old.and_then(|old| old.contents),
            trouble: Some(why),
            ..ProbeResults::default()
        },
    }
}

impl ProbeResults {
    fn is_well(&self) -> bool {
        self.trouble.is_none() && self.probed.is_some()
    }
}

/// Returns the entry of a drive whose worker gave no result; the last known contents are kept. If its last scan succeeded, neither being
/// busy with an RPC nor being slow a few times counts as a failure.
fn no_answer<E: std::error::Error + 'static>(
    error: &RunError<E>,
    old: Option<ProbeResults>,
) -> ProbeResults {
    match (error, old) {
        (RunError::Busy { .. }, Some(old)) if old.is_well() => old,
        (RunError::Deadline { .. }, old) => not_now(error.trouble(), old),
        (_, old) => ProbeResults {
            contents: old.and_then(|old| old.contents),
            trouble: Some(error.trouble()),
            stuck: matches!(error, RunError::Stuck { .. }),
            ..ProbeResults::default()
        },
    }
}
