//! The carving work an agent asks a drive's worker for.
//!
//! Each job opens the drive, checks that it is the expected one, takes its flock, looks
//! at table and records, plans, executes, and reads everything again for its answer.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{layout, wipe};
use crate::model::{Cause, ClaimPolicy, Contents, DriveRef, Label, Layout, VolumeSpec};
use crate::worker::{Context, Job};

/// Reads a claimed drive: label, volumes, free space.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Look {
    /// The drive.
    pub drive: DriveRef,
    /// Also repair what is safe to repair (exactly one damaged table copy or record slot, an
    /// interrupted change) and give the kernel the partitions it lacks. Without it nothing is written.
    pub repair: bool,
}

/// Carves a volume, claiming the drive first when it is not ours yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Create {
    /// The drive.
    pub drive: DriveRef,
    /// For a drive that is not ours yet: how to claim it. None: it must be ours.
    pub claim: Option<Claim>,
    /// The volume; its size is rounded already.
    pub spec: VolumeSpec,
    /// Volumes that were deleted while their drive was away. No drive knows of that: one of them must not be taken for the
    /// volume that is asked for.
    pub deleted: Vec<Uuid>,
}

/// How to claim a drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    /// How it is to be carved.
    pub layout: Layout,
    /// The mark to write. `drive_uuid` is fresh.
    pub label: Label,
    /// What must be true of the drive's bytes; checked again under the lock.
    pub policy: ClaimPolicy,
}

/// What a change left on the drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Changed {
    /// Everything on the drive, read again after the change.
    pub contents: Contents,
    /// False when it was so already.
    pub changed: bool,
}

/// Grows a volume in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Expand {
    /// The drive.
    pub drive: DriveRef,
    /// The volume.
    pub uuid: Uuid,
    /// New size in bytes, a multiple of the extent. A volume at least this large is left alone.
    pub size_bytes: u64,
}

/// Takes a volume from the kernel (which refuses while it is in use) and marks it for erasing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delete {
    /// The drive.
    pub drive: DriveRef,
    /// The volume. Not there, or erasing already: nothing is changed.
    pub uuid: Uuid,
}

/// Erases for a bounded time; frees the space when all of it is erased.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseStep {
    /// The drive.
    pub drive: DriveRef,
    /// The volume (its record's uuid).
    pub uuid: Uuid,
    /// Bytes known to be erased from earlier steps of this agent; the record may know of fewer. None: begin again, whatever
    /// the record says, since something was found that should be erased.
    pub from_bytes: Option<u64>,
    /// Stop after about this long, in milliseconds.
    pub budget_ms: u64,
}

/// How far erasing got.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseProgress {
    /// Bytes erased from its start.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// The drive after the space was freed; None while there is more to do.
    pub finished: Option<Contents>,
}

/// Makes a used drive blank, a bounded piece at a time: the start and the end first, then all of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WipeStep {
    /// The drive. It must be held by nobody (O_EXCL).
    pub drive: DriveRef,
    /// Bytes done in earlier steps.
    pub from_bytes: u64,
    /// Volumes that are known to go with it (another node's). One that is not among them was made since
    /// the operator looked: nothing is wiped then.
    pub going: Vec<Uuid>,
    /// Stop after about this long, in milliseconds.
    pub budget_ms: u64,
}

/// How far wiping got.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WipeProgress {
    /// Bytes zeroed.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Makes the short-lived snapshot by which a volume of layout `lvm` is checked, from free space of its drive.
///
/// Never to be killed in the middle: the volume stands still for the moment in which LVM makes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeSnapshot {
    /// The drive.
    pub drive: DriveRef,
    /// The volume.
    pub uuid: Uuid,
    /// Room for what is written to the volume meanwhile, in bytes; rounded up to whole MiB.
    pub bytes: u64,
}

/// Takes every snapshot of this kind from a drive, and what an earlier agent left of them. What they hold is a tenant's: it is
/// erased before the space is free again. One that is in use stays (`Busy`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClearSnapshots {
    /// The drive.
    pub drive: DriveRef,
}

/// A check's snapshot, as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Kernel name.
    pub device: String,
    /// Device number.
    pub dev: (u32, u32),
    /// Its device-mapper uuid.
    pub dm_uuid: String,
}

/// Moves a volume's record on, durably, before the step that needs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advance {
    /// The drive.
    pub drive: DriveRef,
    /// The volume.
    pub uuid: Uuid,
    /// Its next state (`Fs` or `Block`).
    pub to: crate::model::RecordState,
}

/// Makes a drive of ours another node's: only its label changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Adopt {
    /// The drive.
    pub drive: DriveRef,
    /// The label as it was when an operator decided. Another one by now: nothing is changed.
    pub from: Label,
    /// Cluster that it belongs to from now on.
    pub cluster: String,
    /// Node that it belongs to from now on.
    pub node: String,
}

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
        /// The identity.
        drive: String,
        /// What was being done.
        what: String,
        /// Why.
        #[source]
        source: Cause,
    },
    /// The flock was not to be had in time.
    #[error("drive {drive} is locked by another program (flock); it was waited for {waited_ms} ms")]
    Locked {
        /// The identity.
        drive: String,
        /// Milliseconds.
        waited_ms: u64,
    },
    /// Not ours and not to be claimed.
    #[error("drive {drive} may not be claimed: {reason}")]
    NotClaimable {
        /// The identity.
        drive: String,
        /// Reject codes and details.
        reason: String,
    },
    /// The table is ours and the label was never written: a claim that was interrupted. A
    /// `Create` with `claim` finishes it.
    #[error(
        "claiming drive {drive} was interrupted before its label was written; creating a volume finishes it"
    )]
    Unlabelled {
        /// The identity.
        drive: String,
    },
    /// Ours, but table and records cannot be trusted.
    #[error("the label of drive {drive} is damaged: {reason}; nothing was changed")]
    Damaged {
        /// The identity.
        drive: String,
        /// What is wrong.
        reason: String,
    },
    /// A change was begun, and what came of it cannot be read: the volume may be on the drive.
    #[error("what came of {what} on drive {drive} is not known; the next attempt looks first")]
    InDoubt {
        /// The identity.
        drive: String,
        /// What was being done.
        what: String,
        /// Why it cannot be read.
        #[source]
        source: Cause,
    },
    /// No free run is large enough, or with LVM all of them together are not.
    #[error(
        "drive {drive} has no room for a volume of {needed} bytes; the largest that would fit is {largest} bytes"
    )]
    NoSpace {
        /// The identity.
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
        /// The identity.
        drive: String,
        /// How many entries it has.
        entries: u32,
    },
    /// Not on this drive.
    #[error("volume {uuid} is not on drive {drive}")]
    NoSuchVolume {
        /// The identity.
        drive: String,
        /// The volume.
        uuid: Uuid,
    },
    /// The kernel holds it.
    #[error("volume {uuid} is in use ({device}); unmount it first")]
    InUse {
        /// The volume.
        uuid: Uuid,
        /// Partition.
        device: String,
    },
    /// Record and table disagree.
    #[error("volume {uuid} is ambiguous: {reason}; nothing was changed")]
    Ambiguous {
        /// The volume.
        uuid: Uuid,
        /// How.
        reason: String,
    },
    /// The space behind it is taken, or with LVM all of the drive's.
    #[error(
        "volume {uuid} cannot grow to {needed} bytes on its drive; it could grow to {possible} bytes"
    )]
    CannotGrow {
        /// The volume.
        uuid: Uuid,
        /// Bytes.
        needed: u64,
        /// Bytes.
        possible: u64,
    },
    /// The state machine of invariant 3 has no such step.
    #[error("volume {uuid} cannot go from {from} to {to}")]
    BadTransition {
        /// The volume.
        uuid: Uuid,
        /// State on the drive.
        from: String,
        /// State asked for.
        to: String,
    },
    /// An `lvm` command failed. What it had begun may be on the drive.
    #[error("{what} on drive {drive} failed")]
    Lvm {
        /// The identity.
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
        /// The identity.
        drive: String,
        /// Which VG, for how long.
        #[source]
        source: Cause,
    },
    /// This host lacks what the `lvm` layout needs. Nothing was changed.
    #[error("drive {drive} cannot be carved")]
    NoLvm {
        /// The identity.
        drive: String,
        /// What is missing.
        #[source]
        source: Cause,
    },
    /// Somebody holds the drive exclusively, or it is mounted.
    #[error("drive {drive} is in use: {reason}")]
    Busy {
        /// The identity.
        drive: String,
        /// By what.
        reason: String,
    },
    /// Erased bytes did not read back as zeros.
    #[error(
        "drive {drive} does not read back zeros at byte {offset} after erasing; the space stays out of use"
    )]
    NotErased {
        /// The identity.
        drive: String,
        /// Where.
        offset: u64,
    },
}

impl Job for Look {
    const NAME: &'static str = "look";
    type Answer = Contents;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Contents, CarveError> {
        context.step("look");
        layout::look(&self.drive, self.repair)
    }
}

impl Job for Create {
    const NAME: &'static str = "create";
    type Answer = Changed;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Changed, CarveError> {
        context.step("create");
        layout::create(
            &self.drive,
            self.claim.as_ref(),
            &self.spec,
            &self.deleted,
            context,
        )
    }
}

impl Job for Expand {
    const NAME: &'static str = "expand";
    type Answer = Changed;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Changed, CarveError> {
        context.step("expand");
        layout::expand(&self.drive, self.uuid, self.size_bytes)
    }
}

impl Job for Delete {
    const NAME: &'static str = "delete";
    type Answer = Changed;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Changed, CarveError> {
        context.step("delete");
        layout::delete(&self.drive, self.uuid)
    }
}

impl Job for EraseStep {
    const NAME: &'static str = "erase-step";
    type Answer = EraseProgress;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<EraseProgress, CarveError> {
        layout::erase_step(
            &self.drive,
            self.uuid,
            self.from_bytes,
            self.budget_ms,
            context,
        )
    }
}

impl Job for WipeStep {
    const NAME: &'static str = "wipe-step";
    type Answer = WipeProgress;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<WipeProgress, CarveError> {
        wipe::step(&self, context)
    }
}

impl Job for MakeSnapshot {
    const NAME: &'static str = "make-snapshot";
    type Answer = Contents;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Contents, CarveError> {
        layout::make_snapshot(&self, context)
    }
}

impl Job for ClearSnapshots {
    const NAME: &'static str = "clear-snapshots";
    /// None: there was nothing to do.
    type Answer = Option<Contents>;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Option<Contents>, CarveError> {
        layout::clear_snapshots(&self.drive, context)
    }
}

impl Job for Advance {
    const NAME: &'static str = "advance";
    type Answer = Changed;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Changed, CarveError> {
        context.step("advance");
        layout::advance(&self.drive, self.uuid, self.to)
    }
}

impl Job for Adopt {
    const NAME: &'static str = "adopt";
    type Answer = Changed;
    type Error = CarveError;
    fn run(self, context: &mut Context) -> Result<Changed, CarveError> {
        context.step("adopt");
        layout::adopt(&self)
    }
}
