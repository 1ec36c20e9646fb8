//! Background task that fills new volumes, and deletes the snapshots that were taken for that.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    fill::FillError,
    lock,
    next::{Action, actions},
};
use crate::{
    tasks::Tasks,
    volumes::{Caller, Volumes, rest::Rest},
};
use drivebay_layout::jobs::CopyError;
use drivebay_model::{DriveId, VolumeState, cause::chain};
use drivebay_worker::RunError;

/// Backoff after failed attempts to fill a volume, or to delete the snapshot of a copy.
const RETRY: Rest = Rest {
    first: Duration::from_secs(5),
    most: Duration::from_secs(15 * 60),
};
/// Delay before the next attempt while the source is in use or cannot be read.
const RETRY_USED: Duration = Duration::from_secs(1);

impl Volumes {
    /// Runs all due actions until `stop` is cancelled.
    pub async fn copy_all(&self, stop: CancellationToken) {
        let mut snapshots = self.node.inventory().subscribe();
        let mut tasks: Tasks<(Uuid, Option<DriveId>), Result<(), FillError>> = Tasks::default();
        let mut writing: BTreeSet<DriveId> = BTreeSet::new();
        let copies = &self.inner.copies;
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let now = Instant::now();
            let (resting, wake) = copies.resting(now);
            let mut left_alone: BTreeSet<Uuid> =
                copies.busy.borrow().union(&resting).copied().collect();
            // An attempt would end at once, and be repeated without a delay.
            left_alone.extend(lock(&copies.ending).iter());
            for action in actions(&snapshot, &left_alone, &writing) {
                let (uuid, drive) = match &action {
                    Action::Fill { uuid, drive } => (*uuid, Some(drive.clone())),
                    Action::Drop { snapshot, .. } => (*snapshot, None),
                };
                copies.busy.send_modify(|busy| {
                    busy.insert(uuid);
                });
                writing.extend(drive.clone());
                let (this, stop) = (self.clone(), stop.clone());
                tasks.spawn((uuid, drive), async move {
                    tokio::select! {
                        result = this.act_on_copy(action) => result,
                        () = stop.cancelled() => Ok(()),
                    }
                });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = snapshots.changed() => if changed.is_err() { return },
                () = copies.news.notified() => {}
                () = sleep_until(wake.unwrap_or(now)), if wake.is_some() => {}
                Some(((uuid, drive), ended)) = tasks.next() => {
                    copies.busy.send_modify(|busy| {
                        busy.remove(&uuid);
                    });
                    if let Some(drive) = &drive {
                        writing.remove(drive);
                    }
                    self.copy_ended(uuid, drive.is_some(), ended);
                }
            }
        }
    }

    async fn act_on_copy(self, action: Action) -> Result<(), FillError> {
        match action {
            Action::Fill { uuid, .. } => match self.fill(uuid).await {
                Err(FillError::Never(why)) => self.give_up_copy(uuid, &why).await,
                Err(FillError::Superseded) => self.drop_superseded(uuid).await,
                ended => ended,
            },
            Action::Drop { volume, snapshot } => {
                let current = self.node.inventory().current();
                let volume = current.volumes.get(&volume).ok_or(FillError::Changed)?;
                let what = volume.uuid.to_string();
                let held = self.guard_volume(volume.uuid, &what, Caller::Background)?;
                self.drop_held(&held, volume, snapshot).await?;
                Ok(())
            }
        }
    }

    /// Records the result of a task and when to retry. `is_fill`: it filled this volume; else it deleted this snapshot.
    fn copy_ended(&self, uuid: Uuid, is_fill: bool, ended: Option<Result<(), FillError>>) {
        let copies = &self.inner.copies;
        let before = copies.running(uuid);
        let is_target = matches!(
            &ended,
            Some(Err(FillError::Copy(RunError::Job(CopyError::Target(_)))))
        );
        let (waits_for, rest, failures) = match ended {
            Some(Ok(()) | Err(FillError::Changed)) => return copies.end(uuid),
            Some(Err(FillError::NotNow(why))) => (why, RETRY_USED, 0),
            failed => {
                let why = match failed {
                    Some(Err(error)) => chain(&error),
                    _ => "an internal task failed; see the log".to_owned(),
                };
                let failures = before.failures;
                (why, RETRY.after(failures), failures.saturating_add(1))
            }
        };
        if is_fill && !self.is_copying(uuid) {
            return copies.end(uuid);
        }
        if waits_for != before.waits_for {
            let reason = &waits_for;
            match is_fill {
                true => {
                    tracing::warn!(volume = %uuid, reason, "copy to a new volume paused; will retry")
                }
                false => {
                    tracing::warn!(snapshot = %uuid, reason, "cannot delete the snapshot of a copy that has ended; will retry")
                }
            }
        }
        copies.change(uuid, |running| {
            running.bytes_per_second = 0;
            running.rest_until = Some(Instant::now() + rest);
            running.failures = failures;
            running.waits_for = waits_for;
            // Blocks of the target that cannot be read are replaced by being written.
            running.is_fresh |= is_target;
        });
    }

    fn is_copying(&self, uuid: Uuid) -> bool {
        let current = self.node.inventory().current();
        let volume = current.volumes.get(&uuid);
        volume.is_some_and(|volume| volume.state == VolumeState::Copying)
    }
}
