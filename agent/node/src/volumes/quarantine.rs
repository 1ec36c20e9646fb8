//! Ends of quarantines: when their time is over, or when an operator erases the volume or restores it.

use uuid::Uuid;

use super::{
    Caller, LAYOUT_DEADLINE, VolumeError, Volumes,
    guard::{Key, VolumeGuard},
};
use crate::inventory::assemble::is_live;
use drivebay_layout::jobs::{Delete, LayoutError};
use drivebay_model::{DriveId, DriveRef, DriveState, Snapshot, Volume, VolumeState, cause::chain};
use drivebay_worker::{RunError, Slot};

/// Returns a live volume with the name of a quarantined one. Pure.
fn namesake<'a>(snapshot: &'a Snapshot, volume: &Volume) -> Option<&'a Volume> {
    let name = &volume.placed.record.name;
    let mut others = snapshot.volumes.values();
    others.find(|one| {
        one.uuid != volume.uuid && is_live(one.state) && one.placed.record.name == *name
    })
}

/// Returns the error of erasing a live volume as if it were quarantined.
fn not_quarantined(id: &str) -> VolumeError {
    VolumeError::Invalid {
        field: "volume",
        why: format!("{id} is in no quarantine; `drivebay-agent volume delete` deletes it"),
    }
}

impl Volumes {
    /// Deletes a volume whose quarantine is over. One that is in use is kept, with a finding of the node.
    pub async fn delete_quarantined(&self, drive: &DriveId, uuid: Uuid) {
        let snapshot = self.node.inventory().current();
        if snapshot.volumes.get(&uuid).is_some_and(|one| one.in_use) {
            // Without the volume's guard, which its unmounting needs.
            return;
        }
        let done = match self.guard_volume(uuid, "", Caller::Agent) {
            Ok(held) => self.delete_due(&held, drive).await,
            Err(VolumeError::Pending { .. }) => return,
            Err(error) => Err(error),
        };
        let is_held = matches!(
            done,
            Err(VolumeError::InUse { .. }
                | VolumeError::Held { .. }
                | VolumeError::MountedManually { .. })
        );
        self.node.inventory().update(|state| match is_held {
            true => state.kept_in_use.insert(uuid),
            false => state.kept_in_use.remove(&uuid),
        });
        if let Err(error) = done.as_ref()
            && !is_held
        {
            tracing::error!(volume = %uuid, drive = %drive, error = %chain(error), "cannot delete a volume after its quarantine; will retry");
        }
    }

    async fn delete_due(&self, held: &VolumeGuard, drive: &DriveId) -> Result<(), VolumeError> {
        let uuid = held.uuid();
        self.call_off_check(held).await;
        // An operator may have restored it since it was due.
        if !self.node.inventory().deleted().contains(&uuid) {
            return Ok(());
        }
        let snapshot = self.node.inventory().current();
        let here = snapshot.drives.get(drive);
        let Some(at) = here.filter(|drive| drive.state == DriveState::Claimed) else {
            return Ok(());
        };
        if let Some(volume) = snapshot.volumes.get(&uuid)
            && volume.drive == *drive
        {
            self.drop_all_held(held, volume).await?;
        }
        let job = Delete {
            drive: DriveRef::from(&at.facts),
            uuid,
            only_unused: false,
        };
        match self
            .node
            .run((drive, Slot::Foreground), job, LAYOUT_DEADLINE)
            .await
        {
            Ok(done) => {
                tracing::warn!(volume = %uuid, drive = %drive, "quarantine ended; erasing the volume");
                self.node.inventory().put_contents(drive, done.contents);
                Ok(())
            }
            Err(RunError::Job(LayoutError::InUse { uuid, held })) => {
                Err(VolumeError::Held { uuid, held })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the quarantined volume of this id. None: it is not quarantined.
    fn quarantined(&self, id: &str) -> Result<Option<Volume>, VolumeError> {
        match self.find_any(id) {
            Some(volume) if volume.state == VolumeState::Quarantined => Ok(Some(volume)),
            Some(_) => Ok(None),
            None => Err(self.unknown(id)),
        }
    }

    /// Erases a quarantined volume now, on an operator's request. Succeeds if it is being erased or gone already; errs
    /// for a live one. Returns the revision that shows it.
    pub async fn erase_quarantined(&self, id: String) -> Result<u64, VolumeError> {
        let revision = self.node.inventory().current().revision;
        let volume = match self.quarantined(&id) {
            Ok(Some(volume)) => volume,
            Ok(None) if self.find(&id).is_some() => return Err(not_quarantined(&id)),
            Ok(None) | Err(VolumeError::NotFound { .. }) => return Ok(revision),
            Err(other) => return Err(other),
        };
        let requested = id.clone();
        self.changing_volume(volume.uuid, &id, Caller::Manual, |this, held| async move {
            // It may have been restored while this waited for its turn.
            if this.find(&requested).is_some() {
                return Err(not_quarantined(&requested));
            }
            let erasing = this.delete_guarded(&held, &volume, false).await?;
            tracing::warn!(volume = %volume.uuid, drive = %volume.drive, "quarantine ended by operator; erasing the volume");
            this.forget_manual_mount(volume.uuid).await;
            Ok(erasing)
        })
        .await
    }

    /// Restores a quarantined volume, on an operator's request: it is live again, as if it had not been deleted.
    /// Succeeds for a live one. Returns the revision that shows it.
    ///
    /// # Errors
    /// `Invalid` when it is being erased, or another volume has its name by now.
    pub async fn restore(&self, id: String) -> Result<u64, VolumeError> {
        let invalid = |why| VolumeError::Invalid {
            field: "volume",
            why,
        };
        let erasing = move |id: &str| invalid(format!("{id} is being erased; its data is lost"));
        let Some(volume) = self.quarantined(&id)? else {
            return match self.find(&id) {
                Some(_) => Ok(self.node.inventory().current().revision),
                None => Err(erasing(&id)),
            };
        };
        let name = volume.placed.record.name.clone();
        // No volume of its name is created meanwhile.
        let naming = self.held(Key::Name(name.clone()), &format!("name {name:?}"))?;
        let requested = id.clone();
        self.changing_volume(volume.uuid, &id, Caller::Manual, |this, _held| async move {
            // Its quarantine may have ended before this had the guard.
            if this.quarantined(&requested)?.is_none() && this.find(&requested).is_none() {
                return Err(erasing(&requested));
            }
            let snapshot = this.node.inventory().current();
            if let Some(other) = namesake(&snapshot, &volume) {
                return Err(invalid(format!(
                    "a volume {} that has its name {name:?} was made since; delete that one first",
                    other.uuid
                )));
            }
            let dropped = this.inner.keeper.drop_tombstone(volume.uuid).await;
            let revision = dropped.map_err(|error| VolumeError::not_noted(volume.uuid, error))?;
            tracing::warn!(volume = %volume.uuid, drive = %volume.drive, "quarantine ended by operator; the volume is live again");
            drop(naming);
            Ok(revision)
        })
        .await
    }
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
