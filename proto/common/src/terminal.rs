//! Where an answer is shown: how wide it is, and whether it has colours. Through a pipe nothing is broken or left out.

use std::io::stdout;

use unicode_width::UnicodeWidthStr;

use crate::paint::Paint;

/// Narrower ones are taken as this wide.
const NARROWEST: usize = 40;

/// Lines of the screen that a watched list leaves to others: the shell's next line and how the watch ends.
const SPARED: usize = 2;

/// How standard output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Columns; None: it is no terminal.
    pub width: Option<usize>,
    /// Lines that an answer may have; None: any number. Limited only while a list is watched.
    pub height: Option<usize>,
    pub paint: Paint,
}

impl Terminal {
    /// A pipe or a file.
    pub const NONE: Self = Self {
        width: None,
        height: None,
        paint: Paint::PLAIN,
    };

    /// Standard output as it is now.
    pub fn of_stdout() -> Self {
        let size = terminal_size::terminal_size_of(stdout());
        Self {
            width: size.map(|(width, _)| usize::from(width.0).max(NARROWEST)),
            height: None,
            paint: Paint::of_stdout(),
        }
    }

    /// Standard output as it is now, for a list that is shown in place again and again.
    pub fn watched() -> Self {
        let size = terminal_size::terminal_size_of(stdout());
        Self {
            height: size.map(|(_, height)| usize::from(height.0).saturating_sub(SPARED)),
            ..Self::of_stdout()
        }
    }

    /// Text after a beginning, broken at the width and indented alike; each line ended. A word that is longer stays whole, so
    /// that it can be copied.
    pub fn wrapped(&self, beginning: &str, text: &str) -> String {
        self.hanging(beginning, &" ".repeat(beginning.width()), text)
    }

    /// The same, with its own indentation of all lines but the first.
    pub fn hanging(&self, beginning: &str, indent: &str, text: &str) -> String {
        let Some(width) = self.width else {
            return format!("{beginning}{text}\n");
        };
        let options = textwrap::Options::new(width)
            .initial_indent(beginning)
            .subsequent_indent(indent)
            .break_words(false)
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        textwrap::fill(text, options) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_with_indentation_on_a_terminal_alone() {
        let text = "Filesystem: ext4, label \"backup of the old machine\"";
        assert_eq!(
            Terminal::NONE.wrapped("    ", text),
            format!("    {text}\n")
        );
        let narrow = Terminal {
            width: Some(40),
            ..Terminal::NONE
        };
        assert_eq!(
            narrow.wrapped("    ", text),
            "    Filesystem: ext4, label \"backup of\n    the old machine\"\n"
        );
        let long = "x".repeat(60);
        assert_eq!(
            narrow.wrapped("  a  ", &format!("b {long}")),
            format!("  a  b\n     {long}\n")
        );
    }
}
