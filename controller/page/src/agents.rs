//! The page's data from the agents' inventories, and, where these do not have it, from the agents.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use drivebay_proto::agent::{
    self, DriveLatencyRequest, ListCopiesRequest, ListMovesRequest, WatchInventoryRequest,
};
use drivebay_service::{
    agents::{Agent, Agents},
    call::call,
    catalog::Key,
    inventory::{Classes, Inventory},
};
use drivebay_view::{drives::is_noise, show, unix_seconds};
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use crate::{
    findings,
    model::{Activity, DriveDetail, Latency, Node, Volumes},
    source::{Answer, NodeView, Source, Stamp},
    wire::{self, Claimed},
};

/// Time that an agent has to answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// For so long an agent's answer is not asked for again.
const RECENT: Duration = Duration::from_secs(5);
/// Most latencies that are kept.
const LATENCIES: usize = 256;
/// Agents that are asked at a time, and at most for one answer.
const ASKED_AT_A_TIME: usize = 16;
const ASKED: usize = 256;
/// Longest lists of an answer.
const VOLUMES: usize = 20_000;
const ENTRIES: usize = 1000;
/// Volumes that are looked through for erases and checks.
const SCANNED: usize = 200_000;
/// Volumes read from the catalog at a time.
const STRIDE: usize = 256;
/// Interval of reading a node again without a change of its inventory: claims are not part of it.
const CLAIMS: u64 = 15;

/// Answers of agents by node and drive, with the moment of each.
type Latencies = HashMap<(String, String), (Instant, Option<Latency>)>;

/// The data of the agents of a cluster, or of the one on this host.
pub struct AgentsSource {
    agents: Agents,
    host: Option<String>,
    // Moments of disconnections as Unix time, which must not vary from one reading to the next.
    start: (Instant, u64),
    latencies: Mutex<Latencies>,
    activity: Mutex<Option<(Instant, Activity)>>,
    // One reading of the activity at a time; others wait for its result.
    reading: Semaphore,
}

impl AgentsSource {
    /// Returns the source of all agents of a cluster.
    pub fn cluster(agents: Agents) -> Self {
        Self::new(agents, None)
    }

    /// Returns the source of the single agent of this host, whose node id is `node`.
    pub fn host(agents: Agents, node: String) -> Self {
        Self::new(agents, Some(node))
    }

    fn new(agents: Agents, host: Option<String>) -> Self {
        Self {
            agents,
            host,
            start: (Instant::now(), unix_seconds()),
            latencies: Mutex::default(),
            activity: Mutex::default(),
            reading: Semaphore::new(1),
        }
    }

    fn shown(&self) -> impl Iterator<Item = Arc<Agent>> {
        let all = self.agents.all().into_iter();
        all.filter(|agent| self.agents.is_node(agent) || agent.refused().is_some())
    }

    fn stamp(&self, agent: &Agent, now: u64) -> Stamp {
        let mut stamp = DefaultHasher::new();
        // Spread over nodes, so that not all are read at once.
        agent.node().hash(&mut stamp);
        let phase = stamp.finish() % CLAIMS;
        ((now + phase) / CLAIMS).hash(&mut stamp);
        self.agents.state_of(agent).as_str().hash(&mut stamp);
        agent.refused().hash(&mut stamp);
        agent.look(|inventory| {
            inventory.shown().hash(&mut stamp);
            inventory.away_since().hash(&mut stamp);
        });
        Stamp(stamp.finish())
    }

    fn unix(&self, at: Instant) -> u64 {
        let (instant, unix) = self.start;
        match at.checked_duration_since(instant) {
            Some(later) => unix + later.as_secs(),
            None => unix.saturating_sub(instant.duration_since(at).as_secs()),
        }
    }

    fn node_of(&self, agent: &Agent) -> Node {
        let state = self.agents.state_of(agent);
        let (away, mut findings) = agent.look(|inventory| {
            let findings = findings::of_node(inventory.findings());
            (inventory.away_since(), findings)
        });
        findings.extend(agent.refused().map(|text| crate::model::Finding {
            code: "AgentRefused".to_owned(),
            severity: "WARNING".to_owned(),
            text,
            todo: None,
            since: None,
            acknowledged: false,
        }));
        let away_since = away.map(|since| self.unix(since));
        Node {
            name: agent.node().to_owned(),
            state: state.to_string(),
            away_since,
            away_seconds: away_since.map(|since| unix_seconds().saturating_sub(since)),
            version: agent.facts().map(|facts| facts.version),
            findings,
        }
    }

    fn claimed(&self, key: &Key, volume: agent::Volume) -> Claimed {
        let shown = self.agents.on_node(key, volume);
        let volume = shown.volume.unwrap_or_default();
        let claim = match shown.claims_known {
            true => shown.claim,
            // Without Kubernetes, what the volume was created for.
            false => show::claim(&volume),
        };
        Claimed {
            volume,
            claim,
            persistent_volume: shown.persistent_volume,
        }
    }

    fn volumes_of(&self, agent: &Agent) -> Vec<Claimed> {
        let node = agent.node_id();
        let uuids = agent.look(Inventory::volumes);
        let volumes = uuids.into_iter().filter_map(|uuid| {
            let node = node.clone();
            let key = Key { uuid, node };
            let volume = self.agents.catalog().get(&key)?;
            Some(self.claimed(&key, volume))
        });
        volumes.collect()
    }

    /// Asks the host's agent for its drives and volumes, with usage and unreadable ranges; None in a cluster, and if it does not answer.
    async fn local(&self) -> Option<(Vec<agent::Drive>, Vec<Claimed>)> {
        let agent = self.agents.get(self.host.as_ref()?)?;
        let mut client = agent.client().ok()?;
        let update = async move {
            let watched = client
                .watch_inventory(WatchInventoryRequest {})
                .await
                .ok()?;
            watched.into_inner().message().await.ok()?
        };
        let update = timeout(DEADLINE, update).await.ok()??;
        let volumes = update.volumes.into_iter();
        let volumes = volumes.map(|volume| Claimed {
            claim: show::claim(&volume),
            persistent_volume: (volume.created_for.as_ref())
                .map(|known| known.persistent_volume.clone())
                .unwrap_or_default(),
            volume,
        });
        Some((update.drives, volumes.collect()))
    }

    async fn latency(&self, agent: &Agent, drive: &str) -> Option<Latency> {
        let key = (agent.node().to_owned(), drive.to_owned());
        let lock = || {
            self.latencies
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some((at, latency)) = lock().get(&key)
            && at.elapsed() < RECENT
        {
            return latency.clone();
        }
        let mut client = agent.client().ok()?;
        let request = DriveLatencyRequest {
            drive: drive.to_owned(),
        };
        let answer = call(DEADLINE, client.drive_latency(request)).await;
        let latency = match answer {
            Ok(answer) => wire::latency(&answer),
            // Also of an agent that is older than this use of the call.
            Err(error) => {
                tracing::debug!(%error, node = agent.node(), "latency of a drive not known");
                None
            }
        };
        let mut known = lock();
        known.retain(|_, (at, _)| at.elapsed() < RECENT);
        if known.len() < LATENCIES {
            known.insert(key, (Instant::now(), latency.clone()));
        }
        latency
    }

    async fn read_drive(&self, node: &str, id: &str) -> Option<DriveDetail> {
        let agent = self.agents.get(node)?;
        let known = agent.look(|inventory| inventory.drive(id));
        let known = known.filter(|drive| !is_noise(drive))?;
        let latency = self.latency(&agent, id).await;
        let classes = agent.look(Inventory::classes);
        let local = self.local().await;
        let on_host = local.is_some();
        let (drive, volumes) = match local {
            Some((drives, volumes)) => {
                let drive = drives.into_iter().find(|drive| drive.id == id);
                (drive.unwrap_or(known), volumes)
            }
            None => (known, self.volumes_of(&agent)),
        };
        let layout = |class: &str| layout(&classes, class);
        let is_host = self.host.is_some();
        wire::detail(node, &drive, &volumes, layout, latency, (is_host, on_host))
    }

    async fn read_volumes(&self) -> Volumes {
        let mut all = Volumes::default();
        if let Some(host) = &self.host
            && let Some((_, volumes)) = self.local().await
        {
            let classes = self
                .agents
                .get(host)
                .map(|agent| agent.look(Inventory::classes));
            let classes = classes.unwrap_or_default();
            let existing = volumes.iter().filter(|one| !one.volume.is_deleted());
            let layout = |class: &str| layout(&classes, class);
            all.volumes
                .extend(existing.map(|one| wire::volume(host, one, layout)));
            return all;
        }
        let mut classes: HashMap<String, Classes> = HashMap::new();
        let mut from: Option<Key> = None;
        loop {
            let page = self.agents.catalog();
            let page = page.after(from.as_ref(), STRIDE, |_, marks| marks.exists);
            let is_last = page.len() < STRIDE;
            from = page.last().map(|(key, _)| key.clone());
            for (key, entry) in page {
                if all.volumes.len() >= VOLUMES {
                    all.more = true;
                    return all;
                }
                let classes = classes.entry(key.node.to_string()).or_insert_with(|| {
                    let agent = self.agents.get(&key.node);
                    agent
                        .map(|agent| agent.look(Inventory::classes))
                        .unwrap_or_default()
                });
                let one = self.claimed(&key, entry.decode(&key));
                let layout = |class: &str| layout(classes, class);
                all.volumes.push(wire::volume(&key.node, &one, layout));
            }
            if is_last {
                return all;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn read_activity(&self) -> Activity {
        let mut activity = Activity::default();
        let mut copying: BTreeMap<String, Vec<agent::Volume>> = BTreeMap::new();
        let (mut from, mut scanned): (Option<Key>, usize) = (None, 0);
        loop {
            let page = self
                .agents
                .catalog()
                .after(from.as_ref(), STRIDE, |_, _| true);
            let is_last = page.len() < STRIDE;
            from = page.last().map(|(key, _)| key.clone());
            scanned += page.len();
            for (key, entry) in page {
                let volume = entry.decode(&key);
                activity.checks.extend(wire::checks(&key.node, &volume));
                activity.erases.extend(wire::erase(&key.node, &volume));
                if entry.marks.exists && !entry.marks.listed {
                    copying
                        .entry(key.node.to_string())
                        .or_default()
                        .push(volume);
                }
            }
            if activity.checks.len() > 4 * ENTRIES {
                cut_checks(&mut activity);
            }
            if is_last || scanned >= SCANNED {
                activity.more |= !is_last;
                break;
            }
            tokio::task::yield_now().await;
        }
        cut_checks(&mut activity);
        let moving = self.shown().filter(|agent| {
            let moves = agent.look(|inventory| !inventory.with_moves().is_empty());
            moves || copying.contains_key(agent.node())
        });
        let moving: Vec<Arc<Agent>> = moving.collect();
        activity.more |= moving.len() > ASKED;
        let mut rest = moving.into_iter().take(ASKED);
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < ASKED_AT_A_TIME
                && let Some(agent) = rest.next()
            {
                let copies = copying.remove(agent.node()).unwrap_or_default();
                asked.spawn(async move { of_agent(&agent, copies).await });
            }
            match asked.join_next().await {
                None => break,
                Some(Err(_)) => {}
                Some(Ok(of_one)) => {
                    activity.moves.extend(of_one.moves);
                    activity.copies.extend(of_one.copies);
                    activity.silent.extend(of_one.silent);
                }
            }
        }
        activity.silent.sort();
        for list in [&mut activity.moves, &mut activity.copies] {
            list.sort_by(|one, other| (&one.node, &one.volume).cmp(&(&other.node, &other.volume)));
            activity.more |= list.len() > ENTRIES;
            list.truncate(ENTRIES);
        }
        activity.more |= activity.erases.len() > ENTRIES;
        activity.erases.truncate(ENTRIES);
        activity
    }
}

// Keeps the latest.
fn cut_checks(activity: &mut Activity) {
    activity.checks.sort_by_key(|one| Reverse(one.at));
    activity.more |= activity.checks.len() > ENTRIES;
    activity.checks.truncate(ENTRIES);
}

/// Asks an agent for its moves and copies. `copying`: volumes that are being made as copies, by its inventory.
async fn of_agent(agent: &Agent, copying: Vec<agent::Volume>) -> Activity {
    let node = agent.node();
    let mut activity = Activity::default();
    let Ok(mut client) = agent.client() else {
        activity.silent.push(node.to_owned());
        return activity;
    };
    let mut is_silent = false;
    if agent.look(|inventory| !inventory.with_moves().is_empty()) {
        match call(DEADLINE, client.list_moves(ListMovesRequest {})).await {
            Ok(answer) => {
                let moves = answer.moves.into_iter().take(ENTRIES + 1);
                activity
                    .moves
                    .extend(moves.map(|one| wire::a_move(node, one)));
            }
            Err(error) => {
                tracing::debug!(%error, node, "moves of a node not known");
                is_silent = true;
            }
        }
    }
    if !copying.is_empty() {
        match call(DEADLINE, client.list_copies(ListCopiesRequest {})).await {
            Ok(answer) => {
                let copies = answer.copies.into_iter().take(ENTRIES + 1);
                activity
                    .copies
                    .extend(copies.map(|one| wire::copy(node, one, false)));
                let failed = answer.failed.into_iter().take(ENTRIES);
                activity
                    .copies
                    .extend(failed.map(|one| wire::copy(node, one, true)));
            }
            Err(error) => {
                tracing::debug!(%error, node, "copies of a node not known");
                is_silent = true;
            }
        }
    }
    if is_silent {
        activity.silent.push(node.to_owned());
    }
    activity
}

fn layout(classes: &Classes, class: &str) -> Option<String> {
    classes.get(class).map(|class| class.layout.clone())
}

impl Source for AgentsSource {
    fn host(&self) -> Option<String> {
        self.host.clone()
    }

    fn stamps(&self) -> Vec<(Arc<str>, Stamp)> {
        let now = unix_seconds();
        let stamps = self
            .shown()
            .map(|agent| (Arc::from(agent.node()), self.stamp(&agent, now)));
        stamps.collect()
    }

    fn node(&self, name: &str) -> Option<NodeView> {
        let agent = self.agents.get(name)?;
        let drives: Vec<agent::Drive> = agent.look(|inventory| {
            let drives = inventory.drives();
            drives.filter(|drive| !is_noise(drive)).collect()
        });
        let volumes = self.volumes_of(&agent);
        Some(NodeView {
            node: self.node_of(&agent),
            drives: wire::drives(name, &drives, &volumes),
        })
    }

    fn drive<'a>(&'a self, node: &'a str, id: &'a str) -> Answer<'a, Option<DriveDetail>> {
        Box::pin(self.read_drive(node, id))
    }

    fn volumes(&self) -> Answer<'_, Volumes> {
        Box::pin(self.read_volumes())
    }

    fn activity(&self) -> Answer<'_, Activity> {
        Box::pin(async {
            let recent = || {
                let known = self.activity.lock().unwrap_or_else(PoisonError::into_inner);
                let known = known.as_ref().filter(|(at, _)| at.elapsed() < RECENT);
                known.map(|(_, activity)| activity.clone())
            };
            let place = self.reading.acquire().await;
            if let Some(activity) = recent() {
                return activity;
            }
            let activity = self.read_activity().await;
            let read = (Instant::now(), activity.clone());
            *self.activity.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
            drop(place);
            activity
        })
    }
}
