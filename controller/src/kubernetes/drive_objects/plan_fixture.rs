//! Replicas and an API server in memory, for the tests of plans.

use drivebay_proto::agent::{DriveHealth, Finding};
use kube::api::ObjectMeta;

use super::*;
use drivebay_objects::{
    drive::{Drive as Object, DriveStatus, NoSpec},
    times::format_time,
};

pub(super) const T: i64 = 1_764_288_000;
pub(super) const REPORTING: NodeState = NodeState::Reporting;
pub(super) const NOT_REPORTING: NodeState = NodeState::NotReporting { lost: None };

pub(super) fn drive(id: &str) -> Drive {
    Drive {
        id: id.into(),
        kernel_name: "sda".into(),
        model: "ST4000".into(),
        slot: "3".into(),
        state: "claimed".into(),
        verdict: "GOOD".into(),
        class: "bulk".into(),
        size_bytes: 4 << 40,
        usable_bytes: 4 << 40,
        free_bytes: 1 << 40,
        largest_free_bytes: 1 << 40,
        media: "hdd".into(),
        transport: "sata".into(),
        ..Drive::default()
    }
}

pub(super) fn suspect(id: &str) -> Drive {
    let mut drive = drive(id);
    drive.verdict = "SUSPECT".into();
    drive.health = Some(DriveHealth {
        findings: vec![Finding {
            code: "PendingSectors".into(),
            message: "8 pending sectors".into(),
            since: 7,
            acknowledged: false,
        }],
        ..DriveHealth::default()
    });
    drive
}

pub(super) fn in_state(id: &str, state: &str) -> Drive {
    Drive {
        state: state.into(),
        ..drive(id)
    }
}

/// The API server. Every replica watches all objects.
#[derive(Default)]
pub(super) struct Server {
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) writes: u64,
}

impl Server {
    pub(super) fn watched(&self) -> WatchedObjects {
        let mut watched = WatchedObjects::default();
        watched.begin_list();
        for object in self.objects.values() {
            watched.put_listed(object.clone());
        }
        watched.end_list();
        watched
    }

    pub(super) fn status(&self, name: &str) -> &DriveStatus {
        self.objects[name].status.as_ref().unwrap()
    }

    pub(super) fn condition(&self, name: &str, type_: &str) -> (&str, &str) {
        let mut all = self.status(name).conditions.iter();
        let one = all.find(|one| one.type_ == type_).unwrap();
        (&one.status, &one.reason)
    }

    pub(super) fn since(&self, name: &str, type_: &str) -> &str {
        let mut all = self.status(name).conditions.iter();
        &all.find(|one| one.type_ == type_)
            .unwrap()
            .last_transition_time
    }
}

/// A replica, with the nodes that it sees.
pub(super) struct Replica {
    pub(super) shown: Shown,
    pub(super) nodes: BTreeMap<&'static str, (NodeState, Observed, Vec<Drive>)>,
    pub(super) volumes: BTreeMap<String, Volumes>,
    /// Most writes of a plan.
    pub(super) limit: usize,
    /// Names of objects whose last write failed.
    pub(super) set_aside: BTreeSet<String>,
    absences: BTreeMap<String, i64>,
}

impl Replica {
    pub(super) fn new() -> Self {
        Self {
            shown: Shown::All,
            nodes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            limit: usize::MAX,
            set_aside: BTreeSet::new(),
            absences: BTreeMap::new(),
        }
    }

    pub(super) fn sees(
        &mut self,
        node: &'static str,
        revision: i64,
        drives: &[Drive],
    ) -> &mut Self {
        let observed = Observed {
            instance: format!("agent-of-{node}"),
            revision,
        };
        let report = (REPORTING, observed, drives.to_vec());
        self.nodes.insert(node, report);
        self
    }

    pub(super) fn set_state(&mut self, node: &'static str, state: NodeState) -> &mut Self {
        let entry = self.nodes.entry(node).or_insert_with(|| {
            let none = Observed::default();
            (state, none, Vec::new())
        });
        entry.0 = state;
        self
    }

    pub(super) fn plan(&mut self, server: &Server, now: i64) -> Planned {
        let objects = server.watched();
        let state = |node: &str| {
            let listed = self.nodes.get(node);
            listed.map_or(NOT_REPORTING, |(state, ..)| *state)
        };
        let reporting: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, (state, ..))| *state == REPORTING)
            .map(|(node, (_, observed, drives))| (Arc::from(*node), observed, drives))
            .collect();
        let mut reporters = Reporters::default();
        for (node, _, drives) in &reporting {
            reporters.add(node, &reported_drives(node, drives));
        }
        let mut plan = Plan {
            shown: self.shown,
            now,
            state: &state,
            is_set_aside: &|name| self.set_aside.contains(name),
            queue: WriteQueue::new(self.limit, 1),
        };
        let mut unwanted = BTreeSet::new();
        for (node, observed, drives) in &reporting {
            let view = NodeView {
                node,
                observed: (*observed).clone(),
                drives,
                volumes: self.volumes.clone(),
            };
            unwanted.extend(plan.write(view, &reporters, &objects).unwanted);
        }
        let unwanted = unwanted.iter().map(String::as_str).collect();
        plan.remove(&reporters, &unwanted, &objects, &mut self.absences);
        plan.finish()
    }

    /// Plans and carries that out; returns the number of writes.
    pub(super) fn act(&mut self, server: &mut Server, now: i64) -> u64 {
        let before = server.writes;
        for write in self.plan(server, now).writes {
            server.writes += 1;
            let status = match write.operation {
                Operation::Delete(_) => {
                    server.objects.remove(&write.name);
                    continue;
                }
                Operation::Apply { status, .. } => *status,
                Operation::MarkDisconnected(_) => {
                    let mut status = server.status(&write.name).clone();
                    for one in &mut status.conditions {
                        if one.type_ == AGENT_CONNECTED {
                            one.status = "False".into();
                        }
                    }
                    status.updated = format_time(now);
                    status
                }
            };
            let metadata = ObjectMeta {
                name: Some(write.name.clone()),
                uid: Some("u".into()),
                resource_version: Some(server.writes.to_string()),
                ..ObjectMeta::default()
            };
            let object = Object {
                metadata,
                spec: NoSpec {},
                status: Some(status),
            };
            server.objects.insert(write.name, object);
        }
        server.writes - before
    }
}
