//! What calls take, beside the administrator's commands for the same: run in turns with ours, in this process.

mod admin;
mod table;

mod mounts;
mod nodes;
mod stats;
mod volumes;

use std::fs;

use clap::{Args, ValueEnum};
use drivebay_hwtests::{Trouble, agent};

use self::table::Table;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Sixty rounds, and larger sizes; half an hour and more.
    #[arg(long)]
    full: bool,
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 6, default_value_if("full", "true", "60"))]
    rounds: usize,
    /// These parts alone.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Create, stage, publish and delete, by filesystem and number of volumes on the drive.
    Volumes,
    /// Publish and unpublish, by number of other mounts.
    Mounts,
    /// NodeGetVolumeStats, by number of mounts and clients.
    Stats,
    /// Many calls at once, start, scrape and hotplug, by number of drives.
    Nodes,
    /// How many drives that answer late work at the same time.
    Late,
    /// The agent's start with a drive that hangs.
    Hung,
}

pub(crate) async fn run(options: Options) -> Result<(), Trouble> {
    let mut table = Table::begin(&head()?);
    let parts = match options.only.is_empty() {
        true => Part::value_variants(),
        false => &options.only,
    };
    for part in parts {
        match part {
            Part::Volumes => volumes::measure(&mut table, options.rounds).await?,
            Part::Mounts => mounts::measure(&mut table, options.rounds).await?,
            Part::Stats => stats::measure(&mut table, options.rounds, options.full).await?,
            Part::Nodes => nodes::measure(&mut table, options.rounds).await?,
            Part::Late => nodes::late::measure(&mut table, nodes::long(options.rounds)).await?,
            Part::Hung => {
                nodes::start::beside_hung(&mut table, nodes::long(options.rounds)).await?;
            }
        }
    }
    Ok(())
}

/// The machine, and what is measured.
fn head() -> Result<Vec<String>, Trouble> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let program = agent::program()?;
    let build = program.parent().and_then(|dir| dir.file_name());
    Ok(vec![
        format!(
            "{} x {}, Linux {}, load {} at the start",
            std::thread::available_parallelism()?,
            model.unwrap_or_else(|| "processor".to_owned()),
            kernel.trim(),
            load.split(' ').next().unwrap_or_default(),
        ),
        format!(
            "agent: {} build, layout partition; drives: loop devices over sparse files",
            build.unwrap_or_default().to_string_lossy()
        ),
        "Milliseconds. p99 of fewer than 100 is the largest. ratio: our median to that of the command beside"
            .to_owned(),
        "it, in the same run. growth: to the line above, the same at a smaller size.".to_owned(),
    ])
}
