//! The agent's own sockets: their directories made, served until the agent ends.

use std::{io, path::Path, time::Duration};

use drivebay_common::socket::{self, BindError, Bound};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// Longest a silent client can hold the drain open.
const DRAIN: Duration = Duration::from_secs(3);

/// Why a socket could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its directory could not be made.
    #[error("cannot make the directory of {path}")]
    Dir {
        path: String,
        #[source]
        source: io::Error,
    },
    /// Binding failed, or somebody answers there.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Serving failed.
    #[error("serving {path} failed")]
    Serve {
        path: String,
        #[source]
        source: tonic::transport::Error,
    },
}

/// Binds a socket that only root may use; a stale one of a dead process is replaced.
pub async fn bind(path: &Path) -> Result<Bound, ServeError> {
    if let Some(parent) = path.parent() {
        drivebay_sys::statefile::make_dir(parent).map_err(|source| ServeError::Dir {
            path: path.display().to_string(),
            source,
        })?;
    }
    Ok(socket::bind(path).await?)
}

/// Serves until stopped; then open calls get a few seconds, and the socket is removed.
pub async fn serve(
    routes: Routes,
    bound: Bound,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let path = bound.file.path().display().to_string();
    socket::serve(routes, bound, stop.cancelled_owned(), DRAIN)
        .await
        .map_err(|source| ServeError::Serve { path, source })
}
