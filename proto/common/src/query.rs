//! Calls of a command to a running program: its unix socket, a deadline on every answer, and the error and advice when there is none.

use std::{
    error::Error,
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::timeout;
use tonic::{Code, Status, transport::Channel};

use crate::{
    cli::{NOT_FOUND, NOT_PERMITTED, RUN_AS_ROOT, UNREACHABLE, WRONG},
    dial,
    units::human_duration,
};

/// Largest answer that is taken, bytes: a full snapshot of a thousand volumes is below 1 MiB. tonic's own limit is 4 MiB.
pub const MAX_ANSWER: usize = 64 << 20;

/// A program that commands connect to.
#[derive(Debug)]
pub struct Program {
    /// Name with its article, as in "agent" of "the agent".
    pub name: &'static str,
    /// Advice for the user when no program answers, in full sentences.
    pub advice: &'static str,
    /// Longest time that [`CalledProgram::answered`] waits.
    pub deadline: Duration,
}

/// Reason for which a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("no {} answers at {}. {}", program.name, socket.display(), program.advice)]
    Nobody {
        program: &'static Program,
        socket: PathBuf,
        #[source]
        source: dial::DialError,
    },
    #[error("cannot connect to the {} at {}: {RUN_AS_ROOT}", program.name, socket.display())]
    Denied {
        program: &'static Program,
        socket: PathBuf,
    },
    #[error(
        "the {} at {} did not answer within {}; see its log",
        program.name, socket.display(), human_duration(*limit)
    )]
    Silent {
        program: &'static Program,
        socket: PathBuf,
        limit: Duration,
    },
    #[error("the {} refused: {}", program.name, status.message())]
    Refused {
        program: &'static Program,
        status: Box<Status>,
    },
    #[error(
        "the {} at {} ended the call before its answer was whole; is it stopping?",
        program.name, socket.display()
    )]
    Ended {
        program: &'static Program,
        socket: PathBuf,
    },
    #[error("the {} at {} answered with {what}; is it of another version?", program.name, socket.display())]
    Senseless {
        program: &'static Program,
        socket: PathBuf,
        /// Description of the answer.
        what: &'static str,
    },
}

impl QueryError {
    /// True if no answer came, so that a further call would get none either.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Nobody { .. } | Self::Denied { .. } | Self::Silent { .. } | Self::Ended { .. }
        )
    }

    /// True if the program refused because of its current state (FAILED_PRECONDITION).
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code() == Code::FailedPrecondition)
    }

    /// Returns the exit code of a command that fails with this error.
    pub fn code(&self) -> u8 {
        match self {
            Self::Nobody { .. } | Self::Silent { .. } | Self::Ended { .. } => UNREACHABLE,
            Self::Denied { .. } => NOT_PERMITTED,
            Self::Senseless { .. } => WRONG,
            Self::Refused { status, .. } => match status.code() {
                Code::PermissionDenied | Code::Unauthenticated => NOT_PERMITTED,
                Code::NotFound => NOT_FOUND,
                _ => WRONG,
            },
        }
    }
}

/// A dialled program. Clones share its socket path.
#[derive(Debug, Clone)]
pub struct CalledProgram {
    program: &'static Program,
    socket: PathBuf,
}

impl CalledProgram {
    /// Dials the program's socket once, within its deadline, and returns the channel. Errs with `Denied` without permission, else with
    /// `Nobody` or `Silent`.
    pub async fn dial(
        program: &'static Program,
        socket: &Path,
    ) -> Result<(Self, Channel), QueryError> {
        let called = Self {
            program,
            socket: socket.to_owned(),
        };
        let channel = timeout(program.deadline, dial::once(socket))
            .await
            .map_err(|_| called.silent(program.deadline))?
            .map_err(|source| {
                let socket = socket.to_owned();
                match source.is_denied() {
                    true => QueryError::Denied { program, socket },
                    false => QueryError::Nobody {
                        program,
                        socket,
                        source,
                    },
                }
            })?;
        Ok((called, channel))
    }

    /// Awaits a call for at most the program's deadline. Errs with `Silent` after it, with `Ended` if the connection breaks, and with
    /// `Refused` for any other error status.
    pub async fn answered<T>(
        &self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, QueryError> {
        self.answered_within(self.program.deadline, call).await
    }

    /// Like [`answered`](Self::answered), with another deadline.
    pub async fn answered_within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, QueryError> {
        let answer = timeout(limit, call).await.map_err(|_| self.silent(limit))?;
        answer.map_err(|status| match status.code() {
            // Codes of tonic itself when the connection breaks, before an answer or within one; a status of the peer has no source.
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
                if status.source().is_some() =>
            {
                self.ended()
            }
            _ => QueryError::Refused {
                program: self.program,
                status: Box::new(status),
            },
        })
    }

    /// Returns the error of a stream that ended early.
    pub fn ended(&self) -> QueryError {
        QueryError::Ended {
            program: self.program,
            socket: self.socket.clone(),
        }
    }

    /// Returns the error of an answer that cannot be used; `what` describes it.
    pub fn senseless(&self, what: &'static str) -> QueryError {
        QueryError::Senseless {
            program: self.program,
            socket: self.socket.clone(),
            what,
        }
    }

    fn silent(&self, limit: Duration) -> QueryError {
        QueryError::Silent {
            program: self.program,
            socket: self.socket.clone(),
            limit,
        }
    }
}
