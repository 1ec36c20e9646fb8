//! Unreadable places in a drive's own logs. A log is history: each entry is read once, and not reported if the read
//! succeeds.

use std::collections::BTreeSet;

use drivebay_model::Extent;
use drivebay_smart::facts::LoggedPlace;

/// Largest number of entries that are kept; one poll has fewer.
const MOST: usize = 256;
/// Least bytes of a read: places within one such block are read together.
const BLOCK: u64 = 4096;

/// Entries whose places were queued to be read.
#[derive(Debug, Default)]
pub(super) struct ReadEntries(BTreeSet<LoggedPlace>);

impl ReadEntries {
    /// Passes the places of new entries to `take`, which returns false if it has no room; such a place is passed again after
    /// the next poll. A light poll does not have all logs, so entries that it lacks are not forgotten.
    pub(super) fn hand_over(
        &mut self,
        logged: &[LoggedPlace],
        sector: u32,
        mut take: impl FnMut(Extent) -> bool,
    ) {
        let new = logged.iter().filter(|place| !self.0.contains(place));
        let new: Vec<LoggedPlace> = new.copied().collect();
        let mut taken = BTreeSet::new();
        for place in new {
            let Some(place_read) = extent(place.lba, sector) else {
                continue;
            };
            if taken.contains(&place_read) || take(place_read) {
                taken.insert(place_read);
                self.0.insert(place);
            }
        }
        if self.0.len() > MOST {
            self.0.retain(|place| logged.contains(place));
        }
    }
}

/// Returns the blocks that contain a logical sector of `sector` bytes; None if they are beyond the address space.
fn extent(lba: u64, sector: u32) -> Option<Extent> {
    let sector = u64::from(sector);
    let start = lba.checked_mul(sector)?;
    let end = start.checked_add(sector)?.checked_next_multiple_of(BLOCK)?;
    let start = start - start % BLOCK;
    Some(Extent {
        start,
        len: end - start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Vec<LoggedPlace> {
        // Two in one block.
        [(9, 800), (8, 1601), (7, 1602), (4, 16)]
            .map(|(entry, lba)| LoggedPlace { entry, lba })
            .to_vec()
    }

    fn handed_over(read: &mut ReadEntries, logged: &[LoggedPlace], room: usize) -> Vec<u64> {
        let mut all = Vec::new();
        read.hand_over(logged, 512, |place| {
            assert_eq!((place.start % BLOCK, place.len), (0, BLOCK));
            let has_room = all.len() < room;
            if has_room {
                all.push(place.start);
            }
            has_room
        });
        all
    }

    fn blocks(lbas: &[u64]) -> Vec<u64> {
        lbas.iter().map(|lba| lba / 8 * BLOCK).collect()
    }

    #[test]
    fn each_entry_of_a_log_is_read_once_and_a_newer_one_of_the_same_sector_again() {
        let mut read = ReadEntries::default();
        let mut logged = log();
        let all = handed_over(&mut read, &logged, usize::MAX);
        assert_eq!(all, blocks(&[800, 1601, 16]));
        assert!(handed_over(&mut read, &logged, usize::MAX).is_empty());
        // A light poll has no error log.
        assert!(handed_over(&mut read, &[], usize::MAX).is_empty());
        assert!(handed_over(&mut read, &logged, usize::MAX).is_empty());
        logged[0].entry += 5;
        let again = handed_over(&mut read, &logged, usize::MAX);
        assert_eq!(again, blocks(&[logged[0].lba]));
    }

    #[test]
    fn a_place_that_had_no_room_is_handed_over_after_the_next_poll() {
        let mut read = ReadEntries::default();
        let logged = log();
        assert_eq!(handed_over(&mut read, &logged, 1).len(), 1);
        assert_eq!(handed_over(&mut read, &logged, usize::MAX).len(), 2);
        assert_eq!(handed_over(&mut read, &logged, usize::MAX).len(), 0);
    }

    #[test]
    fn what_is_remembered_of_a_log_that_goes_on_for_years_is_bounded() {
        let mut read = ReadEntries::default();
        for entry in 0..10_000 {
            let lba = entry * 8;
            let logged = [LoggedPlace { entry, lba }];
            assert_eq!(handed_over(&mut read, &logged, usize::MAX).len(), 1);
            assert!(read.0.len() <= MOST, "{}", read.0.len());
        }
    }

    #[test]
    fn a_place_beyond_every_drive_is_none() {
        assert_eq!(extent(u64::MAX / 512, 512), None);
        let start = 12_345 * 4096;
        assert_eq!(extent(12_345, 4096), Some(Extent { start, len: 4096 }));
    }
}
