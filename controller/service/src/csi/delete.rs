//! DeleteVolume. Returns OK only if the volume's own agent has confirmed it, or if the node was forgotten.

use drivebay_proto::agent;

use crate::{
    agents::{Agents, IdOf, LookupError, parse},
    call::{CallError, deletion},
    notes::NotesError,
};

/// The volume was not deleted, or the outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeleteError {
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "the drive of volume {id} was moved to node {node}, where it is {now}: it is not deleted under its former id. If it goes on there, set this PersistentVolume's reclaim policy to Retain; to delete the data, delete {now}"
    )]
    Moved {
        id: String,
        node: String,
        now: String,
    },
    #[error(
        "the drive of volume {id} may be on node {node}, which had the volume last and is starting or disconnected; see that its agent runs, then call again, or give the node up with `node forget {node}`"
    )]
    MayBeElsewhere { id: String, node: String },
    #[error(transparent)]
    Notes(#[from] NotesError),
}

/// Deletes the volume. Succeeds also if the id was never issued, or if its agent has no such volume and no other node may have it. A volume
/// that its node remembers on a missing drive is not deleted while another node reads it, or may: its data may be in use there.
pub(crate) async fn delete(agents: &Agents, id: String) -> Result<(), DeleteError> {
    let Ok(parsed) = parse(&id) else {
        return Ok(());
    };
    let owner = agents.owner(IdOf::Volume, &parsed);
    if !agents.is_on_its_node(&owner, &parsed) {
        if let Some((at, volume)) = agents.elsewhere(&parsed) {
            return Err(DeleteError::Moved {
                id,
                node: at.node().to_owned(),
                now: volume.id,
            });
        }
        if let Some(node) = agents.may_be_on(&parsed) {
            return Err(DeleteError::MayBeElsewhere { id, node });
        }
    }
    let agent = match owner {
        Err(LookupError::ForgottenNodes { .. }) => {
            // If the node returns, it is sent the delete and quarantines the volume.
            agents.notes().note_delete(&id).await?;
            return Ok(());
        }
        result => result?,
    };
    let instance = agent.instance();
    let mut client = agent.client()?;
    let request = agent::DeleteVolumeRequest {
        id,
        quarantine: false,
    };
    let response = async move { client.delete_volume(request).await };
    if let Some(answer) = deletion(response).await? {
        agent.shows(&instance, answer.revision).await;
    }
    Ok(())
}
