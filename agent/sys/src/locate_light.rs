//! Locate lights of drives in enclosures: through SES (the kernel's enclosure class), NPEM (PCIe, Linux 6.13 and later), or `ledctl` if
//! there is neither. May block on the enclosure; for worker processes.

use std::{fs, io, path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    cmd::{self, CmdError, Tool},
    sysfs::{
        attrs::Node,
        bay::{component, pci_functions},
    },
};

/// Limit for `ledctl`, which accesses every enclosure of the host.
const LEDCTL: Duration = Duration::from_secs(30);

/// Method by which a light was switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    Ses,
    Npem,
    Ledctl,
}

impl By {
    /// The word on the wire; the same as in serde.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ses => "ses",
            Self::Npem => "npem",
            Self::Ledctl => "ledctl",
        }
    }
}

/// The light was not switched.
#[derive(Debug, thiserror::Error)]
pub enum LightError {
    #[error("cannot find its place in sysfs")]
    Sysfs(#[source] io::Error),
    #[error("its enclosure did not take it")]
    Enclosure(#[source] io::Error),
    #[error(
        "its enclosure has no light that the kernel knows (SES, NPEM), and ledctl is not installed; install package ledmon if its enclosure has another"
    )]
    None,
    #[error("ledctl did not switch it")]
    Ledctl(#[source] CmdError),
    #[error("ledctl did not switch it: {0}")]
    Refused(String),
}

/// Switches the light of the disk of this kernel name, and returns the method used. `root` is `/sys` except in tests.
pub fn switch(root: &Path, kernel_name: &str, on: bool) -> Result<By, LightError> {
    let value: &[u8] = if on { b"1" } else { b"0" };
    let link = root.join("class/block").join(kernel_name);
    let real = link.canonicalize().map_err(LightError::Sysfs)?;
    let place = component(&Node::at(real.clone())).map_err(LightError::Sysfs)?;
    let ses = place.map(|place| place.path().join("locate"));
    if let Some(light) = ses.filter(|light| light.exists()) {
        fs::write(light, value).map_err(LightError::Enclosure)?;
        return Ok(By::Ses);
    }
    let path = real.to_string_lossy();
    for function in pci_functions(&path) {
        let led = format!("class/leds/{function}:enclosure:locate/brightness");
        let light = root.join(led);
        if light.exists() {
            fs::write(light, value).map_err(LightError::Enclosure)?;
            return Ok(By::Npem);
        }
    }
    ledctl(kernel_name, on)
}

fn ledctl(kernel_name: &str, on: bool) -> Result<By, LightError> {
    let pattern = if on { "locate" } else { "locate_off" };
    let tool = Tool {
        program: "ledctl",
        args: vec![format!("{pattern}=/dev/{kernel_name}").into()],
        env: Vec::new(),
        only: None,
        deadline: LEDCTL,
    };
    match cmd::run(&tool) {
        Ok(output) if output.code == Some(0) => Ok(By::Ledctl),
        Ok(output) => Err(LightError::Refused(output.stderr.trim().to_owned())),
        Err(CmdError::Missing(_)) => Err(LightError::None),
        Err(error) => Err(LightError::Ledctl(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// Creates a disk at this path below devices, and its directory.
    fn tree(place: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let tree = tempfile::tempdir().unwrap();
        let device = tree.path().join("devices").join(place);
        let disk = device.join("block/sdx");
        fs::create_dir_all(&disk).unwrap();
        fs::create_dir_all(tree.path().join("class/block")).unwrap();
        symlink(&device, disk.join("device")).unwrap();
        symlink(&disk, tree.path().join("class/block/sdx")).unwrap();
        (tree, device)
    }

    #[test]
    fn the_light_of_an_enclosure_is_switched_through_its_own_place() {
        let (tree, device) = tree("pci0000:3a/0000:3a:00.0/host1/target1:0:4/1:0:4:0");
        let slot = tree.path().join("enclosure/1:0:12:0/Slot04");
        fs::create_dir_all(&slot).unwrap();
        fs::write(slot.join("locate"), "0").unwrap();
        symlink(&slot, device.join("enclosure_device:Slot04")).unwrap();
        for (on, value) in [(true, "1"), (false, "0")] {
            assert_eq!(switch(tree.path(), "sdx", on).unwrap(), By::Ses);
            assert_eq!(fs::read_to_string(slot.join("locate")).unwrap(), value);
        }
    }

    #[test]
    fn the_light_of_a_pcie_slot_is_that_of_the_nearest_port_that_has_one() {
        let (tree, _) = tree("pci0000:3a/0000:3a:02.0/0000:3c:00.0/nvme/nvme0/nvme0n1");
        let led = |function: &str| {
            let led = format!("class/leds/{function}:enclosure:locate");
            let dir = tree.path().join(led);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("brightness"), "0").unwrap();
            dir.join("brightness")
        };
        let port = led("0000:3a:02.0");
        assert_eq!(switch(tree.path(), "sdx", true).unwrap(), By::Npem);
        assert_eq!(fs::read_to_string(&port).unwrap(), "1");
        let own = led("0000:3c:00.0");
        switch(tree.path(), "sdx", true).unwrap();
        assert_eq!(fs::read_to_string(&own).unwrap(), "1");
    }
}
