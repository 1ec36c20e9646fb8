//! A CA, a controller's certificate and one for every node, created by `drivebay-controller certs`.

use std::{ffi::OsString, path::Path, thread};

use clap::Parser;
use drivebay_controller::{
    certs,
    config::{Certs, Cli, Command},
};

use super::plan::Plan;
use crate::Trouble;

/// Threads that create certificates; each mostly waits for the disk.
const THREADS: usize = 8;

/// Creates them in this directory; the controller's is for 127.0.0.1.
///
/// # Errors
/// One cannot be created, or the directory has a CA already.
pub fn make(dir: &Path, plan: &Plan) -> Result<(), Trouble> {
    run(dir, &["init", "--name", "127.0.0.1"])?;
    let nodes: Vec<String> = (0..plan.nodes).map(|index| plan.node(index)).collect();
    let share = nodes.len().div_ceil(THREADS).max(1);
    thread::scope(|scope| {
        let workers: Vec<_> = nodes
            .chunks(share)
            .map(|share| {
                scope.spawn(|| share.iter().try_for_each(|node| run(dir, &["node", node])))
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .map_err(|_| Trouble::new("making certificates has panicked"))?
        })
    })
}

/// Runs `drivebay-controller certs …` in this process.
fn run(dir: &Path, args: &[&str]) -> Result<(), Trouble> {
    let line = ["drivebay-controller", "certs"]
        .into_iter()
        .chain(args.iter().copied());
    let line = line.map(OsString::from).chain(["--dir".into(), dir.into()]);
    let cli = Cli::try_parse_from(line)
        .map_err(|error| Trouble::doing("the command line of certs", &error))?;
    match cli.command {
        Command::Certs(Certs::Files(command)) => certs::run(&command)
            .map(drop)
            .map_err(|error| Trouble::doing("making certificates", &error)),
        other => Err(Trouble::new(format!("certs was taken for {other:?}"))),
    }
}
