//! Drives that fail, hang, disappear and return.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi,
    faults::{About, Case},
    hang::HungDrive,
    need,
};

use drivebay_proto::csi as wire;

use crate::stand::{Stand, sh};

/// A loop drive whose file is truncated, and whose volume is read repeatedly, like a workload. Restores the length when dropped.
/// Repeatedly, since a write beyond the end extends the file again, and since the kernel logs ten failed requests in five seconds, of all
/// drives together: an earlier test may have used them up.
struct CutOff {
    file: PathBuf,
    bytes: u64,
    reader: Option<(Sender<()>, JoinHandle<()>)>,
}

impl CutOff {
    fn new(file: PathBuf, kept: u64, device: PathBuf) -> Self {
        let bytes = file.metadata().unwrap().len();
        let (stop, stopped) = mpsc::channel();
        let cut = file.clone();
        let reader = thread::spawn(move || {
            loop {
                set_len(&cut, kept);
                read(&device);
                match stopped.recv_timeout(Duration::from_secs(1)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        });
        Self {
            file,
            bytes,
            reader: Some((stop, reader)),
        }
    }
}

impl Drop for CutOff {
    fn drop(&mut self) {
        if let Some((stop, reader)) = self.reader.take() {
            drop(stop);
            let _ = reader.join();
        }
        set_len(&self.file, self.bytes);
    }
}

fn set_len(file: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(bytes).unwrap();
}

/// Reads the beginning of a device with O_DIRECT, since the cache may have it from before the truncation.
fn read(device: &Path) {
    let dd = Command::new("dd")
        .arg(format!("if={}", device.display()))
        .args(["of=/dev/null", "bs=1M", "count=64", "iflag=direct"])
        .stderr(Stdio::null())
        .status();
    dd.unwrap();
}

#[tokio::test]
async fn a_drive_whose_requests_all_fail() {
    need!(root, loop);
    let stand = Stand::of(&csi::block(), |_| ()).await;
    let mut case = Case::new("all IO fails", "the file below the loop drive cut off");
    case.strikes();
    let cut = CutOff::new(
        stand.rig.shelf.file(stand.drive),
        17 * MIB,
        stand.troubled.target.clone(),
    );
    let about = About {
        drives: &[stand.drive],
        volumes: &[&stand.troubled, &stand.beside],
    };
    case.of_volume(&stand.rig, &stand.troubled, "IoErrors", about)
        .await;
    case.of_drive(&stand.rig, stand.drive, "SUSPECT", "KernelIoError", about)
        .await;
    drop(cut);
    case.stays("SUSPECT for 24 h without another");
    stand.leave().await;
}

#[tokio::test]
async fn a_drive_that_hangs() {
    need!(root, loop);
    let hang = HungDrive::new(512 * MIB).unwrap();
    let rig = Rig::tuned(vec![DriveSpec::blank("b", 2 * GIB)], |settings| {
        settings.more = hang.class("hung", "partition");
    })
    .await;
    let mut made = Vec::new();
    for (name, class) in [("troubled", "hung"), ("quiet", "demo")] {
        let volume = rig.csi.create_with(wire::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::bytes(96 * MIB)),
            volume_capabilities: vec![csi::block()],
            parameters: [("class".to_owned(), class.to_owned())].into(),
            ..Default::default()
        });
        made.push(rig.place(&volume.await.unwrap(), name, &csi::block()));
    }
    let (quiet, troubled) = (made.pop().unwrap(), made.pop().unwrap());
    rig.use_volume(&troubled).await;
    rig.use_volume(&quiet).await;
    let drive = rig.volume_of(&troubled.id).await.unwrap().drive;
    let mut case = Case::new(
        "drive hangs",
        "requests held back by a FUSE server, loop drive",
    );
    hang.hang();
    case.strikes();
    // Not read yet, so not cached. In a separate process: it hangs for as long as the drive.
    let reads = format!(
        "dd if={} of=/dev/null bs=4k skip=5000 count=1 iflag=direct",
        troubled.target.display()
    );
    let mut stuck = std::process::Command::new("sh")
        .args(["-c", &reads])
        .spawn()
        .unwrap();
    let about = About {
        drives: &[drive.as_str()],
        volumes: &[&troubled],
    };
    case.of_volume(&rig, &troubled, "DriveStalled", about).await;
    hang.resume();
    stuck.wait().unwrap();
    // In the short run `health_hung` covers the recovery.
    if need::is_long() {
        case.back(&rig, &[&troubled]).await;
    }
    rig.leave_volume(&troubled).await;
    rig.leave_volume(&quiet).await;
}

#[tokio::test]
async fn a_drive_that_is_pulled_and_plugged_in_again() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut stand = Stand::new("ext4").await;
    stand.leave().await;
    let mut case = Case::new("drive unplugged", "loop drive detached");
    stand.rig.shelf.pull(stand.drive);
    case.strikes();
    let (drive, troubled, beside) = (stand.drive, stand.troubled.clone(), stand.beside.clone());
    let about = About {
        drives: &[drive],
        volumes: &[&troubled, &beside],
    };
    case.of_volume(&stand.rig, &troubled, "DriveMissing", about)
        .await;
    stand.rig.shelf.plug(drive).unwrap();
    case.back(&stand.rig, &[&troubled, &beside]).await;
    // Without conditions, and usable.
    stand.rig.use_volume(&troubled).await;
    stand.rig.leave_volume(&troubled).await;
}

#[tokio::test]
async fn a_table_that_is_destroyed() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let stand = Stand::new("ext4").await;
    stand.leave().await;
    let mut case = Case::new("GPT destroyed", "both copies overwritten, loop drive");
    let drives = stand.rig.shelf.drives();
    let drive = drives
        .iter()
        .find(|drive| drive.name == stand.drive)
        .unwrap();
    let node = drive.device.display().to_string();
    let sectors = drive.bytes / 512;
    let tail = sectors - 33;
    sh(&format!(
        "dd if={node} of={dir}/head bs=512 count=34 status=none
         dd if={node} of={dir}/tail bs=512 skip={tail} count=33 status=none
         dd if=/dev/urandom of={node} bs=512 count=34 conv=notrunc,fsync status=none
         dd if=/dev/urandom of={node} bs=512 seek={tail} count=33 conv=notrunc,fsync status=none",
        dir = stand.rig.dir().display(),
    ));
    case.strikes();
    stand.rig.rescan().await;
    let about = About {
        drives: &[stand.drive],
        volumes: &[&stand.troubled, &stand.beside],
    };
    case.of_volume(&stand.rig, &stand.troubled, "DriveUnreadable", about)
        .await;
    sh(&format!(
        "dd if={dir}/head of={node} bs=512 count=34 conv=notrunc,fsync status=none
         dd if={dir}/tail of={node} bs=512 seek={tail} count=33 conv=notrunc,fsync status=none",
        dir = stand.rig.dir().display(),
    ));
    stand.rig.rescan().await;
    case.back(&stand.rig, &[&stand.troubled, &stand.beside])
        .await;
    stand.rig.use_volume(&stand.troubled).await;
    stand.rig.leave_volume(&stand.troubled).await;
}
