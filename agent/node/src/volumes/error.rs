//! Errors of volume calls. `csi::status` maps every variant to a gRPC code.

use drivebay_csi::validate::InvalidRequest;
use drivebay_discovery::locate_light::SwitchLightError;
use uuid::Uuid;

use crate::mounts::MountTableError;
use crate::{keeper::KeeperError, state::StateError};
use drivebay_fs::jobs::FsError;
use drivebay_layout::jobs::LayoutError;
use drivebay_model::{
    DriveId,
    units::{human_size, size_beside},
};
use drivebay_worker::RunError;

/// Error of a volume call.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Another call for the same volume or name is running.
    #[error("another call for {what} is still running; try again")]
    Pending {
        /// The volume or name, for the message.
        what: String,
    },
    /// An encrypted volume is to be opened by a file of this host, and nothing else opens it.
    #[error(
        "volume {name} has no recovery key: if this host or the file with its secret is lost, its data is lost; make one with `drivebay-agent volume recovery-key {name} --key-file FILE` and keep it elsewhere, or add --no-recovery-key"
    )]
    NoRecoveryKey { name: String },
    /// Not everything could be read yet: whether the volume or snapshot exists is unknown.
    #[error("cannot tell whether {id} exists: {why}; try again")]
    CannotTell {
        /// Id or name of a volume or snapshot.
        id: String,
        /// Reason, e.g. the drives that were not read, and what to do.
        why: String,
    },
    /// No volume of this id on this node.
    #[error("volume {id} does not exist on this node")]
    NotFound { id: String },
    /// The request is invalid.
    #[error("{field}: {why}")]
    Invalid {
        field: &'static str,
        /// Reason why the field is refused, for the message.
        why: String,
    },
    /// A well-formed request for a use that no volume of this node supports.
    #[error(transparent)]
    Unsupported(#[from] InvalidRequest),
    /// This host lacks a program or a module without which no stage of the volume would succeed.
    #[error("this node cannot have such a volume: {why}")]
    HostLacks { why: String },
    /// The name is taken by another kind of volume.
    #[error("a volume named {name:?} exists with {has}, asked for with {requested}")]
    Exists {
        name: String,
        /// Kind of the existing volume.
        has: String,
        /// Kind that was requested.
        requested: String,
    },
    /// The name is taken by a snapshot of another volume.
    #[error("a snapshot named {name:?} exists already, of volume {volume}")]
    SnapshotExists { name: String, volume: Uuid },
    /// The volume cannot have a snapshot, or not now.
    #[error("no snapshot is taken of volume {uuid}: {why}")]
    NotTaken { uuid: Uuid, why: String },
    /// The snapshot is the source of an incomplete copy.
    #[error("snapshot {uuid} is being copied to volume {volume}; delete it when that is done")]
    SnapshotCopied { uuid: Uuid, volume: Uuid },
    /// A member of a group is deleted only with its group.
    #[error("snapshot {uuid} is a member of group snapshot {name:?}; delete that, {group}")]
    SnapshotInGroup {
        uuid: Uuid,
        /// Name of the group.
        name: String,
        /// Id of the group.
        group: String,
    },
    /// The name is taken by a group of other volumes.
    #[error("a group snapshot named {name:?} exists already, of volumes {volumes}")]
    GroupExists {
        name: String,
        /// Uuids of those volumes, separated by commas.
        volumes: String,
    },
    /// At least one volume cannot have a snapshot, or not now; no snapshot was taken.
    #[error("group snapshot {name:?} is not taken: {}", why.join("; "))]
    GroupNotTaken {
        name: String,
        /// One reason for each volume that cannot have a snapshot.
        why: Vec<String>,
    },
    /// The volume is created as a copy and is not complete.
    #[error("volume {uuid} is being copied: {progress}; try again")]
    Copying {
        uuid: Uuid,
        /// Progress, or the reason for waiting.
        progress: String,
    },
    /// The copy cannot be made; nothing is left of it.
    #[error("volume {name:?} could not be made as a copy: {why}")]
    NotCopied { name: String, why: String },
    /// The source of the copy is not on this node.
    #[error("{what} does not exist on this node")]
    NoSource { what: String },
    /// The name is taken by a volume that cannot be reached now.
    #[error(
        "a volume named {name:?} exists already and cannot be compared with the request: {why}"
    )]
    ExistsAway {
        name: String,
        /// Reason why the volume cannot be reached, with a remedy if there is one.
        why: String,
    },
    /// No class of this name is configured.
    #[error("class {class:?} is not configured on this node (it has: {configured})")]
    UnknownClass {
        /// Name of the class in the request; empty if it names none.
        class: String,
        /// Names of the configured classes.
        configured: String,
    },
    /// No drive of the class has enough free space.
    #[error(
        "no drive of class {class} has room for a volume of {}; the largest that would fit is {}{place}",
        size_beside(*needed, *largest),
        size_beside(*largest, *needed)
    )]
    NoRoom {
        class: String,
        /// Size of the requested volume, bytes.
        needed: u64,
        /// Size of the largest volume that would fit on a drive of the class, bytes; 0 if none would.
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
        /// Size of the requested volume, bytes.
        needed: u64,
        group: String,
        /// Names of those drives.
        drives: String,
    },
    /// The volume cannot be expanded in place.
    #[error("volume {uuid} cannot grow to {}: {why}", human_size(*needed))]
    CannotGrow {
        uuid: Uuid,
        /// Size that the volume would need to have, bytes.
        needed: u64,
        /// Reason, and the largest possible size.
        why: String,
    },
    /// The call requires a volume that is not mounted or published on this node, and this one is.
    #[error("volume {uuid} is in use on this node; unpublish and unstage it first")]
    InUse { uuid: Uuid },
    /// Not mounted in any mount namespace that this host's processes see, and held open by the kernel.
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
    /// The drive was not scanned yet: it may be present or missing.
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
        /// Target path of the other publication.
        at: String,
    },
    /// A call of an orchestrator for a volume that is mounted manually, or a second manual mount.
    #[error(
        "volume {uuid} is mounted by hand at {at}, or is to be at each start of the host; end that first with `drivebay-agent volume unmount {at}`"
    )]
    MountedManually { uuid: Uuid, at: String },
    /// The list of manual mounts could not be read, and the volume may be in it.
    #[error(
        "cannot tell whether volume {uuid} is mounted by hand: {why}; make hand-mounts.json in the state directory readable; it is read again within a minute"
    )]
    HandMountsUnread { uuid: Uuid, why: String },
    /// A command of the host's operator for a volume that an orchestrator or another program uses.
    #[error(
        "volume {uuid} is mounted at {at}, and not by `drivebay-agent volume mount`; end whatever uses it there first: if it is a pod, delete the pod"
    )]
    MountedElsewhere { uuid: Uuid, at: String },
    /// The old mount was detached and still exists in the kernel.
    #[error("the old mount of volume {uuid} was detached and is not gone yet; try again")]
    StillDetached { uuid: Uuid },
    /// Writing the tombstone failed; the deletion is not acknowledged.
    #[error("cannot note the deletion of volume {uuid} in the state directory")]
    Remember {
        uuid: Uuid,
        #[source]
        source: StateError,
    },
    /// Recording a manual mount, or its removal, failed.
    #[error("cannot write down the mount of volume {uuid}")]
    NotNoted {
        uuid: Uuid,
        #[source]
        source: StateError,
    },
    /// mountinfo could not be read.
    #[error(transparent)]
    MountTable(#[from] MountTableError),
    /// A layout job failed.
    #[error("the layout of the drive could not be changed")]
    Layout(#[from] RunError<LayoutError>),
    /// Mounting, formatting or examining a filesystem failed.
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
    /// A move could not be recorded durably; nothing was done about it.
    #[error("cannot write down a move of a volume")]
    MoveNotSaved {
        #[source]
        source: StateError,
    },
    /// The request for moves was refused as a whole.
    #[error("nothing is moved: {}", why.join("; "))]
    MoveRefused { why: Vec<String> },
    /// The request to serve the volume from another place was refused.
    #[error("volume {uuid} is not served from another drive: {why}")]
    NotPreferred { uuid: Uuid, why: String },
    /// The light of a drive that is not present cannot be switched.
    #[error("the light of drive {drive} is not switched: {why}")]
    NotLocated { drive: DriveId, why: String },
    /// Switching the light failed.
    #[error(transparent)]
    Light(#[from] RunError<SwitchLightError>),
    /// An adoption was refused.
    #[error("drive {drive} is not adopted: {why}")]
    NotAdopted { drive: DriveId, why: String },
    /// The agent stops. The change may be complete, partial or not begun; a repeated call finds out.
    #[error("the agent is stopping; try again")]
    Stopping,
    /// Defect of this program.
    #[error("internal error: {what}")]
    Internal { what: String },
}

impl VolumeError {
    /// Converts the error of writing a tombstone.
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
    fn sizes_that_are_compared_are_for_people_and_never_printed_equal() {
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
