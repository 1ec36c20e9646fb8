//! Placement: the order in which nodes are asked to create a new volume. Pure.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use drivebay_common::units::size_beside;
use drivebay_proto::csi::TopologyRequirement;

use crate::inventory::Classes;
use drivebay_csi::{
    NewVolume,
    size::{self, SizeError},
    topology::TopologyKey,
};

/// Readiness of a node's agent for requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The agent is connected and has scanned every drive.
    There,
    /// The agent is starting, or was disconnected recently: the request waits for it.
    Coming,
    /// The agent has been disconnected for so long that another node is chosen, if possible.
    Gone,
}

/// A node's input to placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub id: String,
    pub presence: Presence,
    /// The classes it reports; the last known ones if it is disconnected.
    pub classes: Classes,
}

/// A node to send the request to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub node: String,
    /// Name of the class of drives.
    pub class: String,
    /// Size to request, bytes: within the range of the request, and valid for the class on this node.
    pub bytes: u64,
}

/// No node can be asked to create the volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Every node that might create it is starting or was disconnected recently.
    #[error("no agent is ready to be asked: {}", starting(nodes))]
    NotReady {
        /// Those nodes; empty if no node ever connected.
        nodes: Vec<String>,
    },
    /// The request names no class, and there is not exactly one.
    #[error("parameters: class is missing; the classes are {}", listed(classes))]
    ClassNotNamed {
        /// Names of all classes.
        classes: Vec<String>,
    },
    /// No node has a class of this name.
    #[error(
        "parameters: class {class:?} is on no node; the classes are {}",
        listed(classes)
    )]
    UnknownClass {
        /// Name in the request.
        class: String,
        /// Names of all classes.
        classes: Vec<String>,
    },
    /// The accessibility requirements allow no node with an agent of this driver.
    #[error("none of the nodes in accessibility_requirements has an agent of this driver")]
    NoSuchNode,
    /// The allowed nodes have been disconnected for long. No request was sent.
    #[error(
        "the agents of the requested nodes are disconnected: {}; choose another node, or wait until they reconnect",
        listed(nodes)
    )]
    Gone { nodes: Vec<String> },
    /// The allowed nodes have no drive of the class.
    #[error("class {class:?} is on none of the nodes asked for: {}", listed(nodes))]
    ClassNotThere {
        class: String,
        /// Allowed nodes whose agents are connected.
        nodes: Vec<String>,
    },
    #[error(transparent)]
    Size(#[from] SizeError),
    /// No contiguous free space on an allowed node is large enough.
    #[error(
        "no node has room in class {class:?}: {} are needed, and the largest that would fit is {}, on node {node}",
        size_beside(*needed, *largest),
        size_beside(*largest, *needed)
    )]
    NoRoom {
        class: String,
        /// Size that the volume would have on `node`, bytes.
        needed: u64,
        /// Size of the largest volume that fits on an allowed node, bytes.
        largest: u64,
        /// The node on which it fits.
        node: String,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "none; see the agents' configuration".to_owned();
    }
    // The message is sent in an HTTP header, which a list of all nodes may exceed.
    let mut text = names
        .iter()
        .take(20)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > 20 {
        text.push_str(", …");
    }
    text
}

fn starting(nodes: &[String]) -> String {
    if nodes.is_empty() {
        return "none has connected; see that the agents run".to_owned();
    }
    format!("starting or away on {}", listed(nodes))
}

/// Returns the nodes to ask to create this volume, best first: in the order of `preferred`, then by the largest free contiguous space. A
/// hash of the volume's and the node's name breaks ties, which spreads volumes over equal nodes.
///
/// Each node has the class and, by its last report, the space. The space is not checked if only one connected node
/// has the class and no allowed node may still connect: that node may have the volume already, from a call whose
/// answer was lost, and only it can tell.
pub fn place(
    volume: &NewVolume,
    topology: Option<&TopologyRequirement>,
    key: &TopologyKey,
    nodes: &[Node],
) -> Result<Vec<Choice>, PlacementError> {
    let allowed: Vec<&Node> = nodes
        .iter()
        .filter(|node| key.allows(topology, &node.id))
        .collect();
    let of = |presence| allowed.iter().filter(move |node| node.presence == presence);
    let ids = |presence| -> Vec<String> { of(presence).map(|node| node.id.clone()).collect() };
    let present: Vec<&Node> = of(Presence::There).copied().collect();
    let away = ids(Presence::Coming);
    if nodes.is_empty() || (present.is_empty() && !away.is_empty()) {
        return Err(PlacementError::NotReady { nodes: away });
    }
    let class = class(volume, nodes)?;
    if present.is_empty() {
        let gone = ids(Presence::Gone);
        return Err(if gone.is_empty() {
            PlacementError::NoSuchNode
        } else {
            PlacementError::Gone { nodes: gone }
        });
    }
    let having: Vec<_> = present
        .iter()
        .filter_map(|node| Some((*node, node.classes.get(&class)?)))
        .collect();
    if having.is_empty() {
        // A disconnected agent may have it.
        return Err(if away.is_empty() {
            PlacementError::ClassNotThere {
                class,
                nodes: present.iter().map(|node| node.id.clone()).collect(),
            }
        } else {
            PlacementError::NotReady { nodes: away }
        });
    }
    let lone = having.len() == 1 && away.is_empty();
    let mut choices = Vec::new();
    let mut refused = None;
    for (node, report) in &having {
        let bytes = match size::new_volume(volume.range, volume.content.size_rules(report)) {
            Ok(bytes) => bytes,
            Err(error) => {
                refused.get_or_insert(error);
                continue;
            }
        };
        let largest = report.largest_volume_bytes;
        let choice = Choice {
            node: node.id.clone(),
            class: class.clone(),
            bytes,
        };
        choices.push((key.preference(topology, &node.id), largest, choice));
    }
    let best = choices
        .iter()
        .max_by_key(|(_, largest, _)| *largest)
        .cloned();
    let Some((_, largest, roomiest)) = best else {
        // Unreachable fallback: a node is left out only with a refusal.
        return Err(refused.map_or(PlacementError::NoSuchNode, PlacementError::Size));
    };
    if !lone {
        choices.retain(|(_, largest, choice)| *largest >= choice.bytes);
    }
    if choices.is_empty() {
        return Err(if away.is_empty() {
            PlacementError::NoRoom {
                class,
                needed: roomiest.bytes,
                largest,
                node: roomiest.node,
            }
        } else {
            PlacementError::NotReady { nodes: away }
        });
    }
    choices.sort_by_cached_key(|(rank, room, choice)| {
        let turn = turn(&volume.name, &choice.node);
        (*rank, Reverse(*room), turn, choice.node.clone())
    });
    Ok(choices.into_iter().map(|(_, _, choice)| choice).collect())
}

// Rendezvous hashing: each name has its own order of the nodes.
pub(crate) fn turn(name: &str, node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, node).hash(&mut hasher);
    hasher.finish()
}

/// Returns the class of the request: the one it names if any node has it, else the only one there is.
fn class(volume: &NewVolume, nodes: &[Node]) -> Result<String, PlacementError> {
    let classes: BTreeSet<&String> = nodes.iter().flat_map(|node| node.classes.keys()).collect();
    // A disconnected node that reported before counts with its last report.
    let away = || -> Vec<String> {
        let silent = |node: &&Node| node.presence == Presence::Coming && node.classes.is_empty();
        let away = nodes.iter().filter(silent);
        away.map(|node| node.id.clone()).collect()
    };
    let names = || classes.iter().map(|name| (*name).clone()).collect();
    match &volume.class {
        Some(class) if classes.contains(class) => Ok(class.clone()),
        // It may be a class of an agent that has not reported yet.
        Some(_) if !away().is_empty() => Err(PlacementError::NotReady { nodes: away() }),
        Some(class) => Err(PlacementError::UnknownClass {
            class: class.clone(),
            classes: names(),
        }),
        None => match classes.first() {
            Some(only) if classes.len() == 1 && away().is_empty() => Ok((*only).clone()),
            _ if classes.len() <= 1 && !away().is_empty() => {
                Err(PlacementError::NotReady { nodes: away() })
            }
            _ => Err(PlacementError::ClassNotNamed { classes: names() }),
        },
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
