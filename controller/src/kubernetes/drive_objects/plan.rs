//! Plans which objects are written and deleted, from the reports of connected agents, the existing objects and the time. Pure.
//!
//! Several replicas plan at once, each from the agents that are connected to it. What a replica does not see it leaves as the object
//! has it, and of two that see the same agent the one with the later revision writes (`controller/decisions.md`).

use drivebay_objects::drive::Observed;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use drivebay_proto::agent::Drive;
use drivebay_view::drives::in_trouble;

use super::{
    Shown,
    queue::{Operation, Planned, Urgency, Version, WriteQueue},
    view::{
        AGENT_CONNECTED, Context, DriveUse, MAX_OTHERS, OtherNode, Volumes, has_findings, is_shown,
        status,
    },
    watched::{Digests, WatchedObject, WatchedObjects},
};

/// Seconds for which no connected agent has reported a drive before its object is deleted.
pub(super) const GRACE: i64 = 600;
/// Least seconds between two writes of an object because of sizes, volumes or messages.
pub(super) const MINOR: i64 = 60;
/// Seconds after a write from another agent process before an object is written from this one: the session of a replaced agent has
/// ended by then.
pub(super) const HANDOVER: i64 = 60;
/// Seconds after which an object that no other replica has written is taken over.
pub(super) const STALE: i64 = 600;

/// A node as this replica sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    /// The agent is connected to this replica and has scanned every drive.
    Reporting,
    /// The drives are neither present nor absent. `lost`: time since which the agent is not connected to this replica, seconds since
    /// 1970; None until the grace period of a disconnected node has passed.
    NotReporting { lost: Option<i64> },
    /// An operator has forgotten it.
    Forgotten,
}

impl NodeState {
    fn is_not_reporting(self) -> bool {
        matches!(self, Self::NotReporting { .. })
    }
}

/// A node that reports a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reporter {
    pub(super) node: Arc<str>,
    pub(super) usage: DriveUse,
}

/// All drives that connected agents report, by the names of their objects.
#[derive(Debug, Default)]
pub(super) struct Reporters(BTreeMap<String, Vec<Reporter>>);

impl Reporters {
    /// Adds the drives of a node.
    pub(super) fn add(&mut self, node: &Arc<str>, drives: &[(String, DriveUse)]) {
        for (name, usage) in drives {
            let reporter = Reporter {
                node: node.clone(),
                usage: *usage,
            };
            self.0.entry(name.clone()).or_default().push(reporter);
        }
    }

    fn of(&self, name: &str) -> &[Reporter] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the nodes that report a drive which another one reports, too.
    pub(super) fn shared(&self) -> BTreeSet<&str> {
        let shared = self.0.values().filter(|reporters| reporters.len() > 1);
        shared.flatten().map(|reporter| &*reporter.node).collect()
    }
}

/// Returns a node's drives that have objects, by the names of these.
pub(super) fn reported_drives(node: &str, drives: &[Drive]) -> Vec<(String, DriveUse)> {
    let shown = drives.iter().filter(|drive| is_shown(drive));
    let named = shown.map(|drive| {
        (
            drivebay_objects::drive::name(node, &drive.id),
            DriveUse::of(drive),
        )
    });
    named.collect()
}

/// The node whose report an object shows, and the other nodes that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShownNode {
    node: Arc<str>,
    others: Vec<OtherNode>,
}

/// Chooses a node that uses the drive before one that only sees it, and the same node as before if its use is as strong. None: the
/// object is left to a replica that sees more.
fn choose_node(
    reporters: &[Reporter],
    object: Option<&WatchedObject>,
    state: &dyn Fn(&str) -> NodeState,
    now: i64,
) -> Option<ShownNode> {
    let current = object.map(|object| &*object.node);
    let best = reporters.iter().max_by_key(|reporter| {
        let is_current = current == Some(&*reporter.node);
        (reporter.usage, is_current, Reverse(reporter.node.clone()))
    })?;
    let is_best = |node: &str| node == &*best.node;
    let mut others: Vec<OtherNode> = reporters
        .iter()
        .filter(|reporter| !is_best(&reporter.node))
        .map(|reporter| OtherNode {
            node: (*reporter.node).into(),
            usage: Some(reporter.usage),
        })
        .collect();
    if let Some(object) = object {
        let is_not_reporting = |node: &str| !node.is_empty() && state(node).is_not_reporting();
        if is_not_reporting(&object.node) {
            let is_seen = best.usage > DriveUse::Remembered;
            let was_other = object.other_nodes.iter().any(|node| is_best(node));
            if !is_seen || (was_other && object.age(now) < STALE) {
                return None;
            }
        }
        let named = std::iter::once(&object.node).chain(&object.other_nodes);
        let unseen = named.filter(|node| !is_best(node) && is_not_reporting(node));
        others.extend(unseen.map(|node| OtherNode {
            node: node.clone(),
            usage: None,
        }));
    }
    others.sort_by(|a, b| a.node.cmp(&b.node));
    others.dedup_by(|a, b| a.node == b.node);
    others.truncate(MAX_OTHERS);
    Some(ShownNode {
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

/// Decides if an existing object is replaced by a status of these digests.
fn decide(wanted: Digests, observed: &Observed, object: &WatchedObject, now: i64) -> Decision {
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

fn urgency(drive: &Drive, is_minor: bool) -> Urgency {
    match (is_minor, in_trouble(drive)) {
        (true, _) => Urgency::Minor,
        (false, true) => Urgency::Trouble,
        (false, false) => Urgency::Change,
    }
}

/// A reporting node, as it is passed to [`Plan::write`].
pub(super) struct NodeView<'a> {
    pub(super) node: &'a Arc<str>,
    pub(super) observed: Observed,
    pub(super) drives: &'a [Drive],
    /// By the identity of their drive.
    pub(super) volumes: BTreeMap<String, Volumes>,
}

/// Result of [`Plan::write`].
#[derive(Debug, Default)]
pub(super) struct PlannedNode {
    /// No object of the node has to be compared again before the node, an object or a claim changes.
    pub(super) is_settled: bool,
    /// Names of objects of drives that have nothing to report, with `Shown::Findings`.
    pub(super) unwanted: BTreeSet<String>,
}

/// A plan being made.
pub(super) struct Plan<'a> {
    pub(super) shown: Shown,
    /// Seconds since 1970.
    pub(super) now: i64,
    pub(super) state: &'a (dyn Fn(&str) -> NodeState + Sync),
    /// True for names of objects whose last write failed. They are left out before the limit is applied.
    pub(super) is_set_aside: &'a (dyn Fn(&str) -> bool + Sync),
    pub(super) queue: WriteQueue,
}

impl Plan<'_> {
    fn offer(&mut self, name: &str, urgency: Urgency, operation: impl FnOnce() -> Operation) {
        if !(self.is_set_aside)(name) {
            self.queue.offer(name, urgency, operation);
        }
    }

    /// Plans the writes of the objects that show drives of this node.
    pub(super) fn write(
        &mut self,
        mut view: NodeView<'_>,
        reporters: &Reporters,
        objects: &WatchedObjects,
    ) -> PlannedNode {
        let mut is_settled = true;
        let mut unwanted = BTreeSet::new();
        for drive in view.drives.iter().filter(|drive| is_shown(drive)) {
            let name = drivebay_objects::drive::name(view.node, &drive.id);
            let object = objects.get(&name);
            let chosen = choose_node(reporters.of(&name), object, self.state, self.now);
            let Some(chosen) = chosen else {
                is_settled = false;
                continue;
            };
            if chosen.node != *view.node {
                continue;
            }
            if self.shown == Shown::Findings && !has_findings(drive, &chosen.others) {
                if object.is_none() {
                    continue;
                }
                // The object is kept up to date until it is deleted.
                unwanted.insert(name.clone());
            }
            let context = Context {
                node: view.node,
                others: &chosen.others,
                volumes: view.volumes.remove(&drive.id).unwrap_or_default(),
                observed: view.observed.clone(),
                transitions: object.map_or(&[][..], |object| &object.transitions),
                now: self.now,
            };
            let Some(object) = object else {
                is_settled = false;
                // Without an object there is nothing to compare, so the status is only built if it is kept.
                self.offer(&name, urgency(drive, false), || Operation::Apply {
                    status: Box::new(status(drive, context)),
                    replaces: None,
                });
                continue;
            };
            let status = status(drive, context);
            match decide(Digests::of(&status), &view.observed, object, self.now) {
                Decision::Nothing => {}
                Decision::Later => is_settled = false,
                Decision::Write { is_minor } => {
                    is_settled = false;
                    self.offer(&name, urgency(drive, is_minor), || Operation::Apply {
                        status: Box::new(status),
                        replaces: Some(Version::of(object)),
                    });
                }
            }
        }
        PlannedNode {
            is_settled,
            unwanted,
        }
    }

    /// Plans the deletion of objects that show no drive, and marks those of disconnected nodes. `unwanted`: names of
    /// the objects of drives that are reported and have nothing to report. `absences`: time since which each object is without a drive, seconds since
    /// 1970; kept between plans.
    pub(super) fn remove(
        &mut self,
        reporters: &Reporters,
        unwanted: &BTreeSet<&str>,
        objects: &WatchedObjects,
        absences: &mut BTreeMap<String, i64>,
    ) {
        let mut absent = BTreeMap::new();
        for (name, object) in objects.iter() {
            let is_reported = !reporters.of(name).is_empty();
            if is_reported && !unwanted.contains(name.as_str()) {
                self.mark(name, object, reporters);
                continue;
            }
            let nodes = std::iter::once(&object.node).chain(&object.other_nodes);
            let mut states = nodes
                .filter(|node| !node.is_empty())
                .map(|node| (self.state)(node));
            // A node that does not report is no evidence that the drive is absent.
            if states.clone().any(NodeState::is_not_reporting) {
                self.mark(name, object, reporters);
                continue;
            }
            let is_forgotten =
                !object.node.is_empty() && states.all(|state| state == NodeState::Forgotten);
            let since = absences.get(name).copied().unwrap_or(self.now);
            if (is_forgotten && !is_reported) || self.now.saturating_sub(since) >= GRACE {
                self.offer(name, Urgency::Minor, || {
                    Operation::Delete(Version::of(object))
                });
            }
            absent.insert(name.clone(), since);
        }
        *absences = absent;
    }

    /// Marks the object of a disconnected node, unless another replica has written it since the agent was lost here: that one has
    /// the agent.
    fn mark(&mut self, name: &str, object: &WatchedObject, reporters: &Reporters) {
        let NodeState::NotReporting { lost: Some(lost) } = (self.state)(&object.node) else {
            return;
        };
        let is_elsewhere = reporters
            .of(name)
            .iter()
            .any(|reporter| reporter.usage > DriveUse::Remembered);
        let is_marked = object.has(AGENT_CONNECTED, "False");
        if object.updated < lost && !is_marked && !is_elsewhere {
            self.offer(name, Urgency::Change, || {
                Operation::MarkDisconnected(Version::of(object))
            });
        }
    }

    pub(super) fn finish(self) -> Planned {
        self.queue.finish()
    }
}

#[cfg(test)]
#[path = "plan_fixture.rs"]
mod fixture;
#[cfg(test)]
#[path = "plan_limit_tests.rs"]
mod limit_tests;
#[cfg(test)]
#[path = "plan_replica_tests.rs"]
mod replica_tests;
#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
