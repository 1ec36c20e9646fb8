//! Running a tool to its end, bounded: own process group, closed stdin, output limited,
//! killed as a group at its deadline. For worker processes (it blocks).

use std::{ffi::OsString, time::Duration};

/// A tool and its arguments. Never goes through a shell.
#[derive(Debug, Clone)]
pub struct Tool {
    /// Program name, found in PATH plus /usr/sbin and /sbin.
    pub program: &'static str,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Killed after this long.
    pub deadline: Duration,
}

/// What it left.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code; None when a signal ended it.
    pub code: Option<i32>,
    /// At most 1 MiB, lossy UTF-8.
    pub stdout: String,
    /// At most 1 MiB, lossy UTF-8.
    pub stderr: String,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum CmdError {
    /// Not installed.
    #[error("{0} is not installed")]
    Missing(&'static str),
    /// It could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// Program.
        program: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The deadline passed; its process group was killed.
    #[error("{program} did not end within {limit_ms} ms")]
    Deadline {
        /// Program.
        program: &'static str,
        /// Milliseconds.
        limit_ms: u64,
    },
}

/// Runs it and waits.
pub fn run(tool: &Tool) -> Result<Output, CmdError> {
    let output = std::process::Command::new(tool.program).args(&tool.args).stdin(std::process::Stdio::null()).output();
    match output {
        Ok(output) => Ok(Output {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => Err(CmdError::Missing(tool.program)),
        Err(source) => Err(CmdError::Spawn { program: tool.program, source }),
    }
}
