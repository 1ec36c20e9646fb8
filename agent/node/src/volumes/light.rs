//! `drive locate`: the light by which a drive is found in its enclosure.

use std::time::Duration;

use super::{VolumeError, Volumes, wipe::named};
use drivebay_discovery::locate_light::SwitchLight;
use drivebay_model::{DriveId, DriveRef};
use drivebay_sys::locate_light::By;
use drivebay_worker::{Lane, Slot, WorkerKey};

/// Longest that an enclosure or ledctl may take.
const DEADLINE: Duration = Duration::from_secs(40);

/// The workers that switch lights, one for each drive.
const LIGHTS: &str = "enclosure-lights";

impl Volumes {
    /// Switches the light of the drive of this name. Answers what switched it. A drive that hangs is located as well.
    pub async fn switch_light(&self, name: &str, on: bool) -> Result<(DriveId, By), VolumeError> {
        let snapshot = self.node.inventory().current();
        let drive = named(&snapshot, name)?;
        let id = drive.id.clone();
        if !drive.state.is_present() {
            return Err(VolumeError::NotLocated {
                drive: id,
                why: format!("it is {} here", drive.state),
            });
        }
        let job = SwitchLight {
            drive: DriveRef::from(&drive.facts),
            on,
        };
        // An enclosure that hangs says nothing of the drive, and keeps no other drive's light waiting.
        let number = (drive.facts.major << 20) | drive.facts.minor;
        let worker = WorkerKey::of_group(LIGHTS, Slot::Background).on(Lane::Number(number));
        let by = self.node.run(worker, job, DEADLINE).await?;
        tracing::info!(drive = %id, on, by = by.as_str(), "drive locate light switched");
        Ok((id, by))
    }
}
