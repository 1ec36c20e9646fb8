//! ControllerPublish and ControllerUnpublish, for a CO that requires attaching. A local volume cannot be moved, so
//! attaching only checks that the node is the right one.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use drivebay_proto::csi::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
};

use crate::agents::{Agents, LookupError};
use drivebay_csi::validate::{self, InvalidRequest};

/// Volumes attached by this process, which the attacher compares with its own list. Lost when the process ends; the
/// attacher then attaches again, which changes nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attached(Arc<Mutex<BTreeSet<String>>>);

impl Attached {
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(id)
    }

    fn set(&self, id: &str, attached: bool) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if attached {
            all.insert(id.to_owned());
        } else {
            all.remove(id);
        }
    }
}

/// The volume cannot be attached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(
        "no agent of node {node} is known; see its id in the CSINode object, and that the agent runs there"
    )]
    NoSuchNode { node: String },
    #[error("volume {id} is on node {on}; it cannot be used on node {node}")]
    OtherNode {
        id: String,
        on: String,
        node: String,
    },
    #[error("volume {id} is a {is} volume, not a {wanted} volume")]
    OtherMode {
        id: String,
        is: String,
        wanted: &'static str,
    },
    #[error("readonly is not supported when attaching; mount it read-only instead")]
    ReadOnly,
}

/// Attaches a volume: checks the request against it, and records it as attached.
pub(crate) fn publish(
    agents: &Agents,
    attached: &Attached,
    request: &ControllerPublishVolumeRequest,
) -> Result<ControllerPublishVolumeResponse, AttachError> {
    let id = validate::required("volume_id", &request.volume_id)?;
    let node = validate::required("node_id", &request.node_id)?;
    let capability = request
        .volume_capability
        .as_ref()
        .ok_or(InvalidRequest::Missing {
            field: "volume_capability",
        })?;
    let capability = validate::capability(capability)?;
    validate::map_size("volume_context", &request.volume_context)?;
    if request.readonly {
        return Err(AttachError::ReadOnly);
    }
    let reported = agents.volume_of_csi(id)?;
    if agents.get(node).is_none() {
        let node = node.chars().take(128).collect();
        return Err(AttachError::NoSuchNode { node });
    }
    if reported.agent.node() != node {
        return Err(AttachError::OtherNode {
            id: id.to_owned(),
            on: reported.agent.node().to_owned(),
            node: node.to_owned(),
        });
    }
    if capability.access.as_str() != reported.volume.mode {
        return Err(AttachError::OtherMode {
            id: id.to_owned(),
            is: reported.volume.mode,
            wanted: capability.access.as_str(),
        });
    }
    attached.set(id, true);
    Ok(ControllerPublishVolumeResponse::default())
}

/// Detaches a volume. Succeeds if it is not attached or does not exist. Does not check whether it is mounted; DeleteVolume does.
pub(crate) fn unpublish(
    agents: &Agents,
    attached: &Attached,
    request: &ControllerUnpublishVolumeRequest,
) -> Result<ControllerUnpublishVolumeResponse, AttachError> {
    let id = validate::required("volume_id", &request.volume_id)?;
    let node = request.node_id.as_str();
    let elsewhere = match agents.volume_of_csi(id) {
        Ok(reported) => reported.agent.node() != node,
        Err(_) => false,
    };
    // If the volume is on another node, it was never attached to this one.
    if node.is_empty() || !elsewhere {
        attached.set(id, false);
    }
    Ok(ControllerUnpublishVolumeResponse {})
}
