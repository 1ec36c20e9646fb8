//! Carries out tasks: watches them, claims each by a write of its status, requests its operation from the node's agent, and writes the
//! result.

use drivebay_objects::{
    drive::MANAGER,
    task::{DriveTask, DriveTaskStatus},
    times::{format_time, now},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use drivebay_proto::{agent::Volume, condition::NormalReason};
use drivebay_service::{
    agents::Agents,
    audit::Record,
    catalog::Key,
    peer_log::{printable, printable_sentence},
};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams, Preconditions},
};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    agent_calls::{Accepted, CallFailed, operator, request},
    names::Names,
    operation::{Operation, operation},
    plan::{Context, Decision, Phase, Target, is_long, needs_names, plan},
    progress::{Progress, progress},
    watched::{Watched, lock},
};
use crate::{
    kubernetes::follow::watch_all,
    metrics::drive_tasks::{DriveTaskCounts, TaskResult},
};

/// Time between two plans.
const EVERY: Duration = Duration::from_secs(2);
/// Time between the starts of two actions: 20 per second.
const PACE: Duration = Duration::from_millis(50);
/// Time for which a task whose write failed is not acted on.
const SET_ASIDE: Duration = Duration::from_mins(1);
/// Most actions at one time. One waits for an agent for at most a minute.
const MAX_ACTIONS: usize = 32;
/// Time limit of a request to the API server.
const DEADLINE: Duration = Duration::from_secs(10);

/// Options of [`follow_tasks`]: the limit of evacuations, and the counters of tasks for metrics.
#[derive(Debug, Clone)]
pub struct Options {
    /// Most nodes of the cluster with an evacuation at one time.
    pub max_evacuations: usize,
    pub counts: Arc<DriveTaskCounts>,
}

/// Follows all tasks and carries them out until `stop`.
pub async fn follow_tasks(
    client: Client,
    agents: Agents,
    options: Options,
    stop: CancellationToken,
) {
    let watched = Arc::new(Mutex::new(Watched::default()));
    let events = watched.clone();
    let watch = watch_all::<DriveTask>(&client, &agents, "DriveTasks", |event| {
        lock(&events).apply(event);
    });
    let runner = Runner {
        api: Api::all(client.clone()),
        agents: agents.clone(),
        watched,
        controller: uuid::Uuid::new_v4().to_string(),
        counts: options.counts.clone(),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = async { tokio::join!(watch, run(runner, options.max_evacuations)); } => {}
    }
}

async fn run(runner: Runner, max_evacuations: usize) {
    let mut names = Names::default();
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut actions: JoinSet<Acted> = JoinSet::new();
    let mut acting: BTreeSet<String> = BTreeSet::new();
    // Tasks whose writes failed, so that others are not held up, and until when.
    let mut set_aside: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(EVERY).await;
        while let Some(ended) = actions.try_join_next() {
            match ended {
                Ok(Acted { name, is_failed }) => {
                    acting.remove(&name);
                    if is_failed {
                        set_aside.insert(name, Instant::now() + SET_ASIDE);
                    }
                }
                // Only with a bug; the tasks are taken up again.
                Err(error) => {
                    tracing::error!(%error, "action of a drive task panicked");
                    actions.shutdown().await;
                    acting.clear();
                }
            }
        }
        set_aside.retain(|_, until| *until > Instant::now());
        let aside: BTreeSet<String> = set_aside.keys().cloned().collect();
        let decisions = runner.decisions(&mut names, max_evacuations, &aside, &acting);
        for (name, task, decision) in decisions.await {
            pace.tick().await;
            acting.insert(name.clone());
            actions.spawn(runner.clone().act(name, task, decision));
        }
    }
}

/// A carried out decision.
struct Acted {
    /// Name of the task.
    name: String,
    is_failed: bool,
}

#[derive(Clone)]
struct Runner {
    api: Api<DriveTask>,
    agents: Agents,
    watched: Arc<Mutex<Watched>>,
    /// Id of this process.
    controller: String,
    counts: Arc<DriveTaskCounts>,
}

/// A write of a status that was not confirmed.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("another controller has written the task")]
    Conflict,
    #[error("the task was deleted")]
    Gone,
    #[error("the API server did not write the task: {0}")]
    Failed(String),
}

impl Runner {
    /// Returns the next decisions with the names of their tasks, at most [`MAX_ACTIONS`] together with those that are acted on already.
    async fn decisions(
        &self,
        names: &mut Names,
        max_evacuations: usize,
        set_aside: &BTreeSet<String>,
        acting: &BTreeSet<String>,
    ) -> Vec<(String, DriveTask, Decision)> {
        let needs_names = {
            let watched = lock(&self.watched);
            if !watched.is_complete {
                return Vec::new();
            }
            let phases = watched.tasks.values().map(Phase::of);
            let unfinished = phases.filter(|phase| !phase.is_finished());
            self.counts.set_unfinished(unfinished.map(Phase::label));
            watched.tasks.values().any(needs_names)
        };
        let mut moving_nodes = BTreeSet::new();
        if needs_names {
            names.refresh(&self.agents).await;
            moving_nodes = self.moving_nodes();
        }
        let watched = lock(&self.watched);
        let context = Context {
            controller: &self.controller,
            now: now(),
            names,
            is_settled: !self.agents.is_young()
                && self.agents.expected().complete()
                && names.are_all_connected(),
            moving_nodes: &moving_nodes,
            max_evacuations,
            set_aside,
            deleted: &watched.deleted,
        };
        let decisions = plan(watched.tasks.values(), &context).into_iter();
        let named = decisions.map(|(task, decision)| {
            let name = task.metadata.name.as_deref().unwrap_or_default();
            (name, task, decision)
        });
        named
            .filter(|(name, ..)| !acting.contains(*name))
            .take(MAX_ACTIONS.saturating_sub(acting.len()))
            .map(|(name, task, decision)| (name.to_owned(), task.clone(), decision))
            .collect()
    }

    /// Returns the nodes with volumes that are moving, whoever requested it.
    fn moving_nodes(&self) -> BTreeSet<String> {
        let moving = NormalReason::VolumeMoving.as_str();
        let is_moving = |volume: &Volume| volume.conditions.iter().any(|one| one.reason == moving);
        let agents = self.agents.all().into_iter();
        let moves = agents.filter(|agent| {
            let uuids = agent.read_inventory(|inventory| inventory.with_moves());
            uuids.into_iter().any(|uuid| {
                let node = agent.node_id();
                let volume = self.agents.catalog().get(&Key { uuid, node });
                volume.as_ref().is_some_and(is_moving)
            })
        });
        moves.map(|agent| agent.node().to_owned()).collect()
    }

    /// Carries out a decision on the version of the task for which it was made.
    async fn act(self, name: String, task: DriveTask, decision: Decision) -> Acted {
        let is_failed = match self.carry_out(&task, decision).await {
            // The watch shows what another one wrote.
            Ok(()) | Err(WriteError::Conflict) => false,
            Err(WriteError::Gone) => {
                lock(&self.watched).remove_version(&task);
                false
            }
            Err(error @ WriteError::Failed(_)) => {
                if self.agents.peer_log().allows("API server", "drive tasks") {
                    tracing::warn!(name, %error, "cannot write drive task; will retry");
                }
                true
            }
        };
        Acted { name, is_failed }
    }

    async fn carry_out(&self, task: &DriveTask, decision: Decision) -> Result<(), WriteError> {
        if decision == Decision::Delete {
            return self.delete(task).await;
        }
        let mut status = task.status.clone().unwrap_or_default();
        let Some(operation) = operation(&task.spec) else {
            let message = "none or several operations are set";
            return self.end(task, status, false, "Invalid", message).await;
        };
        status.operation = operation.as_str().to_owned();
        match decision {
            Decision::Leave | Decision::Delete => Ok(()),
            Decision::Fail { reason, message } => {
                self.end(task, status, false, reason, &message).await
            }
            Decision::Wait { reason, message } => {
                self.write(task, waiting(status, reason, &message)).await?;
                Ok(())
            }
            Decision::Start(target) => self.start(task, status, &target, operation).await,
            Decision::Watch => self.watch(task, status, operation).await,
        }
    }

    /// Claims the task, requests its operation, and writes the result.
    async fn start(
        &self,
        task: &DriveTask,
        mut status: DriveTaskStatus,
        target: &Target,
        operation: Operation<'_>,
    ) -> Result<(), WriteError> {
        status.phase = "Running".to_owned();
        status.controller.clone_from(&self.controller);
        status.node.clone_from(&target.node);
        status.identity.clone_from(&target.drive);
        let is_first = status.started_at.is_empty();
        if is_first {
            status.started_at = format_time(now());
            "Requested".clone_into(&mut status.reason);
            status.message.clear();
        }
        // Durable before the request: if this process ends, others know that it may have been sent.
        let task = self.write(task, status).await?;
        let status = task.status.clone().unwrap_or_default();
        let result = request(&self.agents, target, operation, &operator(&task)).await;
        self.record(&task, operation, &result);
        match result {
            Ok(Accepted {
                message,
                moves: None,
            }) => self.end(&task, status, true, "Done", &message).await,
            Ok(Accepted {
                message,
                moves: Some((volumes, bytes)),
            }) => {
                let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
                let accepted = DriveTaskStatus {
                    accepted: true,
                    reason: "Moving".to_owned(),
                    message: printable_sentence(&message),
                    volumes: signed(volumes as u64),
                    bytes: signed(bytes),
                    ..status
                };
                self.write(&task, accepted).await?;
                Ok(())
            }
            Err(CallFailed::Again(error)) => {
                let again = DriveTaskStatus {
                    reason: "Retrying".to_owned(),
                    message: printable_sentence(&error.to_string()),
                    ..status
                };
                self.write(&task, again).await?;
                Ok(())
            }
            Err(error @ CallFailed::Busy { .. }) => {
                let mut status = status;
                if is_first {
                    // Nothing was requested.
                    status.phase = "Pending".to_owned();
                    status.started_at.clear();
                }
                let waiting = waiting(status, "WaitingForNode", &error.to_string());
                self.write(&task, waiting).await?;
                Ok(())
            }
            Err(error) => {
                let reason = match &error {
                    CallFailed::Refused {
                        code: tonic::Code::PermissionDenied,
                        ..
                    } => "DeniedByNode",
                    CallFailed::NoVolume { .. } => "VolumeNotFound",
                    CallFailed::Until => "Invalid",
                    _ => "Refused",
                };
                self.end(&task, status, false, reason, &error.to_string())
                    .await
            }
        }
    }

    /// Polls an evacuation and writes its progress or its end.
    async fn watch(
        &self,
        task: &DriveTask,
        status: DriveTaskStatus,
        operation: Operation<'_>,
    ) -> Result<(), WriteError> {
        let only: &[String] = match operation {
            Operation::Evacuate(it) => &it.volumes,
            _ => &[],
        };
        let status = DriveTaskStatus {
            controller: self.controller.clone(),
            ..status
        };
        match progress(&self.agents, &status, only, &operator(task)).await {
            Ok(Progress::Moving(status)) => {
                self.write(task, *status).await?;
            }
            Ok(Progress::Moved) => {
                let (volumes, bytes) = (status.volumes, status.bytes);
                let status = DriveTaskStatus {
                    volumes_moved: volumes,
                    bytes_copied: bytes,
                    progress: String::new(),
                    waiting: Vec::new(),
                    ..status
                };
                let message = match volumes {
                    0 => "the drive had no volume that would have to move",
                    _ => {
                        "all volumes have moved; drive retire on the node says when the drive may be pulled"
                    }
                };
                self.end(task, status, true, "Moved", message).await?;
            }
            Ok(Progress::NotSeen) if status.reason == NOT_SEEN && is_long(&status, now()) => {
                let message = "no move is left, and the drive was not seen for an hour, so that it may still have volumes";
                self.end(task, status, false, NOT_SEEN, message).await?;
            }
            Ok(Progress::NotSeen) => {
                let not_seen = DriveTaskStatus {
                    reason: NOT_SEEN.to_owned(),
                    message: "no move is left, and the drive is not seen, so that it may still have volumes; waiting for it"
                        .to_owned(),
                    waiting: Vec::new(),
                    ..status
                };
                self.write(task, not_seen).await?;
            }
            // The inventory follows the moves within seconds.
            Ok(Progress::Left(_)) if status.reason != ENDED => {
                let ended = DriveTaskStatus {
                    reason: ENDED.to_owned(),
                    message: "no move is left; looking what is still on the drive".to_owned(),
                    waiting: Vec::new(),
                    ..status
                };
                self.write(task, ended).await?;
            }
            Ok(Progress::Left(remaining)) => {
                let named: Vec<String> = remaining.iter().take(8).map(|it| printable(it)).collect();
                let message = format!(
                    "no move is left, and {} of {} volumes are still on the drive, such as {}: their moves were cancelled, or they are new",
                    remaining.len(),
                    status.volumes,
                    named.join(", ")
                );
                self.end(task, status, false, "Incomplete", &message)
                    .await?;
            }
            Err(_) if self.agents.is_given_up(&status.node) => {
                let message = "the node was forgotten; nothing more is known of the moves";
                self.end(task, status, false, "NodeForgotten", message)
                    .await?;
            }
            Err(error) => {
                let lost = DriveTaskStatus {
                    reason: "AgentDisconnected".to_owned(),
                    message: printable_sentence(&format!(
                        "the moves go on without the controller; they cannot be polled: {error}"
                    )),
                    ..status
                };
                self.write(task, lost).await?;
            }
        }
        Ok(())
    }

    /// Writes the end of a task.
    async fn end(
        &self,
        task: &DriveTask,
        status: DriveTaskStatus,
        is_success: bool,
        reason: &str,
        message: &str,
    ) -> Result<(), WriteError> {
        let (phase, result) = match is_success {
            true => ("Succeeded", TaskResult::Succeeded),
            false => ("Failed", TaskResult::Failed),
        };
        let ended = DriveTaskStatus {
            phase: phase.to_owned(),
            reason: reason.to_owned(),
            message: printable_sentence(message),
            finished_at: format_time(now()),
            ..status
        };
        let (operation, node, drive) = (&ended.operation, &ended.node, &task.spec.drive);
        let name = task.metadata.name.as_deref().unwrap_or_default();
        let by = &task.spec.by;
        let (operation, node, drive) = (operation.clone(), node.clone(), printable(drive));
        self.write(task, ended).await?;
        self.counts.count(result);
        tracing::info!(
            name,
            operation,
            node,
            drive,
            by = printable(by),
            phase,
            reason,
            "drive task finished"
        );
        Ok(())
    }

    /// Writes a status if the task is still as watched; returns the written task.
    async fn write(
        &self,
        task: &DriveTask,
        status: DriveTaskStatus,
    ) -> Result<DriveTask, WriteError> {
        let name = task.metadata.name.as_deref().unwrap_or_default();
        let before = task.status.as_ref();
        let since =
            before.filter(|before| before.reason == status.reason && !before.since.is_empty());
        let since = since.map(|before| before.since.clone());
        let written = DriveTask {
            status: Some(DriveTaskStatus {
                since: since.unwrap_or_else(|| format_time(now())),
                handled_at: format_time(now()),
                ..status
            }),
            ..task.clone()
        };
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let call = self.api.replace_status(name, &params, &written);
        let written = within(call).await?;
        lock(&self.watched).put(written.clone());
        Ok(written)
    }

    async fn delete(&self, task: &DriveTask) -> Result<(), WriteError> {
        let name = task.metadata.name.as_deref().unwrap_or_default();
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: task.metadata.uid.clone(),
            resource_version: None,
        });
        within(self.api.delete(name, &params)).await?;
        Ok(())
    }

    fn record(
        &self,
        task: &DriveTask,
        operation: Operation<'_>,
        result: &Result<Accepted, CallFailed>,
    ) {
        if let Some(audit) = self.agents.audit() {
            let refused = matches!(
                result,
                Err(CallFailed::Refused {
                    code: tonic::Code::PermissionDenied,
                    ..
                })
            );
            let result = match result {
                Ok(accepted) => accepted.message.clone(),
                Err(error) => error.to_string(),
            };
            let name = task.metadata.name.as_deref().unwrap_or_default();
            let on = format!("{} (DriveTask {name} by {})", task.spec.drive, task.spec.by);
            audit.record(|| Record::drive_task(operation.as_str(), &on, !refused, &result));
        }
    }
}

/// Reason of a running evacuation without moves, until the inventory has followed.
const ENDED: &str = "MovesEnded";
/// Reason of an evacuation without moves whose drive is not seen.
const NOT_SEEN: &str = "DriveNotSeen";

/// Returns the status of a task that waits: still Running if its operation may have been requested.
fn waiting(status: DriveTaskStatus, reason: &str, message: &str) -> DriveTaskStatus {
    let phase = match status.phase.as_str() {
        "Running" => "Running",
        _ => "Pending",
    };
    DriveTaskStatus {
        phase: phase.to_owned(),
        reason: reason.to_owned(),
        message: printable_sentence(message),
        ..status
    }
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, WriteError> {
    match timeout(DEADLINE, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(WriteError::Gone),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(WriteError::Conflict),
        Ok(Err(error)) => Err(WriteError::Failed(printable(&error.to_string()))),
        Err(_) => Err(WriteError::Failed(format!(
            "no answer within {} s",
            DEADLINE.as_secs()
        ))),
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
