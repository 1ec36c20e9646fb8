//! Erases deleted volumes, and the stores of deleted snapshots, in the background: one at a time per drive, in steps of
//! a second, throttled, and resumed after a restart from the progress on the drive.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::field::display;
use uuid::Uuid;

use super::Volumes;
use crate::{
    state::receipts::{Receipt, Signed},
    tasks::Tasks,
};
use drivebay_layout::jobs::{EraseStep, LayoutError};
use drivebay_model::{
    CreatedFor, DriveId, DriveRef, DriveState, ErasePolicy, RecordState, Snapshot, Zeroing,
    cause::chain, snapshot::Erasing,
};
use drivebay_sys::clock::unix_seconds;
use drivebay_worker::{RunError, Slot};

/// Longest time that one step works before it releases the slot.
const BUDGET: Duration = Duration::from_millis(1000);
/// Longest duration of a step in all, on a slow drive and with the flock at its end.
const DEADLINE: Duration = Duration::from_secs(120);
/// Delay before an erase is retried after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// The next volume or store to erase on a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Next {
    drive: DriveRef,
    /// Uuid of the volume, or erase guid of the store.
    uuid: Uuid,
    is_store: bool,
    done: u64,
    total: u64,
}

/// A volume or store whose erasing failed.
#[derive(Debug, Clone, Copy)]
struct Failed {
    /// Until then it is not tried, and others of its drive are erased.
    until: Instant,
    /// True: the next attempt begins again from its start.
    anew: bool,
}

/// Returns the first volume to erase on each drive, or if there is none the first store, other than `failed` ones. Pure.
fn waiting(snapshot: &Snapshot, failed: impl Fn(Uuid) -> bool) -> Vec<Next> {
    snapshot
        .drives
        .values()
        .filter(|drive| drive.state == DriveState::Claimed)
        .filter_map(|drive| {
            let contents = drive.contents.as_ref()?;
            // The drive's finding says what to do; repeated attempts would wear it out.
            if contents.space.zeroing == Zeroing::Fails {
                return None;
            }
            let next = |uuid, is_store, done, total| Next {
                drive: DriveRef::from(&drive.facts),
                uuid,
                is_store,
                done,
                total,
            };
            let volumes = contents.volumes.iter();
            let volumes = volumes.filter(|placed| placed.ambiguous.is_none());
            let volumes = volumes.filter_map(|placed| match placed.record.state {
                RecordState::Erasing { done_bytes, .. } => {
                    let record = &placed.record;
                    Some(next(record.uuid, false, done_bytes, record.extent.len))
                }
                _ => None,
            });
            let stores = contents.deleted_stores.iter();
            let stores =
                stores.map(|store| next(store.erase_guid, true, store.done_bytes, store.bytes));
            volumes.chain(stores).find(|next| !failed(next.uuid))
        })
        .collect()
}

/// True if a volume or a store of this uuid is known. Pure.
fn is_known(snapshot: &Snapshot, uuid: Uuid) -> bool {
    let contents = snapshot
        .drives
        .values()
        .filter_map(|drive| drive.contents.as_ref());
    let mut stores = contents.flat_map(|contents| &contents.deleted_stores);
    snapshot.volumes.contains_key(&uuid) || stores.any(|store| store.erase_guid == uuid)
}

/// Returns the time of the earliest retry that is not due yet; None if there is none. One whose retry is due waits for its drive,
/// which other events announce: it must not wake the task repeatedly. Pure.
fn retry(failed: &BTreeMap<Uuid, Failed>, now: Instant) -> Option<Instant> {
    let later = failed.values().map(|one| one.until);
    later.filter(|until| *until > now).min()
}

/// True if a volume or store is not tried now because its erasing failed. Pure.
fn rests(failed: &BTreeMap<Uuid, Failed>, uuid: Uuid, now: Instant) -> bool {
    failed.get(&uuid).is_some_and(|one| one.until > now)
}

/// Returns the byte at which the first step resumes, by the recorded progress; None: it begins again from the start.
/// Pure.
fn resume(noted: u64, anew: bool) -> Option<u64> {
    (!anew).then_some(noted)
}

/// True if the next attempt begins again from the start: data was found that should be erased, or this attempt had to begin again and
/// completed no step (`from`, the byte at which its next step begins, is None). Pure.
fn begins_again(not_erased: bool, from: Option<u64>) -> bool {
    not_erased || from.is_none()
}

/// Returns the seconds until everything is erased, at the rate since `first` bytes were done. 0 while the rate is
/// unknown. Pure.
fn eta_seconds(first: u64, done: u64, total: u64, took: Duration) -> u64 {
    let rate = done.saturating_sub(first) as f64 / took.as_secs_f64().max(0.001);
    if rate > 0.0 {
        (total.saturating_sub(done) as f64 / rate).ceil() as u64
    } else {
        0
    }
}

/// Returns the pause after a step that keeps the rate below the limit. Pure.
pub(super) fn rest(done: u64, took: Duration, limit: Option<u64>) -> Duration {
    limit.map_or(Duration::ZERO, |limit| {
        let wanted = Duration::from_secs_f64(done as f64 / limit.max(1) as f64);
        wanted.saturating_sub(took)
    })
}

impl Volumes {
    /// Erases deleted volumes and stores until stopped. One task per drive.
    pub async fn erase_all(&self, stop: CancellationToken) {
        let mut snapshots = self.node.inventory().subscribe();
        let mut busy: BTreeSet<DriveId> = BTreeSet::new();
        let mut failed: BTreeMap<Uuid, Failed> = BTreeMap::new();
        let mut tasks: Tasks<(DriveId, Uuid), Result<(), bool>> = Tasks::default();
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let now = Instant::now();
            failed.retain(|uuid, _| is_known(&snapshot, *uuid));
            for next in waiting(&snapshot, |uuid| rests(&failed, uuid, now)) {
                if busy.insert(next.drive.id.clone()) {
                    let this = self.clone();
                    let stop = stop.clone();
                    let anew = failed.remove(&next.uuid).is_some_and(|one| one.anew);
                    tasks.spawn((next.drive.id.clone(), next.uuid), async move {
                        tokio::select! {
                            result = this.erase_one(next, anew) => result,
                            () = stop.cancelled() => Ok(()),
                        }
                    });
                }
            }
            let retry = retry(&failed, now);
            tokio::select! {
                () = stop.cancelled() => return,
                changed = snapshots.changed() => if changed.is_err() { return },
                () = sleep_until(retry.unwrap_or(now)), if retry.is_some() => {}
                Some(((drive, uuid), ended)) = tasks.next() => {
                    busy.remove(&drive);
                    // A task that panicked has failed.
                    if let Err(anew) = ended.unwrap_or(Err(false)) {
                        let until = Instant::now() + RETRY;
                        failed.insert(uuid, Failed { until, anew });
                    }
                },
            }
        }
    }

    /// Erases a volume or store. Err: it failed; true if the next attempt must begin again from its start.
    async fn erase_one(&self, next: Next, anew: bool) -> Result<(), bool> {
        let Next {
            drive,
            uuid,
            is_store,
            done: first,
            total,
        } = next;
        let volume = (!is_store).then(|| display(uuid));
        let store = is_store.then(|| display(uuid));
        let mut from = resume(first, anew);
        let first = from.unwrap_or(0);
        // The persisted state must have the deletion before the drive's record disappears: an agent that is killed in
        // between would otherwise find a volume that was removed manually.
        self.inner.keeper.settle().await;
        let began = Instant::now();
        let mut done = first;
        let receipt = match is_store {
            true => None,
            false => self.receipt(&drive, uuid),
        };
        loop {
            let job = EraseStep {
                drive: drive.clone(),
                uuid,
                from_bytes: from,
                budget_ms: BUDGET.as_millis() as u64,
            };
            let step = Instant::now();
            match self
                .node
                .run((&drive.id, Slot::Background), job, DEADLINE)
                .await
            {
                Ok(progress) => {
                    if let Some(contents) = progress.finished {
                        if let Some(receipt) = receipt {
                            self.keep_receipt(receipt).await;
                        }
                        self.node.inventory().update(|state| {
                            state.erasing.remove(&uuid);
                        });
                        self.node.inventory().put_contents(&drive.id, contents);
                        tracing::info!(volume, store, drive = %drive.id, bytes = total, "deleted volume or snapshot erased; its space is free");
                        return Ok(());
                    }
                    let moved = progress.done_bytes.saturating_sub(done);
                    done = progress.done_bytes;
                    from = Some(done);
                    let eta_seconds =
                        eta_seconds(first, done, progress.total_bytes, began.elapsed());
                    self.node.inventory().update(|state| {
                        state.erasing.insert(
                            uuid,
                            Erasing {
                                done_bytes: done,
                                eta_seconds,
                            },
                        );
                    });
                    let pause = rest(
                        moved,
                        step.elapsed(),
                        self.node.config().erase_bytes_per_second,
                    );
                    tokio::time::sleep(pause).await;
                }
                Err(error) => {
                    tracing::error!(volume, store, drive = %drive.id, error = %chain(&error), "erase failed; the space stays allocated, will retry");
                    // Data that counted as erased is not, and the drive's record says how to continue.
                    let not_erased = matches!(error, RunError::Job(LayoutError::NotErased { .. }));
                    if not_erased {
                        self.node.inventory().update(|state| {
                            state.erasing.remove(&uuid);
                        });
                        self.reread_drive(&drive).await;
                    }
                    return Err(begins_again(not_erased, from));
                }
            }
        }
    }
}

impl Volumes {
    /// Returns the receipt of a volume that is being erased on this drive; None if not all of it is.
    fn receipt(&self, drive: &DriveRef, uuid: Uuid) -> Option<Receipt> {
        let current = self.node.inventory().current();
        let entry = current.drives.get(&drive.id)?;
        let contents = entry.contents.as_ref()?;
        let mut volumes = contents.volumes.iter();
        let placed = volumes.find(|placed| placed.record.uuid == uuid)?;
        let record = &placed.record;
        if record.erase != ErasePolicy::Zero {
            return None;
        }
        let CreatedFor {
            claim, namespace, ..
        } = CreatedFor::of(record);
        // The pieces of an LV, or one partition.
        let ranges = match placed.pieces.as_slice() {
            [] => std::slice::from_ref(&record.extent),
            pieces => pieces,
        };
        Some(Receipt {
            volume: uuid,
            name: record.name.clone(),
            class: record.class.clone(),
            claim: match claim.is_empty() {
                true => String::new(),
                false => format!("{namespace}/{claim}"),
            },
            node: self.node.config().node_id.clone(),
            drive: drive.id.to_string(),
            model: entry.facts.model.clone(),
            serial: entry.facts.serial.clone(),
            ranges: ranges.iter().map(|run| (run.start, run.len)).collect(),
            encrypted: record.encryption().is_some(),
            erased_at: 0,
        })
    }

    /// Keeps the receipt of a volume whose last byte was erased just now.
    async fn keep_receipt(&self, receipt: Receipt) {
        let uuid = receipt.volume;
        let receipt = Receipt {
            erased_at: unix_seconds(),
            ..receipt
        };
        if let Err(error) = self.inner.receipts.add(receipt).await {
            tracing::warn!(volume = %uuid, error = %chain(&error), "cannot keep the receipt of an erased volume");
        }
    }

    /// Returns the receipts of erased volumes, the oldest first.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.inner.receipts.all()
    }

    /// Returns the signed receipts of a volume; empty if there is none.
    pub fn signed_receipts(&self, volume: Uuid) -> Vec<Signed> {
        self.inner.receipts.signed(volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{
        DeletedStore,
        samples::{contents, drive, placed},
    };

    #[test]
    fn a_volume_whose_erasing_failed_does_not_keep_others_of_its_drive_from_being_erased() {
        let erasing = |n: u128| {
            let state = RecordState::Erasing {
                erase_guid: Uuid::from_u128(n + 100),
                done_bytes: 0,
            };
            placed(n, state)
        };
        let held = contents(9, 1, vec![erasing(1), erasing(2)], 0);
        let mut snapshot = Snapshot::default();
        let on = drive("sda", DriveState::Claimed, Some(held));
        snapshot.drives.insert(on.id.clone(), on);
        let first = |failed: &[u128]| {
            let failed = |uuid: Uuid| failed.contains(&uuid.as_u128());
            let next = waiting(&snapshot, failed).into_iter().next();
            next.map(|next| next.uuid.as_u128())
        };
        assert_eq!(first(&[]), Some(1));
        assert_eq!(first(&[1]), Some(2));
        assert_eq!(first(&[1, 2]), None);
    }

    #[test]
    fn stores_of_deleted_snapshots_are_erased_after_the_volumes_of_their_drive_and_resumed() {
        let erasing = RecordState::Erasing {
            erase_guid: Uuid::from_u128(101),
            done_bytes: 0,
        };
        let store = |n, done_bytes| DeletedStore {
            erase_guid: Uuid::from_u128(n),
            bytes: 9,
            done_bytes,
        };
        let mut held = contents(9, 1, vec![placed(1, erasing)], 0);
        held.deleted_stores = vec![store(2, 4), store(3, 0)];
        let mut snapshot = Snapshot::default();
        let on = drive("sda", DriveState::Claimed, Some(held));
        let id = on.id.clone();
        snapshot.drives.insert(id.clone(), on);
        let due = |snapshot: &Snapshot, failed: &[u128]| {
            let next = waiting(snapshot, |uuid| failed.contains(&uuid.as_u128()));
            let next = next.into_iter().next();
            next.map(|next| (next.uuid.as_u128(), next.is_store, next.done))
        };
        assert_eq!(due(&snapshot, &[]), Some((1, false, 0)));
        assert_eq!(due(&snapshot, &[1]), Some((2, true, 4)));
        assert_eq!(due(&snapshot, &[1, 2]), Some((3, true, 0)));
        assert_eq!(due(&snapshot, &[1, 2, 3]), None);
        assert!(is_known(&snapshot, Uuid::from_u128(3)));
        assert!(!is_known(&snapshot, Uuid::from_u128(4)));
        // The drive's finding says what to do.
        let contents = snapshot.drives.get_mut(&id).unwrap().contents.as_mut();
        contents.unwrap().space.zeroing = Zeroing::Fails;
        assert_eq!(due(&snapshot, &[]), None);
    }

    #[test]
    fn only_deleted_volumes_of_claimed_drives_are_erased_and_ambiguous_ones_are_not() {
        let erasing = |n: u128| {
            let state = RecordState::Erasing {
                erase_guid: Uuid::from_u128(n + 100),
                done_bytes: 7,
            };
            placed(n, state)
        };
        let mut ambiguous = erasing(2);
        ambiguous.ambiguous = Some("two entries".into());
        let live = placed(1, RecordState::Block);
        let snapshot = |name: &str, state, volumes| {
            let on = drive(name, state, Some(contents(9, 1, volumes, 0)));
            let mut snapshot = Snapshot::default();
            snapshot.drives.insert(on.id.clone(), on);
            snapshot
        };
        let all = vec![live.clone(), ambiguous.clone(), erasing(3)];
        let total = all[2].record.extent.len;
        let due = waiting(&snapshot("sda", DriveState::Claimed, all.clone()), |_| {
            false
        });
        let due: Vec<_> = due
            .iter()
            .map(|next| (next.uuid.as_u128(), next.done, next.total))
            .collect();
        assert_eq!(due, [(3, 7, total)]);
        let kept = snapshot("sda", DriveState::Claimed, vec![live, ambiguous]);
        assert_eq!(waiting(&kept, |_| false), []);
        for state in [DriveState::Missing, DriveState::Rejected] {
            assert_eq!(waiting(&snapshot("sda", state, all.clone()), |_| false), []);
        }
    }

    #[tokio::test]
    async fn one_that_may_be_tried_again_and_has_to_wait_for_its_drive_wakes_nobody() {
        let now = Instant::now();
        let failed = |seconds: &[u64]| {
            let all = seconds.iter().enumerate().map(|(n, seconds)| {
                let until = now + Duration::from_secs(*seconds);
                (Uuid::from_u128(n as u128), Failed { until, anew: false })
            });
            retry(&all.collect(), now)
        };
        assert_eq!(failed(&[]), None);
        assert_eq!(failed(&[0]), None);
        let soon = now + Duration::from_secs(5);
        assert_eq!(failed(&[0, 9, 5]), Some(soon));
    }

    #[tokio::test]
    async fn a_volume_whose_erasing_failed_is_left_alone_until_its_time_has_come() {
        let now = Instant::now();
        let uuid = Uuid::from_u128(1);
        let failed = |until| BTreeMap::from([(uuid, Failed { until, anew: false })]);
        let second = Duration::from_secs(1);
        assert!(rests(&failed(now + second), uuid, now));
        assert!(!rests(&failed(now), uuid, now));
        assert!(!rests(&failed(now), uuid, now + second));
        assert!(!rests(&failed(now + second), Uuid::from_u128(2), now));
    }

    #[test]
    fn erasing_goes_on_at_the_note_unless_what_was_erased_is_in_doubt() {
        assert_eq!(resume(7, false), Some(7));
        assert_eq!(resume(7, true), None);
    }

    #[test]
    fn an_erase_that_has_to_begin_again_still_has_to_after_an_attempt_without_a_step() {
        assert!(begins_again(true, Some(7)));
        assert!(begins_again(false, resume(7, true)));
        assert!(!begins_again(false, Some(0)));
    }

    #[test]
    fn the_time_that_is_left_is_computed_from_the_rate_since_the_agent_began() {
        let seconds = Duration::from_secs;
        assert_eq!(eta_seconds(0, 100, 1000, seconds(10)), 90);
        // Bytes that an earlier agent erased do not count for the rate.
        assert_eq!(eta_seconds(500, 600, 1000, seconds(10)), 40);
        assert_eq!(eta_seconds(0, 300, 1000, seconds(1)), 3);
        assert_eq!(eta_seconds(0, 1000, 1000, seconds(1)), 0);
        // Nothing done yet, or less than was noted.
        assert_eq!(eta_seconds(100, 100, 1000, seconds(1)), 0);
        assert_eq!(eta_seconds(100, 50, 1000, seconds(1)), 0);
    }

    #[test]
    fn resting_keeps_the_rate_below_the_limit() {
        let second = Duration::from_secs(1);
        assert_eq!(rest(100, second, None), Duration::ZERO);
        assert_eq!(rest(200, second, Some(100)), second);
        assert_eq!(rest(50, second, Some(100)), Duration::ZERO);
    }
}
