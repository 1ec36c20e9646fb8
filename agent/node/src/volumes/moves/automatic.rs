//! Whether the agent evacuates a drive without a request, and which one. Pure.
//!
//! A verdict can be wrong, and moving reads all of a drive that may be failing: each rule here is one more reason to leave the
//! decision to an operator. What is decided goes the way of an operator's request (`plan`, `next`).

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

/// Why a drive whose verdict calls for an evacuation is not evacuated by the agent.
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

/// What is decided from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Basis<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) classes: &'a [ClassConfig],
    pub(super) saved: &'a Moves,
    /// The node's id.
    pub(super) node: &'a str,
    pub(super) bounds: AutomaticConfig,
}

/// An evacuation that is to be begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Evacuate {
    pub(super) drive: DriveId,
    pub(super) verdict: Verdict,
    /// For all volumes of the drive; its targets are named, since an operator's may be drives that this one's may not.
    pub(super) request: MoveRequest,
}

/// At most one drive, and why not each of the others whose verdict calls for it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) evacuate: Option<Evacuate>,
    pub(super) refused: Vec<(DriveId, Obstacle)>,
}

/// Since when each drive's verdict has called for an evacuation, without interruption and as seen by this agent.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<DriveId, Instant>);

impl Held {
    /// Takes in a snapshot. Whatever is not a reason to evacuate in it ends what was counted.
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

/// Decides at one moment. Nothing is decided before the first scan of all drives is complete.
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
    // What fails first is evacuated first.
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
            // Its turn comes when that one is completed.
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

/// When volumes are moved off this drive; never off one in no class.
fn policy(drive: &Drive, classes: &[ClassConfig]) -> Evacuation {
    let class = drive.class.as_ref();
    let class = class.and_then(|name| classes.iter().find(|it| it.name == *name));
    class.map_or(Evacuation::Manual, |class| class.evacuate)
}

/// Why the verdict is not one that this agent derived from evidence, and that nobody knows of.
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

/// Whether volumes live on it that are not being moved already.
fn has_volumes_to_move(of: Basis<'_>, drive: &Drive) -> bool {
    of.snapshot.volumes.values().any(|volume| {
        let record = of.saved.moves.get(&volume.uuid);
        volume.drive == drive.id
            && is_live(volume.state)
            && record.is_none_or(MoveRecord::has_moved)
    })
}

/// The BAD drives of the node, if they are more than one. Whether a drive is claimed or missing makes no difference; two devices of
/// one identity are one drive.
pub(super) fn several_bad(snapshot: &Snapshot) -> Option<String> {
    let bad = snapshot.drives.values();
    let bad: BTreeSet<&str> = bad
        .filter(|drive| drive.health.verdict == Verdict::Bad)
        .map(|drive| drive.facts.id.0.as_str())
        .collect();
    let names: Vec<&str> = bad.into_iter().collect();
    (names.len() > 1).then(|| names.join(", "))
}

/// Whether copies may be put on it: also not if it is SUSPECT and an operator uses it all the same.
fn may_be_target(drive: &Drive) -> bool {
    takes_copy(drive) && drive.health.verdict.takes_new_volumes()
}

/// None: no drive may be a target. The drive itself is none, since it is SUSPECT or BAD.
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
        by: format!("evacuate = {}", evacuation.as_str()),
    })
}

#[cfg(test)]
#[path = "automatic_tests.rs"]
mod tests;
