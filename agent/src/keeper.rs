//! Keeps what is remembered of absent drives and of deletions that could not reach them: one task
//! writes the state files, so that writes have an order, and counts quarantines down.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    inventory::Inventory,
    model::{Volume, cause::chain},
    state::{Known, StateError, Store, Tombstone, Tombstones, merge::differs},
    sys::clock::unix_seconds,
    volumes::{VolumeError, Volumes},
};

/// How often quarantines are counted down.
const TICK: Duration = Duration::from_secs(60);
/// Burials that wait for a write.
const QUEUE: usize = 16;

/// A deletion that must be durable before it is answered.
#[derive(Debug)]
pub struct Burial {
    uuid: uuid::Uuid,
    tombstone: Tombstone,
    done: oneshot::Sender<Result<u64, StateError>>,
}

/// Asks for burials. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Keeper(mpsc::Sender<Burial>);

impl Keeper {
    /// The handle, and what `run` takes.
    pub fn new() -> (Self, mpsc::Receiver<Burial>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Notes durably that a volume was deleted while its drive is away. Answers the revision that shows it.
    pub async fn bury(&self, volume: &Volume) -> Result<u64, VolumeError> {
        let stopping = || VolumeError::Internal {
            what: "the agent is stopping".to_owned(),
        };
        let (done, answer) = oneshot::channel();
        let burial = Burial {
            uuid: volume.uuid,
            tombstone: Tombstone {
                drive: volume.drive.clone(),
                name: volume.placed.record.name.clone(),
                deleted_at: unix_seconds(),
                quarantined_seconds: 0,
                released: false,
            },
            done,
        };
        self.0.send(burial).await.map_err(|_| stopping())?;
        answer
            .await
            .map_err(|_| stopping())?
            .map_err(|source| VolumeError::Remember {
                uuid: volume.uuid,
                source,
            })
    }
}

/// Runs until stopped, and writes once more then.
pub async fn run(
    volumes: Volumes,
    store: Store,
    mut burials: mpsc::Receiver<Burial>,
    stop: CancellationToken,
) {
    let inventory: Arc<Inventory> = volumes.inventory().clone();
    let mut snapshots = inventory.subscribe();
    let (mut known, mut tombstones) = inventory.remembered();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = tokio::time::Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => {
                write(&inventory, &store, &mut known, &mut tombstones).await;
                return;
            }
            burial = burials.recv() => match burial {
                Some(burial) => bury(&inventory, &store, &mut tombstones, burial).await,
                None => return,
            },
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return;
                }
                snapshots.mark_unchanged();
                write(&inventory, &store, &mut known, &mut tombstones).await;
            }
            now = tick.tick() => {
                let (_, due) = inventory.age(|_| {}, now.saturating_duration_since(last));
                last = now;
                for (drive, uuid) in due {
                    volumes.delete_quarantined(&drive, uuid).await;
                }
                write(&inventory, &store, &mut known, &mut tombstones).await;
            }
        }
    }
}

async fn bury(inventory: &Inventory, store: &Store, tombstones: &mut Tombstones, burial: Burial) {
    let mut next = inventory.remembered().1;
    next.volumes
        .entry(burial.uuid)
        .or_insert_with(|| burial.tombstone.clone());
    let result = store.save_tombstones(next.clone()).await.map(|()| {
        tracing::warn!(volume = %burial.uuid, drive = %burial.tombstone.drive, "volume deleted while its drive is away; it will be quarantined when the drive returns");
        *tombstones = next;
        inventory.update(|known| {
            known
                .tombstones
                .volumes
                .entry(burial.uuid)
                .or_insert(burial.tombstone);
        })
    });
    // Whoever asked may have gone; the repeat finds it buried.
    let _ = burial.done.send(result);
}

/// Writes what differs from what was written last.
async fn write(
    inventory: &Inventory,
    store: &Store,
    known: &mut Known,
    tombstones: &mut Tombstones,
) {
    let (next_known, next_tombstones) = inventory.remembered();
    if differs(known, &next_known) {
        match store.save_known(next_known.clone()).await {
            Ok(()) => *known = next_known,
            Err(error) => {
                tracing::error!(error = %chain(&error), "what is known of drives is not saved; a drive missing at the next start would not be listed")
            }
        }
    }
    if *tombstones != next_tombstones {
        match store.save_tombstones(next_tombstones.clone()).await {
            Ok(()) => *tombstones = next_tombstones,
            Err(error) => tracing::error!(error = %chain(&error), "quarantines are not saved"),
        }
    }
}
