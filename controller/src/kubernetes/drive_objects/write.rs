//! Plans the writes of Drive objects every few seconds, and sends them at a bounded rate.

use drivebay_objects::{
    drive::{Drive, Observed},
    times::now,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drivebay_proto::{VolumeId, agent::Drive as ReportedDrive};
use drivebay_service::{
    agents::{Agent, Agents},
    catalog::{Key, exists},
    inventory::Inventory,
    peer_log::printable,
};
use kube::{Api, Client, runtime::watcher::Event};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{
    Shown,
    plan::{NodeState, NodeView, Plan, PlannedNode, Reporters, reported_drives},
    queue::{Operation, Planned, PlannedWrite, WriteQueue},
    requests::{FailedWrites, WriteError, send},
    view::{DriveUse, Volumes},
    watched::WatchedObjects,
};
use crate::{
    kubernetes::follow::watch_all,
    metrics::drive_objects::{DriveObjectWrites, WriteResult},
};

/// Least time between two plans that write everything.
const EVERY: Duration = Duration::from_secs(5);
/// Time between two writes: 20 per second.
const PACE: Duration = Duration::from_millis(50);
/// Least time for which the writes of a plan are sent before the next plan is made.
const SEND_TIME: Duration = Duration::from_secs(10);
/// While writes are left over, they are sent for this many times as long as planning took: planning takes at most a fifth of a
/// processor.
const SEND_SHARE: u32 = 4;
/// After a plan that wrote everything, the pause is this many times as long as planning took: a twentieth of a processor.
const IDLE_SHARE: u32 = 19;
/// Most writes of one plan, which holds their statuses in memory.
const MAX_WRITES: usize = 1000;
/// Longest wait after the API server did not carry out a request.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Seconds after which the objects of an unchanged node are compared again: claims change without a report of the node.
const SETTLED: i64 = 60;

/// Options of [`follow_drives`]: the drives that have objects, and the counters of writes for metrics.
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
    let objects = Arc::new(Mutex::new(WatchedObjects::default()));
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
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut writer = Writer {
        api: Api::all(client.clone()),
        agents: agents.clone(),
        objects,
        options,
        pace,
        seed: uuid::Uuid::new_v4().as_u64_pair().0,
        began: now(),
        nodes: BTreeMap::new(),
        absences: BTreeMap::new(),
        failed: FailedWrites::default(),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = async { tokio::join!(watch, writer.run()); } => {}
    }
}

fn lock(objects: &Mutex<WatchedObjects>) -> MutexGuard<'_, WatchedObjects> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time for which the writes of a plan are sent. `planning`: time that it took.
fn send_time(planning: Duration) -> Duration {
    SEND_TIME.max(planning * SEND_SHARE)
}

/// Number of writes that can be sent in this time, as far as one plan may hold them.
fn write_limit(send_time: Duration) -> usize {
    let writes = send_time.as_millis() / PACE.as_millis();
    usize::try_from(writes).map_or(MAX_WRITES, |writes| writes.min(MAX_WRITES))
}

/// Time until the next plan. `planning`: time that the last one took; `is_sent`: all of its writes were sent; `over`: number of
/// writes that it left out; `rest`: what is left of the time for sending.
fn pause(planning: Duration, is_sent: bool, over: usize, rest: Duration) -> Duration {
    match (is_sent, over) {
        (true, 0) => EVERY.max(planning * IDLE_SHARE),
        (true, _) => rest,
        // Writes that are left are planned again, since they may have changed.
        (false, _) => Duration::ZERO,
    }
}

/// State of a reporting node that is kept between plans.
#[derive(Debug)]
struct CachedNode {
    observed: Observed,
    reported: Vec<(String, DriveUse)>,
    planned: PlannedNode,
    /// Time when its objects are compared again if nothing changes before, seconds since 1970.
    due: i64,
}

struct Writer {
    api: Api<Drive>,
    agents: Agents,
    objects: Arc<Mutex<WatchedObjects>>,
    options: Options,
    pace: Interval,
    // Orders writes differently in each replica.
    seed: u64,
    // Seconds since 1970.
    began: i64,
    nodes: BTreeMap<Arc<str>, CachedNode>,
    absences: BTreeMap<String, i64>,
    failed: FailedWrites,
}

impl Writer {
    async fn run(&mut self) {
        let mut backoff = EVERY;
        let mut wait = EVERY;
        let mut limit = write_limit(SEND_TIME);
        loop {
            tokio::time::sleep(wait).await;
            wait = EVERY;
            // Before that, claims of volumes and existing objects are not known.
            if !self.agents.expected().complete() || !lock(&self.objects).is_complete() {
                continue;
            }
            let began = Instant::now();
            let Planned { writes, over } = self.plan(limit).await;
            let planning = began.elapsed();
            let send_time = send_time(planning);
            limit = write_limit(send_time);
            let until = Instant::now() + send_time;
            let sent = self.send_all(writes, until).await;
            let rest = until.saturating_duration_since(Instant::now());
            match sent {
                Ok(is_sent) => {
                    backoff = EVERY;
                    wait = pause(planning, is_sent, over, rest);
                }
                Err(error) => {
                    if self.agents.peer_log().allows("API server", "drive objects") {
                        tracing::warn!(%error, "cannot write Drive objects; will retry");
                    }
                    // Not sooner than planning may take its share of a processor again.
                    wait = backoff.max(rest);
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    fn state(&self, agent: &Agent, now: i64) -> NodeState {
        if self.agents.is_given_up(agent.node()) {
            return NodeState::Forgotten;
        }
        agent.read_inventory(|inventory| {
            if inventory.complete() {
                return NodeState::Reporting;
            }
            let away = inventory.away_since().map(|since| since.elapsed());
            let lost = away.filter(|away| *away >= self.agents.away_grace());
            let ago = lost.map(|away| i64::try_from(away.as_secs()).unwrap_or(i64::MAX));
            NodeState::NotReporting {
                lost: ago.map(|ago| now.saturating_sub(ago)),
            }
        })
    }

    /// Returns the state of a node without an agent in this replica's registry.
    fn unlisted_state(&self, node: &str, now: i64) -> NodeState {
        if self.agents.is_given_up(node) {
            return NodeState::Forgotten;
        }
        let grace = self.agents.away_grace().as_secs();
        let grace = i64::try_from(grace).unwrap_or(i64::MAX);
        let is_late = now.saturating_sub(self.began) >= grace;
        NodeState::NotReporting {
            lost: is_late.then_some(self.began),
        }
    }

    /// `limit`: most writes of the plan.
    async fn plan(&mut self, limit: usize) -> Planned {
        let now = now();
        let started = Instant::now();
        self.failed.remove_expired(started);
        let mut absences = std::mem::take(&mut self.absences);
        let agents = self.agents.all();
        let mut states: BTreeMap<Arc<str>, NodeState> = BTreeMap::new();
        let mut reporters = Reporters::default();
        let mut reporting = Vec::new();
        for agent in agents {
            let node: Arc<str> = agent.node().into();
            let state = self.state(&agent, now);
            states.insert(node.clone(), state);
            if state == NodeState::Reporting {
                self.refresh(&agent, &node);
                if let Some(cached) = self.nodes.get(&node) {
                    reporters.add(&node, &cached.reported);
                }
                reporting.push((agent, node));
            }
            tokio::task::yield_now().await;
        }
        self.nodes
            .retain(|node, _| states.get(node) == Some(&NodeState::Reporting));
        let shared = reporters.shared();
        let changed_nodes = lock(&self.objects).take_changed_nodes();
        let state_of = |node: &str| {
            let listed = states.get(node).copied();
            listed.unwrap_or_else(|| self.unlisted_state(node, now))
        };
        let mut plan = Plan {
            shown: self.options.shown,
            now,
            state: &state_of,
            is_set_aside: &|name| self.failed.is_set_aside(name, started),
            queue: WriteQueue::new(limit, self.seed),
        };
        let mut planned_nodes: BTreeMap<Arc<str>, PlannedNode> = BTreeMap::new();
        for (agent, node) in &reporting {
            let is_changed = changed_nodes.contains(&**node) || shared.contains(&**node);
            let is_due = self.nodes.get(node).is_some_and(|cached| {
                is_changed || !cached.planned.is_settled || cached.due <= now
            });
            if !is_due {
                continue;
            }
            let Some((observed, drives, volumes)) = self.read(agent) else {
                continue;
            };
            let view = NodeView {
                node,
                observed,
                drives: &drives,
                volumes,
            };
            let planned = plan.write(view, &reporters, &lock(&self.objects));
            planned_nodes.insert(node.clone(), planned);
            tokio::task::yield_now().await;
        }
        // Empty with `Shown::All`.
        let unwanted: BTreeSet<&str> = self
            .nodes
            .iter()
            .map(|(node, cached)| planned_nodes.get(node).unwrap_or(&cached.planned))
            .flat_map(|planned| planned.unwanted.iter().map(String::as_str))
            .collect();
        plan.remove(&reporters, &unwanted, &lock(&self.objects), &mut absences);
        let planned = plan.finish();
        self.absences = absences;
        for (node, planned) in planned_nodes {
            if let Some(cached) = self.nodes.get_mut(&node) {
                cached.planned = planned;
                cached.due = now.saturating_add(SETTLED);
            }
        }
        planned
    }

    /// Caches the drives that the node reports, unless those of this revision are cached.
    fn refresh(&mut self, agent: &Agent, node: &Arc<str>) {
        let cached = self.nodes.get(node).map(|cached| &cached.observed);
        let changed = agent.read_inventory(|inventory| {
            let observed = observed(inventory);
            if cached == Some(&observed) {
                return None;
            }
            let drives: Vec<ReportedDrive> = inventory.drives().collect();
            Some((observed, drives))
        });
        let Some((observed, drives)) = changed else {
            return;
        };
        self.nodes.insert(
            node.clone(),
            CachedNode {
                observed,
                reported: reported_drives(node, &drives),
                planned: PlannedNode::default(),
                due: 0,
            },
        );
    }

    /// Reads a node's inventory; None if its agent is not connected any more.
    fn read(
        &self,
        agent: &Agent,
    ) -> Option<(Observed, Vec<ReportedDrive>, BTreeMap<String, Volumes>)> {
        let (observed, drives, uuids) = agent.read_inventory(|inventory| {
            inventory.complete().then(|| {
                let drives: Vec<ReportedDrive> = inventory.drives().collect();
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

    /// Sends writes in their order, until `until`. Returns true if none is left.
    ///
    /// # Errors
    /// A write failed for another reason than the contents of its object: those that are left are not sent.
    async fn send_all(
        &mut self,
        writes: Vec<PlannedWrite>,
        until: Instant,
    ) -> Result<bool, WriteError> {
        for write in writes {
            if !self.is_current(&write) {
                continue;
            }
            self.pace.tick().await;
            if Instant::now() >= until {
                return Ok(false);
            }
            let result = send(&self.api, &write, now()).await;
            let name = &write.name;
            self.failed.record(name, &result, Instant::now());
            let counts = &self.options.writes;
            match result {
                Ok(written) => {
                    counts.count(written.result);
                    if let Some(object) = written.object {
                        lock(&self.objects).put(object);
                    }
                }
                // The object is compared again when the watch shows its new version.
                Err(WriteError::Conflict) => counts.count(WriteResult::Conflict),
                Err(error @ WriteError::Refused(_)) => {
                    counts.count(WriteResult::Failed);
                    if self.agents.peer_log().allows("API server", "drive objects") {
                        tracing::warn!(name, %error, "cannot write Drive object");
                    }
                }
                Err(error) => {
                    counts.count(WriteResult::Failed);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// True if the object is still the one that was compared, and the agent of the node that it shows is still connected.
    fn is_current(&self, write: &PlannedWrite) -> bool {
        let (version, node) = match &write.operation {
            Operation::Apply { status, replaces } => (replaces.as_ref(), Some(&status.node)),
            Operation::MarkDisconnected(version) | Operation::Delete(version) => {
                (Some(version), None)
            }
        };
        let is_reporting = |node: &String| {
            let agent = self.agents.get(node);
            agent.is_some_and(|agent| agent.read_inventory(Inventory::complete))
        };
        let objects = lock(&self.objects);
        let watched = objects.get(&write.name);
        let watched = watched.map(|object| (&object.uid, &object.version));
        watched == version.map(|version| (&version.uid, &version.version))
            && node.is_none_or(is_reporting)
    }
}

fn observed(inventory: &Inventory) -> Observed {
    let (instance, revision) = inventory.shown();
    Observed {
        instance: printable(instance),
        revision: i64::try_from(revision).unwrap_or(i64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_as_many_writes_as_can_be_sent_and_a_thousand_at_most() {
        let limit = |planning| write_limit(send_time(Duration::from_millis(planning)));
        assert_eq!((limit(0), limit(2500)), (200, 200));
        assert_eq!((limit(5000), limit(60_000)), (400, 1000));
    }

    #[test]
    fn planning_takes_a_fifth_of_a_processor_while_writes_are_left_and_a_twentieth_otherwise() {
        for seconds in [3, 10, 60] {
            let planning = Duration::from_secs(seconds);
            assert!(send_time(planning) >= planning * 4);
            assert!(pause(planning, true, 0, Duration::ZERO) >= planning * 19);
        }
    }

    #[test]
    fn writes_that_a_plan_left_out_are_planned_when_the_time_for_sending_is_over() {
        let (planning, rest) = (Duration::from_millis(1), Duration::from_secs(3));
        assert_eq!(pause(planning, true, 7, rest), rest);
        assert_eq!(pause(planning, false, 7, rest), Duration::ZERO);
        assert_eq!(pause(planning, true, 0, rest), EVERY);
    }
}
