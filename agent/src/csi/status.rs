//! Maps errors to gRPC codes.
//!
//! Codes are a protocol with the kubelet and the sidecars: ABORTED, UNAVAILABLE, DEADLINE_EXCEEDED and CANCELLED mean "may still be
//! running, call again" and are used only if that is true. Every other code is final: the operation left nothing partly done, and the
//! kubelet may never call again.

use drivebay_common::answers;
use tonic::{Code, Status};

use drivebay_fs::jobs::FsError;
use drivebay_layout::jobs::LayoutError;
use drivebay_model::cause::chain;
use drivebay_node::volumes::VolumeError;
use drivebay_worker::RunError;

/// Returns the gRPC status of an error: its code from the table, its chain of causes as the message.
pub fn status(error: &VolumeError) -> Status {
    answers::fit(code(error), &chain(error))
}

/// Returns the gRPC code of an error.
pub fn code(error: &VolumeError) -> Code {
    match error {
        VolumeError::Pending { .. } => Code::Aborted,
        VolumeError::CannotTell { .. } => Code::Unavailable,
        VolumeError::NotFound { .. } => Code::NotFound,
        VolumeError::Invalid { .. } => Code::InvalidArgument,
        VolumeError::Unsupported(_) => Code::FailedPrecondition,
        VolumeError::Exists { .. }
        | VolumeError::SnapshotExists { .. }
        | VolumeError::GroupExists { .. } => Code::AlreadyExists,
        VolumeError::SnapshotInGroup { .. } => Code::InvalidArgument,
        VolumeError::NotTaken { .. }
        | VolumeError::GroupNotTaken { .. }
        | VolumeError::SnapshotCopied { .. }
        | VolumeError::NotCopied { .. } => Code::FailedPrecondition,
        VolumeError::Copying { .. } => Code::Aborted,
        VolumeError::NoSource { .. } => Code::NotFound,
        // The volume exists and may return; a second one of its name must not be created meanwhile.
        VolumeError::ExistsAway { .. } => Code::Unavailable,
        VolumeError::UnknownClass { .. } => Code::InvalidArgument,
        // Another node may have room, or dm-crypt.
        VolumeError::NoRoom { .. }
        | VolumeError::NoDriveApart { .. }
        | VolumeError::HostLacks { .. } => Code::ResourceExhausted,
        // Not RESOURCE_EXHAUSTED: the resizer retries that without end, and the PVC's request cannot be lowered.
        VolumeError::CannotGrow { .. } => Code::OutOfRange,
        VolumeError::InUse { .. } | VolumeError::Held { .. } => Code::FailedPrecondition,
        VolumeError::Ambiguous { .. } => Code::FailedPrecondition,
        VolumeError::DriveAway { .. } | VolumeError::NotScanned { .. } => Code::Unavailable,
        VolumeError::Vanished { .. } => Code::NotFound,
        VolumeError::NotStagedFirst => Code::FailedPrecondition,
        VolumeError::OtherTarget { .. } => Code::FailedPrecondition,
        VolumeError::MountedManually { .. }
        | VolumeError::MountedElsewhere { .. }
        | VolumeError::NoRecoveryKey { .. } => Code::FailedPrecondition,
        VolumeError::StillDetached { .. } => Code::Aborted,
        VolumeError::Remember { .. }
        | VolumeError::NotNoted { .. }
        | VolumeError::MoveNotSaved { .. }
        | VolumeError::HandMountsUnread { .. } => Code::Unavailable,
        // The change itself may be complete, for example the mount made: the repeated call finds it.
        VolumeError::MountTable(_) => Code::Unavailable,
        VolumeError::Layout(error) => run_code(error, layout_code),
        VolumeError::Fs(error) => run_code(error, fs_code),
        VolumeError::NotWiped { .. }
        | VolumeError::NotAdopted { .. }
        | VolumeError::NotReleased { .. }
        | VolumeError::NotCordoned { .. }
        | VolumeError::MoveRefused { .. }
        | VolumeError::NotPreferred { .. }
        | VolumeError::NotLocated { .. } => Code::FailedPrecondition,
        VolumeError::Light(error) => run_code(error, |_| Code::FailedPrecondition),
        VolumeError::Stopping => Code::Unavailable,
        VolumeError::Internal { .. } => Code::Internal,
    }
}

fn run_code<E: std::error::Error>(error: &RunError<E>, job: impl Fn(&E) -> Code) -> Code {
    match error {
        RunError::Busy { .. } => Code::Aborted,
        RunError::Stuck { .. } => Code::Unavailable,
        // The worker was killed, but its operation may have reached the drive: the repeated call checks.
        RunError::Deadline { .. } => Code::DeadlineExceeded,
        RunError::Cancelled { .. } => Code::Aborted,
        RunError::Worker { .. } => Code::Unavailable,
        RunError::Stopping => Code::Unavailable,
        RunError::Job(error) => job(error),
    }
}

fn layout_code(error: &LayoutError) -> Code {
    match error {
        LayoutError::NotThisDrive { .. } => Code::Unavailable,
        // A failed write may have reached the drive in part: the repeated call checks.
        LayoutError::Io { .. } | LayoutError::Host { .. } | LayoutError::InDoubt { .. } => {
            Code::Unavailable
        }
        // The command may have been carried out in part or completely: the repeated call checks.
        LayoutError::Lvm { .. } => Code::Unavailable,
        LayoutError::Locked { .. }
        | LayoutError::LvmLocked { .. }
        | LayoutError::StillZeroed { .. }
        | LayoutError::NotZeroed { .. } => Code::Aborted,
        LayoutError::NoLvm { .. } => Code::FailedPrecondition,
        LayoutError::NotClaimable { .. } => Code::FailedPrecondition,
        LayoutError::Unlabelled { .. }
        | LayoutError::Damaged { .. }
        | LayoutError::OtherSector { .. } => Code::FailedPrecondition,
        LayoutError::NoSpace { .. } | LayoutError::TableFull { .. } => Code::ResourceExhausted,
        LayoutError::NoSuchVolume { .. } => Code::NotFound,
        // The volume is being moved, or has moved: a repeated call finds its new place.
        LayoutError::NotThere { .. } => Code::Unavailable,
        LayoutError::NotWritten { .. } => Code::Unavailable,
        // No member of the group remains: the repeated call takes it again.
        LayoutError::NotTogether { .. } => Code::Aborted,
        LayoutError::StillSuspended { .. } => Code::Unavailable,
        LayoutError::InUse { .. }
        | LayoutError::Used { .. }
        | LayoutError::HasSnapshots { .. }
        | LayoutError::SnapshotInUse { .. }
        | LayoutError::NoSnapshot { .. } => Code::FailedPrecondition,
        LayoutError::Ambiguous { .. } => Code::FailedPrecondition,
        LayoutError::CannotGrow { .. } => Code::OutOfRange,
        LayoutError::BadTransition { .. } => Code::FailedPrecondition,
        LayoutError::Busy { .. } => Code::FailedPrecondition,
        LayoutError::NotErased { .. } => Code::Internal,
        LayoutError::Cordoned { .. } => Code::ResourceExhausted,
    }
}

fn fs_code(error: &FsError) -> Code {
    match error {
        FsError::Layout(error) => layout_code(error),
        FsError::FilesystemGone { .. } => Code::FailedPrecondition,
        FsError::Unexpected { .. } => Code::FailedPrecondition,
        FsError::Probe { .. } => Code::Unavailable,
        FsError::Incompatible { .. } => Code::FailedPrecondition,
        FsError::Conflict { .. } => Code::AlreadyExists,
        FsError::NotStaged { .. } | FsError::StagedOtherwise { .. } => Code::FailedPrecondition,
        FsError::NotHere { .. } => Code::NotFound,
        FsError::Mkfs { .. } => Code::Internal,
        FsError::MissingTool { .. } => Code::FailedPrecondition,
        FsError::Mount {
            source,
            has_options,
            damage,
            ..
        } => mount_code(source.errno(), *has_options && damage.is_none()),
        FsError::NotAVolume { .. } => Code::FailedPrecondition,
        // It may still be mounted.
        FsError::Unmount { .. } => Code::Unavailable,
        FsError::NeedsRepair { .. } => Code::Aborted,
        FsError::Grow { .. } => Code::Internal,
        FsError::Path { source, .. } => match source.errno() {
            Some(libc::ENAMETOOLONG) => Code::InvalidArgument,
            _ => Code::FailedPrecondition,
        },
        FsError::ReadOnly { .. } => Code::FailedPrecondition,
        FsError::Io { .. } => Code::Internal,
        FsError::Option { .. } => Code::InvalidArgument,
        FsError::NoSecret { .. } | FsError::NotEncrypted { .. } => Code::InvalidArgument,
        FsError::WrongSecret { .. } | FsError::NotOpen { .. } | FsError::HeaderDamaged { .. } => {
            Code::FailedPrecondition
        }
        FsError::Cryptsetup { .. } => Code::Internal,
        FsError::MappingInUse { .. } | FsError::NoLostSectors { .. } => Code::FailedPrecondition,
    }
}

/// Returns the code for a mount that the kernel refused. Nothing is mounted, so none of these codes says that the call may still be
/// running; but the kubelet repeats RESOURCE_EXHAUSTED.
fn mount_code(errno: Option<i32>, has_options: bool) -> Code {
    match errno {
        // Without options, this kernel does not support the filesystem.
        Some(libc::EINVAL) if has_options => Code::InvalidArgument,
        Some(
            libc::EINVAL
            | libc::EBUSY
            | libc::EEXIST
            | libc::EROFS
            | libc::EACCES
            | libc::EPERM
            | libc::ENODEV
            | libc::ENOSYS
            | libc::EUCLEAN
            | libc::EBADMSG,
        ) => Code::FailedPrecondition,
        Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
            Code::ResourceExhausted
        }
        // The drive is unplugged, or may be.
        Some(libc::ENXIO | libc::ENOTBLK) => Code::Unavailable,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use drivebay_model::{Cause, DriveId};
    use drivebay_worker::JobTarget;

    /// True for codes that the kubelet and the sidecars interpret as "may still be running".
    fn is_retried(code: Code) -> bool {
        matches!(
            code,
            Code::Aborted | Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
        )
    }

    fn runs<E: std::error::Error>(job: &'static str) -> Vec<RunError<E>> {
        let target = || JobTarget::Drive(DriveId("d".into()));
        let text = || "x".to_owned();
        vec![
            RunError::Busy {
                target: target(),
                step: text(),
            },
            RunError::Stuck {
                target: target(),
                step: text(),
                age_s: 31,
            },
            RunError::Deadline {
                target: target(),
                job,
                limit_ms: 1,
                step: text(),
            },
            RunError::Cancelled {
                target: target(),
                job,
            },
            RunError::Worker {
                target: target(),
                job,
                why: text(),
            },
            RunError::Stopping,
        ]
    }

    #[test]
    fn whatever_may_be_half_done_or_come_right_by_itself_is_called_again() {
        let (uuid, text) = (Uuid::nil(), || "x".to_owned());
        let drive = || DriveId("d".into());
        let io = LayoutError::Io {
            drive: text(),
            what: text(),
            source: Cause::from(std::io::Error::from_raw_os_error(libc::EIO)),
        };
        let mut all = vec![
            VolumeError::Pending { what: text() },
            VolumeError::CannotTell {
                id: text(),
                why: text(),
            },
            VolumeError::ExistsAway {
                name: text(),
                why: text(),
            },
            VolumeError::DriveAway {
                uuid,
                drive: drive(),
            },
            VolumeError::StillDetached { uuid },
            VolumeError::Stopping,
            VolumeError::Layout(RunError::Job(io)),
        ];
        all.extend(runs("create").into_iter().map(VolumeError::Layout));
        all.extend(runs("stage").into_iter().map(VolumeError::Fs));
        for error in all {
            assert!(is_retried(code(&error)), "{error}: {:?}", code(&error));
        }
    }

    #[test]
    fn a_refusal_that_changed_nothing_is_final() {
        let (uuid, text) = (Uuid::nil(), || "x".to_owned());
        for (error, expected) in [
            (VolumeError::NotFound { id: text() }, Code::NotFound),
            (
                VolumeError::Vanished {
                    uuid,
                    drive: DriveId(text()),
                },
                Code::NotFound,
            ),
            (VolumeError::InUse { uuid }, Code::FailedPrecondition),
            (
                VolumeError::Held { uuid, held: text() },
                Code::FailedPrecondition,
            ),
            (
                VolumeError::MountedManually { uuid, at: text() },
                Code::FailedPrecondition,
            ),
            (
                VolumeError::Ambiguous { uuid, why: text() },
                Code::FailedPrecondition,
            ),
            (
                VolumeError::Exists {
                    name: text(),
                    has: text(),
                    requested: text(),
                },
                Code::AlreadyExists,
            ),
            (
                VolumeError::SnapshotInGroup {
                    uuid,
                    name: text(),
                    group: text(),
                },
                Code::InvalidArgument,
            ),
            (
                VolumeError::GroupExists {
                    name: text(),
                    volumes: text(),
                },
                Code::AlreadyExists,
            ),
            (
                VolumeError::GroupNotTaken {
                    name: text(),
                    why: vec![text()],
                },
                Code::FailedPrecondition,
            ),
            (
                VolumeError::NoRoom {
                    class: text(),
                    needed: 1,
                    largest: 0,
                    place: text(),
                },
                Code::ResourceExhausted,
            ),
            (
                VolumeError::CannotGrow {
                    uuid,
                    needed: 1,
                    why: text(),
                },
                Code::OutOfRange,
            ),
        ] {
            assert_eq!(code(&error), expected, "{error}");
        }
    }

    #[test]
    fn a_mount_that_the_kernel_refuses_has_the_code_of_its_errno() {
        let mount = |errno: i32, has_options: bool| {
            code(&VolumeError::Fs(RunError::Job(FsError::Mount {
                device: "sda2".into(),
                path: "/staging".into(),
                has_options,
                hint: "see dmesg".into(),
                damage: None,
                source: Cause::from(std::io::Error::from_raw_os_error(errno)),
            })))
        };
        for (errno, expected) in [
            (libc::EINVAL, Code::FailedPrecondition),
            (libc::EBUSY, Code::FailedPrecondition),
            (libc::EROFS, Code::FailedPrecondition),
            (libc::EACCES, Code::FailedPrecondition),
            (libc::ENODEV, Code::FailedPrecondition),
            (libc::EUCLEAN, Code::FailedPrecondition),
            (libc::ENOSPC, Code::ResourceExhausted),
            (libc::EDQUOT, Code::ResourceExhausted),
            (libc::ENOMEM, Code::ResourceExhausted),
            (libc::ENXIO, Code::Unavailable),
            (libc::EIO, Code::Internal),
        ] {
            assert_eq!(mount(errno, false), expected, "{errno}");
        }
        assert_eq!(mount(libc::EINVAL, true), Code::InvalidArgument);
        assert_eq!(mount(libc::EBUSY, true), Code::FailedPrecondition);
    }

    #[test]
    fn the_message_has_the_whole_chain_of_reasons() {
        let stuck = RunError::Stuck {
            target: JobTarget::Drive(DriveId("wwn-1".into())),
            step: "stage: mount".into(),
            age_s: 42,
        };
        let status = status(&VolumeError::Fs(stuck));
        assert!(status.message().contains("wwn-1"), "{status}");
        assert!(status.message().contains("42s"), "{status}");
    }
}
