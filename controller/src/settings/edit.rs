//! The config's text with one forgotten node more, or one less: nothing else in it changes by a byte. Pure.
//!
//! toml_edit is not used: it takes every carriage return out of a file, and with a table the comments above it.
//! What comes of an edit is read again and compared with what was meant, so that a text that is written in a
//! way this does not understand is refused and not damaged.

use std::{ops::Range, time::SystemTime};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use toml::de::{DeTable, DeValue};

use super::{Mistake, Settings};

/// Why the text was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text was wrong before.
    #[error("line {0}")]
    Invalid(#[from] Mistake),
    /// It is there already.
    #[error("node {0:?} is forgotten already")]
    AlreadyThere(String),
    /// It is not there.
    #[error("node {0:?} is not forgotten")]
    NotThere(String),
    /// The time cannot be written.
    #[error("the time is outside the years 0 to 9999; is the clock right?")]
    Time,
    /// Written in a way that is not understood.
    #[error(
        "the entry cannot be {0} by text: the file does not use a [[forgotten]] table for each node; edit it by hand"
    )]
    ByHand(&'static str),
}

/// An entry as it stands in the file. Whole seconds; a node id needs no escaping.
pub fn stanza(node: &str, at: SystemTime) -> Result<String, EditError> {
    let at = OffsetDateTime::from(at)
        .replace_nanosecond(0)
        .map_err(|_| EditError::Time)?;
    let at = at.format(&Rfc3339).map_err(|_| EditError::Time)?;
    Ok(format!("[[forgotten]]\nnode = \"{node}\"\nat = {at}\n"))
}

/// The text with the node forgotten at this time, in whole seconds.
pub fn with(text: &str, node: &str, at: SystemTime) -> Result<String, EditError> {
    let mut meant = Settings::parse(text)?;
    if meant.forgotten.since(node).is_some() {
        return Err(EditError::AlreadyThere(node.to_owned()));
    }
    let stanza = stanza(node, at)?;
    let gap = match text {
        "" => "",
        _ if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let edited = format!("{text}{gap}{stanza}");
    let Ok(is) = Settings::parse(&edited) else {
        return Err(EditError::ByHand("added"));
    };
    let Some(written) = is.forgotten.since(node) else {
        return Err(EditError::ByHand("added"));
    };
    meant.forgotten.0.insert(node.to_owned(), written);
    if is == meant {
        Ok(edited)
    } else {
        Err(EditError::ByHand("added"))
    }
}

/// The text without the node: the lines from its `[[forgotten]]` to its last key, and the blank line that
/// [`with`] put above them.
pub fn without(text: &str, node: &str) -> Result<String, EditError> {
    let by_hand = || EditError::ByHand("removed");
    let mut meant = Settings::parse(text)?;
    if meant.forgotten.0.remove(node).is_none() {
        return Err(EditError::NotThere(node.to_owned()));
    }
    let lines = lines_of(text, node).ok_or_else(by_hand)?;
    let mut before = text.get(..lines.start).ok_or_else(by_hand)?;
    if before.ends_with("\n\n") {
        before = before.strip_suffix('\n').unwrap_or(before);
    }
    let after = text.get(lines.end..).ok_or_else(by_hand)?;
    let edited = format!("{before}{after}");
    match Settings::parse(&edited) {
        Ok(is) if is == meant => Ok(edited),
        _ => Err(by_hand()),
    }
}

/// The bytes of the whole lines of a node's entry; None when it has none to itself.
fn lines_of(text: &str, node: &str) -> Option<Range<usize>> {
    let table = DeTable::parse(text).ok()?;
    let (_, entries) = table
        .get_ref()
        .iter()
        .find(|(key, _)| key.get_ref().as_ref() == "forgotten")?;
    let DeValue::Array(entries) = entries.get_ref() else {
        return None;
    };
    entries.iter().find_map(|entry| {
        let DeValue::Table(fields) = entry.get_ref() else {
            return None;
        };
        let is_it = fields.iter().any(|(key, value)| {
            key.get_ref().as_ref() == "node" && value.get_ref().as_str() == Some(node)
        });
        let header = entry.span().start;
        if !is_it || !text.get(header..)?.starts_with("[[") {
            return None;
        }
        let last = fields.iter().map(|(_, value)| value.span().end).max()?;
        let start = text.get(..header)?.rfind('\n').map_or(0, |at| at + 1);
        let end = text
            .get(last..)?
            .find('\n')
            .map_or(text.len(), |at| last + at + 1);
        Some(start..end)
    })
}
