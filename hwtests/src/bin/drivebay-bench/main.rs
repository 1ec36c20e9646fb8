//! Measures a real agent on drives made of files, and prints tables.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a tool of the harness runs tools, waits and fails loudly"
)]

mod calls;
mod memory;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Memory of the agent and everything below it.
    Memory(memory::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Options::parse().what {
        What::Calls(options) => calls::run(options).await,
        What::Memory(options) => memory::run(options).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("drivebay-bench: {trouble}");
            ExitCode::FAILURE
        }
    }
}
