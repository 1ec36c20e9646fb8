//! Unix sockets: bound for root only, a dead predecessor's file removed, one's own file removed at the end.

use std::{
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::sys::stat::{Mode, umask};
use tokio::net::{UnixListener, UnixStream};

/// A socket cannot be served on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process serves there.
    #[error("{path} is served by another process already; end that one first")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is not a socket has that name.
    #[error("{path} exists and is not a socket; remove it, or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Whether another process serves there cannot be found out.
    #[error("cannot tell whether {path} is served by another process; it is left alone")]
    Unclear {
        /// The socket.
        path: PathBuf,
        /// What connecting to it said.
        #[source]
        source: io::Error,
    },
    /// Binding failed.
    #[error("cannot serve on {path}; see that its directory exists and may be written")]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A bound socket's file; removed when this is dropped, unless another has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    // Device and inode.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            // Nothing is lost if it stays: the next start removes it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Binds a unix socket with mode 0600. A socket file already there is removed only when nobody answers on it.
///
/// The process's umask is narrowed for the moment of binding.
pub async fn bind(path: &Path) -> Result<(UnixListener, SocketFile), BindError> {
    remove_stale(path).await?;
    let failed = |source| BindError::Bind {
        path: path.to_owned(),
        source,
    };
    // The file must not be open to others even for a moment, and CSI allows no second name beside it.
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let file = SocketFile {
        path: path.to_owned(),
        identity: identity(path).map_err(failed)?,
    };
    Ok((listener, file))
}

async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let owned = || path.to_owned();
    match std::fs::symlink_metadata(path) {
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
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|source| BindError::Bind {
                path: owned(),
                source,
            })
        }
        Err(source) => Err(BindError::Unclear {
            path: owned(),
            source,
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_private_and_gone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (listener, file) = bind(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop((listener, file));
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("csi.sock");
        let (listener, file) = bind(&path).await.unwrap();
        assert!(matches!(bind(&path).await, Err(BindError::InUse { .. })));
        std::mem::forget(file);
        drop(listener);
        assert!(path.exists());
        bind(&path).await.unwrap();
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
