//! The one table from errors to gRPC codes.
//!
//! The codes are a protocol with the sidecars: UNAVAILABLE, ABORTED and DEADLINE_EXCEEDED mean
//! "may still be running, call again"; every other is final, and the caller may forget the volume.

use drivebay_common::answers;
use tonic::{Code, Status};

use super::{
    attach::AttachError,
    create::CreateError,
    delete::DeleteError,
    existing_groups::{DeleteGroupError, GetGroupError, IdMismatch},
    group_snapshots::CreateGroupError,
    origin::SourceError,
    pending::Unfinished,
    snapshots::{CreateSnapshotError, DeleteSnapshotError},
};
use crate::{agents::LookupError, call::CallError, page::BadToken, placement::PlacementError};
use drivebay_csi::status::HasCode;

impl HasCode for PlacementError {
    fn code(&self) -> Code {
        match self {
            Self::NotReady { .. } => Code::Unavailable,
            Self::ClassNotNamed { .. } | Self::UnknownClass { .. } => Code::InvalidArgument,
            // Makes the provisioner give the pod back to the scheduler, which picks another node.
            Self::NoSuchNode
            | Self::Gone { .. }
            | Self::ClassNotThere { .. }
            | Self::NoRoom { .. } => Code::ResourceExhausted,
            Self::Size(error) => error.code(),
        }
    }
}

impl HasCode for LookupError {
    fn code(&self) -> Code {
        match self {
            Self::NotAnId { .. }
            | Self::NotThere { .. }
            | Self::Copying { .. }
            | Self::ForgottenNodes { .. } => Code::NotFound,
            // Absence is not known, so it is not claimed.
            Self::NotKnownYet { .. }
            | Self::SnapshotsNotKnown { .. }
            | Self::NodeNeverSeen { .. } => Code::Unavailable,
        }
    }
}

impl HasCode for CallError {
    fn code(&self) -> Code {
        match self {
            Self::Answered { code, .. } => *code,
            Self::Outdated { .. } => Code::FailedPrecondition,
            // Whether anything was done is not known: a final code would make the caller forget it.
            Self::NotConnected { .. }
            | Self::InDoubt { .. }
            | Self::Deadline(_)
            | Self::Nonsense { .. } => Code::Unavailable,
        }
    }
}

impl HasCode for Unfinished {
    fn code(&self) -> Code {
        match self {
            Self::UnderWay { .. } => Code::Aborted,
            Self::Lost { .. } => Code::Unavailable,
        }
    }
}

impl HasCode for CreateError {
    fn code(&self) -> Code {
        match self {
            Self::Unfinished(error) => error.code(),
            // Final codes would make the provisioner try another node, or forget the volume.
            Self::InDoubt { .. } | Self::Notes(_) => Code::Unavailable,
            Self::Elsewhere { .. } => Code::AlreadyExists,
            Self::Source(error) => error.code(),
            Self::Placement(error) => error.code(),
            Self::Size(error) => error.code(),
            Self::Call(error) => error.code(),
        }
    }
}

impl HasCode for SourceError {
    fn code(&self) -> Code {
        match self {
            Self::Lookup(error) => error.code(),
            // Nothing was asked, and no other node can do it: giving the pod back to the scheduler would not help.
            Self::Away { .. } => Code::Unavailable,
            // Makes the provisioner give the pod back to the scheduler, which picks another node.
            Self::OtherNode { .. } => Code::ResourceExhausted,
            Self::NotReady { .. } => Code::FailedPrecondition,
            // CSI's code for a source that does not go with the rest of the request.
            Self::OtherMode { .. } | Self::OtherFilesystem { .. } | Self::NoClass { .. } => {
                Code::InvalidArgument
            }
            Self::Size(error) => error.code(),
        }
    }
}

impl HasCode for CreateSnapshotError {
    fn code(&self) -> Code {
        match self {
            Self::Unfinished(error) => error.code(),
            Self::Lookup(error) => error.code(),
            Self::Moved { .. } => Code::FailedPrecondition,
            Self::OtherNode { .. } => Code::ResourceExhausted,
            Self::Exists { .. } => Code::AlreadyExists,
            Self::Call(error) => error.code(),
        }
    }
}

impl HasCode for DeleteSnapshotError {
    fn code(&self) -> Code {
        match self {
            Self::Lookup(error) => error.code(),
            Self::Call(error) => error.code(),
            Self::Moved { .. } => Code::FailedPrecondition,
            // CSI's code for a snapshot that can be deleted only with its group.
            Self::Member { .. } => Code::InvalidArgument,
        }
    }
}

impl HasCode for CreateGroupError {
    fn code(&self) -> Code {
        match self {
            Self::Unfinished(error) => error.code(),
            Self::Invalid(error) => error.code(),
            Self::Lookup(error) => error.code(),
            // CSI's code for volumes that cannot be in one group snapshot.
            Self::Scattered { .. } | Self::Moved { .. } => Code::FailedPrecondition,
            Self::Exists { .. } => Code::AlreadyExists,
            Self::Call(error) => error.code(),
        }
    }
}

impl HasCode for IdMismatch {
    fn code(&self) -> Code {
        Code::InvalidArgument
    }
}

impl HasCode for GetGroupError {
    fn code(&self) -> Code {
        match self {
            Self::Lookup(error) => error.code(),
            Self::Ids(error) => error.code(),
        }
    }
}

impl HasCode for DeleteGroupError {
    fn code(&self) -> Code {
        match self {
            Self::Lookup(error) => error.code(),
            Self::Ids(error) => error.code(),
            Self::Call(error) => error.code(),
            Self::Moved { .. } => Code::FailedPrecondition,
        }
    }
}

impl HasCode for DeleteError {
    fn code(&self) -> Code {
        match self {
            Self::Lookup(error) => error.code(),
            Self::Call(error) => error.code(),
            Self::Moved { .. } => Code::FailedPrecondition,
            Self::MayBeElsewhere { .. } | Self::Notes(_) => Code::Unavailable,
        }
    }
}

impl HasCode for AttachError {
    fn code(&self) -> Code {
        match self {
            Self::Invalid(error) => error.code(),
            Self::Lookup(error) => error.code(),
            Self::NoSuchNode { .. } => Code::NotFound,
            Self::OtherNode { .. } => Code::FailedPrecondition,
            Self::OtherMode { .. } | Self::ReadOnly => Code::InvalidArgument,
        }
    }
}

impl HasCode for BadToken {
    fn code(&self) -> Code {
        Code::Aborted
    }
}

drivebay_csi::statuses!(
    PlacementError,
    LookupError,
    CallError,
    CreateError,
    DeleteError,
    CreateSnapshotError,
    DeleteSnapshotError,
    CreateGroupError,
    GetGroupError,
    DeleteGroupError,
    AttachError,
    BadToken,
);

/// For an RPC whose capability is not advertised.
pub(crate) fn unimplemented(rpc: &str, instead: &str) -> Status {
    answers::fit(
        Code::Unimplemented,
        &format!("{rpc} is not supported: {instead}"),
    )
}
