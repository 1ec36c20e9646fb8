//! Assigns workers to samples: for NodeGetVolumeStats, and of each drive every minute.
//!
//! The kubelet asks for each volume every minute or two, and no process may be started for it. One worker per drive
//! would cost 200 to 600 KiB each, and one per minute's sample a fork each, so a few workers are kept for all drives. A
//! sample can hang on a drive, which costs the others with the same worker one sample: that drive gets its own worker
//! until that one has answered, and the others get a new one.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::Volumes;
use drivebay_model::DriveId;
use drivebay_worker::{Job, Lane, RunError, Slot, WorkerKey};

/// Workers shared by all drives that answer, for NodeGetVolumeStats. A drive always has the same one, so that it cannot
/// hang in several at a time.
pub const STATS: u32 = 4;
/// The same for each drive's sample every minute, which no call waits for.
pub const SAMPLES: u32 = 2;

#[derive(Debug)]
struct State {
    // Number of each place's worker: a lost one is replaced by the next number of this place.
    numbers: Vec<u32>,
    alone: HashSet<DriveId>,
}

/// Assignment of drives to shared workers.
#[derive(Debug)]
pub struct Samplers {
    name: &'static str,
    state: Mutex<State>,
}

/// A worker that several drives share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    name: &'static str,
    place: usize,
    number: u32,
}

impl Shared {
    fn worker(self) -> WorkerKey {
        WorkerKey::of_group(self.name, Slot::Foreground).on(Lane::Number(self.number))
    }
}

/// Time limits of a sample, and the slot of the drive's own worker.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Limit in the worker that the drive shares.
    pub shared: Duration,
    /// Limit in its own worker. If it is longer, the drive is sampled once more after it was too slow in the shared
    /// one.
    pub own: Duration,
    /// Slot of its own worker.
    pub slot: Slot,
}

impl Samplers {
    /// Creates a group of this name with this many workers.
    pub(super) fn new(name: &'static str, workers: u32) -> Self {
        let state = State {
            numbers: (0..workers).collect(),
            alone: HashSet::new(),
        };
        Self {
            name,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shared worker of a drive; None: it uses its own.
    fn of(&self, drive: &DriveId) -> Option<Shared> {
        let state = self.lock();
        let bytes = drive.0.bytes().map(usize::from);
        let place = bytes.sum::<usize>().checked_rem(state.numbers.len())?;
        let number = *state.numbers.get(place)?;
        let name = self.name;
        (!state.alone.contains(drive)).then_some(Shared {
            name,
            place,
            number,
        })
    }

    /// Records that a worker hangs on this drive: the worker is replaced, and the drive gets its own.
    fn hangs(&self, worker: Shared, drive: &DriveId) {
        self.is_lost(worker);
        self.lock().alone.insert(drive.clone());
    }

    /// Replaces a worker that is of no use any more. No effect if it was replaced already.
    fn is_lost(&self, worker: Shared) {
        let mut state = self.lock();
        let workers = state.numbers.len() as u32;
        if let Some(number) = state.numbers.get_mut(worker.place)
            && *number == worker.number
        {
            *number = number.wrapping_add(workers);
        }
    }

    /// Records that the drive's own worker has answered: the drive returns to the shared one.
    fn answers(&self, drive: &DriveId) {
        self.lock().alone.remove(drive);
    }
}

impl Volumes {
    /// Takes a sample in the worker that the drive shares with others, or in its own after it hung in that one.
    pub(super) async fn sample_by<J: Job + Clone>(
        &self,
        samplers: &Samplers,
        drive: &DriveId,
        job: J,
        patience: Patience,
    ) -> Result<J::Answer, RunError<J::Error>> {
        let pool = self.node.pool();
        let shared = || {
            samplers
                .of(drive)
                .filter(|_| !self.node.inventory().is_stuck(drive))
        };
        // A second time where the worker was lost already, e.g. to an earlier agent.
        for _ in 0..2 {
            let Some(shared) = shared() else {
                break;
            };
            let (worker, job) = (shared.worker(), job.clone());
            match pool.run(worker, job, patience.shared).await {
                Err(RunError::Stuck { .. }) => samplers.is_lost(shared),
                Err(error @ RunError::Deadline { .. }) => {
                    samplers.hangs(shared, drive);
                    if patience.own <= patience.shared {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
        let done = pool.run((drive, patience.slot), job, patience.own).await;
        if matches!(done, Ok(_) | Err(RunError::Job(_))) {
            samplers.answers(drive);
        }
        done
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
        let samplers = Samplers::new("samples", STATS);
        let workers: HashSet<WorkerKey> = (0..100)
            .map(|number| drive(&format!("serial-{number}")))
            .map(|drive| samplers.of(&drive).unwrap().worker())
            .collect();
        assert_eq!(workers.len(), STATS as usize);
    }

    #[test]
    fn a_drive_that_hangs_is_alone_until_it_answers_and_the_others_get_another_worker() {
        let samplers = Samplers::new("samples", STATS);
        // The same bytes, so the same place.
        let (hung, other) = (drive("ab"), drive("ba"));
        let first = samplers.of(&hung).unwrap();
        assert_eq!(samplers.of(&other), Some(first));

        samplers.hangs(first, &hung);
        assert_eq!(samplers.of(&hung), None);
        let second = samplers.of(&other).unwrap();
        assert_ne!(second, first);
        // A late report of the lost worker does not affect the new one.
        samplers.is_lost(first);
        assert_eq!(samplers.of(&other), Some(second));

        samplers.answers(&hung);
        assert_eq!(samplers.of(&hung), Some(second));
    }
}
