//! Why a volume call failed. `csi::status` maps every variant to a gRPC code.

use drivebay_csi::validate::InvalidRequest;
use drivebay_discovery::locate_light::SwitchLightError;
use uuid::Uuid;

use crate::mounts::MountTableError;
use crate::{keeper::KeeperError, state::StateError};
use drivebay_fs::jobs::FsError;
use drivebay_layout::jobs::CarveError;
use drivebay_model::{
    DriveId,
    units::{human_size, size_beside},
};
use drivebay_worker::RunError;

/// Why a volume call failed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Somebody else is at it.
    #[error("another call for {what} is still running; try again")]
    Pending {
        /// Volume or name.
        what: String,
    },
    /// Not everything could be read yet, so "unknown" would be a guess.
    #[error("cannot tell whether volume {id} exists: {why}; try again")]
    CannotTell { id: String, why: String },
    /// No such volume on this node.
    #[error("volume {id} does not exist on this node")]
    NotFound { id: String },
    /// The request itself is wrong.
    #[error("{field}: {why}")]
    Invalid {
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A use that no volume here has, asked for in a well-formed way.
    #[error(transparent)]
    Unsupported(#[from] InvalidRequest),
    /// The name is taken by another kind of volume.
    #[error("a volume named {name:?} exists with {has}, asked for with {asked}")]
    Exists {
        name: String,
        /// What it is.
        has: String,
        /// What was asked.
        asked: String,
    },
    /// The name is taken by a snapshot of another volume.
    #[error("a snapshot named {name:?} exists already, of volume {volume}")]
    SnapshotExists { name: String, volume: Uuid },
    /// The volume cannot have snapshots, or not now.
    #[error("no snapshot is taken of volume {uuid}: {why}")]
    NotTaken { uuid: Uuid, why: String },
    /// It is being copied to a new volume.
    #[error("snapshot {uuid} is being copied to volume {volume}; delete it when that is done")]
    SnapshotCopied { uuid: Uuid, volume: Uuid },
    /// The volume is made as a copy and is not complete.
    #[error("volume {uuid} is being copied: {progress}; try again")]
    Copying {
        uuid: Uuid,
        /// How far it is, or what it waits for.
        progress: String,
    },
    /// The copy could not be made; nothing is left of it.
    #[error("volume {name:?} could not be made as a copy: {why}")]
    NotCopied { name: String, why: String },
    /// What is to be copied is not on this node.
    #[error("{what} does not exist on this node")]
    NoSource { what: String },
    /// The name is taken by a volume that cannot be reached now.
    #[error(
        "a volume named {name:?} exists already and cannot be compared with the request: {why}"
    )]
    ExistsAway {
        name: String,
        /// Why it cannot be reached, and what to do.
        why: String,
    },
    /// No class of this name.
    #[error("class {class:?} is not configured on this node (it has: {known})")]
    UnknownClass {
        /// Asked for.
        class: String,
        /// Configured.
        known: String,
    },
    /// Nothing is large enough.
    #[error(
        "no drive of class {class} has room for a volume of {}; the largest that would fit is {}{place}",
        size_beside(*needed, *largest),
        size_beside(*largest, *needed)
    )]
    NoRoom {
        /// Class.
        class: String,
        /// Bytes.
        needed: u64,
        /// Bytes.
        largest: u64,
        /// " on drive …", or empty.
        place: String,
    },
    /// Every drive that has room has a volume of the same group.
    #[error(
        "each drive of class {class} with room for {} has a volume of group {group:?} already: {drives}; add a drive, or set antiAffinity to soft in the StorageClass",
        human_size(*needed)
    )]
    NoDriveApart {
        class: String,
        /// Bytes.
        needed: u64,
        group: String,
        /// Their names.
        drives: String,
    },
    /// It cannot grow where it lies.
    #[error("volume {uuid} cannot grow to {}: {why}", human_size(*needed))]
    CannotGrow {
        uuid: Uuid,
        /// Bytes.
        needed: u64,
        /// Why, and how far it could.
        why: String,
    },
    /// Mounted or published.
    #[error("volume {uuid} is in use on this node; unpublish and unstage it first")]
    InUse { uuid: Uuid },
    /// Mounted nowhere that this host's processes see, and held by the kernel.
    #[error("volume {uuid} is in use: {held}")]
    Held { uuid: Uuid, held: String },
    /// Record and table disagree.
    #[error("volume {uuid} is ambiguous: {why}; it is not touched until an operator decides")]
    Ambiguous { uuid: Uuid, why: String },
    /// The drive is missing or cannot be read.
    #[error(
        "drive {drive} of volume {uuid} cannot be reached; check that it is plugged in and answers"
    )]
    DriveAway { uuid: Uuid, drive: DriveId },
    /// The drive may be present or missing: nothing is known of it yet.
    #[error(
        "drive {drive} of volume {uuid} has not been scanned since the agent started; try again"
    )]
    NotScanned { uuid: Uuid, drive: DriveId },
    /// The drive was read, and the volume is not on it.
    #[error(
        "volume {uuid} is not on drive {drive} any more, although it was not deleted through Drivebay; restore the drive's table or LVM metadata, or delete the volume"
    )]
    Vanished { uuid: Uuid, drive: DriveId },
    /// Publish without a staging path.
    #[error("staging_target_path is missing: the volume must be staged before it is published")]
    NotStagedFirst,
    /// Published elsewhere, and the access mode allows one.
    #[error(
        "volume {uuid} is published at {at}, and the access mode of one of the two allows one target only; unpublish it there first"
    )]
    OtherTarget {
        uuid: Uuid,
        /// The other target.
        at: String,
    },
    /// An orchestrator's call for what a person uses, or a second mount by hand.
    #[error(
        "volume {uuid} is mounted by hand at {at}, or is to be at each start of the host; end that first with `drivebay-agent volume unmount {at}`"
    )]
    MountedByHand { uuid: Uuid, at: String },
    /// The list of what is mounted by hand could not be read, and the volume may be on it.
    #[error(
        "cannot tell whether volume {uuid} is mounted by hand: {why}; make hand-mounts.json in the state directory readable; it is read again within a minute"
    )]
    HandMountsUnread { uuid: Uuid, why: String },
    /// A command of the host's operator for what an orchestrator or another program uses.
    #[error(
        "volume {uuid} is mounted at {at}, and not by `drivebay-agent volume mount`; end whatever uses it there first: if it is a pod, delete the pod"
    )]
    MountedElsewhere { uuid: Uuid, at: String },
    /// The kernel has not let the old mount go.
    #[error("the old mount of volume {uuid} was detached and is not gone yet; try again")]
    StillDetached { uuid: Uuid },
    /// The deletion could not be noted.
    #[error("cannot note the deletion of volume {uuid} in the state directory")]
    Remember {
        uuid: Uuid,
        #[source]
        source: StateError,
    },
    /// A mount made by hand could not be noted, or forgotten.
    #[error("cannot write down the mount of volume {uuid}")]
    NotNoted {
        uuid: Uuid,
        #[source]
        source: StateError,
    },
    /// mountinfo could not be read.
    #[error(transparent)]
    MountTable(#[from] MountTableError),
    /// Carving failed.
    #[error("volume could not be carved")]
    Carve(#[from] RunError<CarveError>),
    /// Mounting, formatting or looking failed.
    #[error("filesystem operation failed")]
    Fs(#[from] RunError<FsError>),
    /// A wipe was refused.
    #[error("drive {drive} is not wiped: {why}")]
    NotWiped { drive: DriveId, why: String },
    /// A release was refused.
    #[error("drive {drive} is not released: {why}")]
    NotReleased { drive: DriveId, why: String },
    /// A cordon was refused.
    #[error("drive {drive} is neither cordoned nor uncordoned: {why}")]
    NotCordoned { drive: DriveId, why: String },
    /// Nothing is done about a move that is not durably known.
    #[error("cannot write down a move of a volume")]
    MoveNotSaved {
        #[source]
        source: StateError,
    },
    /// Moves were refused, as a whole.
    #[error("nothing is moved: {}", why.join("; "))]
    MoveRefused { why: Vec<String> },
    /// A place was not preferred.
    #[error("volume {uuid} is not served from another drive: {why}")]
    NotPreferred { uuid: Uuid, why: String },
    /// A drive that is not here has no light.
    #[error("the light of drive {drive} is not switched: {why}")]
    NotLocated { drive: DriveId, why: String },
    /// Its light was not switched.
    #[error(transparent)]
    Light(#[from] RunError<SwitchLightError>),
    /// An adoption was refused.
    #[error("drive {drive} is not adopted: {why}")]
    NotAdopted { drive: DriveId, why: String },
    /// The change may be cut off anywhere, or done: the repeat looks.
    #[error("the agent is stopping; try again")]
    Stopping,
    /// Ours.
    #[error("internal error: {what}")]
    Internal { what: String },
}

impl VolumeError {
    /// The deletion of a volume could not be noted.
    pub(super) fn not_noted(uuid: Uuid, error: KeeperError) -> Self {
        match error {
            KeeperError::Stopping => Self::Stopping,
            KeeperError::Write(source) => Self::Remember { uuid, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::GIB;

    #[test]
    fn sizes_that_are_compared_are_for_people_and_never_look_equal() {
        let no_room = |needed, largest| VolumeError::NoRoom {
            class: "bulk".into(),
            needed,
            largest,
            place: " on drive wwn-a".into(),
        };
        for (needed, largest, expected) in [
            (20_000_000_704_512, 100 * GIB, ["18.1 TiB", "100 GiB"]),
            (500 * GIB + GIB / 2, 500 * GIB, ["500.5 GiB", "500 GiB"]),
        ] {
            let [needed_text, largest_text] = expected;
            assert_eq!(
                no_room(needed, largest).to_string(),
                format!(
                    "no drive of class bulk has room for a volume of {needed_text}; the largest that would fit is {largest_text} on drive wwn-a"
                )
            );
        }
        let cannot_grow = VolumeError::CannotGrow {
            uuid: Uuid::nil(),
            needed: 20 * GIB,
            why: "no".into(),
        };
        assert!(
            cannot_grow
                .to_string()
                .ends_with("cannot grow to 20 GiB: no"),
            "{cannot_grow}"
        );
    }
}
