//! Places of drives that were reported as unreadable, by the kernel log, a log of the drive or a sample, and were not read since. The task
//! that reads them takes them from here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use drivebay_model::{DriveId, Extent};

/// Places of one drive that wait: a failing drive reports a thousand a second.
const MOST: usize = 64;

/// Of every drive.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<BTreeMap<DriveId, BTreeSet<Extent>>>);

impl Suspects {
    /// A place was reported. False: it has no room. One of the kernel log is reported again when it is used.
    pub fn add(&self, drive: &DriveId, place: Extent) -> bool {
        let mut drives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = drives.entry(drive.clone()).or_default();
        let has_room = places.len() < MOST || places.contains(&place);
        if has_room {
            places.insert(place);
        }
        has_room
    }

    /// The places of each drive since this was asked last.
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
