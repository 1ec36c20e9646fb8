//! Switches a drive's light in a worker of its own: an unresponsive drive must be locatable too.

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

/// Error of switching a drive's light.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum SwitchLightError {
    /// The device at this kernel name is another drive, or does not exist any more.
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

    /// Uses sysfs only: the drive itself is not accessed.
    fn run(self, context: &mut Context) -> Result<By, SwitchLightError> {
        let (root, kernel_name) = (Path::new("/sys"), &self.drive.kernel_name);
        context.step("identifying the drive");
        let identified = sysfs::identify(root, kernel_name);
        if !identified.is_ok_and(|drive| drive.is(&self.drive.id)) {
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
