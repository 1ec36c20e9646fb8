//! Topology: each node is its own segment, `<driver>/node = <node id>`.

use drivebay_proto::{
    csi::{Topology, TopologyRequirement},
    names,
};

/// Topology key of one driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyKey(String);

impl TopologyKey {
    /// Returns the key of this driver.
    pub fn new(driver: &str) -> Self {
        Self(names::topology_key(driver))
    }

    /// Returns the topology from which a node's volumes are accessible.
    pub fn of(&self, node: &str) -> Topology {
        Topology {
            segments: [(self.0.clone(), node.to_owned())].into(),
        }
    }

    /// True if the node is in the topology. An empty topology contains every node; one with any other key contains none, since no node has
    /// that key.
    pub fn contains(&self, topology: &Topology, node: &str) -> bool {
        topology
            .segments
            .iter()
            .all(|(key, value)| *key == self.0 && value == node)
    }

    /// Returns the node of a topology with this driver's key alone; None for any other.
    pub fn only_node<'a>(&self, topology: &'a Topology) -> Option<&'a str> {
        let mut segments = topology.segments.iter();
        match (segments.next(), segments.next()) {
            (Some((key, node)), None) if *key == self.0 => Some(node),
            _ => None,
        }
    }

    /// Returns the nodes on which a volume may be, if each term of `requisite` is one node; None if it may be on others.
    pub fn only_nodes<'a>(&self, wanted: Option<&'a TopologyRequirement>) -> Option<Vec<&'a str>> {
        let requisite = &wanted?.requisite;
        if requisite.is_empty() {
            return None;
        }
        requisite
            .iter()
            .map(|topology| self.only_node(topology))
            .collect()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a requirement that only this node meets.
    pub fn only(&self, node: &str) -> TopologyRequirement {
        TopologyRequirement {
            requisite: vec![self.of(node)],
            preferred: Vec::new(),
        }
    }

    /// True if a volume may be on the node: it is in a term of `requisite`, or there is none.
    pub fn allows(&self, wanted: Option<&TopologyRequirement>, node: &str) -> bool {
        wanted.is_none_or(|wanted| {
            wanted.requisite.is_empty()
                || wanted
                    .requisite
                    .iter()
                    .any(|topology| self.contains(topology, node))
        })
    }

    /// Returns the node's index in `preferred`; `usize::MAX` if it is not preferred.
    pub fn preference(&self, wanted: Option<&TopologyRequirement>, node: &str) -> usize {
        wanted
            .and_then(|wanted| {
                wanted
                    .preferred
                    .iter()
                    .position(|topology| self.contains(topology, node))
            })
            .unwrap_or(usize::MAX)
    }
}
