//! Places left by moves: those that are not served any more, and those that never were.

use uuid::Uuid;

use super::copy::MoveError;
use crate::{
    state::moves::{MoveProgress, MoveRecord},
    volumes::Volumes,
};
use drivebay_layout::jobs::{Delete, DropPlace, SetPlace};
use drivebay_model::{DriveId, DriveRef, DriveState, Peer, PlaceState, Snapshot};
use drivebay_sys::clock::unix_seconds;

impl Volumes {
    /// Sets a source from `leaving` back to `live`, at its previous generation. No commit was issued.
    pub(super) async fn revert(&self, uuid: Uuid, drive: &DriveId) -> Result<(), MoveError> {
        let snapshot = self.node.inventory().current();
        let place = place_on(&snapshot, uuid, drive).ok_or(MoveError::Changed)?;
        let PlaceState::Leaving { generation, .. } = place else {
            return Err(MoveError::Changed);
        };
        let to = PlaceState::Live {
            generation: generation.saturating_sub(1),
            from: None,
        };
        // An earlier write of the file, whose result is unknown, may bring a note of the commit after this. Without one nothing is written.
        self.save_moves(|_| ()).await?;
        self.set_place(&snapshot, uuid, drive, place, to).await?;
        tracing::warn!(volume = %uuid, %drive, "move was interrupted before its commit; the volume is live where it was");
        Ok(())
    }

    /// Records on a drive that its volume is live elsewhere.
    pub(super) async fn fence(&self, uuid: Uuid, drive: &DriveId) -> Result<(), MoveError> {
        let snapshot = self.node.inventory().current();
        let place = place_on(&snapshot, uuid, drive).ok_or(MoveError::Changed)?;
        let volume = snapshot.volumes.get(&uuid).ok_or(MoveError::Changed)?;
        let served = volume.placed.record.place.generation();
        let moved = match &place {
            PlaceState::Leaving { generation, to } => PlaceState::Moved {
                generation: *generation,
                to: to.clone(),
            },
            PlaceState::Live { generation, .. } if served > *generation => PlaceState::Moved {
                generation: served,
                to: peer(&snapshot, &volume.drive).ok_or(MoveError::Changed)?,
            },
            _ => return Err(MoveError::Changed),
        };
        self.set_place(&snapshot, uuid, drive, place, moved).await?;
        let fenced = |all: &mut std::collections::BTreeMap<Uuid, MoveRecord>| {
            if let Some(one) = all.get_mut(&uuid)
                && one.from == *drive
                && let MoveProgress::Moved { note, .. } = &mut one.progress
            {
                *note = None;
            }
        };
        self.save_moves(fenced).await?;
        Ok(())
    }

    /// Begins erasing a place that is not served.
    pub(super) async fn drop_place(
        &self,
        uuid: Uuid,
        drive: &DriveId,
        place: PlaceState,
    ) -> Result<(), MoveError> {
        let snapshot = self.node.inventory().current();
        let job = DropPlace {
            drive: drive_ref(&snapshot, drive)?,
            uuid,
            place,
        };
        let done = self.on_drive(drive, job).await?;
        self.node.inventory().put_contents(drive, done.contents);
        tracing::info!(volume = %uuid, %drive, "place of a volume that lives on another drive is being erased");
        Ok(())
    }

    /// Deletes the places of a deleted volume on other drives, where that can be done now. The remaining ones are
    /// quarantined when they are seen. Returns the revision that shows it, 0 if there was nothing to delete.
    pub(in crate::volumes) async fn delete_other_places(&self, uuid: Uuid) -> u64 {
        let snapshot = self.node.inventory().current();
        let places = snapshot.volumes.get(&uuid).map(|volume| volume.places());
        let drives = places.into_iter().flatten();
        let drives = drives.filter(|(_, placed)| !placed.record.is_erasing());
        let mut revision = 0;
        for (id, _) in drives {
            let Ok(drive) = drive_ref(&snapshot, id) else {
                continue;
            };
            let job = Delete {
                drive,
                uuid,
                only_unused: false,
            };
            // A failure is logged.
            if let Ok(done) = self.on_drive(id, job).await {
                revision = self.node.inventory().put_contents(id, done.contents);
            }
        }
        revision
    }

    /// Records an old place that has no record, which is kept from now on.
    pub(super) async fn keep_old(&self, uuid: Uuid, drive: &DriveId) -> Result<(), MoveError> {
        let snapshot = self.node.inventory().current();
        let volume = snapshot.volumes.get(&uuid).ok_or(MoveError::Changed)?;
        let record = MoveRecord {
            name: volume.placed.record.name.clone(),
            from: drive.clone(),
            to: volume.drive.clone(),
            generation: volume.placed.record.place.generation(),
            hold: false,
            abort_on_error: false,
            by: String::new(),
            automatic: false,
            requested_at: unix_seconds(),
            progress: MoveProgress::Moved {
                note: None,
                kept_seconds: 0,
                used: false,
                now: false,
            },
        };
        self.save_moves(|all| {
            all.entry(uuid).or_insert(record);
        })
        .await?;
        Ok(())
    }

    /// Changes a record, and publishes the resulting contents of the drive.
    pub(super) async fn set_place(
        &self,
        snapshot: &Snapshot,
        uuid: Uuid,
        drive: &DriveId,
        from: PlaceState,
        to: PlaceState,
    ) -> Result<u64, MoveError> {
        let job = SetPlace {
            drive: drive_ref(snapshot, drive)?,
            uuid,
            from,
            to,
            state: None,
        };
        let done = self.on_drive(drive, job).await?;
        Ok(self.node.inventory().put_contents(drive, done.contents))
    }
}

/// Returns the place of a volume on a drive.
pub(super) fn place_on(snapshot: &Snapshot, uuid: Uuid, drive: &DriveId) -> Option<PlaceState> {
    let volume = snapshot.volumes.get(&uuid)?;
    let mut places = volume.places();
    let (_, placed) = places.find(|(on, _)| *on == drive)?;
    Some(placed.record.place.clone())
}

fn drive_ref(snapshot: &Snapshot, id: &DriveId) -> Result<DriveRef, MoveError> {
    let drive = snapshot.drives.get(id);
    let drive = drive.filter(|drive| drive.state == DriveState::Claimed);
    let drive = drive.ok_or_else(|| MoveError::NotNow(format!("drive {id} cannot be used now")))?;
    Ok(DriveRef::from(&drive.facts))
}

/// Returns a drive as the peer of a move; None if its contents are unknown.
pub(super) fn peer(snapshot: &Snapshot, id: &DriveId) -> Option<Peer> {
    let contents = snapshot.drives.get(id)?.contents.as_ref()?;
    Some(Peer {
        label: contents.label.drive_uuid,
        drive: id.clone(),
    })
}
