//! The task that fills new volumes, and takes away the snapshots that were taken for it.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    fill::FillError,
    next::{Action, actions},
};
use crate::{
    tasks::Tasks,
    volumes::{Caller, Volumes},
};
use drivebay_model::{DriveId, cause::chain};

/// After a failure a volume is left alone for this long, and twice as long after each further one …
const RETRY: Duration = Duration::from_secs(5);
/// … up to this long.
const RETRY_AT_MOST: Duration = Duration::from_secs(15 * 60);
/// While somebody uses what is to be copied, or is about to.
const RETRY_USED: Duration = Duration::from_secs(1);

impl Volumes {
    /// Fills volumes until stopped.
    pub async fn copy_all(&self, stop: CancellationToken) {
        let mut snapshots = self.node.inventory().subscribe();
        let mut tasks: Tasks<(Uuid, Option<DriveId>), Result<(), FillError>> = Tasks::default();
        let mut writing: BTreeSet<DriveId> = BTreeSet::new();
        let copies = &self.inner.copies;
        loop {
            let snapshot = snapshots.borrow_and_update().clone();
            let now = Instant::now();
            let (resting, wake) = copies.resting(now);
            let left_alone: BTreeSet<Uuid> =
                copies.busy.borrow().union(&resting).copied().collect();
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
                    self.copy_ended(uuid, ended).await;
                }
            }
        }
    }

    async fn act_on_copy(self, action: Action) -> Result<(), FillError> {
        match action {
            Action::Fill { uuid, .. } => self.fill(uuid).await,
            Action::Drop { volume, snapshot } => {
                let current = self.node.inventory().current();
                let volume = current.volumes.get(&volume).ok_or(FillError::Changed)?;
                let what = volume.uuid.to_string();
                let held = self.guard_volume(volume.uuid, &what, Caller::Mover)?;
                self.drop_held(&held, volume, snapshot).await?;
                Ok(())
            }
        }
    }

    /// Notes how a task ended.
    async fn copy_ended(&self, uuid: Uuid, ended: Option<Result<(), FillError>>) {
        let copies = &self.inner.copies;
        let before = copies.running(uuid);
        let (waits_for, rest) = match ended {
            Some(Ok(()) | Err(FillError::Changed)) => return copies.end(uuid),
            Some(Err(FillError::NotNow(why))) => (why, RETRY_USED),
            Some(Err(FillError::Never(why))) => match self.give_up_copy(uuid, &why).await {
                Ok(()) | Err(FillError::Changed) => return copies.end(uuid),
                Err(error) => (chain(&error), pause(before.failures)),
            },
            Some(Err(error)) => (chain(&error), pause(before.failures)),
            None => {
                let why = "an internal task failed; see the log".to_owned();
                (why, pause(before.failures))
            }
        };
        if waits_for != before.waits_for {
            tracing::warn!(volume = %uuid, why = waits_for, "copy to a new volume does not go on; will retry");
        }
        copies.change(uuid, |running| {
            running.bytes_per_second = 0;
            running.rest_until = Some(Instant::now() + rest);
            running.failures = running.failures.saturating_add(1);
            running.waits_for = waits_for;
        });
    }
}

/// How long a volume is left alone after so many failures and one more. Pure.
fn pause(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    RETRY.saturating_mul(factor).min(RETRY_AT_MOST)
}
