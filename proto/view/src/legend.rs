//! Legend of the codes in a list: each code once, below the list. Pure.

use std::collections::BTreeMap;

use super::{table::printable, terminal::Terminal};

/// Largest number of drives or volumes that are named for a code.
const NAMED: usize = 3;

/// A code of one row, with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasoned {
    /// Short name of the row.
    pub label: String,
    pub code: String,
    pub text: String,
}

/// The codes of the rows so far. Its size is bounded by the number of codes, not by that of the rows.
#[derive(Debug, Default)]
pub struct Legend {
    // In the order in which they were added.
    codes: Vec<String>,
    entries: BTreeMap<String, Entry>,
    /// True if a code has other texts than the one that is shown.
    differ: bool,
}

#[derive(Debug)]
struct Entry {
    // Text of the first row that has the code.
    text: String,
    labels: Vec<String>,
    more: usize,
}

impl Legend {
    /// Adds the codes of a row; ignores those without a text.
    pub fn add(&mut self, reasoned: Vec<Reasoned>) {
        for Reasoned { label, code, text } in reasoned {
            if text.is_empty() {
                continue;
            }
            let entry = self.entries.entry(code.clone()).or_insert_with(|| {
                self.codes.push(code);
                Entry {
                    text: text.clone(),
                    labels: Vec::new(),
                    more: 0,
                }
            });
            self.differ |= entry.text != text;
            match entry.labels.len() {
                ..NAMED if !entry.labels.contains(&label) => entry.labels.push(label),
                ..NAMED => {}
                _ => entry.more += 1,
            }
        }
    }

    /// Returns a line for each code. `show`: the command that shows every text of one row.
    pub fn text(&self, show: &str, terminal: Terminal) -> String {
        let mut text = String::new();
        for code in &self.codes {
            let Some(entry) = self.entries.get(code) else {
                continue;
            };
            let labels = entry.labels.join(", ");
            let more = match entry.more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let line = format!("{code} ({labels}{more}): {}", entry.text);
            text.push_str(&terminal.hanging("  ", "    ", &printable(&line)));
        }
        if self.differ {
            let note = format!("(texts of the first; -o wide and {show} have the others)");
            text.push_str(&terminal.hanging("  ", "   ", &note));
        }
        match text.is_empty() {
            true => text,
            false => format!("\nReasons:\n{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, code: &str, text: &str) -> Vec<Reasoned> {
        vec![Reasoned {
            label: label.into(),
            code: code.into(),
            text: text.into(),
        }]
    }

    #[test]
    fn a_code_is_explained_once_with_those_that_have_it() {
        let mut legend = Legend::default();
        assert_eq!(legend.text("x", Terminal::NONE), "");
        for n in 1..=5 {
            legend.add(row(&format!("sd{n}"), "Mounted", "at /"));
        }
        legend.add(row("sdz", "NotSelected", ""));
        let once = "\nReasons:\n  Mounted (sd1, sd2, sd3 and 2 more): at /\n";
        assert_eq!(legend.text("drive show", Terminal::NONE), once);
        legend.add(row("sdb", "Filesystem", "ext4"));
        legend.add(row("sdc", "Filesystem", "xfs"));
        assert_eq!(
            legend.text("drive show", Terminal::NONE),
            format!(
                "{once}  Filesystem (sdb, sdc): ext4\n  (texts of the first; -o wide and drive show have the others)\n"
            )
        );
    }
}
