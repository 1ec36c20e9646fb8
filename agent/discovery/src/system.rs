//! The host's current use of drives: mounts, swaps, and the drives that the system runs from. Read fresh for every claim check, never
//! cached.
//!
//! Reads /proc and sysfs only; no path on a mounted filesystem is accessed, since that could block on an unresponsive drive. A directory
//! that is a symbolic link to another filesystem is therefore not followed; the drive below it still counts as mounted.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use super::{mounts, topology::Topology};
use drivebay_model::cause;
use drivebay_sys::mountinfo::{self, MountEntry};

/// Whole disks (kernel names) in use, with their uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostUse {
    /// Disk → mount points of it or of any device on top of it (in the namespaces of pid 1 and of this process).
    pub mounted: BTreeMap<String, Vec<String>>,
    /// Disk → swap devices or files on it.
    pub swap: BTreeMap<String, Vec<String>>,
    /// Disk → reasons why it is a system drive (`/`, `/boot`, kubelet's directory, …).
    pub system: BTreeMap<String, Vec<String>>,
    /// Reason why the mounts of pid 1 are not the host's, so that the fields above are incomplete; None: they are the host's.
    pub unknown: Option<String>,
}

/// Directories whose drives the system runs from; the kubelet's is a parameter.
const SYSTEM_DIRS: &[&str] = &[
    "/",
    "/boot",
    "/boot/efi",
    "/efi",
    "/usr",
    "/var",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/rancher",
];

/// Reads mountinfo of pid 1 and self, and /proc/swaps, and walks `slaves` down to whole disks. `kubelet_dir`: the kubelet's directory,
/// whose drive is a system drive too. `in_pod`: Kubernetes started this process.
///
/// On any error nothing may be claimed: a table that cannot be read is not an empty one.
pub fn host_use(sys: &Path, proc: &Path, kubelet_dir: &Path, in_pod: bool) -> io::Result<HostUse> {
    let topology = Topology::read(sys)?;
    let mounts_of = |process: &str| {
        let path = proc.join(process).join("mountinfo");
        // A row that does not parse could be a mount of the drive in question.
        mountinfo::read_from(&path).map_err(|error| no_claims(&path, &cause::chain(&error)))
    };
    let namespaces = [mounts_of("1")?, mounts_of("self")?];
    let mut scan = Scan {
        topology: &topology,
        namespaces: &namespaces,
        host: HostUse {
            unknown: stranger(proc, in_pod, &namespaces),
            ..HostUse::default()
        },
        added: HashSet::new(),
        unknown: RefCell::default(),
        below: RefCell::default(),
        files: RefCell::default(),
    };
    scan.mounts()?;
    scan.system_dirs(kubelet_dir)?;
    match fs::read_to_string(proc.join("swaps")) {
        Ok(text) => scan.swaps(&text)?,
        // A kernel without swap has no such file.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(no_claims(&proc.join("swaps"), &error.to_string())),
    }
    let unknown = scan.unknown.into_inner();
    Ok(HostUse {
        unknown: scan.host.unknown.or(unknown),
        ..scan.host
    })
}

/// Returns why pid 1 is not the host's first process, or why its mounts are not those that this process shares.
fn stranger(proc: &Path, in_pod: bool, [first, own]: &[Vec<MountEntry>; 2]) -> Option<String> {
    let link = |path: &str| fs::read_link(proc.join(path));
    if link("self").is_ok_and(|own| own == Path::new("1")) {
        return Some("pid 1 is this agent".to_owned());
    }
    if !in_pod {
        return None;
    }
    match (link("1/ns/mnt"), link("self/ns/mnt")) {
        (Ok(of_first), Ok(of_own)) if of_first == of_own => {
            Some("pid 1 is the pod's own".to_owned())
        }
        (Err(error), _) | (_, Err(error)) => Some(format!(
            "cannot determine the mount namespace of pid 1: {error}"
        )),
        (Ok(_), Ok(_)) => {
            // Peer groups of mounts have the same number in all namespaces.
            let hosts: BTreeSet<&str> = first.iter().flat_map(|of| of.groups("shared:")).collect();
            let shares = own.iter().any(|of| {
                let mut groups = of.groups("shared:").chain(of.groups("master:"));
                groups.any(|group| hosts.contains(group))
            });
            (!shares).then(|| "no mount here is shared with pid 1".to_owned())
        }
    }
}

/// Returns an error that says that the host's use is unknown, which must never be treated as no use.
fn no_claims(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!(
        "cannot use {}: {why}; no drive can be claimed without it",
        path.display()
    ))
}

struct Scan<'a> {
    topology: &'a Topology,
    namespaces: &'a [Vec<MountEntry>],
    host: HostUse,
    // Contents of `host.mounted`; a drive may have thousands of mounts.
    added: HashSet<(String, String)>,
    // First use of a device that sysfs does not have.
    unknown: RefCell<Option<String>>,
    // Caches of the disks below a device and below a file, which each mount needs.
    below: RefCell<HashMap<String, BTreeSet<String>>>,
    files: RefCell<HashMap<String, BTreeSet<String>>>,
}

impl Scan<'_> {
    fn mounts(&mut self) -> io::Result<()> {
        for mount in self.namespaces.iter().flatten() {
            let at = mount.mount_point.to_string_lossy().into_owned();
            for disk in self.disks_of(mount)? {
                if self.added.insert((disk.clone(), at.clone())) {
                    let of_disk = self.host.mounted.entry(disk).or_default();
                    of_disk.push(at.clone());
                }
            }
        }
        Ok(())
    }

    fn system_dirs(&mut self, kubelet_dir: &Path) -> io::Result<()> {
        let kubelet = kubelet_dir.to_string_lossy();
        for dir in SYSTEM_DIRS.iter().copied().chain([&*kubelet]) {
            for mounts in self.namespaces {
                let Some(mount) = mounts::holding(mounts, Path::new(dir)) else {
                    continue;
                };
                for disk in self.disks_of(mount)? {
                    add(&mut self.host.system, disk, dir);
                }
            }
        }
        Ok(())
    }

    fn swaps(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines().skip(1).filter(|line| !line.trim().is_empty()) {
            let mut fields = line.split_whitespace();
            let (Some(path), Some(kind)) = (fields.next(), fields.next()) else {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    format!("/proc/swaps has the line {line:?}"),
                ));
            };
            let path = mountinfo::unescape(path.as_bytes());
            let path = String::from_utf8_lossy(&path).into_owned();
            let disks = match kind {
                "partition" => self.disks_of_device(&path)?,
                _ => self.disks_of_file(&path)?,
            };
            for disk in disks {
                add(&mut self.host.swap, disk.clone(), &path);
                add(&mut self.host.system, disk, "swap");
            }
        }
        Ok(())
    }

    /// Notes that the host uses a device that sysfs does not have. It may be of any drive that is not claimed yet, so that none is claimed;
    /// claimed drives go on, and theirs may have been unplugged.
    fn note_unknown(&self, why: String) {
        self.unknown.borrow_mut().get_or_insert(why);
    }

    /// Returns the disks below a swap device.
    fn disks_of_device(&self, path: &str) -> io::Result<BTreeSet<String>> {
        match self.topology.by_node(path) {
            Some(name) => self.down(&name),
            None => {
                self.note_unknown(format!(
                    "swap is on {path}, which is no block device known to sysfs"
                ));
                Ok(BTreeSet::new())
            }
        }
    }

    /// Returns the disks below a file: those of the mounts that contain its path, in either namespace.
    fn disks_of_file(&self, path: &str) -> io::Result<BTreeSet<String>> {
        if let Some(cached) = self.files.borrow().get(path) {
            return Ok(cached.clone());
        }
        let mut disks = BTreeSet::new();
        for mount in self
            .namespaces
            .iter()
            .filter_map(|mounts| mounts::holding(mounts, Path::new(path)))
        {
            for name in self.devices_of(mount)? {
                disks.extend(self.topology.whole_disks(&name)?);
            }
        }
        let cached = disks.clone();
        self.files.borrow_mut().insert(path.to_owned(), cached);
        Ok(disks)
    }

    fn disks_of(&self, mount: &MountEntry) -> io::Result<BTreeSet<String>> {
        let mut disks = BTreeSet::new();
        for name in self.devices_of(mount)? {
            disks.extend(self.down(&name)?);
        }
        Ok(disks)
    }

    /// Returns the whole disks below a device; through loop devices, also the drive of their file.
    fn down(&self, name: &str) -> io::Result<BTreeSet<String>> {
        if let Some(cached) = self.below.borrow().get(name) {
            return Ok(cached.clone());
        }
        let mut disks = self.topology.whole_disks(name)?;
        let files: Vec<String> = disks
            .iter()
            .filter_map(|disk| self.topology.backing_file(disk))
            .collect();
        for file in files {
            disks.extend(self.disks_of_file(&file)?);
        }
        let cached = disks.clone();
        self.below.borrow_mut().insert(name.to_owned(), cached);
        Ok(disks)
    }

    /// Returns the kernel names of the block devices directly below a mount.
    fn devices_of(&self, mount: &MountEntry) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        names.extend(self.topology.by_number(mount.dev));
        if mount.fs_type == "devtmpfs" && mount.root != Path::new("/") {
            // A bind-mounted device node, as raw block volumes are published.
            names.extend(
                self.topology
                    .by_node(&format!("/dev{}", mount.root.display())),
            );
        }
        // btrfs and others have an anonymous device number and are identified by their source only; bcachefs lists all of its devices
        // there.
        let sources = mount.source.to_string_lossy();
        if sources.starts_with("/dev/") {
            for source in sources.split(':') {
                names.extend(self.topology.by_node(source));
            }
        }
        if mount.fs_type == "btrfs" {
            names.extend(self.topology.btrfs_siblings(&names)?);
            if names.is_empty() {
                self.note_unknown(format!(
                    "btrfs at {} comes from {}, which is no block device known to sysfs",
                    mount.mount_point.display(),
                    sources
                ));
            }
        }
        Ok(names)
    }
}

fn add(map: &mut BTreeMap<String, Vec<String>>, disk: String, why: &str) {
    let reasons = map.entry(disk).or_default();
    if !reasons.iter().any(|reason| reason == why) {
        reasons.push(why.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A host with these disks: sda with sda1 and sda2, sdb, dm-0 over sda2, loop0 over a file; btrfs over sdb and sdc.
    fn host(mountinfo: &str, swaps: &str) -> io::Result<HostUse> {
        host_of(mountinfo, swaps, None)
    }

    /// `pod`: content of /proc/self/mountinfo in a pod, and whether pid 1 has the same mounts.
    fn host_of(mountinfo: &str, swaps: &str, pod: Option<(&str, bool)>) -> io::Result<HostUse> {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        fs::create_dir_all(root.join("sys/class/block")).unwrap();
        for (name, place, dev) in [
            ("sda", "pci/sda", "8:0"),
            ("sda1", "pci/sda/sda1", "8:1"),
            ("sda2", "pci/sda/sda2", "8:2"),
            ("sdb", "pci/sdb", "8:16"),
            ("sdc", "pci/sdc", "8:32"),
            ("dm-0", "virtual/block/dm-0", "253:0"),
            ("loop0", "virtual/block/loop0", "7:0"),
        ] {
            write(&format!("sys/devices/{place}/dev"), dev);
            symlink(
                root.join("sys/devices").join(place),
                root.join("sys/class/block").join(name),
            )
            .unwrap();
        }
        for partition in ["sda1", "sda2"] {
            write(&format!("sys/devices/pci/sda/{partition}/partition"), "1");
        }
        write("sys/devices/virtual/block/dm-0/dm/name", "vg-root");
        write("sys/devices/virtual/block/dm-0/slaves/sda2", "");
        write(
            "sys/devices/virtual/block/loop0/loop/backing_file",
            "/srv/images/a b.img\n",
        );
        for disk in ["sdb", "sdc"] {
            write(&format!("sys/fs/btrfs/1234/devices/{disk}"), "");
        }
        write("proc/1/mountinfo", mountinfo);
        write("proc/self/mountinfo", pod.map_or("", |(own, _)| own));
        for (process, same) in [("1", true), ("self", pod.is_some_and(|(_, same)| same))] {
            fs::create_dir_all(root.join("proc").join(process).join("ns")).unwrap();
            let namespace = if same { "mnt:[1]" } else { "mnt:[2]" };
            symlink(namespace, root.join("proc").join(process).join("ns/mnt")).unwrap();
        }
        write(
            "proc/swaps",
            &format!("Filename\tType\tSize\tUsed\tPriority\n{swaps}"),
        );
        host_use(
            &root.join("sys"),
            &root.join("proc"),
            Path::new("/var/lib/kubelet"),
            pod.is_some(),
        )
    }

    fn keys(map: &BTreeMap<String, Vec<String>>) -> Vec<&str> {
        map.keys().map(String::as_str).collect()
    }

    #[test]
    fn the_root_on_an_lv_makes_the_disk_below_the_systems() {
        let used = host("1 0 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n", "").unwrap();
        assert_eq!(keys(&used.mounted), ["dm-0", "sda"]);
        assert!(used.system["sda"].iter().any(|why| why == "/"));
        assert!(
            used.system["sda"]
                .iter()
                .any(|why| why == "/var/lib/kubelet"),
            "{used:?}"
        );
    }

    #[test]
    fn btrfs_is_found_by_its_source_and_all_its_devices_count() {
        let used = host("1 0 0:45 /sub /data rw shared:1 - btrfs /dev/sdb rw\n", "").unwrap();
        assert_eq!(keys(&used.mounted), ["sdb", "sdc"]);
        assert!(
            used.system.is_empty(),
            "/data is no directory of the system"
        );
    }

    #[test]
    fn a_mount_or_swap_of_an_unplugged_drive_fails_no_scan_and_no_drive_is_claimed() {
        let btrfs = "1 0 0:45 / /data rw - btrfs /dev/unknown rw\n2 0 8:17 / /other rw - ext4 /dev/sdb rw\n";
        let used = host(btrfs, "").unwrap();
        assert!(used.unknown.is_some_and(|why| why.contains("/dev/unknown")));
        let swaps = "Filename Type Size Used Priority\n/dev/unknown partition 1 0 -2\n";
        let used = host("", swaps).unwrap();
        assert!(
            used.unknown
                .is_some_and(|why| why.contains("swap is on /dev/unknown"))
        );
    }

    #[test]
    fn a_directory_of_its_own_filesystem_makes_only_that_disk_the_systems() {
        let used = host("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /var/lib/kubelet rw - xfs /dev/sdb rw\n3 1 8:32 / /var/lib/kubelet/plugins/x rw - xfs /dev/sdc rw\n", "").unwrap();
        assert_eq!(used.system["sdb"], ["/var/lib/kubelet"]);
        assert_eq!(
            keys(&used.system),
            ["sda", "sdb"],
            "a volume below the kubelet's directory is not the system's"
        );
        assert_eq!(keys(&used.mounted), ["sda", "sdb", "sdc"]);
    }

    #[test]
    fn mount_points_are_unescaped_and_loops_lead_to_the_drive_of_their_file() {
        let used = host("1 0 8:16 / /srv/images rw - ext4 /dev/sdb rw\n2 1 7:0 / /mnt/a\\040b rw - ext4 /dev/loop0 rw\n", "").unwrap();
        assert_eq!(used.mounted["loop0"], ["/mnt/a b"]);
        assert!(used.mounted["sdb"].contains(&"/mnt/a b".to_owned()));
    }

    #[test]
    fn swap_partitions_and_swap_files_count_for_their_drives() {
        let used = host(
            "1 0 8:16 / /srv rw - ext4 /dev/sdb rw\n",
            "/dev/sda1 partition 1 0 -2\n/srv/swap\\040file file 1 0 -3\n",
        )
        .unwrap();
        assert_eq!(used.swap["sda"], ["/dev/sda1"]);
        assert_eq!(used.swap["sdb"], ["/srv/swap file"]);
        assert_eq!(used.system["sda"], ["swap"]);
        assert_eq!(used.unknown, None);
    }

    #[test]
    fn a_bound_device_node_counts_as_mounted() {
        let used = host("1 0 0:6 /sdc /pods/x/block rw - devtmpfs udev rw\n", "").unwrap();
        assert_eq!(used.mounted["sdc"], ["/pods/x/block"]);
    }

    #[test]
    fn in_a_pod_pid_1_must_be_the_hosts_and_share_its_mounts() {
        let first = "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 8:16 / /var/lib/kubelet rw shared:7 - xfs /dev/sdb rw\n";
        let own = |group: &str| {
            format!(
                "9 0 0:50 / / rw - overlay overlay rw\n8 9 8:16 / /var/lib/kubelet rw {group} - xfs /dev/sdb rw\n"
            )
        };
        for (group, same, is_host) in [
            ("shared:7", false, true),
            ("master:7", false, true),
            ("shared:9 master:1", false, true),
            ("shared:9", false, false),
            ("", false, false),
            ("shared:7", true, false),
        ] {
            let own = own(group).replace("  ", " ");
            let used = host_of(first, "", Some((&own, same))).unwrap();
            assert_eq!(used.unknown.is_none(), is_host, "{group} {same}: {used:?}");
        }
        assert_eq!(host(first, "").unwrap().unknown, None, "no pod");
    }

    #[test]
    fn a_table_that_cannot_be_read_or_parsed_is_not_an_empty_one() {
        assert!(host("nonsense\n", "").is_err());
        let empty = tempfile::tempdir().unwrap();
        assert!(host_use(empty.path(), empty.path(), Path::new("/k"), false).is_err());
    }
}
