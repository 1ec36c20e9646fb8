//! Problems of a program's own state file, with the same names for the agent and the controller.

/// Problem of a state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// The last attempt to replace it failed.
    NotSaved,
    /// Reading it failed; it is left alone and not overwritten.
    NotRead,
    /// The file was damaged and moved aside.
    SetAside,
}

impl Trouble {
    pub const ALL: [Self; 3] = [Self::NotSaved, Self::NotRead, Self::SetAside];

    /// Returns the label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSaved => "not-saved",
            Self::NotRead => "not-read",
            Self::SetAside => "set-aside",
        }
    }

    /// Returns the code of the finding.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotSaved => "StateNotSaved",
            Self::NotRead => "StateNotRead",
            Self::SetAside => "StateLost",
        }
    }

    /// True if this is the code of a finding about state files: the program loses, or has lost, persisted state.
    pub fn is_code(code: &str) -> bool {
        Self::ALL.iter().any(|trouble| trouble.code() == code)
    }
}
