//! Mounting and unmounting through system calls.
//!
//! Filesystems are mounted with mount(2), which works everywhere. Bind mounts are built detached (open_tree, mount_setattr) and become
//! visible only when complete (move_mount), so that a read-only one is never writable. These calls are in Linux 5.12 and later; on an older
//! kernel a bind fails with ENOSYS, since the old method makes it writable for a moment.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use super::{
    fscontext::FsContext,
    mountinfo::{self, MountEntry},
    path::{self, Directory},
};

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Writes what is pending for a device: that of its filesystem, if it is mounted, and of its page cache. Takes as long as its drive takes.
/// `node`: the node of the device with this number.
///
/// # Errors
/// Reading mountinfo or writing failed, or neither the node nor any mount could be opened.
pub fn write_pending(node: &Path, dev: (u32, u32)) -> io::Result<()> {
    let entries = mountinfo::read().map_err(io::Error::other)?;
    let mounts = entries.iter().filter(|entry| entry.dev == dev);
    let sync = |entry: &MountEntry| {
        let at = File::open(&entry.mount_point)?;
        match path::facts_of(&at)?.dev == dev {
            true => Ok(nix::unistd::syncfs(&at)?),
            false => Err(io::Error::other("another mount covers it")),
        }
    };
    // One mount is enough; others may be covered, or gone meanwhile.
    let mut last = Ok(());
    for entry in mounts {
        last = sync(entry);
        if last.is_ok() {
            break;
        }
    }
    last?;
    File::open(node)?.sync_all()
}

/// Mounts a filesystem. `flags` are MS_* bits, `data` the filesystem's options, comma-separated.
pub fn mount_fs(
    source: &Path,
    target: &Path,
    fs_type: &str,
    flags: u64,
    data: &str,
) -> io::Result<()> {
    let (source, target) = (c_string(source)?, c_string(target)?);
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let fs_type = CString::new(fs_type).map_err(invalid)?;
    let data = CString::new(data).map_err(invalid)?;
    // SAFETY: all four pointers are NUL-terminated strings that outlive the call.
    check(libc::c_long::from(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            fs_type.as_ptr(),
            flags as libc::c_ulong,
            data.as_ptr().cast(),
        )
    }))?;
    Ok(())
}

/// Unmounts the topmost mount at this path. Never follows a symbolic link in the last component. With `detach` the mount disappears from
/// the tree at once, and the filesystem is released after its last use (MNT_DETACH).
pub fn unmount(target: &Path, detach: bool) -> io::Result<()> {
    let target = c_string(target)?;
    let flags = libc::UMOUNT_NOFOLLOW | if detach { libc::MNT_DETACH } else { 0 };
    // SAFETY: a NUL-terminated string that outlives the call.
    check(libc::c_long::from(unsafe {
        libc::umount2(target.as_ptr(), flags)
    }))?;
    Ok(())
}

/// Creates a filesystem's superblock without a mount and drops it, so that the kernel replays its log. The mount table does not show it,
/// and nothing can be left behind: it lives as long as a descriptor of this call. Linux 5.2.
pub fn replay(source: &Path, fs_type: &str, flags: &[&str]) -> io::Result<()> {
    superblock(source, fs_type, flags).map(drop)
}

/// Mounts a filesystem read-only at no path, and returns its root. The mount table does not show it, and nothing can be left behind: it is
/// unmounted when the root and what was opened below it are closed. `flags` must keep a log from being replayed, unless it is known to be
/// empty: a read-only mount writes otherwise. Linux 5.2.
pub fn open_unmounted(source: &Path, fs_type: &str, flags: &[&str]) -> io::Result<Directory> {
    let flags: Vec<&str> = ["ro"].iter().chain(flags).copied().collect();
    let mount = superblock(source, fs_type, &flags)?.mount_read_only()?;
    Directory::open_root(&mount)
}

fn superblock(source: &Path, fs_type: &str, flags: &[&str]) -> io::Result<FsContext> {
    let context = FsContext::open(fs_type)?;
    let source = source
        .to_str()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    context.set("source", Some(source))?;
    for flag in flags {
        context.set(flag, None)?;
    }
    context.create()?;
    Ok(context)
}

/// A copy of a mount that is not attached yet. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct DetachedMount {
    tree: OwnedFd,
}

impl DetachedMount {
    /// Clones the mount that contains this path, with the path as its root. Mounts below it are not cloned.
    pub fn clone_of(path: &Path) -> io::Result<Self> {
        let path = c_string(path)?;
        let flags = libc::OPEN_TREE_CLONE as libc::c_long
            | libc::OPEN_TREE_CLOEXEC as libc::c_long
            | libc::c_long::from(libc::AT_SYMLINK_NOFOLLOW);
        // SAFETY: a NUL-terminated string that outlives the call; the result is a new descriptor.
        let fd = check(unsafe {
            libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags)
        })?;
        // SAFETY: the kernel just returned this descriptor, and it is owned only here.
        Ok(Self {
            tree: unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) },
        })
    }

    /// Makes the mount read-only.
    pub fn set_read_only(&self) -> io::Result<()> {
        let attributes = libc::mount_attr {
            attr_set: libc::MOUNT_ATTR_RDONLY,
            attr_clr: 0,
            propagation: 0,
            userns_fd: 0,
        };
        // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor; the struct's size is passed with it.
        check(unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.tree.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH as libc::c_uint,
                &raw const attributes,
                size_of::<libc::mount_attr>(),
            )
        })?;
        Ok(())
    }

    /// Attaches the mount at this path; a symbolic link there is not followed.
    pub fn attach(self, target: &Path) -> io::Result<()> {
        let target = c_string(target)?;
        let empty: &CStr = c"";
        // SAFETY: both strings are NUL-terminated and outlive the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.tree.as_raw_fd(),
                empty.as_ptr(),
                libc::AT_FDCWD,
                target.as_ptr(),
                libc::MOVE_MOUNT_F_EMPTY_PATH as libc::c_uint,
            )
        })?;
        Ok(())
    }
}

impl AsFd for DetachedMount {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}
