//! One bad sector anywhere in Drivebay's metadata on a drive, or in a volume, on a device that returns real errors, under a real agent. No
//! acknowledged operation is lost or reported wrongly; a good copy repairs a bad one; a fault inside a volume affects only that volume.
//! Prints a table. Every block of every region is tested in process: `agent/layout/src/partition/bad_blocks.rs` and
//! `agent/tests/lvm_bad_blocks.rs`. Needs root, FUSE and loop devices.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

#[path = "bad_sectors/place.rs"]
mod place;
#[path = "bad_sectors/row.rs"]
mod row;
#[path = "bad_sectors/stand.rs"]
mod stand;

use drivebay_hwtests::{faults::Outcomes, need, settings::layout};

use place::{FAULTS, Place, places};
use row::{Spec, Use};
use stand::{Table, run};

/// Runs all rows; in the emulated guest, where layout `lvm` runs, four at a time.
async fn all(specs: &[Spec], restart: bool) -> Table {
    let at_a_time = match layout().as_str() {
        "lvm" => 4,
        _ => specs.len(),
    };
    let mut table = Outcomes(Vec::new());
    for some in specs.chunks(at_a_time) {
        table.0.extend(run(some, restart).await.0);
    }
    table
}

/// Each place with one fault, each fault at several places.
#[tokio::test]
async fn one_bad_sector_loses_no_volume() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let spec = |(n, place): (usize, Place)| Spec {
        place,
        fault: FAULTS[(n + 4) % FAULTS.len()],
        used: if n % 2 == 0 { Use::Mounted } else { Use::Idle },
    };
    let specs: Vec<Spec> = places(&layout())
        .into_iter()
        .enumerate()
        .map(spec)
        .collect();
    all(&specs, true).await.print().assert();
}

/// Each place with each fault, in use and idle, with a restart of the agent and without. In the emulated guest, where this product of
/// four takes two hours, each place with each fault once: use alternates from place to place, and restarts from fault to fault.
#[tokio::test]
#[ignore = "takes a quarter of an hour: hwtests/faults --long"]
async fn no_bad_sector_loses_a_volume() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut table = Outcomes(Vec::new());
    let is_emulated = layout() == "lvm";
    for restart in [false, true] {
        for used in [Use::Idle, Use::Mounted] {
            for (row, fault) in FAULTS.into_iter().enumerate() {
                let is_turn = |column: usize| {
                    restart == row.is_multiple_of(2)
                        && (used == Use::Mounted) == (row + column).is_multiple_of(2)
                };
                let specs: Vec<Spec> = places(&layout())
                    .into_iter()
                    .enumerate()
                    .filter(|(column, _)| !is_emulated || is_turn(*column))
                    .map(|(_, place)| Spec { place, fault, used })
                    .collect();
                if !specs.is_empty() {
                    table.0.extend(all(&specs, restart).await.print().0);
                }
            }
        }
    }
    table.assert();
}
