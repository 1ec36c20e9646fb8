//! Drives by the names of their objects, as the nodes last reported them.

use std::collections::{BTreeMap, HashMap};

use drivebay_proto::agent::Drive;
use drivebay_service::{agents::Agents, inventory::Inventory};

use crate::kubernetes::drive_objects::{DriveUse, is_shown};

/// A drive of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedDrive {
    node: String,
    identity: String,
    usage: DriveUse,
}

/// Result of a search for a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lookup {
    Found {
        node: String,
        drive: String,
        is_connected: bool,
    },
    /// Several nodes report it in the same way.
    Several(Vec<String>),
    Absent,
}

/// Drives of all nodes. Decoded again only for nodes that have reported something since.
#[derive(Debug, Default)]
pub(super) struct Names {
    nodes: BTreeMap<String, Node>,
    // Nodes that report a drive of this name.
    by_name: HashMap<String, Vec<NamedDrive>>,
}

#[derive(Debug)]
struct Node {
    instance: String,
    revision: u64,
    is_connected: bool,
    drives: Vec<(String, NamedDrive)>,
}

impl Names {
    /// Takes over what the agents have reported since the last call.
    pub(super) async fn refresh(&mut self, agents: &Agents) {
        let all = agents.all();
        let mut is_changed = false;
        let exists = |node: &String| all.iter().any(|agent| agent.node() == node);
        let count = self.nodes.len();
        self.nodes.retain(|node, _| exists(node));
        is_changed |= self.nodes.len() != count;
        for agent in &all {
            if agents.is_given_up(agent.node()) {
                is_changed |= self.nodes.remove(agent.node()).is_some();
                continue;
            }
            let cached = self.nodes.get(agent.node());
            let cached = cached.map(|node| (node.instance.clone(), node.revision));
            let is_connected = agent.read_inventory(Inventory::complete);
            let read = agent.read_inventory(|inventory| {
                let is_same = cached
                    .as_ref()
                    .is_some_and(|of| (of.0.as_str(), of.1) == inventory.shown());
                let (instance, revision) = inventory.shown();
                let drives: Option<Vec<Drive>> = (!is_same).then(|| inventory.drives().collect());
                drives.map(|drives| (instance.to_owned(), revision, drives))
            });
            if let Some((instance, revision, drives)) = read {
                is_changed = true;
                let node = Node::new(agent.node(), instance, revision, &drives);
                self.nodes.insert(agent.node().to_owned(), node);
                tokio::task::yield_now().await;
            }
            if let Some(node) = self.nodes.get_mut(agent.node()) {
                node.is_connected = is_connected;
            }
        }
        if is_changed {
            self.by_name.clear();
            for (name, drive) in self.nodes.values().flat_map(|node| &node.drives) {
                let of_name = self.by_name.entry(name.clone()).or_default();
                of_name.push(drive.clone());
            }
        }
    }

    /// True if there is a node, and all of them are connected.
    pub(super) fn are_all_connected(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.values().all(|node| node.is_connected)
    }

    /// Returns the drive with an object of this name. Of several nodes it is that of a connected one, and of those that of the node
    /// that uses it.
    pub(super) fn find(&self, name: &str) -> Lookup {
        let is_connected = |drive: &NamedDrive| {
            let node = self.nodes.get(&drive.node);
            node.is_some_and(|node| node.is_connected)
        };
        let all = self
            .by_name
            .get(name)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let rank = |drive: &NamedDrive| {
            let is_seen = is_connected(drive) && drive.usage > DriveUse::Remembered;
            (is_seen, drive.usage)
        };
        let Some(best) = all.iter().map(rank).max() else {
            return Lookup::Absent;
        };
        let mut best = all.iter().filter(|drive| rank(drive) == best);
        let Some(first) = best.next() else {
            return Lookup::Absent;
        };
        let others: Vec<String> = best.map(|drive| drive.node.clone()).collect();
        if others.is_empty() {
            return Lookup::Found {
                node: first.node.clone(),
                drive: first.identity.clone(),
                is_connected: is_connected(first),
            };
        }
        let mut nodes = others;
        nodes.insert(0, first.node.clone());
        Lookup::Several(nodes)
    }
}

impl Node {
    fn new(node: &str, instance: String, revision: u64, drives: &[Drive]) -> Self {
        let shown = drives.iter().filter(|drive| is_shown(drive));
        let named = shown.map(|drive| {
            let named = NamedDrive {
                node: node.to_owned(),
                identity: drive.id.clone(),
                usage: DriveUse::of(drive),
            };
            (drivebay_objects::drive::name(node, &drive.id), named)
        });
        Self {
            instance,
            revision,
            is_connected: false,
            drives: named.collect(),
        }
    }

    #[cfg(test)]
    pub(super) fn test(node: &str, is_connected: bool, drives: &[Drive]) -> Self {
        let new = Self::new(node, String::new(), 0, drives);
        Self {
            is_connected,
            ..new
        }
    }
}

#[cfg(test)]
impl Names {
    /// Returns these drives of nodes: node, whether its agent is connected, and its drives.
    pub(super) fn test(nodes: &[(&str, bool, &[Drive])]) -> Self {
        let mut names = Self::default();
        for (node, is_connected, drives) in nodes {
            let read = Node::test(node, *is_connected, drives);
            for (name, drive) in &read.drives {
                let of_name = names.by_name.entry(name.clone()).or_default();
                of_name.push(drive.clone());
            }
            names.nodes.insert((*node).to_owned(), read);
        }
        names
    }
}
