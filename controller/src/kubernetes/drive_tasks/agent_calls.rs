//! Requests to the node's agent for a task, and the progress of its moves.

use drivebay_common::units::count;
use drivebay_objects::{
    task::{Acknowledge, DriveTask, Evacuate},
    times::parse_time,
};
use drivebay_proto::{
    VolumeId,
    agent::{
        AcknowledgeDriveRequest, CordonDriveRequest, ListMovesRequest, LocateDriveRequest, Move,
        MoveVolumesRequest, NamedFinding, agent_client::AgentClient,
    },
    words::MovePhase,
};
use drivebay_service::{
    agents::{Agent, AgentChannel, Agents},
    call::{CHANGE_DEADLINE, CallError, call},
    catalog::{Catalog, Key, exists},
    peer_log::{printable, printable_sentence},
};
use tonic::Code;

use super::{operation::Operation, plan::Target};

/// Most bytes of the name of an operator that an agent accepts.
const MAX_BY: usize = 512;

/// Reason why an operation was not carried out, or its result is unknown.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallFailed {
    /// The agent refuses it for good.
    #[error("{message}")]
    Refused { code: Code, message: String },
    /// The request is repeated: the agent is busy, or its answer was lost.
    #[error("{0}")]
    Again(CallError),
    /// Other volumes of the node move.
    #[error("volumes move on node {node} already, from drive {from}")]
    Busy { node: String, from: String },
    #[error("drive {drive} has no volume {name}")]
    NoVolume { drive: String, name: String },
    #[error("acknowledge.until is not a time as in RFC 3339")]
    Until,
}

impl From<CallError> for CallFailed {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Answered {
                code: Code::Aborted | Code::Unavailable,
                ..
            } => Self::Again(error),
            CallError::Answered { code, message } => Self::Refused {
                code,
                message: printable_sentence(&message),
            },
            CallError::NotConnected { .. } | CallError::InDoubt { .. } | CallError::Deadline(_) => {
                Self::Again(error)
            }
            CallError::Outdated { .. } | CallError::Nonsense { .. } => Self::Refused {
                code: Code::FailedPrecondition,
                message: printable_sentence(&error.to_string()),
            },
        }
    }
}

/// Answer of an agent that has carried out an operation, or has accepted moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accepted {
    pub(super) message: String,
    /// Number and bytes of the volumes that are to move; None if the operation is complete.
    pub(super) moves: Option<(usize, u64)>,
}

fn done(message: String) -> Accepted {
    Accepted {
        message: printable_sentence(&message),
        moves: None,
    }
}

/// Returns the operator of a task, as agents record it.
pub(super) fn operator(task: &DriveTask) -> String {
    let name = task.metadata.name.as_deref().unwrap_or_default();
    let task_name = format!(" (DriveTask {name})");
    let by = &task.spec.by;
    let end = by.floor_char_boundary(MAX_BY.saturating_sub(task_name.len()));
    by.get(..end).unwrap_or_default().to_owned() + &task_name
}

/// Requests an operation. `by`: the [`operator`].
pub(super) async fn request(
    agents: &Agents,
    target: &Target,
    operation: Operation<'_>,
    by: &str,
) -> Result<Accepted, CallFailed> {
    let not_connected = || CallError::NotConnected {
        node: target.node.clone(),
    };
    let agent = agents.get(&target.node).ok_or_else(not_connected)?;
    let mut client = agent.client_for_moves()?;
    let drive = target.drive.clone();
    match operation {
        Operation::Cordon(cordon) => {
            let request = CordonDriveRequest {
                drive,
                by: by.to_owned(),
                reason: cordon.reason.clone(),
                uncordon: false,
            };
            let answer = call(CHANGE_DEADLINE, client.cordon_drive(request)).await?;
            Ok(done(match answer.changed {
                true => "the drive takes no new volumes".to_owned(),
                false => "the drive was cordoned already".to_owned(),
            }))
        }
        Operation::Uncordon => {
            let request = CordonDriveRequest {
                drive,
                by: by.to_owned(),
                reason: String::new(),
                uncordon: true,
            };
            let answer = call(CHANGE_DEADLINE, client.cordon_drive(request)).await?;
            Ok(done(match answer.changed {
                true => {
                    "the drive takes new volumes, as far as an operator is concerned".to_owned()
                }
                false => "the drive was not cordoned".to_owned(),
            }))
        }
        Operation::Locate { on } => {
            let request = LocateDriveRequest { drive, on };
            let answer = call(CHANGE_DEADLINE, client.locate_drive(request)).await?;
            let state = if on { "on" } else { "off" };
            Ok(done(format!("the light is {state}, by {}", answer.by)))
        }
        Operation::Acknowledge(given) => acknowledge(&mut client, drive, by, given).await,
        Operation::Evacuate(given) => {
            evacuate(agents.catalog(), &agent, &mut client, target, by, given).await
        }
        Operation::Replace(_) => {
            let request = MoveVolumesRequest {
                drive,
                to: target.to.clone(),
                by: by.to_owned(),
                ..MoveVolumesRequest::default()
            };
            let moves = list(&mut client).await?;
            move_volumes(&mut client, target, request, &moves, &[]).await
        }
    }
}

async fn acknowledge(
    client: &mut AgentClient<AgentChannel>,
    drive: String,
    by: &str,
    given: &Acknowledge,
) -> Result<Accepted, CallFailed> {
    let until = match &given.until {
        None => 0,
        Some(until) => {
            let until = parse_time(until).ok_or(CallFailed::Until)?;
            // 0 would be without an end.
            u64::try_from(until).unwrap_or_default().max(1)
        }
    };
    let named = given.findings.iter().map(|one| NamedFinding {
        code: one.code.clone(),
        subject: one.subject.clone(),
        value: u64::try_from(one.value).unwrap_or_default(),
    });
    let request = AcknowledgeDriveRequest {
        // The task names the drive and each finding.
        confirm: drive.clone(),
        drive,
        by: by.to_owned(),
        note: given.note.clone(),
        until,
        takes_new_volumes: given.takes_new_volumes,
        named: named.collect(),
    };
    let answer = call(CHANGE_DEADLINE, client.acknowledge_drive(request)).await?;
    let verdict = &answer.verdict;
    Ok(done(match answer.nothing {
        true => format!("there is nothing to acknowledge; the verdict is {verdict}"),
        false => {
            let findings = count(answer.acknowledged.len() as u64, "finding");
            format!("{findings} acknowledged; the verdict is {verdict}")
        }
    }))
}

async fn evacuate(
    catalog: &Catalog,
    agent: &Agent,
    client: &mut AgentClient<AgentChannel>,
    target: &Target,
    by: &str,
    given: &Evacuate,
) -> Result<Accepted, CallFailed> {
    let moves = list(client).await?;
    let on_drive = volumes_on(catalog, agent, &target.drive);
    let mut only = Vec::new();
    for name in &given.volumes {
        let volume = on_drive.iter().find(|volume| volume.name == *name);
        match volume {
            Some(volume) => only.push(volume.id.clone()),
            // The request is repeated, and the volume moved before.
            None if moves
                .iter()
                .any(|one| one.name == *name && is_moved_by(one, &target.drive, by)) => {}
            None => {
                return Err(CallFailed::NoVolume {
                    drive: target.drive.clone(),
                    name: name.clone(),
                });
            }
        }
    }
    // An agent takes no name as all volumes.
    if only.is_empty() && !given.volumes.is_empty() {
        return Ok(Accepted {
            message: "the volumes have moved already".to_owned(),
            moves: Some((given.volumes.len(), 0)),
        });
    }
    let request = MoveVolumesRequest {
        drive: target.drive.clone(),
        only,
        to: target.to.clone(),
        hold: given.hold,
        abort_on_error: given.abort_on_error,
        by: by.to_owned(),
        ..MoveVolumesRequest::default()
    };
    move_volumes(client, target, request, &moves, &given.volumes).await
}

/// `moves`: those of the node's agent: objects may have been deleted, and people move volumes without them. `only`: names of the volumes that are to move; empty: all of the drive.
async fn move_volumes(
    client: &mut AgentClient<AgentChannel>,
    target: &Target,
    request: MoveVolumesRequest,
    moves: &[Move],
    only: &[String],
) -> Result<Accepted, CallFailed> {
    let active: Vec<&Move> = moves.iter().filter(|one| is_active(one)).collect();
    if let Some(other) = active.iter().find(|one| one.from != target.drive) {
        return Err(CallFailed::Busy {
            node: target.node.clone(),
            from: printable(&other.from),
        });
    }
    let by = request.by.clone();
    let answer = call(CHANGE_DEADLINE, client.move_volumes(request)).await?;
    // The answer to a repeated request leaves out what is moving already, and what this task has moved.
    let by_this_task = moves.iter().filter(|one| match is_active(one) {
        true => is_requested(only, &one.name),
        false => is_moved_by(one, &target.drive, &by),
    });
    let (mut volumes, mut bytes) = (answer.moves.len(), 0);
    for one in by_this_task {
        volumes += 1;
        bytes += one.total_bytes;
    }
    bytes += answer.moves.iter().map(|one| one.size_bytes).sum::<u64>();
    Ok(Accepted {
        message: match volumes {
            0 => "the drive has no volume that would have to move".to_owned(),
            _ => format!("the agent moves {}", count(volumes as u64, "volume")),
        },
        moves: Some((volumes, bytes)),
    })
}

/// Returns the moves of the node's agent.
pub(super) async fn list(client: &mut AgentClient<AgentChannel>) -> Result<Vec<Move>, CallFailed> {
    let answer = call(CHANGE_DEADLINE, client.list_moves(ListMovesRequest {})).await?;
    Ok(answer.moves)
}

/// `only`: names of the volumes of a task; empty: all.
pub(super) fn is_requested(only: &[String], name: &String) -> bool {
    only.is_empty() || only.contains(name)
}

/// True if the move has not ended.
pub(super) fn is_active(one: &Move) -> bool {
    one.known_phase() != Some(MovePhase::Moved)
}

/// True if the volume has moved from this drive by a request of this operator. An agent lists it until the old place is erased.
pub(super) fn is_moved_by(one: &Move, drive: &str, by: &str) -> bool {
    !is_active(one) && one.from == drive && one.by == by
}

/// A volume of a drive, by its id and CSI name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeName {
    id: String,
    pub(super) name: String,
}

/// Returns the existing volumes of a drive, as its node last reported them.
pub(super) fn volumes_on(catalog: &Catalog, agent: &Agent, drive: &str) -> Vec<VolumeName> {
    let uuids = agent.read_inventory(|inventory| inventory.volumes());
    let volumes = uuids.into_iter().filter_map(|uuid| {
        let key = Key {
            uuid,
            node: agent.node_id(),
        };
        let volume = catalog.get(&key).filter(exists)?;
        let id = VolumeId {
            uuid,
            node: agent.node().to_owned(),
        };
        (volume.drive == drive).then(|| VolumeName {
            id: id.to_string(),
            name: volume.name.clone(),
        })
    });
    volumes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_names_the_task_within_the_limit_of_agents() {
        let spec = drivebay_objects::task::DriveTaskSpec {
            by: "é".repeat(300),
            ..Default::default()
        };
        let by = operator(&DriveTask::new("evacuate-1", spec));
        assert!(by.len() <= MAX_BY && by.starts_with("éé"));
        assert!(by.ends_with("é (DriveTask evacuate-1)"), "{by}");
    }

    #[test]
    fn only_a_final_status_code_ends_the_retries() {
        let again = |error: CallError| matches!(error.into(), CallFailed::Again(_));
        let answered = |code| CallError::Answered {
            code,
            message: "no".to_owned(),
        };
        assert!(again(answered(Code::Aborted)) && again(answered(Code::Unavailable)));
        assert!(!again(answered(Code::FailedPrecondition)));
        assert!(!again(answered(Code::PermissionDenied)));
        assert!(again(CallError::Deadline(CHANGE_DEADLINE)));
        let node = "n1".to_owned();
        assert!(again(CallError::NotConnected { node }));
    }
}
