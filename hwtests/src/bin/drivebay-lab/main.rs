//! What `hwtests/lab` needs besides tests: the snapshot of a booted guest, a guest for people,
//! and taking away what killed runs left.
#![allow(
    clippy::disallowed_methods,
    reason = "a tool of the harness runs tools and waits"
)]

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};
use drivebay_hwtests::{
    GIB, Trouble,
    lab::{self, DriveSpec, Machine, MachineSpec, image::Image},
};

/// The lab's helper.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Ask,
}

#[derive(Debug, Subcommand)]
enum Ask {
    /// Makes the snapshot of a booted guest, if there is none that fits.
    Snapshot,
    /// A guest to look around in, until its shell ends.
    Shell,
    /// Takes away what killed runs left.
    Sweep,
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Ask::Snapshot => Image::find()
            .and_then(|image| lab::snapshot::booted(&image))
            .map(drop),
        Ask::Shell => shell(),
        Ask::Sweep => lab::rundir::sweep(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            let _ = writeln!(std::io::stderr(), "lab: {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// One of each kind that can be plugged into a woken guest.
fn drives() -> MachineSpec {
    MachineSpec::new("shell").with(vec![
        DriveSpec::nvme("nvme1", 8 * GIB),
        DriveSpec::scsi("sas1", 8 * GIB).rotating(7200),
        DriveSpec::virtio("virtio1", 8 * GIB),
    ])
}

fn shell() -> Result<(), Trouble> {
    let machine = Machine::restored(drives())?;
    if let Err(trouble) = lab::agent::install(machine.guest()) {
        lab::progress::say(format!("without an agent: {trouble}"));
    }
    lab::progress::say(
        "drivebay-agent is in the PATH, the target directory is /host; leave with exit",
    );
    machine.guest().interactive()?;
    Ok(())
}
