//! Properties of the output terminal: width, height and colours. Output through a pipe is neither wrapped nor cut.

use std::{
    borrow::Cow,
    io::{stderr, stdout},
};

use unicode_width::UnicodeWidthStr;

use crate::paint::Paint;

/// Smallest width that is assumed.
const NARROWEST: usize = 40;

/// Lines of the screen that a watched list leaves free: the shell's next line and the note on how to end the watch.
const SPARED: usize = 2;

/// Properties of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Columns; None: no terminal.
    pub width: Option<usize>,
    /// Largest number of lines of an answer; None: unlimited. Limited only while a list is watched.
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

    /// Returns the properties of standard output at this time.
    pub fn of_stdout() -> Self {
        let size = terminal_size::terminal_size_of(stdout());
        Self {
            width: size.map(|(width, _)| usize::from(width.0).max(NARROWEST)),
            height: None,
            paint: Paint::of_stdout(),
        }
    }

    /// The same for a list that is redrawn in place, with its height limited.
    pub fn watched() -> Self {
        let size = terminal_size::terminal_size_of(stdout());
        Self {
            height: size.map(|(_, height)| usize::from(height.0).saturating_sub(SPARED)),
            ..Self::of_stdout()
        }
    }

    /// Returns the properties of standard error at this time, without colours.
    pub fn of_stderr() -> Self {
        let size = terminal_size::terminal_size_of(stderr());
        Self {
            width: size.map(|(width, _)| usize::from(width.0).max(NARROWEST)),
            ..Self::NONE
        }
    }

    /// Returns a message of one or several lines after a prefix. Each line is wrapped at the width, except for indented ones: commands to
    /// be typed, or rows of a table.
    pub fn message(&self, beginning: &str, text: &str) -> String {
        let mut shown = String::new();
        for (index, line) in text.lines().enumerate() {
            match index {
                0 => shown.push_str(&self.hanging(beginning, "  ", line)),
                _ if line.is_empty() || line.starts_with(' ') => {
                    shown.push_str(line);
                    shown.push('\n');
                }
                _ => shown.push_str(&self.hanging("", "  ", line)),
            }
        }
        shown
    }

    /// Returns text after a prefix, wrapped at the width and indented by the prefix's width; each line ends with a newline. A longer word
    /// is not broken, nor is a command in backticks, so that it can be copied.
    pub fn wrapped(&self, beginning: &str, text: &str) -> String {
        self.hanging(beginning, &" ".repeat(beginning.width()), text)
    }

    /// The same with the given indentation of all lines but the first.
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
        textwrap::fill(&with_whole_commands(text), options).replace(HELD, " ") + "\n"
    }
}

/// Placeholder for a space at which lines must not be wrapped.
const HELD: char = '\u{e000}';

fn with_whole_commands(text: &str) -> Cow<'_, str> {
    // An unpaired backtick quotes nothing.
    if !text.contains('`') || !text.matches('`').count().is_multiple_of(2) {
        return Cow::Borrowed(text);
    }
    let mut quoted = false;
    let held = text.chars().map(|c| {
        quoted ^= c == '`';
        if quoted && c == ' ' { HELD } else { c }
    });
    Cow::Owned(held.collect())
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

    #[test]
    fn a_message_is_broken_between_words_and_never_within_a_command() {
        let text = "nothing was changed; run `drivebay-agent volume show db` to see what uses it\n\n  drivebay-agent volume delete db --confirm db";
        assert_eq!(
            Terminal::NONE.message("error: ", text),
            format!("error: {text}\n")
        );
        let narrow = Terminal {
            width: Some(40),
            ..Terminal::NONE
        };
        assert_eq!(
            narrow.message("error: ", text),
            "error: nothing was changed; run\n  `drivebay-agent volume show db` to see\n  what uses it\n\n  drivebay-agent volume delete db --confirm db\n"
        );
        assert_eq!(narrow.message("error: ", "a ` alone"), "error: a ` alone\n");
    }
}
