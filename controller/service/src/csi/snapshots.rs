//! CreateSnapshot and DeleteSnapshot: the agent of the volume asked, its answer checked.

use drivebay_proto::{
    VolumeId,
    agent::{self, VolumeSnapshot},
    csi::{self, TopologyRequirement},
    words::SnapshotState,
};
use tonic::Code;
use uuid::Uuid;

use super::{pending::Pending, volumes::signed};
use crate::{
    agents::{Agents, Found, FoundSnapshot, IdOf, LookupError, parse_as},
    call::{CHANGE_DEADLINE, CallError, call},
    catalog::{Key, SnapshotPlace},
    inventory::Inventory,
};
use drivebay_csi::{NewSnapshot, topology::TopologyKey};

/// A snapshot as CSI shows it, of this volume.
pub(super) fn shown(
    snapshot: VolumeSnapshot,
    volume_id: String,
    node: &str,
    key: &TopologyKey,
) -> csi::Snapshot {
    let mut shown = csi::Snapshot {
        size_bytes: signed(snapshot.size_bytes),
        ready_to_use: snapshot.known_state() == Some(SnapshotState::Ready),
        snapshot_id: snapshot.id,
        source_volume_id: volume_id,
        accessible_topology: vec![key.of(node)],
        ..csi::Snapshot::default()
    };
    let creation = shown.creation_time.get_or_insert_default();
    creation.seconds = signed(snapshot.created_at);
    shown
}

/// A snapshot that was looked up, as CSI shows it. The caller knows it by the id it asked for.
pub(super) fn shown_as(id: &str, found: FoundSnapshot, key: &TopologyKey) -> csi::Snapshot {
    let node = found.agent.node();
    let mut shown = shown(found.snapshot, found.volume.id, node, key);
    id.clone_into(&mut shown.snapshot_id);
    shown
}

/// No snapshot was taken, or that is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateSnapshotError {
    #[error("snapshot {name:?} is being created; ask again")]
    Pending { name: String },
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(
        "the drive of volume {id} was moved to node {node}, where it is {now}: take a snapshot of that one"
    )]
    Moved {
        id: String,
        node: String,
        now: String,
    },
    #[error(
        "a snapshot is on the node of its volume: that of volume {id} would be on node {node}, which is not among the accessibility_requirements"
    )]
    OtherNode { id: String, node: String },
    #[error(
        "a snapshot of the name {name:?} exists already, {id}, and it is of another volume, {volume}; choose another name"
    )]
    Exists {
        name: String,
        id: String,
        volume: String,
    },
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "creating the snapshot was interrupted, so whether it was done is not known; call again"
    )]
    Lost,
}

/// Takes the snapshot, or finds the one of its name and volume.
pub(crate) async fn create_snapshot(
    agents: Agents,
    key: TopologyKey,
    pending: Pending,
    requested: NewSnapshot,
    topology: Option<TopologyRequirement>,
) -> Result<csi::Snapshot, CreateSnapshotError> {
    let guard = pending
        .enter(&requested.name)
        .ok_or_else(|| CreateSnapshotError::Pending {
            name: requested.name.clone(),
        })?;
    // A caller that gives up drops its future; the name stays taken until the agent has answered.
    let task = tokio::spawn(async move {
        let _guard = guard;
        let Found {
            agent,
            volume,
            moved_from,
        } = agents.volume_of_csi(&requested.volume_id)?;
        let node = agent.node().to_owned();
        if moved_from.is_some() {
            return Err(CreateSnapshotError::Moved {
                id: requested.volume_id,
                node,
                now: volume.id,
            });
        }
        if !key.allows(topology.as_ref(), &node) {
            let id = volume.id;
            return Err(CreateSnapshotError::OtherNode { id, node });
        }
        let named = agents.catalog().snapshots_named(&requested.name);
        let uuid = volume.id.parse::<VolumeId>().map(|id| id.uuid);
        if let Some(other) = of_another(&named, uuid.unwrap_or_default()) {
            return Err(CreateSnapshotError::Exists {
                name: requested.name,
                id: other.key.id_text(),
                volume: other.volume.id_text(),
            });
        }
        let instance = agent.instance();
        let mut client = agent.client_for_copies()?;
        let request = requested.agent_request(&volume.id);
        let asked = async move { client.create_snapshot(request).await };
        let answer = call(CHANGE_DEADLINE, asked).await?;
        let revision = answer.revision;
        let snapshot = check_answer(&requested.name, &volume.id, &node, answer)?;
        agent.shows(&instance, revision).await;
        Ok(shown(snapshot, volume.id, &node, &key))
    });
    task.await.unwrap_or(Err(CreateSnapshotError::Lost))
}

/// Of the snapshots of one name the first that is not of this volume, on whatever nodes both are. Pure.
fn of_another(named: &[SnapshotPlace], volume: Uuid) -> Option<&SnapshotPlace> {
    named.iter().find(|place| place.volume.uuid != volume)
}

/// The agent's answer must be what was asked for. Pure.
fn check_answer(
    name: &str,
    volume_id: &str,
    node: &str,
    answer: agent::CreateSnapshotResponse,
) -> Result<VolumeSnapshot, CallError> {
    let bad = |reason: String| Err(CallError::Nonsense { reason });
    let Some(snapshot) = answer.snapshot else {
        return bad("no snapshot in it".to_owned());
    };
    let id = snapshot.id.parse::<VolumeId>();
    if !id.is_ok_and(|id| id.node == node) {
        let id = &snapshot.id;
        return bad(format!("snapshot id {id:?} is not one of node {node}"));
    }
    if snapshot.name != name || answer.volume_id != volume_id {
        return bad(format!("snapshot {} is another one", snapshot.id));
    }
    Ok(snapshot)
}

/// The snapshot was not deleted, or that is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeleteSnapshotError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "the drive of snapshot {id} was moved to node {node}, where it is {now}: it is not deleted under its former id; delete {now}"
    )]
    Moved {
        id: String,
        node: String,
        now: String,
    },
}

/// Deletes the snapshot; one that was never made, that its node does not have, or that was forgotten with its node is deleted already.
pub(crate) async fn delete_snapshot(
    agents: &Agents,
    id: String,
) -> Result<(), DeleteSnapshotError> {
    let Ok(parsed) = parse_as(IdOf::Snapshot, &id) else {
        return Ok(());
    };
    let owner = agents.owner(IdOf::Snapshot, &parsed);
    let place = agents.catalog().snapshot(&Key::from(&parsed));
    let on_its_node = owner
        .as_ref()
        .is_ok_and(|agent| agent.look(Inventory::complete) && place.is_some());
    if !on_its_node && let Some(found) = agents.snapshot_elsewhere(&parsed) {
        return Err(DeleteSnapshotError::Moved {
            id,
            node: found.agent.node().to_owned(),
            now: found.snapshot.id,
        });
    }
    let agent = match owner {
        Err(LookupError::ForgottenNodes { .. }) => return Ok(()),
        found => found?,
    };
    let instance = agent.instance();
    let mut client = agent.client_for_copies()?;
    let request = agent::DeleteSnapshotRequest { id };
    let asked = async move { client.delete_snapshot(request).await };
    match call(CHANGE_DEADLINE, asked).await {
        Ok(answer) => agent.shows(&instance, answer.revision).await,
        Err(CallError::Answered {
            code: Code::NotFound,
            ..
        }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod tests;
