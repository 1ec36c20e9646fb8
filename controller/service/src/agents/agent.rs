//! One node's agent: its session while there is one, and its inventory, which outlives sessions.

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
    single_reader::SingleReader,
};
use crate::{
    bounds::{Bound, Budget},
    call::CallError,
    catalog::{Catalog, Node},
    expected::ExpectedVolume,
    inventory::{Foreign, Inventory, UpdateError},
};

/// How long an acknowledged change may take to show in lists before the answer goes out anyway.
const SHOW_DEADLINE: Duration = Duration::from_secs(2);

/// That a node exceeded a bound is shown for so long, also while it is connected again: it may exceed it every minute.
const SHOW_BOUND: Duration = Duration::from_secs(15 * 60);

/// A connection to an agent that has said hello and was let in.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// Who is at the other end.
    pub facts: Facts,
    /// To call it with.
    pub client: AgentClient<AgentChannel>,
    /// Ends the session.
    pub end: CancellationToken,
    // Tells sessions of one node apart; the later has the larger.
    number: u64,
}

/// An agent as it was when it last sent something.
#[derive(Debug, Default)]
struct Standing {
    // While connected, or forever for a channel that reconnects by itself.
    session: Option<Session>,
    // The last that was let in.
    facts: Option<Facts>,
    sessions: u64,
    refused: Option<Refused>,
    history: History,
    // Outlives sessions: an agent that connects again has no new one.
    budget: Option<Budget>,
}

/// Who was refused, in words.
#[derive(Debug)]
struct Refused {
    text: String,
    // Shown until then, whoever is let in; None: until the next one is.
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

/// One node's agent.
#[derive(Debug)]
pub struct Agent {
    node: Node,
    standing: Mutex<Standing>,
    inventory: watch::Sender<Inventory>,
    away_grace: Duration,
}

/// What came of a hello.
#[derive(Debug)]
pub(super) enum Entered {
    /// It was let in, under this number.
    Session(u64),
    /// A session stands; its agent has to be asked.
    AskHolder(Standby),
    /// It has to show whose drives it has, first: those of the node as it is after so many sessions.
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

    /// The node id.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The node id as the keys of its volumes have it.
    pub fn node_id(&self) -> Node {
        self.node.clone()
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client to call the agent with, while it is connected; cheap.
    pub fn client(&self) -> Result<AgentClient<AgentChannel>, CallError> {
        let standing = self.standing();
        let session = standing.session.as_ref().ok_or(CallError::NotConnected {
            node: self.node.to_string(),
        })?;
        Ok(session.client.clone())
    }

    /// As [`client`](Self::client), for calls about snapshots and copies: an older agent would make an empty volume.
    pub fn client_for_copies(&self) -> Result<AgentClient<AgentChannel>, CallError> {
        let standing = self.standing();
        let node = self.node.to_string();
        match &standing.session {
            None => Err(CallError::NotConnected { node }),
            Some(session) if !session.facts.copies => Err(CallError::Outdated { node }),
            Some(session) => Ok(session.client.clone()),
        }
    }

    /// Whether a session stands.
    pub fn connected(&self) -> bool {
        self.standing().session.is_some()
    }

    /// Its identity, as last received.
    pub fn facts(&self) -> Option<Facts> {
        self.standing().facts.clone()
    }

    /// Who was refused under this name since the last that was let in, or which bound the node has exceeded lately, in
    /// words.
    pub fn refused(&self) -> Option<String> {
        let standing = self.standing();
        let refused = standing.refused.as_ref();
        let shown = refused.filter(|refused| refused.until.is_none() || refused.stays());
        shown.map(|refused| refused.text.clone())
    }

    /// Its last sessions and refusals, oldest first.
    pub fn history(&self) -> Vec<Past> {
        self.standing().history.entries().cloned().collect()
    }

    /// Keeps what became of a connection.
    pub(super) fn remember(&self, past: Past) {
        self.standing().history.add(past);
    }

    /// Looks at the inventory, now. Short: updates wait meanwhile. `read` looks at no inventory itself, or both may
    /// wait for an update for ever.
    pub fn look<T>(&self, read: impl FnOnce(&Inventory) -> T) -> T {
        let _alone = SingleReader::begin();
        read(&self.inventory.borrow())
    }

    /// The agent process as last heard of, for [`shows`](Self::shows) after a call.
    pub fn instance(&self) -> String {
        self.look(|inventory| inventory.instance().to_owned())
    }

    /// Whether the agent has been away for so long that its volumes count as unreachable.
    pub fn unreachable(&self) -> bool {
        self.look(|inventory| {
            inventory
                .away_since()
                .is_some_and(|since| since.elapsed() >= self.away_grace)
        })
    }

    /// Waits until the inventory shows this revision of this instance; false when that takes
    /// longer than `deadline`. What was acknowledged is durable either way.
    pub async fn wait_for(&self, instance: &str, revision: u64, deadline: Duration) -> bool {
        let mut seen = self.inventory.subscribe();
        let shown = seen.wait_for(|inventory| inventory.includes(instance, revision));
        matches!(tokio::time::timeout(deadline, shown).await, Ok(Ok(_)))
    }

    /// [`wait_for`](Self::wait_for) after a change that `instance` acknowledged, as long as a caller can be kept waiting.
    pub async fn shows(&self, instance: &str, revision: u64) {
        if !self.wait_for(instance, revision, SHOW_DEADLINE).await {
            tracing::warn!(
                node = &*self.node,
                revision,
                "agent acknowledged a change but has not reported it; lists may lack it temporarily"
            );
        }
    }

    /// Lets a new connection in, or says what has to come first. `forgotten_nodes`: an operator has forgotten the node, so
    /// whoever had the name before has no claim to it. `proved`: it has shown to have the drives of the node as it was
    /// after so many sessions.
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
        let has_volumes = || self.look(|inventory| inventory.counts().volumes > 0);
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

    /// Refuses a newcomer because the session of this number stands and its agent answers; None when it has ended since.
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

    /// Ends the session of this number, whose agent does not answer; answers with who had it. A later one is left alone.
    pub(super) fn displace(&self, number: u64) -> Option<Facts> {
        let mut standing = self.standing();
        let session = standing
            .session
            .take_if(|session| session.number == number)?;
        session.end.cancel();
        self.away_while_held(&standing);
        Some(session.facts)
    }

    /// Takes the agent behind a channel that reconnects by itself: whoever answers there is the one.
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

    /// Notes who was refused after it could not prove itself.
    pub(super) fn note_refused(&self, refusal: &Refusal) {
        self.standing().refused = Some(Refused::new(refusal));
    }

    /// Notes that its session ended because of what it sent.
    pub(super) fn note_bound(&self, bound: Bound) {
        self.standing().refused = Some(Refused {
            text: format!("session closed: {bound}"),
            until: Some(Instant::now() + SHOW_BOUND),
        });
    }

    /// Takes an update of this size out of the node's budget; how long to wait before it is read.
    pub(super) fn spend(&self, bytes: usize) -> Duration {
        let now = Instant::now();
        let mut standing = self.standing();
        let budget = standing.budget.get_or_insert_with(|| Budget::new(now));
        budget.spend(bytes, now)
    }

    /// The session has ended. A later one is left alone.
    pub(super) fn leave(&self, number: u64) {
        let mut standing = self.standing();
        let left = standing.session.take_if(|session| session.number == number);
        if left.is_some() {
            self.away_while_held(&standing);
        }
    }

    /// The inventory of this session is not followed any more, though the session may stand.
    pub(super) fn silent(&self, number: u64) {
        let standing = self.standing();
        if standing.sessions == number {
            self.away_while_held(&standing);
        }
    }

    // With the lock held over the change, no later session can come in between and be marked.
    fn away_while_held(&self, _standing: &MutexGuard<'_, Standing>) {
        let now = Instant::now();
        self.inventory.send_modify(|inventory| inventory.away(now));
    }

    /// Ends the session that stands.
    pub fn end(&self) {
        if let Some(session) = &self.standing().session {
            session.end.cancel();
        }
    }

    /// Takes in an update of this session; None when a later session has taken its place.
    pub(super) fn apply(
        &self,
        number: u64,
        update: InventoryUpdate,
        catalog: &Catalog,
    ) -> Option<Result<Foreign, UpdateError>> {
        // Held over the change, so that no later session's snapshot can come in between.
        let standing = self.standing();
        if standing.sessions != number {
            return None;
        }
        let mut applied = Ok(Foreign::default());
        self.inventory
            .send_modify(|inventory| applied = inventory.apply(update, catalog));
        Some(applied)
    }

    /// Takes in what was known of the node before this process began; the node counts as away.
    pub(super) fn recall(
        &self,
        facts: Facts,
        update: InventoryUpdate,
        catalog: &Catalog,
    ) -> Result<(), UpdateError> {
        self.standing().facts = Some(facts);
        let mut applied = Ok(());
        self.inventory
            .send_modify(|inventory| applied = inventory.recall(update, catalog, Instant::now()));
        applied
    }

    #[cfg(test)]
    pub(crate) fn inventory_for_test(&self, change: impl FnOnce(&mut Inventory)) {
        self.inventory.send_modify(change);
    }

    /// Lists what an orchestrator says is there, until the agent has told.
    pub(super) fn expect(&self, volumes: &BTreeMap<Uuid, ExpectedVolume>, catalog: &Catalog) {
        self.inventory
            .send_if_modified(|inventory| inventory.expect(volumes, catalog));
    }

    /// Drops what is known of its volumes, as they were given up. Not while it is connected.
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
    async fn only_an_agent_that_says_that_it_copies_is_asked_about_snapshots() {
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
                marked += usize::from(!agent.look(Inventory::complete));
            }
            marked
        });
        assert_eq!(
            marked, 0,
            "of {ROUNDS} sessions marked disconnected while they stand"
        );
    }
}
