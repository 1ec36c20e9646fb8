//! Running a tool to its end, with its output in the error when it fails.

use std::{
    ffi::OsStr,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::Trouble;

/// Directories that hold system tools and are often missing from a user's PATH.
const SYSTEM_DIRS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where a tool is, if it is installed.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file())
}

/// Runs a tool and answers with what it printed.
///
/// # Errors
/// Not installed, or it failed: with its name, arguments and what it said.
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

/// As [`run`], for tests: what it printed.
///
/// # Panics
/// When it is not installed, or fails.
pub fn must<S: AsRef<OsStr>>(tool: &str, args: &[S]) -> String {
    run(tool, args).unwrap()
}
