//! Colour for words that say how bad it is: on a terminal, and never where NO_COLOR is set.

use std::io::{IsTerminal, stdout};

/// Whether words are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    /// Not at all.
    pub const PLAIN: Self = Self(false);
    /// Always.
    pub const COLOURED: Self = Self(true);

    /// As standard output takes it.
    pub fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self(!refused && !dumb && stdout().is_terminal())
    }

    /// A verdict, a status or the like: red for what is lost or failing, yellow for what may be, green for what is well.
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
