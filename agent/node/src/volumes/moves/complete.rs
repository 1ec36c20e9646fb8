//! Completes a move: from here on the order of the steps protects the data. Each is durable before the next: source
//! `leaving`, copy checked again, the agent's note, target `live`, source `moved`. For the state after a crash between
//! any two see `place::judge`.

use uuid::Uuid;

use super::{
    MovePhase,
    copy::{Ends, MoveError},
};
use crate::{
    state::moves::{MoveProgress, MoveRecord},
    volumes::{VolumeError, Volumes, guard::VolumeGuard},
};
use drivebay_layout::jobs::{LayoutError, ReadDrive, SetPlace};
use drivebay_model::{
    CommitNote, Contents, DriveId, DriveRef, PlaceState, RecordState, cause::chain,
};
use drivebay_worker::RunError;

/// Attempts to write the commit before the volume is left in doubt.
const COMMITS: u32 = 3;

impl Volumes {
    pub(super) async fn complete(
        &self,
        held: &VolumeGuard,
        record: &MoveRecord,
    ) -> Result<(), MoveError> {
        let uuid = held.uuid();
        let ends = self.ends(uuid, record)?;
        if self.is_in_use_now(&ends.volume)? {
            return Err(MoveError::Used);
        }
        self.call_off_check(held).await;
        self.inner
            .moves
            .change(uuid, |running| running.phase = MovePhase::Completing);
        self.node
            .inventory()
            .update(|state| state.completing.insert(uuid));
        let done = self.switch(uuid, record, &ends).await;
        self.node
            .inventory()
            .update(|state| state.completing.remove(&uuid));
        done
    }

    async fn switch(&self, uuid: Uuid, record: &MoveRecord, ends: &Ends) -> Result<(), MoveError> {
        let to = ends.target_peer.clone().ok_or(MoveError::Changed)?;
        let (generation, from) = (record.generation, ends.source_peer.clone());
        let live = ends.volume.placed.record.place.clone();
        let leaving = PlaceState::Leaving {
            generation,
            to: to.clone(),
        };
        let incoming = PlaceState::Incoming {
            generation,
            from: from.clone(),
        };
        // From here on the volume has no device.
        let source = self.leave(uuid, record, ends, &live, &leaving).await?;
        let unfenced = source.is_none();
        let state = source
            .as_ref()
            .and_then(|contents| state_of(contents, uuid));
        let state = state.unwrap_or_else(|| ends.volume.placed.record.state.clone());
        let note = CommitNote {
            generation,
            from,
            to,
            unfenced,
        };
        if let Err(error) = self
            .prepare_commit(uuid, record, ends, &incoming, &note)
            .await
        {
            // No commit was issued: the source is live again.
            self.come_back(uuid, record, ends, &leaving, &live).await;
            return Err(error);
        }
        let committed = SetPlace {
            drive: ends.target.clone(),
            uuid,
            from: incoming,
            to: PlaceState::Live {
                generation,
                from: Some(note.from.clone()),
            },
            state: Some(state),
        };
        let target = match self.commit(record, committed).await {
            Ok(target) => target,
            Err(error) => {
                // Both are published as they are.
                for (drive, id) in [(&ends.source, &record.from), (&ends.target, &record.to)] {
                    if let Some(now) = self.read_drive(id, drive).await {
                        self.node.inventory().put_contents(id, now);
                    }
                }
                return Err(error);
            }
        };
        let source = source.map(|source| (&record.from, source));
        let both = source.into_iter().chain([(&record.to, target)]);
        self.node.inventory().put_all_contents(both);
        self.moved(uuid, note).await?;
        // The source records the move later, which no caller waits for.
        tracing::warn!(volume = %uuid, source = %record.from, target = %record.to, generation, unfenced, "volume moved to another drive");
        Ok(())
    }

    /// Sets the source to `leaving`. None: it refuses writes, and the move continues without fencing it.
    async fn leave(
        &self,
        uuid: Uuid,
        record: &MoveRecord,
        ends: &Ends,
        live: &PlaceState,
        leaving: &PlaceState,
    ) -> Result<Option<Contents>, MoveError> {
        let job = SetPlace {
            drive: ends.source.clone(),
            uuid,
            from: live.clone(),
            to: leaving.clone(),
            state: None,
        };
        match self.on_drive(&record.from, job).await {
            Ok(done) => Ok(Some(done.contents)),
            Err(MoveError::Record {
                source: RunError::Job(LayoutError::InUse { .. }),
                ..
            }) => Err(MoveError::Used),
            // After other errors it is unknown whether the volume is open.
            Err(MoveError::Record {
                source: RunError::Job(LayoutError::NotWritten { .. }),
                ..
            }) => {
                let now = self.read_drive(&record.from, &ends.source).await;
                match now.as_ref().and_then(|now| place_of(now, uuid)) {
                    Some(place) if place == *leaving => Ok(now),
                    _ => {
                        tracing::error!(volume = %uuid, drive = %record.from, "source drive refuses writes; completing the move without fencing it");
                        Ok(None)
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the copy again, and saves the note of the commit.
    async fn prepare_commit(
        &self,
        uuid: Uuid,
        record: &MoveRecord,
        ends: &Ends,
        incoming: &PlaceState,
        note: &CommitNote,
    ) -> Result<(), MoveError> {
        let job = ReadDrive {
            drive: ends.target.clone(),
            repair: false,
        };
        let now = self.on_drive(&record.to, job).await?;
        let copy = now.volume(uuid).filter(|copy| copy.ambiguous.is_none());
        let is_whole = copy.is_some_and(|copy| {
            copy.record.place == *incoming
                && copy.record.extent.len == ends.volume.placed.record.extent.len
                && !copy.record.is_erasing()
        });
        if !is_whole {
            return Err(MoveError::NotNow(format!(
                "the copy on drive {} is not as it was left",
                record.to
            )));
        }
        let progress = MoveProgress::Committing { note: note.clone() };
        let mut is_noted = false;
        self.save_moves(|all| {
            if let Some(one) = all.get_mut(&uuid) {
                one.progress = progress;
                is_noted = true;
            }
        })
        .await?;
        // Cancelled at the last moment.
        if is_noted {
            Ok(())
        } else {
            Err(MoveError::Changed)
        }
    }

    /// Makes the source live again, since no commit was issued. What fails here is done when the drives are read next.
    async fn come_back(
        &self,
        uuid: Uuid,
        record: &MoveRecord,
        ends: &Ends,
        leaving: &PlaceState,
        live: &PlaceState,
    ) {
        let requested = self.save_moves(|all| {
            if let Some(one) = all.get_mut(&uuid) {
                one.progress = MoveProgress::Requested;
            }
        });
        if let Err(error) = requested.await {
            // The note may be on disk: then the source must not become live again at its old generation.
            tracing::error!(volume = %uuid, error = %chain(&error), "cannot withdraw the note of a commit that was not issued");
            return;
        }
        let job = SetPlace {
            drive: ends.source.clone(),
            uuid,
            from: leaving.clone(),
            to: live.clone(),
            state: None,
        };
        if let Ok(done) = self.on_drive(&record.from, job).await {
            self.node
                .inventory()
                .put_contents(&record.from, done.contents);
        }
    }

    /// Sets the target to `live`. From the first attempt on the source is not served again at its generation, whatever
    /// the result.
    async fn commit(&self, record: &MoveRecord, job: SetPlace) -> Result<Contents, MoveError> {
        let mut attempt = 1;
        loop {
            match self.on_drive(&record.to, job.clone()).await {
                Ok(done) => return Ok(done.contents),
                Err(error) if attempt >= COMMITS => {
                    // Both drives are published as they are: in doubt.
                    tracing::error!(volume = %job.uuid, drive = %record.to, error = %chain(&error), "commit of a move failed; the volume is in doubt until its target is read or an operator decides");
                    return Err(error);
                }
                Err(_) => attempt += 1,
            }
        }
    }

    /// Saves that the target has confirmed the commit.
    pub(super) async fn moved(&self, uuid: Uuid, note: CommitNote) -> Result<(), VolumeError> {
        let progress = MoveProgress::Moved {
            note: Some(note),
            kept_seconds: 0,
            used: false,
            now: false,
        };
        let saved = self.save_moves(|all| {
            if let Some(one) = all.get_mut(&uuid) {
                one.progress = progress;
            }
        });
        saved.await.map(drop)
    }

    async fn read_drive(&self, id: &DriveId, drive: &DriveRef) -> Option<Contents> {
        let job = ReadDrive {
            drive: drive.clone(),
            repair: false,
        };
        self.on_drive(id, job).await.ok()
    }
}

fn state_of(contents: &Contents, uuid: Uuid) -> Option<RecordState> {
    Some(contents.volume(uuid)?.record.state.clone())
}

fn place_of(contents: &Contents, uuid: Uuid) -> Option<PlaceState> {
    Some(contents.volume(uuid)?.record.place.clone())
}
