//! Where agents dial in: connections accepted, TLS, each one's session run until it ends.
//!
//! The controller is server of the connection and its TLS, and client of the gRPC on it. Each step before an
//! agent is let in has five seconds, and nothing large is taken from it. Steps that a session takes once are boxed, here and in
//! `agents`: a task is as large as the largest of its steps for as long as it runs, and there are thousands.

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

/// A handshake takes no longer, with the time that a connection waits for its turn: an agent waits no longer either.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Connections that are not authenticated. Each costs a descriptor and a few kilobytes.
const UNAUTHENTICATED: Most = Most {
    // Many nodes may be behind one address that translates theirs; they connect again when they were closed.
    of_source: 1024,
    open: 8192,
    at_work: 512,
    // Enough for all of them to shake hands on a slow processor.
    patience: Duration::from_secs(2),
};
/// Connections of one identity, those that say hello among them. An agent has one session here; a former connection
/// may not have been found dead yet, and a virtual address may lead here several times.
const OF_IDENTITY: usize = 4;
/// Suppressed log lines are summed up this often.
const SUMMARIZE: Duration = Duration::from_secs(60);
/// After an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// At the end, sessions may close for this long.
const DRAIN: Duration = Duration::from_secs(2);

/// How agents show who they are.
#[derive(Debug, Clone)]
pub enum Security {
    /// By certificates of our CA.
    Mtls(Credentials),
    /// By ServiceAccount tokens, over connections that only our certificate opens; or by certificates, if they have some.
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

/// How this controller presents itself to agents.
#[derive(Debug, Clone)]
pub struct Announcement {
    /// A random id of this process.
    pub instance: Uuid,
    /// How many replicas there are; 1 when that is not known.
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

/// Lets agents in until `stop`.
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
            // Who has no certificate takes a stranger's place until it has shown a token.
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

// The peer was gone before it was accepted.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Why a connection did not get as far as its hello.
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

/// The places that a connection takes which has not shown who it is.
struct Stranger {
    #[allow(dead_code, reason = "held until the connection is known")]
    open: Open,
    place: Place,
    tokens: Option<(Tokens, IdentityLimit)>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection whose other end is known.
struct Authenticated {
    stream: Box<dyn Stream>,
    identity: Option<Identity>,
    // Its certificates; none where none are used.
    chain: Vec<CertificateDer<'static>>,
    // None: a unix socket.
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
    // Without it each small message waits for the one before to be acknowledged: 45 ms a call.
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
    // Where nothing is proved, all are the same peer.
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
    let known = CancellationToken::new();
    let visitor = Visitor {
        channel,
        address: address.clone(),
        identity: shaken.identity,
        tokens: stranger.as_ref().and_then(|one| one.tokens.clone()),
        known: known.clone(),
        end: end.clone(),
    };
    let turned_away = async {
        if let Some(stranger) = stranger {
            tokio::select! {
                () = stranger.place.turned_away() => return,
                () = known.cancelled() => drop(stranger),
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

/// Waits until the certificate that was shown is no longer good, and says why.
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
