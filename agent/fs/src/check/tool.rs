//! Running a checking tool in a worker: idle, bounded, ended when nobody waits for it any more.

use std::{
    ffi::OsString,
    path::Path,
    time::{Duration, Instant},
};

use super::decode::{Checker, End};
use crate::tools;
use drivebay_sys::cmd::{self, CmdError, Tool};
use drivebay_worker::Context;

/// Between two looks at the drive's counters; well under the 30 s after which a step counts as stuck.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Runs it on this node, of the device of that kernel name. None: the agent is gone, and the tool was stopped.
pub fn run(
    checker: Checker,
    node: &Path,
    device: &str,
    limit: Duration,
    context: &mut Context,
) -> Option<End> {
    let (program, mut args): (_, Vec<OsString>) = match checker {
        Checker::E2fsck => ("e2fsck", vec!["-fn".into()]),
        Checker::XfsRepair => ("xfs_repair", vec!["-n".into()]),
        Checker::BtrfsCheck => ("btrfs", vec!["check".into(), "--readonly".into()]),
        // -c 3: the kernel's own threads read in the idle class, too.
        Checker::BtrfsScrub => (
            "btrfs",
            ["scrub", "start", "-B", "-r", "-c", "3"]
                .map(OsString::from)
                .to_vec(),
        ),
    };
    args.push(node.into());
    run_tool(program, args, device, limit, context)
}

/// Runs any tool in the same way.
pub fn run_tool(
    program: &'static str,
    args: Vec<OsString>,
    device: &str,
    limit: Duration,
    context: &mut Context,
) -> Option<End> {
    let tool = Tool {
        program,
        args,
        env: Vec::new(),
        only: None,
        deadline: limit,
    };
    let step = format!("{program} on {device}");
    context.step(&step);
    let began = Instant::now();
    let mut counters = tools::counters(device);
    let mut looked = began;
    let result = cmd::run_idle(&tool, &mut || {
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            let now = tools::counters(device);
            if now != counters {
                counters = now;
                context.step(&format!("{step}, {} s", began.elapsed().as_secs()));
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
        Err(CmdError::Missing(program)) => End::Missing {
            package: tools::package(program).to_owned(),
        },
        Err(CmdError::Deadline { .. }) => End::TimedOut,
        Err(error @ CmdError::Spawn { .. }) => End::NotRun {
            why: drivebay_model::cause::chain(&error),
        },
    })
}
