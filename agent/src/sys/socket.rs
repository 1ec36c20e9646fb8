//! Unix sockets in the filesystem: made private before anybody can see them, replaced in one step,
//! and removed only by the one that made them.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

/// A listening socket's place in the filesystem. Dropping it removes the socket, unless another one
/// has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    dev: u64,
    ino: u64,
}

/// Listens at `path`, mode 0600, in place of whatever socket an agent that died left there.
/// Anything but a socket at that path is left alone and refused. The directory must exist.
///
/// The socket is made under a hidden name beside it and renamed: nobody ever sees it with another mode, and
/// the kubelet, which ignores hidden names, sees one appear, whole.
pub fn bind_private(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is something at this path that is not a socket",
            ));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let dir = path.parent().unwrap_or_else(|| Path::new("/"));
    // Shorter than any driver's socket name, so that it fits wherever the final name does.
    let hidden = dir.join(format!(".{}", std::process::id()));
    let _ = fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    let placed = (|| {
        fs::set_permissions(&hidden, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let made = fs::symlink_metadata(&hidden)?;
        fs::rename(&hidden, path)?;
        Ok(SocketFile {
            path: path.to_owned(),
            dev: made.dev(),
            ino: made.ino(),
        })
    })();
    match placed {
        Ok(file) => Ok((listener, file)),
        Err(error) => {
            let _ = fs::remove_file(&hidden);
            Err(error)
        }
    }
}

impl SocketFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the socket at the path is still this one.
    pub fn is_in_place(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.dev, self.ino))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_in_place() {
            // When it cannot be removed there is nothing left to do; the next agent replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_anything_else_is_not() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("a.sock");
        drop(UnixListener::bind(&path)?);
        let (_listener, file) = bind_private(&path)?;
        assert_eq!(fs::metadata(&path)?.mode() & 0o777, 0o600);
        std::os::unix::net::UnixStream::connect(&path)?;
        drop(file);
        assert!(!path.exists());

        fs::write(&path, "precious")?;
        assert!(bind_private(&path).is_err());
        assert_eq!(fs::read_to_string(&path)?, "precious");
        assert_eq!(fs::read_dir(dir.path())?.count(), 1, "no litter");
        Ok(())
    }

    #[test]
    fn another_ones_socket_is_not_removed() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("a.sock");
        let (_first_listener, first) = bind_private(&path)?;
        let (_second_listener, second) = bind_private(&path)?;
        assert!(!first.is_in_place() && second.is_in_place());
        drop(first);
        std::os::unix::net::UnixStream::connect(&path)?;
        Ok(())
    }
}
