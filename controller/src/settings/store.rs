//! Replaces the config file: atomically, durably, and without overwriting a concurrent change.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, fchown},
    path::{Path, PathBuf},
};

use super::{MAX_FILE, edit::EditError};

/// The file was not changed, or the change may not be durable.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file does not exist.
    #[error(
        "there is no {}; the controller reads the file that its --config names. Name that one, or make it (it may be empty) and start the controller with it",
        path.display()
    )]
    NoFile {
        /// Path as passed to [`change`]; symbolic links in it are not resolved.
        path: PathBuf,
    },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The path is a directory or a pipe, or the file is too large or not UTF-8.
    #[error("{} is not a config: {what}", path.display())]
    NotAConfig {
        path: PathBuf,
        /// Reason why it is not a config.
        what: &'static str,
    },
    /// Another process is changing the file.
    #[error("{} is being changed by another process; nothing was done, try again", path.display())]
    Busy { path: PathBuf },
    /// The text cannot be edited.
    #[error("{}: {source}", path.display())]
    Edit { path: PathBuf, source: EditError },
    /// The new file cannot be written; the former one is unchanged.
    #[error(
        "cannot write {} ({step}); it is as it was. A ConfigMap cannot be written through its mount: `node forget --print` prints the entry for it",
        path.display()
    )]
    Write {
        path: PathBuf,
        /// Step that failed, for the message, such as `renaming the new file`.
        step: &'static str,
        #[source]
        source: io::Error,
    },
    /// The new file is in place, but may not survive a power failure.
    #[error("{} was changed, but it is not known to be on disk", path.display())]
    Flush {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Replaces the file's text by the result of `edit`: writes a new file next to it with the same owner and mode,
/// syncs it, and renames it over the former one. Follows symbolic links. Blocks.
pub fn change(
    path: &Path,
    edit: impl FnOnce(&str) -> Result<String, EditError>,
) -> Result<(), StoreError> {
    let read = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => StoreError::NoFile {
            path: path.to_owned(),
        },
        _ => StoreError::Read {
            path: path.to_owned(),
            source,
        },
    };
    let not_a_config = |what| StoreError::NotAConfig {
        path: path.to_owned(),
        what,
    };
    let real = fs::canonicalize(path).map_err(read)?;
    // Opening a pipe would block until its other end is opened.
    let attributes = fs::metadata(&real).map_err(read)?;
    if !attributes.is_file() {
        return Err(not_a_config("not a regular file"));
    }
    let mut file = File::open(&real).map_err(read)?;
    let before = file.metadata().map_err(read)?;
    lock(path, &file)?;
    let mut bytes = Vec::new();
    (&mut file)
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(read)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(not_a_config("too large"));
    }
    let text = str::from_utf8(&bytes).map_err(|_| not_a_config("not UTF-8"))?;
    let edited = edit(text).map_err(|source| StoreError::Edit {
        path: path.to_owned(),
        source,
    })?;

    let write = |step| {
        move |source| StoreError::Write {
            path: path.to_owned(),
            step,
            source,
        }
    };
    let dir = real.parent().unwrap_or_else(|| Path::new("/"));
    let mut new = tempfile::Builder::new()
        .prefix(".drivebay-")
        .tempfile_in(dir)
        .map_err(write("making a new file beside it"))?;
    new.write_all(edited.as_bytes())
        .map_err(write("writing the new file"))?;
    let made = new
        .as_file()
        .metadata()
        .map_err(write("looking at the new file"))?;
    if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
        fchown(new.as_file(), Some(before.uid()), Some(before.gid()))
            .map_err(write("keeping its owner"))?;
    }
    new.as_file()
        .set_permissions(before.permissions())
        .map_err(write("keeping its mode"))?;
    new.as_file()
        .sync_all()
        .map_err(write("flushing the new file"))?;
    // A process that takes no lock may have written the file meanwhile, or replaced it.
    let now = fs::metadata(&real).map_err(read)?;
    if identity(&now) != identity(&before) || fs::read(&real).map_err(read)? != bytes {
        return Err(StoreError::Busy {
            path: path.to_owned(),
        });
    }
    new.persist(&real)
        .map_err(|error| write("renaming the new file")(error.error))?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|source| StoreError::Flush {
            path: path.to_owned(),
            source,
        })
}

/// Takes a lock that is held until the file is closed. Never waits for it: fails with [`StoreError::Busy`].
fn lock(path: &Path, file: &File) -> Result<(), StoreError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::Busy {
            path: path.to_owned(),
        },
        TryLockError::Error(source) => StoreError::Read {
            path: path.to_owned(),
            source,
        },
    })
}

fn identity(meta: &fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}
