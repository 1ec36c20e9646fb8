//! The only error of the harness: a message. Its `Debug` is its `Display`, so that `unwrap` in a test prints it readably.

use std::{error::Error, fmt};

/// Error message for the reader of a failed test.
#[derive(Clone, PartialEq, Eq)]
pub struct Trouble(pub String);

impl Trouble {
    /// Creates an error from a message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Creates an error from a failed operation, with all sources of its error.
    pub fn doing(what: impl fmt::Display, error: &(dyn Error + 'static)) -> Self {
        let mut text = format!("{what}: {error}");
        let mut next = error.source();
        while let Some(inner) = next {
            text.push_str(&format!(": {inner}"));
            next = inner.source();
        }
        Self(text)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Trouble {}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<tonic::Status> for Trouble {
    fn from(status: tonic::Status) -> Self {
        Self(format!("{:?}: {}", status.code(), status.message()))
    }
}
