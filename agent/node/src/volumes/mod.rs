//! What RPCs do with volumes, on top of workers: find the drive, run the job, publish what came of it.
//!
//! Nothing here remembers what was done: every call looks at the snapshot for *where*, and its job
//! looks at the drive for *what is*. Mutating calls hold a guard (`guard`) and run as tracked tasks
//! that outlive a dropped RPC; a repeat meanwhile is answered with ABORTED, and finds the result afterwards.

pub mod adopt;
pub mod by_hand;
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
mod learned;
pub mod light;
pub mod locate;
pub mod moves;
pub mod placement;
pub mod publish;
mod quarantine;
mod reach;
pub mod release;
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
    state::{hand_mounts::HandMounts, moves::SavedMoves, underway::Underway},
};
use drivebay_fs::jobs::Usage;
use drivebay_model::{Volume, VolumeState};
pub use error::VolumeError;
pub use guard::Caller;
use guard::{Guard, Guards, Key, VolumeGuard};

/// Longest a carving job may take, queueing included. Carving writes a few MiB; a drive that needs
/// longer is in trouble, and the kubelet and the sidecars call again.
pub const CARVE_DEADLINE: Duration = Duration::from_secs(60);
/// Longest a stage may take: mkfs and journal replay on a large, slow drive. Below the kubelet's 120 s.
pub const STAGE_DEADLINE: Duration = Duration::from_secs(110);
/// Longest a publish or an unmount may take.
pub const MOUNT_DEADLINE: Duration = Duration::from_secs(20);
/// Longest a call waits for the first scan of its drive: below the deadline of every caller, the shortest of which are the
/// sidecars' 10 s. A drive that does not answer ends the wait earlier.
const SCAN_WAIT: Duration = Duration::from_secs(8);
/// Longest NodeGetVolumeStats waits for a fresh sample (invariant 8).
pub const STATS_DEADLINE: Duration = Duration::from_millis(500);

/// What RPCs do with the volumes of a node. Cheap to clone.
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
    /// Creations that drives have not answered.
    creations: in_flight::Creations,
    /// Creations that an agent after this one must know of.
    underway: Underway,
    /// Free space that somebody waits for to be zeroed.
    wanted: zeroing::Wanted,
    /// What was mounted by hand.
    hand_mounts: HandMounts,
    moves: moves::Moves,
    copies: copies::Copies,
    holders: hold::Holders,
}

impl Volumes {
    /// Of this node. `keeper` saves what calls change of the state.
    pub fn new(node: NodeContext, keeper: Keeper) -> Self {
        let inner = Inner {
            guards: Guards::default(),
            checks: checks::Checks::default(),
            samples: stats::Samples::default(),
            samplers: samplers::Samplers::new("samples", samplers::STATS),
            lookers: samplers::Samplers::new("looks", samplers::LOOKS),
            tasks: TaskTracker::new(),
            keeper,
            creations: in_flight::Creations::default(),
            underway: Underway::new(&node.config().runtime_dir),
            wanted: zeroing::Wanted::default(),
            hand_mounts: HandMounts::new(node.state_dir()),
            moves: moves::Moves::new(SavedMoves::new(node.state_dir())),
            copies: copies::Copies::default(),
            holders: hold::Holders::default(),
        };
        Self {
            node,
            inner: Arc::new(inner),
        }
    }

    /// The node that they are on.
    pub fn node(&self) -> &NodeContext {
        &self.node
    }

    /// The last samples of volumes in use, with their age.
    pub fn last_samples(&self) -> std::collections::HashMap<Uuid, (Usage, Duration)> {
        self.inner.samples.all()
    }

    /// Waits until every running change has ended, at most this long.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.tasks.close();
        tokio::time::timeout(limit, self.inner.tasks.wait())
            .await
            .is_ok()
    }

    /// Makes a change that nothing else of the same key is made beside, as a task of its own: the caller may go away, the
    /// change goes on.
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

    /// The same for a change of a volume: the guard is given to `change`, unless the caller may not have it.
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
        let held = self.guard_volume(uuid, what, caller)?;
        self.tracked(change(self.clone(), held)).await
    }

    /// The guard, unless somebody else has it.
    fn held(&self, key: Key, what: &str) -> Result<Guard, VolumeError> {
        let guard = self.inner.guards.take(key);
        guard.ok_or_else(|| VolumeError::Pending {
            what: what.to_owned(),
        })
    }

    /// Runs a change as a task of its own.
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

    /// The volume of this id, if it exists for CSI. An id of another node, or one that does not parse,
    /// is unknown.
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

    /// Like `find`, but an unknown id is an error: NOT_FOUND only when every drive could be read,
    /// else the volume may be on one that could not.
    fn require(&self, id: &str) -> Result<Volume, VolumeError> {
        self.find(id).ok_or_else(|| self.unknown(id))
    }

    /// Like `require`, for a call that needs the volume's drive: waits until that one was scanned, and for no other drive.
    /// UNAVAILABLE when that takes longer than `SCAN_WAIT`.
    pub async fn require_scanned(&self, id: &str) -> Result<Volume, VolumeError> {
        let found = self.after_scan(|| self.require(id)).await;
        found.and_then(|volume| match volume.state {
            VolumeState::NotScanned => Err(VolumeError::NotScanned {
                uuid: volume.uuid,
                drive: volume.drive,
            }),
            _ => Ok(volume),
        })
    }

    /// The volume that `find` finds, as soon as its drive was scanned or, if it finds none, every drive; what it finds when
    /// `SCAN_WAIT` is over.
    async fn after_scan(
        &self,
        find: impl Fn() -> Result<Volume, VolumeError>,
    ) -> Result<Volume, VolumeError> {
        let is_scanned = |found: &Result<Volume, VolumeError>| match found {
            Ok(volume) => volume.state != VolumeState::NotScanned,
            Err(_) => self.unreadable().is_none(),
        };
        let mut snapshots = self.node.inventory().subscribe();
        let until = tokio::time::Instant::now() + SCAN_WAIT;
        loop {
            snapshots.mark_unchanged();
            let found = find();
            if is_scanned(&found) {
                return found;
            }
            let changed = tokio::time::timeout_at(until, snapshots.changed()).await;
            if !matches!(changed, Ok(Ok(()))) {
                return find();
            }
        }
    }

    /// Waits until every drive was scanned or is late with its answer. Else, after `SCAN_WAIT`, why not everything is known.
    async fn after_first_scan(&self) -> Result<(), String> {
        let mut snapshots = self.node.inventory().subscribe();
        let ready = snapshots.wait_for(|snapshot| snapshot.ready);
        // The answer is what is known then.
        let _ = tokio::time::timeout(SCAN_WAIT, ready).await.map(drop);
        self.unreadable().map_or(Ok(()), Err)
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

    /// Why a volume that is not known may exist all the same.
    fn doubt(&self) -> Option<String> {
        let inventory = self.node.inventory();
        self.unreadable()
            .or_else(|| inventory.stranger())
            .or_else(|| inventory.unscanned())
    }

    /// Why not everything is known: the first scan is not complete.
    fn unreadable(&self) -> Option<String> {
        let snapshot = self.node.inventory().current();
        (!snapshot.ready).then(|| "the first drive scan is not complete".to_owned())
    }

    /// Whether a call is changing the volume just now.
    pub fn is_changing(&self, uuid: Uuid) -> bool {
        self.inner.guards.is_volume_held(uuid)
    }
}
