//! A simulated fleet in its own process: real sessions, simulated drives. It is controlled by commands on its standard input, and ends at
//! the end of that.
#![allow(
    clippy::disallowed_methods,
    reason = "a tool of the harness runs tools and waits"
)]

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use drivebay_common::limits::raise_open_files;
use drivebay_config::Target;
use drivebay_hwtests::{
    Trouble,
    fleet::{Command, Plan, Seats, command::Percent, seats::Way},
};
use tokio::{sync::mpsc, time::MissedTickBehavior};
use tracing_subscriber::EnvFilter;

/// Interval of making changes, as many as are due.
const TICK: Duration = Duration::from_millis(100);

/// A simulated fleet of nodes, for the controller's tests.
///
/// Says `ready NODES VOLUMES` when its agents begin to dial. After that each line of standard input is a command,
/// answered by one line, `ok ...` or `error ...`: hold-create NODES, hush NODES, go-on NODES, list NODE, ids NODES,
/// count, connected, suspect NODES, restart NODES, stop NODES, start NODES, replay-old-snapshot NODES, machine NODE ID,
/// change PERCENT. NODES is a node id, FIRST..LAST, or all.
/// It ends when its standard input does.
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    plan: Plan,
    /// Controllers to dial
    #[arg(
        long,
        required = true,
        value_delimiter = ',',
        value_name = "HOST:PORT|unix:PATH"
    )]
    controllers: Vec<Target>,
    /// Directory of the CA as `drivebay-controller certs` makes it, with a certificate of every node; not needed for unix
    /// sockets
    #[arg(long)]
    certs: Option<PathBuf>,
    /// Read certificates again when they change, each second
    #[arg(long, requires = "certs")]
    follow_certs: bool,
    /// File in which changes outlive this process; read at the start
    #[arg(long, value_name = "FILE")]
    volumes_file: Option<PathBuf>,
    /// Of all volumes, how many change each minute
    #[arg(long, default_value_t, value_name = "PERCENT")]
    change_per_minute: Percent,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => {
            let done = runtime.block_on(run(args));
            runtime.shutdown_background();
            done
        }
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            let _ = writeln!(io::stderr(), "drivebay-fleet: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn print_line(line: &str) -> Result<(), Trouble> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", line.trim_end())?;
    Ok(out.flush()?)
}

async fn run(args: Args) -> Result<(), Trouble> {
    let limit = raise_open_files()
        .map_err(|error| Trouble::doing("preparing for so many sessions", &error))?;
    let way = Way {
        targets: args.controllers,
        certs: args.certs,
        follow_certs: args.follow_certs,
    };
    let needed = (args.plan.nodes * way.targets.len() + 100) as u64;
    if limit < needed {
        return Err(Trouble::new(format!(
            "{needed} open files are needed, and {limit} allowed (ulimit -Hn)"
        )));
    }
    let mut seats = Seats::new(args.plan, way, args.volumes_file.as_deref()).await?;
    let all: Vec<usize> = (0..seats.plan().nodes).collect();
    let volumes = seats.count();
    seats.start(&all);
    print_line(&format!("ready {} {volumes}", all.len()))?;
    serve(&mut seats, args.change_per_minute, volumes).await?;
    seats.stop(&all).await;
    Ok(())
}

/// Returns the lines of standard input; a thread reads them, since reading blocks.
fn lines() -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lines() {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Runs commands, and changes volumes, until the end of the input.
async fn serve(seats: &mut Seats, mut rate: Percent, volumes: usize) -> Result<(), Trouble> {
    let mut lines = lines();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut due = 0.0;
    loop {
        tokio::select! {
            line = lines.recv() => {
                let Some(line) = line.transpose()? else { return Ok(()) };
                let done = match line.parse::<Command>() {
                    Ok(command) => command.perform(seats, &mut rate).await,
                    Err(trouble) => Err(trouble),
                };
                print_line(&match done {
                    Ok(answer) => format!("ok {answer}"),
                    Err(trouble) => format!("error {trouble}"),
                })?;
            }
            _ = tick.tick() => {
                due += rate.of(volumes) * TICK.as_secs_f64() / 60.0;
                seats.change(due as usize);
                due = due.fract();
            }
        }
    }
}
