//! A job that misbehaves on purpose, so that the pool's promises (deadlines, Busy and Stuck,
//! cancel, a worker that dies) are tested with real processes.
//!
//! Compiled into debug builds only: in a release there is no job that exits, panics or sleeps at
//! somebody's wish.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Context, Job};
use crate::sys::cmd::{Tool, run};

/// Does these things one after another. Answers the worker's pid.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Drill(pub Vec<Act>);

/// One thing to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Act {
    /// Report a step.
    Step(String),
    /// Sleep for so many milliseconds.
    PauseMs(u64),
    /// Create a file, as a sign of having come this far.
    Touch(PathBuf),
    /// Run `sleep` as a tool for so many seconds, with a deadline of a minute.
    Tool(u32),
    /// Exit with this code in the middle of the job.
    Exit(i32),
    /// Panic.
    Panic,
    /// Log a line.
    Log(String),
}

impl Job for Drill {
    const NAME: &'static str = "drill";
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
                Act::Tool(seconds) => {
                    let tool = Tool {
                        program: "sleep",
                        args: vec![OsString::from(seconds.to_string())],
                        deadline: Duration::from_secs(60),
                    };
                    run(&tool).map_err(|error| DrillError(error.to_string()))?;
                }
                Act::Exit(code) => std::process::exit(code),
                Act::Panic => panic!("as told"),
                Act::Log(line) => tracing::warn!("{line}"),
            }
        }
        Ok(std::process::id())
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("the drill failed: {0}")]
pub struct DrillError(pub String);
