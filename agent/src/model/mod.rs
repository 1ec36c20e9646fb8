//! Pure types: what a drive, a volume, a class are. No side effects, nothing that blocks.

pub mod cause;
pub mod class;
pub mod contents;
pub mod drive;
pub mod snapshot;
pub mod volume;

pub use cause::Cause;
pub use class::{ClaimPolicy, ClassConfig, ErasePolicy, Layout, Selector};
pub use contents::{Contents, Extent, Label, Placed};
pub use drive::{DriveFacts, DriveId, DriveRef, DriveState, Media, Reject, RejectCode, Transport};
pub use snapshot::{ClassReport, Drive, Snapshot, Volume, VolumeState};
pub use volume::{FsType, Mode, Record, RecordState, VolumeSpec};

/// One mebibyte, in bytes.
pub const MIB: u64 = 1024 * 1024;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1024 * MIB;
