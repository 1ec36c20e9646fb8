//! A real partition on a loop device with a label that exists in memory only, in a mount namespace of the
//! test's own, so that leftovers die with it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use drivebay_fs::{
    backend::StageBackend,
    jobs::{
        Device, FsError, GrowFs, Grown, Publish, Stage, StageMount, Staged, Stats, Unmount,
        Unmounted, Usage,
    },
    publish, staging, unmount, usage,
};
use drivebay_layout::jobs::{Changed, LayoutError};
use drivebay_model::{
    Cause, Contents, DriveRef, ErasePolicy, Extent, FsType, Label, MIB, Mode, Placed, Record,
    RecordState, Signatures,
};
use drivebay_sys::{
    blkid,
    cmd::{self, CmdError, Output, Tool},
    mountinfo, sysfs,
};
use drivebay_worker::{Context, Job};
use nix::mount::{MsFlags, mount};
use uuid::Uuid;

/// Offset of the partition on its drive, bytes.
const START: u64 = MIB;

/// Runs a command that must succeed.
pub(crate) fn sh(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// True (and says so) when these tests cannot run: they need root.
pub(crate) fn skipped() -> bool {
    let skipped = !nix::unistd::geteuid().is_root();
    if skipped {
        eprintln!("skipped: loop devices and mounts need root");
    }
    skipped
}

/// True if this process may expand a mounted ext4, which requires CAP_SYS_RESOURCE (bit 24).
pub(crate) fn may_grow_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & (1 << 24) != 0
}

/// For the calling thread, which every test has to itself.
#[allow(unsafe_code)]
fn own_mount_namespace() {
    // SAFETY: a plain system call without pointers.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
}

/// One drive with one volume.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) drive: DriveRef,
    pub(crate) uuid: Uuid,
    pub(crate) device: String,
    contents: Mutex<Contents>,
    /// Programs that were run.
    pub(crate) ran: Mutex<Vec<&'static str>>,
    /// Fails the next probe.
    pub(crate) probe_fails: Mutex<bool>,
    /// Fails advancing to `mounted`, as a crash at that moment would.
    pub(crate) crash_before_mounted: Mutex<bool>,
}

impl Bench {
    /// `fs_type` None: a block volume.
    pub(crate) fn new(mib: u64, fs_type: Option<FsType>) -> Self {
        own_mount_namespace();
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("drive.img");
        // Room to grow into.
        fs::File::create(&image)
            .unwrap()
            .set_len((2 * mib + 2) * MIB)
            .unwrap();
        let node = sh("losetup", &["-f", "-P", "--show", image.to_str().unwrap()]);
        let kernel_name = node.trim_start_matches("/dev/").to_owned();
        let device = format!("{kernel_name}p1");
        sh(
            "addpart",
            &[
                &node,
                "1",
                &(START / 512).to_string(),
                &(mib * MIB / 512).to_string(),
            ],
        );
        let number = |path: &str| {
            let rdev = fs::metadata(path).unwrap().rdev();
            (libc::major(rdev), libc::minor(rdev))
        };
        let (major, minor) = number(&node);
        let facts = sysfs::identify(Path::new("/sys"), &kernel_name).unwrap();
        let drive = DriveRef {
            id: facts.id,
            kernel_name,
            major,
            minor,
            diskseq: 0,
            size_bytes: (2 * mib + 2) * MIB,
        };
        let uuid = Uuid::new_v4();
        let extent = Extent {
            start: START,
            len: mib * MIB,
        };
        let record = Record {
            uuid,
            name: "pvc".to_owned(),
            class: "test".to_owned(),
            mode: if fs_type.is_some() {
                Mode::Mount
            } else {
                Mode::Block
            },
            fs_type,
            mkfs_options: Vec::new(),
            mount_options: Vec::new(),
            parameters: BTreeMap::new(),
            erase: ErasePolicy::Zero,
            requested_bytes: extent.len,
            extent,
            growing_to: None,
            place: Default::default(),
            state: RecordState::New,
        };
        let dev = Some(number(&format!("/dev/{device}")));
        let placed = Placed {
            record,
            number: Some(1),
            device: Some(device.clone()),
            dev,
            dm_uuid: None,
            pieces: Vec::new(),
            mapping: None,
            snapshots: Vec::new(),
            ambiguous: None,
        };
        let label = Label {
            drive_uuid: Uuid::new_v4(),
            cluster: "c".to_owned(),
            node: "n".to_owned(),
            class: "test".to_owned(),
            drive_id: drive.id.clone(),
            cordon: None,
        };
        let contents = Contents {
            layout: drivebay_model::Layout::Partition,
            sequence: 1,
            read_at: Default::default(),
            label,
            volumes: vec![placed],
            free: Vec::new(),
            space: Default::default(),
            usable_bytes: extent.len,
            extent_bytes: MIB,
            table_full: false,
            unmarked_bytes: 0,
            deleted_stores: Vec::new(),
            strangers: Vec::new(),
            notes: Vec::new(),
        };
        for name in ["staging", "pods"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self {
            dir,
            drive,
            uuid,
            device,
            contents: Mutex::new(contents),
            ran: Mutex::default(),
            probe_fails: Mutex::new(false),
            crash_before_mounted: Mutex::new(false),
        }
    }

    pub(crate) fn node(&self) -> String {
        format!("/dev/{}", self.device)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn dev(&self) -> (u32, u32) {
        self.contents.lock().unwrap().volumes[0].dev.unwrap()
    }

    pub(crate) fn state(&self) -> RecordState {
        self.contents.lock().unwrap().volumes[0]
            .record
            .state
            .clone()
    }

    pub(crate) fn edit(&self, change: impl FnOnce(&mut Record)) {
        change(&mut self.contents.lock().unwrap().volumes[0].record);
    }

    /// Zeros the start of the partition behind the filesystem's back.
    pub(crate) fn zero(&self) {
        sh(
            "dd",
            &[
                "if=/dev/zero",
                &format!("of={}", self.node()),
                "bs=1M",
                "count=4",
                "conv=fsync",
            ],
        );
    }

    /// Makes the partition larger.
    pub(crate) fn enlarge(&self, mib: u64) {
        let node = self.drive.node();
        sh(
            "resizepart",
            &[node.to_str().unwrap(), "1", &(mib * MIB / 512).to_string()],
        );
        self.edit(|record| record.extent.len = mib * MIB);
    }

    pub(crate) fn stage_job(&self, flags: &[&str], read_only: bool) -> Stage {
        Stage {
            drive: self.drive.clone(),
            uuid: self.uuid,
            mount: Some(StageMount {
                path: self.path("staging"),
                fs_type: None,
                flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
                read_only,
                mounted_with: None,
                xfs_retry_forever: false,
            }),
            may_repair: true,
            secrets: None,
        }
    }

    pub(crate) fn run_stage(&self, job: &Stage) -> Result<Staged, FsError> {
        staging::stage(self, job, &mut Context::silent())
    }

    pub(crate) fn stage(&self) -> Result<Staged, FsError> {
        self.run_stage(&self.stage_job(&[], false))
    }

    pub(crate) fn publish(&self, target: &str, read_only: bool) -> Result<bool, FsError> {
        let placed = self.contents.lock().unwrap().volumes[0].clone();
        let staging_path = placed.record.fs_type.map(|_| self.path("staging"));
        let job = Publish {
            drive: self.drive.clone(),
            uuid: self.uuid,
            placed,
            staging_path,
            target: self.path("pods").join(target),
            read_only,
            options: Vec::new(),
            flags: Vec::new(),
            staged_with: None,
            published_with: None,
        };
        publish::publish(&job, &mut Context::silent()).map(|published| published.changed)
    }

    /// Returns the volume's device by kernel name and number, without a device-mapper uuid.
    pub(crate) fn device(&self) -> Device {
        Device {
            name: self.device.clone(),
            dev: self.dev(),
            dm_uuid: None,
        }
    }

    pub(crate) fn unmount_job(&self, path: &str) -> Unmount {
        Unmount {
            path: self.path(path),
            deadline_ms: 2000,
            may_detach: false,
            remove: path != "staging",
            expected: vec![self.device()],
        }
    }

    pub(crate) fn unmount(&self, path: &str) -> Result<Unmounted, FsError> {
        unmount::unmount(&self.unmount_job(path), &mut Context::silent())
    }

    pub(crate) fn stats(&self, path: &str) -> Result<Usage, FsError> {
        let block = self.contents.lock().unwrap().volumes[0]
            .record
            .fs_type
            .is_none();
        usage::usage(&Stats {
            path: self.path(path),
            device: self.device(),
            block,
        })
    }

    pub(crate) fn grow(&self, path: &str) -> Result<Grown, FsError> {
        let block = self.contents.lock().unwrap().volumes[0]
            .record
            .fs_type
            .is_none();
        let job = GrowFs {
            encryption: None,
            drive: self.drive.clone(),
            uuid: self.uuid,
            path: self.path(path),
            device: self.device(),
            block,
        };
        job.run(&mut Context::silent())
    }

    /// Returns the number of mounts that are stacked at a path.
    pub(crate) fn mounts(&self, path: &str) -> usize {
        let entries = mountinfo::read().unwrap();
        mountinfo::mounts_at(&entries, &mountinfo::resolve(&self.path(path))).len()
    }

    pub(crate) fn signatures(&self) -> Signatures {
        blkid::probe_device(Path::new(&self.node())).unwrap()
    }
}

impl StageBackend for Bench {
    fn read_contents(&self, _drive: &DriveRef, _repair: bool) -> Result<Contents, LayoutError> {
        Ok(self.contents.lock().unwrap().clone())
    }

    fn advance(
        &self,
        _drive: &DriveRef,
        uuid: Uuid,
        to: RecordState,
    ) -> Result<Changed, LayoutError> {
        if matches!(to, RecordState::Fs { mounted: true, .. })
            && *self.crash_before_mounted.lock().unwrap()
        {
            return Err(LayoutError::BadTransition {
                uuid,
                from: "here".to_owned(),
                to: "there".to_owned(),
            });
        }
        self.edit(|record| record.state = to);
        Ok(Changed {
            contents: self.contents.lock().unwrap().clone(),
            changed: true,
        })
    }

    fn probe(&self, node: &Path) -> Result<Signatures, Cause> {
        if *self.probe_fails.lock().unwrap() {
            return Err(Cause::text("Input/output error"));
        }
        blkid::probe_device(node).map_err(|error| Cause::new(&error))
    }

    fn run(&self, tool: &Tool) -> Result<Output, CmdError> {
        self.ran.lock().unwrap().push(tool.program);
        cmd::run(tool)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mine = mountinfo::resolve(self.dir.path());
        for entry in mountinfo::read().unwrap_or_default().iter().rev() {
            if entry.mount_point.starts_with(&mine) {
                let _ = Command::new("umount")
                    .arg("-l")
                    .arg(&entry.mount_point)
                    .output();
            }
        }
        let node = self.drive.node();
        let _ = Command::new("delpart").arg(&node).arg("1").output();
        let _ = Command::new("losetup").arg("-d").arg(&node).output();
    }
}
