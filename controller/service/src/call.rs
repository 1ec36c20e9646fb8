//! Calls to an agent, and what may be concluded when one fails.
//!
//! A call that was sent and not answered may have been carried out, or may be under way
//! still. The provisioner forgets a volume after a final code, so nothing but the agent's own
//! word becomes one: whatever the transport makes up is answered with UNAVAILABLE.

use std::time::Duration;

use drivebay_common::units::human_duration;
use tonic::{Code, Response, Status};

/// The agent's answer to a change is waited for this long. The agent finishes regardless;
/// a repeated call gets ABORTED while it works and the result after.
pub const CHANGE_DEADLINE: Duration = Duration::from_secs(60);

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The agent's own words, to be passed on.
    #[error("{message}")]
    Answered {
        code: Code,
        /// The agent's message; never empty.
        message: String,
    },
    /// Nothing was sent: the agent has no connection here.
    #[error(
        "the agent of node {node} is not connected, so nothing was asked of it; see that it runs and reaches the controller, then call again"
    )]
    NotConnected { node: String },
    /// Nothing was sent: the agent would not understand it.
    #[error(
        "node {node} runs an older agent, which knows no snapshots and makes no copies of volumes; upgrade it"
    )]
    Outdated { node: String },
    /// Not delivered, or not answered: the change may have happened.
    #[error(
        "the agent did not answer, so whether it was done is not known ({message}); call again"
    )]
    InDoubt {
        /// Error of the transport.
        message: String,
    },
    /// Not answered in time: the change may happen yet.
    #[error("the agent has not answered for {} and may still be executing the request; call again", human_duration(*.0))]
    Deadline(Duration),
    /// An answer that contradicts the request.
    #[error(
        "the agent's answer is invalid ({reason}), so the outcome is unknown; this is a bug in the agent"
    )]
    Nonsense {
        /// Contradiction between request and answer.
        reason: String,
    },
}

/// Waits for a call, at most this long. An error is the agent's own answer only if it is [`CallError::Answered`]; after
/// [`InDoubt`](CallError::InDoubt) and [`Deadline`](CallError::Deadline) it may have been carried out.
pub async fn call<T>(
    deadline: Duration,
    sent: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(deadline, sent).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(CallError::from(status)),
        Err(_) => Err(CallError::Deadline(deadline)),
    }
}

/// Waits for a deletion as [`call`] does, for [`CHANGE_DEADLINE`]. None: the agent answered NOT_FOUND, so it is already deleted.
pub async fn deletion<T>(
    sent: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Option<T>, CallError> {
    match call(CHANGE_DEADLINE, sent).await {
        Err(CallError::Answered {
            code: Code::NotFound,
            ..
        }) => Ok(None),
        answer => answer.map(Some),
    }
}

/// True if tonic made the status on this side because an answer was larger than is accepted, or did not decode. It has the headers of the
/// answer, as one that the agent sent.
fn is_of_decoder(status: &Status) -> bool {
    let of_tonic = |text: &str| status.message().contains(text);
    match status.code() {
        Code::OutOfRange => of_tonic("message length too large"),
        Code::Internal => of_tonic("failed to decode") || of_tonic("protocol error"),
        _ => false,
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        // A status that a server sent came in headers, with a content type among them, and
        // has no cause here; one that tonic, hyper or h2 made on this side lacks the first or has the second.
        let sent = status.metadata().contains_key("content-type")
            && std::error::Error::source(&status).is_none()
            && !is_of_decoder(&status);
        let message = if status.message().is_empty() {
            status.code().description().to_owned()
        } else {
            status.message().to_owned()
        };
        match status.code() {
            Code::Ok | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded => {
                Self::InDoubt { message }
            }
            code if sent => Self::Answered { code, message },
            _ => Self::InDoubt { message },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_no_agent_sent_is_never_final() {
        for code in [
            Code::InvalidArgument,
            Code::NotFound,
            Code::AlreadyExists,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::FailedPrecondition,
            Code::OutOfRange,
            Code::Internal,
            Code::DataLoss,
            Code::Unknown,
        ] {
            let made_here = CallError::from(Status::new(code, "made by the transport"));
            assert!(matches!(made_here, CallError::InDoubt { .. }), "{code:?}");
        }
        // As tonic makes it, with the headers of the answer that is too large.
        let mut too_large = Status::new(
            Code::OutOfRange,
            "Error, decoded message length too large: found 131073 bytes, the limit is: 131072 bytes",
        );
        let headers = too_large.metadata_mut();
        headers.insert("content-type", "application/grpc".parse().unwrap());
        let made_here = CallError::from(too_large);
        assert!(
            matches!(made_here, CallError::InDoubt { .. }),
            "{made_here:?}"
        );
        let refused = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert!(matches!(
            CallError::from(Status::from(refused)),
            CallError::InDoubt { .. }
        ));
    }
}
