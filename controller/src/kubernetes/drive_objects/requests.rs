//! Requests to the API server that write objects, and the objects whose writes failed.

use drivebay_objects::{
    drive::{Drive, DriveStatus, MANAGER, NoSpec},
    times::format_time,
};
use std::{
    collections::BTreeMap,
    future::Future,
    time::{Duration, Instant},
};

use drivebay_service::peer_log::printable;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions},
};

use super::{
    queue::{Operation, PlannedWrite, Version},
    view::{AGENT_CONNECTED, DISCONNECTED},
};
use crate::metrics::drive_objects::WriteResult;

/// Time limit of a request.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time for which an object is not written again after the API server has answered a write with an error.
pub(super) const SET_ASIDE: Duration = Duration::from_secs(600);

/// Reason why a request did not write its object.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("another client has written the object")]
    Conflict,
    #[error("the API server refuses the object: {0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Timeout,
}

impl WriteError {
    /// `replaces`: the request names the version of an existing object, so that its absence is a change by another client.
    fn of(error: &kube::Error, replaces: bool) -> Self {
        let text = printable(&error.to_string());
        match error {
            kube::Error::Api(status) => match status.code {
                409 => Self::Conflict,
                404 if replaces => Self::Conflict,
                400 | 422 => Self::Refused(text),
                _ => Self::Failed(text),
            },
            kube::Error::HyperError(_) | kube::Error::Service(_) => Self::Unreachable(text),
            _ => Self::Failed(text),
        }
    }
}

async fn within<T>(
    call: impl Future<Output = kube::Result<T>>,
    replaces: bool,
) -> Result<T, WriteError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|error| WriteError::of(&error, replaces)),
        Err(_) => Err(WriteError::Timeout),
    }
}

/// Result of a write: the label of its count, and the object as the API server has it now; None after a deletion.
#[derive(Debug)]
pub(super) struct WrittenObject {
    pub(super) result: WriteResult,
    pub(super) object: Option<Drive>,
}

/// Sends a write: one request, or two for [`Operation::MarkDisconnected`], which reads the object first.
///
/// # Errors
/// The object is not as planned, or the API server did not confirm the write.
pub(super) async fn send(
    api: &Api<Drive>,
    write: &PlannedWrite,
    now: i64,
) -> Result<WrittenObject, WriteError> {
    let name = &write.name;
    match &write.operation {
        Operation::Apply { status, replaces } => {
            let status = (**status).clone();
            let object = apply(api, name, status, replaces.as_ref()).await?;
            Ok(WrittenObject {
                result: match replaces {
                    Some(_) => WriteResult::Updated,
                    None => WriteResult::Created,
                },
                object: Some(object),
            })
        }
        Operation::MarkDisconnected(version) => {
            let read = within(api.get(name), true).await?;
            let is_same = read.metadata.resource_version.as_deref() == Some(&version.version);
            let status = read.status.filter(|_| is_same);
            let status = disconnected(status.ok_or(WriteError::Conflict)?, now);
            let object = apply(api, name, status, Some(version)).await?;
            Ok(WrittenObject {
                result: WriteResult::Updated,
                object: Some(object),
            })
        }
        Operation::Delete(version) => {
            let params = DeleteParams::default().preconditions(Preconditions {
                uid: Some(version.uid.to_string()),
                resource_version: Some(version.version.to_string()),
            });
            within(api.delete(name, &params), true).await?;
            Ok(WrittenObject {
                result: WriteResult::Deleted,
                object: None,
            })
        }
    }
}

async fn apply(
    api: &Api<Drive>,
    name: &str,
    status: DriveStatus,
    replaces: Option<&Version>,
) -> Result<Drive, WriteError> {
    let drive = Drive {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: replaces.map(|version| version.uid.to_string()),
            resource_version: replaces.map(|version| version.version.to_string()),
            ..ObjectMeta::default()
        },
        spec: NoSpec {},
        status: Some(status),
    };
    let params = PatchParams::apply(MANAGER).force();
    let patch = Patch::Apply(&drive);
    within(api.patch(name, &params, &patch), replaces.is_some()).await
}

/// Returns the status with AgentConnected=False. The rest stays as last reported.
fn disconnected(mut status: DriveStatus, now: i64) -> DriveStatus {
    let node = &status.node;
    let message = format!(
        "the agent of node {node} is not connected; the rest is as it last reported. Deleting the object changes nothing: it returns with the agent"
    );
    for condition in &mut status.conditions {
        if condition.type_ == AGENT_CONNECTED && condition.status != "False" {
            condition.status = "False".to_owned();
            condition.reason = DISCONNECTED.to_owned();
            condition.message.clone_from(&message);
            condition.last_transition_time = format_time(now);
        }
    }
    status.updated = format_time(now);
    status
}

/// Objects whose last write failed. Plans leave them out, so that they do not hold up other objects.
///
/// At 20 writes a second, no more than 12,000 names are kept.
#[derive(Debug, Default)]
pub(super) struct FailedWrites(BTreeMap<String, FailedWrite>);

#[derive(Debug)]
struct FailedWrite {
    at: Instant,
    /// False: the API server may have been unreachable for every object, so that a success of another one ends the wait.
    was_answered: bool,
}

impl FailedWrites {
    pub(super) fn record(
        &mut self,
        name: &str,
        result: &Result<WrittenObject, WriteError>,
        now: Instant,
    ) {
        let was_answered = match result {
            Ok(_) => {
                self.0.retain(|_, failed| failed.was_answered);
                return;
            }
            Err(WriteError::Conflict) => return,
            Err(WriteError::Refused(_) | WriteError::Failed(_)) => true,
            Err(WriteError::Unreachable(_) | WriteError::Timeout) => false,
        };
        let failed = FailedWrite {
            at: now,
            was_answered,
        };
        self.0.insert(name.to_owned(), failed);
    }

    /// True if the object is not to be written yet: for [`SET_ASIDE`] after its failed write.
    pub(super) fn is_set_aside(&self, name: &str, now: Instant) -> bool {
        let failed = self.0.get(name);
        failed.is_some_and(|failed| failed.is_recent(now))
    }

    pub(super) fn remove_expired(&mut self, now: Instant) {
        self.0.retain(|_, failed| failed.is_recent(now));
    }
}

impl FailedWrite {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) < SET_ASIDE
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
