//! Decides whether the agent evacuates a drive without a request, and which one. Pure.
//!
//! A verdict can be wrong, and moving reads all of a drive that may be failing: each rule here is one more reason to
//! leave the decision to an operator. The evacuation is then processed like an operator's request (`plan`, `next`).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use super::{MoveRequest, MoveScope, plan};
use crate::{
    inventory::{assemble::is_live, takes_copy},
    state::moves::{MoveRecord, Moves},
};
use drivebay_config::AutomaticConfig;
use drivebay_model::{
    ClassConfig, Drive, DriveHealth, DriveId, Evacuation, PollState, Snapshot, Verdict,
};

/// Reason for which the agent does not evacuate a drive whose verdict calls for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Obstacle {
    #[error("the verdict is the last known one; no poll of this agent has confirmed it yet")]
    NotObserved,
    #[error("an operator has acknowledged its findings")]
    Acknowledged,
    #[error("an operator decides its verdict, and the evidence alone says {0}")]
    Overridden(Verdict),
    #[error("the verdict has not held for {}s yet", .0.as_secs())]
    TooRecent(Duration),
    #[error("an operator cancelled moves off it within the last day")]
    Cancelled,
    #[error("its automatic evacuation was begun within the last day")]
    Begun,
    #[error("{begun} of {budget} automatic evacuations of a day were begun")]
    Budget { begun: usize, budget: u32 },
    #[error(
        "more than one drive of the node is BAD ({0}); look at their controller, cables and power first"
    )]
    SeveralBad(String),
    #[error("the automatic evacuation of drive {0} is not completed")]
    OneAtATime(DriveId),
    #[error("no drive of the node may be a target")]
    NoTarget,
    #[error("{}", .0.join("; "))]
    NotPossible(Vec<String>),
}

/// Input of a decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basis<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) classes: &'a [ClassConfig],
    pub(super) saved: &'a Moves,
    /// Id of this node, which volume ids in a request must have.
    pub(super) node: &'a str,
    pub(super) bounds: AutomaticConfig,
}

/// An evacuation to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evacuate {
    pub(super) drive: DriveId,
    pub(super) verdict: Verdict,
    /// Covers all volumes of the drive. Its targets are named, since an operator's request may use drives that this one
    /// may not.
    pub(super) request: MoveRequest,
}

/// At most one drive to evacuate, and the obstacle of each other drive whose verdict calls for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) evacuate: Option<Evacuate>,
    pub(super) refused: Vec<(DriveId, Obstacle)>,
}

/// Times since which each drive's verdict has called for an evacuation, without interruption and as observed by this
/// agent.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<DriveId, Instant>);

impl Held {
    /// Records a snapshot. The time of a drive is reset when the snapshot gives no reason to evacuate it.
    pub(super) fn observe(&mut self, snapshot: &Snapshot, classes: &[ClassConfig], now: Instant) {
        if classes.iter().all(|it| it.evacuate == Evacuation::Manual) {
            return;
        }
        let counts = |drive: &&Drive| {
            snapshot.ready
                && policy(drive, classes).covers(drive.health.verdict)
                && doubt(&drive.health, policy(drive, classes)).is_none()
        };
        let called: BTreeSet<&DriveId> = snapshot
            .drives
            .values()
            .filter(counts)
            .map(|drive| &drive.id)
            .collect();
        self.0.retain(|id, _| called.contains(id));
        for id in called {
            self.0.entry(id.clone()).or_insert(now);
        }
    }

    fn since(&self, id: &DriveId, now: Instant) -> Duration {
        let since = self.0.get(id);
        since.map_or(Duration::ZERO, |since| {
            now.saturating_duration_since(*since)
        })
    }
}

/// Decides on the state at `now`. Nothing is decided before the first scan of all drives is complete.
pub(super) fn decide(of: Basis<'_>, held: &Held, now: Instant) -> Decision {
    let mut decision = Decision::default();
    if !of.snapshot.ready {
        return decision;
    }
    let mut called: Vec<&Drive> = of
        .snapshot
        .drives
        .values()
        .filter(|drive| policy(drive, of.classes).covers(drive.health.verdict))
        .filter(|drive| has_volumes_to_move(of, drive))
        .collect();
    // Worst verdict first.
    called.sort_by_key(|drive| Reverse(drive.health.verdict));
    for drive in called {
        match of_drive(of, drive, held.since(&drive.id, now)) {
            Err(obstacle) => decision.refused.push((drive.id.clone(), obstacle)),
            Ok(request) if decision.evacuate.is_none() => {
                decision.evacuate = Some(Evacuate {
                    drive: drive.id.clone(),
                    verdict: drive.health.verdict,
                    request,
                });
            }
            // Evacuated once that one is completed.
            Ok(_) => {}
        }
    }
    decision
}

fn of_drive(of: Basis<'_>, drive: &Drive, held: Duration) -> Result<MoveRequest, Obstacle> {
    let evacuation = policy(drive, of.classes);
    if let Some(doubt) = doubt(&drive.health, evacuation) {
        return Err(doubt);
    }
    if held < of.bounds.delay {
        return Err(Obstacle::TooRecent(of.bounds.delay));
    }
    let recent = of.saved.automatic.get(&drive.id).copied();
    let recent = recent.unwrap_or_default();
    if recent.cancelled_seconds.is_some() {
        return Err(Obstacle::Cancelled);
    }
    if recent.begun_seconds.is_some() {
        return Err(Obstacle::Begun);
    }
    let all = of.saved.automatic.values();
    let begun = all.filter(|one| one.begun_seconds.is_some()).count();
    let budget = of.bounds.drives_per_day;
    if begun >= budget as usize {
        return Err(Obstacle::Budget { begun, budget });
    }
    if let Some(bad) = several_bad(of.snapshot) {
        return Err(Obstacle::SeveralBad(bad));
    }
    let mut open = of.saved.moves.values();
    let open = open.find(|one| one.is_automatic_and_open() && one.from != drive.id);
    if let Some(one) = open {
        return Err(Obstacle::OneAtATime(one.from.clone()));
    }
    let request = request(of.snapshot, drive, evacuation).ok_or(Obstacle::NoTarget)?;
    let plan = plan::plan(of.snapshot, of.classes, &of.saved.moves, of.node, &request);
    match plan.refusals.is_empty() {
        true => Ok(request),
        false => Err(Obstacle::NotPossible(plan.refusals)),
    }
}

/// Returns the policy of the drive's class; `Manual` for a drive in no class.
fn policy(drive: &Drive, classes: &[ClassConfig]) -> Evacuation {
    let class = drive.class.as_ref();
    let class = class.and_then(|name| classes.iter().find(|it| it.name == *name));
    class.map_or(Evacuation::Manual, |class| class.evacuate)
}

/// Returns the reason not to rely on the verdict: not confirmed by a poll of this agent, acknowledged, or set by an
/// operator against the evidence.
fn doubt(health: &DriveHealth, evacuation: Evacuation) -> Option<Obstacle> {
    if health.poll == PollState::LastKnown {
        return Some(Obstacle::NotObserved);
    }
    if health.is_acknowledged() {
        return Some(Obstacle::Acknowledged);
    }
    let otherwise = health.overridden.as_ref().map(|it| it.otherwise);
    let otherwise = otherwise.filter(|verdict| !evacuation.covers(*verdict));
    otherwise.map(Obstacle::Overridden)
}

/// True if the drive has live volumes that are not being moved already.
fn has_volumes_to_move(of: Basis<'_>, drive: &Drive) -> bool {
    of.snapshot.volumes.values().any(|volume| {
        let record = of.saved.moves.get(&volume.uuid);
        volume.drive == drive.id
            && is_live(volume.state)
            && record.is_none_or(MoveRecord::has_moved)
    })
}

/// Returns the BAD drives of the node if there are several, claimed or missing. Two devices of one identity count as
/// one drive.
pub(super) fn several_bad(snapshot: &Snapshot) -> Option<String> {
    let bad = snapshot.drives.values();
    let bad: BTreeSet<&str> = bad
        .filter(|drive| drive.health.verdict == Verdict::Bad)
        .map(|drive| drive.facts.id.0.as_str())
        .collect();
    let names: Vec<&str> = bad.into_iter().collect();
    (names.len() > 1).then(|| names.join(", "))
}

/// True if copies may be placed on the drive; not if it is SUSPECT, even if an operator permits its use.
fn may_be_target(drive: &Drive) -> bool {
    takes_copy(drive) && drive.health.verdict.takes_new_volumes()
}

/// Builds the request. None: no drive may be a target. The drive itself is none, since it is SUSPECT or BAD.
fn request(snapshot: &Snapshot, drive: &Drive, evacuation: Evacuation) -> Option<MoveRequest> {
    let targets = snapshot.drives.values();
    let to: Vec<String> = targets
        .filter(|target| may_be_target(target))
        .map(|target| target.id.0.clone())
        .collect();
    (!to.is_empty()).then(|| MoveRequest {
        scope: MoveScope::Drive {
            name: drive.id.0.clone(),
            only: Vec::new(),
        },
        to,
        hold: false,
        abort_on_error: false,
        by: format!("evacuate = {}", evacuation.as_str()),
    })
}

#[cfg(test)]
#[path = "automatic_tests.rs"]
mod tests;
