//! One node's agent: its session while it is connected, and its inventory, which outlives sessions.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drivebay_proto::agent::{InventoryUpdate, agent_client::AgentClient};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    AgentChannel,
    admission::{Admission, Facts, Holder, Refusal, admit},
    history::{History, Past},
    session::MAX_LIST_BYTES,
    single_reader::SingleReader,
};
use crate::{
    bounds::{Bound, Budget},
    call::CallError,
    catalog::{Catalog, Node},
    expected::ExpectedVolume,
    inventory::{Foreign, Inventory, UpdateError},
};

/// Longest wait for an acknowledged change to appear in lists before the answer is sent anyway.
const SHOW_DEADLINE: Duration = Duration::from_secs(2);

/// Time for which an exceeded bound is shown, also after the node has connected again: it may exceed it every minute.
const SHOW_BOUND: Duration = Duration::from_secs(15 * 60);

/// A connection to an agent that was admitted.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub facts: Facts,
    pub client: AgentClient<AgentChannel>,
    /// Cancelled to end the session.
    pub end: CancellationToken,
    // Number of the session among those of the node; later sessions have larger ones.
    number: u64,
}

/// State of an agent's connection.
#[derive(Debug, Default)]
struct Standing {
    // Set while connected. With a channel that reconnects by itself, never cleared.
    session: Option<Session>,
    // Facts of the last agent that was admitted, or recalled.
    facts: Option<Facts>,
    sessions: u64,
    refused: Option<Refused>,
    history: History,
    // Outlives sessions, so that reconnecting does not refill it.
    budget: Option<Budget>,
}

/// A refused connection or an exceeded bound, as text.
#[derive(Debug)]
struct Refused {
    text: String,
    // Shown until then, even if an agent is admitted; None: until the next one is admitted.
    until: Option<Instant>,
}

impl Refused {
    fn new(refusal: &Refusal) -> Self {
        Self {
            text: refusal.to_string(),
            until: None,
        }
    }

    fn stays(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// The agent of one node.
#[derive(Debug)]
pub struct Agent {
    node: Node,
    standing: Mutex<Standing>,
    inventory: watch::Sender<Inventory>,
    away_grace: Duration,
}

/// Result of [`Agent::enter`].
#[derive(Debug)]
pub(super) enum Entered {
    /// Admitted, as the session of this number.
    Session(u64),
    /// The node has a session; its agent must be asked whether it is alive.
    AskHolder(Standby),
    /// Must first show drives of the node. The number of its sessions so far is passed back to [`Agent::enter`] as `proved`.
    Prove(u64),
}

/// The session that a newcomer would replace.
#[derive(Debug, Clone)]
pub(super) struct Standby {
    pub client: AgentClient<AgentChannel>,
    pub number: u64,
}

impl Agent {
    pub(super) fn new(node: Node, away_grace: Duration) -> Self {
        let mut inventory = Inventory::new(node.clone());
        inventory.away(Instant::now());
        Self {
            inventory: watch::Sender::new(inventory),
            standing: Mutex::default(),
            node,
            away_grace,
        }
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the node id in the form that catalog keys share.
    pub fn node_id(&self) -> Node {
        self.node.clone()
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a client for calls to the agent. Cheap.
    ///
    /// # Errors
    /// [`CallError::NotConnected`]
    pub fn client(&self) -> Result<AgentClient<AgentChannel>, CallError> {
        let standing = self.standing();
        let session = standing.session.as_ref().ok_or(CallError::NotConnected {
            node: self.node.to_string(),
        })?;
        Ok(session.client.clone())
    }

    /// As [`client`](Self::client), for calls whose answers list the moves of a node.
    pub fn client_for_moves(&self) -> Result<AgentClient<AgentChannel>, CallError> {
        let client = self.client()?;
        Ok(client.max_decoding_message_size(MAX_LIST_BYTES))
    }

    /// As [`client`](Self::client), for calls about snapshots and copies. Fails with [`CallError::Outdated`] for an older
    /// agent, which would ignore the source and make an empty volume.
    pub fn client_for_copies(&self) -> Result<AgentClient<AgentChannel>, CallError> {
        let standing = self.standing();
        let node = self.node.to_string();
        match &standing.session {
            None => Err(CallError::NotConnected { node }),
            Some(session) if !session.facts.copies => Err(CallError::Outdated { node }),
            Some(session) => Ok(session.client.clone()),
        }
    }

    /// True if the agent has a session.
    pub fn connected(&self) -> bool {
        self.standing().session.is_some()
    }

    /// Returns the facts of the agent that was admitted or recalled last.
    pub fn facts(&self) -> Option<Facts> {
        self.standing().facts.clone()
    }

    /// Returns the last refusal under this name since an agent was admitted, or the bound that the node exceeded lately, as text.
    pub fn refused(&self) -> Option<String> {
        let standing = self.standing();
        let refused = standing.refused.as_ref();
        let shown = refused.filter(|refused| refused.until.is_none() || refused.stays());
        shown.map(|refused| refused.text.clone())
    }

    /// Returns the node's last sessions and refusals, oldest first.
    pub fn history(&self) -> Vec<Past> {
        self.standing().history.entries().cloned().collect()
    }

    /// Adds a connection's start, end or refusal to the history.
    pub(super) fn remember(&self, past: Past) {
        self.standing().history.add(past);
    }

    /// Reads the current inventory. `read` must be short, since updates wait for it, and must not read another inventory,
    /// which can deadlock with a waiting update.
    pub fn read_inventory<T>(&self, read: impl FnOnce(&Inventory) -> T) -> T {
        let _alone = SingleReader::begin();
        read(&self.inventory.borrow())
    }

    /// Returns the instance of the newest update. Read it before a call whose change is passed to [`shows`](Self::shows).
    pub fn instance(&self) -> String {
        self.read_inventory(|inventory| inventory.instance().to_owned())
    }

    /// True if the agent has been disconnected for at least `--away-grace`.
    pub fn unreachable(&self) -> bool {
        self.read_inventory(|inventory| {
            inventory
                .away_since()
                .is_some_and(|since| since.elapsed() >= self.away_grace)
        })
    }

    /// Waits until the inventory includes this revision of this instance. Returns false if that takes longer than
    /// `deadline`. An acknowledged change is durable either way.
    pub async fn wait_for(&self, instance: &str, revision: u64, deadline: Duration) -> bool {
        let mut receiver = self.inventory.subscribe();
        let shown = receiver.wait_for(|inventory| inventory.includes(instance, revision));
        matches!(tokio::time::timeout(deadline, shown).await, Ok(Ok(_)))
    }

    /// Waits for a change that `instance` acknowledged, as [`wait_for`](Self::wait_for), for at most two seconds. Logs a timeout.
    pub async fn shows(&self, instance: &str, revision: u64) {
        if !self.wait_for(instance, revision, SHOW_DEADLINE).await {
            tracing::warn!(
                node = &*self.node,
                revision,
                "agent acknowledged a change but has not reported it; lists may lack it temporarily"
            );
        }
    }

    /// Admits a new connection, or returns what is required first. `forgotten_nodes`: true if an operator has forgotten
    /// the node, so that a disconnected former agent has no claim to the name. `proved`: the number of sessions from
    /// [`Entered::Prove`], once the newcomer has shown drives of the node.
    pub(super) fn enter(
        &self,
        facts: Facts,
        client: AgentClient<AgentChannel>,
        end: CancellationToken,
        forgotten_nodes: bool,
        proved: Option<u64>,
    ) -> Entered {
        let mut standing = self.standing();
        let connected = standing.session.is_some();
        let has_volumes = || self.read_inventory(|inventory| inventory.counts().volumes > 0);
        let holder = standing.facts.as_ref().map(|facts| Holder {
            facts,
            connected,
            has_volumes: proved != Some(standing.sessions) && !connected && has_volumes(),
        });
        let holder = holder.filter(|holder| holder.connected || !forgotten_nodes);
        match (admit(holder, &facts), &standing.session) {
            (Admission::AskHolder, Some(session)) => {
                return Entered::AskHolder(Standby {
                    client: session.client.clone(),
                    number: session.number,
                });
            }
            (Admission::Prove, _) => return Entered::Prove(standing.sessions),
            _ => {}
        }
        standing.sessions += 1;
        standing.refused.take_if(|refused| !refused.stays());
        standing.facts = Some(facts.clone());
        let number = standing.sessions;
        standing.session = Some(Session {
            facts,
            client,
            end,
            number,
        });
        Entered::Session(number)
    }

    /// Returns and records the refusal of a newcomer whose node has a live session of this number; None if that session has ended.
    pub(super) fn refuse_for(&self, number: u64, new: &Facts) -> Option<Refusal> {
        let mut standing = self.standing();
        let session = standing.session.as_ref();
        let holder = &session.filter(|session| session.number == number)?.facts;
        let refusal = Refusal::Connected {
            node: new.node.clone(),
            holder: holder.instance.clone(),
            holder_machine: holder.machine_id.clone(),
            holder_address: holder.address.clone(),
            instance: new.instance.clone(),
            machine: new.machine_id.clone(),
            address: new.address.clone(),
        };
        standing.refused = Some(Refused::new(&refusal));
        Some(refusal)
    }

    /// Ends the session of this number, whose agent does not answer, and returns its facts. Does nothing if a later one has replaced it.
    pub(super) fn displace(&self, number: u64) -> Option<Facts> {
        let mut standing = self.standing();
        let session = standing
            .session
            .take_if(|session| session.number == number)?;
        session.end.cancel();
        self.away_while_held(&standing);
        Some(session.facts)
    }

    /// Starts a session with the agent behind a channel that reconnects by itself. Such an agent is always admitted.
    pub(super) fn enter_lasting(&self, facts: Facts, client: AgentClient<AgentChannel>) -> u64 {
        let mut standing = self.standing();
        standing.sessions += 1;
        standing.facts = Some(facts.clone());
        let number = standing.sessions;
        standing.session = Some(Session {
            facts,
            client,
            end: CancellationToken::new(),
            number,
        });
        number
    }

    /// Records the refusal of an agent that could not show drives of the node.
    pub(super) fn note_refused(&self, refusal: &Refusal) {
        self.standing().refused = Some(Refused::new(refusal));
    }

    /// Records that the session ended because it exceeded this bound.
    pub(super) fn note_bound(&self, bound: Bound) {
        self.standing().refused = Some(Refused {
            text: format!("session closed: {bound}"),
            until: Some(Instant::now() + SHOW_BOUND),
        });
    }

    /// Charges an update of this many bytes to the node's budget. Returns the time to wait before it is read.
    pub(super) fn spend(&self, bytes: usize) -> Duration {
        let now = Instant::now();
        let mut standing = self.standing();
        let budget = standing.budget.get_or_insert_with(|| Budget::new(now));
        budget.spend(bytes, now)
    }

    /// Ends the session of this number. Does nothing if a later one has replaced it.
    pub(super) fn leave(&self, number: u64) {
        let mut standing = self.standing();
        let left = standing.session.take_if(|session| session.number == number);
        if left.is_some() {
            self.away_while_held(&standing);
        }
    }

    /// Marks the node as disconnected, since the inventory of this session is no longer followed. The session may stay.
    pub(super) fn silent(&self, number: u64) {
        let standing = self.standing();
        if standing.sessions == number {
            self.away_while_held(&standing);
        }
    }

    // The lock is held over the change, so that a later session cannot begin in between and be marked as disconnected.
    fn away_while_held(&self, _standing: &MutexGuard<'_, Standing>) {
        let now = Instant::now();
        self.inventory.send_modify(|inventory| inventory.away(now));
    }

    /// Ends the current session, if there is one.
    pub fn end(&self) {
        if let Some(session) = &self.standing().session {
            session.end.cancel();
        }
    }

    /// Applies an update of this session to the inventory; None if a later session has replaced it.
    pub(super) fn apply(
        &self,
        number: u64,
        update: InventoryUpdate,
        catalog: &Catalog,
    ) -> Option<Result<Foreign, UpdateError>> {
        // The lock is held over the change, so that no later session's snapshot can be applied in between.
        let standing = self.standing();
        if standing.sessions != number {
            return None;
        }
        let mut applied = Ok(Foreign::default());
        self.inventory
            .send_modify(|inventory| applied = inventory.apply(update, catalog));
        Some(applied)
    }

    /// Applies a persisted inventory from before this process began; the node counts as disconnected. Does nothing if its agent
    /// has connected since then.
    pub(super) fn recall(
        &self,
        facts: Facts,
        update: InventoryUpdate,
        catalog: &Catalog,
    ) -> Result<(), UpdateError> {
        // The lock is held over the change, so that no session begins in between and is marked as disconnected.
        let mut standing = self.standing();
        if standing.sessions > 0 {
            return Ok(());
        }
        standing.facts = Some(facts);
        let mut applied = Ok(());
        self.inventory
            .send_modify(|inventory| applied = inventory.recall(update, catalog, Instant::now()));
        applied
    }

    #[cfg(test)]
    pub(crate) fn inventory_for_test(&self, change: impl FnOnce(&mut Inventory)) {
        self.inventory.send_modify(change);
    }

    /// Lists the volumes that the orchestrator expects on the node, until its agent has reported.
    pub(super) fn expect(&self, volumes: &BTreeMap<Uuid, ExpectedVolume>, catalog: &Catalog) {
        self.inventory
            .send_if_modified(|inventory| inventory.expect(volumes, catalog));
    }

    /// Drops the inventory of a forgotten node. Returns false, and does nothing, if its agent is connected.
    pub(super) fn forget(&self, catalog: &Catalog) -> bool {
        let mut standing = self.standing();
        if standing.session.is_some() {
            return false;
        }
        standing.facts = None;
        self.inventory
            .send_modify(|inventory| inventory.clear(catalog));
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{sync::Barrier, thread};

    use tonic::transport::Endpoint;

    use super::*;

    fn facts() -> Facts {
        Facts {
            node: "n".into(),
            identity: None,
            instance: "i".into(),
            machine_id: "m".into(),
            version: String::new(),
            address: String::new(),
            copies: true,
        }
    }

    #[tokio::test]
    async fn only_an_agent_that_supports_copies_is_queried_about_snapshots() {
        let client = AgentClient::new(Endpoint::from_static("http://agent").connect_lazy().into());
        let agent = Agent::new("n".into(), Duration::ZERO);
        let refused = agent.client_for_copies().unwrap_err();
        assert_eq!(refused, CallError::NotConnected { node: "n".into() });
        let older = Facts {
            copies: false,
            ..facts()
        };
        agent.enter_lasting(older, client.clone());
        assert!(agent.client().is_ok());
        let refused = agent.client_for_copies().unwrap_err();
        assert_eq!(refused, CallError::Outdated { node: "n".into() });
        assert!(
            refused
                .to_string()
                .starts_with("node n runs an older agent")
        );
        agent.enter_lasting(facts(), client);
        assert!(agent.client_for_copies().is_ok());
    }

    #[tokio::test]
    async fn a_persisted_inventory_never_replaces_that_of_a_session() {
        let client = AgentClient::new(Endpoint::from_static("http://agent").connect_lazy().into());
        let agent = Agent::new("n".into(), Duration::ZERO);
        let catalog = Catalog::default();
        let snapshot = |instance: &str| InventoryUpdate {
            instance: instance.into(),
            revision: 1,
            full: true,
            ready: true,
            ..InventoryUpdate::default()
        };
        let number = agent.enter_lasting(facts(), client);
        agent
            .apply(number, snapshot("i"), &catalog)
            .unwrap()
            .unwrap();
        let earlier = Facts {
            instance: "earlier".into(),
            ..facts()
        };
        agent
            .recall(earlier, snapshot("earlier"), &catalog)
            .unwrap();
        assert_eq!(agent.facts(), Some(facts()));
        assert!(agent.read_inventory(Inventory::complete));
        assert!(agent.read_inventory(|inventory| inventory.instance() == "i"));
    }

    #[tokio::test]
    async fn the_end_of_a_session_never_marks_the_next_one_disconnected() {
        const ROUNDS: usize = 100_000;
        let client = AgentClient::new(Endpoint::from_static("http://agent").connect_lazy().into());
        let agent = Agent::new("n".into(), Duration::ZERO);
        let catalog = Catalog::default();
        let enter = || match agent.enter(
            facts(),
            client.clone(),
            CancellationToken::new(),
            false,
            None,
        ) {
            Entered::Session(number) => Some(number),
            _ => None,
        };
        let snapshot = || InventoryUpdate {
            instance: "i".into(),
            revision: 1,
            full: true,
            ready: true,
            ..InventoryUpdate::default()
        };
        let mut number = enter().unwrap();
        let (start, done) = (Barrier::new(2), Barrier::new(2));
        let leaving = Mutex::new(number);
        let marked = thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    start.wait();
                    let number = *leaving.lock().unwrap();
                    agent.leave(number);
                    done.wait();
                }
            });
            let mut marked = 0;
            for _ in 0..ROUNDS {
                *leaving.lock().unwrap() = number;
                start.wait();
                number = loop {
                    if let Some(number) = enter() {
                        break number;
                    }
                    std::hint::spin_loop();
                };
                agent.apply(number, snapshot(), &catalog).unwrap().unwrap();
                done.wait();
                marked += usize::from(!agent.read_inventory(Inventory::complete));
            }
            marked
        });
        assert_eq!(
            marked, 0,
            "of {ROUNDS} sessions marked disconnected while they stand"
        );
    }
}
