//! Moving volumes to other drives of the node while nobody uses them.
//!
//! `request` is what is asked for; `plan` decides whether and where to, `next` what is to be done now, both purely; `copy` copies, at the
//! rate of `pace`, and `unreadable` tells data from free space where the source does not read; `complete` changes the records in the
//! order that `PlaceState` and `judge` rest on, `old_place` ends what a move left behind. `automatic` decides which drive is evacuated
//! without a request and `stop` when that ends, both purely; `evacuate` does both.

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
    collections::BTreeMap,
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

use super::{VolumeError, Volumes};
use crate::{
    inventory::Attempt,
    state::moves::{self, MoveRecord, SavedMoves},
};
use drivebay_model::DriveId;

/// Moves of a node: what is durably known of them, and what goes on.
#[derive(Debug)]
pub(super) struct Moves {
    saved: SavedMoves,
    running: Mutex<BTreeMap<Uuid, Running>>,
    /// Changes that orchestrators and people began to make to volumes since the agent's start: what was copied before one is out of
    /// date.
    touched: Mutex<BTreeMap<Uuid, u64>>,
    /// Drives whose verdict calls for an evacuation by their class, and why they are not evacuated.
    not_evacuated: Mutex<Vec<(DriveId, String)>>,
    /// Something of them has changed.
    news: Notify,
}

/// A move that is being worked on.
#[derive(Debug, Clone)]
struct Running {
    phase: MovePhase,
    done_bytes: u64,
    total_bytes: u64,
    bytes_per_second: u64,
    /// An earlier copy is there, which may be out of date.
    has_copy: bool,
    /// Of the last attempt; empty: none failed.
    failed: String,
    /// It failed since the source does not read everywhere.
    is_unreadable: bool,
    /// Attempts that failed one after the other.
    failures: u32,
    /// It is left alone until then.
    rest_until: Option<Instant>,
    /// A task works on it.
    is_active: bool,
    /// Ends that task.
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

    /// What the inventory has of it.
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

    /// Somebody begins to change a volume.
    pub(super) fn touch(&self, uuid: Uuid) {
        *lock(&self.touched).entry(uuid).or_insert(0) += 1;
        self.news.notify_one();
    }

    /// Whether a move of the volume was asked for and is not completed.
    pub(super) fn is_asked(&self, uuid: Uuid) -> bool {
        self.saved
            .of(uuid)
            .is_some_and(|record| !record.has_moved())
    }

    pub(super) fn touches(&self, uuid: Uuid) -> u64 {
        lock(&self.touched).get(&uuid).copied().unwrap_or(0)
    }

    /// Forgets the counts of volumes that nobody moves, nor copies.
    fn forget_touches(&self, is_copied: impl Fn(&Uuid) -> bool) {
        let moved = self.saved.all();
        lock(&self.touched).retain(|uuid, _| moved.contains_key(uuid) || is_copied(uuid));
    }

    fn running(&self, uuid: Uuid) -> Running {
        lock(&self.running).get(&uuid).cloned().unwrap_or_default()
    }

    /// Volumes that are left alone now, and when the first of them is not any more.
    fn resting(&self, now: Instant) -> (Vec<Uuid>, Option<Instant>) {
        let running = lock(&self.running);
        let resting = running.iter().filter_map(|(uuid, running)| {
            let until = running.rest_until.filter(|until| *until > now)?;
            Some((*uuid, until))
        });
        let resting: Vec<(Uuid, Instant)> = resting.collect();
        let first = resting.iter().map(|(_, until)| *until).min();
        (resting.into_iter().map(|(uuid, _)| uuid).collect(), first)
    }

    fn change(&self, uuid: Uuid, change: impl FnOnce(&mut Running)) {
        change(lock(&self.running).entry(uuid).or_default());
    }

    /// Forgets what went on about a volume that is not moved any more.
    fn end(&self, uuid: Uuid) {
        lock(&self.running).remove(&uuid);
    }
}

impl Volumes {
    /// Reads which moves an earlier agent was asked for.
    pub async fn load_moves(&self) {
        self.inner.moves.saved.load().await;
        self.publish_moves();
    }

    /// Reads the file of moves again if it could not be read, when that is due.
    pub(super) async fn read_moves_again(&self) {
        self.inner.moves.saved.read_again().await;
        self.publish_moves();
    }

    /// The inventory says how an attempt stands. Nothing is published while that is the same, such as with each step of a copy.
    fn publish_attempt(&self, uuid: Uuid) {
        let attempt = self.inner.moves.running(uuid).attempt();
        self.node.inventory().put_attempt(uuid, attempt);
    }

    /// The inventory judges places by what is durably known of moves.
    fn publish_moves(&self) -> u64 {
        let all = self.inner.moves.saved.all();
        self.node.inventory().update(|known| known.moves = all)
    }

    /// Forgets a move, durably. Answers the revision that shows it.
    async fn forget_move(&self, uuid: Uuid) -> Result<u64, VolumeError> {
        let forget = |all: &mut BTreeMap<Uuid, MoveRecord>| {
            all.remove(&uuid);
        };
        self.save_moves(forget).await
    }

    /// Changes what is durably known of moves, then what the inventory has. Answers the revision that shows it.
    async fn save_moves(
        &self,
        change: impl FnOnce(&mut BTreeMap<Uuid, MoveRecord>) + Send,
    ) -> Result<u64, VolumeError> {
        self.save_moves_file(|file| change(&mut file.moves)).await
    }

    /// The same with all that is saved with the moves.
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

/// Longest that a change of a record may take.
const RECORD_DEADLINE: Duration = super::CARVE_DEADLINE;
