//! `drive locate`: the locate light of a drive in its enclosure.

use std::time::Duration;

use super::{VolumeError, Volumes, wipe::named};
use drivebay_discovery::locate_light::SwitchLight;
use drivebay_model::{DriveId, DriveRef};
use drivebay_sys::locate_light::By;
use drivebay_worker::{Lane, Slot, WorkerKey};

/// Longest time for an enclosure or ledctl.
const DEADLINE: Duration = Duration::from_secs(40);

/// Group of the workers that switch lights, one for each drive.
const LIGHTS: &str = "enclosure-lights";

impl Volumes {
    /// Switches the light of the drive of this name, also of an unresponsive one. Returns what switched it.
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
        // An unresponsive enclosure is no evidence about the drive, and does not delay other drives' lights.
        let number = (drive.facts.major << 20) | drive.facts.minor;
        let worker = WorkerKey::of_group(LIGHTS, Slot::Background).on(Lane::Number(number));
        let by = self.node.run(worker, job, DEADLINE).await?;
        tracing::info!(drive = %id, on, by = by.as_str(), "drive locate light switched");
        Ok((id, by))
    }
}
