//! Places of drives that were reported as unreadable, by the kernel log, a log of the drive or a sample, and were not read since. The task
//! that reads them takes them from here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use drivebay_model::{DriveId, Extent};

/// Limit of queued places per drive: a failing drive reports a thousand per second.
const MOST: usize = 64;

/// Queued places of all drives.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<BTreeMap<DriveId, BTreeSet<Extent>>>);

impl Suspects {
    /// Queues a place. False if it is new and the queue of its drive is full; the kernel log reports it again when it is
    /// used.
    pub fn add(&self, drive: &DriveId, place: Extent) -> bool {
        let mut drives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = drives.entry(drive.clone()).or_default();
        let has_room = places.len() < MOST || places.contains(&place);
        if has_room {
            places.insert(place);
        }
        has_room
    }

    /// Returns the queued places of each drive, and empties the queues.
    pub fn drain(&self) -> BTreeMap<DriveId, BTreeSet<Extent>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_drive_are_bounded_and_taken_once() {
        let (suspects, drive) = (Suspects::default(), DriveId("wwn-a".into()));
        for place in 0..1000 {
            let (start, len) = (place / 2 * 4096, 4096);
            let has_room = suspects.add(&drive, Extent { start, len });
            assert_eq!(has_room, place / 2 < MOST as u64);
        }
        assert_eq!(suspects.drain()[&drive].len(), MOST);
        assert!(suspects.drain().is_empty());
    }
}
