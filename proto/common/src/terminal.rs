//! Where an answer is shown: how wide it is, and whether it has colours. Through a pipe nothing is broken or left out.

use std::{
    borrow::Cow,
    io::{stderr, stdout},
};

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

    /// Standard error as it is now, without colours.
    pub fn of_stderr() -> Self {
        let size = terminal_size::terminal_size_of(stderr());
        Self {
            width: size.map(|(width, _)| usize::from(width.0).max(NARROWEST)),
            ..Self::NONE
        }
    }

    /// A message of one or several lines after a beginning. Each is broken at the width, but for one that is indented: a command to
    /// be typed, or a row of a table.
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

    /// Text after a beginning, broken at the width and indented alike; each line ended. A word that is longer stays whole, and so
    /// does a command in backticks, so that it can be copied.
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
        textwrap::fill(&with_whole_commands(text), options).replace(HELD, " ") + "\n"
    }
}

/// Stands for a space at which no line is broken.
const HELD: char = '\u{e000}';

fn with_whole_commands(text: &str) -> Cow<'_, str> {
    // An odd backtick quotes nothing.
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
