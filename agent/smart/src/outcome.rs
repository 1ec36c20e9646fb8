//! What came of asking a drive: an answer, a drive that sleeps, or why there is none.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::facts::Facts;

/// What came of one poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The drive answered. Whether the answer tells of its health is for the rules.
    Answered(Box<Facts>),
    /// It sleeps, and was not woken.
    Standby,
    /// There is no answer.
    Failed(Failure),
}

/// Why there is no answer. Never a reason to forget the drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which kind; failures are counted by it.
    pub reason: FailureReason,
    /// What was seen, and what an operator does next. The same for as long as the failure is.
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
    /// It wrote something that is not smartctl's JSON.
    Garbage,
    /// Its JSON ends in the middle.
    Truncated,
    /// It wrote more than is read.
    TooLarge,
    /// It could not open the device, or the device did not identify itself.
    OpenFailed,
    /// Virtual, remote, or of a type that smartctl does not know: there is nothing to ask.
    Unsupported,
    /// It answered, but said nothing about the drive's health.
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
