//! Findings about a drive or its host that are not from SMART values: a closed list, as `smart::rules::SmartCode` is for those.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Conclusion that rules derive from evidence about a drive or its host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// Stable CamelCase name: of [`Code`], of `smart::rules::SmartCode`, or a SMART condition.
    pub code: String,
    /// Meaning and action; no timestamps, no counters.
    pub message: String,
    /// True if an operator acknowledged it and it has not become worse since. It still counts for the verdict, and raises no alert.
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

    /// True if it has this code.
    pub fn is(&self, code: Code) -> bool {
        self.code == code.as_str()
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        /// Code of a finding. The variant's name is what users see: it never changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// All codes, in the order of their declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Returns the variant's name.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

codes! {
    /// The kernel reported sectors that could not be read or written.
    KernelMediumError;
    /// The kernel reported requests that failed.
    KernelIoError;
    /// The kernel lost its controller or link.
    KernelDeviceLost;
    /// The drive has outstanding requests and completes none.
    IoStalled;
    /// The drive was missing several times within a day.
    ComesAndGoes;
    /// Zeros that were written did not read back.
    ZerosNotKept;
    /// Commands to zero succeed, and the old data still reads back.
    ZeroCommandIgnored;
    /// A read by the agent failed.
    ReadFailed;
    /// The drive takes several times as long as other drives of its kind, at the same load.
    Slow;
    /// An operator's verdict is worse than that of the evidence.
    OperatorOverride;
    /// Of the host: udev's rules read data that tenants wrote.
    HostReadsVolumes;
    /// Of the host: layout `lvm` cannot be used.
    LvmUnavailable;
    /// Of the host: a deleted volume is still in use, and is not erased before that ends.
    QuarantinedInUse;
    /// Of the host: it cannot read claimed drives, which are shown as last known.
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
