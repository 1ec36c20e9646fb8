//! Writes the objects of drives: plans every few seconds, and carries that out at a bounded rate.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drivebay_proto::{VolumeId, agent::Drive as Reported};
use drivebay_service::{
    agents::{Agent, Agents},
    catalog::{Key, exists},
    inventory::Inventory,
    peer_log::printable,
};
use drivebay_view::unix_seconds;
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions},
    runtime::watcher::Event,
};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{
    Shown,
    known::Objects,
    object::{Drive, DriveStatus, MANAGER, NoSpec, Observed, moment},
    plan::{Act, Action, NodeView, Places, Plan, Standing, Version, Written, places_of},
    view::{AGENT_CONNECTED, Claim, DISCONNECTED, Volumes},
};
use crate::{
    kubernetes::follow::watch_all,
    metrics::drive_objects::{DriveObjectWrites, Outcome},
};

/// Least time between two plans.
const EVERY: Duration = Duration::from_secs(5);
/// Time between two requests that write: 20 per second.
const PACE: Duration = Duration::from_millis(50);
/// Longest time for which a plan is carried out before the next one is made.
const CARRY_OUT: Duration = Duration::from_secs(10);
/// A plan takes at most one part in so many of a processor's time.
const SHARE: u32 = 20;
/// Time limit of a request.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait after the API server did not do what it was asked.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Seconds after which the objects of an unchanged node are compared again: claims change without a word from the node.
const SETTLED: i64 = 60;
/// Seconds for which an object is not written again after the API server has refused its contents.
const REFUSED: i64 = 600;
/// Largest number of entries in `refused`.
const MAX_REFUSED: usize = 1000;

/// How the objects are written.
#[derive(Debug, Clone)]
pub struct Options {
    pub shown: Shown,
    pub writes: Arc<DriveObjectWrites>,
}

/// Follows all objects and writes those of the connected agents' drives, until `stop`.
pub async fn follow_drives(
    client: Client,
    agents: Agents,
    options: Options,
    stop: CancellationToken,
) {
    let objects = Arc::new(Mutex::new(Objects::default()));
    let watched = objects.clone();
    let watch = watch_all::<Drive>(&client, &agents, "Drives", |event| {
        let mut objects = lock(&watched);
        match event {
            Event::Init => objects.begin_list(),
            Event::InitApply(drive) => objects.put_listed(drive),
            Event::InitDone => objects.end_list(),
            Event::Apply(drive) => {
                objects.put(drive);
            }
            Event::Delete(drive) => {
                objects.remove(drive.metadata.name.as_deref().unwrap_or_default());
            }
        }
    });
    let mut writer = Writer {
        api: Api::all(client.clone()),
        agents: agents.clone(),
        objects,
        options,
        seed: uuid::Uuid::new_v4().as_u64_pair().0,
        began: now(),
        nodes: BTreeMap::new(),
        absences: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = async { tokio::join!(watch, writer.run()); } => {}
    }
}

fn lock(objects: &Mutex<Objects>) -> MutexGuard<'_, Objects> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> i64 {
    i64::try_from(unix_seconds()).unwrap_or(i64::MAX)
}

/// What is kept of a connected node between plans.
#[derive(Debug)]
struct NodeMemory {
    observed: Observed,
    places: Vec<(String, Claim)>,
    written: Written,
    /// When its objects are compared again, if nothing changes before; seconds since 1970.
    due: i64,
}

/// A request did not do what it was for.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("another controller has written the object")]
    Conflict,
    #[error("the API server refuses the object: {0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
    #[error("no answer within {} s", DEADLINE.as_secs())]
    Timeout,
}

impl WriteError {
    /// `replaced`: the object is known to exist, so that its absence is a change by another client.
    fn of(error: &kube::Error, replaced: bool) -> Self {
        let text = printable(&error.to_string());
        match error {
            kube::Error::Api(status) => match status.code {
                409 => Self::Conflict,
                404 if replaced => Self::Conflict,
                400 | 422 => Self::Refused(text),
                _ => Self::Failed(text),
            },
            _ => Self::Failed(text),
        }
    }
}

async fn within<T>(
    call: impl Future<Output = kube::Result<T>>,
    replaced: bool,
) -> Result<T, WriteError> {
    match tokio::time::timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|error| WriteError::of(&error, replaced)),
        Err(_) => Err(WriteError::Timeout),
    }
}

struct Writer {
    api: Api<Drive>,
    agents: Agents,
    objects: Arc<Mutex<Objects>>,
    options: Options,
    // Orders writes differently in each replica.
    seed: u64,
    // Seconds since 1970.
    began: i64,
    nodes: BTreeMap<Arc<str>, NodeMemory>,
    absences: BTreeMap<String, i64>,
    // Until when, seconds since 1970.
    refused: BTreeMap<String, i64>,
}

impl Writer {
    async fn run(&mut self) {
        let mut backoff = EVERY;
        let mut wait = EVERY;
        loop {
            tokio::time::sleep(wait).await;
            wait = EVERY;
            // Whose claims the volumes are is not known before, nor which objects there are.
            if !self.agents.expected().complete() || !lock(&self.objects).is_complete() {
                continue;
            }
            let began = Instant::now();
            let actions = self.plan().await;
            let took = began.elapsed();
            let until = Instant::now() + CARRY_OUT.max(took * 4);
            match self.carry_out(actions, until).await {
                Ok(is_done) => {
                    backoff = EVERY;
                    let rest = (took * (SHARE - 1)).max(EVERY);
                    // What is left is planned again, since it may have changed.
                    wait = if is_done { rest } else { Duration::ZERO };
                }
                Err(error) => {
                    if self.agents.peer_log().allows("API server", "drive objects") {
                        tracing::warn!(%error, "cannot write Drive objects; will retry");
                    }
                    wait = backoff;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    fn standing(&self, agent: &Agent, now: i64) -> Standing {
        if self.agents.is_given_up(agent.node()) {
            return Standing::Forgotten;
        }
        agent.look(|inventory| {
            if inventory.complete() {
                return Standing::Live;
            }
            let away = inventory.away_since().map(|since| since.elapsed());
            let lost = away.filter(|away| *away >= self.agents.away_grace());
            let ago = lost.map(|away| i64::try_from(away.as_secs()).unwrap_or(i64::MAX));
            Standing::Silent {
                lost: ago.map(|ago| now.saturating_sub(ago)),
            }
        })
    }

    /// Returns the standing of a node that no agent of this replica is of.
    fn unknown(&self, node: &str, now: i64) -> Standing {
        if self.agents.is_given_up(node) {
            return Standing::Forgotten;
        }
        let grace = self.agents.away_grace().as_secs();
        let grace = i64::try_from(grace).unwrap_or(i64::MAX);
        let is_late = now.saturating_sub(self.began) >= grace;
        Standing::Silent {
            lost: is_late.then_some(self.began),
        }
    }

    async fn plan(&mut self) -> Vec<Action> {
        let now = now();
        let mut absences = std::mem::take(&mut self.absences);
        let agents = self.agents.all();
        let mut standings: BTreeMap<Arc<str>, Standing> = BTreeMap::new();
        let mut places = Places::default();
        let mut live = Vec::new();
        for agent in agents {
            let node: Arc<str> = agent.node().into();
            let standing = self.standing(&agent, now);
            standings.insert(node.clone(), standing);
            if standing == Standing::Live {
                self.place(&agent, &node);
                if let Some(memory) = self.nodes.get(&node) {
                    places.add(&node, &memory.places);
                }
                live.push((agent, node));
            }
            tokio::task::yield_now().await;
        }
        self.nodes
            .retain(|node, _| standings.get(node) == Some(&Standing::Live));
        let shared = places.shared();
        let touched = lock(&self.objects).take_touched();
        let of_node = |node: &str| {
            let known = standings.get(node).copied();
            known.unwrap_or_else(|| self.unknown(node, now))
        };
        let mut plan = Plan {
            shown: self.options.shown,
            now,
            standing: &of_node,
            actions: Vec::new(),
        };
        let mut written = Vec::new();
        for (agent, node) in &live {
            let is_touched = touched.contains(&**node) || shared.contains(&**node);
            let is_due = self.nodes.get(node).is_some_and(|memory| {
                is_touched || !memory.written.is_settled || memory.due <= now
            });
            if !is_due {
                continue;
            }
            let Some((observed, drives, volumes)) = self.view(agent) else {
                continue;
            };
            let view = NodeView {
                node,
                observed,
                drives: &drives,
                volumes,
            };
            written.push((
                node.clone(),
                plan.write(view, &places, &lock(&self.objects)),
            ));
            tokio::task::yield_now().await;
        }
        let nodes = &self.nodes;
        let fresh: BTreeMap<&str, &Written> = written
            .iter()
            .map(|(node, written)| (&**node, written))
            .collect();
        let is_unwanted = |name: &str| {
            let mut of_nodes = nodes.iter().map(|(node, memory)| {
                let fresh = fresh.get(&**node).copied();
                fresh.unwrap_or(&memory.written)
            });
            self.options.shown == Shown::Findings
                && of_nodes.any(|written| written.unwanted.contains(name))
        };
        plan.remove(&places, &is_unwanted, &lock(&self.objects), &mut absences);
        let refused = &self.refused;
        plan.actions
            .retain(|action| refused.get(&action.name).is_none_or(|until| *until <= now));
        let actions = plan.ordered(self.seed);
        drop(fresh);
        self.absences = absences;
        for (node, written) in written {
            if let Some(memory) = self.nodes.get_mut(&node) {
                memory.written = written;
                memory.due = now.saturating_add(SETTLED);
            }
        }
        actions
    }

    /// Keeps which drives the node reports, if that is not of this revision already.
    fn place(&mut self, agent: &Agent, node: &Arc<str>) {
        let known = self.nodes.get(node).map(|memory| &memory.observed);
        let read = agent.look(|inventory| {
            let observed = observed(inventory);
            if known == Some(&observed) {
                return None;
            }
            let drives: Vec<Reported> = inventory.drives().collect();
            Some((observed, drives))
        });
        let Some((observed, drives)) = read else {
            return;
        };
        self.nodes.insert(
            node.clone(),
            NodeMemory {
                observed,
                places: places_of(node, &drives),
                written: Written::default(),
                due: 0,
            },
        );
    }

    /// Reads a node's inventory; None if its agent is not connected any more.
    fn view(&self, agent: &Agent) -> Option<(Observed, Vec<Reported>, BTreeMap<String, Volumes>)> {
        let (observed, drives, uuids) = agent.look(|inventory| {
            inventory.complete().then(|| {
                let drives: Vec<Reported> = inventory.drives().collect();
                (observed(inventory), drives, inventory.volumes())
            })
        })?;
        let mut volumes: BTreeMap<String, Volumes> = BTreeMap::new();
        for uuid in uuids {
            let key = Key {
                uuid,
                node: agent.node_id(),
            };
            let Some(volume) = self.agents.catalog().get(&key).filter(exists) else {
                continue;
            };
            let id = VolumeId {
                uuid,
                node: agent.node().to_owned(),
            };
            let expected = self.agents.expected();
            let claim = expected.volume(&id).and_then(|pv| pv.claim.as_ref());
            let claim = claim.map_or("", |claim| &*claim.name);
            let on_drive = volumes.entry(volume.drive.clone()).or_default();
            on_drive.add(&volume, claim);
        }
        Some((observed, drives, volumes))
    }

    /// Carries out actions in their order, until `until`. Returns true if none is left.
    ///
    /// # Errors
    /// The API server did not answer, or not as it should: what is left is not tried.
    async fn carry_out(
        &mut self,
        actions: Vec<Action>,
        until: Instant,
    ) -> Result<bool, WriteError> {
        let mut pace = interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for action in actions {
            if !self.is_current(&action) {
                continue;
            }
            pace.tick().await;
            if Instant::now() >= until {
                return Ok(false);
            }
            let writes = &self.options.writes;
            match self.perform(&action).await {
                Ok(outcome) => writes.count(outcome),
                // It is compared again when it is watched.
                Err(WriteError::Conflict) => writes.count(Outcome::Conflict),
                Err(error @ WriteError::Refused(_)) => {
                    writes.count(Outcome::Failed);
                    let name = &action.name;
                    if self.agents.peer_log().allows("API server", "drive objects") {
                        tracing::warn!(name, %error, "cannot write Drive object");
                    }
                    if self.refused.len() >= MAX_REFUSED {
                        self.refused.clear();
                    }
                    let until = now().saturating_add(REFUSED);
                    self.refused.insert(action.name, until);
                }
                Err(error) => {
                    writes.count(Outcome::Failed);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// True if the object is still the one that was compared, and the agent of the node that it is about is still connected.
    fn is_current(&self, action: &Action) -> bool {
        let (over, node) = match &action.act {
            Act::Write { status, over } => (over.as_ref(), Some(&status.node)),
            Act::Disconnect(over) | Act::Delete(over) => (Some(over), None),
        };
        let is_live = |node: &String| {
            let agent = self.agents.get(node);
            agent.is_some_and(|agent| agent.look(Inventory::complete))
        };
        let objects = lock(&self.objects);
        let known = objects.get(&action.name);
        let known = known.map(|known| (&known.uid, &known.version));
        known == over.map(|over| (&over.uid, &over.version)) && node.is_none_or(is_live)
    }

    async fn perform(&self, action: &Action) -> Result<Outcome, WriteError> {
        let name = &action.name;
        match &action.act {
            Act::Write { status, over } => {
                self.apply(name, (**status).clone(), over.as_ref()).await?;
                Ok(match over {
                    Some(_) => Outcome::Updated,
                    None => Outcome::Created,
                })
            }
            Act::Disconnect(over) => {
                let found = within(self.api.get(name), true).await?;
                let is_same = found.metadata.resource_version.as_deref() == Some(&over.version);
                let status = found.status.filter(|_| is_same);
                let status = disconnected(status.ok_or(WriteError::Conflict)?, now());
                self.apply(name, status, Some(over)).await?;
                Ok(Outcome::Updated)
            }
            Act::Delete(over) => {
                let params = DeleteParams::default().preconditions(Preconditions {
                    uid: Some(over.uid.to_string()),
                    resource_version: Some(over.version.to_string()),
                });
                within(self.api.delete(name, &params), true).await?;
                Ok(Outcome::Deleted)
            }
        }
    }

    async fn apply(
        &self,
        name: &str,
        status: DriveStatus,
        over: Option<&Version>,
    ) -> Result<(), WriteError> {
        let drive = Drive {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                uid: over.map(|over| over.uid.to_string()),
                resource_version: over.map(|over| over.version.to_string()),
                ..ObjectMeta::default()
            },
            spec: NoSpec {},
            status: Some(status),
        };
        let params = PatchParams::apply(MANAGER).force();
        let patch = Patch::Apply(&drive);
        let applied = self.api.patch(name, &params, &patch);
        let applied = within(applied, over.is_some()).await?;
        lock(&self.objects).put(applied);
        Ok(())
    }
}

fn observed(inventory: &Inventory) -> Observed {
    let (instance, revision) = inventory.shown();
    Observed {
        instance: printable(instance),
        revision: i64::try_from(revision).unwrap_or(i64::MAX),
    }
}

/// Returns the status with the condition that the node's agent is not connected. The rest stays as it was last reported.
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
            condition.last_transition_time = moment(now);
        }
    }
    status.updated = moment(now);
    status
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::kubernetes::drive_objects::object::Condition;

    fn refused(code: u16, replaced: bool) -> WriteError {
        let status = Status::failure("no", "Reason").with_code(code);
        WriteError::of(&kube::Error::Api(status.boxed()), replaced)
    }

    #[test]
    fn an_object_that_another_one_changed_or_deleted_is_no_failure() {
        assert!(matches!(refused(409, true), WriteError::Conflict));
        assert!(matches!(refused(404, true), WriteError::Conflict));
        // There is no such resource.
        assert!(matches!(refused(404, false), WriteError::Failed(_)));
    }

    #[test]
    fn contents_that_are_refused_do_not_hold_up_other_objects_and_a_lack_of_rights_does() {
        assert!(matches!(refused(422, true), WriteError::Refused(_)));
        for code in [403, 429, 500] {
            assert!(matches!(refused(code, true), WriteError::Failed(_)));
        }
    }

    #[test]
    fn a_disconnected_node_changes_one_condition_once() {
        let condition = |type_: &str| Condition {
            type_: type_.into(),
            status: "True".into(),
            last_transition_time: "then".into(),
            ..Condition::default()
        };
        let status = DriveStatus {
            node: "n1".into(),
            health: "GOOD".into(),
            conditions: vec![condition("Healthy"), condition(AGENT_CONNECTED)],
            ..DriveStatus::default()
        };
        let first = disconnected(status.clone(), 60);
        assert_eq!(first.conditions[0], status.conditions[0]);
        assert_eq!(first.conditions[1].status, "False");
        assert_eq!(first.conditions[1].last_transition_time, moment(60));
        assert_eq!((&*first.health, &*first.updated), ("GOOD", &*moment(60)));
        let again = disconnected(first.clone(), 120);
        assert_eq!(again.conditions, first.conditions);
    }
}
