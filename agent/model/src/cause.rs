//! An error that crossed from a worker process: the whole chain of reasons as text,
//! with the system's error number where there was one.

use std::{error::Error, fmt, io};

pub use drivebay_common::cli::chain;
use serde::{Deserialize, Serialize};

/// The reason behind an error, fit to travel between processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// What this link of the chain says.
    pub message: String,
    /// errno, when the reason was a system call.
    pub os_error: Option<i32>,
    /// The reason behind this one.
    pub source: Option<Box<Cause>>,
}

impl Cause {
    /// Takes a whole error chain along.
    pub fn new(error: &(dyn Error + 'static)) -> Self {
        Self {
            message: error.to_string(),
            os_error: error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error),
            source: error.source().map(|inner| Box::new(Self::new(inner))),
        }
    }

    /// A reason that is a sentence of our own.
    pub fn text(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            os_error: None,
            source: None,
        }
    }

    /// The first errno in the chain.
    pub fn errno(&self) -> Option<i32> {
        self.os_error
            .or_else(|| self.source.as_deref().and_then(Self::errno))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|inner| inner as &(dyn Error + 'static))
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::new(&error)
    }
}

impl From<nix::Error> for Cause {
    fn from(error: nix::Error) -> Self {
        Self::new(&io::Error::from(error))
    }
}
