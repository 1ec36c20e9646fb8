//! Paths where no volume is mounted manually, since the mount would hide what the host or the agent needs. Pure.

use std::path::{Path, PathBuf};

use drivebay_config::Config;
use drivebay_fs::unmount::is_system_place;
use drivebay_sys::mountinfo::{self, MountEntry};

/// Directories that the Filesystem Hierarchy Standard reserves for the system, with everything below.
const TREES: [&str; 13] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run",
    "/sbin", "/sys", "/usr",
];

/// Returns the paths that the agent or the kubelet uses; the kubelet's are for the orchestrator's own calls.
pub(super) fn own_places(config: &Config) -> Vec<PathBuf> {
    let files = [&config.csi_socket, &config.agent_socket];
    let dirs = [&config.state_dir, &config.runtime_dir, &config.kubelet_dir];
    let all = files
        .into_iter()
        .chain(dirs)
        .chain(&config.registration_dir);
    all.map(|path| mountinfo::resolve(path)).collect()
}

/// Returns why a volume must not be mounted at a resolved path; None: it may be.
pub(super) fn refusal(at: &Path, own: &[PathBuf], mounts: &[MountEntry]) -> Option<String> {
    let shown = at.display();
    let in_tree = TREES.iter().any(|tree| at.starts_with(tree));
    // Entries directly in /var belong to the system: /var/log, /var/tmp, /var/spool.
    let of_var = at.parent() == Some(Path::new("/var"));
    if in_tree || of_var || is_system_place(at) {
        return Some(format!(
            "{shown} belongs to the system; use another directory, such as one below /srv or /mnt"
        ));
    }
    if let Some(own) = own
        .iter()
        .find(|own| at.starts_with(own) || own.starts_with(at))
    {
        return Some(format!(
            "{shown} would hide or change {}, which the agent or the kubelet uses; use another directory",
            own.display()
        ));
    }
    // A mount at the path itself is compared with the volume later.
    if !mountinfo::mounts_at(mounts, at).is_empty() {
        return None;
    }
    let hidden = mounts
        .iter()
        .find(|mount| mount.mount_point != at && mount.mount_point.starts_with(at))?;
    Some(format!(
        "{shown} would hide what is mounted at {}; use another directory",
        hidden.mount_point.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_volume_hides_what_the_system_or_the_agent_needs() {
        let own: Vec<PathBuf> = ["/var/lib/drivebay", "/opt/kubelet", "/opt/run/csi.sock"]
            .map(PathBuf::from)
            .into();
        let rows = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 8:2 / /mnt/usb rw - ext4 /dev/sda2 rw\n\
            3 1 8:3 / /srv/db rw - ext4 /dev/sda3 rw\n\
            4 3 8:4 / /srv/db/below rw - ext4 /dev/sda4 rw\n";
        let mounts = mountinfo::parse(rows).unwrap();
        let allowed = |at: &str| refusal(Path::new(at), &own, &mounts).is_none();
        for at in [
            "/",
            "/usr",
            "/usr/bin",
            "/usr/local/data",
            "/run",
            "/run/x",
            "/etc/ssh",
            "/boot/efi",
            "/bin",
            "/lib64/x",
            "/dev/shm",
            "/proc/1",
            "/sys/fs",
            "/home",
            "/root",
            "/var",
            "/var/lib",
            "/var/log",
            "/var/lib/drivebay",
            "/var/lib/drivebay/volumes",
            "/opt/kubelet/pods",
            "/opt",
            "/opt/run",
            "/mnt",
            "/srv",
        ] {
            assert!(!allowed(at), "{at}");
        }
        for at in [
            "/srv/db",
            "/srv/other",
            "/mnt/other",
            "/data",
            "/home/me/data",
            "/var/lib/postgresql",
            "/var/log/journal",
            "/opt/kubelets",
            "/usrdata",
            "/root/data",
        ] {
            assert!(allowed(at), "{at}");
        }
    }
}
