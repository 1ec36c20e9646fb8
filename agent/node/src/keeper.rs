//! Persists the state of absent drives, and of deletions that could not reach them. One task writes the state files, so
//! that writes are ordered, and counts quarantines. It waits for no drive but that of the state directory.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    inventory::Inventory,
    state::{
        LastKnown, StateError, Store, TRY_EVERY, Tombstone, Tombstones, merge::differs,
        recalled_deletions,
    },
    tasks::Tasks,
};
use drivebay_model::{DriveId, Volume};
use drivebay_sys::clock::unix_seconds;

/// Interval at which quarantines are counted; the length of the quarantine if that is shorter.
const TICK: Duration = Duration::from_secs(60);
/// Shortest interval: quarantines are counted in whole seconds.
const SHORTEST_TICK: Duration = Duration::from_secs(1);
/// Longest time for which a caller waits for a write: the drive of the state directory may be unresponsive.
const SETTLE: Duration = Duration::from_secs(30);
/// Requests that may wait for the task that writes.
const QUEUE: usize = 16;

/// A deletion that must be durable before it is acknowledged.
#[derive(Debug)]
pub struct PendingTombstone {
    uuid: Uuid,
    tombstone: Tombstone,
    done: oneshot::Sender<Result<u64, StateError>>,
}

/// Recording a deletion failed.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("the agent is stopping")]
    Stopping,
    /// Writing the tombstone failed.
    #[error(transparent)]
    Write(#[from] StateError),
}

/// Request to the task that writes.
#[derive(Debug)]
pub enum KeeperRequest {
    /// Adds a tombstone, or its drives to an existing one of the volume. Replies with the revision that shows it once it is on disk, or
    /// with the error of writing it.
    AddTombstone(PendingTombstone),
    /// Removes the tombstone of this volume, if there is one. Replies with the revision that shows that once it is on disk, or with the
    /// error of writing it.
    DropTombstone(Uuid, oneshot::Sender<Result<u64, StateError>>),
    /// Writes the current state, and replies once that was tried.
    Settle(oneshot::Sender<()>),
}

/// Handle for requests to the task that writes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Keeper(mpsc::Sender<KeeperRequest>);

impl Keeper {
    /// Creates the handle, and the receiver for `run`.
    pub fn new() -> (Self, mpsc::Receiver<KeeperRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Records durably that a volume was deleted while its drive is missing. Returns the revision that shows it.
    pub async fn add_tombstone(&self, volume: &Volume) -> Result<u64, KeeperError> {
        let name = &volume.placed.record.name;
        let drives = volume.places().map(|(drive, _)| drive.clone());
        self.add_tombstone_as(volume.uuid, drives.collect(), name, false)
            .await
    }

    /// Like `add_tombstone`, for a volume that was never acknowledged and may be on a drive that cannot be read:
    /// without quarantine.
    pub async fn add_unseen_tombstone(
        &self,
        uuid: Uuid,
        drive: &DriveId,
        name: &str,
    ) -> Result<u64, KeeperError> {
        let drives = [drive.clone()].into();
        self.add_tombstone_as(uuid, drives, name, true).await
    }

    /// Like `add_tombstone`, for a volume that no drive has, and one that is plugged in later may.
    pub async fn add_deletion(&self, uuid: Uuid) -> Result<u64, KeeperError> {
        self.add_tombstone_as(uuid, BTreeSet::new(), "", false)
            .await
    }

    async fn add_tombstone_as(
        &self,
        uuid: Uuid,
        drives: BTreeSet<DriveId>,
        name: &str,
        released: bool,
    ) -> Result<u64, KeeperError> {
        let stopping = || KeeperError::Stopping;
        let (done, answer) = oneshot::channel();
        let pending = PendingTombstone {
            uuid,
            tombstone: Tombstone {
                drives,
                name: name.to_owned(),
                deleted_at: unix_seconds(),
                quarantined_seconds: 0,
                released,
            },
            done,
        };
        self.0
            .send(KeeperRequest::AddTombstone(pending))
            .await
            .map_err(|_| stopping())?;
        Ok(answer.await.map_err(|_| stopping())??)
    }

    /// Removes a tombstone durably. Returns the revision that shows it.
    pub async fn drop_tombstone(&self, uuid: Uuid) -> Result<u64, KeeperError> {
        let stopping = || KeeperError::Stopping;
        let (done, answer) = oneshot::channel();
        let sent = self.0.send(KeeperRequest::DropTombstone(uuid, done)).await;
        sent.map_err(|_| stopping())?;
        Ok(answer.await.map_err(|_| stopping())??)
    }

    /// Returns when the current state of drives is on disk, when writing it failed (which is logged and retried), or
    /// after `SETTLE`.
    pub async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        let request = async {
            if self.0.send(KeeperRequest::Settle(done)).await.is_ok() {
                // Without a reply the agent is stopping, and writes once more then.
                let _ = settled.await;
            }
        };
        if tokio::time::timeout(SETTLE, request).await.is_err() {
            tracing::warn!("timed out saving drive state; continuing");
        }
    }
}

/// Runs until stopped, then writes once more. `on_disk`: contents of the files when they were read; `delete`: deletes a
/// volume on this drive whose quarantine is over.
pub async fn run<F: Future<Output = ()> + Send + 'static>(
    inventory: Arc<Inventory>,
    quarantine: Duration,
    delete: impl Fn(DriveId, Uuid) -> F + Clone + Send + 'static,
    store: Store,
    on_disk: (LastKnown, Tombstones),
    mut requests: mpsc::Receiver<KeeperRequest>,
    stop: CancellationToken,
) {
    let mut snapshots = inventory.subscribe();
    snapshots.mark_changed();
    let (mut last_known, mut tombstones) = on_disk;
    let mut tick = tokio::time::interval(TICK.min(quarantine).max(SHORTEST_TICK));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut again = tokio::time::interval(TRY_EVERY);
    again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = tokio::time::Instant::now();
    let mut deletions = Tasks::default();
    let mut deleting = BTreeSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                write(&inventory, &store, &mut last_known, &mut tombstones).await;
                return;
            }
            request = requests.recv() => match request {
                Some(KeeperRequest::AddTombstone(pending)) => record_tombstone(&inventory, &store, &mut tombstones, pending).await,
                Some(KeeperRequest::DropTombstone(uuid, done)) => {
                    let dropped = drop_tombstone(&inventory, &store, &mut tombstones, uuid).await;
                    // The caller may have gone; a repeat finds the volume.
                    let _ = done.send(dropped);
                }
                Some(KeeperRequest::Settle(done)) => {
                    write(&inventory, &store, &mut last_known, &mut tombstones).await;
                    let _ = done.send(());
                }
                None => return,
            },
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return;
                }
                snapshots.mark_unchanged();
                write(&inventory, &store, &mut last_known, &mut tombstones).await;
            }
            now = tick.tick() => {
                // Whole seconds are counted; the rest counts with the next tick.
                let elapsed = Duration::from_secs(now.saturating_duration_since(last).as_secs());
                last += elapsed;
                let (_, due) = inventory.age(|_| {}, elapsed);
                for (drive, due) in by_drive(due) {
                    if deleting.insert(drive.clone()) {
                        let (delete, on) = (delete.clone(), drive.clone());
                        deletions.spawn(drive, async move {
                            for uuid in due {
                                delete(on.clone(), uuid).await;
                            }
                        });
                    }
                }
                write(&inventory, &store, &mut last_known, &mut tombstones).await;
            }
            _ = again.tick() => read_again(&inventory, &store, &mut last_known, &mut tombstones).await,
            // Whatever the result: a volume that was not deleted is due again at the next tick.
            Some((drive, _)) = deletions.next() => {
                deleting.remove(&drive);
            }
        }
    }
}

fn by_drive(due: Vec<(DriveId, Uuid)>) -> BTreeMap<DriveId, Vec<Uuid>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (drive, uuid) in due {
        all.entry(drive).or_default().push(uuid);
    }
    all
}

async fn record_tombstone(
    inventory: &Inventory,
    store: &Store,
    tombstones: &mut Tombstones,
    pending: PendingTombstone,
) {
    let mut next = inventory.remembered().1;
    add(&mut next, pending.uuid, pending.tombstone.clone());
    let result = store.save_tombstones(next.clone()).await.map(|()| {
        tracing::warn!(volume = %pending.uuid, drives = ?pending.tombstone.drives, "volume deleted while its drive is missing; it will be quarantined when the drive returns");
        *tombstones = next;
        inventory.update(|state| {
            add(&mut state.tombstones, pending.uuid, pending.tombstone);
        })
    });
    // The caller may have gone; a repeat finds the tombstone.
    let _ = pending.done.send(result);
}

async fn drop_tombstone(
    inventory: &Inventory,
    store: &Store,
    tombstones: &mut Tombstones,
    uuid: Uuid,
) -> Result<u64, StateError> {
    let mut next = inventory.remembered().1;
    next.volumes.remove(&uuid);
    store.save_tombstones(next.clone()).await?;
    *tombstones = next;
    Ok(inventory.update(|state| {
        state.tombstones.volumes.remove(&uuid);
    }))
}

fn add(tombstones: &mut Tombstones, uuid: Uuid, new: Tombstone) {
    match tombstones.volumes.entry(uuid) {
        Entry::Occupied(mut entry) => entry.get_mut().drives.extend(new.drives),
        Entry::Vacant(place) => {
            place.insert(new);
        }
    }
}

/// Adopts files that could not be read at start; nothing was written over them since. Tombstones first: the volumes
/// they delete have not vanished from a drive.
async fn read_again(
    inventory: &Inventory,
    store: &Store,
    last_known: &mut LastKnown,
    tombstones: &mut Tombstones,
) {
    let (read, deleted) = store.read_again().await;
    if let Some(deleted) = deleted {
        *tombstones = deleted.clone();
        inventory.update(|all| {
            all.tombstones = recalled_deletions(deleted, &all.tombstones);
        });
    }
    if let Some(read) = read {
        *last_known = read.clone();
        inventory.update(|all| all.recall_late(read));
    }
}

/// Writes the state that differs from the last write.
async fn write(
    inventory: &Inventory,
    store: &Store,
    last_known: &mut LastKnown,
    tombstones: &mut Tombstones,
) {
    let (next_last_known, next_tombstones) = inventory.remembered();
    if differs(last_known, &next_last_known) {
        // A failure is logged, and a finding of the host.
        if store.save_known(next_last_known.clone()).await.is_ok() {
            *last_known = next_last_known;
        }
    }
    if *tombstones != next_tombstones {
        let saved = store.save_tombstones(next_tombstones.clone()).await;
        if saved.is_ok() {
            *tombstones = next_tombstones;
        }
    }
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
pub mod tests;
