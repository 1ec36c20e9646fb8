//! Writes to a volume with snapshots by LVM's commands: the first write to a place, which copies the old block, and a repeat. Each
//! round measures the same blocks without snapshots, then with them.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    time::{Duration, Instant},
};

use drivebay_hwtests::{MIB, Trouble, tools};
use drivebay_sys::direct::Aligned;

use crate::{
    calls::table::significant,
    check::volume::{lvcreate, lvremove, slowed, used},
};

const VG: &str = "benchwrites";
const VOLUME: &str = "volume";
/// Chunk sizes of snapshots, KiB.
const CHUNKS: [u64; 5] = [4, 16, 64, 256, 512];
/// Numbers of snapshots of the volume, each compared with none.
const COUNTS: [usize; 2] = [1, 3];
/// Reserve of each snapshot, MiB: enough for all writes of a round in chunks of the largest size.
const ROOM: u64 = 768;

/// A kind of write, and the part of the volume that only it writes to.
#[derive(Debug, Clone, Copy)]
struct Pattern {
    name: &'static str,
    /// Size of one write, KiB.
    kib: u64,
    is_random: bool,
    /// Start and length of the part, MiB.
    part: (u64, u64),
    /// Number of writes in a pass, and in a pass on a slow drive.
    writes: [usize; 2],
}

const PATTERNS: [Pattern; 3] = [
    Pattern {
        name: "random 4 KiB",
        kib: 4,
        is_random: true,
        part: (0, 1024),
        writes: [512, 64],
    },
    Pattern {
        name: "random 64 KiB",
        kib: 64,
        is_random: true,
        part: (1024, 512),
        writes: [128, 32],
    },
    Pattern {
        name: "sequential 1 MiB",
        kib: 1024,
        is_random: false,
        part: (1536, 512),
        writes: [64, 16],
    },
];

/// Size of the volume, MiB: the sum of all parts.
const SIZE: u64 = 2048;

impl Pattern {
    fn bytes(self) -> u64 {
        self.kib << 10
    }

    /// Returns the offsets to which one pass writes, bytes: all different and within the part.
    fn places(self, is_slow: bool) -> Vec<u64> {
        let (first, mib) = self.part;
        let count = self.writes[usize::from(is_slow)];
        let mut all: Vec<u64> = (0..mib * MIB / self.bytes())
            .map(|at| first * MIB + at * self.bytes())
            .collect();
        if self.is_random {
            fastrand::shuffle(&mut all);
            all.truncate(count);
            return all;
        }
        let from = fastrand::usize(..=all.len() - count);
        all.drain(from..from + count).collect()
    }
}

/// Results of one pattern with one number of snapshots and one chunk size.
#[derive(Debug, Clone, Default)]
struct Figures {
    /// Seconds of a pass: without snapshots, the first with them, and its repeat.
    rounds: Vec<[f64; 3]>,
    writes: usize,
    stored: u64,
}

impl Figures {
    fn median(&self, of: impl Fn(&[f64; 3]) -> f64) -> f64 {
        let mut all: Vec<f64> = self.rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    fn print(&self, pattern: Pattern, chunk: u64, count: usize) {
        let rate = |side: usize| {
            let writes = self.writes as f64 / self.rounds.len() as f64;
            self.median(|round| writes / round[side])
        };
        let written = self.writes as u64 * pattern.bytes();
        let figures = [
            rate(0),
            rate(1),
            self.median(|round| round[1] / round[0]),
            self.median(|round| round[2] / round[0]),
            self.stored as f64 / written as f64,
        ];
        let [alone, with, slower, again, stored] = figures.map(significant);
        println!(
            "{:<18} {:>5} {count:>9} {:>6} {alone:>9} {with:>9} {slower:>7} {again:>7} {stored:>7}",
            pattern.name,
            format!("{chunk}k"),
            self.writes
        );
    }
}

/// Measures and prints. `drive` is overwritten. `slow`: delay of each of its requests, milliseconds.
pub(super) fn measure(drive: &str, slow: u64, rounds: usize) -> Result<(), Trouble> {
    println!(
        "\nWrites of a raw volume of {SIZE} MiB, O_DIRECT, one after another, each request of its drive delayed by {slow} ms."
    );
    tools::run("modprobe", &["-a", "dm-snapshot", "dm-delay"])?;
    let pv = match slow {
        0 => drive.to_owned(),
        slow => slowed(drive, slow)?,
    };
    tools::run("vgcreate", &["--quiet", VG, &pv])?;
    lvcreate(&["-L", &format!("{SIZE}m"), "-n", VOLUME, VG])?;
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/dev/{VG}/{VOLUME}"))?;
    // Allocates the drive's file on the host, so that no measured write does.
    let whole = Aligned::new(1 << 20);
    for at in 0..SIZE {
        file.write_all_at(whole.bytes(), at * MIB)?;
    }
    let cases: Vec<_> = CHUNKS
        .iter()
        .flat_map(|chunk| COUNTS.map(|count| (*chunk, count)))
        .collect();
    let mut all = vec![vec![Figures::default(); PATTERNS.len()]; cases.len()];
    let begun = Instant::now();
    for round in 1..=rounds {
        for (&(chunk, count), figures) in cases.iter().zip(&mut all) {
            one(&file, slow > 0, chunk, count, figures)?;
        }
        // The caller times out after half an hour without output.
        println!("round {round}: {} s", begun.elapsed().as_secs());
    }
    println!(
        "\n{:<18} {:>5} {:>9} {:>6} {:>9} {:>9} {:>7} {:>7} {:>7}",
        "writes", "chunk", "snapshots", "n", "alone, /s", "with, /s", "slower", "again", "stored"
    );
    for (at, pattern) in PATTERNS.into_iter().enumerate() {
        for (&(chunk, count), figures) in cases.iter().zip(&all) {
            figures[at].print(pattern, chunk, count);
        }
    }
    println!(
        "Medians of the rounds. slower, again: the first write to a place, and one to the same place after it, take so many times as long \
         as without a snapshot. stored: bytes of one snapshot for each byte written."
    );
    Ok(())
}

/// Measures all patterns without snapshots, then with `count` snapshots of the volume.
fn one(
    file: &File,
    is_slow: bool,
    chunk: u64,
    count: usize,
    figures: &mut [Figures],
) -> Result<(), Trouble> {
    let mut passes = Vec::new();
    for pattern in PATTERNS {
        let places = pattern.places(is_slow);
        let alone = write(file, pattern, &places)?;
        passes.push((pattern, places, alone));
    }
    let names: Vec<String> = (0..count).map(|at| format!("s{at}")).collect();
    for name in &names {
        let (chunk, room) = (format!("{chunk}k"), format!("{ROOM}m"));
        let origin = format!("{VG}/{VOLUME}");
        lvcreate(&["-s", "-c", &chunk, "-L", &room, "-n", name, &origin])?;
    }
    // As device-mapper reports it.
    let stored = || used(&format!("{VG}-s0"), 3, 512);
    for ((pattern, places, alone), figures) in passes.into_iter().zip(figures) {
        let before = stored()?;
        let first = write(file, pattern, &places)?;
        figures.stored += stored()?.saturating_sub(before);
        let again = write(file, pattern, &places)?;
        figures.writes += places.len();
        let seconds = [alone, first, again].map(|time| time.as_secs_f64().max(1e-9));
        figures.rounds.push(seconds);
    }
    for name in &names {
        lvremove(&format!("{VG}/{name}"))?;
    }
    Ok(())
}

/// Writes random bytes at these offsets and syncs; returns the time taken.
fn write(file: &File, pattern: Pattern, places: &[u64]) -> io::Result<Duration> {
    let len = usize::try_from(pattern.bytes()).map_err(io::Error::other)?;
    let mut block = Aligned::new(len);
    fastrand::fill(block.bytes_mut());
    let begun = Instant::now();
    for at in places {
        file.write_all_at(block.bytes(), *at)?;
    }
    file.sync_data()?;
    Ok(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_pass_writes_each_place_once_and_within_its_part_and_all_of_it_fits_a_snapshot() {
        for (pattern, is_slow) in PATTERNS
            .into_iter()
            .flat_map(|one| [(one, false), (one, true)])
        {
            let (first, mib) = pattern.part;
            let places = pattern.places(is_slow);
            assert_eq!(places.len(), pattern.writes[usize::from(is_slow)]);
            let part = first * MIB..(first + mib) * MIB;
            for at in &places {
                assert!(part.contains(at) && part.contains(&(at + pattern.bytes() - 1)));
            }
            let different: BTreeSet<&u64> = places.iter().collect();
            assert_eq!(different.len(), places.len(), "{pattern:?}");
        }
        let mut end = 0;
        for pattern in PATTERNS {
            assert!(pattern.part.0 >= end, "{pattern:?}");
            end = pattern.part.0 + pattern.part.1;
        }
        assert_eq!(end, SIZE);
        // Places are multiples of their sizes, and these divide the largest chunk or are multiples of it.
        let largest = CHUNKS.into_iter().max().unwrap();
        let chunks: u64 = PATTERNS
            .iter()
            .map(|one| one.writes[0] as u64 * one.kib.div_ceil(largest))
            .sum();
        assert!(chunks * largest / 1024 < ROOM, "{chunks} chunks");
    }
}
