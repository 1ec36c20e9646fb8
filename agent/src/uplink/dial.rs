//! One connection to a controller: TCP with TLS or a unix socket, then gRPC served on it until it ends. Each step before the controller's
//! hello has a limit of five seconds.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use drivebay_common::answers;
use drivebay_common::breakable::Breakable;
use drivebay_common::local;
use drivebay_common::tls::{self, Credentials, Role};
use drivebay_proto::agent::agent_server::{Agent, AgentServer};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    sync::watch,
};
use tokio_rustls::TlsConnector;
use tokio_stream::{StreamExt, once, pending};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::{
    Shared,
    remote::{Remote, Stage},
    targets::{Address, Slot},
};

/// Limit of each: connecting, the handshake and the hello.
const STEP: Duration = Duration::from_secs(5);
/// Idle time before a ping …
const PING_EVERY: Duration = Duration::from_secs(4);
/// … and limit for its reply: a dead controller is detected within ten seconds.
const PING_ANSWER: Duration = Duration::from_secs(5);
/// Time for open calls to end when the agent stops.
const DRAIN: Duration = Duration::from_secs(2);
/// Bytes of the largest request that is accepted from a controller.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Result of a connection.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The agent stops, so no further attempt is made.
    Stopped,
    /// The peer is a replica that has a session already.
    MetAlready,
    /// The controller refuses this agent; the reason is logged.
    Refused,
    /// A session was open and has ended, for this reason.
    Ended(String),
    /// No session was opened, for this reason.
    Failed(String),
}

/// Connects, and serves until the connection ends.
pub(super) async fn dial<S: Agent + Clone>(
    slot: &Slot,
    shared: &Arc<Shared>,
    service: S,
    stop: &CancellationToken,
) -> Outcome {
    let (stream, chain) = tokio::select! {
        () = stop.cancelled() => return Outcome::Stopped,
        connected = connect(slot, shared) => match connected {
            Ok(connected) => connected,
            Err(why) => return Outcome::Failed(why),
        },
    };
    let (stage, mut stages) = watch::channel(Stage::Silent);
    let remote = Remote {
        service,
        shared: shared.clone(),
        slot: slot.clone(),
        stage: stage.clone(),
        replica: watch::Sender::default(),
    };
    let gone = CancellationToken::new();
    let failure = Failure::default();
    // On every return, the connection is closed.
    let over = CancellationToken::new();
    let _over = over.clone().drop_guard();
    let stream = {
        // Dropped with the connection.
        let (failure, gone) = (failure.clone(), gone.clone().drop_guard());
        Breakable::observed(stream, over, move |error| {
            let _ = &gone;
            failure.put(error);
        })
    };
    let end = CancellationToken::new();
    let ended = {
        let (end, gone) = (end.clone(), gone.clone());
        async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = gone.cancelled() => {}
            }
        }
    };
    let served = Server::builder()
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_ANSWER))
        .layer(answers::layer())
        .add_service(AgentServer::new(remote).max_decoding_message_size(MAX_REQUEST_BYTES))
        .serve_with_incoming_shutdown(once(Ok::<_, io::Error>(stream)).chain(pending()), ended);
    let hello = async {
        let open = stages.wait_for(|stage| *stage != Stage::Silent);
        let silent = tokio::time::timeout(STEP, open).await.is_err();
        if silent {
            return "no hello received within 5 s".to_owned();
        }
        // Refused or open; an open session lasts as long as the connection.
        std::future::pending().await
    };
    let mut served = std::pin::pin!(served);
    let why = tokio::select! {
        result = &mut served => {
            drop(end);
            let why = failure.take().or(result.err().map(|error| error.to_string()));
            return after(*stage.borrow(), why);
        }
        why = hello => why,
        why = distrusted(shared.credentials.as_ref(), &chain) => return Outcome::Ended(why),
        () = stop.cancelled() => "this agent stops".to_owned(),
    };
    end.cancel();
    let _ = tokio::time::timeout(DRAIN, served).await;
    if stop.is_cancelled() {
        Outcome::Stopped
    } else {
        Outcome::Failed(why)
    }
}

fn after(stage: Stage, error: Option<String>) -> Outcome {
    match (stage, error) {
        (Stage::MetAlready, _) => Outcome::MetAlready,
        (Stage::Refused, _) => Outcome::Refused,
        (Stage::Open, _) => {
            Outcome::Ended("the connection was closed, or its other end is dead".to_owned())
        }
        (Stage::Silent, Some(error)) => Outcome::Failed(error),
        (Stage::Greeted, why) => Outcome::Failed(
            why.unwrap_or_else(|| "it closed the connection after its hello".to_owned()),
        ),
        (Stage::Silent, None) => Outcome::Failed(
            "it closed the connection; its log says why (a certificate that it does not trust, for one)"
                .to_owned(),
        ),
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Waits until the controller's certificate is no longer trusted, and returns the reason.
async fn distrusted(credentials: Option<&Credentials>, chain: &[CertificateDer<'_>]) -> String {
    match credentials {
        Some(credentials) => credentials.until_distrusted(chain, Role::Controller).await,
        None => std::future::pending().await,
    }
}

/// A connection, and the peer's certificate chain; empty without TLS.
type Connected = (Box<dyn Stream>, Vec<CertificateDer<'static>>);

async fn connect(slot: &Slot, shared: &Shared) -> Result<Connected, String> {
    match &slot.to {
        Address::Unix(path) => {
            let stream = in_time("connecting", UnixStream::connect(path)).await?;
            let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
            // The peer commands this agent, so its user is checked.
            local::check_peer(&stream).map_err(|error| error.to_string())?;
            Ok((Box::new(stream), Vec::new()))
        }
        Address::Tcp { address, host } => match &shared.credentials {
            Some(credentials) => connect_tls(*address, host, credentials).await,
            None => Err("over TCP certificates are needed; set ca, cert and key under [controller], or on one machine use unix:/PATH".to_owned()),
        },
    }
}

async fn in_time<T>(what: &str, step: impl Future<Output = T>) -> Result<T, String> {
    let late = |_| format!("{what} took longer than {} s", STEP.as_secs());
    tokio::time::timeout(STEP, step).await.map_err(late)
}

async fn connect_tls(
    address: SocketAddr,
    host: &str,
    credentials: &Credentials,
) -> Result<Connected, String> {
    let stream = in_time("connecting", TcpStream::connect(address)).await?;
    let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
    // Without it each small message waits for the previous one's acknowledgement: 45 ms a call.
    stream
        .set_nodelay(true)
        .map_err(|error| format!("cannot set up the connection: {error}"))?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("{host:?} cannot be in a certificate"))?;
    let shaking = TlsConnector::from(credentials.client_config()).connect(name, stream);
    let stream = in_time("the TLS handshake", shaking).await?;
    let stream = stream.map_err(|error| tls::explain(&error))?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain = chain
        .iter()
        .map(|certificate| certificate.clone().into_owned())
        .collect();
    Ok((Box::new(stream), chain))
}

/// Error of reading from a connection. In TLS 1.3 a client receives its refusal only after the handshake.
#[derive(Debug, Clone, Default)]
struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    fn put(&self, error: &io::Error) {
        let mut failure = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| tls::explain(error));
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
