//! A job that misbehaves on purpose, so that the pool's promises (deadlines, Busy and Stuck,
//! cancel, a worker that dies) are tested with real processes.
//!
//! Compiled into debug builds only: a release has no job that exits, panics or sleeps on request.

#![allow(
    clippy::disallowed_methods,
    reason = "a drill misbehaves on purpose, in debug builds only"
)]

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Context, Job};
use drivebay_sys::cmd::{Tool, run};

/// Does these things one after another. Answers the worker's pid.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Drill(pub Vec<Act>);

/// One thing to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Act {
    /// Report a step of this name to the agent.
    Step(String),
    /// Sleep for so many milliseconds.
    PauseMs(u64),
    /// Create a file, as a sign of having come this far.
    Touch(PathBuf),
    /// Keep a file open.
    Keep(PathBuf),
    /// Run `sleep` as a tool for so many seconds, with a deadline of a minute.
    Tool(u32),
    /// Read a block of this device past the cache with a tool (`dd`) that has this deadline in
    /// milliseconds.
    Read(PathBuf, u64),
    /// Exit with this code in the middle of the job.
    Exit(i32),
    /// Panic in the middle of the job; the worker replies with `Reply::Broken`.
    Panic,
    /// Log this line as a warning.
    Log(String),
}

impl Job for Drill {
    const NAME: &'static str = "drill";
    const COMES_AGAIN: bool = true;
    type Answer = u32;
    type Error = DrillError;

    #[allow(clippy::panic, reason = "panicking is what is asked for")]
    fn run(self, context: &mut Context) -> Result<u32, DrillError> {
        for act in self.0 {
            match act {
                Act::Step(name) => context.step(&name),
                Act::PauseMs(ms) => std::thread::sleep(Duration::from_millis(ms)),
                Act::Touch(path) => {
                    std::fs::write(&path, b"").map_err(|error| DrillError(error.to_string()))?;
                }
                Act::Keep(path) => {
                    let file = std::fs::File::open(&path);
                    context.keep(file.map_err(|error| DrillError(error.to_string()))?);
                }
                Act::Tool(seconds) => tool("sleep", [seconds.to_string().into()], 60_000)?,
                Act::Read(device, deadline_ms) => {
                    let mut input = OsString::from("if=");
                    input.push(device);
                    let rest = ["of=/dev/null", "bs=4096", "count=1", "iflag=direct"];
                    let args = [input].into_iter().chain(rest.map(OsString::from));
                    tool("dd", args, deadline_ms)?;
                }
                Act::Exit(code) => std::process::exit(code),
                Act::Panic => panic!("as told"),
                Act::Log(line) => tracing::warn!("{line}"),
            }
        }
        Ok(std::process::id())
    }
}

fn tool(
    program: &'static str,
    args: impl IntoIterator<Item = OsString>,
    deadline_ms: u64,
) -> Result<(), DrillError> {
    let tool = Tool {
        program,
        args: args.into_iter().collect(),
        env: vec![],
        only: None,
        deadline: Duration::from_millis(deadline_ms),
    };
    match run(&tool) {
        Ok(_) => Ok(()),
        Err(error) => Err(DrillError(error.to_string())),
    }
}

/// A drill failed, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("the drill failed: {0}")]
pub struct DrillError(pub String);
