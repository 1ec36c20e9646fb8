//! Background task that executes requested moves, and what interrupted moves still need.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    MovePhase,
    copy::MoveError,
    evacuate::Automatic,
    next::{Action, actions},
};
use crate::{
    state::{TRY_EVERY, moves::MoveProgress},
    tasks::Tasks,
    volumes::{Volumes, rest::Rest},
};
use drivebay_model::{Snapshot, cause::chain};

/// Backoff after failed attempts to move a volume: each attempt reads the source from its start.
const RETRY: Rest = Rest {
    first: Duration::from_secs(10),
    most: Duration::from_secs(60 * 60),
};
/// Delay after unreadable sectors: an operator has to act first, and a failing drive must not be read repeatedly.
const RETRY_UNREADABLE: Duration = Duration::from_secs(24 * 60 * 60);
/// Delay after the volume was used, or changed otherwise: not zero, since the use may continue.
const RETRY_USED: Duration = Duration::from_secs(2);
/// Interval at which the time of old places is counted; at most this much is lost when an agent ends.
const COUNT: Duration = Duration::from_secs(60);

impl Volumes {
    /// Executes moves until `stop` is cancelled.
    pub async fn move_all(&self, stop: CancellationToken) {
        let mut snapshots = self.node.inventory().subscribe();
        let mut tasks: Tasks<Uuid, Result<(), MoveError>> = Tasks::default();
        let mut busy: BTreeSet<Uuid> = BTreeSet::new();
        let delay = self.node.config().old_place_delay.as_secs();
        let mut count = tokio::time::interval(COUNT.min(Duration::from_secs(delay.max(1))));
        count.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut again = tokio::time::interval(TRY_EVERY);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // At least as often as the time for which a verdict must hold, so that the decision is not late.
        let held = self.node.config().automatic.delay;
        let mut decide = tokio::time::interval(held.clamp(Duration::from_secs(1), TRY_EVERY));
        decide.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut counted = Instant::now();
        let mut automatic = Automatic::default();
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let moves = &self.inner.moves;
            let now = Instant::now();
            automatic.observe(self, &snapshot, &busy, now).await;
            let (resting, wake) = moves.resting(now);
            let left_alone: BTreeSet<Uuid> = busy.iter().chain(&resting).copied().collect();
            // While the issued commits are unknown, nothing is decided.
            let next = match moves.saved.unread() {
                Some(_) => Vec::new(),
                None => actions(&snapshot, &moves.saved.all(), &left_alone, delay),
            };
            for action in next {
                let uuid = action.uuid();
                if busy.insert(uuid) {
                    moves.change(uuid, |running| running.is_active = true);
                    tasks.spawn(uuid, self.clone().act_until(action, stop.clone()));
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = snapshots.changed() => if changed.is_err() { return },
                () = moves.news.notified() => {}
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
                now = count.tick() => {
                    let elapsed = now.saturating_duration_since(counted).as_secs();
                    counted += Duration::from_secs(elapsed);
                    self.count_old_places(&snapshot, elapsed).await;
                }
                _ = again.tick() => self.read_moves_again().await,
                now = decide.tick() => automatic.decide(self, &snapshot, now),
                true = automatic.begun() => {}
                Some((uuid, ended)) = tasks.next() => {
                    busy.remove(&uuid);
                    automatic.attempt_ended(moves.saved.of(uuid).as_ref(), ended.as_ref());
                    self.ended(uuid, ended);
                }
            }
        }
    }

    async fn act_until(self, action: Action, stop: CancellationToken) -> Result<(), MoveError> {
        tokio::select! {
            result = self.act(action) => result,
            () = stop.cancelled() => Ok(()),
        }
    }

    async fn act(&self, action: Action) -> Result<(), MoveError> {
        match action {
            Action::Revert { uuid, drive } => self.revert(uuid, &drive).await,
            Action::Fence { uuid, drive } => self.fence(uuid, &drive).await,
            Action::DropCopy { uuid, drive, place } | Action::DropOld { uuid, drive, place } => {
                self.drop_place(uuid, &drive, place).await
            }
            Action::KeepOld { uuid, drive } => self.keep_old(uuid, &drive).await,
            Action::Copy { uuid } => self.move_one(uuid).await,
            Action::Confirm { uuid } => {
                let record = self.inner.moves.saved.of(uuid);
                match record.and_then(|record| record.note().cloned()) {
                    Some(note) => Ok(self.moved(uuid, note).await?),
                    None => Ok(()),
                }
            }
            Action::Forget { uuid } => {
                self.forget_move(uuid).await?;
                tracing::info!(volume = %uuid, "move forgotten; nothing is left to do about it");
                Ok(())
            }
        }
    }

    /// Records how a task ended, and when the next attempt is due.
    fn ended(&self, uuid: Uuid, ended: Option<Result<(), MoveError>>) {
        let moves = &self.inner.moves;
        let before = moves.running(uuid);
        let (failed, rest) = match &ended {
            Some(Ok(())) => (String::new(), None),
            Some(Err(MoveError::Used | MoveError::Changed)) => (String::new(), Some(RETRY_USED)),
            Some(Err(error @ MoveError::Unreadable { .. })) => {
                (chain(error), Some(RETRY_UNREADABLE))
            }
            Some(Err(error)) => (chain(error), Some(RETRY.after(before.failures))),
            None => {
                let why = "an internal task failed; see the log".to_owned();
                (why, Some(RETRY.after(before.failures)))
            }
        };
        if !failed.is_empty() && failed != before.failed {
            tracing::error!(volume = %uuid, error = failed, "move failed; will retry");
        }
        if rest.is_none() && moves.saved.of(uuid).is_none() {
            moves.end(uuid);
            return self.publish_attempt(uuid);
        }
        let is_unreadable = matches!(&ended, Some(Err(MoveError::Unreadable { .. })));
        moves.change(uuid, |running| {
            running.is_active = false;
            running.phase = MovePhase::Waiting;
            running.bytes_per_second = 0;
            running.stop = CancellationToken::new();
            running.rest_until = rest.map(|rest| Instant::now() + rest);
            running.failures = match failed.is_empty() {
                true => 0,
                false => running.failures.saturating_add(1),
            };
            running.failed = failed;
            running.is_unreadable = is_unreadable;
        });
        self.publish_attempt(uuid);
    }

    /// Counts how long old places were kept, and records which volumes were used since they moved.
    async fn count_old_places(&self, snapshot: &Snapshot, elapsed: u64) {
        self.inner
            .moves
            .forget_touches(|uuid| self.is_copied_as_it_is(*uuid));
        let counted = self.save_moves_file(|file| {
            file.age(elapsed);
            for (uuid, one) in &mut file.moves {
                if let MoveProgress::Moved {
                    kept_seconds, used, ..
                } = &mut one.progress
                {
                    *kept_seconds = kept_seconds.saturating_add(elapsed);
                    *used |= snapshot
                        .volumes
                        .get(uuid)
                        .is_some_and(|volume| volume.in_use);
                }
            }
        });
        // Logged, and a finding; it is counted again.
        if let Err(error) = counted.await {
            tracing::debug!(error = %chain(&error), "cannot count how long old places are kept");
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
