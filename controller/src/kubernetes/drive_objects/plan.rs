//! Which objects are to be written and deleted: inventory × existing objects × time. Pure.
//!
//! Several replicas decide this at once, each from the agents that are connected to it. What a replica does not see it leaves as the
//! object says, and of two that see the same agent the one with the later revision decides (`controller/decisions.md`).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drivebay_proto::agent::Drive;
use drivebay_view::drives::in_trouble;

use super::{
    Shown,
    known::{Digests, Known, Objects},
    object::{self, DriveStatus, Observed},
    view::{
        AGENT_CONNECTED, Claim, Context, MAX_OTHERS, OtherNode, Volumes, has_findings, is_shown,
        status,
    },
};

/// Seconds for which no connected agent has reported a drive before its object is deleted.
pub(super) const GRACE: i64 = 600;
/// Least seconds between two writes of an object because of sizes, volumes or texts.
pub(super) const MINOR: i64 = 60;
/// Seconds after a write from another agent process before an object is written from this one: a session with an agent that has
/// ended is over by then.
pub(super) const HANDOVER: i64 = 60;
/// Seconds after which an object that no other replica has written is taken over.
pub(super) const STALE: i64 = 600;
/// Most actions of one plan. The rest follow in the next one.
pub(super) const MAX_ACTIONS: usize = 1000;

/// What this replica knows about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its agent is connected to this replica and has scanned every drive.
    Live,
    /// Otherwise: its drives are neither present nor absent. `lost`: since when its agent is not connected, seconds since 1970, if
    /// that is for longer than a restart takes.
    Silent { lost: Option<i64> },
    /// An operator has forgotten it.
    Forgotten,
}

impl Standing {
    fn is_silent(self) -> bool {
        matches!(self, Self::Silent { .. })
    }
}

/// The object that an action replaces or deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) uid: Box<str>,
    pub(super) version: Box<str>,
}

impl Version {
    fn of(object: &Known) -> Self {
        Self {
            uid: object.uid.clone(),
            version: object.version.clone(),
        }
    }
}

/// How soon an action is carried out, if not all can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// A drive in trouble.
    Trouble,
    /// Another drive that changed, or has no object.
    Change,
    /// Sizes, volumes, texts; an object that goes.
    Minor,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    /// `over`: the object that was compared; None: there was none.
    Write {
        status: Box<DriveStatus>,
        over: Option<Version>,
    },
    /// Sets the condition that the node's agent is not connected, and nothing else.
    Disconnect(Version),
    Delete(Version),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) name: String,
    pub(super) urgency: Urgency,
    pub(super) act: Act,
}

/// A node that reports a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: Arc<str>,
    pub(super) claim: Claim,
}

/// All drives that connected agents report, by the names of their objects.
#[derive(Debug, Default)]
pub(super) struct Places(BTreeMap<String, Vec<Place>>);

impl Places {
    /// Adds the drives of a node.
    pub(super) fn add(&mut self, node: &Arc<str>, drives: &[(String, Claim)]) {
        for (name, claim) in drives {
            let place = Place {
                node: node.clone(),
                claim: *claim,
            };
            self.0.entry(name.clone()).or_default().push(place);
        }
    }

    fn of(&self, name: &str) -> &[Place] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes that report a drive which another one reports, too.
    pub(super) fn shared(&self) -> BTreeSet<&str> {
        let shared = self.0.values().filter(|places| places.len() > 1);
        shared.flatten().map(|place| &*place.node).collect()
    }
}

/// Returns a node's drives that have objects, by the names of these.
pub(super) fn places_of(node: &str, drives: &[Drive]) -> Vec<(String, Claim)> {
    let shown = drives.iter().filter(|drive| is_shown(drive));
    let named = shown.map(|drive| (object::name(node, &drive.id), Claim::of(drive)));
    named.collect()
}

/// The node that a drive's object shows, and the others.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    node: Arc<str>,
    others: Vec<OtherNode>,
}

/// Decides which node's report of a drive its object shows: of one that uses the drive before one that only sees it, and of the same
/// node as before if that does as well as another. None: the object is left to a replica that sees more.
fn holder(
    places: &[Place],
    object: Option<&Known>,
    standing: &dyn Fn(&str) -> Standing,
    now: i64,
) -> Option<Holder> {
    let current = object.map(|object| &*object.node);
    let best = places.iter().max_by_key(|place| {
        let is_current = current == Some(&*place.node);
        (place.claim, is_current, Reverse(place.node.clone()))
    })?;
    let is_best = |node: &str| node == &*best.node;
    let mut others: Vec<OtherNode> = places
        .iter()
        .filter(|place| !is_best(&place.node))
        .map(|place| OtherNode {
            node: (*place.node).into(),
            claim: Some(place.claim),
        })
        .collect();
    if let Some(object) = object {
        let is_silent = |node: &str| !node.is_empty() && standing(node).is_silent();
        if is_silent(&object.node) {
            let is_seen = best.claim > Claim::Remembered;
            let was_known = object.other_nodes.iter().any(|node| is_best(node));
            if !is_seen || (was_known && object.age(now) < STALE) {
                return None;
            }
        }
        let said = std::iter::once(&object.node).chain(&object.other_nodes);
        let unseen = said.filter(|node| !is_best(node) && is_silent(node));
        others.extend(unseen.map(|node| OtherNode {
            node: node.clone(),
            claim: None,
        }));
    }
    others.sort_by(|a, b| a.node.cmp(&b.node));
    others.dedup_by(|a, b| a.node == b.node);
    others.truncate(MAX_OTHERS);
    Some(Holder {
        node: best.node.clone(),
        others,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Write { is_minor: bool },
    Later,
    Nothing,
}

/// Decides if an object is written with a status of these digests.
fn decide(wanted: Digests, observed: &Observed, object: Option<&Known>, now: i64) -> Decision {
    let Some(object) = object else {
        return Decision::Write { is_minor: false };
    };
    if object.digests.whole == wanted.whole {
        return Decision::Nothing;
    }
    let age = object.age(now);
    let is_minor = object.digests.urgent == wanted.urgent;
    let is_behind = match *object.instance == *observed.instance {
        true => object.revision > observed.revision && age < STALE,
        false => !object.instance.is_empty() && age < HANDOVER,
    };
    match is_behind || (is_minor && age < MINOR) {
        true => Decision::Later,
        false => Decision::Write { is_minor },
    }
}

/// A live node, as it is passed to [`Plan::write`].
pub(super) struct NodeView<'a> {
    pub(super) node: &'a Arc<str>,
    pub(super) observed: Observed,
    pub(super) drives: &'a [Drive],
    /// By the identity of their drive.
    pub(super) volumes: BTreeMap<String, Volumes>,
}

/// Result of [`Plan::write`].
#[derive(Debug, Default)]
pub(super) struct Written {
    /// No object of the node has to be decided again before the node, an object or a claim changes.
    pub(super) is_settled: bool,
    /// Objects of drives that have nothing to show.
    pub(super) unwanted: BTreeSet<String>,
}

/// A plan being made.
pub(super) struct Plan<'a> {
    pub(super) shown: Shown,
    /// Seconds since 1970.
    pub(super) now: i64,
    pub(super) standing: &'a (dyn Fn(&str) -> Standing + Sync),
    pub(super) actions: Vec<Action>,
}

impl Plan<'_> {
    /// Plans the writes of the objects that show drives of this node.
    pub(super) fn write(
        &mut self,
        mut view: NodeView<'_>,
        places: &Places,
        objects: &Objects,
    ) -> Written {
        let mut is_settled = true;
        let mut unwanted = BTreeSet::new();
        for drive in view.drives.iter().filter(|drive| is_shown(drive)) {
            let name = object::name(view.node, &drive.id);
            let known = objects.get(&name);
            let Some(holder) = holder(places.of(&name), known, self.standing, self.now) else {
                is_settled = false;
                continue;
            };
            if holder.node != *view.node {
                continue;
            }
            let is_found = has_findings(drive, &holder.others);
            if self.shown == Shown::Findings && !is_found {
                if known.is_none() {
                    continue;
                }
                // It is kept up to date until it goes.
                unwanted.insert(name.clone());
            }
            let transitions = known.map_or(&[][..], |known| &known.transitions);
            let context = Context {
                node: view.node,
                others: &holder.others,
                volumes: view.volumes.remove(&drive.id).unwrap_or_default(),
                observed: view.observed.clone(),
                transitions,
                now: self.now,
            };
            let status = status(drive, context);
            match decide(Digests::of(&status), &view.observed, known, self.now) {
                Decision::Nothing => {}
                Decision::Later => is_settled = false,
                Decision::Write { is_minor } => {
                    is_settled = false;
                    let urgency = match (is_minor, in_trouble(drive)) {
                        (true, _) => Urgency::Minor,
                        (false, true) => Urgency::Trouble,
                        (false, false) => Urgency::Change,
                    };
                    self.actions.push(Action {
                        name,
                        urgency,
                        act: Act::Write {
                            status: Box::new(status),
                            over: known.map(Version::of),
                        },
                    });
                }
            }
        }
        Written {
            is_settled,
            unwanted,
        }
    }

    /// Plans the deletion of objects that show no drive, and marks those of disconnected nodes. `is_unwanted`: true for the name of
    /// a drive that is reported and has nothing to show. `absences`: since when each object has been without a drive, seconds since 1970; kept
    /// between plans.
    pub(super) fn remove(
        &mut self,
        places: &Places,
        is_unwanted: &(dyn Fn(&str) -> bool + Sync),
        objects: &Objects,
        absences: &mut BTreeMap<String, i64>,
    ) {
        let mut absent = BTreeMap::new();
        for (name, object) in objects.iter() {
            let is_reported = !places.of(name).is_empty();
            if is_reported && !is_unwanted(name) {
                self.mark(name, object, places);
                continue;
            }
            let nodes = std::iter::once(&object.node).chain(&object.other_nodes);
            let mut standings = nodes
                .filter(|node| !node.is_empty())
                .map(|node| (self.standing)(node));
            // Absence is observed, never assumed.
            if standings.clone().any(Standing::is_silent) {
                self.mark(name, object, places);
                continue;
            }
            let is_forgotten =
                !object.node.is_empty() && standings.all(|one| one == Standing::Forgotten);
            let since = absences.get(name).copied().unwrap_or(self.now);
            if (is_forgotten && !is_reported) || self.now.saturating_sub(since) >= GRACE {
                self.actions.push(Action {
                    name: name.clone(),
                    urgency: Urgency::Minor,
                    act: Act::Delete(Version::of(object)),
                });
            }
            absent.insert(name.clone(), since);
        }
        *absences = absent;
    }

    /// Marks the object of a disconnected node, unless another replica has written it since the agent was lost here: that one has
    /// the agent.
    fn mark(&mut self, name: &str, object: &Known, places: &Places) {
        let Standing::Silent { lost: Some(lost) } = (self.standing)(&object.node) else {
            return;
        };
        let is_elsewhere = places
            .of(name)
            .iter()
            .any(|place| place.claim > Claim::Remembered);
        let is_marked = object.has(AGENT_CONNECTED, "False");
        if object.updated < lost && !is_marked && !is_elsewhere {
            self.actions.push(Action {
                name: name.to_owned(),
                urgency: Urgency::Change,
                act: Act::Disconnect(Version::of(object)),
            });
        }
    }

    /// Returns the actions in the order in which they are carried out: the most urgent first, and within an urgency in an order that
    /// each `seed` makes another one, so that replicas do not write the same objects at the same time.
    pub(super) fn ordered(mut self, seed: u64) -> Vec<Action> {
        let order = |action: &Action| (action.urgency, scattered(seed, &action.name));
        self.actions.sort_by_cached_key(order);
        self.actions.truncate(MAX_ACTIONS);
        self.actions
    }
}

/// FNV-1a, begun with a seed.
fn scattered(seed: u64, name: &str) -> u64 {
    let begin = seed ^ 0xcbf2_9ce4_8422_2325;
    let mixed = name.bytes().fold(begin, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The upper half has mixed all bytes.
    mixed.rotate_left(32)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
