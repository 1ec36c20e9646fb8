//! Switching a drive's light, as a job of a worker of its own: a drive that hangs is one that has to be found.

use std::path::Path;

use serde::{Deserialize, Serialize};

use drivebay_model::{Cause, DriveRef};
use drivebay_sys::{
    locate_light::{self, By},
    sysfs,
};
use drivebay_worker::{Context, Job};

/// Switches the light of this drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SwitchLight {
    pub drive: DriveRef,
    pub on: bool,
}

/// Why the light was not switched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum SwitchLightError {
    /// Another drive has its name by now, or none.
    #[error("drive {drive} is not at /dev/{kernel_name} any more; rescan")]
    NotThisDrive { drive: String, kernel_name: String },
    #[error("the light of drive {drive} was not switched")]
    NotSwitched {
        drive: String,
        #[source]
        source: Cause,
    },
}

impl Job for SwitchLight {
    const NAME: &'static str = "switch-light";
    type Answer = By;
    type Error = SwitchLightError;

    /// By sysfs alone: the drive itself is asked nothing.
    fn run(self, context: &mut Context) -> Result<By, SwitchLightError> {
        let (root, kernel_name) = (Path::new("/sys"), &self.drive.kernel_name);
        context.step("identifying the drive");
        let found = sysfs::identify(root, kernel_name);
        if !found.is_ok_and(|found| found.is(&self.drive.id)) {
            return Err(SwitchLightError::NotThisDrive {
                drive: self.drive.id.to_string(),
                kernel_name: kernel_name.clone(),
            });
        }
        context.step("switching the light");
        locate_light::switch(root, kernel_name, self.on).map_err(|error| {
            SwitchLightError::NotSwitched {
                drive: self.drive.id.to_string(),
                source: Cause::new(&error),
            }
        })
    }
}
