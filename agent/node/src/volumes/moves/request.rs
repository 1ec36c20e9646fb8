//! Requests, plans and results of moves, as values.

pub use drivebay_proto::words::MovePhase;

use drivebay_proto::VolumeId;
use uuid::Uuid;

use super::{Running, copy::MoveError, lock, old_place::place_on, plan, retire};
use crate::{
    state::moves::{MoveProgress, MoveRecord},
    volumes::{Caller, VolumeError, Volumes, guard::VolumeGuard, wipe::named},
};
use drivebay_model::{Cordon, Drive, DriveId, ErasePolicy, PlaceState, Snapshot, Volume};
use drivebay_sys::clock::unix_seconds;

/// Volumes that a request covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveScope {
    /// One volume, by id.
    Volume(String),
    /// Volumes of one drive.
    Drive {
        /// Kernel name or identity.
        name: String,
        /// Only these volumes, by id; empty: all.
        only: Vec<String>,
    },
}

/// A request to move volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveRequest {
    pub scope: MoveScope,
    /// Kernel names or identities of target drives; empty: the drives that the class would choose for a new volume.
    pub to: Vec<String>,
    /// True: staging waits until the volume has moved. False: staging ends the copying.
    pub hold: bool,
    /// True: unreadable sectors that may hold data stop the move. False: they read as errors on the target, too.
    pub abort_on_error: bool,
    /// Requester, recorded with the moves.
    pub by: String,
}

/// One volume that is to be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMove {
    pub uuid: Uuid,
    pub name: String,
    pub from: DriveId,
    pub to: DriveId,
    pub size_bytes: u64,
    /// True: the volume is in use, and is copied after its next unstage.
    pub in_use: bool,
    /// True: `to` is claimed for this move.
    pub claims: bool,
}

/// Effect of a request, or the reasons for which it is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovePlan {
    /// The drive that is evacuated.
    pub drive: Option<DriveId>,
    pub moves: Vec<PlannedMove>,
    /// All reasons against the request; with any, nothing is moved.
    pub refusals: Vec<String>,
}

/// Result of cancelling moves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cancelled {
    pub cancelled: Vec<Uuid>,
    /// Completed, or being completed.
    pub too_late: Vec<Uuid>,
}

/// A requested move and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveStatus {
    pub uuid: Uuid,
    pub name: String,
    pub from: DriveId,
    pub to: DriveId,
    pub phase: MovePhase,
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Rate of the running copy, bytes per second; 0 while nothing is copied, and until the first step has ended.
    pub bytes_per_second: u64,
    pub eta_seconds: u64,
    /// Reason for waiting, or error of the last attempt; empty: none.
    pub waits_for: String,
    pub by: String,
    /// Seconds since 1970.
    pub requested_at: u64,
    /// After the move: seconds until the old place may be erased, at the earliest. Before: 0.
    pub old_place_seconds: u64,
    /// True: the source could not be written, and still records the volume as live there.
    pub unfenced: bool,
}

/// Result of asking whether a drive may be taken out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retirement {
    pub drive: DriveId,
    pub serial: String,
    /// Enclosure and slot; empty: not known.
    pub bay: String,
    /// Reasons for which the drive must not be removed; empty: it may be pulled.
    pub keeps: Vec<String>,
    /// Bytes that are being erased.
    pub erasing_bytes: u64,
    /// Data that will not be erased, with the reason. The drive may leave the building when this is empty and nothing
    /// is being erased.
    pub not_erased: Vec<String>,
}

impl Volumes {
    /// Plans the request by the current inventory, without changing anything.
    pub fn plan_moves(&self, request: &MoveRequest) -> Result<MovePlan, VolumeError> {
        let config = self.node.config();
        let mut plan = plan::plan(
            &self.node.inventory().current(),
            &config.classes,
            &self.inner.moves.saved.all(),
            &config.node_id,
            request,
        );
        if let Some(why) = self.inner.moves.saved.unread() {
            plan.refusals
                .push(format!("which moves were begun before is not known: {why}"));
        }
        Ok(plan)
    }

    /// Requests moves of volumes. Durable on success; returns the plan and the revision that shows it. A repeat changes
    /// nothing. A drive that is evacuated as a whole is cordoned first, so that no new volumes are placed on it.
    ///
    /// # Errors
    /// `MoveRefused` with every reason.
    pub async fn request_moves(
        &self,
        request: MoveRequest,
    ) -> Result<(MovePlan, u64), VolumeError> {
        // Planned before the cordon: a refused request must not cordon the drive.
        let before = accepted(self.plan_moves(&request)?)?;
        if let (Some(drive), MoveScope::Drive { only, .. }) = (&before.drive, &request.scope)
            && only.is_empty()
        {
            self.cordon_evacuated(drive, &request.by).await?;
        }
        let plan = accepted(self.plan_moves(&request)?)?;
        let revision = self.record_moves(&plan, &request, None).await?;
        Ok((plan, revision))
    }

    /// Cordons a drive that is evacuated.
    pub(super) async fn cordon_evacuated(
        &self,
        drive: &DriveId,
        by: &str,
    ) -> Result<(), VolumeError> {
        let cordon = Cordon {
            at: unix_seconds(),
            by: by.to_owned(),
            reason: "evacuated".to_owned(),
        };
        self.set_cordon(&drive.0, by, Some(cordon)).await?;
        Ok(())
    }

    /// Saves the moves of a plan. Durable on success; returns the revision that shows them. `automatic`: the drive, if
    /// the agent evacuates it without a request; its start counts against the day's budget.
    pub(super) async fn record_moves(
        &self,
        plan: &MovePlan,
        request: &MoveRequest,
        automatic: Option<&DriveId>,
    ) -> Result<u64, VolumeError> {
        let snapshot = self.node.inventory().current();
        let at = unix_seconds();
        let records: Vec<(Uuid, MoveRecord)> = plan
            .moves
            .iter()
            .filter_map(|planned| {
                let volume = snapshot.volumes.get(&planned.uuid)?;
                let record = MoveRecord {
                    name: planned.name.clone(),
                    from: planned.from.clone(),
                    to: planned.to.clone(),
                    generation: volume.placed.record.place.generation() + 1,
                    hold: request.hold,
                    abort_on_error: request.abort_on_error,
                    by: request.by.clone(),
                    automatic: automatic.is_some(),
                    requested_at: at,
                    progress: MoveProgress::Requested,
                };
                Some((planned.uuid, record))
            })
            .collect();
        for (uuid, record) in &records {
            tracing::warn!(volume = %uuid, source = %record.from, target = %record.to, by = request.by, hold = request.hold, abort_on_error = request.abort_on_error, "move of a volume requested");
        }
        self.save_moves_file(|file| {
            file.moves.extend(records);
            if let Some(drive) = automatic {
                let recent = file.automatic.entry(drive.clone()).or_default();
                recent.begun_seconds = Some(0);
            }
        })
        .await
    }

    /// Cancels moves that are not completed; their copies are erased. For a day the agent does not evacuate their
    /// drives automatically.
    pub async fn cancel_moves(
        &self,
        scope: &MoveScope,
        by: &str,
    ) -> Result<Cancelled, VolumeError> {
        let node = &self.node.config().node_id;
        let snapshot = self.node.inventory().current();
        let is_meant = |uuid: Uuid, record: &MoveRecord| -> Result<bool, VolumeError> {
            Ok(match scope {
                MoveScope::Volume(id) => id
                    .parse::<VolumeId>()
                    .is_ok_and(|id| id.node == *node && id.uuid == uuid),
                MoveScope::Drive { name, .. } => record.from == named(&snapshot, name)?.id,
            })
        };
        let mut done = Cancelled::default();
        // Guards are held until the moves are removed, so that none is completed meanwhile.
        let (mut held, mut meant) = (Vec::new(), Vec::new());
        for (uuid, record) in self.inner.moves.saved.all() {
            if !is_meant(uuid, &record)? {
                continue;
            }
            // The task that completes a move holds the guard.
            let guard = self.guard_volume(uuid, &uuid.to_string(), Caller::Mover);
            let is_copying = self.inner.moves.running(uuid).phase != MovePhase::Completing;
            let may = record.note().is_none() && !record.has_moved() && is_copying;
            if !may || (guard.is_err() && !record.hold) {
                done.too_late.push(uuid);
                continue;
            }
            self.inner.moves.running(uuid).stop.cancel();
            // A move that is requested again is tried at once, without recorded failures.
            self.inner.moves.change(uuid, |running| {
                running.rest_until = None;
                running.failures = 0;
                running.failed = String::new();
            });
            self.publish_attempt(uuid);
            held.extend(guard);
            meant.push(uuid);
        }
        self.save_moves_file(|file| {
            for uuid in meant {
                match file.moves.get(&uuid) {
                    Some(one) if one.progress == MoveProgress::Requested => {
                        let recent = file.automatic.entry(one.from.clone()).or_default();
                        recent.cancelled_seconds = Some(0);
                        file.moves.remove(&uuid);
                        done.cancelled.push(uuid);
                    }
                    _ => done.too_late.push(uuid),
                }
            }
        })
        .await?;
        drop(held);
        if !done.cancelled.is_empty() {
            tracing::warn!(volumes = ?done.cancelled, by, "moves cancelled by operator");
        }
        Ok(done)
    }

    /// Lists requested moves whose old place is not erased yet, sorted by name.
    pub fn list_moves(&self) -> Vec<MoveStatus> {
        let snapshot = self.node.inventory().current();
        let delay = self.node.config().old_place_delay.as_secs();
        let all = self.inner.moves.saved.all().into_iter();
        let mut all: Vec<MoveStatus> = all
            .map(|(uuid, record)| {
                let running = self.inner.moves.running(uuid);
                status(&snapshot, uuid, record, &running, delay)
            })
            .collect();
        all.sort_by(|a, b| (&a.name, a.uuid).cmp(&(&b.name, b.uuid)));
        all
    }

    /// Returns the drives whose verdict requires an evacuation by their class, with the reason for which the agent does
    /// not evacuate them.
    pub fn not_evacuated(&self) -> Vec<(DriveId, String)> {
        lock(&self.inner.moves.not_evacuated).clone()
    }

    /// Makes the place on this drive the live one, by an operator's decision. Returns the drive, the volume's
    /// generation there, and the revision that shows it.
    ///
    /// # Errors
    /// `InUse` when the volume is in use; `NotPreferred` when that drive has no place that could be served.
    pub async fn prefer_place(
        &self,
        id: String,
        drive: &str,
        by: &str,
    ) -> Result<(DriveId, u64, u64), VolumeError> {
        let volume = self.find_any(&id);
        let volume = volume.ok_or_else(|| VolumeError::NotFound { id: id.clone() })?;
        let snapshot = self.node.inventory().current();
        let drive = named(&snapshot, drive)?.id.clone();
        let by = by.to_owned();
        self.changing_volume(volume.uuid, &id, Caller::Manual, |this, held| async move {
            this.prefer(&held, volume, drive, &by).await
        })
        .await
    }

    async fn prefer(
        &self,
        held: &VolumeGuard,
        volume: Volume,
        drive: DriveId,
        by: &str,
    ) -> Result<(DriveId, u64, u64), VolumeError> {
        let uuid = held.uuid();
        let refuse = |why: String| VolumeError::NotPreferred { uuid, why };
        if self.is_in_use_now(&volume)? {
            return Err(VolumeError::InUse { uuid });
        }
        let snapshot = self.node.inventory().current();
        let place = place_on(&snapshot, uuid, &drive)
            .ok_or_else(|| refuse(format!("drive {drive} has no place of it")))?;
        let record = self.inner.moves.saved.of(uuid);
        // Also places on missing drives.
        let remembered = self.node.inventory().remembered().0;
        let remembered = remembered.drives.values().flat_map(|drive| &drive.volumes);
        let highest = volume
            .places()
            .map(|(_, placed)| placed.record.place.generation())
            .chain(record.as_ref().map(|record| record.generation))
            .chain(
                remembered
                    .filter(|record| record.uuid == uuid)
                    .map(|record| record.place.generation()),
            )
            .max()
            .unwrap_or(1);
        let to = match &place {
            // Live already; the note that another drive could not be updated is removed.
            PlaceState::Live { generation, .. } if *generation == highest => {
                let has_note = record.as_ref().and_then(MoveRecord::note).is_some();
                let revision = match has_note {
                    true => self.forget_move(uuid).await?,
                    false => snapshot.revision,
                };
                return Ok((drive, highest, revision));
            }
            // A copy whose commit was issued is complete.
            PlaceState::Incoming { generation, from } => {
                let note = record.as_ref().and_then(MoveRecord::note);
                if note.is_none_or(|note| note.generation != *generation) {
                    return Err(refuse(format!(
                        "what is on drive {drive} is a copy that was never complete"
                    )));
                }
                PlaceState::Live {
                    generation: *generation,
                    from: Some(from.clone()),
                }
            }
            _ => PlaceState::Live {
                generation: highest + 1,
                from: place.peer().cloned(),
            },
        };
        let generation = to.generation();
        let set = self.set_place(&snapshot, uuid, &drive, place, to).await;
        let revision = set.map_err(|error| match error {
            MoveError::Record { source, .. } => VolumeError::Layout(source),
            error => refuse(error.to_string()),
        })?;
        tracing::warn!(volume = %uuid, %drive, generation, by, "place of a volume preferred by operator");
        // The commit is decided: the record on the other drive is older.
        let revision = self.forget_move(uuid).await?.max(revision);
        Ok((drive, generation, revision))
    }

    /// True if deleting volumes of the drive's class leaves their bytes on it.
    fn erases_signatures(&self, drive: &Drive) -> bool {
        let mut classes = self.node.config().classes.iter();
        let class = classes.find(|class| drive.class.as_ref() == Some(&class.name));
        class.is_some_and(|class| class.erase == ErasePolicy::Signatures)
    }

    /// Determines whether a drive may be taken out. If so, and unless `plan`, has old places of moved volumes on it
    /// erased now.
    pub async fn retire_drive(
        &self,
        name: &str,
        plan: bool,
        by: &str,
    ) -> Result<Retirement, VolumeError> {
        let snapshot = self.node.inventory().current();
        let drive = named(&snapshot, name)?;
        let moves = self.inner.moves.saved.all();
        let retirement =
            retire::retirement(&snapshot, drive, &moves, self.erases_signatures(drive));
        if plan || !retirement.keeps.is_empty() {
            return Ok(retirement);
        }
        let id = drive.id.clone();
        let mut is_news = false;
        self.save_moves(|all| {
            for one in all.values_mut().filter(|one| one.from == id) {
                if let MoveProgress::Moved { now, .. } = &mut one.progress {
                    is_news |= !*now;
                    *now = true;
                }
            }
        })
        .await?;
        if is_news {
            tracing::warn!(drive = %id, by, "old places of moved volumes are erased now, by operator");
        }
        Ok(retirement)
    }
}

/// Returns the plan, or `MoveRefused` if it has refusals.
pub(super) fn accepted(plan: MovePlan) -> Result<MovePlan, VolumeError> {
    match plan.refusals.is_empty() {
        true => Ok(plan),
        false => Err(VolumeError::MoveRefused { why: plan.refusals }),
    }
}

/// Derives the status of a move. Pure.
fn status(
    snapshot: &Snapshot,
    uuid: Uuid,
    record: MoveRecord,
    running: &Running,
    delay: u64,
) -> MoveStatus {
    let volume = snapshot.volumes.get(&uuid);
    let note = record.note().cloned();
    let (phase, old_place_seconds) = match &record.progress {
        MoveProgress::Moved {
            kept_seconds, now, ..
        } => {
            let left = if *now {
                0
            } else {
                delay.saturating_sub(*kept_seconds)
            };
            (MovePhase::Moved, left)
        }
        MoveProgress::Committing { .. } if running.is_active => (MovePhase::Completing, 0),
        MoveProgress::Committing { .. } => (MovePhase::InDoubt, 0),
        MoveProgress::Requested => (running.phase, 0),
    };
    let waits_for = match phase {
        MovePhase::Waiting if volume.is_none() => "the volume is not found".to_owned(),
        MovePhase::Waiting => volume
            .and_then(|volume| volume.moving.as_ref())
            .map(|moving| moving.waits_for.clone())
            .unwrap_or_default(),
        MovePhase::InDoubt => volume
            .and_then(|volume| volume.conditions.first())
            .map(|condition| condition.message.clone())
            .unwrap_or_default(),
        _ => String::new(),
    };
    let size = volume.map_or(0, |volume| volume.placed.record.extent.len);
    MoveStatus {
        uuid,
        done_bytes: if record.has_moved() {
            size
        } else {
            running.done_bytes
        },
        total_bytes: running.total_bytes.max(size),
        bytes_per_second: running.bytes_per_second,
        eta_seconds: running.eta_seconds(),
        phase,
        waits_for,
        old_place_seconds,
        unfenced: note.is_some_and(|note| note.unfenced) && record.has_moved(),
        name: record.name,
        from: record.from,
        to: record.to,
        by: record.by,
        requested_at: record.requested_at,
    }
}
