//! The administrator's commands, on a loop drive that the agent sees and does not select.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use drivebay_hwtests::{Shelf, Trouble, tools};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::carver::{Carver, Layout};

/// A drive, and where its one volume that comes and goes is mounted.
pub(super) struct Admin {
    pub(super) carver: Carver,
    pub(super) staging: PathBuf,
    pub(super) target: PathBuf,
}

impl Admin {
    /// With so many volumes of so many MiB. The shelf takes it away when it goes.
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
            carver: Carver::new(layout, &drive(&dir, "drive.img", bytes)?, others, mib)?,
            staging,
            target,
        })
    }

    /// A filesystem with mkfs' defaults, mounted.
    pub(super) fn stage(&self, fs_type: &str) -> Result<(), Trouble> {
        let node = self.carver.node();
        tools::run(&format!("mkfs.{fs_type}"), &["-q", &node])?;
        tools::run("mount", &[&node, &text(&self.staging)]).map(drop)
    }

    pub(super) fn publish(&self) -> Result<(), Trouble> {
        bind(&self.staging, &self.target)
    }

    /// Unmounts it and makes its bytes zeros, as ours are when space is used again: mkfs refuses what looks used.
    pub(super) fn leave(&self) -> Result<(), Trouble> {
        unmount(&self.target)?;
        unmount(&self.staging)?;
        tools::run("blkdiscard", &["--force", &self.carver.node()]).map(drop)
    }
}

/// A loop device over a new file of a directory.
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

/// Mounts that nobody asks for: binds of a directory, all gone when dropped.
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
        // With all that is mounted on it.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
