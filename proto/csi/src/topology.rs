//! Topology: each node is its own segment, `<driver>/node = <node id>`.

use drivebay_proto::{
    csi::{Topology, TopologyRequirement},
    names,
};

/// The topology key of one driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyKey(String);

impl TopologyKey {
    /// The key of this driver.
    pub fn new(driver: &str) -> Self {
        Self(names::topology_key(driver))
    }

    /// The topology from which a node's volumes are reachable.
    pub fn of(&self, node: &str) -> Topology {
        Topology {
            segments: [(self.0.clone(), node.to_owned())].into(),
        }
    }

    /// Whether the node is in it. A topology that says nothing contains every node; one with
    /// a key that is not ours contains none, since no node of ours has that key.
    pub fn contains(&self, topology: &Topology, node: &str) -> bool {
        topology
            .segments
            .iter()
            .all(|(key, value)| *key == self.0 && value == node)
    }

    /// The one node that can be in it; None when that is not said by our key alone.
    pub fn only_node<'a>(&self, topology: &'a Topology) -> Option<&'a str> {
        let mut segments = topology.segments.iter();
        match (segments.next(), segments.next()) {
            (Some((key, node)), None) if *key == self.0 => Some(node),
            _ => None,
        }
    }

    /// The nodes on which a volume may be, when each of `requisite` is one node; None when it may be on more.
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

    /// The key itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The requirement that this node alone meets.
    pub fn only(&self, node: &str) -> TopologyRequirement {
        TopologyRequirement {
            requisite: vec![self.of(node)],
            preferred: Vec::new(),
        }
    }

    /// Whether a volume may be on the node: in one of `requisite`, or anywhere when there is none.
    pub fn allows(&self, wanted: Option<&TopologyRequirement>, node: &str) -> bool {
        wanted.is_none_or(|wanted| {
            wanted.requisite.is_empty()
                || wanted
                    .requisite
                    .iter()
                    .any(|topology| self.contains(topology, node))
        })
    }

    /// The node's place in `preferred`, the first being 0; nodes not preferred come last.
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
