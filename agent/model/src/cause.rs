//! An error that was sent from a worker process: the whole error chain as text, with errno for the links that had one.

use std::{error::Error, fmt, io};

pub use drivebay_common::cli::chain;
use serde::{Deserialize, Serialize};

/// An error chain that can be sent between processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Text of this link of the chain alone.
    pub message: String,
    /// errno, if this link is a failed system call.
    pub os_error: Option<i32>,
    /// The next link of the chain.
    pub source: Option<Box<Cause>>,
}

impl Cause {
    /// Converts a whole error chain. errno is kept for each link that is an `io::Error` of the system.
    pub fn new(error: &(dyn Error + 'static)) -> Self {
        Self {
            message: error.to_string(),
            os_error: error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error),
            source: error.source().map(|inner| Box::new(Self::new(inner))),
        }
    }

    /// Returns a cause without errno and without a source.
    pub fn text(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            os_error: None,
            source: None,
        }
    }

    /// Returns the first errno in the chain.
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
