//! Decides what happens with each task next, from the watched tasks, the reported drives and the time. Pure.
//!
//! Several replicas decide at once. Each takes the unfinished tasks in the same order, and the one whose write of the status succeeds
//! carries a task out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    names::{Lookup, Names},
    operation::{Operation, Subject, operation},
};
use drivebay_objects::{
    task::{DEFAULT_TTL, DriveTask, DriveTaskStatus},
    times::parse_time,
};

/// Seconds without handling by any controller after which a task is not carried out any more.
pub(super) const TOO_OLD: i64 = 3600;
/// Most seconds by which the clocks of a user and of the API server are expected to differ.
const SKEW: i64 = 600;
/// Seconds after which another replica takes over a running task.
pub(super) const TAKEOVER: i64 = 180;
/// Seconds between two requests of the same operation to an agent that did not answer.
pub(super) const RETRY: i64 = 15;
/// Seconds between two polls of a running evacuation.
pub(super) const POLL: i64 = 10;
/// Seconds after which the status of a waiting task is written again although nothing has changed.
const REFRESH: i64 = 600;
/// Largest number of unfinished tasks that are considered at once, the oldest.
pub(super) const MAX_UNFINISHED: usize = 1000;

/// Phase of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// No controller has handled the task.
    New,
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub(super) fn of(task: &DriveTask) -> Self {
        match task.status.as_ref().map(|status| status.phase.as_str()) {
            Some("Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            _ => Self::New,
        }
    }

    /// Returns the phase as a label of metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::New | Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    pub(super) fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// True if the next request of a task needs the drives of the nodes.
pub(super) fn needs_names(task: &DriveTask) -> bool {
    match Phase::of(task) {
        Phase::New | Phase::Pending => true,
        Phase::Running => !task.status.as_ref().is_some_and(|status| status.accepted),
        Phase::Succeeded | Phase::Failed => false,
    }
}

/// True if the reason of a status has been the same for more than an hour.
pub(super) fn is_long(status: &DriveTaskStatus, now: i64) -> bool {
    parse_time(&status.since).is_some_and(|since| now.saturating_sub(since) > TOO_OLD)
}

/// A drive of a node, and the drives that receive its volumes, by their identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) node: String,
    pub(super) drive: String,
    pub(super) to: Vec<String>,
}

/// Next step of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Leave,
    /// The task waits: Pending if nothing was requested yet, Running otherwise.
    Wait {
        reason: &'static str,
        message: String,
    },
    /// The operation is requested from the node's agent.
    Start(Target),
    /// The moves of an accepted evacuation are polled.
    Watch,
    /// The task fails without a request to an agent.
    Fail {
        reason: &'static str,
        message: String,
    },
    /// The object is deleted.
    Delete,
}

/// Inputs of a plan besides the tasks.
#[derive(Debug)]
pub(super) struct Context<'a> {
    /// Id of this process.
    pub(super) controller: &'a str,
    /// Seconds since 1970.
    pub(super) now: i64,
    pub(super) names: &'a Names,
    /// True if every known node is connected, so that a drive that no node reports does not exist.
    pub(super) is_settled: bool,
    /// Nodes with volumes that are moving.
    pub(super) moving_nodes: &'a BTreeSet<String>,
    /// Most nodes of the cluster with an evacuation at one time.
    pub(super) max_evacuations: usize,
    /// Names of tasks whose last write failed: they are not acted on, and no other task waits for their turn.
    pub(super) set_aside: &'a BTreeSet<String>,
    /// Specifications, by [`key`], of tasks that were carried out lately and have been deleted.
    pub(super) deleted: &'a BTreeMap<String, i64>,
}

/// Returns the decisions that need an action, with their tasks; those of unfinished tasks in the order of their creation.
pub(super) fn plan<'a>(
    tasks: impl Iterator<Item = &'a DriveTask> + Clone,
    context: &Context<'_>,
) -> Vec<(&'a DriveTask, Decision)> {
    let (finished, mut unfinished): (Vec<_>, Vec<_>) = tasks
        .clone()
        .partition(|task| Phase::of(task).is_finished());
    unfinished.sort_by_key(|task| order(task));
    // Nodes with an evacuation.
    let mut busy: BTreeSet<String> = context.moving_nodes.clone();
    let running = unfinished
        .iter()
        .filter(|task| Phase::of(task) == Phase::Running);
    busy.extend(
        running
            .filter(|task| is_evacuation(task))
            .filter_map(|task| Some(task.status.as_ref()?.node.clone())),
    );
    // The first task of each specification.
    let mut firsts: BTreeMap<String, (i64, Option<&str>)> = BTreeMap::new();
    if unfinished.iter().any(|task| Phase::of(task) == Phase::New) {
        for task in tasks {
            let first = firsts.entry(key(task)).or_insert_with(|| order(task));
            *first = order(task).min(*first);
        }
    }
    let is_set_aside = |task: &&DriveTask| {
        let name = task.metadata.name.as_ref();
        name.is_some_and(|name| context.set_aside.contains(name))
    };
    let mut decisions = Vec::new();
    // Operations of one drive are carried out in the order in which they were created.
    let mut ahead: BTreeMap<(&str, Subject), &str> = BTreeMap::new();
    let considered = unfinished.into_iter().filter(|task| !is_set_aside(task));
    for task in considered.take(MAX_UNFINISHED) {
        let is_copy = Phase::of(task) == Phase::New && {
            let key = key(task);
            let first = firsts.get(&key);
            first.is_some_and(|first| *first < order(task)) || context.deleted.contains_key(&key)
        };
        let subject = operation(&task.spec).and_then(Operation::subject);
        let subject = subject.map(|subject| (task.spec.drive.as_str(), subject));
        let behind = subject.and_then(|subject| ahead.get(&subject).copied());
        let decision = decide(task, is_copy, behind, &mut busy, context);
        let accepted = task.status.as_ref().is_some_and(|status| status.accepted);
        if let Some(subject) = subject
            && !accepted
            && !matches!(decision, Decision::Fail { .. })
        {
            let name = task.metadata.name.as_deref().unwrap_or_default();
            ahead.entry(subject).or_insert(name);
        }
        if decision != Decision::Leave {
            decisions.push((task, decision));
        }
    }
    for task in finished.into_iter().filter(|task| !is_set_aside(task)) {
        if is_expired(task, context.now) {
            decisions.push((task, Decision::Delete));
        }
    }
    decisions
}

/// Specification as text: the same for the same order, since it contains the time of its issue.
pub(super) fn key(task: &DriveTask) -> String {
    // Serializing types with texts as keys to memory cannot fail; an empty text would only make copies of tasks.
    serde_json::to_string(&task.spec).unwrap_or_default()
}

/// Sorts tasks by their creation.
fn order(task: &DriveTask) -> (i64, Option<&str>) {
    (created(task), task.metadata.uid.as_deref())
}

pub(super) fn created(task: &DriveTask) -> i64 {
    let created = task.metadata.creation_timestamp.as_ref();
    created.map_or(0, |time| time.0.as_second())
}

fn is_evacuation(task: &DriveTask) -> bool {
    operation(&task.spec).is_some_and(Operation::is_evacuation)
}

fn is_expired(task: &DriveTask, now: i64) -> bool {
    let finished = task
        .status
        .as_ref()
        .map(|status| status.finished_at.as_str());
    let finished = finished
        .and_then(parse_time)
        .unwrap_or_else(|| created(task));
    let ttl = task.spec.ttl_seconds_after_finished.unwrap_or(DEFAULT_TTL);
    now.saturating_sub(finished) >= ttl.max(0)
}

fn fail(reason: &'static str, message: impl Into<String>) -> Decision {
    Decision::Fail {
        reason,
        message: message.into(),
    }
}

fn decide(
    task: &DriveTask,
    is_copy: bool,
    behind: Option<&str>,
    busy: &mut BTreeSet<String>,
    context: &Context<'_>,
) -> Decision {
    let now = context.now;
    let nothing = DriveTaskStatus::default();
    let status = task.status.as_ref().unwrap_or(&nothing);
    let phase = Phase::of(task);
    let handled = parse_time(&status.handled_at);
    let since_handled = handled.map_or(i64::MAX, |handled| now.saturating_sub(handled).max(0));
    let is_ours = status.controller == context.controller;
    if phase == Phase::Running {
        let wait = match (is_ours, status.accepted) {
            (false, _) => TAKEOVER,
            (true, true) => POLL,
            (true, false) => RETRY,
        };
        if since_handled < wait {
            return Decision::Leave;
        }
        if status.accepted {
            return Decision::Watch;
        }
    }
    let Some(operation) = operation(&task.spec) else {
        return fail("Invalid", "none or several operations are set");
    };
    let Some(issued) = parse_time(&task.spec.issued_at) else {
        return fail("Invalid", "issuedAt is not a time as in RFC 3339");
    };
    let created = created(task);
    if issued > created.saturating_add(SKEW) {
        return fail(
            "IssuedInFuture",
            "issuedAt is more than ten minutes after the creation of the task: check the clock where the task was written",
        );
    }
    if now.saturating_sub(handled.unwrap_or_else(|| created.min(issued))) > TOO_OLD {
        return match phase {
            Phase::Running => fail(
                "OutcomeUnknown",
                "the controller ended while it requested the operation, and came back more than an hour later; look at the drive",
            ),
            _ => fail(
                "Expired",
                "no controller handled the task for an hour, as after the restore of a backup; create another task if it is still wanted",
            ),
        };
    }
    if is_copy {
        return fail(
            "AlreadyCarriedOut",
            "a task of the same specification and time of issue exists or was carried out; a new order needs another issuedAt",
        );
    }
    let started = parse_time(&status.started_at);
    if phase == Phase::Running
        && started.is_some_and(|started| now.saturating_sub(started) > TOO_OLD)
    {
        return fail(
            "OutcomeUnknown",
            format!(
                "the operation was requested for an hour without a clear answer; look at the drive; the latest: {}",
                status.message
            ),
        );
    }
    let wait = |reason: &'static str, message: String| {
        let is_same = status.reason == reason && status.message == message;
        match is_same && since_handled < REFRESH {
            true => Decision::Leave,
            false => Decision::Wait { reason, message },
        }
    };
    let refuse = |reason: &'static str, message: String| match phase {
        // An earlier request may have been carried out.
        Phase::Running => fail("OutcomeUnknown", message),
        _ => fail(reason, message),
    };
    if let Some(earlier) = behind
        && phase != Phase::Running
    {
        return wait(
            "WaitingForDrive",
            format!(
                "task {earlier} of the same drive was created before, and is not carried out yet"
            ),
        );
    }
    let missing = |missing: Missing| {
        let is_late = status.reason == missing.reason && is_long(status, now);
        match missing.is_final || is_late {
            true => refuse(missing.reason, missing.message),
            false => wait(missing.reason, missing.message),
        }
    };
    let (node, drive) = match find(&task.spec.drive, context) {
        Ok(located) => located,
        Err(error) => return missing(error),
    };
    let mut to = Vec::new();
    for name in operation.targets() {
        match find(name, context) {
            Ok((other, drive)) if other == node => to.push(drive),
            Ok((other, _)) => {
                return refuse(
                    "OtherNode",
                    format!(
                        "drive {name} is of node {other}; volumes move only within their node, which is {node}"
                    ),
                );
            }
            Err(error) => return missing(error),
        }
    }
    // A request that was sent before is repeated whatever else runs.
    if operation.is_evacuation() && phase != Phase::Running {
        if busy.contains(&node) {
            return wait(
                "WaitingForNode",
                format!(
                    "another evacuation or move of volumes runs on node {node}; one runs at a time"
                ),
            );
        }
        if busy.len() >= context.max_evacuations {
            return wait(
                "WaitingForCluster",
                format!(
                    "volumes move on {} nodes, which is the limit (--max-evacuations)",
                    busy.len()
                ),
            );
        }
        busy.insert(node.clone());
    }
    Decision::Start(Target { node, drive, to })
}

/// Reason why no operation can be requested for a drive.
struct Missing {
    reason: &'static str,
    message: String,
    /// True if waiting does not help.
    is_final: bool,
}

/// Returns the node and the identity of the drive with an object of this name.
fn find(name: &str, context: &Context<'_>) -> Result<(String, String), Missing> {
    match context.names.find(name) {
        Lookup::Found {
            node,
            drive,
            is_connected: true,
        } => Ok((node, drive)),
        Lookup::Found { node, .. } => Err(Missing {
            reason: "AgentDisconnected",
            message: format!("the agent of node {node}, which has drive {name}, is not connected"),
            is_final: false,
        }),
        Lookup::Several(nodes) => Err(Missing {
            reason: "Conflict",
            message: format!(
                "nodes {} report a drive of the identity of {name}; use the command line of the right node",
                nodes.join(", ")
            ),
            is_final: true,
        }),
        Lookup::Absent => Err(Missing {
            reason: "DriveNotFound",
            message: format!(
                "no node reports a drive with an object {name}; see kubectl get drives"
            ),
            is_final: context.is_settled,
        }),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
