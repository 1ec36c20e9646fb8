//! Moving volumes to other drives of the node while they are not in use.
//!
//! `request` has the requests and their results; `plan` decides on admission and targets, `next` on the steps to do
//! now, both purely; `copy` copies at the rate of `pace`, and `unreadable` distinguishes data from free space where the
//! source cannot be read; `complete` changes the records in the order that `PlaceState` and `judge` rely on, and
//! `old_place` removes what a move left. `automatic` decides which drive is evacuated without a request and `stop` when
//! that ends, both purely; `evacuate` performs both.

mod automatic;
mod complete;
mod copy;
mod evacuate;
mod next;
mod old_place;
mod pace;
mod plan;
mod request;
mod retire;
mod run;
mod stop;
mod unreadable;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(super) use pace::Pace;
pub use request::{
    Cancelled, MovePhase, MovePlan, MoveRequest, MoveScope, MoveStatus, PlannedMove, Retirement,
};

use super::{VolumeError, Volumes, rest::resting};
use crate::{
    inventory::Attempt,
    state::moves::{self, MoveRecord, SavedMoves},
};
use drivebay_model::DriveId;

/// Moves of a node: the persisted records, and the state of this agent's attempts.
#[derive(Debug)]
pub(super) struct Moves {
    saved: SavedMoves,
    running: Mutex<BTreeMap<Uuid, Running>>,
    /// Number of changes by orchestrators and operators that began since the agent's start, by volume: data copied
    /// before one is out of date.
    touched: Mutex<BTreeMap<Uuid, u64>>,
    /// Drives whose verdict requires an evacuation by their class, with the reason for which they are not evacuated.
    not_evacuated: Mutex<Vec<(DriveId, String)>>,
    /// Notified when anything about moves has changed.
    news: Notify,
}

/// State of a move in this agent.
#[derive(Debug, Clone)]
struct Running {
    phase: MovePhase,
    done_bytes: u64,
    total_bytes: u64,
    bytes_per_second: u64,
    /// True: an earlier copy exists, which may be out of date.
    has_copy: bool,
    /// Error of the last attempt; empty: it did not fail.
    failed: String,
    /// True: it failed because parts of the source cannot be read.
    is_unreadable: bool,
    /// Consecutive failed attempts, which determine the delay before the next one. Reset by an attempt that does not fail, and by a new
    /// request.
    failures: u32,
    /// Time until which no attempt is made.
    rest_until: Option<Instant>,
    /// True while a task works on the move.
    is_active: bool,
    /// Cancelled to end that task.
    stop: CancellationToken,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            phase: MovePhase::Waiting,
            done_bytes: 0,
            total_bytes: 0,
            bytes_per_second: 0,
            has_copy: false,
            failed: String::new(),
            is_unreadable: false,
            failures: 0,
            rest_until: None,
            is_active: false,
            stop: CancellationToken::new(),
        }
    }
}

impl Running {
    fn eta_seconds(&self) -> u64 {
        let left = self.total_bytes.saturating_sub(self.done_bytes);
        left.checked_div(self.bytes_per_second).unwrap_or(0)
    }

    /// Returns the state that the inventory shows.
    fn attempt(&self) -> Option<Attempt> {
        match self.phase {
            MovePhase::Copying | MovePhase::Completing => Some(Attempt::Copying),
            _ if self.failed.is_empty() => None,
            _ if self.is_unreadable => Some(Attempt::Unreadable(self.failed.clone())),
            _ => Some(Attempt::Failed(self.failed.clone())),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Moves {
    pub(super) fn new(saved: SavedMoves) -> Self {
        Self {
            saved,
            running: Mutex::default(),
            touched: Mutex::default(),
            not_evacuated: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Counts a change of a volume that begins now. A copy in progress reads the count before each step; which moves are due does not
    /// depend on it, so that no task is woken at each call.
    pub(super) fn touch(&self, uuid: Uuid) {
        *lock(&self.touched).entry(uuid).or_insert(0) += 1;
    }

    /// True if a move of the volume was requested and is not completed.
    pub(super) fn is_requested(&self, uuid: Uuid) -> bool {
        self.saved
            .of(uuid)
            .is_some_and(|record| !record.has_moved())
    }

    pub(super) fn touches(&self, uuid: Uuid) -> u64 {
        lock(&self.touched).get(&uuid).copied().unwrap_or(0)
    }

    /// Removes the counts of volumes that are neither moved nor copied.
    fn forget_touches(&self, is_copied: impl Fn(&Uuid) -> bool) {
        let moved = self.saved.all();
        lock(&self.touched).retain(|uuid, _| moved.contains_key(uuid) || is_copied(uuid));
    }

    fn running(&self, uuid: Uuid) -> Running {
        lock(&self.running).get(&uuid).cloned().unwrap_or_default()
    }

    /// Returns the volumes whose moves must not be retried at `now`, and the time of the earliest retry among them.
    fn resting(&self, now: Instant) -> (BTreeSet<Uuid>, Option<Instant>) {
        let running = lock(&self.running);
        let rests = running.iter();
        resting(
            rests.map(|(uuid, running)| (*uuid, running.rest_until)),
            now,
        )
    }

    fn change(&self, uuid: Uuid, change: impl FnOnce(&mut Running)) {
        change(lock(&self.running).entry(uuid).or_default());
    }

    /// Removes the state of a volume that is not moved any more.
    fn end(&self, uuid: Uuid) {
        lock(&self.running).remove(&uuid);
    }
}

impl Volumes {
    /// Loads and publishes the moves that were requested of an earlier agent.
    pub async fn load_moves(&self) {
        self.inner.moves.saved.load().await;
        self.publish_moves();
    }

    /// Retries reading the file of moves if it could not be read, when due.
    pub(super) async fn read_moves_again(&self) {
        self.inner.moves.saved.read_again().await;
        self.publish_moves();
    }

    /// Publishes the state of an attempt. Nothing is published while that stays the same, such as at each step of a
    /// copy.
    fn publish_attempt(&self, uuid: Uuid) {
        let attempt = self.inner.moves.running(uuid).attempt();
        self.node.inventory().put_attempt(uuid, attempt);
    }

    /// Publishes the persisted moves, by which the inventory judges places.
    fn publish_moves(&self) -> u64 {
        let all = self.inner.moves.saved.all();
        self.node.inventory().update(|state| state.moves = all)
    }

    /// Removes a move durably. Returns the revision that shows it.
    async fn forget_move(&self, uuid: Uuid) -> Result<u64, VolumeError> {
        let forget = |all: &mut BTreeMap<Uuid, MoveRecord>| {
            all.remove(&uuid);
        };
        self.save_moves(forget).await
    }

    /// Changes the persisted moves, then the inventory. Returns the revision that shows the change.
    async fn save_moves(
        &self,
        change: impl FnOnce(&mut BTreeMap<Uuid, MoveRecord>) + Send,
    ) -> Result<u64, VolumeError> {
        self.save_moves_file(|file| change(&mut file.moves)).await
    }

    /// Like `save_moves`, for everything that is saved with the moves.
    async fn save_moves_file(
        &self,
        change: impl FnOnce(&mut moves::Moves) + Send,
    ) -> Result<u64, VolumeError> {
        let saved = self.inner.moves.saved.change(change);
        saved
            .await
            .map_err(|source| VolumeError::MoveNotSaved { source })?;
        let revision = self.publish_moves();
        self.inner.moves.news.notify_one();
        Ok(revision)
    }
}

/// Longest duration of a change of a record.
const RECORD_DEADLINE: Duration = super::LAYOUT_DEADLINE;
