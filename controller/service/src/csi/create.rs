//! CreateVolume: checks the request, chooses nodes, calls their agents, and checks the answer.

use std::{collections::BTreeSet, sync::Arc};

use drivebay_common::units::human_sizes;
use drivebay_proto::{VolumeId, agent, csi::TopologyRequirement};

use super::{
    attempt::Attempt,
    origin::{self, SourceError},
    pending::{Pending, Unfinished},
};
use crate::{
    agents::{Agent, Agents, IdOf, duplicates},
    call::CallError,
    catalog::is_copying,
    inventory::{Classes, Inventory},
    notes::NotesError,
    placement::{self, Choice, Node, PlacementError, Presence},
};
use drivebay_csi::{
    NewVolume, Source,
    size::{self, SizeError},
    topology::TopologyKey,
    validate::SizeRange,
};

/// Checks that the agent's answer matches the request: the provisioner deletes a volume that is too small.
pub(super) fn check_answer(
    requested: &NewVolume,
    node: &str,
    volume: &agent::Volume,
) -> Result<(), CallError> {
    let bad = |reason: String| Err(CallError::Nonsense { reason });
    let ours = volume
        .id
        .parse::<VolumeId>()
        .is_ok_and(|id| id.node == node);
    if !ours {
        return bad(format!(
            "volume id {:?} is not one of node {node}",
            volume.id
        ));
    }
    if volume.name != requested.name || volume.mode != requested.content.mode() {
        return bad(format!("volume {} is another one", volume.id));
    }
    if Source::of(volume) != requested.source || is_copying(volume) {
        let is = match &requested.source {
            Some(source) => format!("a complete copy of {source}"),
            None => "new".to_owned(),
        };
        return bad(format!("volume {} is not {is}", volume.id));
    }
    let SizeRange { required, limit } = requested.range;
    let size = volume.size_bytes;
    if size < required.max(1) || limit.is_some_and(|limit| size > limit) {
        let [size, required, most] = human_sizes([size, required, limit.unwrap_or(0)]);
        let most = limit.map_or_else(String::new, |_| format!(", and at most {most}"));
        return bad(format!(
            "volume {} has {size}, requested was at least {required}{most}",
            volume.id
        ));
    }
    Ok(())
}

/// No volume was created, or the outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    #[error(
        "volume {name:?} exists on node {node}, which is not among the accessibility_requirements"
    )]
    Elsewhere { name: String, node: String },
    #[error(
        "volume {name:?} may have been created on node {node}, which is disconnected: the node received the request and has not answered; it is asked again when it reconnects. If it never returns, forget it with `node forget {node}`"
    )]
    InDoubt { name: String, node: String },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Notes(#[from] NotesError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Creates the volume, or finds the one that has its name. Returns it with its node.
pub(crate) async fn create(
    agents: Agents,
    key: TopologyKey,
    pending: Pending,
    volume: NewVolume,
    topology: Option<TopologyRequirement>,
) -> Result<(String, agent::Volume), CreateError> {
    let name = volume.name.clone();
    let creation = async move {
        let (volume, topology) = origin::resolve(&agents, &key, volume, topology)?;
        let topology = topology.as_ref();
        let choices = choose(&agents, &key, &volume, topology)?;
        let only = key.only_nodes(topology);
        let attempt = Attempt {
            agents: &agents,
            key: &key,
            volume: &volume,
            topology,
            is_one: only.is_some_and(|nodes| nodes.len() == 1),
        };
        attempt.try_each(choices).await
    };
    pending.run(IdOf::Volume, &name, creation).await
}

/// Nodes to ask, in order.
pub(super) struct Choices {
    /// Number of nodes at the start of `all` that are asked without agreement with other controllers: the volume is there, or may be.
    pub(super) settled: usize,
    pub(super) all: Vec<Choice>,
}

/// Returns the nodes to ask, best first. If a volume of this name exists, only its node. Otherwise nodes that were
/// sent this name before and have not given a final answer are first.
fn choose(
    agents: &Agents,
    key: &TopologyKey,
    new: &NewVolume,
    topology: Option<&TopologyRequirement>,
) -> Result<Choices, CreateError> {
    let allowed = |node: &str| key.allows(topology, node);
    if let Some((agent, volume)) = named(agents, &new.name, allowed) {
        let node = agent.node().to_owned();
        if !key.allows(topology, &node) {
            let name = new.name.clone();
            return Err(CreateError::Elsewhere { name, node });
        }
        let class = new.class.clone().unwrap_or(volume.class);
        let report = agent.read_inventory(|inventory| inventory.classes().get(&class).cloned());
        let rules = new.content.size_rules(&report.unwrap_or_default());
        let bytes = size::new_volume(new.range, rules)?;
        return Ok(Choices {
            settled: 1,
            all: vec![Choice { node, class, bytes }],
        });
    }
    let place = |nodes: &[Node]| placement::place(new, topology, key, nodes);
    let mut doubts = agents.notes().doubts(&new.name);
    // A node in doubt may have a volume of this name, even if this process has not seen the node yet. Nodes that the
    // requirements no longer allow are ignored: the caller has chosen another node, and waiting for the former one
    // could block the volume forever.
    doubts.retain(|node| !agents.is_given_up(node) && key.allows(topology, node));
    if let Some(away) = doubts.iter().find(|node| !is_there(agents, node)) {
        return Err(CreateError::InDoubt {
            name: new.name.clone(),
            node: away.clone(),
        });
    }
    let only = key.only_nodes(topology);
    let nodes = candidates(agents, only.as_deref());
    let doubted: Vec<Node> = nodes
        .iter()
        .filter(|node| doubts.contains(&node.id) && key.allows(topology, &node.id))
        .cloned()
        .collect();
    let mut choices = Vec::new();
    // Each is asked regardless of the space it reports: it may still be creating the volume, and only its answer is certain.
    for node in &doubted {
        match place(std::slice::from_ref(node)) {
            // It does not have the class any more, and all its drives are scanned: it has no volume of the name, and is not asked.
            Err(error) if concerns_all_nodes(&error) => {}
            placed => choices.extend(placed?),
        }
    }
    let settled = choices.len();
    let rest: Vec<Node> = nodes
        .iter()
        .filter(|node| !doubts.contains(&node.id))
        .cloned()
        .collect();
    let others = match place(&rest) {
        // The error of a subset of nodes may not hold for all of them, so it is computed again from all nodes.
        Err(error) if only.is_some() && concerns_all_nodes(&error) => {
            place(&candidates(agents, None))
        }
        placed => placed,
    };
    match others {
        Ok(others) => choices.extend(others),
        Err(error) if choices.is_empty() => return Err(error.into()),
        Err(_) => {}
    }
    Ok(Choices {
        settled,
        all: choices,
    })
}

/// True if the error concerns all nodes, and not only the requested ones.
fn concerns_all_nodes(error: &PlacementError) -> bool {
    match error {
        PlacementError::NotReady { nodes } => nodes.is_empty(),
        PlacementError::NoSuchNode
        | PlacementError::UnknownClass { .. }
        | PlacementError::ClassNotNamed { .. } => true,
        PlacementError::Gone { .. }
        | PlacementError::ClassNotThere { .. }
        | PlacementError::Size(_)
        | PlacementError::NoRoom { .. } => false,
    }
}

pub(super) fn is_there(agents: &Agents, node: &str) -> bool {
    let agent = agents.get(node);
    agent.is_some_and(|agent| agent.read_inventory(Inventory::complete))
}

/// Returns the volume of this name and its agent; of several, always the same one. Includes a volume that is still being copied.
pub(super) fn named(
    agents: &Agents,
    name: &str,
    allowed: impl Fn(&str) -> bool,
) -> Option<(Arc<Agent>, agent::Volume)> {
    let mut all = agents.candidates(name);
    all.retain(|one| agents.get(&one.key.node).is_some());
    let chosen = duplicates::chosen(name, &all, allowed)?;
    Some((agents.get(&chosen.key.node)?, chosen.volume.clone()))
}

/// Returns placement's input about these nodes, or about all.
fn candidates(agents: &Agents, only: Option<&[&str]>) -> Vec<Node> {
    let node_of = |agent: Arc<Agent>| {
        let unreachable = agent.unreachable();
        agent.read_inventory(|inventory| Node {
            id: agent.node().to_owned(),
            presence: if inventory.complete() {
                Presence::There
            } else if unreachable {
                Presence::Gone
            } else {
                Presence::Coming
            },
            classes: inventory.classes(),
        })
    };
    let Some(only) = only else {
        return agents.all().into_iter().map(node_of).collect();
    };
    let named: BTreeSet<&str> = only.iter().copied().collect();
    named
        .into_iter()
        .filter_map(|node| match agents.get(node) {
            Some(agent) => Some(node_of(agent)),
            // The controller has just started, so the node's agent may still connect.
            None if agents.is_young() => Some(Node {
                id: node.to_owned(),
                presence: Presence::Coming,
                classes: Classes::default(),
            }),
            None => None,
        })
        .collect()
}
