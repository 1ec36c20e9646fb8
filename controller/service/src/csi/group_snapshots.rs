//! CreateVolumeGroupSnapshot: finds the agent of all the volumes, calls it, and checks its response.

use std::{collections::BTreeSet, sync::Arc};

use drivebay_proto::{
    VolumeId,
    agent::{self, SnapshotGroup, VolumeSnapshot},
    csi,
};
use uuid::Uuid;

use super::{
    pending::{Pending, Unfinished},
    snapshots::shown,
};
use crate::{
    agents::{Agent, Agents, IdOf, LookupError, ReportedVolume},
    call::{CHANGE_DEADLINE, CallError, call},
    catalog::SnapshotPlace,
};
use drivebay_csi::{NewGroupSnapshot, topology::TopologyKey, validate::InvalidRequest};

/// No group snapshot was taken, or the result is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateGroupError {
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(
        "the drive of volume {id} was moved to node {node}, where it is {now}: take a group snapshot with that one"
    )]
    Moved {
        id: String,
        node: String,
        now: String,
    },
    #[error(
        "a group snapshot is of volumes of one node, but {placed}. Take one for the volumes of each node"
    )]
    Scattered {
        /// Each volume with its node, as text.
        placed: String,
    },
    #[error(
        "a group snapshot of the name {name:?} exists already, {id}, and it is of other volumes, such as {volume}; choose another name"
    )]
    Exists {
        name: String,
        id: String,
        volume: String,
    },
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Takes snapshots of all the volumes at one moment, or returns the existing group of this name and these volumes.
pub(crate) async fn create_group(
    agents: Agents,
    key: TopologyKey,
    pending: Pending,
    requested: NewGroupSnapshot,
) -> Result<csi::VolumeGroupSnapshot, CreateGroupError> {
    let name = requested.name.clone();
    let creation = async move {
        let (agent, volume_ids) = sources(&agents, &requested.volume_ids)?;
        let node = agent.node().to_owned();
        let named = agents.catalog().members_of_groups_named(&requested.name);
        if let Some((id, volume)) = of_others(&named, &volume_ids) {
            let name = requested.name;
            return Err(CreateGroupError::Exists { name, id, volume });
        }
        let instance = agent.instance();
        let mut client = agent.client_for_copies()?;
        let request = requested.agent_request(volume_ids.clone());
        let response = async move { client.create_group_snapshot(request).await };
        let answer = call(CHANGE_DEADLINE, response).await?;
        let revision = answer.revision;
        let (group, members) = check_answer(&requested.name, &volume_ids, &node, answer)?;
        agent.shows(&instance, revision).await;
        let snapshots = members
            .into_iter()
            .map(|(snapshot, volume_id)| shown(snapshot, volume_id, &node, &key));
        Ok(group_of(group, snapshots.collect()))
    };
    pending.run(IdOf::GroupSnapshot, &name, creation).await
}

/// Returns the agent of all these volumes, and their ids. Errs if they are on several nodes, or if the drive of one was moved to
/// another node than its id names.
fn sources(agents: &Agents, ids: &[String]) -> Result<(Arc<Agent>, Vec<String>), CreateGroupError> {
    let mut volumes = Vec::with_capacity(ids.len());
    for id in ids {
        let ReportedVolume {
            agent,
            volume,
            moved_from,
        } = agents.volume_of_csi(id)?;
        if moved_from.is_some() {
            return Err(CreateGroupError::Moved {
                id: id.clone(),
                node: agent.node().to_owned(),
                now: volume.id,
            });
        }
        volumes.push((agent, volume.id));
    }
    let field = "source_volume_ids";
    let (agent, _) = volumes.first().ok_or(InvalidRequest::Missing { field })?;
    let agent = agent.clone();
    if volumes
        .iter()
        .any(|(other, _)| other.node() != agent.node())
    {
        let placed = volumes
            .iter()
            .map(|(agent, id)| format!("volume {id} is on node {}", agent.node()));
        let placed = placed.collect::<Vec<_>>().join(", ");
        return Err(CreateGroupError::Scattered { placed });
    }
    Ok((agent, volumes.into_iter().map(|(_, id)| id).collect()))
}

/// Returns the first of these snapshots that is of none of these volumes: the ids of its group and of its volume. Volumes are compared
/// by uuid alone, so that a moved drive makes no difference. Pure.
fn of_others(named: &[SnapshotPlace], volume_ids: &[String]) -> Option<(String, String)> {
    let uuids = volume_ids.iter().filter_map(|id| id.parse().ok());
    let uuids: BTreeSet<Uuid> = uuids.map(|id: VolumeId| id.uuid).collect();
    let mut others = named
        .iter()
        .filter(|place| !uuids.contains(&place.volume.uuid));
    others.find_map(|place| Some((place.snapshot()?.group?.id, place.volume.id_text())))
}

/// A snapshot, and the id of its volume.
type Member = (VolumeSnapshot, String);

/// Checks that the agent's response has one snapshot of each of these volumes, all in one group of this name and node. Pure.
fn check_answer(
    name: &str,
    volume_ids: &[String],
    node: &str,
    answer: agent::CreateGroupSnapshotResponse,
) -> Result<(SnapshotGroup, Vec<Member>), CallError> {
    let bad = |reason: String| Err(CallError::Nonsense { reason });
    let is_there = |id: &str| id.parse::<VolumeId>().is_ok_and(|id| id.node == node);
    let Some(group) = answer.group else {
        return bad("no group snapshot in it".to_owned());
    };
    if !is_there(&group.id) {
        let id = &group.id;
        return bad(format!(
            "group snapshot id {id:?} is not one of node {node}"
        ));
    }
    if group.name != name {
        return bad(format!("group snapshot {} is another one", group.id));
    }
    let mut missing: BTreeSet<&str> = volume_ids.iter().map(String::as_str).collect();
    let mut members = Vec::with_capacity(volume_ids.len());
    for agent::GroupMember {
        snapshot,
        volume_id,
    } in answer.members
    {
        let Some(snapshot) = snapshot else {
            return bad("a snapshot is missing".to_owned());
        };
        let of_group = snapshot.group.as_ref();
        let is_member = is_there(&snapshot.id)
            && of_group.is_some_and(|of| of.id == group.id)
            && missing.remove(volume_id.as_str());
        if !is_member {
            let id = &snapshot.id;
            return bad(format!("snapshot {id} is not of the group and its volumes"));
        }
        members.push((snapshot, volume_id));
    }
    if let Some(volume) = missing.first() {
        return bad(format!("no snapshot of volume {volume} in it"));
    }
    Ok((group, members))
}

/// Returns the group in CSI's form with these of its snapshots: ready to use if all `group.members` are present and ready. Pure.
pub(super) fn group_of(
    group: SnapshotGroup,
    snapshots: Vec<csi::Snapshot>,
) -> csi::VolumeGroupSnapshot {
    let is_whole = u32::try_from(snapshots.len()) == Ok(group.members);
    let moments = snapshots
        .iter()
        .filter_map(|one| Some(one.creation_time.as_ref()?.seconds));
    let taken = moments.max();
    let mut shown = csi::VolumeGroupSnapshot {
        group_snapshot_id: group.id,
        ready_to_use: is_whole && snapshots.iter().all(|one| one.ready_to_use),
        snapshots,
        creation_time: None,
    };
    shown.creation_time.get_or_insert_default().seconds = taken.unwrap_or_default();
    shown
}

#[cfg(test)]
#[path = "group_snapshots_tests.rs"]
mod tests;
