//! The controller's data about its nodes, as metrics: a few series per node, and none per volume or drive, which agents expose themselves.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use drivebay_proto::words::NodeState;
use tokio::sync::watch;

use super::{
    Certificate, Def, Exposed, Families, build,
    drive_objects::DriveObjectWrites,
    drive_tasks::DriveTaskCounts,
    families::{counter, gauge, number, truth},
};
use drivebay_service::{agents::Agents, audit::Audit};

const NODES: Def = gauge(
    "drivebay_controller_nodes",
    "Nodes by state of their agent.",
    &["state"],
);
const CONNECTED: Def = gauge(
    "drivebay_node_connected",
    "1 if the node's agent is connected to this controller, else 0.",
    &["node"],
);
const AWAY: Def = gauge(
    "drivebay_node_away_seconds",
    "Seconds since this controller last followed the node's inventory; 0 while it does.",
    &["node"],
);
const REFUSED: Def = gauge(
    "drivebay_node_refused",
    "1 if another agent was refused under this node's name since the last accepted one, else 0.",
    &["node"],
);
const REVISION: Def = gauge(
    "drivebay_node_inventory_revision",
    "Revision of the node's inventory on this controller; restarts with the node's agent.",
    &["node"],
);
const VOLUMES: Def = gauge(
    "drivebay_node_volumes",
    "Volumes on the node, as last reported.",
    &["node"],
);
const ABNORMAL: Def = gauge(
    "drivebay_node_volumes_abnormal",
    "Volumes on the node with an abnormal condition, as last reported.",
    &["node"],
);
const FREE: Def = gauge(
    "drivebay_node_class_free_bytes",
    "Bytes of the class available for new volumes on the node, as last reported.",
    &["node", "class"],
);
const TOTAL: Def = gauge(
    "drivebay_node_class_size_bytes",
    "Usable bytes of the class on the node, as last reported.",
    &["node", "class"],
);
const DOUBTS: Def = gauge(
    "drivebay_controller_creates_in_doubt",
    "Volume creations without a final answer from a node whose agent is not connected and that was not forgotten.",
    &[],
);

const UNCLAIMED: Def = gauge(
    "drivebay_node_volumes_unclaimed",
    "Volumes on the node that no PersistentVolume has named for ten minutes; only where the controller follows PersistentVolumes.",
    &["node"],
);

const DUPLICATES: Def = gauge(
    "drivebay_node_volumes_duplicate",
    "Volumes on the node that share their CSI name with another volume of the cluster, as last reported.",
    &["node"],
);

const COPIES: Def = gauge(
    "drivebay_controller_volumes_on_two_nodes",
    "Volumes that two nodes have, by UUID: a copied drive, or one of the two drives of a move.",
    &[],
);

const REFUSALS: Def = counter(
    "drivebay_controller_refusals_total",
    "Connections, sessions and inventory updates of agents that were refused or delayed, and volumes not listed, by reason.",
    &["reason"],
);

const AUDIT_LOST: Def = counter(
    "drivebay_controller_audit_records_lost_total",
    "Audit records that could not be written; only with --audit-log.",
    &[],
);

const STATE_FILES: Def = gauge(
    "drivebay_controller_state_file_trouble",
    "1 while a state file of the controller could not be saved (not-saved), could not be read and is left alone (not-read), or was damaged and lies moved aside (set-aside); by file, or directory with a file for each node.",
    &["file", "trouble"],
);

const DRIVE_OBJECTS: Def = counter(
    "drivebay_controller_drive_object_writes_total",
    "Requests to the API server that write Drive objects, by result; conflict: another controller was first. Only with --drive-objects.",
    &["result"],
);
const DRIVE_TASKS: Def = gauge(
    "drivebay_controller_drive_tasks",
    "Unfinished DriveTasks of the cluster, by phase. Only with --drive-tasks.",
    &["phase"],
);
const DRIVE_TASKS_FINISHED: Def = counter(
    "drivebay_controller_drive_tasks_finished_total",
    "DriveTasks that this controller has finished, by result. Only with --drive-tasks.",
    &["result"],
);

/// All definitions of this module.
pub const DEFINITIONS: &[Def] = &[
    NODES,
    CONNECTED,
    AWAY,
    REFUSED,
    REVISION,
    VOLUMES,
    ABNORMAL,
    FREE,
    TOTAL,
    UNCLAIMED,
    DUPLICATES,
    DOUBTS,
    COPIES,
    REFUSALS,
    AUDIT_LOST,
    STATE_FILES,
    DRIVE_OBJECTS,
    DRIVE_TASKS,
    DRIVE_TASKS_FINISHED,
];

/// Source of the controller's metrics.
#[derive(Debug)]
pub struct Cluster {
    agents: Agents,
    ready: watch::Receiver<bool>,
    certificate: Certificate,
    drive_objects: Option<Arc<DriveObjectWrites>>,
    drive_tasks: Option<Arc<DriveTaskCounts>>,
}

impl Cluster {
    /// Returns the source over these agents. `ready`: true once calls can be served.
    pub fn new(agents: Agents, ready: watch::Receiver<bool>, certificate: Certificate) -> Self {
        Self {
            agents,
            ready,
            certificate,
            drive_objects: None,
            drive_tasks: None,
        }
    }

    /// Adds what is counted of the objects of drives.
    #[must_use]
    pub fn with_drive_objects(self, writes: Option<Arc<DriveObjectWrites>>) -> Self {
        Self {
            drive_objects: writes,
            ..self
        }
    }

    /// Adds what is counted of DriveTasks.
    #[must_use]
    pub fn with_drive_tasks(self, counts: Option<Arc<DriveTaskCounts>>) -> Self {
        Self {
            drive_tasks: counts,
            ..self
        }
    }
}

impl Exposed for Cluster {
    fn collect(&self, into: &mut Families) {
        build(into, "controller", env!("CARGO_PKG_VERSION"));
        let mut states: BTreeMap<NodeState, u64> =
            NodeState::ALL.iter().map(|state| (*state, 0)).collect();
        let now = Instant::now();
        let claims_known = self.agents.expected().complete();
        let unclaimed = self.agents.unclaimed().counts();
        let duplicates = self.agents.duplicates().counts();
        let forgotten_nodes = self.agents.forgotten_nodes();
        states.insert(NodeState::Forgotten, number_of(forgotten_nodes.len()));
        for agent in self.agents.all() {
            let node = agent.node();
            if forgotten_nodes.contains(node) || !self.agents.is_node(&agent) {
                continue;
            }
            let connected = agent.connected();
            let labels = [node];
            let (state, away) = agent.read_inventory(|inventory| {
                let away = inventory.away_since();
                let away = away.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
                if inventory.listed() {
                    let counts = inventory.counts();
                    into.put(&VOLUMES, &labels, number(counts.volumes));
                    into.put(&ABNORMAL, &labels, number(counts.troubled));
                    into.put(&REVISION, &labels, number(inventory.shown().1));
                    for class in inventory.classes().values() {
                        let labels = [node, class.name.as_str()];
                        into.put(&FREE, &labels, number(class.free_bytes));
                        into.put(&TOTAL, &labels, number(class.total_bytes));
                    }
                }
                let state = match (connected, inventory.complete()) {
                    (true, true) => NodeState::Connected,
                    (true, false) => NodeState::Starting,
                    (false, _) => NodeState::Away,
                };
                (state, away)
            });
            into.put(&CONNECTED, &labels, truth(connected));
            into.put(&AWAY, &labels, away);
            if claims_known {
                let count = unclaimed.get(node).copied().unwrap_or(0);
                into.put(&UNCLAIMED, &labels, number(count));
            }
            let count = duplicates.get(node).copied().unwrap_or(0);
            into.put(&DUPLICATES, &labels, number(count));
            into.put(&REFUSED, &labels, truth(agent.refused().is_some()));
            *states.entry(state).or_default() += 1;
        }
        for (state, count) in states {
            into.put(&NODES, &[state.as_str()], number(count));
        }
        for (reason, count) in self.agents.refusals().all() {
            into.put(&REFUSALS, &[reason.as_str()], number(count));
        }
        if let Some(lost) = self.agents.audit().and_then(Audit::lost) {
            into.put(&AUDIT_LOST, &[], number(lost));
        }
        let doubts = number_of(self.agents.creates_in_doubt());
        into.put(&DOUBTS, &[], number(doubts));
        let copies = number_of(self.agents.volumes_on_two_nodes());
        into.put(&COPIES, &[], number(copies));
        for (trouble, kind) in self.agents.notes().troubles().all() {
            into.put(&STATE_FILES, &[kind.name(), trouble.as_str()], 1.0);
        }
        for (outcome, count) in self.drive_objects.iter().flat_map(|writes| writes.all()) {
            into.put(&DRIVE_OBJECTS, &[outcome.as_str()], number(count));
        }
        if let Some(tasks) = &self.drive_tasks {
            for (phase, count) in tasks.unfinished() {
                into.put(&DRIVE_TASKS, &[phase], number(count));
            }
            for (result, count) in tasks.results() {
                into.put(&DRIVE_TASKS_FINISHED, &[result.as_str()], number(count));
            }
        }
        self.certificate.put(into);
    }

    fn ready(&self) -> bool {
        *self.ready.borrow()
    }
}

fn number_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
