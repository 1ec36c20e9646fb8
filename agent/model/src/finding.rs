//! What is found out about a drive or its host besides SMART values: a closed list, as `smart::rules::Code` is for those.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What rules derive from evidence about a drive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// Stable, CamelCase: of [`Code`], of `smart::rules::Code`, or a SMART condition.
    pub code: String,
    /// What it is and what to do; no timestamps, no counters.
    pub message: String,
    /// An operator has seen it, and it is no worse since. It still makes up the verdict, and nobody is alerted to it.
    #[serde(default)]
    pub acknowledged: bool,
}

impl Finding {
    pub fn new(code: impl fmt::Display, message: impl Into<String>) -> Self {
        Self {
            code: code.to_string(),
            message: message.into(),
            acknowledged: false,
        }
    }

    /// Whether it is this one.
    pub fn is(&self, code: Code) -> bool {
        self.code == code.as_str()
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// Its name is what users see: it never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// As it is shown.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

codes! {
    /// The kernel reported places that could not be read or written.
    KernelMediumError;
    /// The kernel reported requests that failed.
    KernelIoError;
    /// The kernel lost its controller or link.
    KernelDeviceLost;
    /// It has requests and completes none.
    IoStalled;
    /// It was missing several times within a day.
    ComesAndGoes;
    /// Zeros that were written to it did not read back.
    ZerosNotKept;
    /// It answers to commands to zero and keeps what it had.
    ZeroCommandIgnored;
    /// A place on it did not read when the agent read it.
    ReadFailed;
    /// It takes several times as long as other drives of its kind, at the same load.
    Slow;
    /// The operator says that it is worse than the evidence.
    OperatorOverride;
    /// Of the host: udev's rules read what tenants wrote.
    HostReadsVolumes;
    /// Of the host: layout `lvm` cannot be used.
    LvmUnavailable;
    /// Of the host: a volume that was deleted is still in use, and not erased before that ends.
    QuarantinedInUse;
    /// Of the host: it cannot read drives that are claimed, which are shown as last known.
    HostCannotRead;
    /// Of the host: a state file of the agent cannot be saved.
    StateNotSaved;
    /// Of the host: a state file of the agent could not be read, and is not overwritten.
    StateNotRead;
    /// Of the host: a damaged state file of the agent was moved aside.
    StateLost;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
