//! Snapshots of layout lvm, in the lab's guest, which has two drives for it: durations of calls beside LVM's commands and dd, and the
//! slowdown of a volume's writes by its snapshots' chunk size.

mod calls;
mod writes;

use std::fs;

use clap::{Args, ValueEnum};
use drivebay_hwtests::Trouble;

use crate::check::volume;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds that each request of the written drive takes longer: a drive that is slow, as disks are. Fewer writes.
    #[arg(long, default_value_t = 0)]
    slow: u64,
    /// Size of the volume of which snapshots are taken and restored.
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// This part alone.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// What the serials of the two drives begin with. They are overwritten; only qemu's drives are taken.
    #[arg(long, default_value = "bench")]
    drives: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Create, restore and delete, of a snapshot and of a group, by the agent.
    Calls,
    /// Writes of a volume with snapshots, by LVM's commands alone.
    Writes,
}

pub(crate) async fn run(options: &Options) -> Result<(), Trouble> {
    let drives = volume::drives(&options.drives)?;
    let [(_, plain), (serial, _), ..] = drives.as_slice() else {
        return Err(Trouble::new(format!(
            "needs two drives of qemu whose serials begin with {}: run hwtests/bench snapshots",
            options.drives
        )));
    };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!(
        "Linux {}, {} rounds; two emulated NVMe drives",
        kernel.trim(),
        options.rounds
    );
    if options.only != Some(Part::Writes) {
        calls::measure([plain, serial], options.mib, options.rounds).await?;
    }
    if options.only != Some(Part::Calls) {
        writes::measure(plain, options.slow, options.rounds)?;
    }
    Ok(())
}
