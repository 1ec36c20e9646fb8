//! GetVolumeGroupSnapshot and DeleteVolumeGroupSnapshot: lookup of a group, and the check of the snapshot ids in the request.

use std::collections::BTreeSet;

use drivebay_proto::{
    VolumeId,
    agent::{self, VolumeSnapshot},
    csi,
};
use uuid::Uuid;

use super::{
    group_snapshots::group_of,
    snapshots::{shown, with_node},
};
use crate::{
    agents::{Agents, IdOf, LookupError, ReportedGroup, parse_as},
    call::{CallError, deletion},
    catalog::Key,
};
use drivebay_csi::topology::TopologyKey;

/// The snapshot ids in the request are not those of the group.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "snapshot_ids are not those of group snapshot {group}: {why}. Name all of its snapshots, or none"
)]
pub(crate) struct IdMismatch {
    group: String,
    why: String,
}

/// Checks that the ids in a request are those of the group's snapshots, in any order. Ids of deleted snapshots may be among them, and an
/// empty list is valid: the ids are not needed to find the group. `is_another`: true if a snapshot of this id exists and is not in the
/// group. Pure.
fn check_ids(
    group: &VolumeId,
    named: &[String],
    members: &[(VolumeSnapshot, agent::Volume)],
    is_another: impl Fn(&VolumeId) -> bool,
) -> Result<(), IdMismatch> {
    let mismatch = |why: String| {
        let group = group.to_string();
        Err(IdMismatch { group, why })
    };
    if named.is_empty() {
        return Ok(());
    }
    let uuid_of = |id: &str| id.parse().map(|id: VolumeId| id.uuid).ok();
    let mut unnamed: BTreeSet<Uuid> = members
        .iter()
        .filter_map(|(snapshot, _)| uuid_of(&snapshot.id))
        .collect();
    for text in named {
        let parsed = parse_as(IdOf::Snapshot, text).ok();
        match parsed.filter(|id| id.node == group.node && !is_another(id)) {
            Some(id) => unnamed.remove(&id.uuid),
            None => {
                let short: String = text.chars().take(128).collect();
                return mismatch(format!("{short:?} is none of them"));
            }
        };
    }
    match unnamed.first() {
        None => Ok(()),
        Some(uuid) => {
            let node = group.node.clone();
            let id = VolumeId { uuid: *uuid, node };
            mismatch(format!("{id} is not named"))
        }
    }
}

/// Checks the snapshot ids in a request against the group that was found and the catalog.
fn check_named(
    agents: &Agents,
    id: &VolumeId,
    named: &[String],
    reported: &ReportedGroup,
) -> Result<(), IdMismatch> {
    check_ids(id, named, &reported.members, |named| {
        let place = agents.catalog().snapshot(&Key::from(named));
        let snapshot = place.and_then(|place| place.snapshot());
        snapshot.is_some_and(|snapshot| {
            let group = snapshot.group.and_then(|group| group.id.parse().ok());
            group.is_none_or(|group: VolumeId| group.uuid != id.uuid)
        })
    })
}

/// The group was not found, or the snapshot ids in the request are not its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetGroupError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Ids(#[from] IdMismatch),
}

/// Returns the group snapshot of this id in CSI's form. Its id and those of its snapshots name the node in the requested id, also after
/// its drives were moved.
pub(crate) fn get_group(
    agents: &Agents,
    key: &TopologyKey,
    id: &str,
    named: &[String],
) -> Result<csi::VolumeGroupSnapshot, GetGroupError> {
    let parsed = parse_as(IdOf::GroupSnapshot, id)?;
    let reported = agents.group_snapshot(id)?;
    check_named(agents, &parsed, named, &reported)?;
    let ReportedGroup {
        agent,
        mut group,
        members,
        ..
    } = reported;
    let snapshots = members.into_iter().map(|(snapshot, volume)| {
        let mut shown = shown(snapshot, volume.id, agent.node(), key);
        shown.snapshot_id = with_node(&shown.snapshot_id, &parsed.node);
        id.clone_into(&mut shown.group_snapshot_id);
        shown
    });
    let snapshots = snapshots.collect();
    id.clone_into(&mut group.id);
    Ok(group_of(group, snapshots))
}

/// The group snapshot was not deleted, or the result is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeleteGroupError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Ids(#[from] IdMismatch),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "the drives of group snapshot {id} were moved to node {node}, where it is {now}: it is not deleted under its former id; delete {now}"
    )]
    Moved {
        id: String,
        node: String,
        now: String,
    },
}

/// Deletes all snapshots of the group. Succeeds also if the id was never issued, if its agent has no such group, or if its node was
/// forgotten.
pub(crate) async fn delete_group(
    agents: &Agents,
    id: String,
    named: &[String],
) -> Result<(), DeleteGroupError> {
    let Ok(parsed) = parse_as(IdOf::GroupSnapshot, &id) else {
        return Ok(());
    };
    match agents.group_snapshot(&id) {
        Ok(reported) if reported.moved_from.is_some() => {
            return Err(DeleteGroupError::Moved {
                id,
                node: reported.agent.node().to_owned(),
                now: reported.group.id,
            });
        }
        Ok(reported) => check_named(agents, &parsed, named, &reported)?,
        Err(LookupError::ForgottenNodes { .. }) => return Ok(()),
        // Only the agent can tell: it may have snapshots of the group that are still being created.
        Err(
            LookupError::NotThere { .. }
            | LookupError::NotKnownYet { .. }
            | LookupError::SnapshotsNotKnown { .. },
        ) => {}
        Err(error) => return Err(error.into()),
    }
    let agent = agents.owner(IdOf::GroupSnapshot, &parsed)?;
    let instance = agent.instance();
    let mut client = agent.client_for_copies()?;
    let request = agent::DeleteGroupSnapshotRequest { id };
    let response = async move { client.delete_group_snapshot(request).await };
    if let Some(answer) = deletion(response).await? {
        agent.shows(&instance, answer.revision).await;
    }
    Ok(())
}
