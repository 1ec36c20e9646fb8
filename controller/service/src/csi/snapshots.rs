//! CreateSnapshot and DeleteSnapshot: the agent of the volume asked, its answer checked.

use drivebay_proto::{
    VolumeId,
    agent::{self, VolumeSnapshot},
    csi::{self, TopologyRequirement},
    words::SnapshotState,
};
use uuid::Uuid;

use super::{
    pending::{Pending, Unfinished},
    volumes::signed,
};
use crate::{
    agents::{Agents, IdOf, LookupError, ReportedSnapshot, ReportedVolume, parse_as},
    call::{CHANGE_DEADLINE, CallError, call, deletion},
    catalog::{Key, SnapshotPlace},
    inventory::Inventory,
};
use drivebay_csi::{NewSnapshot, topology::TopologyKey};

/// Returns a snapshot of this volume in CSI's form, with the group's id if it was taken in a group.
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
        group_snapshot_id: snapshot.group.map(|group| group.id).unwrap_or_default(),
        accessible_topology: vec![key.of(node)],
        ..csi::Snapshot::default()
    };
    let creation = shown.creation_time.get_or_insert_default();
    creation.seconds = signed(snapshot.created_at);
    shown
}

/// Returns a snapshot that was looked up in CSI's form. Its id and its group's name the node in the requested id.
pub(super) fn shown_as(id: &str, reported: ReportedSnapshot, key: &TopologyKey) -> csi::Snapshot {
    let node = reported.agent.node();
    let mut shown = shown(reported.snapshot, reported.volume.id, node, key);
    id.clone_into(&mut shown.snapshot_id);
    if let Some(former) = &reported.moved_from {
        shown.group_snapshot_id = with_node(&shown.group_snapshot_id, former);
    }
    shown
}

/// Returns the id with its node replaced; text that is no id unchanged. Pure.
pub(super) fn with_node(id: &str, node: &str) -> String {
    let node = node.to_owned();
    match id.parse::<VolumeId>() {
        Ok(id) => VolumeId { node, ..id }.to_string(),
        Err(_) => id.to_owned(),
    }
}

/// No snapshot was taken, or that is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateSnapshotError {
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
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
}

/// Takes the snapshot, or finds the one of its name and volume.
pub(crate) async fn create_snapshot(
    agents: Agents,
    key: TopologyKey,
    pending: Pending,
    requested: NewSnapshot,
    topology: Option<TopologyRequirement>,
) -> Result<csi::Snapshot, CreateSnapshotError> {
    let name = requested.name.clone();
    let creation = async move {
        let ReportedVolume {
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
        let response = async move { client.create_snapshot(request).await };
        let answer = call(CHANGE_DEADLINE, response).await?;
        let revision = answer.revision;
        let snapshot = check_answer(&requested.name, &volume.id, &node, answer)?;
        agent.shows(&instance, revision).await;
        Ok(shown(snapshot, volume.id, &node, &key))
    };
    pending.run(IdOf::Snapshot, &name, creation).await
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
    #[error(
        "snapshot {id} is one of group snapshot {group} ({name:?}), and is not deleted alone; delete the group snapshot"
    )]
    Member {
        id: String,
        group: String,
        /// Name of the group.
        name: String,
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
        .is_ok_and(|agent| agent.read_inventory(Inventory::complete) && place.is_some());
    if !on_its_node && let Some(moved) = agents.snapshot_elsewhere(&parsed) {
        return Err(DeleteSnapshotError::Moved {
            id,
            node: moved.agent.node().to_owned(),
            now: moved.snapshot.id,
        });
    }
    let agent = match owner {
        Err(LookupError::ForgottenNodes { .. }) => return Ok(()),
        result => result?,
    };
    let snapshot = place.and_then(|place| place.snapshot());
    if let Some(group) = snapshot.and_then(|snapshot| snapshot.group) {
        let (group, name) = (group.id, group.name);
        return Err(DeleteSnapshotError::Member { id, group, name });
    }
    let instance = agent.instance();
    let mut client = agent.client_for_copies()?;
    let request = agent::DeleteSnapshotRequest { id };
    let response = async move { client.delete_snapshot(request).await };
    if let Some(answer) = deletion(response).await? {
        agent.shows(&instance, answer.revision).await;
    }
    Ok(())
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod tests;
