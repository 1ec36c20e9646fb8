//! How the agents' volumes and classes are shown to CSI: listed, capacities summed.

use std::{collections::HashMap, sync::Arc};

use drivebay_proto::{
    VolumeId, agent,
    csi::{self, list_volumes_response},
    names,
};

use super::attach::Attached;
use crate::{
    agents::Agents,
    catalog::{Entry, Key, Marks},
    config::HealthApi,
    health::{self, Whereabouts},
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
pub(crate) fn volume(volume: agent::Volume, node: &str, key: &TopologyKey) -> csi::Volume {
    csi::Volume {
        capacity_bytes: signed(volume.size_bytes),
        volume_id: volume.id,
        volume_context: HashMap::from([(names::PARAM_CLASS.to_owned(), volume.class)]),
        content_source: None,
        accessible_topology: vec![key.of(node)],
    }
}

/// Where a volume is published, and its condition if that API is wanted.
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

/// A volume of a list, with the node that has it when that is another than the one it is listed for.
struct Listed {
    key: Key,
    entry: Entry,
    away: bool,
    now_on: Option<String>,
}

impl Listed {
    fn at(&self) -> Whereabouts<'_> {
        match &self.now_on {
            Some(now) => Whereabouts::Moved {
                from: &self.key.node,
                now,
            },
            None if self.away => Whereabouts::Away,
            None => Whereabouts::Here,
        }
    }
}

/// The volumes of all nodes by id, after this one: as many as a page may need, and one more.
fn after(
    agents: &Agents,
    after: Option<&VolumeId>,
    mut keep: impl FnMut(Marks, bool) -> bool,
) -> Vec<Listed> {
    let after = after.map(Key::from);
    // Once for each node, not for each of the volumes that are looked at, which may be all there are.
    let mut seen: HashMap<Arc<str>, bool> = HashMap::new();
    let mut away = |key: &Key| {
        *seen.entry(key.node.clone()).or_insert_with(|| {
            let agent = agents.get(&key.node);
            agent.is_none_or(|agent| agent.unreachable())
        })
    };
    let found = agents
        .catalog()
        .after(after.as_ref(), MAX_ENTRIES + 1, |key, marks| {
            marks.exists && keep(marks, away(key))
        });
    found
        .into_iter()
        .map(|(key, entry)| {
            let away = away(&key);
            let moved = away.then(|| agents.elsewhere(&key.id())).flatten();
            Listed {
                away,
                now_on: moved.map(|(agent, _)| agent.node().to_owned()),
                key,
                entry,
            }
        })
        .collect()
}

/// One page of ListVolumes.
pub(crate) fn list(
    agents: &Agents,
    key: &TopologyKey,
    attached: &Attached,
    api: HealthApi,
    from: Option<&VolumeId>,
    max_entries: Option<usize>,
) -> csi::ListVolumesResponse {
    let listed = after(agents, from, |_, _| true);
    let entries = listed.into_iter().map(|listed| {
        let node = &listed.key.node;
        // A list of a million is made of volumes with which all is well: little of them is needed.
        let shown = if listed.entry.marks.troubled || listed.away {
            listed.entry.decode(&listed.key)
        } else {
            let brief = listed.entry.brief();
            agent::Volume {
                id: listed.key.id().to_string(),
                class: brief.class,
                size_bytes: brief.size_bytes,
                published: brief.published,
                ..agent::Volume::default()
            }
        };
        let (published_node_ids, volume_condition) =
            status(&shown, node, listed.at(), attached, api);
        list_volumes_response::Entry {
            volume: Some(volume(shown, node, key)),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids,
                volume_condition,
            }),
        }
    });
    let (entries, next_token) = page(entries, max_entries, |entry| {
        entry.volume.as_ref().map_or("", |of| &of.volume_id)
    });
    csi::ListVolumesResponse {
        entries,
        next_token,
    }
}

/// A volume's health in the words of CSI 1.13.
pub(crate) fn volume_health(volume: &agent::Volume, at: Whereabouts<'_>) -> csi::VolumeHealth {
    csi::VolumeHealth {
        volume_id: volume.id.clone(),
        health_statuses: health::entries(volume, at),
    }
}

/// One page of ControllerListVolumeHealth: volumes with trouble only.
pub(crate) fn list_health(
    agents: &Agents,
    from: Option<&VolumeId>,
    max_entries: Option<usize>,
) -> csi::ControllerListVolumeHealthResponse {
    let listed = after(agents, from, |marks, away| marks.troubled || away);
    let entries = listed.into_iter().map(|listed| {
        let volume = listed.entry.decode(&listed.key);
        volume_health(&volume, listed.at())
    });
    let (entries, next_token) = page(entries, max_entries, |of| &of.volume_id);
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
        hard_group: false,
    };
    let (mut free, mut largest, mut smallest) = (0u64, 0u64, None::<u64>);
    // The provisioner asks for each node and class on its own, of a fleet many times a minute.
    let only = query.topology.and_then(|topology| key.only_node(topology));
    let asked = match only {
        Some(node) => agents.get(node).into_iter().collect(),
        None => agents.all(),
    };
    for agent in asked {
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
            let classes = inventory.classes();
            for class in classes
                .values()
                .filter(|class| query.class.is_none_or(|name| class.name == name))
            {
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
