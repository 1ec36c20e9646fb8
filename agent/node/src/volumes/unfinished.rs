//! Interrupted creations: what one left is read, and undone or adopted, before its name is used again.

use std::time::Duration;

use uuid::Uuid;

use super::{VolumeError, Volumes};
use crate::{
    inventory::assemble::is_live,
    state::{Doubt, merge::is_acknowledged},
};
use drivebay_layout::jobs::{LayoutError, ReadDrive};
use drivebay_model::{
    DriveRef, DriveState, RecordState, Snapshot, Volume, VolumeState, cause::chain,
};
use drivebay_sys::clock::since_boot;
use drivebay_worker::{RunError, Slot};
/// Longest time for reading the drive of an interrupted creation.
const READ_DEADLINE: Duration = Duration::from_secs(20);

/// True if a volume is known to have been acknowledged, on a drive or while its drive is missing. One that is only
/// recorded as being created is still in doubt. Pure.
fn is_known(snapshot: &Snapshot, uuid: Uuid) -> bool {
    let volume = snapshot.volumes.get(&uuid);
    volume.is_some_and(|volume| is_acknowledged(&volume.placed.record))
}

/// Returns a volume of this name that is recorded as being created, on a drive that is present. Pure.
fn unfinished<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Volume> {
    snapshot.volumes.values().find(|volume| {
        let record = &volume.placed.record;
        record.name == name
            && record.state == RecordState::Creating
            && is_live(volume.state)
            && volume.state != VolumeState::Missing
    })
}

impl Volumes {
    /// Resolves an interrupted attempt at this name: its drive is read before anything is created elsewhere, or one
    /// name could get two volumes. If the drive is gone or damaged by now, a tombstone is written first, durably: the
    /// volume was never acknowledged, and must not reappear with the drive.
    pub(super) async fn resolve(&self, name: &str) -> Result<(), VolumeError> {
        let Some(Doubt { drive: id, uuid }) = self.node.inventory().doubt(name) else {
            return Ok(());
        };
        let snapshot = self.node.inventory().current();
        let drive = snapshot.drives.get(&id);
        let is_open = match drive.map(|drive| drive.state) {
            Some(state) => state == DriveState::NotScanned,
            None => since_boot() < self.node.config().boot_grace,
        };
        let here = drive.filter(|drive| drive.state != DriveState::Missing);
        if is_known(&snapshot, uuid) {
            // The doubt predates what was read or acknowledged since, and decides nothing about that volume.
        } else if is_open {
            return Err(VolumeError::CannotTell {
                id: name.to_owned(),
                why: format!(
                    "creating it was cut off on drive {id}, which has not been scanned yet"
                ),
            });
        } else if let Some(drive) = here {
            let job = ReadDrive {
                drive: DriveRef::from(&drive.facts),
                repair: true,
            };
            match self
                .node
                .run((&id, Slot::Foreground), job, READ_DEADLINE)
                .await
            {
                Ok(contents) => {
                    self.node.inventory().put_contents(&id, contents);
                }
                // No label: the claim did not proceed to a volume.
                Err(RunError::Job(
                    LayoutError::NotClaimable { .. } | LayoutError::Unlabelled { .. },
                )) => {}
                Err(RunError::Job(
                    LayoutError::Damaged { .. } | LayoutError::NotThisDrive { .. },
                )) => {
                    let noted = self
                        .inner
                        .keeper
                        .add_unseen_tombstone(uuid, &id, name)
                        .await;
                    noted.map_err(|error| VolumeError::not_noted(uuid, error))?;
                }
                Err(error) => {
                    return Err(VolumeError::CannotTell {
                        id: name.to_owned(),
                        why: format!(
                            "creating it was cut off on drive {id}, which gives no answer ({})",
                            chain(&error)
                        ),
                    });
                }
            }
        } else {
            let noted = self
                .inner
                .keeper
                .add_unseen_tombstone(uuid, &id, name)
                .await;
            noted.map_err(|error| VolumeError::not_noted(uuid, error))?;
        }
        self.node
            .inventory()
            .update(|state| state.remembered.in_doubt.remove(name));
        // Before the answer: a doubt that returned after a restart could delete what was acknowledged since.
        self.inner.keeper.settle().await;
        self.inner.underway.end(uuid).await;
        Ok(())
    }

    /// Undoes a volume that is recorded as being created: it was never acknowledged, and the next repair of its drive
    /// would undo it. Otherwise its name would be compared with it, and OK returned for a volume that is then gone.
    pub(super) async fn undo_unfinished(&self, name: &str) -> Result<(), VolumeError> {
        let snapshot = self.node.inventory().current();
        let Some(drive) = unfinished(&snapshot, name).and_then(|of| snapshot.drives.get(&of.drive))
        else {
            return Ok(());
        };
        let cannot_tell = |why: String| VolumeError::CannotTell {
            id: name.to_owned(),
            why: format!("creating it was cut off on drive {}, {why}", drive.id),
        };
        let job = ReadDrive {
            drive: DriveRef::from(&drive.facts),
            repair: true,
        };
        let read = self
            .node
            .run((&drive.id, Slot::Foreground), job, READ_DEADLINE);
        let contents = read.await.map_err(|error| {
            let why = chain(&error);
            cannot_tell(format!("which gives no answer ({why})"))
        })?;
        self.node.inventory().put_contents(&drive.id, contents);
        match unfinished(&self.node.inventory().current(), name) {
            None => Ok(()),
            Some(_) => Err(cannot_tell("and cannot be undone yet".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::samples::{drive, placed, volume};

    #[test]
    fn only_a_volume_recorded_as_being_created_on_a_drive_that_is_here_is_unfinished() {
        let is_unfinished = |record: RecordState, state: VolumeState, same: bool| {
            let drive = drive("a", DriveState::Available, None);
            let of = volume(&drive, placed(1, record));
            let name = of.placed.record.name.clone();
            let name = if same { name } else { format!("{name}x") };
            let mut snapshot = Snapshot::default();
            snapshot.volumes.insert(of.uuid, Volume { state, ..of });
            unfinished(&snapshot, &name).is_some()
        };
        let creating = || RecordState::Creating;
        assert!(is_unfinished(creating(), VolumeState::New, true));
        assert!(!is_unfinished(creating(), VolumeState::New, false));
        assert!(!is_unfinished(RecordState::New, VolumeState::New, true));
        assert!(!is_unfinished(creating(), VolumeState::Missing, true));
        assert!(!is_unfinished(creating(), VolumeState::Quarantined, true));
    }
}
