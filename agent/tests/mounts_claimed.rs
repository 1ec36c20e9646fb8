//! The jobs as workers run them, on a drive that was really claimed. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use drivebay_fs::jobs::{Device, FsError, GrowFs, Growth, Stage, StageMount, Unmount};
use drivebay_layout::jobs::{Claim, Create, Delete, Expand, LayoutError};
use drivebay_model::{
    ClaimPolicy, DriveRef, ErasePolicy, Extent, FsType, Label, MIB, Mode, Placed, Record,
    RecordState,
};
use drivebay_sys::{mount, sysfs};
use drivebay_worker::{Context, Job};
use uuid::Uuid;

/// A loop device, and what is mounted from it, for as long as the test runs.
struct Drive {
    dir: tempfile::TempDir,
    node: PathBuf,
}

impl Drive {
    fn new(mib: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("drive.img");
        fs::File::create(&image)
            .unwrap()
            .set_len(mib * MIB)
            .unwrap();
        fs::create_dir(dir.path().join("staging")).unwrap();
        let output = Command::new("losetup")
            .args(["-f", "-P", "--show"])
            .arg(&image)
            .output()
            .unwrap();
        assert!(output.status.success());
        let node = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        Self { dir, node }
    }

    fn reference(&self) -> DriveRef {
        let name = self.node.file_name().unwrap().to_str().unwrap();
        DriveRef::from(&sysfs::read(Path::new("/sys"), name).unwrap())
    }

    fn staging(&self) -> PathBuf {
        self.dir.path().join("staging")
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        while mount::unmount(&self.staging(), true).is_ok() {}
        let _ = Command::new("losetup").arg("-d").arg(&self.node).output();
    }
}

fn run<J: Job>(job: J) -> Result<J::Answer, J::Error> {
    job.run(&mut Context::silent())
}

#[test]
fn a_created_volume_is_made_once_grown_and_held_while_it_is_mounted() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: loop devices and mounts need root");
        return;
    }
    let loop_device = Drive::new(1500);
    let drive = loop_device.reference();
    let uuid = Uuid::new_v4();
    let label = Label {
        drive_uuid: Uuid::new_v4(),
        cluster: "c".to_owned(),
        node: "n".to_owned(),
        class: "test".to_owned(),
        drive_id: drive.id.clone(),
        cordon: None,
    };
    let record = Record {
        uuid,
        name: "pvc".to_owned(),
        class: "test".to_owned(),
        mode: Mode::Mount,
        fs_type: Some(FsType::Xfs),
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        requested_bytes: 400 * MIB,
        parameters: BTreeMap::new(),
        erase: ErasePolicy::Zero,
        extent: Extent {
            start: 0,
            len: 400 * MIB,
        },
        growing_to: None,
        place: Default::default(),
        state: RecordState::Creating,
    };
    let claim = Some(Claim {
        layout: drivebay_model::Layout::Partition,
        label,
        policy: ClaimPolicy::Blank,
    });
    run(Create {
        drive: drive.clone(),
        claim,
        record,
        raw_space: Default::default(),
        placement: drivebay_model::Placement::default(),
        deleted: Vec::new(),
    })
    .unwrap();

    let stage = Stage {
        drive: drive.clone(),
        uuid,
        mount: Some(StageMount {
            path: loop_device.staging(),
            fs_type: Some(FsType::Xfs),
            flags: vec!["noatime".to_owned()],
            read_only: false,
            mounted_with: None,
            xfs_retry_forever: false,
        }),
        may_repair: true,
        secrets: None,
    };
    let staged = run(stage.clone()).unwrap();
    assert!(staged.formatted);
    let placed: Placed = staged.contents.volume(uuid).unwrap().clone();
    assert!(matches!(
        placed.record.state,
        RecordState::Fs { mounted: true, .. }
    ));
    let (device, dev) = (placed.device.unwrap(), placed.dev.unwrap());
    fs::write(loop_device.staging().join("data"), "precious").unwrap();
    assert!(run(stage.clone()).unwrap().already);

    let in_use = run(Delete {
        drive: drive.clone(),
        uuid,
        only_unused: false,
    });
    assert!(
        matches!(in_use, Err(LayoutError::InUse { .. })),
        "{in_use:?}"
    );
    run(Expand {
        drive: drive.clone(),
        uuid,
        size_bytes: 600 * MIB,
        raw_space: Default::default(),
    })
    .unwrap();
    let grow = GrowFs {
        encryption: None,
        drive: drive.clone(),
        uuid,
        path: loop_device.staging(),
        device: Device {
            name: device.clone(),
            dev,
            dm_uuid: None,
        },
        block: false,
    };
    let volume = grow.device.clone();
    let grown = run(grow).unwrap();
    assert!(grown.changed && grown.device_bytes >= 600 * MIB);

    let unmount = Unmount {
        path: loop_device.staging(),
        deadline_ms: 2000,
        may_detach: false,
        remove: false,
        expected: vec![volume],
    };
    assert_eq!(run(unmount.clone()).unwrap().count, 1);
    // As after the drive was pulled and plugged in: the kernel has no partition, and the stage brings it back.
    let number = device.rsplit_once('p').unwrap().1;
    let removed = Command::new("delpart")
        .arg(&loop_device.node)
        .arg(number)
        .output()
        .unwrap();
    assert!(removed.status.success(), "{removed:?}");
    let again = run(stage.clone()).unwrap();
    assert!(!again.formatted && !again.already && again.growth != Growth::Grown);
    let placed = again.contents.volume(uuid).unwrap();
    let back = Device::of(placed).expect("its device is in the answer");
    assert_eq!(back.name, device);
    let unmount = Unmount {
        expected: vec![back],
        ..unmount
    };
    assert_eq!(
        fs::read_to_string(loop_device.staging().join("data")).unwrap(),
        "precious"
    );
    run(unmount).unwrap();

    let node = format!("of=/dev/{device}");
    let zeroed = Command::new("dd")
        .args(["if=/dev/zero", &node, "bs=1M", "count=4", "conv=fsync"])
        .output()
        .unwrap();
    assert!(zeroed.status.success());
    assert!(matches!(run(stage), Err(FsError::FilesystemGone { .. })));
    run(Delete {
        drive,
        uuid,
        only_unused: false,
    })
    .unwrap();
}
