//! Identity and sysfs facts of a drive, and the reasons why it may not be used.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

pub use drivebay_proto::words::{DriveState, Media, Transport};

/// Stable identity of a drive: `wwn-…`, `eui-…`, `nguid-…`, `serial-<model>_<serial>`,
/// `path-…` (no identity of its own) or `loop-…`. `/dev/sdX` is only an attribute.
///
/// Characters are `[A-Za-z0-9._:-]` only: safe as a file name, a metric label and a log field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DriveId(pub String);

impl DriveId {
    /// True if it names the place where a drive is attached, and not the drive itself.
    pub fn is_place(&self) -> bool {
        self.0.starts_with("path-")
    }
}

impl fmt::Display for DriveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Attributes of a block device in sysfs; read without accessing the medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFacts {
    pub id: DriveId,
    /// False if the identity is only the place where the drive is attached (`path-…`).
    pub identity_is_stable: bool,
    /// Current kernel name, e.g. `sda`.
    pub kernel_name: String,
    pub major: u32,
    pub minor: u32,
    /// The kernel's number of this appearance of the device; 0 on kernels before 5.15.
    pub diskseq: u64,
    /// Model that the device reports, trimmed.
    pub model: String,
    /// Serial number, trimmed; empty if there is none.
    pub serial: String,
    /// WWN, EUI or NGUID as text; empty if there is none.
    pub wwn: String,
    pub firmware: String,
    /// Size in bytes (sysfs `size` × 512).
    pub size_bytes: u64,
    /// Size of a logical sector, bytes.
    pub logical_sector: u32,
    /// Size of a physical sector, bytes.
    pub physical_sector: u32,
    pub media: Media,
    pub transport: Transport,
    /// sysfs `ro` is not 0: the kernel refuses writes. Such a drive is not claimed.
    pub read_only: bool,
    /// sysfs `removable` is not 0; false without that attribute. Such a drive is claimed only if its class has `allow-removable`.
    pub removable: bool,
    /// sysfs `hidden` is not 0, as for one path of a multipath NVMe device; false without that attribute. Such a device may have no number
    /// (0:0), and is not claimed.
    pub hidden: bool,
    /// queue/zoned is not `none`.
    pub zoned: bool,
    /// sysfs has an attribute `partition`. Only whole drives are claimed.
    pub is_partition: bool,
    /// Kind of virtual device (`loop`, `dm`, `md`, `zram`, …); None for a physical drive.
    pub virtual_kind: Option<String>,
    /// SCSI or NVMe state unless it is the running one (`offline`, `dead`, `suspended`, …).
    pub not_running: Option<String>,
    /// Kernel names of the holders of the disk and of each partition, with the dm uuid if there is one.
    pub holders: Vec<Holder>,
    pub partitions: Vec<PartitionFacts>,
    /// `/sys/devices/…` path, as the by-path identity and for selection.
    pub sysfs_path: String,
    /// File behind a loop device.
    pub backing_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Bay::is_unknown")]
    pub bay: Bay,
}

/// Location of a drive, as its enclosure or slot reports it; fields that neither reports are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bay {
    /// Logical identifier of the SES enclosure, else its name in sysfs.
    pub enclosure: String,
    /// Slot in the enclosure: its number, else its name.
    pub slot: String,
    /// Name of the PCIe slot.
    pub pcie_slot: String,
}

impl Bay {
    /// True if the host reports no location.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the location as text, for a person in front of the machine; empty if it is unknown.
    pub fn describe(&self) -> String {
        drivebay_proto::health::describe_bay(&self.enclosure, &self.slot, &self.pcie_slot)
    }
}

/// A block device that is stacked on a disk or partition (`/sys/class/block/X/holders`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Kernel name of what is held: the disk or one of its partitions.
    pub held: String,
    /// Kernel name of the holder, e.g. `dm-0`, `md127`.
    pub name: String,
    /// dm uuid, if the holder is a device-mapper device.
    pub dm_uuid: Option<String>,
}

/// A partition as the kernel currently has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionFacts {
    /// Kernel name, e.g. `sda1`.
    pub kernel_name: String,
    /// Partition number, from 1.
    pub number: u32,
    /// Bytes from the start of the disk.
    pub start_bytes: u64,
    pub size_bytes: u64,
    pub major: u32,
    pub minor: u32,
}

/// Reference to a drive for a worker: how to find it, and how to verify that it is still the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRef {
    /// Identity that the device must still have.
    pub id: DriveId,
    /// Kernel name, e.g. `sda`; the node is `/dev/<kernel_name>`.
    pub kernel_name: String,
    /// Major number that the device node must have.
    pub major: u32,
    /// Minor number that the device node must have.
    pub minor: u32,
    /// The kernel's number that the device must still have, unless this is 0.
    pub diskseq: u64,
    /// Size in bytes that the device must still have.
    pub size_bytes: u64,
}

impl DriveRef {
    /// Returns the path of the device node; `!` in the kernel name is `/` in the path.
    pub fn node(&self) -> PathBuf {
        PathBuf::from("/dev").join(self.kernel_name.replace('!', "/"))
    }
}

impl From<&DriveFacts> for DriveRef {
    fn from(facts: &DriveFacts) -> Self {
        Self {
            id: facts.id.clone(),
            kernel_name: facts.kernel_name.clone(),
            major: facts.major,
            minor: facts.minor,
            diskseq: facts.diskseq,
            size_bytes: facts.size_bytes,
        }
    }
}

/// One reason why a drive may not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    pub code: RejectCode,
    /// The evidence, and what an operator can do about it.
    pub detail: String,
}

macro_rules! reject_codes {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Reason for which a drive may not be claimed. The names are stable: they appear in tables, JSON, metrics and alerts.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum RejectCode { $($(#[doc = $doc])+ $name,)+ }

        impl RejectCode {
            /// Every code there is.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The code as text.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// In a sentence, for the reference.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim(),)+ }
            }
        }
    };
}

reject_codes! {
    /// Not a drive by itself: loop, ram, zram, fd, sr, nbd, rbd, zd, drbd, mtd, md, dm, bcache. LVs are not listed at all.
    NotADisk,
    /// A partition; only whole drives are claimed.
    Partition,
    /// Reached over a network: iSCSI, FC, NVMe-oF.
    Remote,
    /// Removable, or on USB, and the class does not allow it (`allow-removable`).
    Removable,
    /// Hidden by the kernel, as one path of a multipath NVMe device is.
    HiddenPath,
    /// One path of a multipath device.
    MultipathMember,
    /// The kernel has it read-only.
    ReadOnly,
    /// The size is 0: no medium, or a drive that failed.
    ZeroSize,
    /// Smaller than a label and one volume need.
    TooSmall,
    /// A zoned device (SMR, ZNS).
    Zoned,
    /// The kernel does not have it running: SCSI state, NVMe state, or suspended by device-mapper.
    NotRunning,
    /// A partition table of any kind, an empty one too.
    PartitionTable,
    /// The kernel shows partitions.
    HasPartitions,
    /// A GPT that is not whole.
    GptDamaged,
    /// The kernel shows partitions, but no table is there.
    PhantomTable,
    /// A filesystem.
    Filesystem,
    /// An LVM physical volume, with or without a VG.
    LvmPv,
    /// A member of a RAID (md, DDF, IMSM, …).
    RaidMember,
    /// A LUKS header.
    Luks,
    /// A BitLocker volume.
    Bitlocker,
    /// A ZFS label.
    Zfs,
    /// A Ceph BlueStore OSD.
    Bluestore,
    /// A bcache superblock.
    Bcache,
    /// Swap space.
    Swap,
    /// An external ext journal.
    Jbd,
    /// A VDO volume.
    Vdo,
    /// A Stratis pool member.
    Stratis,
    /// A DRBD backing device.
    Drbd,
    /// Any other signature that libblkid knows.
    OtherSignature,
    /// Probing found several signatures that exclude each other.
    Ambivalent,
    /// Something is stacked on it (dm, md, bcache).
    Holders,
    /// Mounted, here or in pid 1's namespace.
    Mounted,
    /// The host swaps to it.
    SwapInUse,
    /// A process, or the kernel, holds it exclusively.
    Busy,
    /// The system runs from it.
    SystemDrive,
    /// The agent does not see what the host uses: its pod lacks the host's processes or mounts.
    HostUnknown,
    /// Drivebay's label of another cluster or node.
    OursElsewhere,
    /// Drivebay's label, which cannot be read or does not agree with the partition table or LVM's metadata.
    OursDamaged,
    /// Drivebay's partition table, written with sectors of another size than the drive has now.
    SectorSizeChanged,
    /// Two devices with one identity, or one label on two drives.
    DuplicateIdentity,
    /// No WWN and no serial; needs explicit selection by path.
    NoStableIdentity,
    /// It does not read.
    Unreadable,
    /// The verdict is BAD or SUSPECT.
    Unhealthy,
    /// No class selects it.
    NotSelected,
    /// Two classes select it and no priority decides.
    AmbiguousClass,
    /// No signature, but not zeros either: raw data.
    NotBlank,
    /// The probe itself failed; that says nothing about what is on the drive.
    ProbeFailed,
}

impl fmt::Display for RejectCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
