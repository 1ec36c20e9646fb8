//! Types of drives, volumes, classes and the inventory. Pure: no side effects, nothing that blocks.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod by_id;
pub mod cause;
pub mod check;
pub mod class;
pub mod contents;
pub mod copied;
pub mod cordon;
pub mod created_for;
pub mod drive;
pub mod encryption;
pub mod finding;
pub mod health;
pub mod identity;
pub mod lost;
pub mod place;
pub mod runs;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod secret;
pub mod signature;
pub mod snapshot;
pub mod unreadable;
pub mod volume;
pub mod volume_snapshot;

pub use cause::Cause;
pub use check::{CheckMethod, CheckOutcome, Checked, Inconclusive, LastCheck, RunningCheck};
pub use class::{
    ClaimPolicy, ClassConfig, ErasePolicy, Evacuation, Layout, Placement, RawSpace, Selector,
};
pub use contents::{Contents, DeletedStore, Extent, Label, Placed, ReadAt, Space, Stamp, Zeroing};
pub use copied::CopySource;
pub use cordon::Cordon;
pub use created_for::CreatedFor;
pub use drive::{
    Bay, DriveFacts, DriveId, DriveRef, DriveState, Media, Reject, RejectCode, Transport,
};
pub use drivebay_common::{smart_names, units};
pub use drivebay_proto::{condition, names, words};
pub use encryption::{Encryption, Mapping, MappingNames};
pub use finding::Finding;
pub use health::{DriveHealth, Override, PollState, Verdict};
pub use place::{CommitNote, Peer, PlaceState};
pub use secret::{Secret, StageSecrets};
pub use signature::{Signature, Signatures};
pub use snapshot::{ClassReport, Drive, Snapshot, Volume, VolumeState};
pub use volume::{FsType, Mode, Record, RecordState};
pub use volume_snapshot::{PlacedSnapshot, SnapshotRecord, SnapshotState};

/// One mebibyte, in bytes.
pub const MIB: u64 = 1024 * 1024;
/// One gibibyte, in bytes.
pub const GIB: u64 = 1024 * MIB;
/// Smallest drive that is claimed, bytes. A label of 4 MiB, alignment and one useful volume fit; smaller devices are boot areas of some
/// firmware.
pub const LEAST_BYTES: u64 = 64 * MIB;
/// GPT type of the label partition, which marks a drive as claimed by Drivebay.
pub const LABEL_TYPE: uuid::Uuid = uuid::uuid!("6d4e5c1a-b0c8-4f5e-9d1b-1f2e44524956");
/// GPT type of the partition of a volume that is not deleted.
pub const VOLUME_TYPE: uuid::Uuid = uuid::uuid!("6d4e5c1a-b0c8-4f5e-9d1b-1f2e564f4c31");
/// GPT type of the partition of a former volume until its bytes are erased.
pub const ERASING_TYPE: uuid::Uuid = uuid::uuid!("6d4e5c1a-b0c8-4f5e-9d1b-1f2e45524153");
