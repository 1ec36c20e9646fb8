//! Values with their location in the file, and the problems found in them.

use std::fmt;

use serde::Deserialize;

/// A value with the place it was written at. Only `read` can deserialize it.
#[derive(Debug, Clone, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(super) struct At<T> {
    /// None: the value was refused, which is reported already.
    #[serde(default)]
    pub(super) value: Option<T>,
    /// Path of the key, e.g. `[csi] socket`.
    pub(super) key: String,
    /// Line in the file, from 1.
    pub(super) line: usize,
}

/// Value of a key; None if it is not in the file.
pub(super) type Given<T> = Option<At<T>>;

/// Returns the value of a key; None if it is missing or was refused.
pub(super) fn value<T>(given: &Given<T>) -> Option<&T> {
    given.as_ref()?.value.as_ref()
}

pub(super) fn entries<T>(given: &Given<Vec<At<T>>>) -> impl Iterator<Item = &At<T>> {
    value(given).into_iter().flatten()
}

/// A mistake or a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line in the file, from 1; None if something is missing from the file.
    pub line: Option<usize>,
    /// Key path; empty for the whole file.
    pub key: String,
    /// The mistake, and the allowed values.
    pub message: String,
}

impl Problem {
    pub(super) fn new(line: Option<usize>, key: &str, message: impl Into<String>) -> Self {
        Self {
            line,
            key: key.to_owned(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "{line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) problems: Vec<Problem>,
    /// Settings that are allowed, and probably unintended.
    pub(super) warnings: Vec<Problem>,
}

impl Report {
    pub(super) fn error<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        let problem = Problem::new(Some(at.line), &at.key, message);
        self.problems.push(problem);
    }

    pub(super) fn warn<T>(&mut self, at: &At<T>, message: impl Into<String>) {
        let problem = Problem::new(Some(at.line), &at.key, message);
        self.warnings.push(problem);
    }

    /// Returns the text; reports it, followed by `otherwise`, unless it is `good`.
    pub(super) fn require<'a>(
        &mut self,
        given: Option<&'a At<String>>,
        good: impl FnOnce(&str) -> bool,
        otherwise: &str,
    ) -> Option<&'a str> {
        let at = given?;
        let text = at.value.as_deref()?;
        if !good(text) {
            self.error(at, format!("{text:?} {otherwise}"));
        }
        Some(text)
    }

    /// Parses a text; reports the error and returns None if that fails.
    pub(super) fn parse<S: AsRef<str>, T, E: fmt::Display>(
        &mut self,
        given: Option<&At<S>>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let at = given?;
        parse(at.value.as_ref()?.as_ref())
            .map_err(|error| self.error(at, error.to_string()))
            .ok()
    }
}
