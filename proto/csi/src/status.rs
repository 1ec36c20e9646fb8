//! gRPC statuses of errors: one code per variant, and one text for an error in every answer.
//!
//! The codes are a protocol with the sidecars: UNAVAILABLE, ABORTED and DEADLINE_EXCEEDED mean "may still be running, call again"; every
//! other is final, and the caller may forget the volume.

use drivebay_common::{answers, cli::chain};
use tonic::{Code, Status};

use crate::{size::SizeError, validate::InvalidRequest};

/// An error that is returned to a client.
pub trait HasCode: std::error::Error {
    fn code(&self) -> Code;
}

/// Returns the status of an error: its code, and its text with all sources, shortened and escaped.
pub fn status(error: &(impl HasCode + 'static)) -> Status {
    answers::fit(error.code(), &chain(error))
}

/// Implements `From` for `Status`, so that `?` converts these errors.
#[macro_export]
macro_rules! statuses {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for ::tonic::Status {
            fn from(error: $error) -> Self {
                $crate::status::status(&error)
            }
        })+
    };
}

impl HasCode for InvalidRequest {
    fn code(&self) -> Code {
        match self {
            Self::Missing { .. }
            | Self::TooLong { .. }
            | Self::ControlCharacter { .. }
            | Self::NoAccessType
            | Self::NoAccessMode
            | Self::MultiNode { .. }
            | Self::MixedAccess
            | Self::MixedFilesystems { .. }
            | Self::UnknownFilesystem { .. }
            | Self::MountGroup
            | Self::MountFlag { .. }
            | Self::UnknownParameter { .. }
            | Self::BadParameter { .. }
            | Self::BadPattern { .. }
            | Self::NoClaimName { .. }
            | Self::MutableParameters
            | Self::UnknownSnapshotParameter { .. }
            | Self::BadSnapshotParameter { .. }
            | Self::ReserveBounds { .. }
            | Self::TooMany { .. }
            | Self::Repeated { .. }
            | Self::Negative { .. }
            | Self::LimitBelowRequired { .. }
            | Self::DriverName { .. } => Code::InvalidArgument,
        }
    }
}

impl HasCode for SizeError {
    fn code(&self) -> Code {
        match self {
            Self::TooLarge { .. }
            | Self::LimitBelowSmallest { .. }
            | Self::RoundingExceedsLimit { .. }
            | Self::LimitBelowCurrent { .. }
            | Self::BelowSource { .. } => Code::OutOfRange,
        }
    }
}

statuses!(InvalidRequest, SizeError);
