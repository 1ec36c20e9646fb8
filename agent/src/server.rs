//! Serving gRPC on unix sockets: bound 0600, a stale one replaced, the drain bounded.

use std::{io, path::Path, time::Duration};

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Router;

use crate::sys::socket::{self, SocketFile};

/// Longest a silent client can hold the drain open.
const DRAIN: Duration = Duration::from_secs(3);

/// Why a socket could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody answers there.
    #[error(
        "{path} is served by another process; stop it first, or choose another socket in the config"
    )]
    Taken {
        /// The socket.
        path: String,
    },
    /// Binding failed.
    #[error("cannot listen on {path}")]
    Bind {
        /// The socket.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Serving failed.
    #[error("serving {path} failed")]
    Serve {
        /// The socket.
        path: String,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
}

/// A socket that listens; its file goes with it.
#[derive(Debug)]
pub struct Bound {
    listener: UnixListener,
    file: SocketFile,
}

/// Binds a socket that only root may use; a stale one of a dead process is replaced.
pub async fn bind(path: &Path) -> Result<Bound, ServeError> {
    let failed = |source| ServeError::Bind {
        path: path.display().to_string(),
        source,
    };
    if UnixStream::connect(path).await.is_ok() {
        return Err(ServeError::Taken {
            path: path.display().to_string(),
        });
    }
    if let Some(parent) = path.parent() {
        crate::sys::statefile::make_dir(parent).map_err(failed)?;
    }
    let (listener, file) = socket::bind_private(path).map_err(failed)?;
    Ok(Bound {
        listener: UnixListener::from_std(listener).map_err(failed)?,
        file,
    })
}

/// Serves until stopped; then open calls get a few seconds, and the socket is removed.
pub async fn serve(
    router: Router,
    bound: Bound,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let Bound { listener, file } = bound;
    let stopped = stop.clone();
    let serving =
        router.serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
            stopped.cancelled().await;
        });
    tokio::pin!(serving);
    let result = tokio::select! {
        result = &mut serving => result,
        () = stop.cancelled() => match tokio::time::timeout(DRAIN, &mut serving).await {
            Ok(result) => result,
            Err(_) => Ok(()),
        },
    };
    result.map_err(|source| ServeError::Serve {
        path: file.path().display().to_string(),
        source,
    })
}
