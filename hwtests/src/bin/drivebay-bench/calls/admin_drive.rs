//! Layouts created by an administrator's tools: a partition by sfdisk and partx, or a logical volume.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use clap::ValueEnum;
use drivebay_hwtests::{Trouble, tools};

/// Layout of the drives, the same for the agent and the administrator's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Layout {
    /// A GPT with a partition for each volume.
    Partition,
    /// A volume group with a logical volume for each; needs device-mapper.
    Lvm,
}

impl Layout {
    /// Returns the name in the agent's configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Lvm => "lvm",
        }
    }

    /// Returns the administrator's tools that create and delete.
    pub(super) fn tools(self) -> &'static str {
        match self {
            Self::Partition => "sfdisk, partx",
            Self::Lvm => "lvcreate, lvremove",
        }
    }
}

/// A drive with other volumes, and the one that is created and deleted.
#[derive(Debug)]
pub(super) enum AdminDrive {
    Partition {
        device: String,
        number: usize,
    },
    /// The volume group, removed on drop.
    Lvm(VolumeGroup),
}

/// A volume group of one drive, removed on drop.
#[derive(Debug)]
pub(super) struct VolumeGroup(pub(super) String);

const LV: &str = "beside";

impl AdminDrive {
    pub(super) fn new(
        layout: Layout,
        device: &str,
        others: usize,
        mib: u64,
    ) -> Result<Self, Trouble> {
        let admin_drive = match layout {
            Layout::Partition => Self::Partition {
                device: device.to_owned(),
                number: others + 1,
            },
            Layout::Lvm => Self::Lvm(VolumeGroup::new(device, "drivebay-bench-beside")?),
        };
        match &admin_drive {
            Self::Partition { device, .. } => {
                let partitions = format!("size={mib}MiB\n").repeat(others);
                sfdisk(device, &[], &format!("label: gpt\n{partitions}"))?;
                if others > 0 {
                    tools::run("partx", &["--add", device])?;
                }
            }
            Self::Lvm(vg) => {
                for other in 0..others {
                    vg.create(&format!("other-{other}"), mib)?;
                }
            }
        }
        Ok(admin_drive)
    }

    /// Creates the volume in the first free space. With partx, since not every kernel reads GPTs, or tables of drives in use.
    pub(super) fn create(&self, mib: u64) -> Result<(), Trouble> {
        match self {
            Self::Partition { device, number } => {
                sfdisk(device, &["--append"], &format!("size={mib}MiB\n"))?;
                partx("--add", device, *number)
            }
            Self::Lvm(vg) => vg.create(LV, mib),
        }
    }

    /// The same with sgdisk, for partitions only.
    pub(super) fn create_by_sgdisk(&self, mib: u64) -> Result<(), Trouble> {
        match self {
            Self::Partition { device, number } => {
                tools::run("sgdisk", &[&format!("--new=0:0:+{mib}M"), device])?;
                partx("--add", device, *number)
            }
            Self::Lvm(_) => Err(Trouble::new("sgdisk makes no logical volumes")),
        }
    }

    pub(super) fn delete(&self) -> Result<(), Trouble> {
        match self {
            Self::Partition { device, number } => {
                partx("--delete", device, *number)?;
                sfdisk(device, &["--delete", &number.to_string()], "")
            }
            Self::Lvm(vg) => vg.remove(LV),
        }
    }

    /// Returns the volume's device.
    pub(super) fn node(&self) -> String {
        match self {
            Self::Partition { device, number } => format!("{device}p{number}"),
            Self::Lvm(VolumeGroup(vg)) => format!("/dev/{vg}/{LV}"),
        }
    }
}

fn partx(what: &str, device: &str, number: usize) -> Result<(), Trouble> {
    tools::run("partx", &[what, "--nr", &number.to_string(), device]).map(drop)
}

impl VolumeGroup {
    /// Creates the volume group on a drive.
    pub(super) fn new(device: &str, name: &str) -> Result<Self, Trouble> {
        tools::run("vgcreate", &["--quiet", name, device])?;
        Ok(Self(name.to_owned()))
    }

    /// Creates a logical volume with the options that Drivebay uses.
    pub(super) fn create(&self, name: &str, mib: u64) -> Result<(), Trouble> {
        let size = format!("{mib}m");
        let options = [
            "--quiet",
            "--yes",
            "--zero=n",
            "--wipesignatures=n",
            "--activate=y",
            "--type=linear",
        ];
        let what = ["--size", &size, "--name", name, &self.0];
        tools::run("lvcreate", &[options.as_slice(), &what].concat()).map(drop)
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Trouble> {
        let lv = format!("{}/{name}", self.0);
        tools::run("lvremove", &["--quiet", "--yes", &lv]).map(drop)
    }
}

impl Drop for VolumeGroup {
    fn drop(&mut self) {
        // The drive below it is removed next.
        let _ = tools::run("vgremove", &["--quiet", "--yes", &self.0]);
    }
}

/// `args`: an option first, then words after the device.
fn sfdisk(device: &str, args: &[&str], script: &str) -> Result<(), Trouble> {
    let program = tools::find("sfdisk").ok_or_else(|| Trouble::new("sfdisk is not installed"))?;
    let (option, behind) = args.split_at(args.len().min(1));
    let mut child = Command::new(program)
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .args(option)
        .arg(device)
        .args(behind)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Trouble::new(format!(
            "sfdisk {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}
