//! CreateVolume from a snapshot or from another volume: looks up the source, checks the request against it, and fills in fields that
//! the request leaves to it.

use std::{collections::BTreeMap, sync::Arc};

use drivebay_proto::{
    VolumeId,
    agent::{self, Class, VolumeSnapshot},
    csi::TopologyRequirement,
    names,
    words::SnapshotState,
};

use super::create::named;
use crate::{
    agents::{Agent, Agents, LookupError},
    inventory::Inventory,
};
use drivebay_csi::{
    Content, NewVolume, Source,
    size::{self, SizeError},
    topology::TopologyKey,
};

/// No volume can be made as a copy of this source, permanently or for now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(
        "{source_id} is on node {node}, whose agent is starting or disconnected, and no other node can copy it; see that its agent runs, then call again"
    )]
    Away { source_id: Source, node: String },
    #[error(
        "{source_id} is on node {node}, and a copy is made on the node of its source: the volume has to be on node {node}, which is not among the accessibility_requirements"
    )]
    OtherNode { source_id: Source, node: String },
    #[error(
        "{source_id} cannot be copied: it is {state}{}{message}. Use another source",
        if message.is_empty() { "" } else { ": " }
    )]
    NotReady {
        source_id: Source,
        /// State as its agent reports it.
        state: String,
        message: String,
    },
    #[error(
        "volume_capabilities ask for a {wanted} volume, but {source_id} is of a {is} volume; a copy is used as its source is: ask for {is}"
    )]
    OtherMode {
        source_id: Source,
        is: String,
        wanted: &'static str,
    },
    #[error(
        "the request asks for filesystem {wanted}, but {source_id} has {is}; a copy has the filesystem of its source: ask for {is}, or for none"
    )]
    OtherFilesystem {
        source_id: Source,
        is: String,
        wanted: &'static str,
    },
    #[error(
        "{source_id} is on node {node}, and a copy is made on the node of its source, where there is no class {class:?}; the classes there are {classes}. Use a StorageClass with one of them"
    )]
    NoClass {
        source_id: Source,
        node: String,
        class: String,
        /// Names of the node's classes, as text.
        classes: String,
    },
    #[error(transparent)]
    Size(#[from] SizeError),
}

/// The snapshot or volume to be copied, as its agent last reported it.
struct Origin {
    /// Snapshot or volume by an id that names the node where it is now.
    source: Source,
    /// The volume to be copied, or the one that the snapshot is of.
    volume: agent::Volume,
    snapshot: Option<VolumeSnapshot>,
}

/// Completes a request from its source, and returns it with a topology requirement that only the source's node meets. A request
/// without a source is returned unchanged.
pub(super) fn resolve(
    agents: &Agents,
    key: &TopologyKey,
    volume: NewVolume,
    topology: Option<TopologyRequirement>,
) -> Result<(NewVolume, Option<TopologyRequirement>), SourceError> {
    let Some(source) = volume.source.clone() else {
        return Ok((volume, topology));
    };
    let allowed = |node: &str| key.allows(topology.as_ref(), node);
    let (node, volume) = match named(agents, &volume.name, allowed) {
        // The agent compares the request with the existing volume, even if the source was deleted.
        Some((agent, existing)) => {
            let node = agent.node().to_owned();
            (node, repeated(volume, &source, &existing, agent.node()))
        }
        None => {
            let (agent, origin) = find(agents, &source)?;
            let node = agent.node().to_owned();
            if !agent.read_inventory(Inventory::complete) {
                let source_id = origin.source;
                return Err(SourceError::Away { source_id, node });
            }
            let completed =
                origin.complete(volume, &node, &agent.read_inventory(Inventory::classes))?;
            (node, completed)
        }
    };
    if !allowed(&node) {
        let source_id = volume.source.unwrap_or(source);
        return Err(SourceError::OtherNode { source_id, node });
    }
    let only = key.only(&node);
    Ok((volume, Some(only)))
}

fn find(agents: &Agents, source: &Source) -> Result<(Arc<Agent>, Origin), LookupError> {
    Ok(match source {
        Source::Snapshot(id) => {
            let reported = agents.snapshot(id)?;
            let origin = Origin {
                source: source.with_id(reported.snapshot.id.clone()),
                volume: reported.volume,
                snapshot: Some(reported.snapshot),
            };
            (reported.agent, origin)
        }
        Source::Volume(id) => {
            let reported = agents.volume_of_csi(id)?;
            let origin = Origin {
                source: source.with_id(reported.volume.id.clone()),
                volume: reported.volume,
                snapshot: None,
            };
            (reported.agent, origin)
        }
    })
}

/// Completes the request for a volume that exists with this name on this node, from that volume. Pure.
fn repeated(
    mut requested: NewVolume,
    source: &Source,
    existing: &agent::Volume,
    node: &str,
) -> NewVolume {
    // A copy is on the node of its source, even if the source's id names the node from which its drive was moved.
    if let Ok(id) = source.id().parse::<VolumeId>() {
        let node = node.to_owned();
        let id = VolumeId { node, ..id }.to_string();
        requested.source = Some(source.with_id(id));
    }
    if requested.range.required == 0 {
        requested.range.required = existing.size_bytes;
    }
    fill_filesystem(&mut requested.content, &existing.fs_type);
    requested
}

/// Sets the filesystem of a request that names none to that of the source.
fn fill_filesystem(content: &mut Content, of_source: &str) {
    if let Content::Mount { fs_type, .. } = content
        && fs_type.is_none()
    {
        let mut filesystems = names::FILESYSTEMS.iter().map(|(name, _)| *name);
        *fs_type = filesystems.find(|name| *name == of_source);
    }
}

impl Origin {
    /// Completes the request from its source, with the exact size as `required`. Fails if a copy cannot satisfy it. `node`: the
    /// source's node; `classes`: the classes of that node. Pure.
    fn complete(
        self,
        mut requested: NewVolume,
        node: &str,
        classes: &BTreeMap<String, Class>,
    ) -> Result<NewVolume, SourceError> {
        let Self {
            source,
            volume,
            snapshot,
        } = self;
        let wanted = requested.content.mode();
        if volume.mode != wanted {
            return Err(SourceError::OtherMode {
                source_id: source,
                is: volume.mode,
                wanted,
            });
        }
        fill_filesystem(&mut requested.content, &volume.fs_type);
        if let Content::Mount {
            fs_type: Some(wanted),
            ..
        } = requested.content
            && wanted != volume.fs_type
            && !volume.fs_type.is_empty()
        {
            return Err(SourceError::OtherFilesystem {
                source_id: source,
                is: volume.fs_type,
                wanted,
            });
        }
        // Another class is allowed if the request names one, since data can be copied to any drive of the node.
        let class = requested.class.take().unwrap_or(volume.class);
        let Some(report) = classes.get(&class) else {
            let names: Vec<&str> = classes.keys().map(String::as_str).collect();
            return Err(SourceError::NoClass {
                source_id: source,
                node: node.to_owned(),
                class,
                classes: names.join(", "),
            });
        };
        let unready = snapshot.as_ref().filter(|snapshot| {
            // An unknown state is that of a newer agent, which decides itself.
            snapshot
                .known_state()
                .is_some_and(|state| state != SnapshotState::Ready)
        });
        if let Some(snapshot) = unready {
            return Err(SourceError::NotReady {
                source_id: source,
                state: snapshot.state.clone(),
                message: snapshot.message.clone(),
            });
        }
        let has = snapshot.map_or(volume.size_bytes, |snapshot| snapshot.size_bytes);
        let rules = requested.content.size_rules(report);
        requested.range.required = size::copied_volume(requested.range, rules, has)?;
        requested.class = Some(class);
        requested.source = Some(source);
        Ok(requested)
    }
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
