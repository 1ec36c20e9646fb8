//! The agent's configuration, checked.
//!
//! In two phases: `read` deserializes the file into the structs of `raw`, `check` turns them into a `Config` or a list of every mistake in
//! the file. Nothing here opens a socket or accesses a drive.

#![allow(
    missing_docs,
    reason = "a field's name and type say what it is; a comment adds a unit, a rule or a reason"
)]
#![cfg_attr(test, allow(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![forbid(unsafe_code)]

use std::{
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

use drivebay_sys::statefile;

mod check;
mod checks;
mod classes;
mod controller;
mod health;
mod hint;
mod moves;
mod node_id;
mod packaged;
mod raw;
mod read;
#[cfg(any(test, feature = "reference"))]
pub mod reference;
mod report;
mod schema;
mod selectors;
mod target;
mod texts;
mod units;

pub use check::{Checked, Config, HostFacts};
pub use checks::ChecksConfig;
pub use controller::{ControllerConfig, DriveVerb};
pub use drivebay_common::metrics::Listen;
pub use drivebay_csi::HealthApi;
pub use health::{DeviceOverride, HealthConfig};
pub use moves::AutomaticConfig;
pub use packaged::{packaged, sets_nothing};
pub use report::Problem;
pub use target::Target;

/// Default path of the configuration.
pub const DEFAULT_PATH: &str = "/etc/drivebay/drivebay.toml";
/// Default path of the agent's socket for the command line.
pub const DEFAULT_AGENT_SOCKET: &str = "/run/drivebay/agent.sock";
/// The example, which documents every key.
pub const EXAMPLE: &str = include_str!("../../drivebay.example.toml");
/// Bytes of the largest accepted configuration.
pub const MAX_FILE: u64 = 1024 * 1024;

/// The configuration was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "there is no configuration file {path}; `drivebay-agent init` writes a first one from the drives of this host, which claims none, and drivebay.toml(5) and drivebay.example.toml explain every key"
    )]
    Missing { path: PathBuf },
    #[error("cannot read the config {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The content is invalid. Every mistake is listed, one per line, as `<file>:<line>: <key>: <what>`.
    #[error("{}", listed(path, problems))]
    Invalid {
        path: PathBuf,
        /// All mistakes, sorted by line.
        problems: Vec<Problem>,
    },
}

/// Formats problems as one line each, as `<file>:<line>: …`, which editors recognise.
pub fn listed(path: &Path, problems: &[Problem]) -> String {
    let mut text = String::new();
    for (index, problem) in problems.iter().enumerate() {
        let newline = if index == 0 { "" } else { "\n" };
        let space = if problem.line.is_none() { " " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{newline}{}:{space}{problem}", path.display());
    }
    text
}

/// Reads and checks a configuration file.
pub fn load(path: &Path, host: &HostFacts) -> Result<Checked, ConfigError> {
    let path_of = || path.to_owned();
    let text = statefile::read_text(path, MAX_FILE).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ConfigError::Missing { path: path_of() },
        _ => ConfigError::Read {
            path: path_of(),
            source,
        },
    })?;
    parse(&text, host).map_err(|problems| ConfigError::Invalid {
        path: path.to_owned(),
        problems,
    })
}

/// Checks a configuration's text. Pure: all facts about the machine are in `host`.
pub fn parse(text: &str, host: &HostFacts) -> Result<Checked, Vec<Problem>> {
    let (raw, problems) = read::read(text)?;
    check::check(&raw, host, problems)
}

#[cfg(test)]
mod tests;
