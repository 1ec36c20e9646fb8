//! One life of a simulated node's agent: what it tells of the drives, what it holds back, and its end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use drivebay_common::kept_placements::KeptPlacements;
use drivebay_proto::{
    VolumeId,
    agent::{InventoryUpdate, Volume},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use uuid::Uuid;

use super::{
    contents::{Contents, Refused},
    feed::{Sender, Snapshot},
    machine::Machine,
};

/// A deleted volume's space is free again after this.
const ERASE: Duration = Duration::from_secs(2);

/// One life of a machine's agent. Clones are the same agent.
#[derive(Debug, Clone)]
pub struct SimNode {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    machine: Arc<Machine>,
    machine_id: String,
    life: u64,
    sender: Sender,
    first: Snapshot,
    now: watch::Sender<Snapshot>,
    // Creations are carried out and not answered.
    held: watch::Sender<bool>,
    // Changes are not told.
    hushed: watch::Sender<bool>,
    // Counts the times the first snapshot was told again.
    replayed: watch::Sender<u64>,
    streams: AtomicUsize,
    placements: KeptPlacements,
    over: CancellationToken,
}

/// One open stream of the inventory, counted while it is.
struct Open(SimNode);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.inner.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SimNode {
    /// Starts a life: a new instance at revision 1. A former life of the machine changes nothing any more.
    pub fn start(machine: &Arc<Machine>) -> Self {
        let (life, machine_id, contents) = machine.begin();
        let first = Snapshot {
            revision: 1,
            contents,
        };
        let inner = Inner {
            machine: machine.clone(),
            machine_id,
            life,
            sender: Sender {
                node: machine.node().to_owned(),
                instance: Uuid::new_v4().to_string(),
            },
            now: watch::Sender::new(first.clone()),
            first,
            held: watch::Sender::new(false),
            hushed: watch::Sender::new(false),
            replayed: watch::Sender::new(0),
            streams: AtomicUsize::new(0),
            placements: KeptPlacements::default(),
            over: CancellationToken::new(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Ends this life: its streams end, and what waits for an answer gets none.
    pub fn end(&self) {
        self.inner.over.cancel();
    }

    /// Creations are carried out and not answered, from now on.
    pub fn hold_create(&self) {
        self.inner.held.send_replace(true);
    }

    /// What happens is not told in the inventory, from now on.
    pub fn hush(&self) {
        self.inner.hushed.send_replace(true);
    }

    /// Answers and tells what was held back.
    pub fn go_on(&self) {
        self.inner.held.send_replace(false);
        self.inner.hushed.send_replace(false);
    }

    /// Tells this life's first snapshot again on every stream, though things have changed since.
    pub fn replay_old_snapshot(&self) {
        // So that it is old in any case.
        self.publish(|_| true);
        self.inner.replayed.send_modify(|count| *count += 1);
    }

    /// How many controllers follow its inventory.
    pub fn streams(&self) -> usize {
        self.inner.streams.load(Ordering::Relaxed)
    }

    /// The id of a volume of this node.
    pub fn id(&self, uuid: Uuid) -> String {
        self.inner.sender.id(uuid)
    }

    /// Changes the contents and tells of it, if `change` says that it did something; the revision that shows it.
    pub fn publish(&self, change: impl FnOnce(&mut Contents) -> bool) -> u64 {
        let inner = &self.inner;
        inner.machine.change(inner.life, change, |contents| {
            inner.now.send_modify(|now| {
                now.revision += 1;
                now.contents = contents;
            });
        });
        inner.now.borrow().revision
    }

    /// Who it is.
    pub(super) fn sender(&self) -> &Sender {
        &self.inner.sender
    }

    /// The id of the machine that it runs on.
    pub(super) fn machine_id(&self) -> &str {
        &self.inner.machine_id
    }

    /// The nodes that it keeps for names; forgotten at the end of this life, as an agent's are.
    pub(super) fn placements(&self) -> &KeptPlacements {
        &self.inner.placements
    }

    /// The revision of what it knows.
    pub(super) fn revision(&self) -> u64 {
        self.inner.now.borrow().revision
    }

    /// Waits until creations may be answered.
    pub(super) async fn may_answer(&self) -> Result<(), Status> {
        let mut held = self.inner.held.subscribe();
        tokio::select! {
            _ = held.wait_for(|held| !held) => Ok(()),
            () = self.inner.over.cancelled() => Err(Status::unavailable("this agent has ended")),
        }
    }

    /// Makes a change that somebody waits for: its result, and the revision that shows it.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Contents) -> Result<(T, bool), Refused>,
    ) -> Result<(T, u64), Status> {
        if self.inner.over.is_cancelled() {
            return Err(Status::unavailable("this agent has ended"));
        }
        let mut result = None;
        let revision = self.publish(|contents| match change(contents) {
            Ok((value, changed)) => {
                result = Some(Ok(value));
                changed
            }
            Err(refused) => {
                result = Some(Err(refused));
                false
            }
        });
        match result {
            Some(Ok(value)) => Ok((value, revision)),
            Some(Err(refused)) => Err(refused.into()),
            None => Err(Status::unavailable("a newer agent runs on this machine")),
        }
    }

    /// A volume, as it is told.
    pub(super) fn volume(&self, uuid: Uuid) -> Option<Volume> {
        let now = self.inner.now.borrow();
        let volume = now.contents.volumes.get(&uuid)?;
        Some(self.inner.sender.volume(uuid, volume))
    }

    /// The uuid in an id of this node.
    pub(super) fn uuid(&self, id: &str) -> Option<Uuid> {
        let id: VolumeId = id.parse().ok()?;
        (id.node == self.inner.sender.node).then_some(id.uuid)
    }

    /// Frees the space of a deleted volume after a while.
    pub fn erase_later(&self, uuid: Uuid) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = this.inner.over.cancelled() => {}
                () = tokio::time::sleep(ERASE) => {
                    this.publish(|contents| contents.erase(&uuid));
                }
            }
        });
    }

    /// Tells the inventory until the reader goes away, or this life ends.
    pub(super) async fn tell(self, updates: mpsc::Sender<Result<InventoryUpdate, Status>>) {
        let inner = &self.inner;
        inner.streams.fetch_add(1, Ordering::Relaxed);
        let _open = Open(self.clone());
        let mut now = inner.now.subscribe();
        let mut hushed = inner.hushed.subscribe();
        let mut replayed = inner.replayed.subscribe();
        let mut last = now.borrow_and_update().clone();
        let mut update = inner.sender.full(&last);
        loop {
            let sent = tokio::select! {
                () = inner.over.cancelled() => return,
                sent = updates.send(Ok(update)) => sent,
            };
            if sent.is_err() {
                return;
            }
            update = tokio::select! {
                // What has changed comes before the snapshot that is older than it.
                biased;
                () = inner.over.cancelled() => return,
                () = updates.closed() => return,
                _ = changed(&mut now, &mut hushed) => {
                    let next = now.borrow_and_update().clone();
                    let update = inner.sender.changes(&last, &next);
                    last = next;
                    update
                }
                _ = replayed.changed() => inner.sender.full(&inner.first),
            };
        }
    }
}

/// Waits for a change that may be told.
async fn changed(
    now: &mut watch::Receiver<Snapshot>,
    hushed: &mut watch::Receiver<bool>,
) -> Result<(), watch::error::RecvError> {
    // Not seen yet: it is looked at when it is told.
    now.changed().await?;
    now.mark_changed();
    hushed.wait_for(|hushed| !hushed).await?;
    Ok(())
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
