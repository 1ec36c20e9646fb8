//! Counts the sectors that a drive has not flushed when a call is acknowledged.
//!
//! Unflushed sectors inside the volume of a mounted filesystem belong to the tenant and are not counted; the device of the volume
//! determines where they are. All others (labels, tables, records, LVM's metadata, volumes that are not mounted) are the agent's, and must
//! be flushed to the last sector.

use std::ops::Range;

use drivebay_hwtests::{
    lab::{Guest, progress::print_progress},
    node::Placed,
};

use super::bench::{Bench, Held, PATIENCE, within};

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) drive: String,
    pub(crate) call: String,
    /// Number of writes to the drive.
    pub(crate) writes: u64,
    pub(crate) flushes: u64,
    /// Number of unflushed sectors that belong to the agent.
    pub(crate) own: u64,
    /// Number of unflushed sectors in volumes that are mounted, or being erased.
    pub(crate) tenants: u64,
}

/// Runs `act`, and counts when it ends. `theirs`: sectors that do not belong to the agent, in addition to those of the `mounted` volumes.
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
    print_progress(format!(
        "{}: {}: {} writes, {} flushes; unflushed: {} sectors, and {} of tenants",
        row.drive, row.call, row.writes, row.flushes, row.own, row.tenants
    ));
    row
}

/// Returns the runs of a volume on its drive, in 512-byte sectors, as the kernel maps them.
pub(crate) async fn sectors(bench: &Bench, placed: &Placed) -> Vec<Range<u64>> {
    let device = bench.lab.device(placed).await;
    let device = device.file_name().unwrap().to_string_lossy().into_owned();
    let guest: &Guest = bench.lab.guest();
    let output = guest.run(&if device.starts_with("dm-") {
        format!("dmsetup table /dev/{device} | awk '$3 == \"linear\" {{ print $5, $2 }}'")
    } else {
        format!("cd /sys/class/block/{device} && echo $(cat start) $(cat size)")
    });
    let runs = runs(&output);
    assert!(!runs.is_empty(), "{device} is nowhere: {output}");
    runs
}

/// Parses lines of a start and a length.
fn runs(text: &str) -> Vec<Range<u64>> {
    let runs = text.lines().map(|line| {
        let mut numbers = line.split(' ').map(|word| word.parse::<u64>().unwrap());
        let (start, len) = (numbers.next().unwrap(), numbers.next().unwrap());
        start..start + len
    });
    runs.collect()
}

/// Returns the runs of the drive, in sectors, that hold the reserves of its snapshots.
pub(crate) async fn stores(bench: &Bench, at: usize) -> Vec<Range<u64>> {
    let drive = bench.drive(at).await.unwrap().kernel_name;
    let output = bench.lab.guest().run(&format!(
        "number=$(cat /sys/class/block/{drive}/dev); for dm in /sys/block/dm-*/dm/name; do case $(cat $dm) in *-cow) dmsetup table $(cat $dm);; esac; done | \
         awk -v number=$number '$3 == \"linear\" && $4 == number {{ print $5, $2 }}'"
    ));
    let runs = runs(&output);
    assert!(!runs.is_empty(), "no snapshot is on {drive}");
    runs
}

/// Waits until the reserves of deleted snapshots on a drive are erased.
pub(crate) async fn no_store(bench: &Bench, at: usize) {
    let drive = bench.drive(at).await.unwrap().kernel_name;
    let script = format!(
        "all=$(pvs --noheadings --segments -o lv_name /dev/{drive}) && ! echo \"$all\" | grep -qE 'drivebay-(check|erasing-snap)'"
    );
    let none = within(PATIENCE, async || {
        let ran = bench.lab.guest().ran(&script);
        ran.ok().then_some(())
    });
    let none = none.await;
    none.unwrap_or_else(|| panic!("what snapshots stored on {drive} is not erased"));
}
