//! Runs a tool that only reads: with idle priority, bounded in time, and stopped if its result is no longer awaited.

use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use super::{Program, counters};
use drivebay_common::units::human_seconds;
use drivebay_sys::cmd::{self, CmdError, Tool};
use drivebay_worker::Context;

/// Interval of reading the drive's counters; well under the 30 s after which a step counts as stuck.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// End of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The tool exited by itself; both outputs are lossy UTF-8 of at most 1 MiB.
    Exited {
        code: i32,
        stdout: String,
        stderr: String,
    },
    /// A signal ended the tool.
    Killed,
    /// The tool was killed because its time limit passed.
    TimedOut,
    /// The tool is not installed.
    Missing {
        /// Debian package of the tool.
        package: String,
    },
    /// The tool could not be started.
    NotRun { why: String },
}

/// Runs a tool with these arguments on `node`, the node of the device with this kernel name. None if the agent is gone and
/// the tool was stopped.
pub fn run(
    program: Program,
    args: &[&str],
    node: &Path,
    device: &str,
    limit: Duration,
    context: &mut Context,
) -> Option<End> {
    let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
    args.push(node.into());
    let tool = Tool {
        program: program.name,
        args,
        env: Vec::new(),
        only: None,
        deadline: limit,
    };
    let step = format!("{} on {device}", program.name);
    context.step(&step);
    let began = Instant::now();
    let mut before = counters(device);
    let mut counted_at = began;
    let result = cmd::run_idle(&tool, &mut || {
        if counted_at.elapsed() >= POLL_INTERVAL {
            counted_at = Instant::now();
            let now = counters(device);
            if now != before {
                before = now;
                let running = human_seconds(began.elapsed().as_secs());
                context.step(&format!("{step}, {running}"));
            }
        }
        !context.is_alone()
    });
    Some(match result {
        Ok(None) => return None,
        Ok(Some(output)) => match output.code {
            Some(code) => End::Exited {
                code,
                stdout: output.stdout,
                stderr: output.stderr,
            },
            None => End::Killed,
        },
        Err(CmdError::Missing(_)) => End::Missing {
            package: program.package.to_owned(),
        },
        Err(CmdError::Deadline { .. }) => End::TimedOut,
        Err(error @ CmdError::Spawn { .. }) => End::NotRun {
            why: drivebay_model::cause::chain(&error),
        },
    })
}
