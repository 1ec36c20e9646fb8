//! The administrator's commands, on a loop drive that the agent sees and does not select.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use drivebay_hwtests::{Shelf, Trouble, tools};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A drive with a GPT, and where its one partition that comes and goes is mounted.
pub(super) struct Admin {
    device: String,
    number: usize,
    pub(super) staging: PathBuf,
    pub(super) target: PathBuf,
}

impl Admin {
    /// With so many partitions of so many MiB. The shelf takes it away when it goes.
    pub(super) fn new(shelf: &Shelf, bytes: u64, others: usize, mib: u64) -> Result<Self, Trouble> {
        let dir = shelf.dir().join("beside");
        let [staging, target] = ["staging", "target"].map(|name| dir.join(name));
        fs::create_dir(&dir)?;
        fs::create_dir(&staging)?;
        fs::create_dir(&target)?;
        let file = dir.join("drive.img");
        File::create_new(&file)?.set_len(bytes)?;
        let device = tools::run("losetup", &["--find", "--show", &text(&file)])?;
        let admin = Self {
            device: device.trim().to_owned(),
            number: others + 1,
            staging,
            target,
        };
        let partitions = format!("size={mib}MiB\n").repeat(others);
        admin.sfdisk(&[], &format!("label: gpt\n{partitions}"))?;
        if others > 0 {
            tools::run("partx", &["--add", &admin.device])?;
        }
        Ok(admin)
    }

    /// A partition in the first free space. partx, since not every kernel reads GPTs, nor tables of drives in use.
    pub(super) fn create(&self, mib: u64) -> Result<(), Trouble> {
        self.sfdisk(&["--append"], &format!("size={mib}MiB\n"))?;
        self.partx("--add")
    }

    /// The same by sgdisk.
    pub(super) fn create_by_sgdisk(&self, mib: u64) -> Result<(), Trouble> {
        let new = format!("--new=0:0:+{mib}M");
        tools::run("sgdisk", &[&new, &self.device])?;
        self.partx("--add")
    }

    /// A filesystem with mkfs' defaults, mounted.
    pub(super) fn stage(&self, fs_type: &str) -> Result<(), Trouble> {
        let node = self.node();
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
        tools::run("blkdiscard", &["--force", &self.node()]).map(drop)
    }

    pub(super) fn delete(&self) -> Result<(), Trouble> {
        self.partx("--delete")?;
        self.sfdisk(&["--delete", &self.number.to_string()], "")
    }

    fn node(&self) -> String {
        format!("{}p{}", self.device, self.number)
    }

    fn partx(&self, what: &str) -> Result<(), Trouble> {
        let number = self.number.to_string();
        tools::run("partx", &[what, "--nr", &number, &self.device]).map(drop)
    }

    /// Options, the device, and what belongs behind it.
    fn sfdisk(&self, args: &[&str], script: &str) -> Result<(), Trouble> {
        let program =
            tools::find("sfdisk").ok_or_else(|| Trouble::new("sfdisk is not installed"))?;
        let (option, behind) = args.split_at(args.len().min(1));
        let mut child = Command::new(program)
            .args(["--quiet", "--no-reread", "--no-tell-kernel"])
            .args(option)
            .arg(&self.device)
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
