//! What can be wrong with a program's own state file: the same words for the agent and the controller.

/// What is wrong with a state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// It could not be replaced at the last attempt.
    NotSaved,
    /// It could not be read, is left alone, and not overwritten.
    NotRead,
    /// It was damaged and moved aside.
    SetAside,
}

impl Trouble {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::NotSaved, Self::NotRead, Self::SetAside];

    /// The label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSaved => "not-saved",
            Self::NotRead => "not-read",
            Self::SetAside => "set-aside",
        }
    }

    /// The code of the finding.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotSaved => "StateNotSaved",
            Self::NotRead => "StateNotRead",
            Self::SetAside => "StateLost",
        }
    }

    /// Whether this is the code of a finding about state files: the program forgets, or has forgotten, what it should know.
    pub fn is_code(code: &str) -> bool {
        Self::ALL.iter().any(|trouble| trouble.code() == code)
    }
}
