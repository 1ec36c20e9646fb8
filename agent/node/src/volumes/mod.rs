//! Operations of RPCs on volumes, run by workers: find the drive, run the job, publish the result.
//!
//! No operation keeps state of its own: it reads from the snapshot *where* the volume is, and its job reads from the
//! drive *what* is there. Mutating calls hold a guard (`guard`) and run as tracked tasks that outlive a dropped RPC; a
//! repeat meanwhile fails with ABORTED, and finds the result afterwards.

pub mod adopt;
pub mod checks;
pub mod copies;
pub mod cordon;
pub mod create;
pub mod delete;
pub mod erase;
pub mod error;
pub mod expand;
mod grow;
pub mod guard;
mod hold;
pub mod in_flight;
pub mod keys;
mod learned;
pub mod light;
pub mod locate;
mod lost;
pub mod manual;
pub mod moves;
pub mod placement;
pub mod publish;
mod quarantine;
mod reach;
pub mod release;
mod rest;
pub mod samplers;
pub mod snapshots;
pub mod stage;
pub mod stats;
mod system_places;
mod unfinished;
mod unmounting;
pub mod wipe;
mod zeroing;

use std::{future::Future, sync::Arc, time::Duration};

use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::{
    context::NodeContext,
    keeper::Keeper,
    state::{hand_mounts::HandMounts, moves::SavedMoves, receipts::Receipts, underway::Underway},
};
use drivebay_fs::jobs::Usage;
use drivebay_model::{Volume, VolumeState};
pub use error::VolumeError;
pub use guard::Caller;
use guard::{Guard, Guards, Key, VolumeGuard};

/// Longest duration of a layout job, including queueing. It writes a few MiB; a drive that needs longer does not
/// respond properly, and the kubelet and the sidecars call again.
pub const LAYOUT_DEADLINE: Duration = Duration::from_secs(60);
/// Longest duration of a stage: mkfs and journal replay on a large, slow drive. Below the kubelet's 120 s.
pub const STAGE_DEADLINE: Duration = Duration::from_secs(110);
/// Longest duration of a publish or an unmount.
pub const MOUNT_DEADLINE: Duration = Duration::from_secs(20);
/// Longest a call waits for the first scan of its drive: below the deadline of every caller, the shortest of which are the
/// sidecars' 10 s. A drive that does not answer ends the wait earlier.
const SCAN_WAIT: Duration = Duration::from_secs(8);
/// Longest NodeGetVolumeStats waits for a fresh sample (invariant 8).
pub const STATS_DEADLINE: Duration = Duration::from_millis(500);

/// Operations of RPCs on the volumes of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Volumes {
    node: NodeContext,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    guards: Guards,
    checks: checks::Checks,
    samples: stats::Samples,
    samplers: samplers::Samplers,
    lookers: samplers::Samplers,
    tasks: TaskTracker,
    keeper: Keeper,
    /// Creations sent to drives and not yet answered.
    creations: in_flight::Creations,
    /// Creations that an agent after this one must resolve.
    underway: Underway,
    /// Free space whose zeroing a caller waits for.
    wanted: zeroing::Wanted,
    hand_mounts: HandMounts,
    receipts: Receipts,
    moves: moves::Moves,
    copies: copies::Copies,
    snapshots: snapshots::Ongoing,
    holders: hold::Holders,
}

impl Volumes {
    /// Creates the operations for this node. `keeper` saves the state that calls change.
    pub fn new(node: NodeContext, keeper: Keeper) -> Self {
        let inner = Inner {
            guards: Guards::default(),
            checks: checks::Checks::default(),
            samples: stats::Samples::default(),
            samplers: samplers::Samplers::new("samples", samplers::STATS),
            lookers: samplers::Samplers::new("looks", samplers::SAMPLES),
            tasks: TaskTracker::new(),
            keeper,
            creations: in_flight::Creations::default(),
            underway: Underway::new(&node.config().runtime_dir),
            wanted: zeroing::Wanted::default(),
            hand_mounts: HandMounts::new(node.state_dir()),
            receipts: Receipts::new(node.state_dir()),
            moves: moves::Moves::new(SavedMoves::new(node.state_dir())),
            copies: copies::Copies::default(),
            snapshots: snapshots::Ongoing::default(),
            holders: hold::Holders::default(),
        };
        Self {
            node,
            inner: Arc::new(inner),
        }
    }

    pub fn node(&self) -> &NodeContext {
        &self.node
    }

    /// Returns the last sample of each volume, with its age.
    pub fn last_samples(&self) -> std::collections::HashMap<Uuid, (Usage, Duration)> {
        self.inner.samples.all()
    }

    /// Waits until every running change has ended, at most `limit`. True if all have ended.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.tasks.close();
        self.inner.snapshots.close();
        tokio::time::timeout(limit, self.inner.tasks.wait())
            .await
            .is_ok()
    }

    /// Runs a change as a task of its own, which continues when the caller is dropped. Errs with `Pending` while
    /// another change holds the same key.
    async fn changing<T: Send + 'static, F>(
        &self,
        key: Key,
        what: &str,
        change: impl FnOnce(Self) -> F,
    ) -> Result<T, VolumeError>
    where
        F: Future<Output = Result<T, VolumeError>> + Send + 'static,
    {
        let guard = self.held(key, what)?;
        let change = change(self.clone());
        self.tracked(async move {
            let result = change.await;
            drop(guard);
            result
        })
        .await
    }

    /// Like `changing` for a volume: passes the guard to `change`. Errs if the caller may not take it.
    async fn changing_volume<T: Send + 'static, F>(
        &self,
        uuid: Uuid,
        what: &str,
        caller: Caller<'_>,
        change: impl FnOnce(Self, VolumeGuard) -> F,
    ) -> Result<T, VolumeError>
    where
        F: Future<Output = Result<T, VolumeError>> + Send + 'static,
    {
        let held = self.guard_for_call(uuid, what, caller).await?;
        self.tracked(change(self.clone(), held)).await
    }

    /// Takes the guard, or errs with `Pending` while another change holds it.
    fn held(&self, key: Key, what: &str) -> Result<Guard, VolumeError> {
        let guard = self.inner.guards.take(key);
        guard.ok_or_else(|| VolumeError::Pending {
            what: what.to_owned(),
        })
    }

    /// Runs a change as a task that `drain` waits for.
    async fn tracked<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, VolumeError>> + Send + 'static,
    ) -> Result<T, VolumeError> {
        match self.inner.tasks.spawn(work).await {
            Ok(result) => result,
            Err(join) if join.is_panic() => Err(VolumeError::Internal {
                what: "the change panicked; see the log".to_owned(),
            }),
            Err(_) => Err(VolumeError::Stopping),
        }
    }

    /// Returns the volume of this id, if it exists for CSI. None for an id of another node, or one that does not parse.
    pub fn find(&self, id: &str) -> Option<Volume> {
        let id: drivebay_proto::VolumeId = id.parse().ok()?;
        let snapshot = self.node.inventory().current();
        if id.node != self.node.config().node_id {
            return None;
        }
        snapshot
            .volumes
            .get(&id.uuid)
            .filter(|volume| crate::inventory::assemble::is_live(volume.state))
            .cloned()
    }

    /// Like `find`, but an unknown id is an error: NOT_FOUND only when every drive could be read; else the volume may
    /// be on one that could not.
    fn require(&self, id: &str) -> Result<Volume, VolumeError> {
        self.find(id).ok_or_else(|| self.unknown(id))
    }

    /// Like `require`, for a call that needs the volume's drive: waits until that one was scanned, and for no other drive.
    /// UNAVAILABLE when that takes longer than `SCAN_WAIT`.
    pub async fn require_scanned(&self, id: &str) -> Result<Volume, VolumeError> {
        let result = self.after_scan(|| self.require(id)).await;
        result.and_then(|volume| match volume.state {
            VolumeState::NotScanned => Err(VolumeError::NotScanned {
                uuid: volume.uuid,
                drive: volume.drive,
            }),
            _ => Ok(volume),
        })
    }

    /// Calls `find` until the drive of its volume was scanned or, while it finds none, every drive. Returns the current
    /// result when `SCAN_WAIT` is over.
    async fn after_scan(
        &self,
        find: impl Fn() -> Result<Volume, VolumeError>,
    ) -> Result<Volume, VolumeError> {
        let is_scanned = |result: &Result<Volume, VolumeError>| match result {
            Ok(volume) => volume.state != VolumeState::NotScanned,
            Err(_) => self.unreadable().is_none(),
        };
        let mut snapshots = self.node.inventory().subscribe();
        let until = tokio::time::Instant::now() + SCAN_WAIT;
        loop {
            snapshots.mark_unchanged();
            let result = find();
            if is_scanned(&result) {
                return result;
            }
            let changed = tokio::time::timeout_at(until, snapshots.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return find();
            }
        }
    }

    /// Waits until every drive was scanned or is late with its answer.
    ///
    /// # Errors
    /// `CannotTell` for this id or name, after `SCAN_WAIT`.
    async fn after_first_scan(&self, id: &str) -> Result<(), VolumeError> {
        let mut snapshots = self.node.inventory().subscribe();
        let ready = snapshots.wait_for(|snapshot| snapshot.ready);
        // After a timeout the current state decides.
        let _ = tokio::time::timeout(SCAN_WAIT, ready).await.map(drop);
        self.unreadable().map_or(Ok(()), |why| {
            Err(VolumeError::CannotTell {
                id: id.to_owned(),
                why,
            })
        })
    }

    fn unknown(&self, id: &str) -> VolumeError {
        let ours = id
            .parse::<drivebay_proto::VolumeId>()
            .is_ok_and(|id| id.node == self.node.config().node_id);
        match self.doubt() {
            Some(why) if ours => VolumeError::CannotTell {
                id: id.to_owned(),
                why,
            },
            _ => VolumeError::NotFound { id: id.to_owned() },
        }
    }

    /// Returns why a volume that is not listed may still exist.
    fn doubt(&self) -> Option<String> {
        let inventory = self.node.inventory();
        self.unreadable()
            .or_else(|| inventory.stranger())
            .or_else(|| inventory.unscanned())
    }

    /// Returns why the inventory is incomplete: the first scan is not complete.
    fn unreadable(&self) -> Option<String> {
        let snapshot = self.node.inventory().current();
        (!snapshot.ready).then(|| "the first drive scan is not complete".to_owned())
    }

    /// True if a call is changing the volume.
    pub fn is_changing(&self, uuid: Uuid) -> bool {
        self.inner.guards.is_volume_held(uuid)
    }
}
