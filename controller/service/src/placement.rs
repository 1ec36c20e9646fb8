//! Which node a new volume goes to. Pure: a request and what the nodes report, in; an order of nodes, out.

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

/// Whether a node can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The agent is there and has looked at every drive.
    There,
    /// It is starting, or away for a moment: worth waiting for.
    Coming,
    /// It has been away for so long that another node should be chosen, if that is possible.
    Gone,
}

/// A node, as far as placement needs it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub id: String,
    /// Whether it can be asked.
    pub presence: Presence,
    /// What it reports; the last known when it is not there.
    pub classes: Classes,
}

/// One node that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub node: String,
    /// Class of drives.
    pub class: String,
    /// Exact size, bytes.
    pub bytes: u64,
}

/// No node can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Who might do it is starting or away.
    #[error("no agent is ready to be asked: {}", starting(nodes))]
    NotReady {
        /// The nodes that might do it; empty when none was ever seen.
        nodes: Vec<String>,
    },
    /// The request does not say which class, and there are several, or none.
    #[error("parameters: class is missing; the classes are {}", listed(known))]
    ClassNotNamed {
        /// All classes there are.
        known: Vec<String>,
    },
    /// No node has such a class.
    #[error(
        "parameters: class {class:?} is on no node; the classes are {}",
        listed(known)
    )]
    UnknownClass {
        /// What was asked for.
        class: String,
        /// All classes there are.
        known: Vec<String>,
    },
    /// The accessibility requirements name no node of ours.
    #[error("none of the nodes in accessibility_requirements has an agent of this driver")]
    NoSuchNode,
    /// The nodes asked for are away, and have been for long. Nothing was sent to them.
    #[error(
        "the agents of the requested nodes are disconnected: {}; choose another node, or wait until they reconnect",
        listed(nodes)
    )]
    Gone { nodes: Vec<String> },
    /// The nodes asked for have no drive of the class.
    #[error("class {class:?} is on none of the nodes asked for: {}", listed(nodes))]
    ClassNotThere {
        class: String,
        /// The nodes asked for.
        nodes: Vec<String>,
    },
    /// No size satisfies the request.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// No piece of free space is large enough.
    #[error(
        "no node has room in class {class:?}: {} are needed, and the largest that would fit is {}, on node {node}",
        size_beside(*needed, *largest),
        size_beside(*largest, *needed)
    )]
    NoRoom {
        class: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes of the largest volume that would fit anywhere asked for.
        largest: u64,
        /// Where that is.
        node: String,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "none; see the agents' configuration".to_owned();
    }
    // A message travels in a header; a fleet of names does not fit.
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

/// The nodes to ask for this volume, best first: as `preferred` has them, then the one with the largest free piece;
/// among equals the name decides, so that many volumes spread over them.
///
/// Each has the class and, by its report, the room. A node that is the only one asked for is
/// asked whatever it reported: it may have the volume already, from a call whose answer was
/// lost, and its own word is the only one that is certain.
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
    let asked: Vec<&Node> = of(Presence::There).copied().collect();
    let away = ids(Presence::Coming);
    if nodes.is_empty() || (asked.is_empty() && !away.is_empty()) {
        return Err(PlacementError::NotReady { nodes: away });
    }
    let class = class(volume, nodes)?;
    if asked.is_empty() {
        let gone = ids(Presence::Gone);
        return Err(if gone.is_empty() {
            PlacementError::NoSuchNode
        } else {
            PlacementError::Gone { nodes: gone }
        });
    }
    let having: Vec<_> = asked
        .iter()
        .filter_map(|node| Some((*node, node.classes.get(&class)?)))
        .collect();
    if having.is_empty() {
        // An agent that is away may have it.
        return Err(if away.is_empty() {
            PlacementError::ClassNotThere {
                class,
                nodes: asked.iter().map(|node| node.id.clone()).collect(),
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
        // Never taken without a refusal; the loop leaves a node out for no other reason.
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

/// The class a request means: the one it names if any node has it, or the only one there is.
fn class(volume: &NewVolume, nodes: &[Node]) -> Result<String, PlacementError> {
    let known: BTreeSet<&String> = nodes.iter().flat_map(|node| node.classes.keys()).collect();
    // Of an agent that was there before, the last report counts.
    let away = || -> Vec<String> {
        let silent = |node: &&Node| node.presence == Presence::Coming && node.classes.is_empty();
        let away = nodes.iter().filter(silent);
        away.map(|node| node.id.clone()).collect()
    };
    let names = || known.iter().map(|name| (*name).clone()).collect();
    match &volume.class {
        Some(class) if known.contains(class) => Ok(class.clone()),
        // It may be a class of an agent that has not reported yet.
        Some(_) if !away().is_empty() => Err(PlacementError::NotReady { nodes: away() }),
        Some(class) => Err(PlacementError::UnknownClass {
            class: class.clone(),
            known: names(),
        }),
        None => match known.first() {
            Some(only) if known.len() == 1 && away().is_empty() => Ok((*only).clone()),
            _ if known.len() <= 1 && !away().is_empty() => {
                Err(PlacementError::NotReady { nodes: away() })
            }
            _ => Err(PlacementError::ClassNotNamed { known: names() }),
        },
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
