//! Why carving fails, and what both layouts refuse in the same words.

use std::io;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use drivebay_model::{
    Cause, DriveId, Extent, Placed,
    units::{count, human_millis, size_beside},
};

/// Why a carving job failed. Every variant leaves the drive as it was, or in a state that the
/// next look repairs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum CarveError {
    /// The device at this name is not the expected drive any more.
    #[error("drive {drive} is not at /dev/{kernel_name} any more ({seen}); rescan")]
    NotThisDrive {
        /// Expected identity.
        drive: String,
        /// Where it was looked for.
        kernel_name: String,
        /// What was there.
        seen: String,
    },
    /// Reading or writing failed.
    #[error("{what} on drive {drive} failed")]
    Io {
        drive: String,
        /// What was being done.
        what: String,
        #[source]
        source: Cause,
    },
    /// The host could not be asked, or refused. Says nothing of the drive.
    #[error("{what} failed on this host; nothing on drive {drive} is damaged or was changed")]
    Host {
        drive: String,
        /// What was being done, and what to do about it.
        what: String,
        #[source]
        source: Cause,
    },
    /// The flock was not to be had in time.
    #[error(
        "drive {drive} is locked by another program (flock), and stayed so for {}",
        human_millis(*waited_ms)
    )]
    Locked {
        drive: String,
        /// Milliseconds.
        waited_ms: u64,
    },
    /// Not ours and not to be claimed.
    #[error("drive {drive} may not be claimed: {reason}")]
    NotClaimable {
        drive: String,
        /// Reject codes and details.
        reason: String,
    },
    /// The table is ours and the label was never written: a claim that was interrupted. A
    /// `Create` with `claim` finishes it.
    #[error(
        "claiming drive {drive} was interrupted before its label was written; creating a volume finishes it"
    )]
    Unlabelled { drive: String },
    /// Ours, but table and records cannot be trusted.
    #[error("the label of drive {drive} is damaged: {reason}; nothing was changed")]
    Damaged {
        drive: String,
        /// What is wrong.
        reason: String,
    },
    /// Ours and whole, and shown with other sectors than its table was written with.
    #[error("drive {drive} {}; nothing was changed", sector_size(*written, *now))]
    OtherSector {
        drive: String,
        /// Bytes.
        written: u64,
        /// Bytes.
        now: u64,
    },
    /// A change was begun, and what came of it cannot be read: the volume may be on the drive.
    #[error("what came of {what} on drive {drive} is not known; the next attempt looks first")]
    InDoubt {
        drive: String,
        /// What was being done.
        what: String,
        /// Why it cannot be read.
        #[source]
        source: Cause,
    },
    /// No free run is large enough, or with LVM all of them together are not.
    #[error(
        "drive {drive} has no room for a volume of {}; the largest that would fit is {}",
        size_beside(*needed, *largest),
        size_beside(*largest, *needed)
    )]
    NoSpace {
        drive: String,
        /// Bytes.
        needed: u64,
        /// Bytes.
        largest: u64,
    },
    /// Every table entry is taken, or LVM's metadata area.
    #[error(
        "drive {drive} takes no more volumes: its partition table, or LVM's metadata area, is full ({entries} entries)"
    )]
    TableFull {
        drive: String,
        /// How many entries it has.
        entries: u32,
    },
    /// Not on this drive.
    #[error("volume {uuid} is not on drive {drive}")]
    NoSuchVolume { drive: String, uuid: Uuid },
    /// It is on this drive, and does not live there, or not as was expected. Nothing was changed.
    #[error("volume {uuid} on drive {drive} is {place}; nothing was changed")]
    NotThere {
        drive: String,
        uuid: Uuid,
        /// Its place there, in words.
        place: String,
    },
    /// The drive refuses the record that the volume leaves it. Nobody has the volume open: the kernel has no device of it until the
    /// next look.
    #[error("drive {drive} refuses to be written that volume {uuid} leaves it")]
    NotWritten {
        drive: String,
        uuid: Uuid,
        #[source]
        source: Cause,
    },
    /// The kernel holds it.
    #[error("volume {uuid} is in use: {held}")]
    InUse {
        uuid: Uuid,
        /// What holds it, and what to do.
        held: String,
    },
    /// It would take its snapshots along, or cannot be changed while it has them. Nothing was changed.
    #[error(
        "volume {uuid} has {}: {}; delete {} first. Nothing was changed",
        count(snapshots.len(), "snapshot"),
        snapshots.join(", "),
        if snapshots.len() == 1 { "it" } else { "them" }
    )]
    HasSnapshots {
        uuid: Uuid,
        /// Their names.
        snapshots: Vec<String>,
    },
    /// Somebody reads the snapshot, e.g. to copy it to a volume.
    #[error(
        "snapshot {uuid} on drive {drive} is open, e.g. since it is being copied to a volume; nothing was changed"
    )]
    SnapshotInUse { drive: String, uuid: Uuid },
    /// No snapshot of this identity, or it cannot be read.
    #[error("snapshot {uuid} on drive {drive} cannot be copied: {why}")]
    NoSnapshot {
        drive: String,
        uuid: Uuid,
        why: String,
    },
    /// It was to be deleted only if nobody ever used it.
    #[error("volume {uuid} is not deleted: it may have been used, {why}; nothing was changed")]
    Used {
        uuid: Uuid,
        /// What says so.
        why: String,
    },
    /// Record and table disagree.
    #[error("volume {uuid} is ambiguous: {reason}; nothing was changed")]
    Ambiguous { uuid: Uuid, reason: String },
    /// The space behind it is taken, or with LVM all of the drive's.
    #[error(
        "volume {uuid} cannot grow to {} on its drive; it could grow to {}",
        size_beside(*needed, *possible),
        size_beside(*possible, *needed)
    )]
    CannotGrow {
        uuid: Uuid,
        /// Bytes.
        needed: u64,
        /// Bytes.
        possible: u64,
    },
    /// The state machine of invariant 3 has no such step.
    #[error("volume {uuid} cannot go from {from} to {to}")]
    BadTransition {
        uuid: Uuid,
        /// State on the drive.
        from: String,
        /// State asked for.
        to: String,
    },
    /// An `lvm` command failed. What it had begun may be on the drive.
    #[error("{what} on drive {drive} failed")]
    Lvm {
        drive: String,
        /// What was being done.
        what: String,
        /// What LVM said.
        #[source]
        source: Cause,
    },
    /// Somebody else's `lvm` command holds the lock of this drive's VG. Nothing was changed.
    #[error("nothing was changed on drive {drive}")]
    LvmLocked {
        drive: String,
        /// Which VG, for how long.
        #[source]
        source: Cause,
    },
    /// This host lacks what the `lvm` layout needs. Nothing was changed.
    #[error(
        "drive {drive} cannot be carved with layout lvm. {}",
        drivebay_sys::lvm::INSTEAD
    )]
    NoLvm {
        drive: String,
        /// What is missing.
        #[source]
        source: Cause,
    },
    /// Somebody holds the drive exclusively, or it is mounted.
    #[error("drive {drive} is in use: {reason}")]
    Busy {
        drive: String,
        /// By what.
        reason: String,
    },
    /// A process that was told to zero these bytes, or to copy a volume there, has not ended. Nothing was changed.
    #[error(
        "bytes {start} to {end} of drive {drive} may still be zeroed, or written by a copy, by a process that has not ended, also if it was killed: a `drivebay-agent worker` of this agent or an earlier one; nothing was changed. It ends when the drive answers; if it never does, restart the host"
    )]
    StillZeroed {
        drive: String,
        /// First byte.
        start: u64,
        /// First byte behind them.
        end: u64,
    },
    /// A raw volume would show what is in these bytes, and they are not zeroed yet. Nothing was changed.
    #[error(
        "drive {drive} is still being zeroed: {} of {} for this raw volume are zeros by now; it is made once all of them are. `raw-space = \"sampled\"` of the class does not wait, and may show a former owner's data",
        size_beside(*zeroed, *needed),
        size_beside(*needed, *zeroed)
    )]
    NotZeroed {
        drive: String,
        /// Bytes of it that are zeros.
        zeroed: u64,
        /// Bytes.
        needed: u64,
        /// What is to be zeroed for it.
        runs: Vec<Extent>,
    },
    /// An operator has decided that it takes no new volumes.
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

/// What an error says something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What is on the drive, or the drive itself.
    Drive,
    /// The host: what it lacks or refuses it lacks for every drive.
    Host,
    /// The moment: somebody else was at the drive, or its name went to another device.
    Moment,
}

impl CarveError {
    /// What it says something about. A new error has to decide that here.
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

/// A question to the host that failed. The device may also have gone meanwhile.
pub(super) fn host_error(
    drive: &DriveId,
    what: &str,
) -> impl FnOnce(io::Error) -> CarveError + use<> {
    let (drive, what) = (drive.clone(), what.to_owned());
    move |source| match source.kind() {
        io::ErrorKind::NotFound => CarveError::NotThisDrive {
            drive: drive.to_string(),
            kernel_name: String::new(),
            seen: format!("{what}: no device"),
        },
        _ => CarveError::Host {
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
) -> impl FnOnce(io::Error) -> CarveError + use<> {
    let (drive, what) = (drive.to_string(), what.to_owned());
    move |source| CarveError::Io {
        drive,
        what,
        source: Cause::from(source),
    }
}

/// What happened to a drive whose table of ours was written with sectors of another size, and what to do.
pub fn sector_size(written: u64, now: u64) -> String {
    format!(
        "has Drivebay's partition table, written with sectors of {written} bytes, and is attached with sectors of {now} bytes now; its data is not damaged: attach it as before (without the USB dock, at the former HBA, or formatted as before)"
    )
}

pub(super) fn other_sector(id: &DriveId, written: u64, now: u64) -> CarveError {
    CarveError::OtherSector {
        drive: id.to_string(),
        written,
        now,
    }
}

pub(super) fn damaged(id: &DriveId, reason: String) -> CarveError {
    CarveError::Damaged {
        drive: id.to_string(),
        reason,
    }
}

/// A drive that may not be claimed.
pub(super) fn refused(id: &DriveId, reason: String) -> CarveError {
    CarveError::NotClaimable {
        drive: id.to_string(),
        reason,
    }
}

pub(super) fn not_ours(id: &DriveId) -> CarveError {
    refused(id, "it does not carry our label".into())
}

/// Refuses what records, table and kernel disagree about.
pub(super) fn fit(placed: &Placed) -> Result<(), CarveError> {
    match &placed.ambiguous {
        Some(reason) => Err(ambiguous(placed.record.uuid, reason.clone())),
        None => Ok(()),
    }
}

pub(super) fn ambiguous(uuid: Uuid, reason: String) -> CarveError {
    CarveError::Ambiguous { uuid, reason }
}

/// A volume that `holders` keep in use; none: who does is not known.
pub(super) fn in_use(placed: &Placed, holders: &[String]) -> CarveError {
    let device = placed.device.as_deref().unwrap_or("its device");
    let held = match holders {
        [] => format!("{device} is open; unmount it, and end what has it open"),
        some => format!("{device} is held by {}; end them", some.join(", ")),
    };
    CarveError::InUse {
        uuid: placed.record.uuid,
        held,
    }
}
