//! Runs mkfs, fsck and resize tools with a deadline. Renews the step while the drive makes progress, so that a long run does
//! not count as stuck, and a stuck one is detected.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use drivebay_common::{text::both_ends, units::human_seconds};

use super::{backend::StageBackend, jobs::FsError};
use drivebay_model::{Cause, Secret};
use drivebay_sys::cmd::{self, CmdError, Output, Tool};
use drivebay_worker::Context;

pub mod idle;

/// Interval of reading the drive's counters; well under the 30 s after which a step counts as stuck.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// No tool that Drivebay runs here should need longer; e2fsck of a large damaged filesystem comes closest.
const DEADLINE: Duration = Duration::from_secs(6 * 3600);
/// Limit of bytes of a tool's output in an error.
const OUTPUT_BYTES: usize = 600;

/// A program that the agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    pub name: &'static str,
    /// Debian package of the program.
    pub package: &'static str,
}

impl Program {
    /// Returns what to install if the host does not have the program; None: it has it.
    pub fn missing(self) -> Option<String> {
        let Self { name, package } = self;
        (!cmd::is_installed(name))
            .then(|| format!("{name} is not installed; install package {package}"))
    }
}

/// Runs a tool that works on this device, with a deadline of six hours. `only`: the node, if the tool must see no other
/// device.
pub fn run(
    backend: &dyn StageBackend,
    program: Program,
    args: Vec<OsString>,
    (device, only): (&str, Option<&Path>),
    context: &mut Context,
) -> Result<Output, FsError> {
    let tool = Tool {
        program: program.name,
        args,
        env: Vec::new(),
        only: only.map(Path::to_owned),
        deadline: DEADLINE,
    };
    run_watched(program, device, context, || backend.run(&tool))
}

/// Runs a tool that changes mapped devices over this device, with a deadline of six hours. It reads the secret from its standard input. Does
/// not wait for udevd: in a container it waited without end, since the host's udevd answers in the host's IPC namespace.
pub fn run_mapper(
    backend: &dyn StageBackend,
    program: Program,
    args: Vec<OsString>,
    device: &str,
    secret: Option<&Secret>,
    context: &mut Context,
) -> Result<Output, FsError> {
    let tool = Tool {
        program: program.name,
        args,
        env: vec![("DM_DISABLE_UDEV", "1".into())],
        only: None,
        deadline: DEADLINE,
    };
    run_watched(program, device, context, || match secret {
        Some(secret) => backend.run_with_secret(&tool, secret),
        None => backend.run(&tool),
    })
}

fn run_watched(
    program: Program,
    device: &str,
    context: &mut Context,
    run: impl FnOnce() -> Result<Output, CmdError> + Send,
) -> Result<Output, FsError> {
    let step = format!("{} on {device}", program.name);
    match watched(device, &step, context, run) {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(CmdError::Missing(tool))) => Err(FsError::MissingTool {
            tool: tool.to_owned(),
            package: program.package.to_owned(),
        }),
        Ok(Err(error)) => Err(FsError::Io {
            what: "running".to_owned(),
            path: step,
            source: Cause::new(&error),
        }),
        Err(_) => Err(FsError::Io {
            what: "running".to_owned(),
            path: step,
            source: Cause::text("its thread died"),
        }),
    }
}

/// Runs work on a device that may take long. Renews the step while the device completes requests, so that only a device
/// without progress counts as stuck. Errs if the work panicked.
pub fn watched<T: Send>(
    device: &str,
    step: &str,
    context: &mut Context,
    work: impl FnOnce() -> T + Send,
) -> thread::Result<T> {
    context.step(step);
    let began = Instant::now();
    thread::scope(|scope| {
        let (done, wait) = mpsc::channel();
        let runner = scope.spawn(move || {
            let outcome = work();
            let _ = done.send(());
            outcome
        });
        let mut counters = counters(device);
        while wait.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let now = self::counters(device);
            if now != counters {
                counters = now;
                let running = human_seconds(began.elapsed().as_secs());
                context.step(&format!("{step}, {running}"));
            }
        }
        runner.join()
    })
}

/// Returns the drive's read and write counters, which change while a tool works; empty if they cannot be read.
pub fn counters(device: &str) -> String {
    fs::read_to_string(format!(
        "/sys/class/block/{}/stat",
        device.replace('/', "!")
    ))
    .unwrap_or_default()
}

/// Returns exit code and output of a failed tool in one line: stderr, or stdout if that is empty. A long output is cut in
/// the middle: mkfs.xfs gives its reason first, others last.
pub fn excerpt(output: &Output) -> String {
    let text = if output.stderr.trim().is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let how = output.code.map_or("killed by a signal".to_owned(), |code| {
        format!("exit {code}")
    });
    format!("{how}: {}", both_ends(&line, OUTPUT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_says_what_to_install() {
        let program = |name| Program {
            name,
            package: "xfsprogs",
        };
        assert_eq!(program("sh").missing(), None);
        let why = program("mkfs.no-such").missing().unwrap();
        assert_eq!(
            why,
            "mkfs.no-such is not installed; install package xfsprogs"
        );
    }

    #[test]
    fn of_a_long_output_both_ends_are_kept() {
        let output = Output {
            code: Some(1),
            stdout: "no".to_owned(),
            stderr: format!("the reason\n{}\nthe end", "ä".repeat(1000)),
        };
        let text = excerpt(&output);
        assert!(
            text.starts_with("exit 1: the reason ä")
                && text.ends_with("the end")
                && text.len() < 700
        );
        assert_eq!(
            excerpt(&Output {
                code: None,
                stdout: "out\n".to_owned(),
                stderr: " ".to_owned()
            }),
            "killed by a signal: out"
        );
    }
}
