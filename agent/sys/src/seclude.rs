//! Runs a tool that can access no drive but its own: in a mount namespace whose /dev has that one node, and whose /sys/block lists none.
//!
//! `mkfs.btrfs` with a UUID reads every block device of the host to check that none has the same (libblkid). It would wait for any
//! unresponsive drive, and wake sleeping ones. Without their nodes it searches all of /dev for each of them, some thirty system calls for
//! every volume of the host, so /sys/block is empty too. It also checks there for zones, and finds none: a drive with zones is never
//! claimed. A tool that cannot open another drive cannot damage one either. If there is a tool namespace (`tool_namespace`), it starts in
//! that one, which has no volumes.

use std::{
    ffi::CString,
    io,
    os::{
        fd::RawFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Component, Path},
};

use super::tool_namespace;

/// Other nodes in the new /dev: (path, major, minor) of the kernel's memory devices.
const MEMORY: [(&std::ffi::CStr, u32, u32); 4] = [
    (c"/dev/null", 1, 3),
    (c"/dev/zero", 1, 5),
    (c"/dev/random", 1, 8),
    (c"/dev/urandom", 1, 9),
];

/// Prepared before fork and used after it, where nothing may be allocated.
#[derive(Debug)]
pub(super) struct Secluded {
    node: CString,
    number: libc::dev_t,
    /// Directories between /dev and the node.
    dirs: Vec<CString>,
    /// The namespace to start in; None: the current one.
    from: Option<RawFd>,
}

impl Secluded {
    /// Prepares for this device node below /dev. Errs if it is no block device.
    pub(super) fn with(node: &Path) -> io::Result<Self> {
        let refused = |why: &str| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} {why}", node.display()),
            )
        };
        let text =
            |path: &Path| CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other);
        let plain = node
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !node.starts_with("/dev") || !plain {
            return Err(refused("is not a plain path below /dev"));
        }
        // stat(2) of a node accesses the directory, not the device.
        let facts = std::fs::metadata(node)?;
        if facts.mode() & libc::S_IFMT != libc::S_IFBLK {
            return Err(refused("is no block device"));
        }
        let mut dirs: Vec<&Path> = node
            .ancestors()
            .skip(1)
            .take_while(|dir| *dir != Path::new("/dev"))
            .collect();
        dirs.reverse();
        Ok(Self {
            node: text(node)?,
            number: facts.rdev(),
            dirs: dirs.into_iter().map(text).collect::<io::Result<_>>()?,
            from: tool_namespace::descriptor(),
        })
    }

    /// Enters the namespace, between fork and exec.
    pub(super) fn enter(&self) -> io::Result<()> {
        let done = |result: libc::c_int| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        let mknod = |path: &std::ffi::CStr, kind: libc::mode_t, number: libc::dev_t| {
            // SAFETY: a system call on a string that outlives it; nothing is allocated.
            done(unsafe { libc::mknod(path.as_ptr(), kind | 0o600, number) })
        };
        // SAFETY: system calls on constants and on strings that outlive them; nothing is allocated. The process has one
        // thread, behind fork.
        unsafe {
            if let Some(from) = self.from {
                done(libc::setns(from, libc::CLONE_NEWNS))?;
            }
            done(libc::unshare(libc::CLONE_NEWNS))?;
            // Mounts made here are not visible outside; unmounts outside apply here too.
            done(libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_SLAVE,
                std::ptr::null(),
            ))?;
            done(libc::mount(
                c"drivebay".as_ptr(),
                c"/dev".as_ptr(),
                c"tmpfs".as_ptr(),
                libc::MS_NOSUID | libc::MS_NOEXEC,
                c"mode=0755,size=64k".as_ptr().cast(),
            ))?;
            let listed = libc::mount(
                c"drivebay".as_ptr(),
                c"/sys/block".as_ptr(),
                c"tmpfs".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY,
                c"mode=0555,size=4k".as_ptr().cast(),
            );
            // Without such a directory in the kernel nothing is listed there.
            if let Err(error) = done(listed)
                && error.raw_os_error() != Some(libc::ENOENT)
            {
                return Err(error);
            }
            for dir in &self.dirs {
                done(libc::mkdir(dir.as_ptr(), 0o755))?;
            }
        }
        for (path, major, minor) in MEMORY {
            mknod(path, libc::S_IFCHR, libc::makedev(major, minor))?;
        }
        mknod(&self.node, libc::S_IFBLK, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_block_device_by_a_plain_path_below_dev_can_be_alone() {
        for path in [
            "/tmp/x",
            "/dev/../etc/passwd",
            "/dev/null",
            "dev/sda",
            "/dev/drivebay-none",
        ] {
            assert!(Secluded::with(Path::new(path)).is_err(), "{path}");
        }
    }
}
