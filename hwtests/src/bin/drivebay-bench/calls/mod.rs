//! Durations of calls, and of the administrator's equivalent commands, run alternately in this process.

mod admin;
mod admin_drive;
mod lvmd;
pub(crate) mod table;

mod mounts;
mod nodes;
mod peers;
mod stats;
mod volumes;

use std::{fs, path::Path};

use clap::{Args, ValueEnum};
use drivebay_hwtests::{Trouble, program, tools};

use self::{admin_drive::Layout, table::Table};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Two rounds and small sizes, as without an option; two or three minutes on a machine that does nothing else.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Sixty rounds, and larger sizes; half an hour and more.
    #[arg(long)]
    full: bool,
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 2, default_value_if("full", "true", "60"))]
    rounds: usize,
    /// These parts alone.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Layout of the drives; with `lvm`, volumes alone.
    #[arg(long, value_enum, default_value = "partition")]
    layout: Layout,
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
    /// Many calls at once, start, scrape, hotplug and idling, by number of drives.
    Nodes,
    /// How soon a controller counts a drive that is plugged in, by number of drives.
    Follow,
    /// How many drives that answer late work at the same time.
    Late,
    /// The agent's start with a drive that hangs.
    Hung,
    /// topolvm's node plugin and smartctl_exporter beside the agent, as far as they are named in the environment.
    Peers,
}

pub(crate) async fn run(options: Options) -> Result<(), Trouble> {
    let rounds = match options.quick {
        true => 2,
        false => options.rounds,
    };
    let mut table = Table::begin(&head(rounds, options.layout)?);
    let parts = match (options.only.is_empty(), options.layout) {
        (true, Layout::Partition) => Part::value_variants(),
        (true, Layout::Lvm) => &[Part::Volumes],
        (false, _) => &options.only,
    };
    for part in parts {
        match part {
            Part::Volumes => {
                volumes::measure(&mut table, options.layout, rounds, options.full).await?;
            }
            Part::Mounts => mounts::measure(&mut table, rounds).await?,
            Part::Stats => stats::measure(&mut table, rounds, options.full).await?,
            Part::Nodes => nodes::measure(&mut table, rounds, options.full).await?,
            Part::Follow => nodes::follow::measure(&mut table, rounds).await?,
            Part::Late => nodes::late::measure(&mut table, nodes::long(rounds)).await?,
            Part::Hung => {
                nodes::start::beside_hung(&mut table, nodes::long(rounds)).await?;
            }
            Part::Peers => peers::measure(&mut table, rounds).await?,
        }
    }
    Ok(())
}

/// Returns the description of the machine and the measurement.
fn head(rounds: usize, layout: Layout) -> Result<Vec<String>, Trouble> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let program = program::agent()?;
    let build = program.parent().and_then(|dir| dir.file_name());
    let build = build.filter(|name| ["debug", "release"].iter().any(|profile| name == profile));
    Ok(vec![
        format!(
            "{} x {}, Linux {}, load {} at the start",
            std::thread::available_parallelism()?,
            model.unwrap_or_else(|| "processor".to_owned()),
            kernel.trim(),
            load.split(' ').next().unwrap_or_default(),
        ),
        format!(
            "agent: {} build, layout {}; drives: loop devices over sparse files",
            build.unwrap_or("given".as_ref()).to_string_lossy(),
            layout.name()
        ),
        format!("{rounds} rounds; {}", size(&program)?),
        "Milliseconds. p99 of fewer than 100 is the largest. ratio: our median to that of the command beside"
            .to_owned(),
        "it, in the same run. growth: to the line above, the same at a smaller size.".to_owned(),
    ])
}

/// Returns the size of the program without symbols.
fn size(program: &Path) -> Result<String, Trouble> {
    let dir = tempfile::tempdir()?;
    let stripped = dir.path().join("stripped");
    let [from, to] = [program, &stripped].map(|path| path.display().to_string());
    let what = match tools::run("strip", &["-o", &to, &from]) {
        Ok(_) => "without symbols",
        Err(_) => "with symbols",
    };
    let file = [stripped.as_path(), program]
        .into_iter()
        .find_map(|path| fs::metadata(path).ok());
    let bytes = file.map_or(0, |file| file.len());
    Ok(format!(
        "{} of {:.1} MB {what}",
        program.file_name().unwrap_or_default().to_string_lossy(),
        bytes as f64 / 1e6
    ))
}
