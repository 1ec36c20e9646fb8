//! The agents' volumes and classes in CSI's form, and the sum of their capacities.

use std::collections::HashMap;

use drivebay_proto::{agent, csi, names};

use super::attach::Attached;
use crate::agents::Agents;
use drivebay_csi::{
    Content, Source,
    health::HealthApi,
    health::{self, Whereabouts},
    topology::TopologyKey,
};

/// Converts a size to CSI's type. Saturates, which no size of an agent needs.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Returns a volume in CSI's form.
pub(crate) fn volume(volume: agent::Volume, node: &str, key: &TopologyKey) -> csi::Volume {
    let content_source = Source::of(&volume).map(csi::VolumeContentSource::from);
    csi::Volume {
        capacity_bytes: signed(volume.size_bytes),
        volume_id: volume.id,
        volume_context: HashMap::from([(names::PARAM_CLASS.to_owned(), volume.class)]),
        content_source,
        accessible_topology: vec![key.of(node)],
    }
}

/// Returns the nodes on which a volume is published, and its condition if the legacy API is enabled.
pub(crate) fn status(
    volume: &agent::Volume,
    node: &str,
    at: Whereabouts<'_>,
    attached: &Attached,
    api: HealthApi,
) -> (Vec<String>, Option<csi::VolumeCondition>) {
    let published = if volume.published || attached.contains(&volume.id) {
        vec![node.to_owned()]
    } else {
        Vec::new()
    };
    let condition = api
        .legacy()
        .then(|| health::legacy(&health::entries(volume, at)));
    (published, condition)
}

/// Returns a volume's health in CSI 1.13's form.
pub(crate) fn volume_health(volume: &agent::Volume, at: Whereabouts<'_>) -> csi::VolumeHealth {
    csi::VolumeHealth {
        volume_id: volume.id.clone(),
        health_statuses: health::entries(volume, at),
    }
}

/// Parameters of GetCapacity. A class or topology of None restricts nothing.
#[derive(Debug)]
pub(crate) struct CapacityQuery<'a> {
    /// Restricts to this class.
    pub(crate) class: Option<&'a str>,
    /// Restricts to volumes with this content.
    pub(crate) content: Content,
    /// Bytes of a drive that a volume takes besides its size.
    pub(crate) overhead: u64,
    /// Restricts to the nodes in this topology.
    pub(crate) topology: Option<&'a csi::Topology>,
}

/// Returns the free bytes of all matching nodes and classes, and the largest and smallest size of a volume there.
///
/// A node counts only if its agent is connected and has scanned every drive.
pub(crate) fn capacity(
    agents: &Agents,
    key: &TopologyKey,
    query: &CapacityQuery<'_>,
) -> csi::GetCapacityResponse {
    let (mut free, mut largest, mut smallest) = (0u64, 0u64, None::<u64>);
    // The provisioner asks for each node and class separately, many times a minute in a large cluster.
    let only = query.topology.and_then(|topology| key.only_node(topology));
    let queried = match only {
        Some(node) => agents.get(node).into_iter().collect(),
        None => agents.all(),
    };
    for agent in queried {
        if query
            .topology
            .is_some_and(|topology| !key.contains(topology, agent.node()))
        {
            continue;
        }
        agent.read_inventory(|inventory| {
            if !inventory.complete() {
                return;
            }
            let classes = inventory.classes();
            for class in classes
                .values()
                .filter(|class| query.class.is_none_or(|name| class.name == name))
            {
                let least = query.content.size_rules(class).smallest_volume();
                let room = class.largest_volume_bytes.saturating_sub(query.overhead);
                free = free.saturating_add(class.free_bytes.saturating_sub(query.overhead));
                smallest = Some(smallest.map_or(least, |bytes| bytes.min(least)));
                // Contiguous space that is smaller than the smallest volume cannot hold any.
                if room >= least {
                    largest = largest.max(room);
                }
            }
        });
    }
    csi::GetCapacityResponse {
        available_capacity: signed(free),
        maximum_volume_size: Some(signed(largest)),
        minimum_volume_size: smallest.map(signed),
    }
}
