//! The carving work an agent asks a drive's worker for, as it travels: plain data. `run` does it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use super::{copy::CopyError, error::CarveError};
use drivebay_model::{
    ClaimPolicy, Contents, Cordon, DriveRef, Extent, Label, Layout, PlaceState, Placement,
    RawSpace, Record, SnapshotRecord,
};

/// Reads a claimed drive: label, volumes, free space.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Look {
    pub drive: DriveRef,
    /// Also repair what is safe to repair (exactly one damaged table copy or record slot, an
    /// interrupted change) and give the kernel the partitions it lacks. Without it nothing is written.
    pub repair: bool,
}

/// Carves a volume, claiming the drive first when it is not ours yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Create {
    pub drive: DriveRef,
    /// For a drive that is not ours yet: how to claim it. None: it must be ours.
    pub claim: Option<Claim>,
    /// The volume, with a new identity and a rounded size; its extent and its first state are decided on the drive. A copy
    /// (`PlaceState::Incoming`) has the identity, the state and the size of its original.
    pub record: Record,
    /// What it is made of if it is raw.
    pub raw_space: RawSpace,
    /// Which free place it gets.
    pub placement: Placement,
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

/// Records on a claimed drive that it takes no new volumes, or again does. One that is so already is left as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetCordon {
    pub drive: DriveRef,
    /// None: it takes new volumes again.
    pub cordon: Option<Cordon>,
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
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// New size in bytes, a multiple of the extent. A volume at least this large is left alone.
    pub size_bytes: u64,
    /// What it grows into if it is raw.
    pub raw_space: RawSpace,
}

/// Takes a volume from the kernel (which refuses while it is in use) and marks it for erasing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delete {
    pub drive: DriveRef,
    /// The volume. Not there, or erasing already: nothing is changed.
    pub uuid: Uuid,
    /// Only if it was never used (`CarveError::Used`).
    pub only_unused: bool,
}

/// Erases for a bounded time; frees the space when all of it is erased.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseStep {
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

/// Zeroes free space of a claimed drive for a bounded time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZeroStep {
    pub drive: DriveRef,
    /// Runs that somebody waits for.
    pub first: Vec<Extent>,
    /// Whether zeros are written where the drive does not zero on command.
    pub may_write: bool,
    /// Stop after about this long, in milliseconds.
    pub budget_ms: u64,
}

/// How far zeroing free space got.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZeroProgress {
    /// Bytes zeroed by this step.
    pub zeroed_bytes: u64,
    /// Zeros were written: the drive has no command for them.
    pub written: bool,
    /// Free bytes that are not known to be zeros.
    pub left_bytes: u64,
    /// The drive, when there is nothing more to do on it.
    pub ended: Option<Contents>,
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
    /// Zeros are written, since what the drive zeroed by itself did not read back.
    pub written: bool,
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

/// Takes our mark from a drive without volumes, so that it is as blank as before it was claimed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Release {
    /// The drive. It must be held by nobody (O_EXCL).
    pub drive: DriveRef,
    /// The label as it was when an operator decided. Another one by now: nothing is changed.
    pub label: Label,
}

/// What a released drive is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Released {
    /// Its free space is zeros wherever it is sampled. Else it was claimed with somebody's bytes on it, which are still there.
    pub blank: bool,
}

/// Makes the short-lived snapshot by which a volume of layout `lvm` is checked, from free space of its drive.
///
/// Never to be killed in the middle: the volume stands still for the moment in which LVM makes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeSnapshot {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Room for what is written to the volume meanwhile, in bytes; rounded up to whole MiB.
    pub bytes: u64,
}

/// Takes every snapshot of this kind from a drive, and what an earlier agent left of them. What they hold is a tenant's: it is
/// erased before the space is free again. One that is in use stays (`Busy`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClearSnapshots {
    pub drive: DriveRef,
}

/// Takes a snapshot of a volume of layout `lvm`, from free space of its drive. One of its name is the answer, unchanged.
///
/// Never to be killed in the middle: the volume stands still for the moment in which LVM makes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeSnapshot {
    pub drive: DriveRef,
    /// With a new identity. Its size is decided on the drive.
    pub record: SnapshotRecord,
    /// Room for what is written to the volume meanwhile, in bytes: at least 8 MiB and at most what all of the volume takes.
    pub reserve_bytes: u64,
}

/// Takes a snapshot away. What it stored is erased by `ClearSnapshots`. Not there: nothing is changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DropSnapshot {
    pub drive: DriveRef,
    pub uuid: Uuid,
}

/// Asks the kernel how full snapshots are. Reads no drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadUsage {
    /// Their device-mapper uuids.
    pub snapshots: Vec<(Uuid, String)>,
}

/// How full a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotUsage {
    pub uuid: Uuid,
    /// Bytes of its store that are used; None: it is lost.
    pub used_bytes: Option<u64>,
}

/// A check's snapshot, as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDevice {
    pub device: String,
    pub dev: (u32, u32),
    /// Its device-mapper uuid.
    pub dm_uuid: String,
}

/// Changes the part that a volume's record has in a move, durably and read back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetPlace {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// What the record says now (`NotThere`). One that says `to` already is left as it is.
    pub from: PlaceState,
    pub to: PlaceState,
    /// The state of the volume, of a copy that becomes live; None: as it is.
    pub state: Option<drivebay_model::RecordState>,
}

/// Has a place that is not served erased: a copy that is not wanted any more, or what was left behind by a move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DropPlace {
    pub drive: DriveRef,
    /// Not there, or erasing already: nothing is changed.
    pub uuid: Uuid,
    /// What the record says (`NotThere`); never `live`.
    pub place: PlaceState,
}

/// What a volume becomes a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyOf {
    /// Itself, on the drive where it lives at the generation before that of the copy (`NotThere`). The caller sees to it that nobody
    /// writes to it.
    Itself,
    /// Another volume, which is not larger. The caller sees to it that nobody writes to that one.
    Volume(Uuid),
    /// A snapshot, whose volume was not larger.
    Snapshot(Uuid),
}

/// Copies a volume to the place that was made for it (`PlaceState::Incoming`), for a bounded time. The same step can be repeated, also
/// after one that failed or was cut off. It takes both drives, which may be the same one, and writes to the target only. What the
/// target is larger becomes zeros.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyStep {
    pub of: CopyOf,
    /// The drive of what is copied.
    pub source: DriveRef,
    pub target: DriveRef,
    /// The volume that gets the bytes.
    pub uuid: Uuid,
    /// Of the copy.
    pub generation: u64,
    /// `CopyProgress::done_bytes` of the step before; 0 for the first one.
    pub from_bytes: u64,
    /// An earlier copy is brought up to date: what is there is read first, and only what differs is written.
    pub may_match: bool,
    /// Ranges of the volume that hold nothing, as the caller knows from its filesystem. Around places that do not read they are zeros
    /// on the target, are not read, and are not reported.
    pub holds_nothing: Vec<Extent>,
    /// Bytes of the volume. Comparing reads each of them once more. None: as fast as the drives are.
    pub bytes_per_second: Option<u64>,
    /// Stop copying after about this long, in milliseconds; flushing and comparing the last 64 MiB or less comes after that.
    pub budget_ms: u64,
}

/// How far a copy got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// Bytes from the volume's start that are copied, flushed and compared, except what does not read.
    pub done_bytes: u64,
    /// Bytes in all. A copy that has got there is whole if no step of it answered `unreadable`.
    pub total_bytes: u64,
    /// Bytes that this step wrote.
    pub written_bytes: u64,
    /// What did not read on the source, from the volume's start, in order; among the bytes that this step did. The target has there
    /// what it had before.
    pub unreadable: Vec<Extent>,
}

/// Moves a volume's record on, durably, before the step that needs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advance {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Its next state (`Fs` or `Block`).
    pub to: drivebay_model::RecordState,
}

/// Makes a drive of ours another node's: only its label changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Adopt {
    pub drive: DriveRef,
    /// The label as it was when an operator decided. Another one by now: nothing is changed.
    pub from: Label,
    /// Cluster that it belongs to from now on.
    pub cluster: String,
    /// Node that it belongs to from now on.
    pub node: String,
}
