//! Helper of `hwtests/lab` besides the tests: creates the snapshot of a booted guest, starts a guest for interactive use, and removes
//! leftovers of killed runs.
#![allow(
    clippy::disallowed_methods,
    reason = "a tool of the harness runs tools and waits"
)]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, Subcommand};
use drivebay_hwtests::{
    GIB, Trouble,
    lab::{self, DriveSpec, Machine, MachineSpec, image},
};

/// The lab's helper.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Makes the snapshot of a booted guest, if there is none that fits.
    Snapshot,
    /// A guest to look around in, until its shell ends.
    Shell,
    /// Runs a built program in a guest, with its output on this one's.
    Run {
        /// A variable of its environment, `NAME=VALUE`; a value that is a file below the target directory is named as the
        /// guest sees it.
        #[arg(long)]
        env: Vec<String>,
        /// An NVMe drive of 8 GiB with this serial, in the guest.
        #[arg(long)]
        nvme: Vec<String>,
        /// The program, below the target directory.
        program: PathBuf,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Removes the directories and sockets of runs whose process has ended.
    Sweep,
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        LabCommand::Snapshot => image::Image::find()
            .and_then(|image| lab::snapshot::booted(&image))
            .map(drop),
        LabCommand::Shell => shell(),
        LabCommand::Run {
            env,
            nvme,
            program,
            args,
        } => run(&env, &nvme, &program, &args),
        LabCommand::Sweep => lab::rundir::sweep(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            let _ = writeln!(std::io::stderr(), "lab: {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Returns one drive of each kind that can be plugged into a running guest.
fn drives() -> MachineSpec {
    MachineSpec::new("shell").with(vec![
        DriveSpec::nvme("nvme1", 8 * GIB),
        DriveSpec::scsi("sas1", 8 * GIB).rotating(7200),
        DriveSpec::virtio("virtio1", 8 * GIB),
    ])
}

/// Longest time between two lines of a measuring program, which prints one per round; on an emulated machine a round takes minutes.
const LINE_LIMIT: Duration = Duration::from_secs(1800);
const END_LIMIT: Duration = Duration::from_secs(60);

fn run(
    variables: &[String],
    drives: &[String],
    program: &Path,
    args: &[String],
) -> Result<(), Trouble> {
    let drives = drives.iter().map(|name| DriveSpec::nvme(name, 8 * GIB));
    let machine = Machine::restored(MachineSpec::new("run").with(drives.collect()))?;
    let mut pairs = Vec::new();
    for variable in variables {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        let there = image::in_guest(Path::new(value)).map(|path| path.display().to_string());
        pairs.push((name, there.unwrap_or_else(|_| value.to_owned())));
    }
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let script = machine.guest().script(program, &args, &pairs)?;
    let mut lines = machine.guest().stream(&script)?;
    while let Some(line) = lines.next(LINE_LIMIT) {
        writeln!(std::io::stdout(), "{line}")?;
    }
    match lines.code(END_LIMIT)? {
        0 => Ok(()),
        code => Err(Trouble::new(format!(
            "{} ended with {code} in the guest",
            program.display()
        ))),
    }
}

fn shell() -> Result<(), Trouble> {
    let machine = Machine::restored(drives())?;
    if let Err(trouble) = lab::agent::install(machine.guest()) {
        lab::progress::print_progress(format!("without an agent: {trouble}"));
    }
    lab::progress::print_progress(
        "drivebay-agent is in the PATH, the target directory is /host; leave with exit",
    );
    machine.guest().interactive()?;
    Ok(())
}
