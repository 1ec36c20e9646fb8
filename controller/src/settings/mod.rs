//! The controller's config file: an operator's decisions for the whole cluster. TOML, optional.
//!
//! It holds the nodes that were forgotten:
//!
//! ```toml
//! [[forgotten]]
//! node = "n1"
//! at = 2026-11-21T10:00:00Z
//! ```
//!
//! This module reads and checks the file, `follow` applies its changes, `edit` (text) and `store` (file) change it for the command line.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use drivebay_common::units::human_size;
use drivebay_proto::volume_id::is_node_id;
use serde::Deserialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use toml::{Spanned, Value};

pub mod edit;
mod follow;
pub mod store;

pub use follow::follow;

/// Largest config file, bytes; also the limit of a ConfigMap.
pub const MAX_FILE: u64 = 1 << 20;

/// Contents of the config file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub forgotten: Forgotten,
}

/// Forgotten nodes, each with the time of `node forget`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten(BTreeMap<String, SystemTime>);

impl Forgotten {
    /// Returns the time at which the node was forgotten; None if it was not.
    pub fn since(&self, node: &str) -> Option<SystemTime> {
        self.0.get(node).copied()
    }

    /// Returns all forgotten nodes with their times, ordered by node id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, SystemTime)> {
        self.0.iter().map(|(node, at)| (node.as_str(), *at))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The settings cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot read the config {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file exceeds [`MAX_FILE`].
    #[error(
        "the config {} is larger than {}; is it the right file?",
        path.display(),
        human_size(MAX_FILE)
    )]
    TooLarge { path: PathBuf },
    /// The file's text is invalid.
    #[error("{}:{mistake}", path.display())]
    Invalid {
        path: PathBuf,
        /// The first one in the file.
        mistake: Mistake,
    },
}

/// First mistake in a config's text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mistake {
    /// Line in the file, from 1; None if unknown.
    pub line: Option<usize>,
    /// Description of the mistake and of the allowed values.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{line}: {}", self.message),
            None => write!(f, " {}", self.message),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    forgotten: Vec<RawForgotten>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawForgotten {
    node: Spanned<String>,
    at: Spanned<Value>,
}

impl Settings {
    /// Reads and checks a config file. Blocks.
    pub fn load(path: &Path) -> Result<Self, SettingsError> {
        let read = |source| SettingsError::Read {
            path: path.to_owned(),
            source,
        };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
            .map_err(read)?;
        Self::from_bytes(path, &bytes)
    }

    /// Checks bytes read from a file; the caller reads at most one byte more than [`MAX_FILE`].
    fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, SettingsError> {
        let path = || path.to_owned();
        if bytes.len() as u64 > MAX_FILE {
            return Err(SettingsError::TooLarge { path: path() });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| SettingsError::Read {
            path: path(),
            source: io::Error::new(io::ErrorKind::InvalidData, error),
        })?;
        Self::parse(text).map_err(|mistake| SettingsError::Invalid {
            path: path(),
            mistake,
        })
    }

    /// Checks a config's text. Reports only the first mistake.
    pub fn parse(text: &str) -> Result<Self, Mistake> {
        let raw: Raw = toml::from_str(text).map_err(|error| Mistake {
            line: error.span().map(|span| line_of(text, span.start)),
            message: error.message().trim().replace('\n', ", "),
        })?;
        let mut forgotten = BTreeMap::new();
        for entry in raw.forgotten {
            let mistake = |offset: usize, message: String| Mistake {
                line: Some(line_of(text, offset)),
                message,
            };
            let at = instant(entry.at.get_ref())
                .map_err(|message| mistake(entry.at.span().start, message))?;
            let offset = entry.node.span().start;
            let node = entry.node.into_inner();
            if !is_node_id(&node) {
                let message =
                    format!("{node:?} is not a node id: 1 to 63 characters in label syntax");
                return Err(mistake(offset, message));
            }
            match forgotten.entry(node) {
                Entry::Vacant(free) => free.insert(at),
                Entry::Occupied(taken) => {
                    let message = format!("node {:?} is forgotten twice", taken.key());
                    return Err(mistake(offset, message));
                }
            };
        }
        Ok(Self {
            forgotten: Forgotten(forgotten),
        })
    }
}

/// Parses a time with its UTC offset, written as TOML's own date-time or as a string.
fn instant(value: &Value) -> Result<SystemTime, String> {
    let text = match value {
        Value::Datetime(time) => time.to_string(),
        Value::String(text) => text.clone(),
        other => {
            return Err(format!(
                "must be a time such as 2026-11-21T10:00:00Z, not {}",
                other.type_str()
            ));
        }
    };
    OffsetDateTime::parse(&text, &Rfc3339)
        .map(SystemTime::from)
        .map_err(|_| {
            format!("{text:?} is not a time with date, seconds and offset (RFC 3339), such as 2026-11-21T10:00:00Z")
        })
}

/// Returns the line of a byte offset, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    let upto = text.as_bytes().get(..offset).unwrap_or(text.as_bytes());
    1 + upto.iter().filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests;
