//! What is known of the health of drives and volumes: evidence, and what follows from it.
//!
//! `kmsg` reads the kernel's words, `attribute` finds whose they are, `stalls` sees requests that stand
//! still, `mounts` what should be mounted, `reading` places that do not read, `device` and `space` what their names
//! say, `book` keeps what was seen and says what it adds up to, all purely. The tasks that feed them: `watch` (the
//! kernel log and its counters), `mount_watch`, `fsevents` (filesystems' own word), `look` (asks each drive for a
//! little now and then), `smart`, and `checks`, which has filesystems checked. `memory` keeps over a restart what cannot be seen again.

use std::{collections::BTreeMap, time::Duration};

use uuid::Uuid;

use crate::{model::snapshot::Trouble, sys::clock::since_boot, volumes::Volumes};

pub mod acknowledge;
pub mod attribute;
pub mod book;
pub mod changes;
pub mod checks;
pub mod device;
pub mod fsevents;
pub mod kmsg;
pub mod look;
pub mod memory;
pub mod mount_watch;
pub mod mounts;
pub mod reading;
pub mod smart;
pub mod space;
pub mod stalls;
pub mod watch;

pub use acknowledge::Acknowledger;
pub use book::Book;
use book::Source;

/// The book's time: since boot, moved so far that what was seen before the boot has a time, too.
pub fn now() -> Duration {
    at(since_boot())
}

/// A time since boot as the book's time.
pub fn at(since_boot: Duration) -> Duration {
    since_boot + book::COUNTS_FOR
}

/// Tells the book what one source sees of these volumes: nothing is wrong with those that are not in `wrong`.
/// A change is published, and logged by who follows the snapshots (`changes`); no change costs next to nothing.
fn tell(
    volumes: &Volumes,
    source: Source,
    looked_at: impl Iterator<Item = Uuid>,
    mut wrong: BTreeMap<Uuid, Vec<Trouble>>,
) {
    let inventory = volumes.inventory();
    let news: Vec<(Uuid, Vec<Trouble>)> = inventory.health(|book| {
        let seen = looked_at.map(|volume| (volume, wrong.remove(&volume).unwrap_or_default()));
        seen.filter(|(volume, troubles)| book.seen(*volume, source) != troubles.as_slice())
            .collect()
    });
    if news.is_empty() {
        return;
    }
    inventory.update(|known| {
        for (volume, troubles) in news {
            known.health.looked(volume, source, troubles);
        }
    });
}
