//! What kind of thing a path is, and making and removing mount targets.
//!
//! statx with the cheapest sync mode: on a mounted filesystem's root it answers from memory, also
//! while the drive hangs.

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
    path::Path,
};

use nix::{
    dir::Dir,
    fcntl::OFlag,
    sys::{
        stat::Mode,
        statvfs::{FsFlags, Statvfs, fstatvfs, statvfs},
    },
};

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A block device node.
    Block,
    /// Anything else (symbolic links are not followed).
    Other,
}

/// statx of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// What it is.
    pub kind: Kind,
    /// The root of a mount.
    pub mount_root: bool,
    /// Device number of its filesystem (btrfs: of its subvolume).
    pub dev: (u32, u32),
    /// Device number that it is the node of; (0, 0) for others.
    pub rdev: (u32, u32),
    /// Mount id, as in mountinfo.
    pub mount_id: u64,
    /// Bytes.
    pub size: u64,
}

/// Looks at a path without following a symbolic link in its last component.
pub fn facts(path: &Path) -> io::Result<Facts> {
    let path = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    statx(libc::AT_FDCWD, &path, 0)
}

/// Looks at an open descriptor.
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
            _ => Kind::Other,
        },
        mount_root: answer.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
        dev: (answer.stx_dev_major, answer.stx_dev_minor),
        rdev: (answer.stx_rdev_major, answer.stx_rdev_minor),
        mount_id: answer.stx_mnt_id,
        size: answer.stx_size,
    })
}

/// How full a filesystem is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// Free, also for root.
    pub free: u64,
    /// Free for unprivileged users.
    pub available: u64,
    /// Inodes; 0 when their number is not fixed.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// This mount is read-only.
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

/// One statfs.
pub fn space(path: &Path) -> io::Result<Space> {
    Ok(statvfs(path)?.into())
}

/// A directory that is held open: what is asked of it is of this one, whatever is mounted at its path meanwhile. It cannot
/// be unmounted while it is held.
#[derive(Debug)]
pub struct Directory(Dir);

impl Directory {
    /// Opens it; a symbolic link in the last component is not followed. Reading it writes nothing, not even when it was read
    /// (which takes its owner or root).
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_RDONLY
            | OFlag::O_DIRECTORY
            | OFlag::O_NOFOLLOW
            | OFlag::O_CLOEXEC
            | OFlag::O_NOATIME;
        Ok(Self(Dir::open(path, flags, Mode::empty())?))
    }

    /// What it is.
    pub fn facts(&self) -> io::Result<Facts> {
        facts_of(&self.0)
    }

    /// Reads its first entry: the cheapest call that fails on a filesystem that shut down.
    pub fn read_first(&mut self) -> io::Result<()> {
        Ok(self.0.iter().next().transpose().map(drop)?)
    }

    /// One statfs of its filesystem, by this mount.
    pub fn space(&self) -> io::Result<Space> {
        Ok(fstatvfs(&self.0)?.into())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a directory (mode 0750); true when it was not there.
pub fn make_directory(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o750).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match facts(path)?.kind {
            Kind::Directory => Ok(false),
            _ => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        },
        Err(error) => Err(error),
    }
}

/// Makes an empty file (mode 0640); true when it was not there. Whatever is there and not a regular file is an error.
pub fn make_file(path: &Path) -> io::Result<bool> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o640)
        .open(path)
    {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match facts(path)?.kind {
            Kind::File => Ok(false),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Removes an empty directory or an empty file; false when nothing was there. Never recursive, never a
/// file with something in it, never what a symbolic link points to.
pub fn remove_empty(path: &Path) -> io::Result<bool> {
    let found = match facts(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match found {
        Facts {
            mount_root: true, ..
        } => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
        Facts {
            kind: Kind::Directory,
            ..
        } => fs::remove_dir(path)?,
        Facts {
            kind: Kind::File,
            size: 0,
            ..
        } => fs::remove_file(path)?,
        _ => return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY)),
    }
    Ok(true)
}
