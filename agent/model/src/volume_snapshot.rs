//! Snapshots of volumes: what is durably known of one, on the drive of its volume, and what the kernel has of it.
//!
//! A snapshot is never without its volume: it is a part of what was read of that volume (`Placed::snapshots`).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use drivebay_proto::words::SnapshotState;

use super::{FsType, Mode};

/// Names that begin like this are the agent's own.
pub const INTERNAL: &str = "drivebay-copy-";

/// What is durably known of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Identity.
    pub uuid: Uuid,
    /// The CSI name.
    pub name: String,
    /// The volume's identity.
    pub volume: Uuid,
    /// Of which moment it is, seconds since 1970, by the host's clock.
    pub created_at: u64,
    /// Size of the volume at that moment, bytes.
    pub size_bytes: u64,
    pub mode: Mode,
    /// The filesystem that the volume had at that moment; None: it is raw, or was never mounted by then, so that nothing was ever
    /// written to it.
    pub fs: Option<(FsType, Uuid)>,
    /// It was answered. One that was not is taken away by the next look with repair.
    pub is_complete: bool,
}

impl SnapshotRecord {
    /// The name of the snapshot from which this new volume is copied.
    pub fn internal_name(volume: Uuid) -> String {
        format!("{INTERNAL}{volume}")
    }

    /// Whether the agent took it for itself.
    pub fn is_internal(&self) -> bool {
        self.name.starts_with(INTERNAL)
    }

    /// Whether there is anything to copy: a volume that nobody ever mounted holds nothing.
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
    /// The kernel says that it has overflowed.
    pub is_overflowed: bool,
    /// Why record, LVM and kernel do not agree: it is shown and not touched.
    pub ambiguous: Option<String>,
}

impl PlacedSnapshot {
    pub fn state(&self) -> SnapshotState {
        if self.ambiguous.is_some() {
            SnapshotState::Ambiguous
        } else if !self.record.is_complete {
            SnapshotState::Creating
        } else if self.is_overflowed {
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
        let mut other = ready.clone();
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
