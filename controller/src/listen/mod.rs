//! Server side of agents' connections: accepts them, performs TLS, and runs each one's session until it ends.
//!
//! The controller is the server of the connection and its TLS, and the client of the gRPC on it. Until an agent is admitted,
//! each step has a timeout of five seconds, and no large message is accepted. Steps that a session takes once are boxed, here
//! and in `agents`: a task is as large as its largest step for as long as it runs, and there are thousands of tasks.

mod limit;
mod listener;
mod once;

use std::{io, time::Duration};

use drivebay_common::local::{self, PeerError};

use drivebay_proto::{agent::HelloRequest, names};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, rustls::pki_types::CertificateDer};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    listen::{
        limit::{ConnectionLimit, Most, Open, Place},
        listener::{Accepted, Connection},
        once::channel_over,
    },
    tls::{self, Credentials, Role},
};
use drivebay_service::{
    agents::{Agents, Identity, IdentityLimit, SessionError, Visitor},
    peer_log::printable_sentence,
    refusals::Reason,
    tokens::Tokens,
};

pub use listener::{ListenAddress, ListenError, Listener};

/// Timeout of a handshake, including the wait for a slot. Agents use the same timeout.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Limits of unauthenticated connections. Each costs a file descriptor and a few kilobytes.
const UNAUTHENTICATED: Most = Most {
    // Many nodes may share one address by NAT; those that are closed connect again.
    of_source: 1024,
    open: 8192,
    at_work: 512,
    // Enough for that many handshakes on a slow processor.
    patience: Duration::from_secs(2),
};
/// Most connections of one identity, including those before their hello. An agent has one session here, but a former dead
/// connection may not be detected yet, and a virtual address may lead here several times.
const OF_IDENTITY: usize = 4;
/// Interval of the summaries of suppressed log lines.
const SUMMARIZE: Duration = Duration::from_secs(60);
/// Delay after an accept that failed for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Time for sessions to close at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// Authentication of agents that connect over TCP.
#[derive(Debug, Clone)]
pub enum Security {
    /// By certificates of the trusted CA.
    Mtls(Credentials),
    /// By ServiceAccount tokens, over connections with only a server certificate; or by certificates, for agents that have one.
    Tokens(Credentials, Tokens),
}

impl Security {
    fn tokens(&self) -> Option<Tokens> {
        match self {
            Self::Tokens(_, tokens) => Some(tokens.clone()),
            Self::Mtls(_) => None,
        }
    }
}

/// Contents of this controller's hello to agents.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// Random id of this process.
    pub instance: Uuid,
    /// Number of replicas; 1 if unknown.
    pub replicas: u32,
}

impl Announcement {
    fn hello(&self) -> HelloRequest {
        HelloRequest {
            protocol: names::AGENT_PROTOCOL,
            oldest_protocol: names::OLDEST_AGENT_PROTOCOL,
            controller_instance: self.instance.to_string(),
            controller_version: env!("CARGO_PKG_VERSION").to_owned(),
            replicas: self.replicas,
        }
    }
}

/// Accepts agents until `stop`; then gives sessions two seconds to close.
pub async fn serve(
    listener: Listener,
    announce: Announcement,
    agents: Agents,
    stop: CancellationToken,
) {
    let limit = ConnectionLimit::new(UNAUTHENTICATED);
    let identities = IdentityLimit::new(OF_IDENTITY);
    let (refusals, log) = (agents.refusals().clone(), agents.peer_log().clone());
    let sessions = TaskTracker::new();
    let mut summarize = tokio::time::interval(SUMMARIZE);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            _ = summarize.tick() => {
                log.summarize();
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let Accepted {
            connection,
            address,
            source,
        } = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_the_peers(&error) => continue,
            Err(error) => {
                tracing::error!(%error, "cannot accept an agent's connection; check the open file limit");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(open) = limit.open(source) else {
            refusals.count(Reason::SourceConnections);
            if log.allows("connections closed", &source.to_string()) {
                tracing::warn!(
                    %source,
                    "too many unauthenticated connections from this address; new ones are closed"
                );
            }
            continue;
        };
        let agents = agents.clone();
        let (refusals, log, identities) = (refusals.clone(), log.clone(), identities.clone());
        let hello = announce.hello();
        let end = stop.child_token();
        sessions.spawn(async move {
            let shaking = Box::pin(async {
                let place = open.enter().await;
                tokio::select! {
                    shaken = shake_hands(connection) => shaken.map(|shaken| (shaken, place)),
                    () = place.turned_away() => Err(HandshakeError::TurnedAway),
                }
            });
            let shaken = tokio::select! {
                shaken = tokio::time::timeout(HANDSHAKE, shaking) => {
                    shaken.unwrap_or_else(|_| Err(HandshakeError::Silent))
                }
                () = end.cancelled() => return,
            };
            let (shaken, place) = match shaken {
                Ok(shaken) => shaken,
                Err(error) => {
                    refusals.count(match error {
                        HandshakeError::TurnedAway => Reason::Connections,
                        _ => Reason::Handshake,
                    });
                    if log.allows("connection rejected", &source.to_string()) {
                        let error = printable_sentence(&error.to_string());
                        tracing::warn!(%address, %error, "connection rejected");
                    }
                    return;
                }
            };
            let Some(_counted) = identities.enter(shaken.identity.as_ref()) else {
                refusals.count(Reason::IdentityConnections);
                let node = shaken.identity.as_ref().map_or("?", Identity::node);
                if log.allows("connections of identity closed", node) {
                    tracing::warn!(
                        %address,
                        node,
                        most = OF_IDENTITY,
                        "too many connections with this node's certificate; new ones are closed"
                    );
                }
                return;
            };
            // An agent without a certificate counts as unauthenticated until it has shown a token.
            let tokens = shaken.security.as_ref().and_then(Security::tokens);
            let stranger = shaken.identity.is_none().then(|| {
                Box::new(Stranger {
                    open,
                    place,
                    tokens: tokens.map(|tokens| (tokens, identities)),
                })
            });
            attend(shaken, stranger, &agents, address, hello, end).await;
        });
    }
    sessions.close();
    let _ = tokio::time::timeout(DRAIN, sessions.wait()).await;
}

// True if the peer closed the connection before it was accepted.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Reason why a connection ended before its hello.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    #[error("it has not finished its handshake within {} s", HANDSHAKE.as_secs())]
    Silent,
    #[error(
        "too many connections at a time do not say who they are, and it was the oldest of them"
    )]
    TurnedAway,
    #[error("{0}")]
    Tls(String),
    #[error("its certificate is good, but {0}")]
    NoNode(#[from] tls::NoNodeId),
    #[error("it has no certificate")]
    NoCertificate,
    #[error("{0}")]
    Peer(#[from] PeerError),
}

/// Slots that an unauthenticated connection occupies.
struct Stranger {
    #[allow(dead_code, reason = "held until the connection is known")]
    open: Open,
    place: Place,
    tokens: Option<(Tokens, IdentityLimit)>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection after its handshake.
struct Authenticated {
    stream: Box<dyn Stream>,
    identity: Option<Identity>,
    // The peer's certificates; empty without client certificates.
    chain: Vec<CertificateDer<'static>>,
    // None for a unix socket.
    security: Option<Security>,
}

async fn shake_hands(connection: Connection) -> Result<Authenticated, HandshakeError> {
    match connection {
        Connection::Tcp(stream, security) => shake_hands_tls(stream, security).await,
        Connection::Unix(stream) => {
            local::check_peer(&stream)?;
            Ok(Authenticated {
                stream: Box::new(stream),
                identity: None,
                chain: Vec::new(),
                security: None,
            })
        }
    }
}

async fn shake_hands_tls(
    stream: TcpStream,
    security: Security,
) -> Result<Authenticated, HandshakeError> {
    // With Nagle's algorithm, each small message waits for the acknowledgement of the previous one: 45 ms per call.
    stream
        .set_nodelay(true)
        .map_err(|error| HandshakeError::Tls(error.to_string()))?;
    let config = match &security {
        Security::Mtls(credentials) => credentials.server_config(),
        Security::Tokens(credentials, _) => credentials.open_server_config(),
    };
    let stream = TlsAcceptor::from(config)
        .accept(stream)
        .await
        .map_err(|error| HandshakeError::Tls(tls::explain(&error)))?;
    let chain: Vec<CertificateDer<'static>> = stream
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|certificate| certificate.clone().into_owned())
        .collect();
    let identity = match chain.first() {
        Some(certificate) => Some(Identity::Certificate {
            node: tls::node_id(certificate)?,
            key: tls::key_fingerprint(certificate).map_err(tls::NoNodeId::from)?,
        }),
        None if matches!(security, Security::Tokens(..)) => None,
        None => return Err(HandshakeError::NoCertificate),
    };
    Ok(Authenticated {
        stream: Box::new(stream),
        identity,
        chain,
        security: Some(security),
    })
}

async fn attend(
    shaken: Authenticated,
    stranger: Option<Box<Stranger>>,
    agents: &Agents,
    address: String,
    hello: HelloRequest,
    end: CancellationToken,
) {
    let certified = shaken
        .identity
        .as_ref()
        .map(|identity| identity.node().to_owned());
    let node = certified.as_deref().unwrap_or("?");
    // Without client certificates, all peers share one log limit.
    let allows = |kind| agents.peer_log().allows(kind, node);
    let shaking = Box::pin(channel_over(shaken.stream, end.clone()));
    let channel = match tokio::time::timeout(HANDSHAKE, shaking).await {
        Ok(Ok(channel)) => channel,
        failed => {
            agents.refusals().count(Reason::Handshake);
            if allows("gRPC handshake failed") {
                let error = match failed {
                    Ok(Err(error)) => printable_sentence(&error.to_string()),
                    _ => format!("no answer within {} s", HANDSHAKE.as_secs()),
                };
                tracing::warn!(%address, node, %error, "gRPC handshake failed");
            }
            return;
        }
    };
    let recognized = CancellationToken::new();
    let visitor = Visitor {
        channel,
        address: address.clone(),
        identity: shaken.identity,
        tokens: stranger.as_ref().and_then(|one| one.tokens.clone()),
        recognized: recognized.clone(),
        end: end.clone(),
    };
    let turned_away = async {
        if let Some(stranger) = stranger {
            tokio::select! {
                () = stranger.place.turned_away() => return,
                () = recognized.cancelled() => drop(stranger),
            }
        }
        std::future::pending().await
    };
    let distrusted = distrusted(&shaken.chain, shaken.security.as_ref());
    let ended = tokio::select! {
        ended = agents.visit(visitor, hello) => ended,
        why = distrusted => {
            if allows("certificate ended") {
                tracing::warn!(%address, node, reason = %why, "closing the agent's session");
            }
            end.cancel();
            return;
        }
        () = turned_away => {
            agents.refusals().count(Reason::Connections);
            if allows("connection rejected") {
                tracing::warn!(%address, error = %HandshakeError::TurnedAway, "connection rejected");
            }
            end.cancel();
            return;
        }
    };
    end.cancel();
    let reason = || printable_sentence(&ended.to_string());
    match &ended {
        SessionError::Stopped | SessionError::Replaced => {}
        SessionError::MetAlready => {
            tracing::debug!(%address, node, reason = %reason(), "agent session ended");
        }
        _ if ended.refusal().is_some() => {
            if allows("agent refused") {
                tracing::error!(%address, node, reason = %reason(), "agent refused");
            }
        }
        _ => {
            if allows("agent session ended") {
                tracing::warn!(%address, node, reason = %reason(), "agent session ended");
            }
        }
    }
}

/// Waits until the peer's certificate is no longer trusted, and returns the reason. Never completes without a certificate.
async fn distrusted(chain: &[CertificateDer<'_>], security: Option<&Security>) -> String {
    match security {
        Some(Security::Mtls(credentials) | Security::Tokens(credentials, _))
            if !chain.is_empty() =>
        {
            credentials.until_distrusted(chain, Role::Agent).await
        }
        _ => std::future::pending().await,
    }
}
