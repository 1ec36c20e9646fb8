//! Facts about paths, and creating and removing mount targets.
//!
//! Uses statx with the cheapest sync mode: for the root of a mounted filesystem it returns cached data, also while the drive is
//! unresponsive.

use std::{
    ffi::{CStr, CString},
    fs::{self, DirBuilder, OpenOptions},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    fcntl::OFlag,
    sys::{
        stat::Mode,
        statvfs::{FsFlags, Statvfs, fstatvfs, statvfs},
    },
};

/// Type of the file at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
    Block,
    /// A symbolic link; it is not followed.
    Link,
    /// A FIFO, a socket or a character device.
    Other,
}

/// A path cannot become a mount target, or not be removed as one.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("{0}")]
    Occupied(&'static str),
    #[error(transparent)]
    Io(#[from] io::Error),
}

const NOT_EMPTY: TargetError = TargetError::Occupied(
    "the directory is not empty; Drivebay removes only what it made: move its content away, or use another path",
);
const WITH_CONTENT: TargetError = TargetError::Occupied(
    "a file with content is there; Drivebay removes only what it made: move it away, or use another path",
);

/// statx of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub kind: Kind,
    /// True for the root of a mount.
    pub mount_root: bool,
    /// Device number of the filesystem (btrfs: of the subvolume).
    pub dev: (u32, u32),
    /// Device number of a device node; (0, 0) for other files.
    pub rdev: (u32, u32),
    /// Mount id, as in mountinfo.
    pub mount_id: u64,
    /// Size in bytes (stx_size), not synchronised with a remote server (AT_STATX_DONT_SYNC).
    pub size: u64,
}

/// Returns the facts of a path without following a symbolic link in its last component.
pub fn facts(path: &Path) -> io::Result<Facts> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    statx(libc::AT_FDCWD, &path, 0)
}

/// Returns the node of the block device of this kernel name (sysfs writes `!` for `/`).
pub fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

/// Returns the facts of an open descriptor.
pub fn facts_of(fd: impl AsFd) -> io::Result<Facts> {
    statx(fd.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn statx(fd: libc::c_int, path: &CStr, flags: libc::c_int) -> io::Result<Facts> {
    let mut buffer = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the path is NUL-terminated and the buffer is large enough for what the kernel writes.
    let result = unsafe {
        libc::statx(
            fd,
            path.as_ptr(),
            flags | libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE | libc::STATX_SIZE | libc::STATX_MNT_ID,
            buffer.as_mut_ptr(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all-zero bytes are a valid statx, and the kernel has filled it.
    let answer = unsafe { buffer.assume_init() };
    Ok(Facts {
        kind: match u32::from(answer.stx_mode) & libc::S_IFMT {
            libc::S_IFDIR => Kind::Directory,
            libc::S_IFREG => Kind::File,
            libc::S_IFBLK => Kind::Block,
            libc::S_IFLNK => Kind::Link,
            _ => Kind::Other,
        },
        mount_root: answer.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
        dev: (answer.stx_dev_major, answer.stx_dev_minor),
        rdev: (answer.stx_rdev_major, answer.stx_rdev_minor),
        mount_id: answer.stx_mnt_id,
        size: answer.stx_size,
    })
}

/// Space of a filesystem, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Size of the filesystem.
    pub total: u64,
    /// Free bytes, including those reserved for root.
    pub free: u64,
    /// Free bytes for unprivileged users.
    pub available: u64,
    /// Inodes; 0 if their number is not fixed.
    pub inodes: u64,
    pub inodes_free: u64,
    /// True if this mount is read-only.
    pub read_only: bool,
}

impl From<Statvfs> for Space {
    fn from(answer: Statvfs) -> Self {
        let unit = answer.fragment_size();
        Self {
            total: answer.blocks().saturating_mul(unit),
            free: answer.blocks_free().saturating_mul(unit),
            available: answer.blocks_available().saturating_mul(unit),
            inodes: answer.files(),
            inodes_free: answer.files_free(),
            read_only: answer.flags().contains(FsFlags::ST_RDONLY),
        }
    }
}

/// Returns the space of the filesystem at a path, by one statvfs.
pub fn space(path: &Path) -> io::Result<Space> {
    Ok(statvfs(path)?.into())
}

/// An open directory: its methods refer to this one, also after another filesystem was mounted at its path. Its filesystem cannot be
/// unmounted while it is open.
#[derive(Debug)]
pub struct Directory(Dir);

impl Directory {
    /// Opens a directory; a symbolic link in the last component is not followed. Reading it does not update its access time, which requires
    /// its owner or root.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY
            | OFlag::O_DIRECTORY
            | OFlag::O_NOFOLLOW
            | OFlag::O_CLOEXEC
            | OFlag::O_NOATIME;
        Ok(Self(Dir::open(path, flags, Mode::empty())?))
    }

    /// Opens the root of a mount by the mount's descriptor.
    pub(crate) fn open_root(mount: impl AsFd) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOATIME;
        Ok(Self(Dir::openat(mount, ".", flags, Mode::empty())?))
    }

    /// Returns the facts of this directory.
    pub fn facts(&self) -> io::Result<Facts> {
        facts_of(&self.0)
    }

    /// Reads the first entry: the cheapest call that fails on a filesystem that was shut down.
    pub fn read_first(&mut self) -> io::Result<()> {
        Ok(self.0.iter().next().transpose().map(drop)?)
    }

    /// Returns the space of the filesystem, by one statvfs of this mount.
    pub fn space(&self) -> io::Result<Space> {
        Ok(fstatvfs(&self.0)?.into())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Creates a directory (mode 0750); true if it did not exist. An existing path must be an empty directory, since it is removed when it is
/// no longer used.
pub fn make_directory(path: &Path) -> Result<bool, TargetError> {
    match DirBuilder::new().mode(0o750).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match facts(path)?.kind {
            Kind::Directory if fs::read_dir(path)?.next().is_none() => Ok(false),
            Kind::Directory => Err(NOT_EMPTY),
            other => Err(occupied(other)),
        },
        Err(error) => Err(error.into()),
    }
}

/// Creates an empty file (mode 0640); true if it did not exist. An existing path must be an empty file.
pub fn make_file(path: &Path) -> Result<bool, TargetError> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o640)
        .open(path)
    {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let existing = facts(path)?;
            match existing.kind {
                Kind::File if existing.size == 0 => Ok(false),
                Kind::File => Err(WITH_CONTENT),
                other => Err(occupied(other)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the error for a path of another type than needed.
fn occupied(kind: Kind) -> TargetError {
    TargetError::Occupied(match kind {
        Kind::Link => "it is a symbolic link, which is not followed; use another path",
        Kind::Directory => "it is a directory, and a file is needed; use another path",
        Kind::File => "it is a file, and a directory is needed; use another path",
        Kind::Block => "it is a device node; use another path",
        Kind::Other => "it is a FIFO, a socket or a character device; use another path",
    })
}

/// Removes an empty directory or an empty file; false if the path does not exist. Never recursive, never a file with content, never the
/// target of a symbolic link. EBUSY for the root of a mount.
pub fn remove_empty(path: &Path) -> Result<bool, TargetError> {
    let existing = match facts(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    if existing.mount_root {
        return Err(io::Error::from_raw_os_error(libc::EBUSY).into());
    }
    match existing.kind {
        Kind::Directory => fs::remove_dir(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOTEMPTY | libc::EEXIST) => NOT_EMPTY,
            _ => error.into(),
        })?,
        Kind::File if existing.size == 0 => fs::remove_file(path)?,
        Kind::File => return Err(WITH_CONTENT),
        other => return Err(occupied(other)),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    fn text(result: Result<bool, TargetError>) -> String {
        match result {
            Ok(made) => made.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_what_can_be_removed_again_becomes_a_target() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("full/inside")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("file"), "").unwrap();
        fs::write(at("content"), "precious").unwrap();
        symlink("empty", at("link")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for (name, directory, file) in [
            ("empty", "false", "it is a directory"),
            ("full", "the directory is not empty", "it is a directory"),
            ("file", "it is a file", "false"),
            ("content", "it is a file", "a file with content"),
            ("link", "symbolic link", "symbolic link"),
            ("fifo", "it is a FIFO", "it is a FIFO"),
            ("socket", "it is a FIFO, a socket", "it is a FIFO, a socket"),
        ] {
            let made = text(make_directory(&at(name)));
            assert!(made.contains(directory), "{name}: {made}");
            let made = text(make_file(&at(name)));
            assert!(made.contains(file), "{name}: {made}");
        }
        for name in ["full", "content", "link", "fifo", "socket"] {
            assert!(remove_empty(&at(name)).is_err(), "{name}");
        }
        assert_eq!(fs::read_to_string(at("content")).unwrap(), "precious");
        assert_eq!(text(make_directory(&at("new"))), "true");
        assert_eq!(text(make_file(&at("newer"))), "true");
        for name in ["empty", "file", "new", "newer"] {
            assert_eq!(text(remove_empty(&at(name))), "true", "{name}");
        }
        assert_eq!(text(remove_empty(&at("new"))), "false");
        assert!(matches!(
            make_directory(&at("no/parent")),
            Err(TargetError::Io(_))
        ));
    }
}
