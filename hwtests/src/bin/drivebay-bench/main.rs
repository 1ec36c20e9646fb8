//! Measures a real agent on drives made of files, and prints tables.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a tool of the harness runs tools, waits and fails loudly"
)]

mod calls;
mod check;
mod encryption;
mod memory;
mod moves;
mod snapshots;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use drivebay_hwtests::{Trouble, shelf::Turn};
use tokio::signal::unix::{SignalKind, signal};

/// Measures a real agent on drives made of files.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What calls take, beside the administrator's commands for the same.
    Calls(calls::Options),
    /// What a check of a mounted volume costs, on two drives of the lab's guest.
    Check(check::Options),
    /// Encrypted volumes on a drive of the lab's guest, beside cryptsetup by hand and volumes without encryption.
    Encryption(encryption::Options),
    /// Memory of the agent and everything below it.
    Memory(memory::Options),
    /// A volume moved to another drive, beside dd between the same drives.
    Moves(moves::Options),
    /// Snapshots on two drives of the lab's guest: calls beside LVM's commands and dd, and what they cost a volume's writes.
    Snapshots(snapshots::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    match interruptible(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("drivebay-bench: {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Ends early on SIGINT or SIGTERM: guards unmount and detach everything.
async fn interruptible(options: Options) -> Result<(), Trouble> {
    // One turn for the whole run, so that no test runs between two of its shelves. Before the signal handlers, which would not end the
    // wait.
    let _turn = Turn::wait()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let measured = async {
        match options.what {
            What::Calls(options) => calls::run(options).await,
            What::Check(options) => check::run(&options),
            What::Encryption(options) => encryption::run(&options).await,
            What::Memory(options) => memory::run(options).await,
            What::Moves(options) => moves::run(&options).await,
            What::Snapshots(options) => snapshots::run(&options).await,
        }
    };
    tokio::select! {
        done = measured => done,
        _ = interrupt.recv() => Err(Trouble::new("interrupted")),
        _ = terminate.recv() => Err(Trouble::new("terminated")),
    }
}
