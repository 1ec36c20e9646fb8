//! gRPC on unix sockets: created with mode 0600 before they are visible, a stale socket replaced atomically, a live one left alone, the own
//! file removed at the end, the drain bounded.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};
use tonic::{service::Routes, transport::Server};

use crate::{answers, authority};

/// A socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "{path} is served by another process already; end that one first, or choose another path"
    )]
    InUse { path: PathBuf },
    /// A file that is not a socket has that name.
    #[error("{path} exists and is not a socket; remove it, or choose another path")]
    NotASocket { path: PathBuf },
    /// Connecting failed in a way that does not show whether another process serves there.
    #[error("cannot tell whether {path} is served by another process; it is left alone")]
    Unclear {
        path: PathBuf,
        /// Error of the connection attempt; never `ConnectionRefused` or `NotFound`, with which the socket counts as stale.
        #[source]
        source: io::Error,
    },
    /// The filesystem has no space or no inode for the socket's file.
    #[error(
        "cannot make the socket {path}: no space or no inode is left on its filesystem, so nothing can be served there; remove files there (`df -h`, `df -i`), or choose another path"
    )]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot serve on {path}; see that its directory exists and may be written")]
    Bind {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A listening socket and its file.
#[derive(Debug)]
pub struct Bound {
    pub listener: UnixListener,
    pub file: SocketFile,
}

/// File of a bound socket; removed on drop, unless another file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    // Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // A file that stays is harmless: the next start replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Listens at `path`, mode 0600, replacing the stale socket of a process that died. Errs with `InUse` if a process accepts connections
/// there, and with `NotASocket` for any other file; both are left alone. The directory must exist.
///
/// Creates the socket under a hidden name in the same directory and renames it: it is never visible with another mode, and the kubelet,
/// which ignores hidden names, sees a complete one appear.
pub async fn bind(path: &Path) -> Result<Bound, BindError> {
    refuse_unless_stale(path).await?;
    let mut placed = place(path);
    // The space of the stale socket's file is enough for the new one.
    if placed.as_ref().is_err_and(is_full) && fs::remove_file(path).is_ok() {
        placed = place(path);
    }
    placed.map_err(|source| {
        let path = path.to_owned();
        match is_full(&source) {
            true => BindError::Full { path, source },
            false => BindError::Bind { path, source },
        }
    })
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn place(path: &Path) -> io::Result<Bound> {
    let dir = path.parent().unwrap_or_else(|| Path::new("/"));
    // Shorter than any driver's socket name, so that it fits wherever the final name does.
    let hidden = dir.join(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    let placed = (|| {
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))?;
        let identity = identity(&hidden)?;
        fs::rename(&hidden, path)?;
        Ok(SocketFile {
            path: path.to_owned(),
            identity,
        })
    })();
    match placed {
        Ok(file) => Ok(Bound { listener, file }),
        Err(error) => {
            let _ = fs::remove_file(&hidden);
            Err(error)
        }
    }
}

async fn refuse_unless_stale(path: &Path) -> Result<(), BindError> {
    let owned = || path.to_owned();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(BindError::Bind {
                path: owned(),
                source,
            });
        }
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(BindError::NotASocket { path: owned() });
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(BindError::InUse { path: owned() }),
        // NotFound: its process has ended in this moment and removed it.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            Ok(())
        }
        Err(source) => Err(BindError::Unclear {
            path: owned(),
            source,
        }),
    }
}

/// Serves until `stop`; then waits up to `drain` for running calls, and removes the socket. A client that keeps its connection open cannot
/// delay the end further. Errors are answered as by [`answers`].
pub async fn serve(
    routes: Routes,
    bound: Bound,
    stop: impl Future<Output = ()>,
    drain: Duration,
) -> Result<(), tonic::transport::Error> {
    let Bound {
        listener,
        file: _file,
    } = bound;
    let (stopping, mut stopped) = watch::channel(false);
    let serving = Server::builder()
        .layer(answers::layer())
        .add_routes(routes)
        .serve_with_incoming_shutdown(authority::incoming(listener), async move {
            stop.await;
            stopping.send_replace(true);
        });
    let drained = async {
        let _ = stopped.wait_for(|stopped| *stopped).await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        served = serving => served?,
        () = drained => tracing::warn!("timed out waiting for clients to disconnect"),
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_private_and_gone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let bound = bind(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let Bound { listener, file } = bind(&path).await.unwrap();
        assert!(matches!(bind(&path).await, Err(BindError::InUse { .. })));
        std::mem::forget(file);
        drop(listener);
        assert!(path.exists());
        let _second = bind(&path).await.unwrap();
        UnixStream::connect(&path).await.unwrap();
    }

    #[tokio::test]
    async fn another_ones_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let Bound { listener, file } = bind(&path).await.unwrap();
        drop(listener);
        let _second = bind(&path).await.unwrap();
        drop(file);
        UnixStream::connect(&path).await.unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no litter");
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(
            bind(&path).await,
            Err(BindError::NotASocket { .. })
        ));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
