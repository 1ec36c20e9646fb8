//! Erasing deleted volumes in the background: one at a time per drive, a second at a time, throttled,
//! resumed after a restart from what the record says.

use std::{collections::BTreeSet, time::Duration};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Volumes;
use crate::{
    carve::jobs::{CarveError, EraseStep},
    model::{DriveId, DriveRef, DriveState, RecordState, Snapshot, snapshot::Erasing},
    tasks::Tasks,
    worker::{RunError, Slot},
};

/// Longest one step works before it lets the slot go.
const BUDGET: Duration = Duration::from_millis(1000);
/// A step may take this long in all: a slow drive, and the flock at the end.
const DEADLINE: Duration = Duration::from_secs(120);
/// After a failure the drive is left alone for this long.
const RETRY: Duration = Duration::from_secs(30);

/// Drives with something to erase, and what comes first on each. Pure.
fn waiting(snapshot: &Snapshot) -> Vec<(DriveRef, Uuid, u64, u64)> {
    snapshot
        .drives
        .values()
        .filter(|drive| drive.state == DriveState::Claimed)
        .filter_map(|drive| {
            let placed = drive.contents.as_ref()?.volumes.iter().find(|placed| {
                placed.ambiguous.is_none()
                    && matches!(placed.record.state, RecordState::Erasing { .. })
            })?;
            let RecordState::Erasing { done_bytes, .. } = placed.record.state else {
                return None;
            };
            Some((
                DriveRef::from(&drive.facts),
                placed.record.uuid,
                done_bytes,
                placed.record.extent.len,
            ))
        })
        .collect()
}

/// How long to rest after a step so that the rate stays below the limit. Pure.
fn rest(done: u64, took: Duration, limit: Option<u64>) -> Duration {
    limit.map_or(Duration::ZERO, |limit| {
        let wanted = Duration::from_secs_f64(done as f64 / limit.max(1) as f64);
        wanted.saturating_sub(took)
    })
}

impl Volumes {
    /// Keeps erasing whatever is to be erased, until stopped. One task per drive.
    pub async fn erase_all(&self, stop: CancellationToken) {
        let mut snapshots = self.inner.inventory.subscribe();
        let mut busy: BTreeSet<DriveId> = BTreeSet::new();
        let mut tasks: Tasks<DriveId, ()> = Tasks::default();
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            for (drive, uuid, done, total) in waiting(&snapshot) {
                if busy.insert(drive.id.clone()) {
                    let this = self.clone();
                    let stop = stop.clone();
                    tasks.spawn(drive.id.clone(), async move {
                        tokio::select! {
                            () = this.erase_one(drive, uuid, done, total) => {}
                            () = stop.cancelled() => {}
                        }
                    });
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = snapshots.changed() => if changed.is_err() { return },
                Some((drive, ended)) = tasks.next() => match ended {
                    Some(()) => {
                        busy.remove(&drive);
                    }
                    // A task that panicked must not keep its drive from being erased, nor be begun without end.
                    None => tasks.spawn(drive, tokio::time::sleep(RETRY)),
                },
            }
        }
    }

    async fn erase_one(&self, drive: DriveRef, uuid: Uuid, mut done: u64, total: u64) {
        // What is remembered of the drive says that the volume is deleted before the drive stops saying it: an agent that
        // is killed in between would find a volume that somebody took away by hand.
        self.inner.keeper.settle().await;
        let began = tokio::time::Instant::now();
        let first = done;
        loop {
            let job = EraseStep {
                drive: drive.clone(),
                uuid,
                from_bytes: done,
                budget_ms: BUDGET.as_millis() as u64,
            };
            let step = tokio::time::Instant::now();
            match self
                .inner
                .pool
                .run(&drive.id, Slot::Background, job, DEADLINE)
                .await
            {
                Ok(progress) => {
                    if let Some(contents) = progress.finished {
                        self.inner.inventory.update(|known| {
                            known.erasing.remove(&uuid);
                        });
                        self.inner.inventory.put_contents(&drive.id, contents);
                        tracing::info!(volume = %uuid, drive = %drive.id, bytes = total, "erased; its space is free again");
                        return;
                    }
                    let moved = progress.done_bytes.saturating_sub(done);
                    done = progress.done_bytes;
                    let rate =
                        (done - first.min(done)) as f64 / began.elapsed().as_secs_f64().max(0.001);
                    self.inner.inventory.update(|known| {
                        known.erasing.insert(
                            uuid,
                            Erasing {
                                done_bytes: done,
                                eta_seconds: if rate > 0.0 {
                                    ((progress.total_bytes.saturating_sub(done)) as f64 / rate)
                                        .ceil() as u64
                                } else {
                                    0
                                },
                            },
                        );
                    });
                    let pause = rest(
                        moved,
                        step.elapsed(),
                        self.inner.config.erase_bytes_per_second,
                    );
                    tokio::time::sleep(pause).await;
                }
                Err(error) => {
                    self.note_stuck(&drive.id, &error);
                    tracing::error!(volume = %uuid, drive = %drive.id, error = %crate::model::cause::chain(&error), "erasing failed; its space stays out of use, and it is tried again");
                    tokio::time::sleep(RETRY).await;
                    if matches!(error, RunError::Job(CarveError::NotErased { .. })) {
                        // What was thought to be erased is not: from the start again.
                        done = 0;
                        continue;
                    }
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resting_keeps_the_rate_below_the_limit() {
        let second = Duration::from_secs(1);
        assert_eq!(rest(100, second, None), Duration::ZERO);
        assert_eq!(rest(200, second, Some(100)), second);
        assert_eq!(rest(50, second, Some(100)), Duration::ZERO);
    }
}
