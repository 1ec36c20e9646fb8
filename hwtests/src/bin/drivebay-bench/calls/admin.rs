//! The administrator's commands, on a loop drive that the agent sees and does not select.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use drivebay_hwtests::{Shelf, Trouble, tools, tree};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A drive with a GPT, and where its partitions are mounted.
pub(super) struct Admin {
    device: String,
    kernel_name: String,
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
        let device = device.trim().to_owned();
        let partitions = format!("size={mib}MiB\n").repeat(others);
        sfdisk(&["--quiet", &device], &format!("label: gpt\n{partitions}"))?;
        Ok(Self {
            kernel_name: device.trim_start_matches("/dev/").to_owned(),
            device,
            staging,
            target,
        })
    }

    /// A partition in the first free space.
    pub(super) fn create(&self, mib: u64) -> Result<(), Trouble> {
        let script = format!("size={mib}MiB\n");
        sfdisk(&["--quiet", "--append", &self.device], &script)
    }

    /// The same by sgdisk.
    pub(super) fn create_by_sgdisk(&self, mib: u64) -> Result<(), Trouble> {
        let new = format!("--new=0:0:+{mib}M");
        tools::run("sgdisk", &[&new, &self.device]).map(drop)
    }

    /// The newest partition's number.
    pub(super) fn newest(&self) -> u32 {
        let all = tree::partitions(&self.kernel_name);
        all.last().map_or(0, |(_, number)| *number)
    }

    /// A filesystem with mkfs' defaults, mounted.
    pub(super) fn stage(&self, number: u32, fs_type: &str) -> Result<(), Trouble> {
        let node = self.node(number);
        tools::run(&format!("mkfs.{fs_type}"), &["-q", &node])?;
        tools::run("mount", &[&node, &text(&self.staging)]).map(drop)
    }

    pub(super) fn publish(&self) -> Result<(), Trouble> {
        bind(&self.staging, &self.target)
    }

    /// Unmounts it and makes its bytes zeros, as ours are when space is used again: mkfs refuses what looks used.
    pub(super) fn leave(&self, number: u32) -> Result<(), Trouble> {
        unmount(&self.target)?;
        unmount(&self.staging)?;
        self.blank(number)
    }

    pub(super) fn blank(&self, number: u32) -> Result<(), Trouble> {
        tools::run("blkdiscard", &["--force", &self.node(number)]).map(drop)
    }

    pub(super) fn delete(&self, number: u32) -> Result<(), Trouble> {
        let number = number.to_string();
        tools::run("sfdisk", &["--quiet", "--delete", &self.device, &number]).map(drop)
    }

    fn node(&self, number: u32) -> String {
        format!("{}p{number}", self.device)
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

fn sfdisk(args: &[&str], script: &str) -> Result<(), Trouble> {
    let program = tools::find("sfdisk").ok_or_else(|| Trouble::new("sfdisk is not installed"))?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        std::io::Write::write_all(&mut input, script.as_bytes())?;
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

fn text(path: &Path) -> String {
    path.display().to_string()
}
