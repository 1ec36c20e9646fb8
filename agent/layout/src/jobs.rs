//! Layout jobs that an agent sends to a drive's worker: plain data. `run` executes them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use super::{copy::CopyError, error::LayoutError};
use drivebay_model::{
    ClaimPolicy, Contents, Cordon, DriveRef, Extent, Label, Layout, PlaceState, Placement,
    RawSpace, Record, SnapshotRecord,
};

/// Reads a claimed drive: label, volumes, free space.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadDrive {
    pub drive: DriveRef,
    /// Also repair what is safe to repair (exactly one damaged table copy or record slot, an
    /// interrupted change), give the kernel the partitions it lacks, and mark for erasing the snapshots of checks that no process has
    /// open. Without it nothing is written.
    pub repair: bool,
}

/// Creates a volume, and claims the drive first if it is not claimed yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Create {
    pub drive: DriveRef,
    /// Parameters for claiming a drive that is not claimed yet. None: the drive must be claimed already.
    pub claim: Option<Claim>,
    /// The volume, with a new identity and a rounded size; its extent and its first state are decided on the drive. A copy
    /// (`PlaceState::Incoming`) has the identity, the state and the size of its original.
    pub record: Record,
    /// Space that a raw volume may get.
    pub raw_space: RawSpace,
    /// Policy for choosing the free run.
    pub placement: Placement,
    /// Volumes that were deleted while their drive was missing. Their records on that drive are unchanged: none of them may be taken for
    /// the requested volume.
    pub deleted: Vec<Uuid>,
}

/// Parameters for claiming a drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Claim {
    pub layout: Layout,
    /// Label to write, with a new `drive_uuid`.
    pub label: Label,
    /// Required contents of the drive, e.g. blank; checked again under the lock.
    pub policy: ClaimPolicy,
}

/// Records on a claimed drive that it is cordoned, or not cordoned any more. Changes nothing if it is so already.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetCordon {
    pub drive: DriveRef,
    /// None: the drive is uncordoned.
    pub cordon: Option<Cordon>,
}

/// Result of a change, read from the drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Changed {
    /// Label, volumes and free space, read again after the change.
    pub contents: Contents,
    /// False if nothing had to be changed.
    pub changed: bool,
}

/// Expands a volume in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Expand {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// New size in bytes, a multiple of the extent. A volume that is at least this large is not changed.
    pub size_bytes: u64,
    /// Space that a raw volume may be expanded into.
    pub raw_space: RawSpace,
}

/// Removes a volume's device from the kernel, which refuses while it is in use, and marks the volume for erasing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delete {
    pub drive: DriveRef,
    /// The volume. If it is absent, or is being erased already, nothing is changed.
    pub uuid: Uuid,
    /// Delete only a volume that was never used; else errs with `LayoutError::Used`.
    pub only_unused: bool,
}

/// Erases for a bounded time; frees the space when all of it is erased.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseStep {
    pub drive: DriveRef,
    /// Uuid in the volume's record, or the erase guid of a deleted store (`Contents::deleted_stores`).
    pub uuid: Uuid,
    /// Bytes erased by earlier steps of this agent; the record may have a lower number. None: begin again, whatever the record says,
    /// because data was found that should be erased.
    pub from_bytes: Option<u64>,
    /// Stop after about this long, in milliseconds.
    pub budget_ms: u64,
}

/// Progress of erasing a volume or store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EraseProgress {
    /// Bytes erased, from its start.
    pub done_bytes: u64,
    /// Size of its space, bytes; 0 if it is not on the drive any more.
    pub total_bytes: u64,
    /// Contents of the drive after the space was freed; None while erasing is not complete.
    pub finished: Option<Contents>,
}

/// Zeroes free space of a claimed drive for a bounded time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZeroStep {
    pub drive: DriveRef,
    /// Runs to zero first, because a creation waits for them.
    pub first: Vec<Extent>,
    /// True if zeros may be written where the drive does not zero on command.
    pub may_write: bool,
    /// Stop after about this long, in milliseconds.
    pub budget_ms: u64,
}

/// Progress of zeroing free space.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ZeroProgress {
    /// Bytes zeroed by this step.
    pub zeroed_bytes: u64,
    /// True if zeros were written, because the drive has no command for zeroing.
    pub written: bool,
    /// Free bytes that are not known to be zeros.
    pub left_bytes: u64,
    /// Contents of the drive, once nothing is left to zero; else None.
    pub ended: Option<Contents>,
}

/// Makes a used drive blank, for a bounded time: the start and the end first, then all of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WipeStep {
    /// The drive. It must not be in use (O_EXCL).
    pub drive: DriveRef,
    /// Bytes zeroed by earlier steps.
    pub from_bytes: u64,
    /// Volumes of another node that the operator agreed to lose. Nothing is wiped if the drive has any other volume: it was created since
    /// then.
    pub going: Vec<Uuid>,
    /// True: zeros are written, because those of the drive's own command did not read back.
    pub written: bool,
    /// Stop after about this long, in milliseconds.
    pub budget_ms: u64,
}

/// Progress of wiping a drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WipeProgress {
    /// Bytes zeroed by this and earlier steps, durably, in the order of wiping: start, end, then all between.
    pub done_bytes: u64,
    /// Size of the drive, bytes. When `done_bytes` has reached it, the drive was also sampled and reads zeros.
    pub total_bytes: u64,
}

/// Removes the label from a drive without volumes, so that it is as blank as before it was claimed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Release {
    /// The drive. It must not be in use (O_EXCL).
    pub drive: DriveRef,
    /// Label at the time of the operator's decision. If the drive has another one now, nothing is changed.
    pub label: Label,
}

/// Result of releasing a drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Released {
    /// True if every sampled block of its free space is zero. False: it was claimed with foreign data on it, which is still there.
    pub blank: bool,
}

/// Creates the short-lived snapshot by which a volume of layout `lvm` is checked, in free space of its drive.
///
/// Must not be killed: the volume is suspended while LVM creates the snapshot. An encrypted volume that is open is suspended by the worker
/// itself, with its mapped device: see the errors of `TakeTogether`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MakeSnapshot {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Room for writes to the volume during the check, in bytes; rounded up to whole MiB.
    pub bytes: u64,
}

/// Takes a snapshot of a volume of layout `lvm`, in free space of its drive. Returns an existing one of its name unchanged.
///
/// Must not be killed: the volume is suspended while LVM creates the snapshot. An encrypted volume that is open is suspended by the worker
/// itself, with its mapped device: see the errors of `TakeTogether`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeSnapshot {
    pub drive: DriveRef,
    /// Needs a new uuid. The worker sets `size_bytes` and `is_complete`: a member of a group is complete only after `TakeTogether` and
    /// `CompleteSnapshots`.
    pub record: SnapshotRecord,
    /// Room for writes to the volume since the snapshot, in bytes: at least 8 MiB, and at most what the whole volume needs.
    pub reserve_bytes: u64,
}

/// Longest time for which volumes are suspended for their snapshots. Other jobs wait 10 s for the lock of a drive that one of them is on.
pub const SUSPENDED: Duration = Duration::from_secs(8);

/// Makes incomplete snapshots hold their volumes as of one point in time, on all drives of the members: suspends every volume, with its
/// filesystem frozen, then restarts all snapshots, then resumes the volumes. Starts no process and runs no LVM meanwhile, and holds the
/// flocks of the drives. A volume is resumed within `patience_ms` and the time that its own drive takes to answer, even if the agent dies.
/// Only a worker that is killed leaves volumes suspended (`ResumeLeft`).
///
/// Errs with `StillSuspended`, which names the drive, if a drive does not answer within a few seconds more; the flocks of the other drives
/// are released by then. The blocked thread stays in this worker, and resumes the volume when the drive answers. If the worker ends before
/// that, the volume stays suspended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeTogether {
    /// Drives of the members, each once, ordered by id. Each stays locked (flock) until the threads of its members have ended: a `ReadDrive`
    /// would take a suspended volume for an interrupted change, and a repair would resume it.
    pub drives: Vec<DriveRef>,
    /// One for each volume, at least one, suspended all at once. Errs with `NotTogether` if a snapshot is complete already.
    pub members: Vec<Member>,
    /// Longest time that the volumes are suspended, milliseconds; at most one minute.
    pub patience_ms: u64,
}

/// A snapshot and its volume, by their devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Uuid in the snapshot's record.
    pub uuid: Uuid,
    /// Device-mapper uuid of the volume's device.
    pub origin: String,
    /// Device-mapper uuid of the snapshot's device. The uuid of its store has the suffix `-cow` in addition.
    pub snapshot: String,
    /// Device-mapper uuid of the mapped device, if the volume is encrypted and open: it has the filesystem, and is suspended before the
    /// volume.
    pub mapping: Option<String>,
}

/// Result of `TakeTogether`: the snapshots are of one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenTogether {
    /// Milliseconds from the first suspend until the last volume was resumed.
    pub suspended_ms: u64,
}

/// Marks snapshots as complete in their records, durably; leaves those that are complete already. Errs with `NotTogether` if one is lost or
/// missing. After an error some of them may be complete.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CompleteSnapshots {
    pub drive: DriveRef,
    pub uuids: Vec<Uuid>,
}

/// Resumes devices of Drivebay's volumes that were left suspended, with their active tables; a loaded inactive table is dropped. Returns
/// their device-mapper names. Reads no drive.
///
/// Must be repeated until it succeeds, by the worker that suspended them or, once the kernel has ended that one, by its replacement: it
/// errs with `StillSuspended` as long as its worker still suspends or resumes a device. Any other worker sees only what is suspended now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResumeLeft {
    /// Device-mapper uuids of the devices to resume; others, e.g. those that LVM suspends for another job, are not touched. If the flock of
    /// their drive is not available within ten seconds, they are resumed without it: a worker that was killed holds it until the last drive
    /// that it waits for answers. None: all devices, at the start of an agent, when no other job runs; a drive whose flock another process
    /// holds longer, e.g. a worker of an earlier agent that finishes a change, is skipped (`StillSuspended`).
    pub only: Option<Vec<String>>,
}

/// Deletes a snapshot; changes nothing if it is absent. What it stored is marked for erasing (`Contents::deleted_stores`), or, if the
/// snapshot cannot be parted from its volume yet, by a later `ReadDrive` with repair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DropSnapshot {
    pub drive: DriveRef,
    pub uuid: Uuid,
}

/// Queries the usage of snapshots in the kernel. Reads no drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadUsage {
    /// Uuid and device-mapper uuid of each.
    pub snapshots: Vec<(Uuid, String)>,
}

/// Usage of a snapshot's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotUsage {
    pub uuid: Uuid,
    /// Used bytes of its store; None: the snapshot is lost.
    pub used_bytes: Option<u64>,
}

/// Device of a check's snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDevice {
    pub device: String,
    pub dev: (u32, u32),
    pub dm_uuid: String,
}

/// Changes the place in a volume's record, durably and verified by reading back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetPlace {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Place that the record must have, else errs with `NotThere`. A record that has `to` already is not changed.
    pub from: PlaceState,
    pub to: PlaceState,
    /// New state of the volume, for a copy that becomes live; None: unchanged.
    pub state: Option<drivebay_model::RecordState>,
}

/// Marks a place that is not served for erasing: an abandoned copy, or the old place of a move.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DropPlace {
    pub drive: DriveRef,
    /// The volume. If it is absent, or is being erased already, nothing is changed.
    pub uuid: Uuid,
    /// Place that the record must have, else errs with `NotThere`; never `live`.
    pub place: PlaceState,
}

/// Source of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyOf {
    /// The same volume on the drive where it is live, at the generation before that of the copy (else `NotThere`). The caller must prevent
    /// uses of it that begin during the copy; one that goes on, as an unmount that still writes, is `InUse`.
    Itself,
    /// Another volume, which is not larger. The caller must prevent uses of it in the same way.
    Volume(Uuid),
    /// A snapshot, whose volume was not larger.
    Snapshot(Uuid),
}

/// Copies a volume to the place that was created for it (`PlaceState::Incoming`), for a bounded time. The same step can be repeated, also
/// after one that failed or was interrupted. Uses both drives, which may be the same one, and writes to the target only. Space of the
/// target behind the end of the source becomes zeros.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyStep {
    pub of: CopyOf,
    /// Drive of the source.
    pub source: DriveRef,
    pub target: DriveRef,
    /// The volume that gets the bytes.
    pub uuid: Uuid,
    /// Generation of the copy.
    pub generation: u64,
    /// `CopyProgress::done_bytes` of the step before; 0 for the first one.
    pub from_bytes: u64,
    /// `CopyProgress::source_writes` of the step before; None for the first one.
    pub source_writes: Option<u64>,
    /// True if the target may have the data of an earlier copy: it is read first, and only differences are written.
    pub may_match: bool,
    /// Ranges of the volume that hold no data according to its filesystem, or that the caller gives up. Where a read fails, they are not
    /// read block by block, are zeros on the target, and are not reported.
    pub holds_nothing: Vec<Extent>,
    /// Ranges of the volume, multiples of 512 bytes, whose data is lost: as `holds_nothing`, but the target gets marks there instead of zeros
    /// (`drivebay_model::lost`).
    pub lost: Vec<Extent>,
    /// Limit, counted in bytes of the volume; comparing reads each of them once more. None: no limit.
    pub bytes_per_second: Option<u64>,
    /// Stop copying after about this long, in milliseconds; flushing and comparing the last 64 MiB or less comes after that.
    pub budget_ms: u64,
}

/// Progress of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyProgress {
    /// Bytes from the volume's start that are copied, flushed and compared, except unreadable ones.
    pub done_bytes: u64,
    /// Total bytes. A copy with this many `done_bytes` is complete if none of its steps returned `unreadable`.
    pub total_bytes: u64,
    /// Bytes that this step wrote.
    pub written_bytes: u64,
    /// Ranges that could not be read in this step although the source drive answered afterwards, relative to the volume's start, in order.
    /// The target keeps its earlier contents there.
    pub unreadable: Vec<Extent>,
    /// Count of writes to the source's own device, the same before this step and after it. None: the kernel has no device of it, or it is a snapshot.
    pub source_writes: Option<u64>,
}

/// Reads the marks of a volume's lost sectors, records those that are lost still, durably, and has its mapped device answer only those with
/// errors, with the volume's present size. Does nothing for a volume without lost sectors. The volume may be in use.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettleLost {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// A volume that is not open and has no lost sector left has no mapped device from now on. The caller must prevent that it is opened
    /// meanwhile.
    pub may_end: bool,
}

/// Replaces the parameters in the record of an incomplete copy, durably and verified by reading back. Changes nothing if they are the same
/// already.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetParameters {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Place that the record must have, and one of an incomplete copy (`Incoming`); else `NotThere`.
    pub place: PlaceState,
    pub parameters: std::collections::BTreeMap<String, String>,
}

/// Advances the state in a volume's record, durably, before the step that needs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Advance {
    pub drive: DriveRef,
    pub uuid: Uuid,
    /// Next state: `Fs` or `Block`.
    pub to: drivebay_model::RecordState,
}

/// Assigns a drive with our label to another node. Changes only the label.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Adopt {
    pub drive: DriveRef,
    /// Label at the time of the operator's decision. If the drive has another one now, nothing is changed.
    pub from: Label,
    /// Cluster that it belongs to from now on.
    pub cluster: String,
    /// Node that it belongs to from now on.
    pub node: String,
}
