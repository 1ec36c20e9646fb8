//! The agents: who is connected, what each last said, and where a volume is.
//!
//! `admission` decides who is let in, `agent` is one node's, `session` is the life of one session, `follow` reads its inventory,
//! `lookup` finds the agent and the volume of an id, `expectation` is for nodes whose agent has not connected yet.

pub mod admission;
mod agent;
mod channel;
pub mod copies;
pub mod duplicates;
mod expectation;
mod follow;
mod history;
mod identity_limit;
mod lookup;
mod session;
mod session_error;
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
pub use history::Past;
pub use identity_limit::IdentityLimit;
pub use lookup::{Found, FoundSnapshot, IdOf, LookupError, parse, parse_as};
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

/// Largest message taken from the one agent behind a socket: a full snapshot of 20,000 volumes with much to say of each, bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// An agent that is away for less is restarting; its volumes are not called unreachable yet. The default.
pub const AWAY_GRACE: Duration = Duration::from_secs(60);
/// First pause before reconnecting; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

// By hash: the page of a list looks up each disconnected node that it has volumes of.
type Map = HashMap<Node, Arc<Agent>>;

/// Nodes that an operator has given up, with the time in unix seconds.
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
    // There is one agent, which is dialled: no other will come.
    alone: bool,
    away_grace: Duration,
    #[cfg(test)]
    lookups: std::sync::atomic::AtomicUsize,
    // Ends the watch tasks when the last `Agents` goes.
    _stop: DropGuard,
}

/// All agents that have ever said hello, by node id. Clones share one map.
#[derive(Debug, Clone)]
pub struct Agents {
    inner: Arc<Inner>,
}

impl Agents {
    /// No agent yet; they come by [`visit`](Self::visit). `forgotten_nodes`: nodes that an operator has forgotten;
    /// `notes`: what must outlive this process.
    pub fn new(forgotten_nodes: watch::Receiver<ForgottenNodes>, notes: Notes) -> Self {
        Self::with_away_grace(forgotten_nodes, notes, AWAY_GRACE)
    }

    /// As [`new`](Self::new), with another time after which the volumes of an agent that is away are unreachable.
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

    /// The one agent behind this channel, which may not be there yet, and which reconnects by itself. Spawns the
    /// task that follows its inventory; it ends with the last clone of the returned value. Must be called within
    /// a tokio runtime.
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
                // What lasted was a connection; what did not is not asked for in a tight loop.
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

    /// One connection to an agent, from its hello to its end. Answers why it ended. The session ends, too, when
    /// `visitor.end` is cancelled.
    pub async fn visit(&self, visitor: Visitor, announce: HelloRequest) -> SessionError {
        session::visit(&self.inner, Box::new(visitor), announce).await
    }

    /// Turns true when a first agent has looked at every drive, and stays so.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.inner.ready.subscribe()
    }

    /// Whether this process has begun so recently that an agent may not have reached it yet.
    pub fn is_young(&self) -> bool {
        !self.inner.alone && self.inner.began.elapsed() < self.inner.away_grace
    }

    /// The volumes of all nodes.
    pub fn catalog(&self) -> &Catalog {
        &self.inner.catalog
    }

    /// How many creations have an outcome that nobody can tell now: a node was sent them and has not given a final answer, and
    /// its agent is not there, nor was the node given up. An agent that is there lists what it has.
    pub fn creates_in_doubt(&self) -> usize {
        let doubts = self.notes().all_doubts();
        let nodes: BTreeSet<&String> = doubts.iter().flatten().collect();
        let unknown: BTreeSet<&String> = nodes
            .into_iter()
            .filter(|node| {
                let agent = self.get(node);
                let there = agent.is_some_and(|agent| agent.look(Inventory::complete));
                !there && !self.is_given_up(node)
            })
            .collect();
        let in_doubt = |of: &&BTreeSet<String>| of.iter().any(|node| unknown.contains(node));
        doubts.iter().filter(in_doubt).count()
    }

    /// What must outlive this process.
    pub fn notes(&self) -> &Notes {
        &self.inner.notes
    }

    /// Volumes that no PersistentVolume names.
    pub fn unclaimed(&self) -> &Unclaimed {
        &self.inner.unclaimed
    }

    /// Volumes that share their name with another one.
    pub fn duplicates(&self) -> &Duplicates {
        &self.inner.duplicates
    }

    /// An agent that is away for less is restarting.
    pub fn away_grace(&self) -> Duration {
        self.inner.away_grace
    }

    /// How often peers were refused.
    pub fn refusals(&self) -> &Arc<Refusals> {
        &self.inner.refusals
    }

    /// From now on what is asked is recorded there.
    pub fn audit_to(&self, audit: Audit) {
        let _ = self.inner.audit.set(audit);
    }

    /// Where what is asked is recorded; None when nowhere.
    pub fn audit(&self) -> Option<&Audit> {
        self.inner.audit.get()
    }

    /// Limits the log lines that peers cause.
    pub fn peer_log(&self) -> &Arc<PeerLog> {
        &self.inner.log
    }

    /// The agents now, by node id.
    pub fn all(&self) -> Vec<Arc<Agent>> {
        self.inner.all()
    }

    /// The agent of this node.
    pub fn get(&self, node: &str) -> Option<Arc<Agent>> {
        self.inner.get(node)
    }

    /// How many agents were looked up so far.
    #[cfg(test)]
    pub(crate) fn lookups(&self) -> usize {
        let lookups = &self.inner.lookups;
        lookups.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Nodes that were given up, and have not come back.
    pub fn forgotten_nodes(&self) -> BTreeSet<String> {
        let forgotten_nodes = self.inner.forgotten_nodes.borrow().clone();
        forgotten_nodes
            .into_keys()
            .filter(|node| self.is_given_up(node))
            .collect()
    }

    /// Whether the node was given up, and has not come back.
    pub fn is_given_up(&self, node: &str) -> bool {
        self.inner.is_given_up(node).is_some()
    }

    /// Drops what is known of nodes that were given up and are away.
    pub fn forget_given_up(&self) {
        for node in self.forgotten_nodes() {
            let Some(agent) = self.get(&node) else {
                continue;
            };
            if agent.look(Inventory::listed) && agent.forget(&self.inner.catalog) {
                tracing::warn!(
                    node,
                    "node forgotten; its volumes are no longer listed and deletes are answered with OK, data stays on its drives"
                );
            }
        }
    }

    /// Takes in what was known of a node before this process began.
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

    // When it was given up, unix seconds.
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

    // The agent's entry in the map; the one there is, if it has been here before, with all that is known of it.
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
