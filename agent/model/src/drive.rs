//! A drive: its identity, its facts, and why it may not be used.

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
    /// Whether it names a place, and not the drive that is there.
    pub fn is_place(&self) -> bool {
        self.0.starts_with("path-")
    }
}

impl fmt::Display for DriveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What sysfs says of a block device. Read without touching the medium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFacts {
    /// Stable identity.
    pub id: DriveId,
    /// False when the identity is only the place it is plugged into (`path-…`).
    pub identity_is_stable: bool,
    /// Kernel name now, e.g. `sda`.
    pub kernel_name: String,
    pub major: u32,
    pub minor: u32,
    /// Kernel's number for this appearance of the device; 0 on kernels before 5.15.
    pub diskseq: u64,
    /// Model as the device says it, trimmed.
    pub model: String,
    /// Serial number, trimmed; empty when there is none.
    pub serial: String,
    /// WWN, EUI or NGUID as text; empty when there is none.
    pub wwn: String,
    /// Firmware revision.
    pub firmware: String,
    /// Size in bytes (sysfs `size` × 512).
    pub size_bytes: u64,
    /// Bytes.
    pub logical_sector: u32,
    /// Bytes.
    pub physical_sector: u32,
    /// Medium.
    pub media: Media,
    /// Attachment.
    pub transport: Transport,
    /// sysfs `ro`.
    pub read_only: bool,
    /// sysfs `removable`.
    pub removable: bool,
    /// sysfs `hidden`.
    pub hidden: bool,
    /// queue/zoned is not `none`.
    pub zoned: bool,
    /// sysfs `partition` exists.
    pub is_partition: bool,
    /// The kind of virtual device (`loop`, `dm`, `md`, `zram`, …); None for a real one.
    pub virtual_kind: Option<String>,
    /// SCSI or NVMe state when it is not the running one (`offline`, `dead`, `suspended`, …).
    pub not_running: Option<String>,
    /// Kernel names of holders of the disk and of each partition, with dm uuid where there is one.
    pub holders: Vec<Holder>,
    /// Kernel names of its partitions.
    pub partitions: Vec<PartitionFacts>,
    /// `/sys/devices/…` path, as the by-path identity and for selection.
    pub sysfs_path: String,
    /// For a loop device: the file behind it.
    pub backing_file: Option<PathBuf>,
    /// Where it sits.
    #[serde(default, skip_serializing_if = "Bay::is_unknown")]
    pub bay: Bay,
}

/// Where a drive sits, by what its enclosure or its slot says; empty where nothing does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bay {
    /// Logical identifier of the SES enclosure, else its name in sysfs.
    pub enclosure: String,
    /// The place in the enclosure: its number, else its name.
    pub slot: String,
    /// Name of the PCIe slot.
    pub pcie_slot: String,
}

impl Bay {
    /// The host knows nothing of it.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// For a person in front of the machine; empty when nothing is known.
    pub fn describe(&self) -> String {
        let in_enclosure = match (self.slot.as_str(), self.enclosure.as_str()) {
            ("", _) => None,
            (slot, "") => Some(format!("slot {slot}")),
            (slot, enclosure) => Some(format!("slot {slot} of enclosure {enclosure}")),
        };
        let pcie = Some(&self.pcie_slot).filter(|slot| !slot.is_empty());
        let all = in_enclosure
            .into_iter()
            .chain(pcie.map(|slot| format!("PCIe slot {slot}")));
        all.collect::<Vec<_>>().join(", ")
    }
}

/// Something stacked on a disk or partition (`/sys/class/block/X/holders`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// What is held: the disk or one of its partitions.
    pub held: String,
    /// Kernel name of the holder, e.g. `dm-0`, `md127`.
    pub name: String,
    /// dm uuid, when the holder is a device-mapper device.
    pub dm_uuid: Option<String>,
}

/// A partition as the kernel has it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionFacts {
    /// Kernel name, e.g. `sda1`.
    pub kernel_name: String,
    /// Partition number, from 1.
    pub number: u32,
    /// Bytes from the start of the disk.
    pub start_bytes: u64,
    /// Bytes.
    pub size_bytes: u64,
    pub major: u32,
    pub minor: u32,
}

/// How to find a drive again in a worker, and how to know that it is still the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRef {
    /// The identity that must still hold.
    pub id: DriveId,
    /// Kernel name, e.g. `sda`; the node is `/dev/<kernel_name>`.
    pub kernel_name: String,
    /// Device number that the node must have.
    pub major: u32,
    /// Device number that the node must have.
    pub minor: u32,
    /// Must be equal when not 0.
    pub diskseq: u64,
    /// Size in bytes that the device must still have.
    pub size_bytes: u64,
}

impl DriveRef {
    /// The device node.
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
    /// Stable code.
    pub code: RejectCode,
    /// What was seen, and what an operator can do about it.
    pub detail: String,
}

macro_rules! reject_codes {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Why a drive may not be claimed. The names are stable: they appear in tables,
        /// JSON, metrics and alerts.
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
    /// Its size is 0: no medium, or a drive that failed.
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
    /// Its verdict is BAD or SUSPECT.
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
