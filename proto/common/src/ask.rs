//! A command's way to a running program: its unix socket, a deadline on every answer, and what to do when there is none.

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

/// A program that can be asked.
#[derive(Debug)]
pub struct Program {
    /// As in "the agent".
    pub name: &'static str,
    /// What to do when none answers: sentences.
    pub advice: &'static str,
    /// Nothing a person waits for at a prompt should take longer.
    pub deadline: Duration,
}

/// Why the program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
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
        /// What it said.
        what: &'static str,
    },
}

impl AskError {
    /// Whether no answer came, so that a further question would not be answered either.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::Nobody { .. } | Self::Denied { .. } | Self::Silent { .. } | Self::Ended { .. }
        )
    }

    /// Whether it was refused for the state that things are in (FAILED_PRECONDITION).
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code() == Code::FailedPrecondition)
    }

    /// The exit code of a command that ends with this.
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

/// Where a program was dialled. Clones are the same place.
#[derive(Debug, Clone)]
pub struct Asked {
    program: &'static Program,
    socket: PathBuf,
}

impl Asked {
    /// Dials.
    pub async fn dial(
        program: &'static Program,
        socket: &Path,
    ) -> Result<(Self, Channel), AskError> {
        let asked = Self {
            program,
            socket: socket.to_owned(),
        };
        let channel = timeout(program.deadline, dial::once(socket))
            .await
            .map_err(|_| asked.silent(program.deadline))?
            .map_err(|source| {
                let socket = socket.to_owned();
                match source.is_denied() {
                    true => AskError::Denied { program, socket },
                    false => AskError::Nobody {
                        program,
                        socket,
                        source,
                    },
                }
            })?;
        Ok((asked, channel))
    }

    /// An answer within the program's deadline, or why there is none.
    pub async fn answered<T>(
        &self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, AskError> {
        self.answered_within(self.program.deadline, call).await
    }

    /// The same, for what may take another time.
    pub async fn answered_within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, AskError> {
        let answer = timeout(limit, call).await.map_err(|_| self.silent(limit))?;
        answer.map_err(|status| match status.code() {
            // What tonic itself says when the connection breaks, before an answer and within one.
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
                if status.source().is_some() =>
            {
                self.ended()
            }
            _ => AskError::Refused {
                program: self.program,
                status: Box::new(status),
            },
        })
    }

    /// It ended its answer early.
    pub fn ended(&self) -> AskError {
        AskError::Ended {
            program: self.program,
            socket: self.socket.clone(),
        }
    }

    /// The answer means nothing.
    pub fn senseless(&self, what: &'static str) -> AskError {
        AskError::Senseless {
            program: self.program,
            socket: self.socket.clone(),
            what,
        }
    }

    fn silent(&self, limit: Duration) -> AskError {
        AskError::Silent {
            program: self.program,
            socket: self.socket.clone(),
            limit,
        }
    }
}
