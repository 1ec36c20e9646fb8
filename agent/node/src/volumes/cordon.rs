//! `drive cordon` and `uncordon`: whether a claimed drive takes new volumes, by an operator's decision that is recorded
//! on the drive.

use super::{LAYOUT_DEADLINE, VolumeError, Volumes, guard::Key, wipe::named};
use drivebay_layout::jobs::SetCordon;
use drivebay_model::{Cordon, Drive, DriveId, DriveRef, DriveState};
use drivebay_worker::Slot;

/// Result of changing a cordon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cordoned {
    pub drive: DriveId,
    /// False: the drive was in the requested state already.
    pub changed: bool,
    /// Cordon that the drive has now.
    pub cordon: Option<Cordon>,
    /// Inventory revision that shows it.
    pub revision: u64,
}

/// Returns why this drive's cordon cannot be changed. Pure.
fn obstacle(drive: &Drive) -> Option<String> {
    match (drive.state, &drive.trouble) {
        (DriveState::Claimed, None) => None,
        (DriveState::Claimed, Some(why)) => Some(format!(
            "it does not answer, and a cordon is recorded on the drive: {why}; it takes no new volumes meanwhile"
        )),
        (DriveState::Available, _) => Some(
            "it is not claimed, so that there is no label to record it in; deny it in the selector of its class".to_owned(),
        ),
        (state, _) => Some(format!("it is {state} here, and takes no new volumes")),
    }
}

impl Volumes {
    /// Records on the drive of this name that it takes no new volumes, or that it takes some again. Durable on success.
    /// A drive in the requested state is left unchanged, with its earlier reason. `by`: requester, for the log.
    pub async fn set_cordon(
        &self,
        name: &str,
        by: &str,
        cordon: Option<Cordon>,
    ) -> Result<Cordoned, VolumeError> {
        let snapshot = self.node.inventory().current();
        let drive = named(&snapshot, name)?;
        let id = drive.id.clone();
        if let Some(why) = obstacle(drive) {
            return Err(VolumeError::NotCordoned { drive: id, why });
        }
        let job = SetCordon {
            drive: DriveRef::from(&drive.facts),
            cordon,
        };
        let by = by.to_owned();
        // Creations that are sent meanwhile go to other drives; one that was sent before is refused or ends first.
        let key = Key::Drive(id.clone());
        self.changing(key, &format!("drive {id}"), |this| async move {
            let worker = (&id, Slot::Foreground);
            let done = this.node.run(worker, job, LAYOUT_DEADLINE).await?;
            let cordon = done.contents.label.cordon.clone();
            let revision = this.node.inventory().put_contents(&id, done.contents);
            if done.changed {
                let reason = cordon.as_ref().map(|cordon| cordon.reason.as_str());
                tracing::warn!(drive = %id, cordoned = cordon.is_some(), by, reason, "drive cordon changed");
            }
            Ok(Cordoned {
                drive: id,
                changed: done.changed,
                cordon,
                revision,
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::samples;

    #[test]
    fn only_a_claimed_drive_that_answers_is_cordoned() {
        let drive = |state| samples::drive("sda", state, None);
        assert_eq!(obstacle(&drive(DriveState::Claimed)), None);
        let mut silent = drive(DriveState::Claimed);
        silent.trouble = Some("it is stuck".into());
        assert!(obstacle(&silent).is_some_and(|why| why.contains("stuck")));
        for state in [
            DriveState::Available,
            DriveState::Rejected,
            DriveState::Missing,
            DriveState::NotScanned,
            DriveState::Unprobed,
        ] {
            assert!(obstacle(&drive(state)).is_some(), "{state}");
        }
    }
}
