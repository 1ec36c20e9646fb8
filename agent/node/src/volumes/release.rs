//! `drive release`: removes Drivebay's label from a claimed drive without volumes, on an operator's explicit request.

use super::{
    LAYOUT_DEADLINE, VolumeError, Volumes,
    guard::Key,
    wipe::{live_volumes, named},
};
use drivebay_layout::jobs::{LayoutError, Release, Released};
use drivebay_model::{Drive, DriveRef, DriveState, Label, Snapshot};
use drivebay_worker::{RunError, Slot};

/// Returns the label of a drive that may be released, or why it may not be. Pure; the worker reads the drive again.
fn releasable<'a>(snapshot: &Snapshot, drive: &'a Drive) -> Result<&'a Label, String> {
    if drive.state != DriveState::Claimed {
        return Err(format!(
            "it is {} here, and only a claimed drive is released; `drivebay-agent drive show` says what is known of it",
            drive.state
        ));
    }
    if let Some(why) = live_volumes(snapshot, drive) {
        return Err(why);
    }
    let on_it = snapshot.volumes.values();
    let deleted = on_it.filter(|volume| volume.is_on(&drive.id));
    let deleted: Vec<String> = deleted
        .map(|volume| format!("{} ({})", volume.placed.record.name, volume.state.as_str()))
        .collect();
    if !deleted.is_empty() {
        return Err(format!(
            "deleted volumes are not erased yet: {}; wait until `drivebay-agent volumes` shows none of them",
            deleted.join(", ")
        ));
    }
    match (&drive.trouble, &drive.contents) {
        (None, Some(contents)) => Ok(&contents.label),
        (Some(why), _) => Err(format!("it does not answer: {why}")),
        (None, None) => Err("what is on it has not been read; rescan".to_owned()),
    }
}

impl Volumes {
    /// Removes our label from a drive without volumes. `confirm` must be its identity.
    pub async fn release_drive(&self, name: &str, confirm: &str) -> Result<Released, VolumeError> {
        let snapshot = self.node.inventory().current();
        let drive = named(&snapshot, name)?;
        let id = drive.id.clone();
        let refused = |why| VolumeError::NotReleased {
            drive: id.clone(),
            why,
        };
        let label = releasable(&snapshot, drive).map_err(refused)?.clone();
        if confirm != id.0 {
            return Err(VolumeError::Invalid {
                field: "confirm",
                why: format!(
                    "releasing {name} takes Drivebay's label from it; spell out its identity to go on: {id}"
                ),
            });
        }
        let job = Release {
            drive: DriveRef::from(&drive.facts),
            label,
        };
        // A creation that is sent meanwhile goes to another drive.
        let key = Key::Drive(id.clone());
        self.changing(key, &format!("drive {id}"), |this| async move {
            let released = this
                .node
                .run((&id, Slot::Foreground), job, LAYOUT_DEADLINE)
                .await;
            let released = released.map_err(|error| match error {
                RunError::Job(
                    LayoutError::Busy { reason: why, .. }
                    | LayoutError::NotClaimable { reason: why, .. },
                ) => VolumeError::NotReleased {
                    drive: id.clone(),
                    why,
                },
                RunError::Job(error @ LayoutError::StillZeroed { .. }) => {
                    VolumeError::NotReleased {
                        drive: id.clone(),
                        why: error.to_string(),
                    }
                }
                error => error.into(),
            })?;
            tracing::warn!(drive = %id, blank = released.blank, "drive released by operator");
            Ok(released)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{RecordState, Volume, VolumeState, samples};

    #[test]
    fn only_a_claimed_drive_that_was_read_and_has_no_volume_is_released() {
        let empty = samples::contents(1, 1, vec![], 0);
        let claimed = samples::drive("sda", DriveState::Claimed, Some(empty.clone()));
        let mut snapshot = Snapshot::default();
        assert!(releasable(&snapshot, &claimed).is_ok());
        for state in [
            DriveState::Available,
            DriveState::Rejected,
            DriveState::Missing,
            DriveState::NotScanned,
            DriveState::Unprobed,
        ] {
            let drive = samples::drive("sda", state, Some(empty.clone()));
            assert!(releasable(&snapshot, &drive).is_err(), "{state}");
        }
        let mut silent = claimed.clone();
        silent.trouble = Some("it hangs".into());
        assert!(releasable(&snapshot, &silent).is_err());
        let unread = samples::drive("sda", DriveState::Claimed, None);
        assert!(releasable(&snapshot, &unread).is_err());
        for state in [
            VolumeState::New,
            VolumeState::Ready,
            VolumeState::Erasing,
            VolumeState::Ambiguous,
            VolumeState::Quarantined,
            VolumeState::Missing,
            VolumeState::NotScanned,
        ] {
            let volume = Volume {
                state,
                ..samples::volume(&claimed, samples::placed(7, RecordState::New))
            };
            snapshot.volumes = [(volume.uuid, volume)].into();
            let why = releasable(&snapshot, &claimed).unwrap_err();
            assert!(why.contains("pvc-7"), "{why}");
        }
    }
}
