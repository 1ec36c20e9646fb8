//! The one table from errors to gRPC codes.
//!
//! Codes are a protocol with the kubelet and the sidecars: ABORTED, UNAVAILABLE, DEADLINE_EXCEEDED and
//! CANCELLED mean "may still be running, call again" and are used only when that is true. Every other
//! code is final: nothing is left half done, and the kubelet may never call again.

use tonic::{Code, Status};

use crate::{
    carve::jobs::CarveError, fs::jobs::FsError, model::cause::chain, volumes::VolumeError,
    worker::RunError,
};

/// The error as a gRPC status: its code from the table, its whole chain of reasons as the message.
pub fn status(error: &VolumeError) -> Status {
    Status::new(code(error), chain(error))
}

/// The table.
pub fn code(error: &VolumeError) -> Code {
    match error {
        VolumeError::Pending { .. } => Code::Aborted,
        VolumeError::CannotTell { .. } => Code::Unavailable,
        VolumeError::NotFound { .. } => Code::NotFound,
        VolumeError::Invalid { .. } => Code::InvalidArgument,
        VolumeError::Exists { .. } => Code::AlreadyExists,
        // The volume exists and may come back; a second one of its name must not be made meanwhile.
        VolumeError::ExistsAway { .. } => Code::Unavailable,
        VolumeError::UnknownClass { .. } => Code::InvalidArgument,
        VolumeError::NoRoom { .. } => Code::ResourceExhausted,
        // Not RESOURCE_EXHAUSTED: the resizer retries that for ever and the claim cannot be lowered.
        VolumeError::CannotGrow { .. } => Code::OutOfRange,
        VolumeError::InUse { .. } => Code::FailedPrecondition,
        VolumeError::Ambiguous { .. } => Code::FailedPrecondition,
        VolumeError::DriveAway { .. } => Code::Unavailable,
        VolumeError::NotStagedFirst => Code::FailedPrecondition,
        VolumeError::OtherTarget { .. } => Code::FailedPrecondition,
        VolumeError::StillDetached { .. } => Code::Aborted,
        VolumeError::Remember { .. } => Code::Unavailable,
        VolumeError::Mountinfo { .. } => Code::Internal,
        VolumeError::Carve(error) => run_code(error, carve_code),
        VolumeError::Fs(error) => run_code(error, fs_code),
        VolumeError::NotWiped { .. } => Code::FailedPrecondition,
        VolumeError::Internal { .. } => Code::Internal,
    }
}

fn run_code<E: std::error::Error>(error: &RunError<E>, job: impl Fn(&E) -> Code) -> Code {
    match error {
        RunError::Busy { .. } => Code::Aborted,
        RunError::Stuck { .. } => Code::Unavailable,
        // The worker was killed, yet what it had begun may be on the drive: the repeat looks.
        RunError::Deadline { .. } => Code::DeadlineExceeded,
        RunError::Cancelled { .. } => Code::Aborted,
        RunError::Worker { .. } => Code::Unavailable,
        RunError::Stopping => Code::Unavailable,
        RunError::Job(error) => job(error),
    }
}

fn carve_code(error: &CarveError) -> Code {
    match error {
        CarveError::NotThisDrive { .. } => Code::Unavailable,
        // A write that failed may have reached the drive in part: the repeat looks.
        CarveError::Io { .. } => Code::Unavailable,
        CarveError::Locked { .. } => Code::Aborted,
        CarveError::NotClaimable { .. } => Code::FailedPrecondition,
        CarveError::Unlabelled { .. } | CarveError::Damaged { .. } => Code::FailedPrecondition,
        CarveError::NoSpace { .. } | CarveError::TableFull { .. } => Code::ResourceExhausted,
        CarveError::NoSuchVolume { .. } => Code::NotFound,
        CarveError::InUse { .. } => Code::FailedPrecondition,
        CarveError::Ambiguous { .. } => Code::FailedPrecondition,
        CarveError::CannotGrow { .. } => Code::OutOfRange,
        CarveError::BadTransition { .. } => Code::FailedPrecondition,
        CarveError::Busy { .. } => Code::FailedPrecondition,
        CarveError::NotErased { .. } => Code::Internal,
    }
}

fn fs_code(error: &FsError) -> Code {
    match error {
        FsError::Carve(error) => carve_code(error),
        FsError::FilesystemGone { .. } => Code::FailedPrecondition,
        FsError::Unexpected { .. } => Code::FailedPrecondition,
        FsError::Probe { .. } => Code::Unavailable,
        FsError::Incompatible { .. } => Code::FailedPrecondition,
        FsError::Conflict { .. } => Code::AlreadyExists,
        FsError::NotStaged { .. } => Code::FailedPrecondition,
        FsError::NotHere { .. } => Code::NotFound,
        FsError::Mkfs { .. } => Code::Internal,
        FsError::MissingTool { .. } => Code::FailedPrecondition,
        FsError::Mount { .. } => Code::Internal,
        // It may still be mounted.
        FsError::Unmount { .. } => Code::Unavailable,
        FsError::Grow { .. } => Code::Internal,
        FsError::Io { .. } => Code::Internal,
        FsError::Option { .. } => Code::InvalidArgument,
    }
}
