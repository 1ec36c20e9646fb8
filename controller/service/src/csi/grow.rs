//! ControllerExpandVolume: calls the agent and checks its answer.

use std::sync::Arc;

use drivebay_proto::agent;
use tonic::Code;

use crate::{
    agents::Agent,
    call::{CHANGE_DEADLINE, CallError, call},
};

/// Expands the volume to at least this many bytes, and at most `limit`. Returns the expanded volume.
pub(crate) async fn grow(
    agent: &Arc<Agent>,
    id: &str,
    bytes: u64,
    limit: Option<u64>,
) -> Result<agent::Volume, CallError> {
    let instance = agent.instance();
    let mut client = agent.client()?;
    let request = agent::ExpandVolumeRequest {
        id: id.to_owned(),
        required_bytes: bytes,
        limit_bytes: limit.unwrap_or(0),
    };
    let answer = call(CHANGE_DEADLINE, async move {
        client.expand_volume(request).await
    })
    .await
    .map_err(|error| match error {
        // The resizer retries RESOURCE_EXHAUSTED, and a user cannot reduce the request; OUT_OF_RANGE is final.
        CallError::Answered {
            code: Code::ResourceExhausted,
            message,
        } => CallError::Answered {
            code: Code::OutOfRange,
            message,
        },
        other => other,
    })?;
    let nonsense = |reason: &str| CallError::Nonsense {
        reason: reason.to_owned(),
    };
    let grown = answer.volume.ok_or_else(|| nonsense("no volume in it"))?;
    let fits = grown.size_bytes >= bytes && limit.is_none_or(|limit| grown.size_bytes <= limit);
    if grown.id != id || !fits {
        return Err(nonsense(
            "not the volume or not the size that was asked for",
        ));
    }
    agent.shows(&instance, answer.revision).await;
    Ok(grown)
}
