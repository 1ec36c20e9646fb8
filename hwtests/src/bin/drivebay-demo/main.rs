//! The main use case in a default setup: a shelf of loop drives, an agent in headless mode, and the life cycle of a filesystem volume and
//! of a raw block volume over CSI.
//!
//! Nothing stays mounted or attached, also if it is interrupted or fails: the shelf and the agent are guards, and an interrupt ends the
//! demo early.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a demo runs tools and waits; the bans are for the product"
)]

mod keep;
mod print;
mod story;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use clap::Parser;
use drivebay_hwtests::{Agent, DriveSpec, GIB, Settings, Shelf, Trouble, need, shelf, tools};
use tokio::signal::unix::{SignalKind, signal};

/// One node, end to end, on drives made of files.
///
/// Makes four loop drives (two blank, one with a foreign filesystem, one full of raw
/// data), starts drivebay-agent on them, and over CSI creates, mounts, writes, reads, grows
/// and deletes volumes. No real drive is claimed: the configuration selects only the demo's
/// own files.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Leave drives, agent and volumes as they are at the end, and say how to use and stop them.
    #[arg(long)]
    keep: bool,
    /// Stop and remove what an earlier --keep left in this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "keep")]
    stop: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(dir) = args.stop {
        return report(keep::stop(&dir));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => report(runtime.block_on(interruptible(args.keep))),
        Err(error) => report(Err(error.into())),
    }
}

fn report(result: Result<(), Trouble>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("\ndrivebay-demo: {trouble}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demo; SIGINT or SIGTERM ends it early. Its guards clean up in any case.
async fn interruptible(keep: bool) -> Result<(), Trouble> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        _ = interrupt.recv() => Err(Trouble::new("interrupted; everything is unmounted and unplugged")),
        _ = terminate.recv() => Err(Trouble::new("terminated; everything is unmounted and unplugged")),
        done = demo(keep) => done,
    }
}

async fn demo(keep: bool) -> Result<(), Trouble> {
    for need in [
        need::Need::Root,
        need::Need::Loop,
        need::Need::Tool("losetup"),
        need::Need::Tool("mkfs.ext4"),
        need::Need::Tool("mkfs.xfs"),
        need::Need::Filesystem("xfs"),
    ] {
        need.check()
            .map_err(|missing| Trouble::new(missing.reason))?;
    }
    let start = Instant::now();
    print::chapter("A shelf of drives");
    let mut shelf = stock().await?;
    for drive in shelf.drives() {
        print::line(&drive.kernel_name, &print::drive(&drive.name, drive.bytes));
    }

    print::chapter("The agent");
    let mut settings = Settings::new(shelf.dir(), &shelf.pattern());
    settings.placement.clear();
    settings.log = "info".to_owned();
    let agent = Agent::start(settings).await?;
    print::line("pid", &agent.pid().to_string());
    print::line(
        "CSI socket",
        &agent.settings().csi_socket().display().to_string(),
    );
    print::line("config", &agent.settings().config().display().to_string());
    print::line("log", &agent.settings().log_file().display().to_string());

    if let Err(trouble) = story::run(&agent, &shelf, keep).await {
        return Err(Trouble::new(format!("{trouble}\n{}", agent.log_tail())));
    }
    if keep {
        keep::leave(agent, &mut shelf)?;
        return Ok(());
    }

    print::chapter("The end");
    let mut agent = agent;
    let took = agent.stop()?;
    print::line("agent", &format!("stopped in {} ms", took.as_millis()));
    let dir = shelf.dir().to_owned();
    drop(shelf);
    let left = drivebay_hwtests::tree::leftovers(&dir);
    if !left.is_empty() {
        return Err(Trouble::new(format!("left behind: {}", left.join("; "))));
    }
    print::line("left behind", "nothing mounted, nothing looped");
    println!("\nDone in {:.1} s.", start.elapsed().as_secs_f64());
    Ok(())
}

/// Creates the drives: two to use, two to leave alone.
async fn stock() -> Result<Shelf, Trouble> {
    // Without waiting for a turn, which could not be interrupted.
    let mut shelf = Shelf::at_once()?;
    shelf.add(DriveSpec::blank("blank-1", 8 * GIB))?;
    shelf.add(DriveSpec::blank("blank-2", 8 * GIB))?;
    shelf.add(DriveSpec::blank("somebodys-ext4", GIB).holding(|file| {
        let file = file.display().to_string();
        tools::run("mkfs.ext4", &["-q", "-F", "-L", "photos", &file]).map(drop)
    }))?;
    shelf.add(DriveSpec::blank("raw-data", GIB).holding(shelf::raw_data))?;
    // A point at which an interrupt can end the setup.
    tokio::task::yield_now().await;
    Ok(shelf)
}
