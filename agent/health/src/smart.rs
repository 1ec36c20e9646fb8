//! SMART polls: each in its drive's background slot, at intervals, with limited concurrency, and soon after the kernel has
//! reported errors of a drive.

mod operator;
mod persisted;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use self::persisted::restore;
use self::persisted::{of_history, report};
use super::{acknowledge::AcknowledgeRequest, logged::ReadEntries, slow};
use crate::collected::CollectedEvidence;
use drivebay_model::{
    DriveFacts, DriveHealth, DriveId, DriveRef, Finding, Media, PollState, Snapshot,
    cause::chain,
    health::{Reading, SmartReport},
};
use drivebay_node::{
    context::NodeContext,
    state::{StateFile, histories},
    tasks::Tasks,
};
use drivebay_smart::{
    self as smart, Assessment, Facts, Failure, FailureReason, History, Outcome, Poll, Polled,
    history::Counter, job::PollHealth,
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::{RunError, Slot};

/// Least time between two polls if the kernel reports errors of the drive.
const COMPLAINED: Duration = Duration::from_secs(5 * 60);
/// Delay until a drive that is busy with an RPC is polled again.
const BUSY: Duration = Duration::from_secs(60);
/// Limit of concurrent polls.
const AT_ONCE: usize = 4;
/// Interval of checking which drives are due.
const TICK: Duration = Duration::from_secs(2);
/// Limit of a poll: smartctl's own deadline, and time to start and reap it.
const DEADLINE: Duration = Duration::from_secs(100);
/// A drive that has not answered for this time after it appeared, and has no earlier report, counts as UNKNOWN and accepts
/// new volumes: most answer within seconds, and one whose SMART data hangs must not be unusable forever.
const FIRST_POLL: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Tracked {
    history: History,
    // State file of `history`.
    file: StateFile<History>,
    // Diskseq of the drive when it appeared.
    diskseq: u64,
    appeared: Instant,
    // It has answered or failed to, since it appeared.
    polled: bool,
    // It is identified by its slot, and the history may be of the drive that was there before.
    unproven: bool,
    due: Option<Instant>,
    last_poll: Option<Instant>,
    deep: Option<Instant>,
    polling: bool,
    read_entries: ReadEntries,
    // Reason of the last failed poll, logged when it changes.
    failure: Option<FailureReason>,
    // Report in the inventory; None: there is none.
    report: Option<DriveHealth>,
}

/// Polls drives until `stop`. `complaints`: drives of which the kernel has just reported errors.
pub async fn run(
    node: NodeContext,
    evidence: CollectedEvidence,
    mut complaints: mpsc::Receiver<DriveId>,
    mut acknowledgements: mpsc::Receiver<AcknowledgeRequest>,
    slow: slow::Acknowledger,
    stop: CancellationToken,
) {
    let mut drives: BTreeMap<DriveId, Tracked> = BTreeMap::new();
    let mut polls: Tasks<DriveId, Outcome> = Tasks::default();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {
                let snapshot = node.inventory().current();
                follow(&mut drives, &node, &evidence, &snapshot).await;
                for (id, facts) in due(&mut drives, &snapshot, AT_ONCE.saturating_sub(polls.count())) {
                    poll_drive(&node, &mut drives, &mut polls, id, &facts);
                }
            }
            Some((id, outcome)) = polls.next() => {
                let outcome = outcome.unwrap_or_else(|| {
                    let why = "the agent's own task failed; its log says where";
                    failed(FailureReason::NotStarted, why.to_owned())
                });
                take(&node, &evidence, &mut drives, id, &outcome).await;
            }
            () = evidence.polls_requested() => {
                for tracked in drives.values_mut() {
                    tracked.due = Some(Instant::now());
                }
            }
            Some(request) = acknowledgements.recv() => {
                // A drive that has just appeared may be acknowledged before the next tick.
                let snapshot = node.inventory().current();
                follow(&mut drives, &node, &evidence, &snapshot).await;
                let done = operator::carry_out(&node, &mut drives, &slow, &request).await;
                // The caller may have gone; the history has it all the same.
                let _ = request.done.send(done);
            }
            Some(drive) = complaints.recv() => {
                if let Some(tracked) = drives.get_mut(&drive) {
                    let now = Instant::now();
                    let earliest = tracked.last_poll.map_or(now, |last| (last + COMPLAINED).max(now));
                    tracked.due = Some(tracked.due.map_or(earliest, |due| due.min(earliest)));
                }
            }
        }
    }
}

/// Adds new drives, and removes those that are missing, in no class, or another drive by now.
async fn follow(
    drives: &mut BTreeMap<DriveId, Tracked>,
    node: &NodeContext,
    evidence: &CollectedEvidence,
    snapshot: &Snapshot,
) {
    let here = |id: &DriveId| {
        let drive = snapshot.drives.get(id)?;
        let is_here = drive.class.is_some() && drive.state.is_present();
        is_here.then_some(&drive.facts)
    };
    drives.retain(|id, tracked| {
        tracked.polling || here(id).is_some_and(|facts| facts.diskseq == tracked.diskseq)
    });
    evidence.polls().retain(|id| here(id).is_some());
    evidence.counters().retain(|id| here(id).is_some());
    let inventory = node.inventory();
    for id in snapshot.drives.keys() {
        let Some(facts) = here(id) else { continue };
        let reported = inventory.health(|registry| registry.report(id).cloned());
        let Some(tracked) = drives.get_mut(id) else {
            let file = histories::file(node.state_dir(), id);
            // A file that cannot be read is a finding of the host, and is not overwritten.
            let history = file.load().await.ok().flatten().unwrap_or_default();
            let tracked = take_up(facts, file, history, reported);
            if let Some(report) = tracked.report.clone() {
                inventory.update(|state| state.health.record_report(id.clone(), report));
            }
            publish_counters(evidence, id, &tracked);
            drives.insert(id.clone(), tracked);
            continue;
        };
        if let Some(history) = tracked.file.read_again().await {
            // Polls since then are not lost: the next one has a drive's counters, too.
            tracked.unproven = !facts.identity_is_stable;
            tracked.due = Some(Instant::now());
            let is_worse = history.verdict() > tracked.history.verdict();
            tracked.history = history;
            publish_counters(evidence, id, tracked);
            if is_worse {
                operator::publish(node, id, tracked);
            }
        }
        if tracked.history.expire(unix_seconds()) {
            tracing::warn!(drive = %id, "drive acknowledgement expired");
            operator::publish(node, id, tracked);
            // A failure is logged, and a finding of the host.
            let _ = tracked.file.save(tracked.history.clone()).await;
        }
        if reported.is_none() && tracked.appeared.elapsed() > FIRST_POLL {
            let unknown = DriveHealth {
                poll: PollState::LastKnown,
                ..DriveHealth::default()
            };
            inventory.update(|state| state.health.record_report(id.clone(), unknown));
        }
    }
}

/// Returns the state of a drive that has just appeared. `reported`: its report in the inventory. Pure but for the time.
fn take_up(
    facts: &DriveFacts,
    file: StateFile<History>,
    history: History,
    reported: Option<DriveHealth>,
) -> Tracked {
    let now = Instant::now();
    // Spread over time for drives that appear together, except those that accept no volumes before their first poll.
    let wait = match reported {
        Some(_) => Duration::from_secs(10).mul_f64(fastrand::f64()),
        None => Duration::ZERO,
    };
    Tracked {
        unproven: !facts.identity_is_stable && reported.is_none(),
        history,
        file,
        diskseq: facts.diskseq,
        appeared: now,
        polled: false,
        due: Some(now + wait),
        last_poll: None,
        deep: None,
        polling: false,
        read_entries: ReadEntries::default(),
        failure: None,
        report: reported.map(|report| DriveHealth {
            poll: PollState::LastKnown,
            ..report
        }),
    }
}

/// Returns the drives that are due, at most `most`.
fn due(
    drives: &mut BTreeMap<DriveId, Tracked>,
    snapshot: &Snapshot,
    most: usize,
) -> Vec<(DriveId, DriveFacts)> {
    let now = Instant::now();
    drives
        .iter()
        .filter(|(_, tracked)| !tracked.polling && tracked.due.is_some_and(|due| due <= now))
        .filter_map(|(id, _)| Some((id.clone(), snapshot.drives.get(id)?.facts.clone())))
        .take(most)
        .collect()
}

fn poll_drive(
    node: &NodeContext,
    drives: &mut BTreeMap<DriveId, Tracked>,
    polls: &mut Tasks<DriveId, Outcome>,
    id: DriveId,
    facts: &DriveFacts,
) {
    let Some(tracked) = drives.get_mut(&id) else {
        return;
    };
    let now = Instant::now();
    let config = &node.config().health;
    let deep = tracked
        .deep
        .is_none_or(|deep| now.duration_since(deep) >= config.deep_interval);
    let given = config.device_type(facts);
    let mut poll = Poll::of(facts, &tracked.history, given, deep);
    poll.smartctl.clone_from(&config.smartctl);
    // SMART commands are not queued, and frequent polls reduce the throughput of a rotating drive (drives.md §2).
    let every = if facts.media == Media::Hdd {
        config.hdd_interval
    } else {
        config.ssd_interval
    };
    tracked.due = Some(now + every.mul_f64(fastrand::f64().mul_add(0.2, 0.9)));
    tracked.last_poll = Some(now);
    tracked.polling = true;
    if deep {
        tracked.deep = Some(now);
    }
    let (pool, drive) = (node.pool().clone(), DriveRef::from(facts));
    polls.spawn(id.clone(), async move {
        match poll.unsupported.clone() {
            // No worker is started, since there is nothing to poll.
            Some(why) => failed(FailureReason::Unsupported, why),
            None => match pool
                .run(
                    (&id, Slot::Background),
                    PollHealth { drive, poll },
                    DEADLINE,
                )
                .await
            {
                Ok(Polled { outcome, .. }) => outcome,
                Err(error) => not_polled(&error),
            },
        }
    });
}

fn failed(reason: FailureReason, detail: String) -> Outcome {
    Outcome::Failed(Failure { reason, detail })
}

fn not_polled<E: std::error::Error + 'static>(error: &RunError<E>) -> Outcome {
    let reason = match error {
        RunError::Deadline { .. } | RunError::Stuck { .. } => FailureReason::Timeout,
        _ => FailureReason::NotStarted,
    };
    failed(reason, chain(error))
}

/// Judges an outcome, updates the inventory, and saves the history.
async fn take(
    node: &NodeContext,
    evidence: &CollectedEvidence,
    drives: &mut BTreeMap<DriveId, Tracked>,
    id: DriveId,
    outcome: &Outcome,
) {
    let Some(tracked) = drives.get_mut(&id) else {
        return;
    };
    tracked.polling = false;
    let snapshot = node.inventory().current();
    let drive = snapshot.drives.get(&id);
    if drive.is_some_and(|drive| drive.facts.diskseq != tracked.diskseq) {
        // The result is of a drive that was there before.
        drives.remove(&id);
        return;
    }
    let not_started =
        matches!(outcome, Outcome::Failed(failure) if failure.reason == FailureReason::NotStarted);
    if not_started {
        tracked.due = Some(Instant::now() + BUSY);
    }
    if let Outcome::Answered(facts) = outcome
        && std::mem::take(&mut tracked.unproven)
        && !tracked.history.is_of(facts)
    {
        tracked.history = History::default();
    }
    let assessment = smart::judge(
        outcome,
        &mut tracked.history,
        unix_seconds(),
        &node.config().health.thresholds,
        None,
    );
    if assessment.another_drive {
        tracing::warn!(drive = %id, "device identity changed; health history reset");
    }
    publish_counters(evidence, &id, tracked);
    let failure = assessment.failure.as_ref().map(|failure| failure.reason);
    let sector = drive.map_or(512, |drive| drive.facts.logical_sector);
    evidence
        .polls()
        .took(&id, outcome, failure, sector, unix_seconds());
    if failure != tracked.failure {
        match &assessment.failure {
            Some(failure) if failure.reason == FailureReason::Unsupported => {
                tracing::debug!(drive = %id, error = %failure, "SMART poll failed");
            }
            Some(failure) => {
                tracing::warn!(drive = %id, error = %failure, "SMART poll failed");
            }
            None => tracing::info!(drive = %id, "SMART poll recovered"),
        }
        tracked.failure = failure;
    }
    if let Outcome::Answered(facts) = outcome {
        let logged = facts.logged_places();
        tracked
            .read_entries
            .hand_over(&logged, sector, |place| evidence.suspects().add(&id, place));
    }
    if not_started && tracked.report.is_none() {
        // The drive is busy, which is no evidence: it is polled again.
        return;
    }
    tracked.polled |= match outcome {
        Outcome::Answered(_) | Outcome::Standby => true,
        Outcome::Failed(failure) => failure.reason == FailureReason::Unsupported,
    };
    let mut health = health(&assessment, &tracked.history);
    health.poll = match tracked.polled {
        true => PollState::Polled,
        false => PollState::LastKnown,
    };
    let before = tracked.report.take().and_then(|last| last.smart);
    let before = before.unwrap_or_default();
    health.smart = Some(SmartReport {
        asleep: assessment.standby,
        failure: assessment
            .failure
            .as_ref()
            .map(|failure| failure.detail.clone())
            .unwrap_or_default(),
        readings: match outcome {
            Outcome::Answered(facts) => readings(facts, sector),
            Outcome::Standby | Outcome::Failed(_) => before.readings,
        },
        ..report(&tracked.history)
    });
    tracked.report = Some(health.clone());
    node.inventory()
        .update(|state| state.health.record_report(id.clone(), health));
    // A failure is logged, and a finding of the host.
    let _ = tracked.file.save(tracked.history.clone()).await;
}

/// Publishes the counters' values, unless they may be of the drive that was there before.
fn publish_counters(evidence: &CollectedEvidence, id: &DriveId, tracked: &Tracked) {
    if !tracked.unproven {
        evidence
            .counters()
            .set(id, tracked.history.counter_points());
    }
}

/// Converts an assessment for the inventory. What only a successful poll reports is that of the last one. Pure.
fn health(assessment: &Assessment, history: &History) -> DriveHealth {
    let mut health = DriveHealth {
        verdict: assessment.verdict,
        ..of_history(history)
    };
    if let Some(failure) = &assessment.failure
        && failure.reason != FailureReason::Unsupported
    {
        let code = format!("Smart{}", failure.reason.as_str());
        health.conditions.push(Finding::new(code, &failure.detail));
    }
    health
}

/// Returns the readings that operators look for, then the counters whose growth matters. Pure.
fn readings(facts: &Facts, logical_sector: u32) -> Vec<Reading> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let own = smart::Reading::of(facts, logical_sector)
        .named()
        .into_iter();
    let counters = Counter::read(facts).into_iter();
    own.chain(counters.map(|(counter, value)| (counter.as_str(), number(value))))
        .map(|(name, value)| Reading {
            name: name.to_owned(),
            value,
        })
        .collect()
}
