//! Begins automatic evacuations, and ends those whose target fails: from within the task of moves, one at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::{Discriminant, discriminant},
};

use tokio::time::Instant;
use uuid::Uuid;

use super::{
    automatic::{Basis, Evacuate, Held, Obstacle, decide},
    copy::MoveError,
    lock,
    request::accepted,
    stop::{ended_by, stops},
};
use crate::{
    state::moves::{MoveProgress, MoveRecord, Moves},
    tasks::Tasks,
    volumes::{VolumeError, Volumes},
};
use drivebay_layout::jobs::CopyError;
use drivebay_model::{DriveId, Snapshot, cause::chain};
use drivebay_worker::RunError;

/// State of automatic evacuations in the task of moves; what must outlive it is in `moves.json`.
#[derive(Debug, Default)]
pub(super) struct Automatic {
    held: Held,
    /// Drives off which a move failed at its target, with that target.
    erred: BTreeMap<DriveId, DriveId>,
    /// Kind of the reason that was logged last, by drive.
    logged: BTreeMap<DriveId, Discriminant<Obstacle>>,
    beginning: Tasks<DriveId, Result<(), VolumeError>>,
}

impl Automatic {
    /// Records a snapshot, and ends the evacuations that must not continue. `busy`: volumes that a task works on.
    pub(super) async fn observe(
        &mut self,
        volumes: &Volumes,
        snapshot: &Snapshot,
        busy: &BTreeSet<Uuid>,
        now: Instant,
    ) {
        let classes = &volumes.node.config().classes;
        self.held.observe(snapshot, classes, now);
        let moves = volumes.inner.moves.saved.all();
        let is_open = |drive: &DriveId| {
            moves
                .values()
                .any(|one| one.is_automatic_and_open() && one.from == *drive)
        };
        self.erred.retain(|drive, _| is_open(drive));
        for (drive, why) in stops(snapshot, &moves, &self.erred) {
            let ended = ended_by(&drive, &moves, busy);
            if ended.is_empty() {
                continue;
            }
            match volumes.end_moves(&ended).await {
                Ok(()) => {
                    tracing::error!(%drive, reason = %why, volumes = ?ended, "automatic evacuation stopped; its moves that were not begun are cancelled");
                }
                // Retried at the next change.
                Err(error) => {
                    tracing::warn!(%drive, error = %chain(&error), "cannot stop an automatic evacuation");
                }
            }
        }
    }

    /// Records how an attempt to move a volume ended.
    pub(super) fn attempt_ended(
        &mut self,
        record: Option<&MoveRecord>,
        ended: Option<&Result<(), MoveError>>,
    ) {
        if let (Some(record), Some(Err(error))) = (record, ended)
            && record.is_automatic_and_open()
            && is_of_target(error, &record.to)
        {
            self.erred.insert(record.from.clone(), record.to.clone());
        }
    }

    /// Begins an evacuation if one is called for. Decides nothing while one is being begun.
    pub(super) fn decide(&mut self, volumes: &Volumes, snapshot: &Snapshot, now: Instant) {
        let config = volumes.node.config();
        let saved = &volumes.inner.moves.saved;
        if self.beginning.count() > 0 || saved.unread().is_some() {
            return;
        }
        let basis = Basis {
            snapshot,
            classes: &config.classes,
            saved: &saved.inspect(Moves::clone),
            node: &config.node_id,
            bounds: config.automatic,
        };
        let decision = decide(basis, &self.held, now);
        let refused: BTreeSet<&DriveId> = decision.refused.iter().map(|(drive, _)| drive).collect();
        self.logged.retain(|drive, _| refused.contains(drive));
        for (drive, obstacle) in &decision.refused {
            let kind = discriminant(obstacle);
            if self.logged.insert(drive.clone(), kind) != Some(kind) {
                tracing::warn!(%drive, reason = %obstacle, "drive is not evacuated automatically");
            }
        }
        let refused = decision.refused.iter();
        *lock(&volumes.inner.moves.not_evacuated) = refused
            .map(|(drive, obstacle)| (drive.clone(), obstacle.to_string()))
            .collect();
        if let Some(evacuate) = decision.evacuate {
            let volumes = volumes.clone();
            let drive = evacuate.drive.clone();
            self.beginning
                .spawn(drive, async move { volumes.evacuate(evacuate).await });
        }
    }

    /// Waits until an evacuation was begun, or failed to begin. False, at once, if none is being begun.
    pub(super) async fn begun(&mut self) -> bool {
        match self.beginning.next().await {
            Some((drive, Some(Err(error)))) => {
                tracing::error!(%drive, error = %chain(&error), "cannot begin an automatic evacuation; will retry");
                true
            }
            ended => ended.is_some(),
        }
    }
}

impl Volumes {
    /// Requests the moves of an automatic evacuation. Durable on success, with what they take of the day's budget.
    async fn evacuate(&self, of: Evacuate) -> Result<(), VolumeError> {
        let (drive, by) = (&of.drive, &of.request.by);
        // A drive that no longer takes writes has to be evacuated all the same.
        if let Err(error) = self.cordon_evacuated(drive, by).await {
            tracing::warn!(%drive, error = %chain(&error), "cannot cordon a drive that is evacuated automatically; its verdict keeps new volumes off it");
        }
        let plan = accepted(self.plan_moves(&of.request)?)?;
        if plan.moves.is_empty() {
            return Ok(());
        }
        tracing::warn!(%drive, verdict = %of.verdict, by, volumes = plan.moves.len(), "automatic evacuation of a drive begins");
        self.record_moves(&plan, &of.request, Some(drive)).await?;
        Ok(())
    }

    /// Removes moves that no task works on. Their copies are erased.
    async fn end_moves(&self, ended: &[Uuid]) -> Result<(), VolumeError> {
        self.save_moves(|all| {
            all.retain(|uuid, one| {
                !ended.contains(uuid) || one.progress != MoveProgress::Requested
            });
        })
        .await?;
        for uuid in ended {
            self.inner.moves.end(*uuid);
            self.publish_attempt(*uuid);
        }
        Ok(())
    }
}

/// True if a move failed because of its target; not if a worker was busy, or the failure may be due to either drive.
fn is_of_target(error: &MoveError, target: &DriveId) -> bool {
    match error {
        MoveError::Copy(RunError::Job(CopyError::Target(_) | CopyError::Differs { .. })) => true,
        MoveError::Record { drive, source } => {
            let is_drives = matches!(
                source,
                RunError::Job(_) | RunError::Stuck { .. } | RunError::Deadline { .. }
            );
            drive == target && is_drives
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_layout::jobs::LayoutError;
    use drivebay_model::samples;

    #[test]
    fn only_a_failure_of_the_target_counts_against_it() {
        let id = |name: &str| samples::facts(name).id;
        let no_volume = || LayoutError::NoSuchVolume {
            drive: "t".into(),
            uuid: Uuid::nil(),
        };
        let record = |drive: &str, source| MoveError::Record {
            drive: id(drive),
            source,
        };
        let differs = CopyError::Differs {
            drive: "t".into(),
            at: 0,
        };
        for (error, is_targets) in [
            (
                MoveError::Copy(RunError::Job(CopyError::Target(no_volume()))),
                true,
            ),
            (MoveError::Copy(RunError::Job(differs)), true),
            (record("t", RunError::Job(no_volume())), true),
            (
                MoveError::Copy(RunError::Job(CopyError::Source(no_volume()))),
                false,
            ),
            (MoveError::Copy(RunError::Stopping), false),
            (record("s", RunError::Job(no_volume())), false),
            (record("t", RunError::Stopping), false),
            (MoveError::Used, false),
        ] {
            assert_eq!(is_of_target(&error, &id("t")), is_targets, "{error:?}");
        }
    }
}
