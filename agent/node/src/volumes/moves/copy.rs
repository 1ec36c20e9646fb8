//! Copies a volume to another drive, up to its completion. A stage takes precedence: it ends the copying, which is
//! brought up to date later.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{MovePhase, RECORD_DEADLINE, pace::Pace, unreadable::GivenUp};
use crate::{
    inventory::can_be_copied,
    state::moves::MoveRecord,
    volumes::{Caller, LAYOUT_DEADLINE, VolumeError, Volumes, guard::VolumeGuard},
};
use drivebay_layout::jobs::{Claim, CopyError, CopyOf, CopyStep, Create, LayoutError};
use drivebay_model::{
    DriveId, DriveRef, DriveState, Label, Peer, PlaceState, Record, Snapshot, Volume,
    cause::chain,
    units::{count, human_size},
};
use drivebay_worker::{Lane, RunError, Slot, WorkerKey};

/// Longest time that one step works before it answers.
const BUDGET: Duration = Duration::from_millis(1000);
/// Longest duration of a step in all, on slow drives.
const DEADLINE: Duration = Duration::from_secs(120);
/// Group of the workers that copy, one for each volume: a hang in one may be due to either drive.
const COPIES: &str = "moves";

/// Reason for which a move did not continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum MoveError {
    /// The volume is in use, or a change of it has begun: the move is retried when it is unused.
    #[error("waits for the volume to be unstaged")]
    Used,
    /// The move was cancelled, or is another one now.
    #[error("the move has changed")]
    Changed,
    /// Something that the move needs is not available now.
    #[error("{0}")]
    NotNow(String),
    #[error("cannot copy")]
    Copy(#[from] RunError<CopyError>),
    #[error("cannot change the record on drive {drive}")]
    Record {
        drive: DriveId,
        #[source]
        source: RunError<LayoutError>,
    },
    /// Parts of the source that may hold data cannot be read, and cannot be kept as errors on the target.
    #[error(
        "{} of drive {drive} in {} of the volume are unreadable and may hold data, the first at byte {first} of the volume; the move stops there, and the volume stays where it is, since {why}. `drive show` has the files in them; restore or delete those, and the move goes on",
        human_size(*bytes),
        count(*ranges, "range")
    )]
    Unreadable {
        drive: DriveId,
        bytes: u64,
        ranges: usize,
        first: u64,
        why: String,
    },
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

/// The volume of a move, with both drives.
pub(super) struct Ends {
    pub(super) volume: Volume,
    pub(super) source: DriveRef,
    pub(super) source_peer: Peer,
    pub(super) target: DriveRef,
    pub(super) target_peer: Option<Peer>,
}

impl Volumes {
    /// Copies the volume and completes its move.
    pub(super) async fn move_one(&self, uuid: Uuid) -> Result<(), MoveError> {
        let moves = &self.inner.moves;
        let record = moves.saved.of(uuid).ok_or(MoveError::Changed)?;
        // With `hold` the drive is not read twice: the volume is guarded until it has moved.
        let held = match record.hold {
            true => Some(self.guard_for_move(uuid)?),
            false => None,
        };
        // Read before the check that the volume is unused, so that a use that begins later is noticed.
        let touches = moves.touches(uuid);
        // A current holder of the guard was counted before, and its use may begin and end unnoticed within the first step.
        if held.is_none() && self.is_changing(uuid) {
            return Err(MoveError::Used);
        }
        self.make_room(uuid, &record).await?;
        self.copy(uuid, &record, touches, held.as_ref()).await?;
        let held = match held {
            Some(held) => held,
            None => self.guard_for_move(uuid)?,
        };
        if moves.touches(uuid) != touches {
            return Err(MoveError::Used);
        }
        // A task that `drain` waits for: between its steps the volume has no device, and a stop would leave it in doubt.
        let this = self.clone();
        let completed = self
            .inner
            .tasks
            .spawn(async move { this.complete(&held, &record).await });
        match completed.await {
            Ok(completed) => completed,
            Err(join) if join.is_panic() => Err(MoveError::Volume(VolumeError::Internal {
                what: "completing a move panicked; see the log".to_owned(),
            })),
            Err(_) => Err(MoveError::Volume(VolumeError::Stopping)),
        }
    }

    fn guard_for_move(&self, uuid: Uuid) -> Result<VolumeGuard, MoveError> {
        let guard = self.guard_volume(uuid, &uuid.to_string(), Caller::Mover);
        guard.map_err(|error| match error {
            VolumeError::Pending { .. } => MoveError::Used,
            error => error.into(),
        })
    }

    /// Returns the volume and its two drives in their current state.
    pub(super) fn ends(&self, uuid: Uuid, record: &MoveRecord) -> Result<Ends, MoveError> {
        ends(&self.node.inventory().current(), uuid, record)
    }

    /// Creates the copy's place on the target, unless it has one.
    async fn make_room(&self, uuid: Uuid, of: &MoveRecord) -> Result<(), MoveError> {
        let ends = self.ends(uuid, of)?;
        let original = &ends.volume.placed.record;
        let place = PlaceState::Incoming {
            generation: of.generation,
            from: ends.source_peer.clone(),
        };
        let existing = ends.volume.copies.iter().find(|copy| copy.drive == of.to);
        if let Some(copy) = existing {
            if copy.placed.record.place == place
                && copy.placed.record.extent.len == original.extent.len
            {
                self.inner
                    .moves
                    .change(uuid, |running| running.has_copy = true);
                return Ok(());
            }
            return Err(MoveError::NotNow(format!(
                "drive {} still has an earlier place of the volume",
                of.to
            )));
        }
        let job = Create {
            drive: ends.target.clone(),
            claim: match ends.target_peer {
                Some(_) => None,
                None => Some(self.claim_for(&of.to, original)?),
            },
            record: Record {
                place,
                ..original.clone()
            },
            raw_space: Default::default(),
            placement: self.placement_of(&original.class),
            deleted: Vec::new(),
        };
        let worker = (&of.to, Slot::Foreground);
        let made = self.node.run(worker, job, LAYOUT_DEADLINE).await;
        let made = made.map_err(|source| MoveError::Record {
            drive: of.to.clone(),
            source,
        })?;
        self.node.inventory().put_contents(&of.to, made.contents);
        self.inner
            .moves
            .change(uuid, |running| running.has_copy = false);
        tracing::info!(volume = %uuid, source = %of.from, target = %of.to, "copying a volume to another drive");
        Ok(())
    }

    fn claim_for(&self, drive: &DriveId, original: &Record) -> Result<Claim, MoveError> {
        let config = self.node.config();
        let class = config
            .classes
            .iter()
            .find(|class| class.name == original.class);
        let class = class.ok_or_else(|| {
            MoveError::NotNow(format!("its class {} is not configured", original.class))
        })?;
        Ok(Claim {
            layout: class.layout,
            label: Label {
                drive_uuid: Uuid::new_v4(),
                cluster: config.cluster.clone(),
                node: config.node_id.clone(),
                class: class.name.clone(),
                drive_id: drive.clone(),
                cordon: None,
            },
            policy: class.claim,
        })
    }

    pub(super) fn placement_of(&self, class: &str) -> drivebay_model::Placement {
        let classes = &self.node.config().classes;
        let class = classes.iter().find(|one| one.name == class);
        class.map(|class| class.placement).unwrap_or_default()
    }

    async fn copy(
        &self,
        uuid: Uuid,
        of: &MoveRecord,
        touches: u64,
        held: Option<&VolumeGuard>,
    ) -> Result<(), MoveError> {
        let moves = &self.inner.moves;
        let (stop, may_match) = {
            let running = moves.running(uuid);
            (running.stop, running.has_copy)
        };
        let began = Instant::now();
        let mut done = 0;
        let mut source_writes = None;
        let mut given_up = GivenUp::default();
        let mut pace = Pace::new(self.node.config().move_bytes_per_second);
        let worker = WorkerKey::of_group(COPIES, Slot::Background).on(Lane::Volume(uuid));
        loop {
            let ends = self.ends(uuid, of)?;
            if stop.is_cancelled() {
                return Err(MoveError::Changed);
            }
            if moves.touches(uuid) != touches || self.is_in_use_now(&ends.volume)? {
                tracing::info!(volume = %uuid, copied_bytes = done, "copying stopped; the volume is needed");
                return Err(MoveError::Used);
            }
            let bytes_per_second = pace.next([&ends.source, &ends.target]).await;
            let step_began = Instant::now();
            let job = CopyStep {
                of: CopyOf::Itself,
                source: ends.source.clone(),
                target: ends.target.clone(),
                uuid,
                generation: of.generation,
                from_bytes: done,
                source_writes,
                may_match,
                holds_nothing: given_up.holds_nothing.clone(),
                lost: given_up.lost.clone(),
                bytes_per_second,
                budget_ms: BUDGET.as_millis() as u64,
            };
            let step = match self.node.run(worker.clone(), job, DEADLINE).await {
                // In another mount namespace, or by an unmount that still writes.
                Err(RunError::Job(CopyError::Source(LayoutError::InUse { held, .. }))) => {
                    tracing::debug!(volume = %uuid, held, "copying stopped; the volume is used outside of the agent");
                    return Err(MoveError::Used);
                }
                step => step?,
            };
            source_writes = step.source_writes;
            if !step.unreadable.is_empty() {
                // The step is repeated without these ranges. The query of the filesystem may write to the device, and is the only one that did: a
                // filesystem that is still mounted somewhere is noticed when the writes are counted again.
                source_writes = None;
                self.give_up(&mut given_up, (&ends, of), step.unreadable, held)
                    .await?;
                continue;
            }
            pace.step_ended(step.done_bytes.saturating_sub(done), step_began.elapsed());
            done = step.done_bytes;
            given_up.copied(done);
            let rate = done as f64 / began.elapsed().as_secs_f64().max(0.001);
            moves.change(uuid, |running| {
                running.phase = MovePhase::Copying;
                running.done_bytes = done;
                running.total_bytes = step.total_bytes;
                running.bytes_per_second = rate as u64;
                running.failed = String::new();
            });
            self.publish_attempt(uuid);
            if done >= step.total_bytes {
                self.record_lost(&ends, of, &given_up.lost).await?;
                moves.change(uuid, |running| running.has_copy = true);
                return Ok(());
            }
        }
    }

    /// Runs a job that changes a record. Does not publish the resulting contents.
    pub(super) async fn on_drive<J>(&self, drive: &DriveId, job: J) -> Result<J::Answer, MoveError>
    where
        J: drivebay_worker::Job<Error = LayoutError>,
    {
        let done = self
            .node
            .run((drive, Slot::Foreground), job, RECORD_DEADLINE)
            .await;
        done.map_err(|source| {
            tracing::warn!(%drive, error = %chain(&source), "changing a record of a move failed");
            MoveError::Record {
                drive: drive.clone(),
                source,
            }
        })
    }
}

/// Returns both ends of a move in this snapshot. Pure.
fn ends(snapshot: &Snapshot, uuid: Uuid, record: &MoveRecord) -> Result<Ends, MoveError> {
    let volume = snapshot.volumes.get(&uuid).ok_or(MoveError::Changed)?;
    if volume.drive != record.from
        || record.generation != volume.placed.record.place.generation() + 1
    {
        return Err(MoveError::Changed);
    }
    let drive = |id: &DriveId| {
        let drive = snapshot.drives.get(id);
        let drive = drive.filter(|drive| can_be_copied(drive));
        drive.ok_or_else(|| MoveError::NotNow(format!("drive {id} cannot be used now")))
    };
    let (source, target) = (drive(&record.from)?, drive(&record.to)?);
    let peer = |of: &drivebay_model::Drive| {
        let contents = of
            .contents
            .as_ref()
            .filter(|_| of.state == DriveState::Claimed)?;
        Some(Peer {
            label: contents.label.drive_uuid,
            drive: of.id.clone(),
        })
    };
    Ok(Ends {
        volume: volume.clone(),
        source: DriveRef::from(&source.facts),
        source_peer: peer(source).ok_or(MoveError::Changed)?,
        target: DriveRef::from(&target.facts),
        target_peer: peer(target),
    })
}
