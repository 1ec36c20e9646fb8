//! Colour of words by severity: only on a terminal, and never if NO_COLOR is set.

use std::io::{IsTerminal, stdout};

/// True if words are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    pub const PLAIN: Self = Self(false);
    pub const COLOURED: Self = Self(true);

    /// Returns the choice for standard output: colours if it is a terminal, NO_COLOR is unset or empty, and TERM is not `dumb`.
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(!refused && !dumb && stdout().is_terminal())
    }

    /// Returns a verdict, status or state in its colour: red for lost or failing, yellow for degraded, green for good; other words
    /// unchanged.
    pub fn word(self, word: &str) -> String {
        let colour = match word {
            "DATA_LOSS" | "INACCESSIBLE" | "MISSING" | "NO_ANSWER" | "DAMAGED" | "BAD" | "AWAY"
            | "missing" | "away" | "overflowed" => 31,
            "DEGRADED" | "SUSPECT" | "WARNING" | "STARTING" | "abnormal" | "ambiguous" => 33,
            "GOOD" | "ok" => 32,
            _ => return word.to_owned(),
        };
        if self.0 {
            format!("\u{1b}[{colour}m{word}\u{1b}[0m")
        } else {
            word.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_are_coloured_and_only_when_wanted() {
        assert_eq!(Paint(true).word("BAD"), "\u{1b}[31mBAD\u{1b}[0m");
        assert_eq!(Paint(true).word("UNKNOWN"), "UNKNOWN");
        assert_eq!(Paint::PLAIN.word("BAD"), "BAD");
    }
}
