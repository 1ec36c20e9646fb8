//! Runs tools to their end; an error has the tool's output.

use std::{
    ffi::OsStr,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::Trouble;

/// Directories of system tools that are often missing from a user's PATH.
const SYSTEM_DIRS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Returns the path of a tool, if it is installed.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file())
}

/// Runs a tool and returns its output.
///
/// # Errors
/// It is not installed, or it failed; the error has its name, arguments and output.
pub fn run<S: AsRef<OsStr>>(tool: &str, args: &[S]) -> Result<String, Trouble> {
    let program = find(tool).ok_or_else(|| Trouble::new(format!("{tool} is not installed")))?;
    let words: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    let output = Command::new(program)
        .args(&words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Trouble::doing(format!("starting {tool}"), &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Trouble::new(format!(
        "{tool} {} ended with {}: {}{}",
        words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    )))
}

/// Like [`run`], for tests that require success.
///
/// # Panics
/// When it is not installed, or fails.
pub fn must<S: AsRef<OsStr>>(tool: &str, args: &[S]) -> String {
    run(tool, args).unwrap()
}
