//! What the host is using right now: mounts, swaps, and the drives the system runs from.
//! Read fresh for every claim check, never remembered.

use std::{collections::BTreeMap, io, path::Path};

/// Which whole disks (kernel names) are in use, and by what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostUse {
    /// Disk → mount points, of it or of anything on top of it (pid 1's and our own namespace).
    pub mounted: BTreeMap<String, Vec<String>>,
    /// Disk → swap devices or files on it.
    pub swap: BTreeMap<String, Vec<String>>,
    /// Disk → why it is the system's (`/`, `/boot`, kubelet's directory, …).
    pub system: BTreeMap<String, Vec<String>>,
}

/// Reads mountinfo of pid 1 and self, /proc/swaps, and walks `slaves` down to whole disks.
/// `kubelet_dir`: the kubelet's directory, whose drive is the system's too.
pub fn host_use(sys: &Path, proc: &Path, kubelet_dir: &Path) -> io::Result<HostUse> {
    let _ = (sys, proc, kubelet_dir);
    todo!()
}
