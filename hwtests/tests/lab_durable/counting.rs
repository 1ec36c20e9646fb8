//! What a drive has not flushed in the moment a call is answered.
//!
//! Of a filesystem that is mounted the unflushed sectors inside of its volume are the tenant's own business, and are left
//! out: the device of the volume says where they are. Everything else (labels, tables, records, LVM's
//! metadata, volumes that are not mounted) is the agent's, and must be flushed to the last sector.

use std::ops::Range;

use drivebay_hwtests::{
    lab::{Guest, progress::say},
    node::Placed,
};

use super::bench::{Bench, Held};

/// A counted call.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) drive: String,
    pub(crate) call: String,
    /// Writes the drive took.
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    /// Unflushed sectors of the agent's.
    pub(crate) own: u64,
    /// Unflushed sectors in volumes that are mounted, or being erased.
    pub(crate) tenants: u64,
}

/// Does something, and counts in the moment it is answered. `theirs`: sectors that are not the agent's.
pub(crate) async fn counted(
    bench: &Bench,
    at: usize,
    call: &str,
    theirs: &[Range<u64>],
    mounted: &[&Placed],
    act: impl Future<Output = Held<()>>,
) -> Counted {
    let nbd = bench.nbd(at);
    let before = nbd.stats();
    let answer = act.await;
    let (unflushed, after) = (nbd.unflushed(), nbd.stats());
    let drive = bench.bays[at].name.clone();
    answer.unwrap_or_else(|why| panic!("{drive}: {call}: {why}"));
    let mut theirs = theirs.to_vec();
    for placed in mounted {
        theirs.extend(sectors(bench, placed).await);
    }
    let all = unflushed.iter().cloned().flatten();
    let (tenants, own): (Vec<u64>, Vec<u64>) =
        all.partition(|sector| theirs.iter().any(|run| run.contains(sector)));
    let row = Counted {
        drive,
        call: call.to_owned(),
        writes: after.writes + after.zeroes - before.writes - before.zeroes,
        flushes: after.flushes + after.fua - before.flushes - before.fua,
        own: own.len() as u64,
        tenants: tenants.len() as u64,
    };
    say(format!(
        "{}: {}: {} writes, {} flushes; unflushed: {} sectors, and {} of tenants",
        row.drive, row.call, row.writes, row.flushes, row.own, row.tenants
    ));
    row
}

/// Where a volume lies on its drive, in 512-byte sectors, as the kernel says.
pub(crate) async fn sectors(bench: &Bench, placed: &Placed) -> Vec<Range<u64>> {
    let device = bench.lab.device(placed).await;
    let device = device.file_name().unwrap().to_string_lossy().into_owned();
    let guest: &Guest = bench.lab.guest();
    let said = guest.run(&if device.starts_with("dm-") {
        format!("dmsetup table /dev/{device} | awk '$3 == \"linear\" {{ print $5, $2 }}'")
    } else {
        format!("cd /sys/class/block/{device} && echo $(cat start) $(cat size)")
    });
    let runs: Vec<Range<u64>> = said
        .lines()
        .map(|line| {
            let mut numbers = line.split(' ').map(|word| word.parse::<u64>().unwrap());
            let (start, len) = (numbers.next().unwrap(), numbers.next().unwrap());
            start..start + len
        })
        .collect();
    assert!(!runs.is_empty(), "{device} is nowhere: {said}");
    runs
}
