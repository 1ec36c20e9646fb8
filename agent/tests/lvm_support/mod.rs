//! LVM itself on a loop device, without device-mapper: what it writes is read by us.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods
)]

use std::{
    fs, io,
    os::unix::fs::FileExt as _,
    process::{Command, Output},
};

use drivebay_layout::{
    device::Medium,
    lvm::metadata::{PvContents, Vg, read},
};

/// A loop device with a sparse file, and LVM limited to it. LVM runs without device-mapper (`--driverloaded n`): it
/// writes metadata and activates nothing. The device goes with it.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) node: String,
    size: u64,
    sector: u64,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.node]).status();
    }
}

impl Bench {
    /// None, with the reason on stderr, without root, loop devices or LVM.
    pub(crate) fn new(size: u64, sector: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("drive.img");
        fs::File::create(&image).unwrap().set_len(size).unwrap();
        let sector_size = sector.to_string();
        let attached = Command::new("losetup")
            .args(["-f", "--show", "--sector-size", &sector_size])
            .arg(&image)
            .output();
        let Some(attached) = attached.ok().filter(|attached| attached.status.success()) else {
            eprintln!("skipped: no loop device is to be had here");
            return None;
        };
        let bench = Self {
            node: String::from_utf8(attached.stdout)
                .unwrap()
                .trim()
                .to_owned(),
            dir,
            size,
            sector,
        };
        let locks = bench.dir.path().join("locks");
        fs::create_dir(&locks).unwrap();
        fs::write(
            bench.dir.path().join("lvm.conf"),
            format!(
                "global {{ use_aio=0 locking_dir=\"{}\" event_activation=0 use_lvmlockd=0 use_lvmpolld=0 }}\n\
                 devices {{ hints=\"none\" use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source=\"none\" }}\n\
                 backup {{ backup=0 archive=0 }}\n",
                locks.display()
            ),
        )
        .unwrap();
        if Command::new("lvm").arg("version").output().is_err() {
            eprintln!("skipped: lvm is not installed");
            return None;
        }
        Some(bench)
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        Command::new("lvm")
            .arg(args[0])
            .args(["--driverloaded", "n", "--devices", &self.node])
            .args(&args[1..])
            .env("LVM_SYSTEM_DIR", self.dir.path())
            .env("LC_ALL", "C")
            .env("LVM_SUPPRESS_FD_WARNINGS", "1")
            .output()
            .unwrap()
    }

    pub(crate) fn lvm(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn create(&self, name: &str, more: &[&str]) -> Output {
        let usual = ["lvcreate", "-an", "-Zn", "-Wn", "-y", "-n", name];
        self.run(&[&usual, more].concat())
    }

    pub(crate) fn vg(&self) -> Vg {
        let status = Command::new("blockdev")
            .args(["--flushbufs", &self.node])
            .status();
        assert!(status.unwrap().success());
        match read(self).unwrap() {
            PvContents::Vg(committed) => committed.vg,
            other => panic!("{other:?}"),
        }
    }
}

/// Through the node: what LVM wrote reaches the file behind it later.
impl Medium for Bench {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        fs::File::open(&self.node)?.read_exact_at(buf, offset)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u64 {
        self.sector
    }
}
