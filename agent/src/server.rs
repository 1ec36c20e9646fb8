//! The agent's own sockets: creates their directories and serves them until the agent ends.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use drivebay_common::socket::{self, BindError, Bound};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use drivebay_model::cause::chain;

/// Time for which a silent client can delay the drain.
const DRAIN: Duration = Duration::from_secs(3);

/// Interval of retrying to create a socket for which the filesystem has no space.
const AGAIN: Duration = Duration::from_secs(5);

/// A socket was not served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot make the directory of {path}")]
    Dir {
        path: String,
        #[source]
        source: io::Error,
    },
    /// Binding failed, or another process serves the socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("serving {path} failed")]
    Serve {
        path: String,
        #[source]
        source: tonic::transport::Error,
    },
}

/// Binds a socket that only root may use; replaces a stale one of a dead process.
pub async fn bind(path: &Path) -> Result<Bound, ServeError> {
    if let Some(parent) = path.parent() {
        drivebay_sys::statefile::make_dir(parent).map_err(|source| ServeError::Dir {
            path: path.display().to_string(),
            source,
        })?;
    }
    Ok(socket::bind(path).await?)
}

/// Binds a socket that the agent can work without, as [`bind`] does; None if the filesystem has no space for it.
pub async fn bind_if_room(path: &Path) -> Result<Option<Bound>, ServeError> {
    match bind(path).await {
        Err(ServeError::Bind(error @ BindError::Full { .. })) => {
            tracing::error!(error = %chain(&error), "cannot make the command-line socket; serving CSI without it, will retry");
            Ok(None)
        }
        bound => bound.map(Some),
    }
}

/// Serves as [`serve`] does, as soon as there is space for the socket.
pub async fn serve_once_room(
    routes: Routes,
    bound: Option<Bound>,
    path: PathBuf,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let mut bound = bound;
    let bound = loop {
        if let Some(bound) = bound.take() {
            break bound;
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(AGAIN) => {}
        }
        match bind(&path).await {
            Err(ServeError::Bind(BindError::Full { .. })) => {}
            Err(error) => {
                tracing::error!(error = %chain(&error), "cannot make the command-line socket");
                return Err(error);
            }
            Ok(made) => {
                tracing::info!(path = %path.display(), "command-line socket made");
                bound = Some(made);
            }
        }
    };
    serve(routes, bound, stop).await
}

/// Serves until stopped; then open calls have `DRAIN` to end, and the socket is removed.
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
