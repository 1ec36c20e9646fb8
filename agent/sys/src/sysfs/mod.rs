//! Facts about block devices from sysfs alone, without udev's database and without accessing a medium. `root` is `/sys` except in tests,
//! which use a recorded tree.
//!
//! One attribute does query its device: virtio-blk's `serial` (a GET_ID request to the hypervisor).

mod attach;
pub mod attrs;
pub(crate) mod bay;
pub mod identity;
pub mod vpd;

use std::{
    collections::BTreeSet,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use self::{attach::Place, attrs::Node, identity::Identity};
use drivebay_model::{
    DriveFacts, DriveId, Media, Transport,
    drive::{Holder, PartitionFacts},
};

/// Bytes of a sector in sysfs sizes and starts, for every device.
const SYSFS_SECTOR: u64 = 512;

/// Returns all whole disks (also loop and other virtual ones, marked as such), sorted by kernel name; but no LVs, which are on disks and
/// are many. A device that disappears meanwhile is left out.
pub fn enumerate(root: &Path) -> io::Result<Vec<DriveFacts>> {
    let mut names = Node::at(root.join("class/block")).list()?;
    // A disk before its partitions.
    names.sort();
    let mut disks: Vec<DriveFacts> = Vec::new();
    let mut partitions = BTreeSet::new();
    for name in names {
        if partitions.contains(&name)
            || root
                .join("class/block")
                .join(&name)
                .join("partition")
                .try_exists()?
        {
            continue;
        }
        if name.starts_with("dm-")
            && dm_uuid(root, &name)?.is_some_and(|uuid| uuid.starts_with("LVM-"))
        {
            continue;
        }
        match read(root, &name) {
            Ok(facts) => {
                let of_disk = facts.partitions.iter();
                partitions.extend(of_disk.map(|partition| partition.kernel_name.clone()));
                disks.push(facts);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(disks)
}

/// Reads the facts of one disk; NotFound if it is gone.
pub fn read(root: &Path, kernel_name: &str) -> io::Result<DriveFacts> {
    unless_gone(root, kernel_name, |link| gather(root, link, kernel_name))
}

/// Identity of a disk, with the properties that verify it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    pub id: DriveId,
    /// Identity if another drive has the same WWN.
    pub with_serial: Option<DriveId>,
    pub kernel_name: String,
    pub major: u32,
    pub minor: u32,
    pub diskseq: u64,
    pub size_bytes: u64,
}

impl Identified {
    /// True if this is an identity of the drive, whether shared with another drive or not.
    pub fn is(&self, id: &DriveId) -> bool {
        self.id == *id
            || self.with_serial.as_ref() == Some(id)
            || identity::with_name(&self.id, &self.kernel_name) == *id
    }
}

/// Reads the identity of a disk, as `read` does, with a tenth of its system calls; NotFound if it is gone.
pub fn identify(root: &Path, kernel_name: &str) -> io::Result<Identified> {
    unless_gone(root, kernel_name, |link| {
        let disk = Disk::find(root, link, kernel_name)?;
        let identified = Identified {
            size_bytes: sectors(&disk.node, "size")?,
            id: disk.identity.id.clone(),
            with_serial: identity::with_serial(&disk.identity.wwn, &disk.identity.serial),
            kernel_name: kernel_name.to_owned(),
            major: disk.number.0,
            minor: disk.number.1,
            diskseq: disk.diskseq,
        };
        disk.is_still_the_same()?;
        Ok(identified)
    })
}

/// Calls `read` with the disk's link in sysfs; any error is NotFound if the disk is gone.
fn unless_gone<T>(
    root: &Path,
    kernel_name: &str,
    read: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    if kernel_name.is_empty() || kernel_name.starts_with('.') || kernel_name.contains('/') {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("{kernel_name:?} is not a kernel name"),
        ));
    }
    let link = root.join("class/block").join(kernel_name);
    match read(&link) {
        // Any error because the device disappeared means "gone", not a failure of sysfs.
        Err(_)
            if std::fs::symlink_metadata(&link)
                .is_err_and(|error| error.kind() == ErrorKind::NotFound) =>
        {
            Err(gone(kernel_name))
        }
        // A required attribute is missing while the device exists: do not guess.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(io::Error::other(error.to_string()))
        }
        other => other,
    }
}

/// Returns the facts of the disk whose node this link refers to; None if it refers to none.
pub fn behind_link(link: &Path) -> Option<DriveFacts> {
    let node = std::fs::read_link(link).ok()?;
    read(Path::new("/sys"), node.file_name()?.to_str()?).ok()
}

fn gone(kernel_name: &str) -> io::Error {
    io::Error::new(
        ErrorKind::NotFound,
        format!("block device {kernel_name} is gone"),
    )
}

/// A disk with its identity.
struct Disk {
    node: Node,
    place: Place,
    diskseq: u64,
    hidden: bool,
    number: (u32, u32),
    backing_file: Option<PathBuf>,
    transport: Transport,
    identity: Identity,
}

impl Disk {
    fn find(root: &Path, link: &Path, kernel_name: &str) -> io::Result<Self> {
        let real_root = root.canonicalize()?;
        let real = link.canonicalize()?;
        let inside = real
            .strip_prefix(&real_root)
            .map_err(|_| io::Error::other(format!("{} leads out of sysfs", link.display())))?
            .to_string_lossy()
            .into_owned();
        let node = Node::open(real)?;
        let place = Place::new(&real_root, format!("/{inside}"), kernel_name);
        let diskseq = node.number("diskseq")?.unwrap_or(0);
        let hidden = node.flag("hidden")?;
        let number = match node.text("dev")? {
            Some(text) => parse_dev(&text)?,
            // Hidden disks (NVMe paths) have no device number.
            None if hidden => (0, 0),
            None => return Err(gone(kernel_name)),
        };
        let backing_file = node.text("loop/backing_file")?.map(PathBuf::from);
        let transport = attach::transport(&place, &node)?;
        let identity = identity::identify(&place, &node, transport, backing_file.as_deref())?;
        Ok(Self {
            node,
            place,
            diskseq,
            hidden,
            number,
            backing_file,
            transport,
            identity,
        })
    }

    /// Fails if another device took the name meanwhile: the facts read so far may be of either device.
    fn is_still_the_same(&self) -> io::Result<()> {
        if self.node.number("diskseq")?.unwrap_or(0) == self.diskseq {
            return Ok(());
        }
        let kernel_name = self.place.kernel_name();
        Err(io::Error::new(
            ErrorKind::Interrupted,
            format!("block device {kernel_name} changed while it was read; it will be read again"),
        ))
    }
}

fn gather(root: &Path, link: &Path, kernel_name: &str) -> io::Result<DriveFacts> {
    let device = Disk::find(root, link, kernel_name)?;
    let (disk, place) = (&device.node, &device.place);
    let partitions = partitions(disk, kernel_name)?;
    let mut holders = holders(root, disk, kernel_name)?;
    for partition in &partitions {
        holders.extend(self::holders(
            root,
            &disk.child(&partition.kernel_name),
            &partition.kernel_name,
        )?);
    }
    let rotational = disk.flag("queue/rotational")?;
    let identity = device.identity.clone();
    let facts = DriveFacts {
        id: identity.id,
        identity_is_stable: identity.is_stable,
        kernel_name: kernel_name.to_owned(),
        major: device.number.0,
        minor: device.number.1,
        diskseq: device.diskseq,
        model: identity.model,
        serial: identity.serial,
        wwn: identity.wwn,
        firmware: identity.firmware,
        size_bytes: sectors(disk, "size")?,
        logical_sector: sector_size(disk, "queue/logical_block_size")?,
        physical_sector: sector_size(disk, "queue/physical_block_size")?,
        media: match (place.is_nvme(), rotational) {
            (true, _) => Media::Nvme,
            (false, true) => Media::Hdd,
            (false, false) => Media::Ssd,
        },
        transport: device.transport,
        read_only: disk.required_flag("ro")?,
        removable: disk.flag("removable")?,
        hidden: device.hidden,
        zoned: disk
            .text("queue/zoned")?
            .is_some_and(|zoned| zoned != "none"),
        is_partition: disk.exists("partition")?,
        virtual_kind: attach::virtual_kind(place),
        not_running: attach::not_running(place, disk)?,
        holders,
        partitions,
        sysfs_path: format!("/sys{}", place.path()),
        backing_file: device.backing_file.clone(),
        // An unknown location must not exclude a drive, or fail a whole scan.
        bay: bay::bay(root, place, disk).unwrap_or_default(),
    };
    device.is_still_the_same()?;
    Ok(facts)
}

fn parse_dev(text: &str) -> io::Result<(u32, u32)> {
    text.split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| {
            io::Error::new(
                ErrorKind::InvalidData,
                format!("{text:?} is not a device number"),
            )
        })
}

fn sectors(node: &Node, name: &str) -> io::Result<u64> {
    node.required_number(name)?
        .checked_mul(SYSFS_SECTOR)
        .ok_or_else(|| {
            io::Error::new(
                ErrorKind::InvalidData,
                format!("{name} of {node} is too large"),
            )
        })
}

fn sector_size(node: &Node, name: &str) -> io::Result<u32> {
    let size = node.number(name)?.unwrap_or(SYSFS_SECTOR);
    u32::try_from(size).map_err(|_| {
        io::Error::new(
            ErrorKind::InvalidData,
            format!("{name} of {node} is {size}"),
        )
    })
}

/// Returns the current kernel partitions of a disk.
pub fn partitions_of(root: &Path, kernel_name: &str) -> io::Result<Vec<PartitionFacts>> {
    partitions(&disk_node(root, kernel_name)?, kernel_name)
}

/// Returns one partition; None if the kernel has none of this number. For a disk with many partitions this costs much less than reading
/// all.
pub fn partition_of(
    root: &Path,
    kernel_name: &str,
    number: u32,
) -> io::Result<Option<PartitionFacts>> {
    let disk = disk_node(root, kernel_name)?;
    partition_unless_gone(&disk, partition_name(kernel_name, number), number)
}

fn disk_node(root: &Path, kernel_name: &str) -> io::Result<Node> {
    Node::open(root.join("class/block").join(kernel_name))
}

fn partitions(disk: &Node, disk_name: &str) -> io::Result<Vec<PartitionFacts>> {
    let mut result = Vec::new();
    for kernel_name in disk.list()? {
        let Some(number) = partition_number(disk_name, &kernel_name) else {
            continue;
        };
        result.extend(partition_unless_gone(disk, kernel_name, number)?);
    }
    result.sort_by_key(|facts| facts.number);
    Ok(result)
}

/// Returns the kernel's name of a partition: the disk's name and the number, with `p` between them if the name ends with a digit.
fn partition_name(disk: &str, number: u32) -> String {
    let p = if disk.ends_with(|last: char| last.is_ascii_digit()) {
        "p"
    } else {
        ""
    };
    format!("{disk}{p}{number}")
}

/// Returns the number of the disk's partition of this name; None for other names. Derived from the name, so that neither the disk's some
/// thirty attributes nor the partition's need be opened.
pub fn partition_number(disk: &str, name: &str) -> Option<u32> {
    let rest = name.strip_prefix(disk)?;
    let number = rest.strip_prefix('p').unwrap_or(rest).parse().ok()?;
    (partition_name(disk, number) == name).then_some(number)
}

fn partition_unless_gone(
    disk: &Node,
    kernel_name: String,
    number: u32,
) -> io::Result<Option<PartitionFacts>> {
    let node = disk.child(&kernel_name);
    match partition(&node, kernel_name, number) {
        // Removed from an existing disk. If the disk is gone, its partitions are unknown, not absent.
        Err(error)
            if error.kind() == ErrorKind::NotFound
                && !node.exists("dev")?
                && disk.exists("dev")? =>
        {
            Ok(None)
        }
        other => other.map(Some),
    }
}

fn partition(node: &Node, kernel_name: String, number: u32) -> io::Result<PartitionFacts> {
    let (major, minor) = parse_dev(&node.required("dev")?)?;
    Ok(PartitionFacts {
        kernel_name,
        number,
        start_bytes: sectors(node, "start")?,
        size_bytes: sectors(node, "size")?,
        major,
        minor,
    })
}

/// Returns the device-mapper uuid of a block device; None if it has none or is gone.
pub fn dm_uuid(root: &Path, kernel_name: &str) -> io::Result<Option<String>> {
    Node::at(root.join("class/block").join(kernel_name)).text("dm/uuid")
}

fn holders(root: &Path, node: &Node, held: &str) -> io::Result<Vec<Holder>> {
    let mut names = match node.child("holders").list() {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    names.sort();
    names
        .into_iter()
        .map(|name| {
            Ok(Holder {
                held: held.to_owned(),
                dm_uuid: dm_uuid(root, &name)?,
                name,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
