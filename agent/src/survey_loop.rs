//! Keeps the inventory true: surveys after kernel events, on request, and slowly for events that were lost.

use std::{collections::BTreeSet, time::Duration};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    carve::jobs::Look,
    discovery::{
        claim::{Judgement, Rules},
        survey::{Entry, Survey},
        udev::Changed,
    },
    inventory::is_newer,
    model::{Contents, Drive, DriveRef, DriveState, RecordState},
    volumes::{Volumes, create::claimable_bytes},
    worker::{RunError, Slot},
};

/// Longest a repairing look may take.
const REPAIR_DEADLINE: Duration = Duration::from_secs(60);
/// Requests that wait for the survey that is running.
const QUEUE: usize = 16;

/// Asks for a survey.
#[derive(Debug, Clone)]
pub struct Rescans(mpsc::Sender<oneshot::Sender<Result<u64, String>>>);

impl Rescans {
    /// Surveys every drive and answers the revision that shows the result.
    pub async fn now(&self) -> Result<u64, String> {
        let (answer, result) = oneshot::channel();
        self.0
            .send(answer)
            .await
            .map_err(|_| "the agent is stopping".to_owned())?;
        result
            .await
            .map_err(|_| "the agent is stopping".to_owned())?
    }
}

/// The receiving end, for the loop.
pub type Requests = mpsc::Receiver<oneshot::Sender<Result<u64, String>>>;

/// Both ends.
pub fn rescans() -> (Rescans, Requests) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Rescans(sender), receiver)
}

/// Whether a claimed drive has something that a repairing look mends. Pure.
pub fn needs_repair(contents: &Contents) -> bool {
    !contents.notes.is_empty()
        || contents.volumes.iter().any(|placed| {
            let record = &placed.record;
            record.growing_to.is_some()
                || matches!(record.state, RecordState::Creating)
                || (placed.ambiguous.is_none()
                    && placed.device.is_none()
                    && !matches!(record.state, RecordState::Erasing { .. }))
        })
}

/// Runs until stopped.
pub async fn run(
    volumes: Volumes,
    rules: Rules,
    mut requests: Requests,
    mut events: mpsc::Receiver<Changed>,
    stop: CancellationToken,
) {
    let mut survey = Survey::new(volumes.pool().clone(), rules, volumes.config().kubelet_dir.clone());
    let mut slow = tokio::time::interval(volumes.config().rescan);
    slow.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut events_end = false;
    loop {
        // The first tick comes at once: the first survey.
        let (only, mut waiting) = tokio::select! {
            () = stop.cancelled() => return,
            _ = slow.tick() => (None, Vec::new()),
            asked = requests.recv() => match asked {
                Some(asked) => (None, vec![asked]),
                None => return,
            },
            changed = events.recv(), if !events_end => match changed {
                Some(changed) => (changed.names(), Vec::new()),
                None => {
                    tracing::error!("kernel events have ended; drives are looked at by the slow rescan only");
                    events_end = true;
                    continue;
                }
            },
        };
        // Whoever asked before the survey began is answered by it.
        while let Ok(asked) = requests.try_recv() {
            waiting.push(asked);
        }
        let only = if waiting.is_empty() { only } else { None };
        let result = tokio::select! {
            () = stop.cancelled() => return,
            result = once(&volumes, &mut survey, only) => result,
        };
        if let Err(why) = &result {
            tracing::error!(why, "the drives could not be surveyed; the inventory keeps what it had");
        }
        for asked in waiting {
            // Whoever gave up waiting needs no answer.
            let _ = asked.send(result.clone());
        }
    }
}

/// One survey: `only` these kernel names are probed again, or all.
async fn once(
    volumes: &Volumes,
    survey: &mut Survey,
    only: Option<BTreeSet<String>>,
) -> Result<u64, String> {
    let entries = survey
        .run(only)
        .await
        .map_err(|error| crate::model::cause::chain(&error))?;
    let revision = publish(volumes, &entries);
    for entry in &entries {
        if matches!(entry.judgement, Judgement::Claimed)
            && entry.contents.as_ref().is_some_and(needs_repair)
        {
            repair(volumes, entry).await;
        }
    }
    volumes
        .refresh_mounts()
        .map(|later| later.max(revision))
        .map_err(|error| crate::model::cause::chain(&error))
}

fn publish(volumes: &Volumes, entries: &[Entry]) -> u64 {
    volumes.inventory().update(|known| {
        let here: BTreeSet<_> = entries.iter().map(|entry| entry.key.clone()).collect();
        known.drives.retain(|id, _| here.contains(id));
        for entry in entries {
            let before = known.drives.remove(&entry.key);
            let mut drive = drive(entry);
            // A job may have answered while the survey looked: the later of the two stays.
            if let Some(before) = before
                && let Some(contents) = &before.contents
                && drive.rejects.is_empty()
                && drive
                    .contents
                    .as_ref()
                    .is_none_or(|found| !is_newer(Some(contents), found))
                && before.facts.diskseq == drive.facts.diskseq
            {
                drive.state = before.state;
                drive.class.clone_from(&before.class);
                drive.contents = before.contents;
            }
            match &entry.stuck {
                Some(step) => {
                    known.stuck.insert(entry.key.clone(), step.clone());
                }
                None => {
                    known.stuck.remove(&entry.key);
                }
            }
            if drive.state == DriveState::Claimed {
                let mut remembered = drive.clone();
                remembered.trouble = None;
                known.memory.drives.insert(entry.key.clone(), remembered);
            }
            known.drives.insert(entry.key.clone(), drive);
        }
        known.ready = true;
    })
}

fn drive(entry: &Entry) -> Drive {
    let (state, class, rejects) = match &entry.judgement {
        Judgement::Claimed => (
            DriveState::Claimed,
            entry
                .contents
                .as_ref()
                .map(|contents| contents.label.class.clone()),
            Vec::new(),
        ),
        Judgement::Available { class } => (DriveState::Available, Some(class.clone()), Vec::new()),
        Judgement::Rejected { class, reasons } => {
            (DriveState::Rejected, class.clone(), reasons.clone())
        }
    };
    Drive {
        id: entry.key.clone(),
        facts: entry.facts.clone(),
        state: if entry.stuck.is_some() {
            DriveState::Unprobed
        } else {
            state
        },
        class,
        rejects,
        contents: entry.contents.clone(),
        claimable_bytes: match state {
            DriveState::Available => {
                claimable_bytes(entry.facts.size_bytes, entry.facts.logical_sector)
            }
            _ => 0,
        },
        trouble: entry.stuck.clone(),
    }
}

async fn repair(volumes: &Volumes, entry: &Entry) {
    let job = Look {
        drive: DriveRef::from(&entry.facts),
        repair: true,
    };
    match volumes
        .pool()
        .run(&entry.facts.id, Slot::Foreground, job, REPAIR_DEADLINE)
        .await
    {
        Ok(contents) => {
            for note in &contents.notes {
                tracing::error!(drive = %entry.facts.id, note, "drive repaired or in need of it");
            }
            volumes.inventory().put_contents(&entry.key, contents);
        }
        Err(error @ (RunError::Busy { .. } | RunError::Stopping)) => {
            tracing::info!(drive = %entry.facts.id, error = %crate::model::cause::chain(&error), "repair comes with the next look");
        }
        Err(error) => {
            tracing::error!(drive = %entry.facts.id, error = %crate::model::cause::chain(&error), "the drive could not be repaired; it is left as it is");
        }
    }
}

