//! `kubectl drivebay`.

#![forbid(unsafe_code)]

mod args;
mod cluster;
mod error;
mod health;
mod orders;
mod tables;
mod ui;
mod wait;

use std::{
    io::{Write, stdout},
    process::ExitCode,
};

use drivebay_common::{
    cli::{chain, print as print_text},
    terminal::Terminal,
};

use args::{Cli, Command};
use cluster::Cluster;
use error::PluginError;

fn main() -> ExitCode {
    let cli = drivebay_common::parse::parse::<Cli>();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(&cli)),
        Err(error) => Err(PluginError::Start(error)),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let text = chain(&error);
            let shown = Terminal::of_stderr().message("kubectl drivebay: ", &text);
            eprint!("{shown}");
            ExitCode::from(error.code())
        }
    }
}

/// Runs the command and prints its result; returns the exit code.
async fn run(cli: &Cli) -> Result<u8, PluginError> {
    let cluster = Cluster::connect(&cli.access).await?;
    let terminal = Terminal::of_stdout();
    let (text, code) = match &cli.command {
        Command::Drives(args) => (tables::drives(&cluster, args, terminal).await?, 0),
        Command::Nodes(args) => (tables::nodes(&cluster, args, terminal).await?, 0),
        Command::Volumes(args) => (tables::volumes(&cluster, args, terminal).await?, 0),
        Command::Snapshots(args) => (tables::snapshots(&cluster, args, terminal).await?, 0),
        Command::Tasks(args) => (tables::tasks(&cluster, args, terminal).await?, 0),
        Command::Health(args) => health::run(&cluster, args, terminal).await?,
        Command::Order(order) => orders::run(&cluster, order).await?,
        Command::Ui(args) => return ui::run(&cli.access, args).await,
    };
    let mut out = stdout().lock();
    print_text(&mut out, &text).map_err(PluginError::Output)?;
    out.flush().map_err(PluginError::Output)?;
    Ok(code)
}
