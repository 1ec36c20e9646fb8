//! A mounted ext4 on LVM, on a drive of the lab's guest.

use std::{
    fs,
    path::{Path, PathBuf},
};

use drivebay_hwtests::{Trouble, tools};

const VG: &str = "drivebaybench";
pub(super) const VOLUME: &str = "volume";
pub(super) const SNAPSHOT: &str = "check";
/// On the other drive.
const OTHER_VG: &str = "drivebaybenchother";
pub(super) const POOL: &str = "pool";
/// LVM asks for thin_check, which the guest does not have.
const UNCHECKED: &str = "global{thin_check_executable=\"\"}";
/// The volume's own table, under a snapshot that device-mapper alone makes.
const REAL: &str = "drivebaybench-volume-under";
const SLOW: &str = "drivebaybench-slow";
/// Directories of the filesystem, and files in each.
const DIRS: usize = 40;
const FILES: usize = 250;

#[derive(Debug)]
pub(super) struct Volume {
    pub(super) dir: PathBuf,
    node: String,
    /// The device's name in device-mapper, and its own table.
    name: String,
    table: String,
    vg: &'static str,
    /// An LV for what is stored, on the same drive.
    pub(super) store: String,
    /// The same on another drive.
    pub(super) other: String,
}

/// Runs dmsetup with these arguments and returns its output. Errs if it is not installed or fails.
pub(super) fn dm(args: &[&str]) -> Result<String, Trouble> {
    tools::run("dmsetup", args)
}

/// Returns the used bytes in a device's `dmsetup status`: the number at the start of its word `word`, in units of `unit` bytes.
pub(crate) fn used(name: &str, word: usize, unit: u64) -> Result<u64, Trouble> {
    let status = dm(&["status", name])?;
    let used = status.split_whitespace().nth(word);
    let used = used.and_then(|used| used.split('/').next()?.parse::<u64>().ok());
    let used = used.ok_or_else(|| Trouble::new(format!("{name} is not valid: {status}")))?;
    Ok(used * unit)
}

/// Returns serials and device nodes of qemu's drives whose serials have this prefix. No other drive is ever written to.
pub(crate) fn drives(prefix: &str) -> Result<Vec<(String, String)>, Trouble> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let device = entry?.path();
        let read = |what: &str| {
            let text = fs::read_to_string(device.join("device").join(what)).unwrap_or_default();
            text.trim().to_owned()
        };
        let serial = read("serial");
        if serial.starts_with(prefix) && read("model").starts_with("QEMU") {
            let name = device.file_name().unwrap_or_default().to_string_lossy();
            devices.push((serial, format!("/dev/{name}")));
        }
    }
    devices.sort();
    Ok(devices)
}

/// A device over a drive, whose reads, writes and flushes each take so many milliseconds longer.
pub(crate) fn slowed(drive: &str, delay: u64) -> Result<String, Trouble> {
    // Not from its first sector on: LVM would find its label on both.
    const BEGIN: u64 = 8192;
    let sectors = tools::run("blockdev", &["--getsz", drive])?;
    let sectors = sectors.trim().parse::<u64>().unwrap_or(0);
    let one = format!("{drive} {BEGIN} {delay}");
    let table = format!(
        "0 {} delay {one} {one} {one}",
        sectors.saturating_sub(BEGIN)
    );
    dm(&["create", SLOW, "--table", &table])?;
    Ok(format!("/dev/mapper/{SLOW}"))
}

/// A logical volume; it may be a thin one, or a snapshot.
pub(crate) fn lvcreate(args: &[&str]) -> Result<(), Trouble> {
    let options = ["--config", UNCHECKED, "--quiet", "--yes"];
    tools::run("lvcreate", &[&options[..], args].concat()).map(drop)
}

pub(crate) fn lvremove(name: &str) -> Result<(), Trouble> {
    let args = ["--config", UNCHECKED, "--quiet", "--yes", name];
    tools::run("lvremove", &args).map(drop)
}

impl Volume {
    /// One of so many MiB on the first drive, and a thin one on the second, each with room for a snapshot's store beside it.
    /// `delay`: milliseconds that each request of the first takes longer.
    pub(super) fn both(
        drives: [&str; 2],
        delay: u64,
        mib: u64,
        store: u64,
    ) -> Result<[Self; 2], Trouble> {
        let first = match delay {
            0 => drives[0].to_owned(),
            delay => slowed(drives[0], delay)?,
        };
        let [size, room] = [mib, store].map(|mib| format!("{mib}m"));
        for (vg, drive) in [(VG, first.as_str()), (OTHER_VG, drives[1])] {
            tools::run("vgcreate", &["--quiet", vg, drive])?;
            lvcreate(&["-L", &room, "-n", "store", vg])?;
        }
        lvcreate(&["-L", &size, "-n", VOLUME, VG])?;
        let pool = format!("{}m", mib + store);
        lvcreate(&[
            "--type=thin-pool",
            "-c",
            "64k",
            "-L",
            &pool,
            "-n",
            POOL,
            OTHER_VG,
        ])?;
        lvcreate(&["-V", &size, "--thinpool", POOL, "-n", VOLUME, OTHER_VG])?;
        Ok([Self::new(VG)?, Self::new(OTHER_VG)?])
    }

    /// Makes a filesystem with many small files.
    fn new(vg: &'static str) -> Result<Self, Trouble> {
        let node = format!("/dev/{vg}/{VOLUME}");
        let options = "lazy_itable_init=0,lazy_journal_init=0";
        tools::run("mkfs.ext4", &["-q", "-E", options, &node])?;
        let dir = Path::new("/run").join(vg);
        fs::create_dir_all(&dir)?;
        let name = format!("{vg}-{VOLUME}");
        let volume = Self {
            dir,
            table: dm(&["table", &name])?.trim().to_owned(),
            name,
            node,
            vg,
            store: format!("/dev/{VG}/store"),
            other: format!("/dev/{OTHER_VG}/store"),
        };
        volume.mount()?;
        for number in 0..DIRS {
            let dir = volume.dir.join(format!("d{number}"));
            fs::create_dir(&dir)?;
            for file in 0..FILES {
                fs::write(dir.join(file.to_string()), [b'x'; 100])?;
            }
        }
        Ok(volume)
    }

    /// The name of an LV of its volume group in LVM.
    pub(super) fn lv(&self, name: &str) -> String {
        format!("{}/{name}", self.vg)
    }

    /// The same in device-mapper.
    pub(super) fn mapped(&self, name: &str) -> String {
        format!("{}-{name}", self.vg)
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    pub(super) fn mount(&self) -> Result<(), Trouble> {
        tools::run("mount", &[Path::new(&self.node), &self.dir]).map(drop)
    }

    pub(super) fn unmount(&self) -> Result<(), Trouble> {
        tools::run("umount", &[&self.dir]).map(drop)
    }

    /// Puts a target between the filesystem and the volume's own table, and a snapshot beside it if there is to be one. REAL in a
    /// table is the device with the volume's own.
    pub(super) fn over(&self, snapshot: Option<&str>, target: &str) -> Result<(), Trouble> {
        let real = format!("/dev/mapper/{REAL}");
        let sectors = self.table.split(' ').nth(1).unwrap_or_default();
        let table = |text: &str| match text {
            "snapshot-origin" => format!("0 {sectors} snapshot-origin {real}"),
            text => format!("0 {sectors} {}", text.replace("REAL", &real)),
        };
        dm(&["create", REAL, "--table", &self.table])?;
        // Zeros are a store, and metadata of dm-era, that is empty.
        for node in [&self.store, &self.other] {
            let args = [
                "if=/dev/zero",
                "bs=1M",
                "count=16",
                "oflag=direct",
                "status=none",
            ];
            tools::run("dd", &[&args[..], &[&format!("of={node}")]].concat())?;
        }
        dm(&["suspend", &self.name])?;
        let loaded = dm(&["load", &self.name, "--table", &table(target)]).and_then(|_| {
            let Some(snapshot) = snapshot else {
                return Ok(String::new());
            };
            dm(&["create", SNAPSHOT, "--table", &table(snapshot)])
        });
        dm(&["resume", &self.name])?;
        loaded.map(drop)
    }

    /// Reverts `over` while the volume stays mounted: restores its own table, and removes the REAL device and, if `snapshot` is set, the
    /// snapshot. After an error the volume may be suspended.
    pub(super) fn bare(&self, snapshot: bool) -> Result<(), Trouble> {
        dm(&["suspend", &self.name])?;
        dm(&["load", &self.name, "--table", &self.table])?;
        if snapshot {
            dm(&["remove", "--retry", SNAPSHOT])?;
        }
        dm(&["resume", &self.name])?;
        dm(&["remove", "--retry", REAL]).map(drop)
    }
}
