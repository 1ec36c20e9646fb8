//! How the agents' volumes and classes are shown to CSI: listed, capacities summed.

use std::{collections::HashMap, sync::Arc};

use drivebay_proto::{
    agent,
    csi::{self, list_volumes_response},
    names,
};

use crate::{
    agents::{Agent, Agents},
    config::HealthApi,
    health,
    page::{MAX_ENTRIES, page},
    placement::Want,
    topology::TopologyKey,
    validate::{Capabilities, SizeRange},
};

/// A size as CSI writes it. The agents' sizes fit; a larger one is shown as the largest there is.
pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// A volume as CSI shows it.
pub(crate) fn volume(volume: &agent::Volume, node: &str, key: &TopologyKey) -> csi::Volume {
    csi::Volume {
        capacity_bytes: signed(volume.size_bytes),
        volume_id: volume.id.clone(),
        volume_context: HashMap::from([(names::PARAM_CLASS.to_owned(), volume.class.clone())]),
        content_source: None,
        accessible_topology: vec![key.of(node)],
    }
}

/// Where a volume is published, and its condition if that API is wanted.
pub(crate) fn status(
    volume: &agent::Volume,
    node: &str,
    away: bool,
    api: HealthApi,
) -> (Vec<String>, Option<csi::VolumeCondition>) {
    let published = if volume.published {
        vec![node.to_owned()]
    } else {
        Vec::new()
    };
    let condition = api
        .legacy()
        .then(|| health::legacy(&health::entries(volume, away)));
    (published, condition)
}

/// A volume with its agent, and whether that is unreachable.
type Listed = (Arc<Agent>, Arc<agent::Volume>, bool);

/// The volumes of all nodes by id, after this one: as many as a page may need, and one more.
fn after(
    agents: &Agents,
    after: Option<&str>,
    keep: impl Fn(&agent::Volume, bool) -> bool,
) -> Vec<Listed> {
    let mut all: Vec<Listed> = Vec::new();
    for agent in agents.all() {
        let away = agent.unreachable();
        agent.look(|inventory| {
            let volumes = inventory.shown().volumes_after(after);
            let kept = volumes.filter(|volume| keep(volume, away));
            all.extend(
                kept.take(MAX_ENTRIES + 1)
                    .map(|volume| (agent.clone(), volume.clone(), away)),
            );
        });
    }
    all.sort_unstable_by(|(_, a, _), (_, b, _)| a.id.cmp(&b.id));
    all.truncate(MAX_ENTRIES + 1);
    all
}

/// One page of ListVolumes.
pub(crate) fn list(
    agents: &Agents,
    key: &TopologyKey,
    api: HealthApi,
    from: Option<&str>,
    max_entries: Option<usize>,
) -> csi::ListVolumesResponse {
    let listed = after(agents, from, |_, _| true);
    let entries = listed.into_iter().map(|(agent, shown, away)| {
        let (published_node_ids, volume_condition) = status(&shown, agent.node(), away, api);
        let entry = list_volumes_response::Entry {
            volume: Some(volume(&shown, agent.node(), key)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids,
                volume_condition,
            }),
        };
        (shown.id.clone(), entry)
    });
    let (entries, next_token) = page(entries, max_entries);
    csi::ListVolumesResponse {
        entries,
        next_token,
    }
}

/// A volume's health in the words of CSI 1.13.
pub(crate) fn volume_health(volume: &agent::Volume, away: bool) -> csi::VolumeHealth {
    csi::VolumeHealth {
        volume_id: volume.id.clone(),
        health_statuses: health::entries(volume, away),
    }
}

/// One page of ControllerListVolumeHealth: volumes with trouble only.
pub(crate) fn list_health(
    agents: &Agents,
    from: Option<&str>,
    max_entries: Option<usize>,
) -> csi::ControllerListVolumeHealthResponse {
    let troubled = |volume: &agent::Volume, away| !health::entries(volume, away).is_empty();
    let listed = after(agents, from, troubled);
    let entries = listed
        .into_iter()
        .map(|(_, shown, away)| (shown.id.clone(), volume_health(&shown, away)));
    let (entries, next_token) = page(entries, max_entries);
    csi::ControllerListVolumeHealthResponse {
        entries,
        next_token,
    }
}

/// What GetCapacity is asked about.
#[derive(Debug, Default)]
pub(crate) struct CapacityQuery<'a> {
    /// Only this class.
    pub(crate) class: Option<&'a str>,
    /// Only for volumes like these.
    pub(crate) capabilities: Option<Capabilities>,
    /// The StorageClass's filesystem, where no capability names one.
    pub(crate) fs_type: Option<&'static str>,
    /// Only on the nodes in this topology.
    pub(crate) topology: Option<&'a csi::Topology>,
}

/// Free bytes over all matching nodes and classes, and the largest and smallest volume there.
///
/// A node whose agent is away has nothing to offer, for now.
pub(crate) fn capacity(
    agents: &Agents,
    key: &TopologyKey,
    query: &CapacityQuery<'_>,
) -> csi::GetCapacityResponse {
    let want = Want {
        class: None,
        block: query.capabilities.is_some_and(|all| all.block),
        fs_type: query
            .capabilities
            .and_then(|all| all.fs_type)
            .or(query.fs_type),
        range: SizeRange::default(),
    };
    let (mut free, mut largest, mut smallest) = (0u64, 0u64, None::<u64>);
    for agent in agents.all() {
        if query
            .topology
            .is_some_and(|topology| !key.contains(topology, agent.node()))
        {
            continue;
        }
        agent.look(|inventory| {
            if !inventory.complete() {
                return;
            }
            let classes = inventory.shown().classes.values();
            for class in classes.filter(|class| query.class.is_none_or(|name| class.name == name)) {
                let least = want.rules(class).smallest_volume();
                free = free.saturating_add(class.free_bytes);
                smallest = Some(smallest.map_or(least, |known| known.min(least)));
                // A piece that is too small for any volume is not a volume that could be made.
                if class.largest_volume_bytes >= least {
                    largest = largest.max(class.largest_volume_bytes);
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
