//! One process of a simulated node's agent: its inventory stream, what it holds back, and its end.

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

/// Time after which the space of a deleted volume is free again.
const ERASE: Duration = Duration::from_secs(2);

/// One process of a machine's agent. Clones share it.
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
    // True while creations are carried out but not answered.
    held: watch::Sender<bool>,
    // True while changes are not sent.
    hushed: watch::Sender<bool>,
    // Counts how often the first snapshot was sent again.
    replayed: watch::Sender<u64>,
    streams: AtomicUsize,
    placements: KeptPlacements,
    over: CancellationToken,
}

/// An open inventory stream; counted until dropped.
struct Open(SimNode);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.inner.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SimNode {
    /// Starts a process: a new instance at revision 1. An earlier process of the machine can no longer change anything.
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

    /// Ends this process: its streams end, and pending calls are not answered.
    pub fn end(&self) {
        self.inner.over.cancel();
    }

    /// Carries out creations from now on without answering them.
    pub fn hold_create(&self) {
        self.inner.held.send_replace(true);
    }

    /// Sends no further changes in the inventory.
    pub fn hush(&self) {
        self.inner.hushed.send_replace(true);
    }

    /// Answers and sends everything held back.
    pub fn go_on(&self) {
        self.inner.held.send_replace(false);
        self.inner.hushed.send_replace(false);
    }

    /// Sends this process's first snapshot again on every stream, although it is outdated.
    pub fn replay_old_snapshot(&self) {
        // Ensures that the snapshot is outdated.
        self.publish(|_| true);
        self.inner.replayed.send_modify(|count| *count += 1);
    }

    /// Returns the number of inventory streams, one per controller.
    pub fn streams(&self) -> usize {
        self.inner.streams.load(Ordering::Relaxed)
    }

    /// Returns the id of a volume of this node.
    pub fn id(&self, uuid: Uuid) -> String {
        self.inner.sender.id(uuid)
    }

    /// Changes the contents, and sends the change if `change` returns true; returns the revision that contains it.
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

    /// Returns the sender of its updates.
    pub(super) fn sender(&self) -> &Sender {
        &self.inner.sender
    }

    /// Returns the id of its machine.
    pub(super) fn machine_id(&self) -> &str {
        &self.inner.machine_id
    }

    /// Returns the placements that it keeps; lost at the end of this process, as an agent's are.
    pub(super) fn placements(&self) -> &KeptPlacements {
        &self.inner.placements
    }

    /// Returns the current revision.
    pub(super) fn revision(&self) -> u64 {
        self.inner.now.borrow().revision
    }

    /// Waits until creations may be answered. Errs when this process ends.
    pub(super) async fn may_answer(&self) -> Result<(), Status> {
        let mut held = self.inner.held.subscribe();
        tokio::select! {
            _ = held.wait_for(|held| !held) => Ok(()),
            () = self.inner.over.cancelled() => Err(Status::unavailable("this agent has ended")),
        }
    }

    /// Makes a change for a call; returns its result, and the revision that contains it.
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

    /// Returns the message of a volume.
    pub(super) fn volume(&self, uuid: Uuid) -> Option<Volume> {
        let now = self.inner.now.borrow();
        let volume = now.contents.volumes.get(&uuid)?;
        Some(self.inner.sender.volume(uuid, volume))
    }

    /// Returns the uuid of an id of this node.
    pub(super) fn uuid(&self, id: &str) -> Option<Uuid> {
        let id: VolumeId = id.parse().ok()?;
        (id.node == self.inner.sender.node).then_some(id.uuid)
    }

    /// Frees the space of a deleted volume after `ERASE`.
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

    /// Sends the inventory until the reader disconnects or this process ends.
    pub(super) async fn stream_inventory(
        self,
        updates: mpsc::Sender<Result<InventoryUpdate, Status>>,
    ) {
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
                // Changes come before the outdated snapshot.
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

/// Waits for a change that may be sent.
async fn changed(
    now: &mut watch::Receiver<Snapshot>,
    hushed: &mut watch::Receiver<bool>,
) -> Result<(), watch::error::RecvError> {
    // Marked as changed again: the caller reads it.
    now.changed().await?;
    now.mark_changed();
    hushed.wait_for(|hushed| !hushed).await?;
    Ok(())
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
