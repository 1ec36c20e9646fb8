//! The setup for a fault: two drives and three volumes, of which one has the fault.

use std::process::Command;

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, Settings, csi, faults::About, rig::Placed};
use drivebay_proto::csi::VolumeCapability;

pub(crate) struct Stand {
    pub(crate) rig: Rig,
    /// The volume with the fault, followed by the shelf name of its drive.
    pub(crate) troubled: Placed,
    pub(crate) drive: &'static str,
    /// A volume on the same drive.
    pub(crate) beside: Placed,
    /// A volume on the other drive.
    pub(crate) quiet: Placed,
}

impl Stand {
    pub(crate) async fn new(fs_type: &str) -> Self {
        Self::of(&csi::mount(fs_type), |_| ()).await
    }

    pub(crate) async fn of(how: &VolumeCapability, tune: impl FnOnce(&mut Settings)) -> Self {
        let specs = ["a", "b"].map(|name| DriveSpec::blank(name, 4 * GIB));
        let rig = Rig::tuned(specs.into(), tune).await;
        // Too large for one drive, all three; the third fits only beside the first.
        let troubled = rig.volume("troubled", 2 * GIB, how).await;
        let quiet = rig.volume("quiet", 3 * GIB, how).await;
        let beside = rig.volume("beside", 1200 * MIB, how).await;
        for volume in [&troubled, &beside, &quiet] {
            rig.use_volume(volume).await;
        }
        let on = rig.volume_of(&troubled.id).await.unwrap().drive;
        let mut drive = "a";
        if rig.drive("b").await.unwrap().id == on {
            drive = "b";
        }
        Self {
            rig,
            troubled,
            drive,
            beside,
            quiet,
        }
    }

    /// Returns the expectation that the fault concerns these volumes and no drive.
    pub(crate) fn one<'a>(&self, volumes: &'a [&'a Placed]) -> About<'a> {
        About {
            drives: &[],
            volumes,
        }
    }

    pub(crate) async fn mount_afresh(&self) {
        self.rig.leave_volume(&self.troubled).await;
        self.rig.use_volume(&self.troubled).await;
    }

    pub(crate) async fn leave(&self) {
        for volume in [&self.troubled, &self.beside, &self.quiet] {
            self.rig.leave_volume(volume).await;
        }
    }
}

/// Runs a script and returns its output. Panics if it fails.
pub(crate) fn sh(script: &str) -> String {
    let out = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(
        out.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}
