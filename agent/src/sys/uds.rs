//! A gRPC channel over a unix socket, dialled once. A channel that lost its peer is made anew by its owner.

use std::{io, path::Path};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nobody listens, or we may not.
    #[error("cannot connect to {path}")]
    Connect {
        /// The socket.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something listens that does not speak HTTP/2.
    #[error("{path} does not speak gRPC")]
    Handshake {
        /// The socket.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
}

/// Dials a unix socket.
pub async fn connect(path: &Path) -> Result<Channel, DialError> {
    let stream = UnixStream::connect(path)
        .await
        .map_err(|source| DialError::Connect {
            path: path.to_owned(),
            source,
        })?;
    let mut once = Some(TokioIo::new(stream));
    // The address is never resolved; "localhost" is the authority that gRPC uses for unix sockets.
    Endpoint::from_static("http://localhost")
        .connect_with_connector(service_fn(move |_| {
            let stream = once.take();
            async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset)) }
        }))
        .await
        .map_err(|source| DialError::Handshake {
            path: path.to_owned(),
            source,
        })
}
