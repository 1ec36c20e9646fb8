//! Discovery against the real kernel: uevents, sysfs, and the probe of loop devices. Needs root.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used
)] // helpers of tests

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use drivebay_discovery::udev::{Changed, UdevConfig, watch};
use drivebay_layout::probe::{Blankness, GptState, Probe, ProbeError, Probed};
use drivebay_model::{ClaimPolicy, DriveRef, Signatures, Transport};
use drivebay_sys::{blkid, sysfs};
use drivebay_worker::{Context, Job};
use tokio::sync::mpsc::{Receiver, error::TryRecvError};

const MIB: u64 = 1 << 20;

/// A sparse file on a loop device; dropping it detaches.
struct Loop {
    dir: tempfile::TempDir,
    device: PathBuf,
}

impl Loop {
    fn new(bytes: u64, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("drive.img");
        File::create(&file).unwrap().set_len(bytes).unwrap();
        let out = Command::new("losetup")
            .args(options)
            .args(["-f", "--show"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        Self {
            dir,
            device: String::from_utf8(out.stdout).unwrap().trim().into(),
        }
    }

    fn name(&self) -> String {
        self.device
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap()
            .to_owned()
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        // Through the node: what is written to the file behind it stays unseen while anybody holds the node open.
        let file = OpenOptions::new().write(true).open(&self.device).unwrap();
        file.write_all_at(bytes, at).unwrap();
        file.sync_all().unwrap();
    }

    fn drive(&self) -> DriveRef {
        DriveRef::from(&sysfs::read(Path::new("/sys"), &self.name()).unwrap())
    }

    fn probe(&self) -> Result<Probed, ProbeError> {
        Probe {
            drive: self.drive(),
            policy: Some(ClaimPolicy::Blank),
            past_own_table: false,
        }
        .run(&mut Context::silent())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// Opens it as mount(2) and device-mapper do.
fn take(device: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(device)
}

#[test]
fn while_a_drive_is_probed_others_can_mount_and_activate_what_is_on_it() {
    let one = Loop::new(80 * MIB, &[]);
    for policy in [Some(ClaimPolicy::Blank), None] {
        let (device, refused) = (one.device.clone(), Arc::new(Mutex::new(Vec::new())));
        let errors = refused.clone();
        let mut context = Context::new(move |step| {
            if let Err(error) = take(&device) {
                errors.lock().unwrap().push(format!("{step}: {error}"));
            }
        });
        let probe = Probe {
            drive: one.drive(),
            policy,
            past_own_table: false,
        };
        assert!(!probe.clone().run(&mut context).unwrap().busy);
        assert_eq!(*refused.lock().unwrap(), Vec::<String>::new());

        // Only a drive that may be claimed is tested for another holder: the test itself holds the drive for a moment.
        let _held = take(&one.device).unwrap();
        let busy = probe.run(&mut Context::silent()).unwrap().busy;
        assert_eq!(busy, policy.is_some());
    }
}

#[test]
fn a_loop_devices_facts_are_read_from_the_real_sysfs() {
    let one = Loop::new(80 * MIB, &["--sector-size", "4096"]);
    let facts = sysfs::read(Path::new("/sys"), &one.name()).unwrap();
    assert_eq!(
        (facts.size_bytes, facts.logical_sector, facts.transport),
        (80 * MIB, 4096, Transport::Loop)
    );
    assert_eq!(facts.backing_file, Some(one.dir.path().join("drive.img")));
    assert!(
        facts.identity_is_stable && facts.id.0.starts_with("loop-drive.img-") && facts.diskseq > 0
    );
}

#[test]
fn blank_is_blank_and_one_byte_is_not_whatever_the_sector_size() {
    for sector in ["512", "4096"] {
        let one = Loop::new(80 * MIB, &["--sector-size", sector]);
        let probed = one.probe().unwrap();
        assert_eq!(
            (probed.signatures, probed.gpt, probed.blankness),
            (Signatures::Empty, GptState::None, Blankness::Blank)
        );
        assert!(!probed.busy && !probed.read_only && probed.ours.is_none());
        one.write(80 * MIB - 3, b"x");
        assert_eq!(
            one.probe().unwrap().blankness,
            Blankness::DataAt(80 * MIB - 3),
            "reads go past the page cache"
        );
    }
}

#[test]
fn a_device_that_somebody_holds_is_busy_and_still_probed() {
    let one = Loop::new(80 * MIB, &[]);
    let _held = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&one.device)
        .unwrap();
    let probed = one.probe().unwrap();
    assert!(probed.busy);
    assert_eq!(probed.signatures, Signatures::Empty);
}

#[test]
fn a_device_that_does_not_read_is_an_error_and_not_empty() {
    let one = Loop::new(80 * MIB, &[]);
    let drive = one.drive();
    OpenOptions::new()
        .write(true)
        .open(one.dir.path().join("drive.img"))
        .unwrap()
        .set_len(0)
        .unwrap();
    let failed = Probe {
        drive,
        policy: None,
        past_own_table: false,
    }
    .run(&mut Context::silent())
    .unwrap_err();
    assert!(matches!(failed, ProbeError::Read { .. }), "{failed:?}");
    assert!(
        blkid::probe_device(&one.device).is_err(),
        "libblkid's wrapper says so too"
    );
}

#[test]
fn a_volume_node_is_probed_for_its_filesystem() {
    let one = Loop::new(80 * MIB, &[]);
    assert_eq!(blkid::probe_device(&one.device).unwrap(), Signatures::Empty);
    let made = Command::new("mkfs.ext4")
        .args([
            "-q",
            "-L",
            "data",
            "-U",
            "6b0b1a0e-52d6-44cf-a1e5-0c5a3e1c9b11",
        ])
        .arg(&one.device)
        .status()
        .unwrap();
    assert!(made.success());
    let Signatures::Found(signatures) = blkid::probe_device(&one.device).unwrap() else {
        panic!("nothing found")
    };
    let ext4 = &signatures[0];
    assert_eq!(
        (
            ext4.kind.as_str(),
            ext4.usage.as_str(),
            ext4.label.as_str(),
            ext4.uuid.as_str()
        ),
        (
            "ext4",
            "filesystem",
            "data",
            "6b0b1a0e-52d6-44cf-a1e5-0c5a3e1c9b11"
        )
    );
}

/// Waits for a batch that names the device.
fn hear(receiver: &mut Receiver<Changed>, name: &str) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        match receiver.try_recv() {
            Ok(changed) if changed.lost || changed.names.contains(name) => return Ok(()),
            Ok(_) => {}
            Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(5)),
            Err(TryRecvError::Disconnected) => return Err(io::Error::other("the thread ended")),
        }
    }
    Err(io::Error::other(format!("no event of {name} within 10 s")))
}

fn config() -> UdevConfig {
    UdevConfig {
        debounce: Duration::from_millis(20),
        at_most: Duration::from_millis(500),
    }
}

#[test]
fn the_kernels_uevents_are_heard() {
    let mut receiver = watch(config()).unwrap();
    let one = Loop::new(80 * MIB, &[]);
    hear(&mut receiver, &one.name()).unwrap();
    fs::write(format!("/sys/class/block/{}/uevent", one.name()), "change").unwrap();
    hear(&mut receiver, &one.name()).unwrap();
}

/// Set in the child that runs in a network namespace of its own.
const INSIDE: &str = "DRIVEBAY_TEST_INSIDE_NETNS";

/// A pod without hostNetwork: the kernel's events must reach it, udevd's would not.
#[test]
fn the_kernels_uevents_are_heard_in_another_network_namespace() {
    if std::env::var_os(INSIDE).is_some() {
        let mut receiver = watch(config()).unwrap();
        let one = Loop::new(80 * MIB, &[]);
        hear(&mut receiver, &one.name()).unwrap();
        return;
    }
    let out = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "the_kernels_uevents_are_heard_in_another_network_namespace",
            "--nocapture",
        ])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}

fn tool(program: &str, args: &[&str]) -> bool {
    match Command::new(program).args(args).output() {
        Err(_) => {
            eprintln!("skipped: {program} is not there");
            false
        }
        Ok(out) => {
            let stderr = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{program} {args:?}: {stderr}");
            true
        }
    }
}

/// Remains that recovery tools would find are found: tables that libblkid does not know, a filesystem that begins where a partition did,
/// and backups of superblocks.
#[test]
fn a_drive_with_remains_of_tables_or_filesystems_is_not_one_without_a_signature() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let probed = |device: &Loop| {
        let probe = Probe {
            drive: device.drive(),
            policy: Some(ClaimPolicy::SignatureFree),
            past_own_table: false,
        };
        probe.run(&mut Context::silent()).unwrap().signatures
    };
    type Make = fn(&str) -> bool;
    // Zeroed afterwards: from this byte on, so many.
    type Zeroed = Option<(u64, usize)>;
    let cases: [(&str, Make, Zeroed); 10] = [
        (
            "bsd",
            |node| tool("parted", &["-s", node, "mklabel", "bsd"]),
            None,
        ),
        (
            "amiga",
            |node| tool("parted", &["-s", node, "mklabel", "amiga"]),
            None,
        ),
        (
            "atari",
            |node| tool("parted", &["-s", node, "mklabel", "atari"]),
            None,
        ),
        (
            "loop",
            |node| tool("parted", &["-s", node, "mklabel", "loop"]),
            None,
        ),
        (
            "ext4 from 1 MiB on",
            |node| {
                tool(
                    "mkfs.ext4",
                    &["-q", "-F", "-E", "offset=1048576", node, "200M"],
                )
            },
            None,
        ),
        (
            "xfs, its first superblock zeroed",
            |node| tool("mkfs.xfs", &["-q", "-f", node]),
            Some((0, 4096)),
        ),
        (
            "btrfs, its first superblock zeroed",
            |node| tool("mkfs.btrfs", &["-q", "-f", node]),
            Some((65536, 4096)),
        ),
        (
            "ext4 with blocks of 1 KiB, its first superblock zeroed",
            |node| tool("mkfs.ext4", &["-q", "-F", "-b", "1024", node]),
            Some((0, 8192)),
        ),
        (
            "ext4 with blocks of 4 KiB, its first superblock zeroed",
            |node| tool("mkfs.ext4", &["-q", "-F", "-b", "4096", node]),
            Some((0, 8192)),
        ),
        (
            "ext2, its first superblock zeroed",
            |node| tool("mkfs.ext2", &["-q", "-F", "-b", "2048", node]),
            Some((0, 8192)),
        ),
    ];
    for (what, make, zeroed) in cases {
        let device = Loop::new(400 * MIB, &[]);
        assert_eq!(probed(&device), Signatures::Empty, "{what}: before");
        if !make(device.device.to_str().unwrap()) {
            continue;
        }
        if let Some((at, len)) = zeroed {
            device.write(at, &vec![0; len]);
        }
        let signatures = probed(&device);
        assert_ne!(signatures, Signatures::Empty, "{what}");
        eprintln!("{what}: {signatures:?}");
    }
}
