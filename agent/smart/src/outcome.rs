//! Outcome of a poll: an answer, a drive in standby, or a failure with its reason.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::facts::Facts;

/// Outcome of one poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The drive answered. The rules decide whether the answer has health data.
    Answered(Box<Facts>),
    /// The drive is in standby, and was not woken.
    Standby,
    /// The drive gave no answer.
    Failed(Failure),
}

/// A poll that failed. The drive keeps its history and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Kind of failure, by which failures are counted.
    pub reason: FailureReason,
    /// The evidence, and what an operator can do. Stays the same as long as the failure lasts.
    pub detail: String,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Kinds of failure. The names are stable: they appear in metrics.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum FailureReason { $($(#[doc = $doc])+ $name,)+ }

        impl FailureReason {
            /// Every reason there is.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The reason as text.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

reasons! {
    /// smartctl is not installed.
    Missing,
    /// smartctl could not be started, or not be waited for.
    NotStarted,
    /// smartctl did not end in time and was killed.
    Timeout,
    /// A signal ended smartctl.
    Killed,
    /// The output is not smartctl's JSON.
    Garbage,
    /// The JSON ends in the middle.
    Truncated,
    /// The output is larger than what is read.
    TooLarge,
    /// smartctl could not open the device, or the device did not identify itself.
    OpenFailed,
    /// Virtual, remote, or of a type that smartctl does not know: it cannot be polled.
    Unsupported,
    /// The answer has no health data.
    NoData,
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.detail)
    }
}
