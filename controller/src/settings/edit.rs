//! Adds a forgotten node to the config's text or removes one, without changing any other byte. Pure.
//!
//! toml_edit is not used: it removes every carriage return from a file, and together with a table the comments
//! above it. The edited text is parsed and compared with the intended settings, so that a text in an unsupported
//! form is refused and not damaged.

use std::{ops::Range, time::SystemTime};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use toml::de::{DeTable, DeValue};

use super::{Mistake, Settings};

/// The text was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is invalid before the edit.
    #[error("line {0}")]
    Invalid(#[from] Mistake),
    #[error("node {0:?} is forgotten already")]
    AlreadyThere(String),
    #[error("node {0:?} is not forgotten")]
    NotThere(String),
    /// The time has no RFC 3339 form.
    #[error("the time is outside the years 0 to 9999; is the clock right?")]
    Time,
    /// The entry is not in a form that can be edited.
    #[error(
        "the entry cannot be {0} by text: the file does not use a [[forgotten]] table for each node; edit it by hand"
    )]
    Manual(&'static str),
}

/// Returns an entry in the form of the file, with the time in whole seconds. `node` must be a valid node id, which needs no escaping.
pub fn stanza(node: &str, at: SystemTime) -> Result<String, EditError> {
    let at = OffsetDateTime::from(at)
        .replace_nanosecond(0)
        .map_err(|_| EditError::Time)?;
    let at = at.format(&Rfc3339).map_err(|_| EditError::Time)?;
    Ok(format!("[[forgotten]]\nnode = \"{node}\"\nat = {at}\n"))
}

/// Returns the text with the node added as forgotten at this time, in whole seconds.
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
        return Err(EditError::Manual("added"));
    };
    let Some(written) = is.forgotten.since(node) else {
        return Err(EditError::Manual("added"));
    };
    meant.forgotten.0.insert(node.to_owned(), written);
    if is == meant {
        Ok(edited)
    } else {
        Err(EditError::Manual("added"))
    }
}

/// Returns the text without the node: removes the lines from its `[[forgotten]]` to its last key, and the blank
/// line that [`with`] put above them.
pub fn without(text: &str, node: &str) -> Result<String, EditError> {
    let manual = || EditError::Manual("removed");
    let mut meant = Settings::parse(text)?;
    if meant.forgotten.0.remove(node).is_none() {
        return Err(EditError::NotThere(node.to_owned()));
    }
    let lines = lines_of(text, node).ok_or_else(manual)?;
    let mut before = text.get(..lines.start).ok_or_else(manual)?;
    if before.ends_with("\n\n") {
        before = before.strip_suffix('\n').unwrap_or(before);
    }
    let after = text.get(lines.end..).ok_or_else(manual)?;
    let edited = format!("{before}{after}");
    match Settings::parse(&edited) {
        Ok(is) if is == meant => Ok(edited),
        _ => Err(manual()),
    }
}

/// Returns the byte range of the whole lines of a node's entry; None if it has no `[[forgotten]]` table of its own.
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
