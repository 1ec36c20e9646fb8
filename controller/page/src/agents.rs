//! The page's data from the agents' inventories, and, where these do not have it, from the agents.

mod activity;
mod history;
mod measured;
mod recent;

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use drivebay_proto::agent::{self, InventoryUpdate, WatchInventoryRequest};
use drivebay_service::{
    agents::{Agent, Agents},
    call::CallError,
    catalog::Key,
    inventory::{Classes, Inventory},
};
use drivebay_view::{drives::is_noise, show, unix_seconds};
use tokio::time::timeout;

use self::{measured::Answers, recent::Recent};
use crate::{
    findings,
    model::{Activity, DriveDetail, Events, Node, Volumes},
    source::{Answer, NodeView, Source, Stamp},
    wire::{self, Claimed},
};

/// Timeout of a call to an agent.
const DEADLINE: Duration = Duration::from_secs(3);
/// Validity of an agent's answer; afterwards the agent is asked again.
const RECENT: Duration = Duration::from_secs(5);
/// Most volumes of an answer.
const VOLUMES: usize = 20_000;
/// Most volumes of the catalog that are read for activity or events.
const SCANNED: usize = 200_000;
/// Volumes read from the catalog at a time.
const STRIDE: usize = 256;
/// Interval of reading a node again without a change of its inventory: claims are not part of it.
const CLAIMS: u64 = 15;

/// Answer of the host's own agent.
struct Local {
    drives: Vec<agent::Drive>,
    volumes: Vec<Claimed>,
}

impl From<InventoryUpdate> for Local {
    fn from(update: InventoryUpdate) -> Self {
        let volumes = update.volumes.into_iter();
        let volumes = volumes.map(|volume| Claimed {
            claim: show::claim(&volume),
            persistent_volume: (volume.created_for.as_ref())
                .map(|created_for| created_for.persistent_volume.clone())
                .unwrap_or_default(),
            volume,
        });
        Self {
            volumes: volumes.collect(),
            drives: update.drives,
        }
    }
}

impl Local {
    /// Returns this drive with all volumes; None if the agent does not list the drive.
    fn with(self, id: &str) -> Option<(agent::Drive, Vec<Claimed>)> {
        let drive = self.drives.into_iter().find(|drive| drive.id == id)?;
        Some((drive, self.volumes))
    }
}

/// The data of the agents of a cluster, or of the one on this host.
pub struct AgentsSource {
    agents: Agents,
    host: Option<String>,
    // Moments of disconnections as Unix time, which must not vary from one reading to the next.
    start: (Instant, u64),
    measured: Mutex<Answers>,
    activity: Recent<Activity>,
    history: Recent<Events>,
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
            measured: Mutex::default(),
            activity: Recent::default(),
            history: Recent::default(),
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
        agent.read_inventory(|inventory| {
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
        let (away, mut findings) = agent.read_inventory(|inventory| {
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
        let uuids = agent.read_inventory(Inventory::volumes);
        let volumes = uuids.into_iter().filter_map(|uuid| {
            let node = node.clone();
            let key = Key { uuid, node };
            let volume = self.agents.catalog().get(&key)?;
            Some(self.claimed(&key, volume))
        });
        volumes.collect()
    }

    /// Asks the host's agent for its drives and volumes, with usage and unreadable ranges; None in a cluster, and if it does not answer.
    async fn local(&self) -> Option<Local> {
        let agent = self.agents.get(self.host.as_ref()?)?;
        match inventory(&agent).await {
            Ok(update) => Some(Local::from(update)),
            Err(error) => {
                tracing::debug!(%error, node = agent.node(), "inventory of the local agent not read");
                None
            }
        }
    }

    async fn read_drive(&self, node: &str, id: &str) -> Option<DriveDetail> {
        let agent = self.agents.get(node)?;
        let reported = agent.read_inventory(|inventory| inventory.drive(id));
        let reported = reported.filter(|drive| !is_noise(drive))?;
        let measured = self.measured(&agent, id).await;
        let classes = agent.read_inventory(Inventory::classes);
        let local = self.local().await;
        let (drive, volumes, is_local) = match local.and_then(|local| local.with(id)) {
            Some((drive, volumes)) => (drive, volumes, true),
            None => (reported, self.volumes_of(&agent), false),
        };
        let layout = |class: &str| layout(&classes, class);
        let is_host = self.host.is_some();
        let is = (is_host, is_local);
        wire::detail(node, &drive, &volumes, layout, measured, is)
    }

    async fn read_volumes(&self) -> Volumes {
        let mut all = Volumes::default();
        if let Some(host) = &self.host
            && let Some(Local { volumes, .. }) = self.local().await
        {
            let classes = self
                .agents
                .get(host)
                .map(|agent| agent.read_inventory(Inventory::classes));
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
                        .map(|agent| agent.read_inventory(Inventory::classes))
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
}

/// Returns the first update of an agent's inventory, which is a whole one.
async fn inventory(agent: &Agent) -> Result<InventoryUpdate, CallError> {
    let mut client = agent.client()?;
    let first = async {
        let updates = client.watch_inventory(WatchInventoryRequest {}).await?;
        updates.into_inner().message().await
    };
    let first = timeout(DEADLINE, first).await;
    let first = first.map_err(|_| CallError::Deadline(DEADLINE))??;
    first.ok_or_else(|| CallError::InDoubt {
        message: "the stream of its inventory ended before the first update".to_owned(),
    })
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
        let drives: Vec<agent::Drive> = agent.read_inventory(|inventory| {
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
        Box::pin(self.activity.get(self.read_activity()))
    }

    fn history(&self) -> Answer<'_, Events> {
        Box::pin(self.history.get(self.read_history()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_local_only_if_the_local_agent_lists_it() {
        let update = || InventoryUpdate {
            drives: vec![agent::Drive {
                id: "d".into(),
                ..Default::default()
            }],
            volumes: vec![agent::Volume::default()],
            ..Default::default()
        };
        let (drive, volumes) = Local::from(update()).with("d").unwrap();
        assert_eq!((drive.id.as_str(), volumes.len()), ("d", 1));
        assert!(Local::from(update()).with("other").is_none());
    }
}
