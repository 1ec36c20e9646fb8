//! gRPC on unix sockets: private before anybody can see them, a dead predecessor's replaced in one
//! step, a live one's left alone, one's own file removed at the end, the drain bounded.

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

/// A socket cannot be served on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process serves there.
    #[error(
        "{path} is served by another process already; end that one first, or choose another path"
    )]
    InUse { path: PathBuf },
    /// Something that is not a socket has that name.
    #[error("{path} exists and is not a socket; remove it, or choose another path")]
    NotASocket { path: PathBuf },
    /// Whether another process serves there cannot be found out.
    #[error("cannot tell whether {path} is served by another process; it is left alone")]
    Unclear {
        path: PathBuf,
        /// What connecting to it said.
        #[source]
        source: io::Error,
    },
    /// No room for its file.
    #[error(
        "cannot make the socket {path}: no space or no inode is left on its filesystem, so nothing can be served there; remove files there (`df -h`, `df -i`), or choose another path"
    )]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Binding failed.
    #[error("cannot serve on {path}; see that its directory exists and may be written")]
    Bind {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A socket that listens; its file goes with it.
#[derive(Debug)]
pub struct Bound {
    /// What connections come from.
    pub listener: UnixListener,
    /// Where they come in.
    pub file: SocketFile,
}

/// A bound socket's file; removed when this is dropped, unless another has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    // Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // Nothing is lost if it stays: the next start replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Listens at `path`, mode 0600, in place of whatever socket a process that died left there. One that
/// somebody answers on, and anything but a socket, is left alone and refused. The directory must exist.
///
/// The socket is made under a hidden name beside it and renamed: nobody ever sees it with another mode, and
/// the kubelet, which ignores hidden names, sees one appear, whole.
pub async fn bind(path: &Path) -> Result<Bound, BindError> {
    refuse_unless_stale(path).await?;
    let mut placed = place(path);
    // The room of the dead one's file is enough for this one's.
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
        // It may have been removed by the one that ended just now.
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

/// Serves until `stop`; then running calls may finish for `drain`, and the socket is removed. A client
/// that keeps its connection open does not keep the process. Errors are answered as [`answers`] has them.
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
