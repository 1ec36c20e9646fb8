//! Which worker takes a sample for NodeGetVolumeStats.
//!
//! The kubelet asks for each volume every minute or two, and no process may be started for it. A worker kept for each drive
//! costs 200 to 600 KiB, so that a few are kept for all. Sampling can hang in a drive, and then costs the others that have the same
//! worker one sample: the drive gets its own worker until that one has answered, and they get a new one.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::model::DriveId;

/// Workers for all drives that answer. A drive always has the same one, so that it cannot hang in several at a time.
pub const LANES: usize = 4;

#[derive(Debug, Default)]
struct State {
    // How many workers each lane has lost.
    lost: [u32; LANES],
    alone: HashSet<DriveId>,
}

/// Which drives share a worker.
#[derive(Debug, Default)]
pub struct Samplers(Mutex<State>);

/// A worker that several drives share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shared {
    lane: usize,
    number: u32,
}

impl Shared {
    /// The name of its slot.
    pub(super) fn worker(self) -> DriveId {
        DriveId(format!("samples.{}.{}", self.lane, self.number))
    }
}

impl Samplers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker of a drive; None: its own.
    pub(super) fn of(&self, drive: &DriveId) -> Option<Shared> {
        let state = self.lock();
        let bytes = drive.0.bytes().map(usize::from);
        let lane = bytes.sum::<usize>() % LANES;
        let number = *state.lost.get(lane)?;
        (!state.alone.contains(drive)).then_some(Shared { lane, number })
    }

    /// It hangs in this drive: nobody is to ask it again, and the drive nobody else's.
    pub(super) fn hangs(&self, worker: Shared, drive: &DriveId) {
        self.is_lost(worker);
        self.lock().alone.insert(drive.clone());
    }

    /// It is of no use any more.
    pub(super) fn is_lost(&self, worker: Shared) {
        if let Some(number) = self.lock().lost.get_mut(worker.lane)
            && *number == worker.number
        {
            *number = number.wrapping_add(1);
        }
    }

    /// The drive's own worker has answered.
    pub(super) fn answers(&self, drive: &DriveId) {
        self.lock().alone.remove(drive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(name: &str) -> DriveId {
        DriveId(name.to_owned())
    }

    #[test]
    fn all_drives_share_a_few_workers() {
        let samplers = Samplers::default();
        let workers: HashSet<DriveId> = (0..100)
            .map(|number| drive(&format!("serial-{number}")))
            .map(|drive| samplers.of(&drive).unwrap().worker())
            .collect();
        assert_eq!(workers.len(), LANES);
    }

    #[test]
    fn a_drive_that_hangs_is_alone_until_it_answers_and_the_others_get_another_worker() {
        let samplers = Samplers::default();
        // The same bytes, so the same lane.
        let (hung, other) = (drive("ab"), drive("ba"));
        let first = samplers.of(&hung).unwrap();
        assert_eq!(samplers.of(&other), Some(first));

        samplers.hangs(first, &hung);
        assert_eq!(samplers.of(&hung), None);
        let second = samplers.of(&other).unwrap();
        assert_ne!(second, first);
        // Whoever hears of it later takes nothing from the new one.
        samplers.is_lost(first);
        assert_eq!(samplers.of(&other), Some(second));

        samplers.answers(&hung);
        assert_eq!(samplers.of(&hung), Some(second));
    }
}
