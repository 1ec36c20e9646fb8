//! Errors of layout jobs, and refusals that both layouts word in the same way.

use std::io;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use drivebay_model::{
    Cause, DriveId, Extent, Placed,
    units::{count, human_millis, size_beside},
};

/// Error of a layout job. Every variant leaves the drive as it was, or in a state that the next `ReadDrive` repairs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum LayoutError {
    /// The device at this name is not the expected drive any more.
    #[error("drive {drive} is not at /dev/{kernel_name} any more ({seen}); rescan")]
    NotThisDrive {
        /// Id of the drive that was expected at `kernel_name`.
        drive: String,
        /// Kernel name at which the drive was expected.
        kernel_name: String,
        /// Device that has this name now.
        seen: String,
    },
    /// Reading or writing failed.
    #[error("{what} on drive {drive} failed")]
    Io {
        drive: String,
        /// The operation that failed.
        what: String,
        #[source]
        source: Cause,
    },
    /// An operation on the host failed or was refused. It is no evidence about the drive.
    #[error("{what} failed on this host; nothing on drive {drive} is damaged or was changed")]
    Host {
        drive: String,
        /// The operation that failed, and the remedy.
        what: String,
        #[source]
        source: Cause,
    },
    /// The flock of the drive was not acquired within the time limit.
    #[error(
        "drive {drive} is locked by another program (flock), and stayed so for {}",
        human_millis(*waited_ms)
    )]
    Locked {
        drive: String,
        /// Time for which the lock was waited for, milliseconds.
        waited_ms: u64,
    },
    /// The drive is not claimed, and may not be.
    #[error("drive {drive} may not be claimed: {reason}")]
    NotClaimable {
        drive: String,
        /// Reject codes and details.
        reason: String,
    },
    /// The table is ours and the label was never written: a claim was interrupted. A `Create` with `claim` completes it.
    #[error(
        "claiming drive {drive} was interrupted before its label was written; creating a volume finishes it"
    )]
    Unlabelled { drive: String },
    /// The drive is ours, but its table or records are not valid.
    #[error("the label of drive {drive} is damaged: {reason}; nothing was changed")]
    Damaged {
        drive: String,
        /// Description of the damage.
        reason: String,
    },
    /// The drive is ours and undamaged, but has another sector size than when its table was written.
    #[error("drive {drive} {}; nothing was changed", sector_size(*written, *now))]
    OtherSector {
        drive: String,
        /// Sector size that the table was written with, bytes.
        written: u64,
        /// Present logical sector size of the drive, bytes.
        now: u64,
    },
    /// A change was begun, and its outcome cannot be read: the volume may be on the drive.
    #[error("what came of {what} on drive {drive} is not known; the next attempt looks first")]
    InDoubt {
        drive: String,
        /// The operation that failed.
        what: String,
        /// Reason for which the outcome cannot be read.
        #[source]
        source: Cause,
    },
    /// No free run is large enough; with LVM: all of them together are not.
    #[error(
        "drive {drive} has no room for a volume of {}; the largest that would fit is {}",
        size_beside(*needed, *largest),
        size_beside(*largest, *needed)
    )]
    NoSpace {
        drive: String,
        /// Space that the volume or snapshot needs, bytes; 0 if an LVM command itself found too few free extents.
        needed: u64,
        /// Size of the largest volume that would fit, bytes (`Contents::largest_free`).
        largest: u64,
    },
    /// All table entries are used, or LVM's metadata area is full.
    #[error(
        "drive {drive} takes no more volumes: its partition table, or LVM's metadata area, is full ({entries} entries)"
    )]
    TableFull {
        drive: String,
        /// Number of entries of the table.
        entries: u32,
    },
    /// The volume is not on this drive.
    #[error("volume {uuid} is not on drive {drive}")]
    NoSuchVolume { drive: String, uuid: Uuid },
    /// The volume is on this drive, but its place is not the expected one. Nothing was changed.
    #[error("volume {uuid} on drive {drive} is {place}; nothing was changed")]
    NotThere {
        drive: String,
        uuid: Uuid,
        /// Current place of the volume on the drive, in words.
        place: String,
    },
    /// The drive refuses to write the record by which the volume leaves it. No process has the volume open: the kernel has no device of it
    /// until the next `ReadDrive`.
    #[error("drive {drive} refuses to be written that volume {uuid} leaves it")]
    NotWritten {
        drive: String,
        uuid: Uuid,
        #[source]
        source: Cause,
    },
    /// The volume's device is in use in the kernel.
    #[error("volume {uuid} is in use: {held}")]
    InUse {
        uuid: Uuid,
        /// The user of the device, and the remedy.
        held: String,
    },
    /// The volume has snapshots: the change would delete them, or is not possible with them. Nothing was changed.
    #[error(
        "volume {uuid} has {}: {}; delete {} first. Nothing was changed",
        count(snapshots.len(), "snapshot"),
        snapshots.join(", "),
        if snapshots.len() == 1 { "it" } else { "them" }
    )]
    HasSnapshots {
        uuid: Uuid,
        /// Names of its snapshots, at least one.
        snapshots: Vec<String>,
    },
    /// A process has the snapshot's device open, e.g. to copy it to a volume.
    #[error(
        "snapshot {uuid} on drive {drive} is open, e.g. since it is being copied to a volume; nothing was changed"
    )]
    SnapshotInUse { drive: String, uuid: Uuid },
    /// No snapshot of this uuid, or it cannot be read.
    #[error("snapshot {uuid} on drive {drive} cannot be copied: {why}")]
    NoSnapshot {
        drive: String,
        uuid: Uuid,
        why: String,
    },
    /// The snapshots of a group are not of one point in time, or cannot be completed. Their volumes were not changed.
    #[error(
        "the snapshots were not taken: {why}; nothing was changed on their volumes. Take them again"
    )]
    NotTogether { why: String },
    /// Volumes may still be suspended: resuming them failed, or has not ended because their drive does not answer.
    #[error(
        "volumes may be suspended, so that all I/O to them waits: {why}. They are resumed when their drive answers; check it (dmesg). `dmsetup info -c` lists suspended devices; `dmsetup clear NAME` drops a table of one that was loaded and not used, then `dmsetup resume NAME` resumes it; if that fails, restart the host"
    )]
    StillSuspended {
        /// Names of the devices in device-mapper, their drives, and what failed or has not ended.
        why: String,
    },
    /// `Delete::only_unused` was set, and the volume may have been used. Nothing was changed.
    #[error("volume {uuid} is not deleted: it may have been used, {why}; nothing was changed")]
    Used {
        uuid: Uuid,
        /// Evidence of a use.
        why: String,
    },
    /// Record and table disagree.
    #[error("volume {uuid} is ambiguous: {reason}; nothing was changed")]
    Ambiguous { uuid: Uuid, reason: String },
    /// The space behind the volume is not free; with LVM: the drive has too little free space.
    #[error(
        "volume {uuid} cannot grow to {} on its drive; it could grow to {}",
        size_beside(*needed, *possible),
        size_beside(*possible, *needed)
    )]
    CannotGrow {
        uuid: Uuid,
        /// Requested size of the whole volume, bytes.
        needed: u64,
        /// Largest size to which the whole volume can grow on its drive, bytes.
        possible: u64,
    },
    /// The state machine of invariant 3 has no such step.
    #[error("volume {uuid} cannot go from {from} to {to}")]
    BadTransition {
        uuid: Uuid,
        /// State on the drive.
        from: String,
        /// Requested state or place, as text.
        to: String,
    },
    /// An `lvm` command failed. Changes that it had begun may be on the drive.
    #[error("{what} on drive {drive} failed")]
    Lvm {
        drive: String,
        /// The operation that failed.
        what: String,
        /// Error of the command (`LvmError`), e.g. its exit code and output, or a passed deadline.
        #[source]
        source: Cause,
    },
    /// An `lvm` command that is not this agent's holds the lock of this drive's VG. Nothing was changed.
    #[error("nothing was changed on drive {drive}")]
    LvmLocked {
        drive: String,
        /// The VG, and the time for which its lock was waited for.
        #[source]
        source: Cause,
    },
    /// This host lacks what the `lvm` layout needs. Nothing was changed.
    #[error("drive {drive} cannot have layout lvm. {}", drivebay_sys::lvm::INSTEAD)]
    NoLvm {
        drive: String,
        /// Requirement that is not met: an installed LVM that starts, is not too old and has its configuration, and the kernel's
        /// device-mapper.
        #[source]
        source: Cause,
    },
    /// A process or device holds the drive exclusively, or it is mounted.
    #[error("drive {drive} is in use: {reason}")]
    Busy {
        drive: String,
        /// User of the drive.
        reason: String,
    },
    /// A process that zeroes these bytes, or copies a volume there, has not ended. Nothing was changed.
    #[error(
        "bytes {start} to {end} of drive {drive} may still be zeroed, or written by a copy, by a process that has not ended, also if it was killed: a `drivebay-agent worker` of this agent or an earlier one; nothing was changed. It ends when the drive answers; if it never does, restart the host"
    )]
    StillZeroed {
        drive: String,
        /// First byte of the range that the other process has reserved, from the start of the drive.
        start: u64,
        /// First byte behind them.
        end: u64,
    },
    /// A raw volume would expose the contents of these bytes, which are not zeroed yet. Nothing was changed.
    #[error(
        "drive {drive} is still being zeroed: {} of {} for this raw volume are zeros by now; it is made once all of them are. `raw-space = \"sampled\"` of the class does not wait, and may show a former owner's data",
        size_beside(*zeroed, *needed),
        size_beside(*needed, *zeroed)
    )]
    NotZeroed {
        drive: String,
        /// Bytes that are zeros already.
        zeroed: u64,
        /// Size of the runs that were chosen for the volume, bytes.
        needed: u64,
        /// Runs to zero for the volume.
        runs: Vec<Extent>,
    },
    /// An operator has cordoned the drive.
    #[error("drive {drive} is cordoned by {by} and takes no new volumes ({reason})")]
    Cordoned {
        drive: String,
        by: String,
        reason: String,
    },
    /// Erased bytes did not read back as zeros.
    #[error(
        "drive {drive} does not read back zeros at byte {offset} after erasing; the space stays out of use"
    )]
    NotErased { drive: String, offset: u64 },
}

/// Subject of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The drive, or its contents.
    Drive,
    /// The host: the error applies to every drive.
    Host,
    /// A temporary condition: another program uses the drive, or its kernel name belongs to another device now.
    Moment,
}

impl LayoutError {
    /// Returns the subject of the error. Exhaustive: each new variant must be assigned here.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Host { .. } | Self::NoLvm { .. } => Fault::Host,
            Self::NotThisDrive { .. }
            | Self::Locked { .. }
            | Self::LvmLocked { .. }
            | Self::Busy { .. }
            | Self::InDoubt { .. }
            | Self::StillZeroed { .. }
            | Self::NotZeroed { .. }
            | Self::NotThere { .. }
            | Self::NotTogether { .. }
            | Self::StillSuspended { .. }
            | Self::Lvm { .. } => Fault::Moment,
            Self::Io { .. }
            | Self::NotClaimable { .. }
            | Self::Unlabelled { .. }
            | Self::Damaged { .. }
            | Self::OtherSector { .. }
            | Self::NoSpace { .. }
            | Self::TableFull { .. }
            | Self::NoSuchVolume { .. }
            | Self::NotWritten { .. }
            | Self::InUse { .. }
            | Self::HasSnapshots { .. }
            | Self::SnapshotInUse { .. }
            | Self::NoSnapshot { .. }
            | Self::Used { .. }
            | Self::Ambiguous { .. }
            | Self::CannotGrow { .. }
            | Self::BadTransition { .. }
            | Self::NotErased { .. }
            | Self::Cordoned { .. } => Fault::Drive,
        }
    }
}

/// Reason in errors about a snapshot that the kernel has invalidated.
pub(super) const LOST: &str = "it is lost: its reserve was full, or its store could not be written";

/// A question to the host that failed. The device may also have gone meanwhile.
pub(super) fn host_error(
    drive: &DriveId,
    what: &str,
) -> impl FnOnce(io::Error) -> LayoutError + use<> {
    let (drive, what) = (drive.clone(), what.to_owned());
    move |source| match source.kind() {
        io::ErrorKind::NotFound => LayoutError::NotThisDrive {
            drive: drive.to_string(),
            kernel_name: String::new(),
            seen: format!("{what}: no device"),
        },
        _ => LayoutError::Host {
            drive: drive.to_string(),
            what,
            source: Cause::from(source),
        },
    }
}

/// A failed system call.
pub(super) fn io_error(
    drive: &DriveId,
    what: &str,
) -> impl FnOnce(io::Error) -> LayoutError + use<> {
    let (drive, what) = (drive.to_string(), what.to_owned());
    move |source| LayoutError::Io {
        drive,
        what,
        source: Cause::from(source),
    }
}

/// Returns the description of a drive whose table was written with sectors of another size, and the remedy.
pub fn sector_size(written: u64, now: u64) -> String {
    format!(
        "has Drivebay's partition table, written with sectors of {written} bytes, and is attached with sectors of {now} bytes now; its data is not damaged: attach it as before (without the USB dock, at the former HBA, or formatted as before)"
    )
}

pub(super) fn other_sector(id: &DriveId, written: u64, now: u64) -> LayoutError {
    LayoutError::OtherSector {
        drive: id.to_string(),
        written,
        now,
    }
}

pub(super) fn damaged(id: &DriveId, reason: String) -> LayoutError {
    LayoutError::Damaged {
        drive: id.to_string(),
        reason,
    }
}

/// A drive that may not be claimed.
pub(super) fn refused(id: &DriveId, reason: String) -> LayoutError {
    LayoutError::NotClaimable {
        drive: id.to_string(),
        reason,
    }
}

pub(super) fn not_ours(id: &DriveId) -> LayoutError {
    refused(id, "it does not carry our label".into())
}

/// Refuses what records, table and kernel disagree about.
pub(super) fn fit(placed: &Placed) -> Result<(), LayoutError> {
    match &placed.ambiguous {
        Some(reason) => Err(ambiguous(placed.record.uuid, reason.clone())),
        None => Ok(()),
    }
}

pub(super) fn ambiguous(uuid: Uuid, reason: String) -> LayoutError {
    LayoutError::Ambiguous { uuid, reason }
}

/// A volume that `holders` keep in use; none: who does is not known.
pub(super) fn in_use(placed: &Placed, holders: &[String]) -> LayoutError {
    let device = placed.device.as_deref().unwrap_or("its device");
    let held = match holders {
        [] => format!("{device} is open; unmount it, and end what has it open"),
        some => format!("{device} is held by {}; end them", some.join(", ")),
    };
    LayoutError::InUse {
        uuid: placed.record.uuid,
        held,
    }
}
