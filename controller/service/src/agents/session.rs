//! One session: hello, admission, then the inventory until the connection ends.

use std::{
    pin::Pin,
    sync::{Arc, Weak},
    time::Duration,
};

use drivebay_proto::{
    agent::{HelloRequest, HelloResponse, RefusedRequest, agent_client::AgentClient},
    names,
    volume_id::is_node_id,
};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::{
    Agent, AgentChannel, Entered, IdentityLimit, Inner, Standby,
    admission::{Facts, Identity, Refusal},
    follow::{Watched, has_drives_of},
    history::{Past, host},
    session_error::SessionError,
    updates::MessageLimit,
};
use crate::{
    audit::Record,
    call::{CallError, call},
    peer_log::printable,
    tokens::{self, Tokens},
};

/// Timeout of the hello of an agent that accepted a connection.
const HELLO_DEADLINE: Duration = Duration::from_secs(5);
/// Largest accepted answer to a call about one volume, bytes.
const MAX_ANSWER_BYTES: usize = 128 << 10;
/// Largest accepted answer that lists moves, bytes: 800 for each of the volumes that a node may have.
pub(super) const MAX_LIST_BYTES: usize = 16 << 20;
/// Largest accepted hello, bytes.
const MAX_HELLO_BYTES: usize = 64 << 10;
/// Timeout of the hello to the session that a newcomer would replace: beyond it, its agent counts as dead.
const ALIVE_DEADLINE: Duration = Duration::from_secs(3);
/// Timeout of sending the reason of a refusal to the agent.
const REFUSED_DEADLINE: Duration = Duration::from_secs(1);
/// Time in which a machine that must show drives first has to scan them all.
const PROOF_DEADLINE: Duration = Duration::from_secs(300);

/// A connection that may become a session.
#[derive(Debug)]
pub struct Visitor {
    /// Must not be one that reconnects.
    pub channel: AgentChannel,
    /// Address of the peer, for logs and outputs.
    pub address: String,
    /// Proved identity; None if none is required, or if it is to be proved by a token.
    pub identity: Option<Identity>,
    /// Verifier of tokens, and the limit that counts the identity which they prove; None: no token is required.
    pub tokens: Option<(Tokens, IdentityLimit)>,
    /// Cancelled once the agent has presented a token that may be good, or needs none.
    pub recognized: CancellationToken,
    /// Cancelled to end the connection.
    pub end: CancellationToken,
}

async fn hello(
    client: &AgentClient<AgentChannel>,
    announce: HelloRequest,
) -> Result<HelloResponse, SessionError> {
    // The peer is not authenticated yet, so nothing large is accepted from it.
    let mut client = client.clone().max_decoding_message_size(MAX_HELLO_BYTES);
    let response = async move { client.hello(announce).await };
    let hello = call(HELLO_DEADLINE, response)
        .await
        .map_err(SessionError::Hello)?;
    if !is_node_id(&hello.node_id) {
        return Err(SessionError::NodeId(printable(&hello.node_id)));
    }
    let ours = (names::AGENT_PROTOCOL, names::OLDEST_AGENT_PROTOCOL);
    if !names::protocols_meet(ours, (hello.protocol, hello.oldest_protocol)) {
        return Err(SessionError::Version {
            node: hello.node_id,
            version: printable(&hello.version),
            oldest: hello.oldest_protocol,
            newest: hello.protocol,
            ours_oldest: ours.1,
            ours: ours.0,
        });
    }
    Ok(hello)
}

fn facts(hello: HelloResponse, identity: Option<Identity>, address: String) -> Facts {
    Facts {
        node: hello.node_id,
        identity,
        instance: printable(&hello.instance),
        machine_id: printable(&hello.machine_id),
        version: printable(&hello.version),
        address,
        copies: hello.copies,
    }
}

/// Runs [`Agents::visit`](super::Agents::visit). Counts a refusal, and sends the agent the reason of the end if its operator can act on it.
pub(super) async fn visit(
    inner: &Arc<Inner>,
    visitor: Box<Visitor>,
    announce: HelloRequest,
) -> SessionError {
    let client =
        AgentClient::new(visitor.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
    let (end, address) = (visitor.end.clone(), visitor.address.clone());
    let ended = tokio::select! {
        error = admitted(inner, &client, visitor, announce) => error,
        () = end.cancelled() => SessionError::Stopped,
    };
    if let Some(reason) = ended.refusal() {
        inner.refusals.count(reason);
    }
    if ended.is_before_a_session() && inner.log.allows("audit", host(&address)) {
        let node = ended.nodes().first().map_or("?", |node| *node);
        let text = ended.to_string();
        inner.record(|| Record::session("session", node, &address, None, false, &text));
    }
    for node in ended.nodes() {
        // A stated name that was not proved adds no node.
        if let Some(agent) = inner.get(node) {
            agent.remember(Past::ended(&ended, &address));
        }
    }
    if let Some(reason) = ended.for_peer() {
        let mut client = client;
        let notification = Box::pin(client.refused(RefusedRequest { reason }));
        // Best effort: this controller's log has the reason in any case.
        let _ = tokio::time::timeout(REFUSED_DEADLINE, notification).await;
    }
    end.cancel();
    ended
}

// Completes with the reason when the proof no longer holds.
type Unproven = Pin<Box<dyn Future<Output = String> + Send>>;

// Ends the session when dropped, wherever it was cancelled.
struct Stay {
    agent: Arc<Agent>,
    number: u64,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.agent.leave(self.number);
    }
}

async fn admitted(
    inner: &Arc<Inner>,
    client: &AgentClient<AgentChannel>,
    visitor: Box<Visitor>,
    announce: HelloRequest,
) -> SessionError {
    let hello = match Box::pin(hello(client, announce.clone())).await {
        Ok(hello) => hello,
        Err(SessionError::Hello(CallError::Answered {
            code: Code::AlreadyExists,
            ..
        })) => return SessionError::MetAlready,
        Err(error) => return error,
    };
    if let Some(identity) = &visitor.identity
        && identity.node() != hello.node_id
    {
        return SessionError::OtherCertificate {
            address: visitor.address,
            stated: hello.node_id,
            certified: identity.node().to_owned(),
        };
    }
    let channel = visitor.channel;
    let mut identity = visitor.identity;
    let mut counted = None;
    let mut unproven: Unproven = Box::pin(std::future::pending());
    if let Some((tokens, identities)) = visitor.tokens
        && identity.is_none()
    {
        let shown = tokens::prove(client, &tokens, || visitor.recognized.cancel());
        let proven = match Box::pin(shown).await {
            Ok(proven) => proven,
            Err(source) => {
                let address = visitor.address;
                return SessionError::NotProven { address, source };
            }
        };
        if proven.node != hello.node_id {
            return SessionError::OtherNode {
                address: visitor.address,
                stated: hello.node_id,
                proven: proven.node,
            };
        }
        let proved = Identity::ServiceAccount {
            node: proven.node.clone(),
        };
        counted = identities.enter(Some(&proved));
        if counted.is_none() {
            return SessionError::TooMany(proven.node);
        }
        identity = Some(proved);
        unproven = Box::pin(tokens::until_unproven(client.clone(), tokens, proven));
    }
    visitor.recognized.cancel();
    let facts = facts(hello, identity, visitor.address);
    let agent = inner.enrol(&facts.node);
    let (address, identity) = (facts.address.clone(), facts.identity.clone());
    let newcomer = Newcomer {
        client,
        channel,
        facts,
        announce,
        end: visitor.end,
        unproven,
    };
    let error = newcomer.enter(inner, &agent).await;
    agent.remember(Past::ended(&error, &address));
    if inner.log.allows("audit", agent.node()) {
        let (node, text) = (agent.node(), error.to_string());
        inner.record(|| {
            let allowed = error.refusal().is_none();
            Record::session(
                "session-end",
                node,
                &address,
                identity.as_ref().map(Identity::proof),
                allowed,
                &text,
            )
        });
    }
    drop(counted);
    error
}

/// An agent whose identity is proved.
struct Newcomer<'a> {
    client: &'a AgentClient<AgentChannel>,
    channel: AgentChannel,
    facts: Facts,
    announce: HelloRequest,
    end: CancellationToken,
    unproven: Unproven,
}

impl Newcomer<'_> {
    // Runs the session from admission to its end.
    async fn enter(self, inner: &Arc<Inner>, agent: &Arc<Agent>) -> SessionError {
        let Self {
            client,
            channel,
            facts,
            announce,
            end,
            unproven,
        } = self;
        let mut proved = None;
        let number = loop {
            let forgotten_nodes = inner.is_given_up(&facts.node);
            let entered = agent.enter(
                facts.clone(),
                client.clone(),
                end.clone(),
                forgotten_nodes.is_some(),
                proved,
            );
            match entered {
                Entered::Session(number) => {
                    if let Some(at) = forgotten_nodes {
                        inner.notes.returned(&facts.node, at);
                        tracing::warn!(
                            node = facts.node,
                            "forgotten node connected; volumes deleted meanwhile are quarantined on it: remove its entry from the configuration with `node remember`"
                        );
                    }
                    break number;
                }
                Entered::AskHolder(standby) => {
                    let query = query_holder(inner, agent, standby, &facts, announce.clone());
                    if let Some(refusal) = Box::pin(query).await {
                        return Box::new(refusal).into();
                    }
                }
                Entered::Prove(sessions) => {
                    match Box::pin(prove(inner, agent, &channel, &facts)).await {
                        Ok(()) => proved = Some(sessions),
                        Err(error) => {
                            if let SessionError::Bound(bound) = &error {
                                agent.note_bound(*bound);
                            }
                            return error;
                        }
                    }
                }
            }
        };
        if inner.log.allows("agent connected", &facts.node) {
            tracing::info!(
                node = facts.node,
                version = facts.version,
                address = facts.address,
                instance = facts.instance,
                "agent connected"
            );
        }
        agent.remember(Past::connected(&facts));
        if inner.log.allows("audit", &facts.node) {
            inner.record(|| {
                let (node, proof) = (&facts.node, facts.identity.as_ref().map(Identity::proof));
                Record::session("session", node, &facts.address, proof, true, "connected")
            });
        }
        let stay = Stay {
            agent: agent.clone(),
            number,
        };
        let session = Watched {
            inner: Arc::downgrade(inner),
            agent: &stay.agent,
            number,
            channel: &channel,
            limit: MessageLimit::REMOTE,
        };
        let error = tokio::select! {
            error = session.watch() => error,
            why = unproven => SessionError::Unproven(why),
        };
        if let SessionError::Bound(bound) = &error {
            stay.agent.note_bound(*bound);
        }
        drop(stay);
        error
    }
}

// Refuses the newcomer if the agent of the current session gives any answer; ends that session if not.
async fn query_holder(
    inner: &Inner,
    agent: &Agent,
    holder: Standby,
    new: &Facts,
    announce: HelloRequest,
) -> Option<Refusal> {
    let mut client = holder.client.max_decoding_message_size(MAX_HELLO_BYTES);
    let response = async move { client.hello(announce).await };
    let answered = call(ALIVE_DEADLINE, response).await;
    if matches!(answered, Ok(_) | Err(CallError::Answered { .. })) {
        return agent.refuse_for(holder.number, new);
    }
    if let Some(old) = agent.displace(holder.number)
        && inner.log.allows("session displaced", &new.node)
    {
        tracing::info!(
            node = new.node,
            old = old.instance,
            old_address = old.address,
            new = new.instance,
            address = new.address,
            "agent of the node's previous session does not answer; session closed for a new connection"
        );
    }
    None
}

// Requires that a newcomer with another machine or key shows drives of the node.
async fn prove(
    inner: &Inner,
    agent: &Agent,
    channel: &AgentChannel,
    new: &Facts,
) -> Result<(), SessionError> {
    let old = agent.facts();
    let what = Refusal::difference(old.as_ref(), new);
    if inner.log.allows("agent has to show drives", &new.node) {
        tracing::warn!(
            node = new.node,
            machine = new.machine_id,
            what,
            "agent with another machine or key connected for a disconnected node; accepted only if it has that node's drives"
        );
    }
    let same_machine = old
        .as_ref()
        .is_some_and(|old| old.machine_id == new.machine_id);
    let shown = has_drives_of(channel, agent, &inner.catalog, same_machine);
    match tokio::time::timeout(PROOF_DEADLINE, shown).await {
        Err(_) => Err(SessionError::NotProved(PROOF_DEADLINE)),
        Ok(Err(error)) => Err(error),
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => {
            let refusal = Refusal::NotItsDrives {
                node: new.node.clone(),
                holder: old.map(|old| old.machine_id).unwrap_or_default(),
                machine: new.machine_id.clone(),
                address: new.address.clone(),
                what,
            };
            agent.note_refused(&refusal);
            Err(Box::new(refusal).into())
        }
    }
}

/// Runs one session with the agent behind a channel that reconnects by itself.
pub(super) async fn visit_lasting(inner: &Weak<Inner>, channel: &AgentChannel) -> SessionError {
    let limit = MessageLimit::LOCAL;
    let client = AgentClient::new(channel.clone()).max_decoding_message_size(limit.encoded);
    let hello = match hello(&client, HelloRequest::default()).await {
        Ok(hello) => hello,
        Err(error) => return error,
    };
    let facts = facts(hello, None, String::new());
    let agent = {
        let Some(inner) = inner.upgrade() else {
            return SessionError::Stopped;
        };
        inner.enrol(&facts.node)
    };
    let number = agent.enter_lasting(facts, client);
    let session = Watched {
        inner: inner.clone(),
        agent: &agent,
        number,
        channel,
        limit,
    };
    let error = session.watch().await;
    agent.silent(number);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_meet_when_they_have_one_in_common() {
        for (a, b, meet) in [
            ((1, 1), (1, 1), true),
            ((0, 0), (1, 1), true),
            ((2, 1), (1, 1), true),
            ((2, 1), (0, 0), true),
            ((2, 2), (1, 1), false),
            ((3, 2), (2, 1), true),
            ((3, 3), (2, 1), false),
        ] {
            assert_eq!(names::protocols_meet(a, b), meet, "{a:?} {b:?}");
            assert_eq!(names::protocols_meet(b, a), meet, "{b:?} {a:?}");
        }
    }
}
