//! Finds owners of places of an XFS with GETFSMAP, through its mount or one of its own, and decides for which ranges to query it. Pure but
//! for the queries.

use std::{collections::BTreeSet, time::Duration};

use super::program;
use crate::{
    affected::{
        fsmap::{Owner, gaps, owners, with_gaps},
        work::{Lookup, Work, cannot, metadata_or_free},
    },
    tools::idle::{self, End},
};
use drivebay_model::{Extent, unreadable::Holds};
use drivebay_sys::{fsmap::Record, path::Directory};

/// Longest time for reading the log; its end is found by a few reads.
const LOG_LIMIT: Duration = Duration::from_secs(30);

/// True if the output of `xfs_logprint -t` shows that nothing is left to replay. Pure.
fn is_clean(output: &str) -> bool {
    let state = |line: &str| Some(line.trim().strip_prefix("log tail:")?.ends_with("<CLEAN>"));
    output.lines().find_map(state) == Some(true)
}

impl Work<'_> {
    /// With an unreplayed log, what is free is not known: the XFS is not searched then.
    pub(crate) fn unmounted_xfs(&mut self, pieces: &[Extent]) -> Vec<(Extent, Holds)> {
        let limit = self.left().min(LOG_LIMIT);
        let (node, device) = (&self.partition.node, &self.partition.device);
        let logprint = program("xfs_logprint");
        let why = match idle::run(logprint, &["-t"], node, device, limit, self.context) {
            Some(End::Exited { stdout, .. }) if is_clean(&stdout) => {
                return self.through_own_mount(pieces, &["norecovery", "nouuid"], |work, root| {
                    work.xfs(pieces, root)
                });
            }
            Some(End::Exited { stdout, .. }) if stdout.contains("<DIRTY>") => {
                "the XFS must be mounted before it is known what is free: its log is not replayed"
            }
            Some(End::Missing { .. }) => "xfs_logprint is not installed; install package xfsprogs",
            _ => "the log of the XFS does not read",
        };
        self.not_searched(pieces, why)
    }

    pub(crate) fn xfs(&mut self, pieces: &[Extent], root: &Directory) -> Vec<(Extent, Holds)> {
        let mut lookups: Vec<Lookup> = Vec::new();
        for piece in pieces {
            match owners_in_xfs(*piece, |piece| self.records(root, piece)) {
                Err(error) => {
                    lookups.push((*piece, Err(cannot(format!("XFS does not answer: {error}")))));
                }
                Ok(owned) => lookups.extend(with_gaps(*piece, owned).into_iter().map(|(piece, owners)| {
                    let inodes: BTreeSet<u64> = owners.iter().filter_map(inode).collect();
                    let held = if !inodes.is_empty() {
                        Ok(inodes)
                    } else if owners.contains(&Owner::Unknown) {
                        Err(cannot(
                            "the XFS does not say whose it is, as one made without reverse mapping (rmapbt) never does",
                        ))
                    } else {
                        Err(metadata_or_free(&owners))
                    };
                    (piece, held)
                })),
            }
        }
        self.named(lookups, |work, wanted| work.walked(root, wanted))
    }
}

fn inode(owner: &Owner) -> Option<u64> {
    match owner {
        Owner::Inode(inode) => Some(*inode),
        _ => None,
    }
}

/// The largest block of an XFS.
const LARGEST_BLOCK: u64 = 64 << 10;
/// Bytes before and behind the pieces without an owner that are queried with them, one after another until all have one.
/// Only the range of a record is known, whichever kernel answered:
/// - Without commit ca6448aed4f1 (Linux 6.11, and later releases of some older ones) free space at the end of the queried
///   range is returned without its last block, so that a block within free space, queried alone, is not returned at all.
///   The last block of the filesystem stays unknown there, and until the commit that completed it ("off-by-one error in
///   fsmap's end_daddr usage").
/// - Some older kernels leave out what begins before the queried range, be it free or a file's.
///
/// The bytes behind may be of the next allocation group, whose header may be unreadable.
const AROUND: [(u64, u64); 5] = [
    (0, LARGEST_BLOCK),
    (0, 0),
    (1 << 20, LARGEST_BLOCK),
    (256 << 20, LARGEST_BLOCK),
    // No file has a longer extent.
    (8 << 30, LARGEST_BLOCK),
];

/// Returns the pieces of a range that are free or have a known owner; the rest is in no piece.
pub(super) fn owners_in_xfs<E>(
    range: Extent,
    mut query: impl FnMut(Extent) -> Result<Vec<Record>, E>,
) -> Result<Vec<(Extent, BTreeSet<Owner>)>, E> {
    let mut owned: Vec<(Extent, BTreeSet<Owner>)> = Vec::new();
    let mut answered = false;
    for (number, (before, behind)) in AROUND.into_iter().enumerate() {
        let open = gaps(range, owned.iter().map(|(piece, _)| *piece));
        let (Some(first), Some(last)) = (open.first(), open.last()) else {
            break;
        };
        let start = first.start.saturating_sub(before);
        let len = last.end().saturating_add(behind) - start;
        match query(Extent { start, len }) {
            Ok(records) => {
                answered = true;
                owned.extend(open.iter().flat_map(|gap| owners(*gap, &records)));
                owned.sort();
            }
            Err(_) if number == 0 => {}
            Err(_) if answered => break,
            Err(error) => return Err(error),
        }
    }
    Ok(owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affected::fsmap::FREE;
    use drivebay_sys::fsmap::SPECIAL_OWNER;

    #[test]
    fn only_a_log_that_is_reported_as_clean_is_one() {
        let output = |state| {
            format!(
                "xfs_logprint:\n    log device: 0x700 daddr: 8 length: 9\n\n    log tail: 14 head: 18 state: <{state}>\n"
            )
        };
        assert!(is_clean(&output("CLEAN")));
        assert!(!is_clean(&output("DIRTY")));
        assert!(!is_clean("xfs_logprint: cannot read log <CLEAN>"));
    }

    const KIB: u64 = 1 << 10;
    const BLOCK: u64 = 4 * KIB;

    fn extent(start: u64, len: u64) -> Extent {
        Extent { start, len }
    }

    fn special(start: u64, len: u64, owner: u64) -> Record {
        Record::new(extent(start, len), owner, SPECIAL_OWNER)
    }

    fn file(start: u64, len: u64, inode: u64) -> Record {
        Record::new(extent(start, len), inode, 0)
    }

    /// Records of an XFS with blocks of 4096 bytes, by the kernel's source.
    struct Kernel {
        /// Linux 6.1 leaves out the last block of free space at the end of the range.
        short: bool,
        /// Some older kernels leave out what begins before the range.
        cut: bool,
    }

    const KERNELS: [Kernel; 3] = [
        Kernel {
            short: false,
            cut: false,
        },
        Kernel {
            short: true,
            cut: false,
        },
        Kernel {
            short: true,
            cut: true,
        },
    ];

    impl Kernel {
        /// `used`: records of the reverse mapping, in order. `size`: size of the filesystem.
        fn answer(&self, used: &[Record], size: u64, queried: Extent) -> Vec<Record> {
            let (mut all, mut next) = (Vec::new(), queried.start);
            let last_block = (queried.end().min(size) - 1) / BLOCK * BLOCK;
            for record in used {
                let end = record.physical + record.length;
                if end <= queried.start / BLOCK * BLOCK || record.physical > last_block {
                    continue;
                }
                if !(self.cut && record.physical < queried.start / BLOCK * BLOCK) {
                    if record.physical > next {
                        all.push(special(next, record.physical - next, FREE));
                    }
                    all.push(*record);
                }
                next = next.max(end);
            }
            let end = last_block + if self.short { 0 } else { BLOCK };
            if end > next {
                all.push(special(next, end - next, FREE));
            }
            all
        }
    }

    #[test]
    fn free_space_of_an_xfs_is_free_also_where_linux_6_1_does_not_answer_for_its_last_block() {
        const METADATA: u64 = (b'X' as u64) << 32 | 3;
        let used = [
            special(0, 4 * BLOCK, METADATA),
            file(16 * BLOCK, 4 * BLOCK, 131),
        ];
        let size = 64 << 20;
        let sector = extent(40 * BLOCK + 512, 512);
        let [new, old, oldest] = &KERNELS;
        assert_eq!(
            new.answer(&used, size, sector),
            [special(sector.start, BLOCK - 512, FREE)]
        );
        assert_eq!(old.answer(&used, size, sector), []);
        for kernel in &KERNELS {
            let owned = owners_in_xfs(sector, |queried| {
                Ok::<_, ()>(kernel.answer(&used, size, queried))
            });
            assert_eq!(owned, Ok(vec![(sector, [Owner::Free].into())]));
        }
        // Within a file.
        let sector = extent(18 * BLOCK + 512, 512);
        assert_eq!(
            oldest.answer(&used, size, sector),
            [],
            "nothing, and not that it is free"
        );
        for kernel in &KERNELS {
            let owned = owners_in_xfs(sector, |queried| {
                Ok::<_, ()>(kernel.answer(&used, size, queried))
            });
            assert_eq!(owned, Ok(vec![(sector, [Owner::Inode(131)].into())]));
        }
    }

    #[test]
    fn what_has_an_owner_in_an_xfs_is_never_free_whichever_kernel_answers() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut used, mut at) = (Vec::new(), 0);
            for inode in 100..130 {
                at += random.u64(0..3) * random.u64(0..600);
                let len = random.u64(1..600);
                used.push(file(at * BLOCK, len * BLOCK, inode));
                at += len;
            }
            let size = (at + random.u64(0..3)) * BLOCK;
            let start = random.u64(0..size / 512 - 1) * 512;
            let range = extent(start, 512 * random.u64(1..3000).min((size - start) / 512));
            for kernel in &KERNELS {
                let owned = owners_in_xfs(range, |queried| {
                    Ok::<_, ()>(kernel.answer(&used, size, queried))
                });
                let owned = owned.unwrap();
                for (piece, owners) in &owned {
                    let of_it = used.iter().filter(|record| {
                        let here = extent(record.physical, record.length);
                        here.overlap(*piece).is_some()
                    });
                    let expected = of_it.map(|record| Owner::Inode(record.owner));
                    let mut expected: BTreeSet<Owner> = expected.collect();
                    if expected.is_empty() {
                        expected.insert(Owner::Free);
                    }
                    assert_eq!(*owners, expected, "seed {seed}, {piece:?} of {range:?}");
                }
                // All of it but the filesystem's last block.
                let open = gaps(range, owned.iter().map(|(piece, _)| *piece));
                let last = extent(size - BLOCK, BLOCK);
                let is_last = |open: &Extent| open.overlap(last) == Some(*open);
                let fits = open.is_empty() || (kernel.short && open.iter().all(is_last));
                assert!(fits, "seed {seed}, {range:?}: {open:?}");
            }
        }
    }

    #[test]
    fn a_group_that_does_not_read_hides_only_what_is_queried_of_it() {
        let group = 128 << 20;
        let used = [
            file(group - 8 * BLOCK, 8 * BLOCK, 131),
            file(group, BLOCK, 132),
        ];
        let mut calls = 0;
        let mut query = |queried: Extent| {
            calls += 1;
            if queried.end() > group {
                return Err("Input/output error");
            }
            Ok(KERNELS[1].answer(&used, 2 * group, queried))
        };
        let sector = extent(group - 512, 512);
        let owned = owners_in_xfs(sector, &mut query);
        assert_eq!(owned, Ok(vec![(sector, [Owner::Inode(131)].into())]));
        let sector = extent(group, 512);
        assert_eq!(owners_in_xfs(sector, &mut query), Err("Input/output error"));
        // Each may cost a drive seconds.
        assert_eq!(calls, 4);
    }
}
