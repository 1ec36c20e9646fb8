//! One node's agent: its session while there is one, and its inventory, which outlives sessions.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use drivebay_proto::agent::{InventoryUpdate, agent_client::AgentClient};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::{
    admission::{Admission, Facts, Holder, Refusal, admit},
    single_reader::SingleReader,
};
use crate::{
    call::CallError,
    catalog::Catalog,
    inventory::{Gap, Inventory},
};

/// How long an acknowledged change may take to show in lists before the answer goes out anyway.
const SHOW_DEADLINE: Duration = Duration::from_secs(2);
/// Instances that made way for others, kept to see when one of them is still alive.
const MAX_FENCED: usize = 8;

/// A connection to an agent that has said hello and was let in.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// Who is at the other end.
    pub facts: Facts,
    /// To call it with.
    pub client: AgentClient<Channel>,
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
    fenced: VecDeque<String>,
    sessions: u64,
    refused: Option<String>,
}

/// One node's agent.
#[derive(Debug)]
pub struct Agent {
    node: Arc<str>,
    standing: Mutex<Standing>,
    inventory: watch::Sender<Inventory>,
    away_grace: Duration,
}

/// What came of a hello.
#[derive(Debug)]
pub(super) enum Entered {
    /// It was let in, under this number.
    Session(u64),
    /// It has to show whose drives it has, first.
    Prove,
}

impl Agent {
    pub(super) fn new(node: Arc<str>, away_grace: Duration) -> Self {
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

    /// The node id, shared.
    pub fn node_id(&self) -> Arc<str> {
        self.node.clone()
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client to call the agent with, while it is connected; cheap.
    pub fn client(&self) -> Result<AgentClient<Channel>, CallError> {
        let standing = self.standing();
        let session = standing.session.as_ref().ok_or(CallError::NotConnected {
            node: self.node.to_string(),
        })?;
        Ok(session.client.clone())
    }

    /// Whether a session stands.
    pub fn connected(&self) -> bool {
        self.standing().session.is_some()
    }

    /// Its identity, as last received.
    pub fn facts(&self) -> Option<Facts> {
        self.standing().facts.clone()
    }

    /// Who was refused under this name since the last that was let in, in words.
    pub fn refused(&self) -> Option<String> {
        self.standing().refused.clone()
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

    /// Lets a new connection in, or says why not. `forgotten_nodes`: an operator has forgotten the node, so whoever
    /// had the name before has no claim to it. `proved`: it has shown to have the former machine's drives.
    pub(super) fn enter(
        &self,
        facts: Facts,
        client: AgentClient<Channel>,
        end: CancellationToken,
        forgotten_nodes: bool,
        proved: bool,
    ) -> Result<Entered, Box<Refusal>> {
        let has_volumes = self.look(|inventory| inventory.counts().volumes > 0);
        let mut standing = self.standing();
        let fenced: Vec<String> = standing.fenced.iter().cloned().collect();
        let connected = standing.session.is_some();
        let holder = standing.facts.as_ref().map(|facts| Holder {
            facts,
            connected,
            fenced: &fenced,
            has_volumes: has_volumes && !proved,
        });
        let holder = holder.filter(|holder| holder.connected || !forgotten_nodes);
        match admit(holder, &facts) {
            Admission::Enter => {}
            Admission::Prove => return Ok(Entered::Prove),
            Admission::Refuse(refusal) => {
                standing.refused = Some(refusal.to_string());
                return Err(Box::new(refusal));
            }
        }
        if let Some(old) = standing.session.take() {
            tracing::info!(
                node = facts.node,
                old = old.facts.instance,
                old_address = old.facts.address,
                new = facts.instance,
                address = facts.address,
                "agent reconnected; its previous session is replaced"
            );
            if old.facts.instance != facts.instance {
                standing.fenced.push_back(old.facts.instance.clone());
                if standing.fenced.len() > MAX_FENCED {
                    standing.fenced.pop_front();
                }
            }
            old.end.cancel();
        }
        standing.sessions += 1;
        standing.refused = None;
        standing.facts = Some(facts.clone());
        let number = standing.sessions;
        standing.session = Some(Session {
            facts,
            client,
            end,
            number,
        });
        Ok(Entered::Session(number))
    }

    /// Takes the agent behind a channel that reconnects by itself: whoever answers there is the one.
    pub(super) fn enter_lasting(&self, facts: Facts, client: AgentClient<Channel>) -> u64 {
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
        self.standing().refused = Some(refusal.to_string());
    }

    /// The session has ended. A later one is left alone.
    pub(super) fn leave(&self, number: u64) {
        let mut standing = self.standing();
        if standing
            .session
            .as_ref()
            .is_some_and(|session| session.number == number)
        {
            standing.session = None;
            drop(standing);
            self.silent(number);
        }
    }

    /// The inventory of this session is not followed any more, though the session may stand.
    pub(super) fn silent(&self, number: u64) {
        if self.standing().sessions == number {
            let now = Instant::now();
            self.inventory.send_modify(|inventory| inventory.away(now));
        }
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
    ) -> Option<Result<(), Gap>> {
        // Held over the change, so that no later session's snapshot can come in between.
        let standing = self.standing();
        if standing.sessions != number {
            return None;
        }
        let mut applied = Ok(());
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
    ) -> Result<(), Gap> {
        self.standing().facts = Some(facts);
        let mut applied = Ok(());
        self.inventory.send_modify(|inventory| {
            applied = inventory.apply(update, catalog);
            inventory.away(Instant::now());
        });
        applied
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
