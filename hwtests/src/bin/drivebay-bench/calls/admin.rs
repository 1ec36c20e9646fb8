//! The equivalent commands of an administrator, on a loop drive that the agent sees but does not select.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use drivebay_hwtests::{Shelf, Trouble, tools};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::admin_drive::{AdminDrive, Layout};

/// A drive, and the mount points of its one volume that is created and deleted.
pub(super) struct Admin {
    pub(super) admin_drive: AdminDrive,
    pub(super) staging: PathBuf,
    pub(super) target: PathBuf,
}

impl Admin {
    /// Creates a drive with `others` volumes of `mib` MiB. The shelf removes it.
    pub(super) fn new(
        shelf: &Shelf,
        layout: Layout,
        bytes: u64,
        others: usize,
        mib: u64,
    ) -> Result<Self, Trouble> {
        let dir = shelf.dir().join("beside");
        let [staging, target] = ["staging", "target"].map(|name| dir.join(name));
        fs::create_dir(&dir)?;
        fs::create_dir(&staging)?;
        fs::create_dir(&target)?;
        Ok(Self {
            admin_drive: AdminDrive::new(layout, &drive(&dir, "drive.img", bytes)?, others, mib)?,
            staging,
            target,
        })
    }

    /// Creates a filesystem with mkfs' defaults and mounts it.
    pub(super) fn stage(&self, fs_type: &str) -> Result<(), Trouble> {
        let node = self.admin_drive.node();
        tools::run(&format!("mkfs.{fs_type}"), &["-q", &node])?;
        tools::run("mount", &[&node, &text(&self.staging)]).map(drop)
    }

    pub(super) fn publish(&self) -> Result<(), Trouble> {
        bind(&self.staging, &self.target)
    }

    /// Unmounts the volume and zeroes it, as Drivebay does before space is used again: mkfs refuses a device with a signature.
    pub(super) fn leave(&self) -> Result<(), Trouble> {
        unmount(&self.target)?;
        unmount(&self.staging)?;
        tools::run("blkdiscard", &["--force", &self.admin_drive.node()]).map(drop)
    }
}

/// Returns a loop device over a new file in a directory.
pub(super) fn drive(dir: &Path, name: &str, bytes: u64) -> Result<String, Trouble> {
    let file = dir.join(name);
    File::create_new(&file)?.set_len(bytes)?;
    let device = tools::run("losetup", &["--find", "--show", &text(&file)])?;
    Ok(device.trim().to_owned())
}

/// `mount --bind`.
pub(super) fn bind(from: &Path, to: &Path) -> Result<(), Trouble> {
    tools::run("mount", &["--bind", &text(from), &text(to)]).map(drop)
}

/// `umount`.
pub(super) fn unmount(path: &Path) -> Result<(), Trouble> {
    tools::run("umount", &[&text(path)]).map(drop)
}

/// Unused mounts: binds of a directory, removed on drop.
pub(super) struct Others(PathBuf);

impl Others {
    pub(super) fn new(dir: &Path, of: &Path, count: usize) -> Result<Self, Trouble> {
        let failed = |error: nix::Error| Trouble::doing("making other mounts", &error);
        let root = dir.join("others");
        fs::create_dir_all(&root)?;
        let none = None::<&str>;
        mount(Some("others"), &root, Some("tmpfs"), MsFlags::empty(), none).map_err(failed)?;
        let others = Self(root);
        for number in 0..count {
            let point = others.0.join(number.to_string());
            fs::create_dir(&point)?;
            mount(Some(of), &point, none, MsFlags::MS_BIND, none).map_err(failed)?;
        }
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        // With all mounts below it.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
