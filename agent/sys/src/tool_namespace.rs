//! A mount namespace with the system's directories and nothing else, made once when the agent starts. Tools that can access one drive only
//! (`seclude`) start in it.
//!
//! A namespace that a tool makes for itself copies every mount of the host. While such a copy exists, unmounting a volume elsewhere does
//! not end its filesystem; the tool does when it exits, and writes back its data then. With that volume's drive unresponsive, the tool of
//! another drive would never exit.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    mount::{MntFlags, MsFlags, mount, umount2},
};

use super::mountinfo::{self, MountEntry};

/// Environment variable that passes the descriptor of the namespace to a worker.
pub(super) const VARIABLE: &str = "DRIVEBAY_TOOL_NAMESPACE";

/// Directories that tools use besides those of PATH, if they are mounts of their own.
const SYSTEM: [&str; 10] = [
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
];

static NAMESPACE: OnceLock<OwnedFd> = OnceLock::new();

/// Creates the namespace in the agent, before it starts workers. `scratch` is an existing directory, at which something is mounted inside
/// the new namespace only. Blocks; may wait while a filesystem of the host is being unmounted from an unresponsive drive.
pub fn prepare(scratch: &Path) -> io::Result<()> {
    let scratch = scratch.to_owned();
    // In a thread of its own, so that the agent stays in its namespace.
    let made = std::thread::Builder::new()
        .name("tool-namespace".into())
        .spawn(move || make(&scratch))?
        .join()
        .map_err(|_| io::Error::other("making the namespace panicked"))??;
    let _ = NAMESPACE.set(made);
    Ok(())
}

/// Takes the descriptor that the agent passed to this worker; without one, tools run in copies of the host's namespace.
pub fn inherit() -> io::Result<()> {
    let Some(value) = std::env::var_os(VARIABLE) else {
        return Ok(());
    };
    let number: RawFd = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .filter(|number| *number > 2)
        .ok_or_else(|| io::Error::other(format!("{VARIABLE} is no descriptor")))?;
    // SAFETY: the agent passed it to this worker, which has one thread and opened nothing of that number.
    let namespace = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&namespace, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let _ = NAMESPACE.set(namespace);
    Ok(())
}

/// Returns the descriptor; None if there is no namespace.
pub(super) fn descriptor() -> Option<RawFd> {
    NAMESPACE.get().map(AsRawFd::as_raw_fd)
}

fn make(scratch: &Path) -> io::Result<OwnedFd> {
    let none = None::<&str>;
    // SAFETY: takes no pointers; only this thread gets the namespace.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(none, "/", none, private, none)?;
    let entries = mountinfo::read().map_err(io::Error::other)?;
    let search: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    mount(Some("/"), scratch, none, MsFlags::MS_BIND, none)?;
    for point in kept(&entries, &search) {
        let inside = scratch.join(point.strip_prefix("/").unwrap_or(&point));
        mount(Some(&point), &inside, none, MsFlags::MS_BIND, none)?;
    }
    std::env::set_current_dir(scratch)?;
    // Old and new root at one path, so that no directory is needed for the old one; it is then unmounted from there.
    nix::unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    let namespace: OwnedFd = File::open("/proc/thread-self/ns/mnt")?.into();
    // Tools do the same: without CAP_SYS_CHROOT they could not.
    // SAFETY: takes no pointers; only this thread is concerned.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(namespace)
}

/// Returns the mounts below / that tools need: those that contain the system's directories or a directory of PATH, parents first. Pure.
fn kept(entries: &[MountEntry], search: &[PathBuf]) -> BTreeSet<PathBuf> {
    let is_kept = |point: &Path| {
        let mut needed = SYSTEM.iter().map(Path::new);
        point.starts_with("/usr")
            || needed.any(|dir| dir.starts_with(point))
            || search.iter().any(|dir| dir.starts_with(point))
    };
    entries
        .iter()
        .map(|entry| &entry.mount_point)
        .filter(|point| *point != Path::new("/") && is_kept(point))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_keep_the_mounts_of_the_system_and_of_path_and_no_volume() {
        let table = "\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:5 / /dev rw - devtmpfs dev rw
3 1 0:6 / /proc rw - proc proc rw
4 3 0:7 / /proc/sys/fs/binfmt_misc rw - autofs a rw
5 1 8:2 / /usr rw - ext4 /dev/sda2 rw
6 5 8:3 / /usr/local rw - ext4 /dev/sda3 rw
7 1 8:4 / /opt rw - ext4 /dev/sda4 rw
8 1 8:5 / /var rw - ext4 /dev/sda5 rw
9 8 8:17 / /var/lib/kubelet/plugins/x rw - ext4 /dev/sdb1 rw
10 1 8:6 / /srv rw - ext4 /dev/sda6 rw
";
        let entries = mountinfo::parse(table.as_bytes()).unwrap();
        let search = ["/opt/tools/bin".into(), "/usr/sbin".into()];
        let kept: Vec<_> = kept(&entries, &search).into_iter().collect();
        let expected = ["/opt", "/proc", "/usr", "/usr/local"];
        assert_eq!(kept, expected.map(PathBuf::from));
    }
}
