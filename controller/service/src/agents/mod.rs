//! The agents: their sessions, the last inventory of each, and the lookup of volumes.
//!
//! `admission` decides whether a connection becomes a session, `agent` holds the state of one node, `session` runs one session,
//! `follow` reads its inventory, `lookup` and `group_lookup` find the agent and the volume of an id, `expectation` is for nodes
//! whose agent has not connected yet.

pub mod admission;
mod agent;
mod channel;
pub mod copies;
pub mod duplicates;
mod expectation;
mod follow;
mod group_lookup;
mod history;
mod identity_limit;
mod lookup;
mod session;
mod session_error;
mod shown;
mod single_reader;
pub mod unclaimed;
mod updates;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock, PoisonError, RwLock, Weak},
    time::{Duration, Instant},
};

use drivebay_proto::agent::{HelloRequest, InventoryUpdate};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;

pub use admission::{Facts, Identity, Refusal};
pub use agent::Agent;
use agent::{Entered, Standby};
pub use channel::AgentChannel;
use copies::Copies;
use duplicates::Duplicates;
pub use group_lookup::ReportedGroup;
pub use history::Past;
pub use identity_limit::IdentityLimit;
pub use lookup::{IdOf, LookupError, ReportedSnapshot, ReportedVolume, parse, parse_as};
pub use session::Visitor;
pub use session_error::SessionError;
use unclaimed::Unclaimed;

use crate::{
    audit::{Audit, Record},
    catalog::{Catalog, Node},
    expected::Expected,
    inventory::Inventory,
    notes::Notes,
    peer_log::PeerLog,
    refusals::Refusals,
};

/// Largest message accepted from the single agent of [`Agents::single`], bytes: a full snapshot of 20,000 volumes with many conditions.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// Default time for which an agent may be disconnected before its volumes count as unreachable; a restart takes less.
pub const AWAY_GRACE: Duration = Duration::from_secs(60);
/// First delay before reconnecting; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

// A hash map, since a page of a list looks up each disconnected node that has a volume on it.
type Map = HashMap<Node, Arc<Agent>>;

/// Forgotten nodes, with the time of `node forget` in seconds since 1970.
pub type ForgottenNodes = BTreeMap<String, u64>;

#[derive(Debug)]
struct Inner {
    map: RwLock<Map>,
    catalog: Catalog,
    ready: watch::Sender<bool>,
    forgotten_nodes: watch::Receiver<ForgottenNodes>,
    notes: Notes,
    refusals: Arc<Refusals>,
    log: Arc<PeerLog>,
    audit: OnceLock<Audit>,
    expected: RwLock<Expected>,
    unclaimed: Unclaimed,
    duplicates: Duplicates,
    copies: Copies,
    began: Instant,
    // There is a single agent, which this process dials.
    alone: bool,
    away_grace: Duration,
    #[cfg(test)]
    lookups: std::sync::atomic::AtomicUsize,
    // Cancels the background tasks when the last `Agents` is dropped.
    _stop: DropGuard,
}

/// All agents that ever connected, were recalled or are expected, by node id. Clones share one map.
#[derive(Debug, Clone)]
pub struct Agents {
    inner: Arc<Inner>,
}

impl Agents {
    /// Returns an empty registry, to which [`visit`](Self::visit) adds agents. `forgotten_nodes`: nodes that an operator has
    /// forgotten; `notes`: the state that outlives this process.
    pub fn new(forgotten_nodes: watch::Receiver<ForgottenNodes>, notes: Notes) -> Self {
        Self::with_away_grace(forgotten_nodes, notes, AWAY_GRACE)
    }

    /// As [`new`](Self::new), with another time after which the volumes of a disconnected agent count as unreachable.
    pub fn with_away_grace(
        forgotten_nodes: watch::Receiver<ForgottenNodes>,
        notes: Notes,
        away_grace: Duration,
    ) -> Self {
        Self::with_stop(
            forgotten_nodes,
            notes,
            away_grace,
            false,
            CancellationToken::new(),
        )
    }

    fn with_stop(
        forgotten_nodes: watch::Receiver<ForgottenNodes>,
        notes: Notes,
        away_grace: Duration,
        alone: bool,
        stop: CancellationToken,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                map: RwLock::default(),
                catalog: Catalog::default(),
                ready: watch::Sender::new(false),
                forgotten_nodes,
                notes,
                refusals: Arc::default(),
                log: Arc::default(),
                audit: OnceLock::new(),
                expected: RwLock::default(),
                unclaimed: Unclaimed::default(),
                duplicates: Duplicates::default(),
                copies: Copies::default(),
                began: Instant::now(),
                alone,
                away_grace,
                #[cfg(test)]
                lookups: Default::default(),
                _stop: stop.drop_guard(),
            }),
        }
    }

    /// Returns a registry of the single agent behind this channel, which reconnects by itself and need not be connected yet. Spawns
    /// the task that follows its inventory; it ends when the last clone of the returned value is dropped. Must be called within a
    /// tokio runtime.
    pub fn single(channel: Channel) -> Self {
        let stop = CancellationToken::new();
        let none = watch::Sender::new(ForgottenNodes::new()).subscribe();
        let agents = Self::with_stop(none, Notes::in_memory(), AWAY_GRACE, true, stop.clone());
        let (weak, channel) = (Arc::downgrade(&agents.inner), channel.into());
        let follow = async move {
            let mut pause = FIRST_PAUSE;
            loop {
                let began = Instant::now();
                let error = visit_once(&weak, &channel).await;
                // Only a connection that lasted resets the delay, so that short ones are not retried in a tight loop.
                if began.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
                tracing::warn!(%error, retry_in = ?pause, "cannot follow the agent's inventory; will retry");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(follow).await });
        agents
    }

    /// Runs one connection to an agent, from its hello to its end, and returns the reason of the end. Cancelling `visitor.end` ends it.
    pub async fn visit(&self, visitor: Visitor, announce: HelloRequest) -> SessionError {
        session::visit(&self.inner, Box::new(visitor), announce).await
    }

    /// Returns a channel that turns true when a first agent is connected and has scanned every drive. It never turns false again.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.inner.ready.subscribe()
    }

    /// True if this process started less than `--away-grace` ago, so that an agent may not have connected yet. False for a single agent.
    pub fn is_young(&self) -> bool {
        !self.inner.alone && self.inner.began.elapsed() < self.inner.away_grace
    }

    /// Returns the catalog of the volumes of all nodes.
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// Counts the creates whose outcome is unknown: a node was sent one and has not given a final answer, is not connected with a
    /// complete inventory, and was not forgotten. A connected agent lists what it has, so its creates do not count.
    pub fn creates_in_doubt(&self) -> usize {
        let doubts = self.notes().all_doubts();
        let nodes: BTreeSet<&String> = doubts.iter().flatten().collect();
        let unknown: BTreeSet<&String> = nodes
            .into_iter()
            .filter(|node| !self.is_complete(node) && !self.is_given_up(node))
            .collect();
        let in_doubt = |of: &&BTreeSet<String>| of.iter().any(|node| unknown.contains(node));
        doubts.iter().filter(in_doubt).count()
    }

    /// Ends doubts as [`Notes::settle_listed`] describes. Must be called periodically.
    pub fn settle_listed(&self, now: Instant) {
        let is_known = |node: &str| self.is_complete(node) || self.is_given_up(node);
        self.notes().settle_listed(is_known, now);
    }

    fn is_complete(&self, node: &str) -> bool {
        let agent = self.get(node);
        agent.is_some_and(|agent| agent.read_inventory(Inventory::complete))
    }

    /// Returns the state that outlives this process.
    pub fn notes(&self) -> &Notes {
        &self.inner.notes
    }

    /// Returns the volumes that no PersistentVolume names.
    pub fn unclaimed(&self) -> &Unclaimed {
        &self.inner.unclaimed
    }

    /// Returns the volumes that share their name with another one.
    pub fn duplicates(&self) -> &Duplicates {
        &self.inner.duplicates
    }

    /// Returns the time for which an agent may be disconnected before its volumes count as unreachable.
    pub fn away_grace(&self) -> Duration {
        self.inner.away_grace
    }

    /// Returns the counters of refused peers.
    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.inner.refusals
    }

    /// Sets the audit log. Only the first call has an effect.
    pub fn audit_to(&self, audit: Audit) {
        let _ = self.inner.audit.set(audit);
    }

    /// Returns the audit log; None before [`audit_to`](Self::audit_to).
    pub fn audit(&self) -> Option<&Audit> {
        self.inner.audit.get()
    }

    /// Returns the rate limit of log lines that peers cause.
    pub fn peer_log(&self) -> &Arc<PeerLog> {
        &self.inner.log
    }

    /// Returns all agents, ordered by node id.
    pub fn all(&self) -> Vec<Arc<Agent>> {
        self.inner.all()
    }

    /// Returns the agent of this node, connected or not.
    pub fn get(&self, node: &str) -> Option<Arc<Agent>> {
        self.inner.get(node)
    }

    /// Returns how many agents were looked up so far.
    #[cfg(test)]
    pub(crate) fn lookups(&self) -> usize {
        let lookups = &self.inner.lookups;
        lookups.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the forgotten nodes that have not returned.
    pub fn forgotten_nodes(&self) -> BTreeSet<String> {
        let forgotten_nodes = self.inner.forgotten_nodes.borrow().clone();
        forgotten_nodes
            .into_keys()
            .filter(|node| self.is_given_up(node))
            .collect()
    }

    /// True if the node was forgotten and has not returned since.
    pub fn is_given_up(&self, node: &str) -> bool {
        self.inner.is_given_up(node).is_some()
    }

    /// Drops the inventories of forgotten nodes that are disconnected.
    pub fn forget_given_up(&self) {
        for node in self.forgotten_nodes() {
            let Some(agent) = self.get(&node) else {
                continue;
            };
            if agent.read_inventory(Inventory::listed) && agent.forget(&self.inner.catalog) {
                tracing::warn!(
                    node,
                    "node forgotten; its volumes are no longer listed and deletes are answered with OK, data stays on its drives"
                );
            }
        }
    }

    /// Adds a node with its persisted inventory from before this process began. It counts as disconnected. Does nothing if its
    /// agent has connected since then.
    pub fn recall(
        &self,
        facts: Facts,
        update: InventoryUpdate,
    ) -> Result<(), crate::inventory::UpdateError> {
        let agent = self.inner.enrol(&facts.node);
        agent.recall(facts, update, &self.inner.catalog)
    }
}

async fn visit_once(inner: &Weak<Inner>, channel: &AgentChannel) -> SessionError {
    session::visit_lasting(inner, channel).await
}

impl Inner {
    fn record(&self, record: impl FnOnce() -> Record) {
        if let Some(audit) = self.audit.get() {
            audit.record(record);
        }
    }

    // Returns the time of `node forget`, seconds since 1970; None if the node was not forgotten or has returned.
    fn is_given_up(&self, node: &str) -> Option<u64> {
        let at = self.forgotten_nodes.borrow().get(node).copied()?;
        let back = self.notes.has_returned(node, at)
            || self.get(node).is_some_and(|agent| agent.connected());
        (!back).then_some(at)
    }

    fn all(&self) -> Vec<Arc<Agent>> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = map.values().cloned().collect();
        drop(map);
        all.sort_unstable_by(|one, other| one.node().cmp(other.node()));
        all
    }

    fn get(&self, node: &str) -> Option<Arc<Agent>> {
        #[cfg(test)]
        self.lookups
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.get(node).cloned()
    }

    // Returns the agent of this node, and adds it if it is new.
    fn enrol(&self, node: &str) -> Arc<Agent> {
        if let Some(agent) = self.get(node) {
            return agent;
        }
        let node = Node::from(node);
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        map.entry(node.clone())
            .or_insert_with(|| Arc::new(Agent::new(node, self.away_grace)))
            .clone()
    }
}
