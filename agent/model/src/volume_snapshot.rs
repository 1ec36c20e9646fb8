//! Snapshots of volumes: what is durably known of one, on the drive of its volume, and what the kernel has of it.
//!
//! A snapshot is never without its volume: it is a part of what was read of that volume (`Placed::snapshots`).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use drivebay_proto::words::SnapshotState;

use super::{FsType, Mode};

/// Names that begin like this are the agent's own.
pub const INTERNAL: &str = "drivebay-copy-";

/// Durable record of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    pub uuid: Uuid,
    /// Name in the request that took the snapshot, or one derived from its group's name. [`internal_name`](Self::internal_name) for one
    /// that the agent takes for a copy.
    pub name: String,
    pub volume: Uuid,
    /// Unix time of the snapshot, by the host's clock, seconds.
    pub created_at: u64,
    /// Size of the volume at that moment, bytes.
    pub size_bytes: u64,
    pub mode: Mode,
    /// The filesystem that the volume had at that moment; None: it is raw, or was never mounted by then, so that nothing was ever
    /// written to it.
    pub fs: Option<(FsType, Uuid)>,
    /// Seconds since 1970, by the host's clock, at which it expires and is deleted; None: never.
    pub expires_at: Option<u64>,
    /// The group that it was taken in; None: it was taken alone.
    pub group: Option<SnapshotGroup>,
    /// True once it may be acknowledged; for a member of a group, once all members are of one point in time. An incomplete one is deleted:
    /// by the next `ReadDrive` with repair if it was taken alone, else by the agent, which knows whether its group is being taken.
    pub is_complete: bool,
    /// True if it does not hold its volume any more, permanently. Recorded because the kernel forgets it at its next start if the store
    /// could not be written.
    pub is_lost: bool,
}

/// Snapshots that were taken at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotGroup {
    /// Random identity of the group, equal in the records of all its members.
    pub uuid: Uuid,
    /// Name in the request that took the group. A repeated request for the same volumes finds the group by it.
    pub name: String,
    /// Number of members, at least 1.
    pub members: u32,
}

impl SnapshotRecord {
    /// The name of the snapshot from which this new volume is copied.
    pub fn internal_name(volume: Uuid) -> String {
        format!("{INTERNAL}{volume}")
    }

    /// True if it is a member of the group with this uuid.
    pub fn is_of(&self, group: Uuid) -> bool {
        self.group.as_ref().is_some_and(|of| of.uuid == group)
    }

    /// True if the agent took it for its own use, e.g. as the source of a copy.
    pub fn is_internal(&self) -> bool {
        self.name.starts_with(INTERNAL)
    }

    /// True if there is data to copy; false for a snapshot of a volume that was never mounted.
    pub fn holds_data(&self) -> bool {
        self.mode == Mode::Block || self.fs.is_some()
    }
}

/// A snapshot with what LVM and the kernel have of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedSnapshot {
    pub record: SnapshotRecord,
    /// Kernel name of its device, e.g. `dm-7`; None: it is not active.
    pub device: Option<String>,
    /// Number of that device.
    pub dev: Option<(u32, u32)>,
    /// The device-mapper uuid that its device must have.
    pub dm_uuid: String,
    /// Room for what is written to its volume, bytes.
    pub reserve_bytes: u64,
    /// True if it is lost, by the kernel's status or by its record: its reserve was full, or its store could not be written. Also true for
    /// an incomplete one whose status cannot be read.
    pub is_overflowed: bool,
    /// Reason for which record, LVM and kernel do not agree. The snapshot is then listed and not changed.
    pub ambiguous: Option<String>,
}

impl PlacedSnapshot {
    pub fn state(&self) -> SnapshotState {
        if self.ambiguous.is_some() {
            SnapshotState::Ambiguous
        } else if !self.record.is_complete {
            SnapshotState::Creating
        } else if self.is_overflowed || self.record.is_lost {
            SnapshotState::Overflowed
        } else {
            SnapshotState::Ready
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_snapshot_is_ready_only_if_it_was_answered_and_holds_its_volume() {
        let ready = samples::snapshot(1, 2);
        assert_eq!(ready.state(), SnapshotState::Ready);
        let mut recorded = ready.clone();
        recorded.record.is_lost = true;
        assert_eq!(recorded.state(), SnapshotState::Overflowed);
        let mut other = ready;
        other.is_overflowed = true;
        assert_eq!(other.state(), SnapshotState::Overflowed);
        other.record.is_complete = false;
        assert_eq!(other.state(), SnapshotState::Creating);
        other.ambiguous = Some("two of its uuid".into());
        assert_eq!(other.state(), SnapshotState::Ambiguous);
    }

    #[test]
    fn a_volume_that_was_never_mounted_holds_nothing_and_a_raw_one_may() {
        let mut record = samples::snapshot(1, 2).record;
        assert!(record.holds_data());
        record.fs = None;
        assert!(!record.holds_data());
        record.mode = Mode::Block;
        assert!(record.holds_data());
    }
}
