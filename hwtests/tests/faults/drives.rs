//! Drives that fail, hang, go and come back.

use std::{fs::OpenOptions, io::Read, time::Duration};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi,
    faults::{About, Case},
    hang::HungDrive,
    need, wait,
};

use drivebay_proto::csi as wire;

use crate::stand::{Stand, sh};

fn set_len(stand: &Stand, bytes: u64) {
    let file = stand.rig.shelf.file(stand.drive);
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.set_len(bytes).unwrap();
}

/// Reads all of a device; an error is what is wanted.
fn read(device: &std::path::Path) -> bool {
    let mut sink = Vec::new();
    let mut file = OpenOptions::new().read(true).open(device).unwrap();
    file.read_to_end(&mut sink).is_ok()
}

#[tokio::test]
async fn a_drive_whose_requests_all_fail() {
    need!(root, loop);
    let stand = Stand::of(&csi::block(), |_| ()).await;
    let mut case = Case::new("all IO fails", "the file below the loop drive cut off");
    case.strikes();
    // Whoever writes behind the cut makes the file whole again: then it is cut once more.
    wait::until(Duration::from_secs(20), "requests fail", || {
        set_len(&stand, 17 * MIB);
        (!read(&stand.troubled.target)).then_some(())
    });
    let about = About {
        drives: &[stand.drive],
        volumes: &[&stand.troubled, &stand.beside],
    };
    case.of_volume(&stand.rig, &stand.troubled, "IoErrors", about)
        .await;
    case.of_drive(&stand.rig, stand.drive, "SUSPECT", "KernelIoError", about)
        .await;
    set_len(&stand, 4 * GIB);
    case.stays("SUSPECT for 24 h without another");
    stand.leave().await;
}

#[tokio::test]
async fn a_drive_that_hangs() {
    need!(root, loop);
    let hang = HungDrive::new(512 * MIB).unwrap();
    let more = format!(
        "[[class]]\nname = \"hung\"\nlayout = \"partition\"\n[class.select]\npath = [\"{}\"]\n",
        hang.file().display()
    );
    let rig = Rig::tuned(vec![DriveSpec::blank("b", 2 * GIB)], |settings| {
        settings.more = more;
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
    // What nobody has read is in no cache. In a process of its own: it is stuck as long as the drive is.
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
    case.back(&rig, &[&troubled]).await;
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
    // Well, and usable.
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
