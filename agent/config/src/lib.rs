//! The agent's configuration, checked.
//!
//! In two phases: `read` deserializes the file into the structs of `raw`, `check` turns them into a `Config` or
//! a list of every mistake in the file. Nothing here opens a socket or touches a drive.

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
pub mod units;

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

/// Where the config is looked for when nobody says otherwise.
pub const DEFAULT_PATH: &str = "/etc/drivebay/drivebay.toml";
/// Where the command line looks for the agent when nobody says otherwise.
pub const DEFAULT_AGENT_SOCKET: &str = "/run/drivebay/agent.sock";
/// The example, which explains every key.
pub const EXAMPLE: &str = include_str!("../../drivebay.example.toml");
/// A config larger than this (bytes) is not one.
pub const MAX_FILE: u64 = 1024 * 1024;

/// Why there is no config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no such file.
    #[error(
        "there is no configuration file {path}; `drivebay-agent init` writes a first one from the drives of this host, which claims none, and drivebay.toml(5) and drivebay.example.toml explain every key"
    )]
    Missing { path: PathBuf },
    /// The file cannot be read.
    #[error("cannot read the config {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It was read and is wrong. Every mistake is listed, one per line, as `<file>:<line>: <key>: <what>`.
    #[error("{}", listed(path, problems))]
    Invalid {
        path: PathBuf,
        /// All mistakes, by line.
        problems: Vec<Problem>,
    },
}

/// Problems as lines that an editor can jump to.
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

/// Reads and checks a config file.
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

/// Checks a config's text. Pure: all that comes from the machine is in `host`.
pub fn parse(text: &str, host: &HostFacts) -> Result<Checked, Vec<Problem>> {
    let (raw, problems) = read::read(text)?;
    check::check(&raw, host, problems)
}

#[cfg(test)]
mod tests;
