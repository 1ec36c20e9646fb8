//! gRPC channels over unix sockets: dialled once, or reconnected on use.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

// Never resolved; the authority that gRPC uses for unix sockets.
const AUTHORITY: &str = "http://localhost";

/// Reason for which there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No process listens, or permission was denied.
    #[error("cannot connect to {path}")]
    Connect {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The server does not speak HTTP/2.
    #[error("{path} does not speak gRPC")]
    Handshake {
        path: PathBuf,
        #[source]
        source: tonic::transport::Error,
    },
}

impl DialError {
    /// True if connecting failed for lack of permission; a server may be running.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Returns a channel to a socket that may not exist yet; it connects and reconnects on use. A call fails if connecting takes longer than
/// `limit`.
pub fn reconnecting(socket: PathBuf, limit: Duration) -> Channel {
    Endpoint::from_static(AUTHORITY)
        .connect_timeout(limit)
        .connect_with_connector_lazy(service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
}

/// Dials once, now. The channel does not reconnect: its owner must dial a new one.
pub async fn once(path: &Path) -> Result<Channel, DialError> {
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| DialError::Connect {
            path: path.to_owned(),
            source,
        })?;
    let mut dialled = Some(TokioIo::new(stream));
    Endpoint::from_static(AUTHORITY)
        .connect_with_connector(service_fn(move |_: Uri| {
            let stream = dialled.take();
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset)) }
        }))
        .await
        .map_err(|source| DialError::Handshake {
            path: path.to_owned(),
            source,
        })
}
