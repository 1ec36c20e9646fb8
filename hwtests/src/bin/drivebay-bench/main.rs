//! Measures a real agent on drives made of files, and prints tables.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a tool of the harness runs tools, waits and fails loudly"
)]

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
    /// Memory of the agent and everything below it.
    Memory(memory::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let What::Memory(options) = Options::parse().what;
    match memory::run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("drivebay-bench: {trouble}");
            ExitCode::FAILURE
        }
    }
}
