//! A logical volume that an administrator removes, and a PV whose drive is unplugged.

use drivebay_hwtests::{
    GIB, MIB, csi,
    faults::{About, Case},
    lab::{DriveSpec, LabRig},
    long,
};

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn an_lv_that_is_removed_by_hand_and_a_pv_that_is_gone() {
    long!();
    let mut lab = LabRig::with(vec![DriveSpec::scsi("holds", GIB)], "lvm").await;
    let taken = lab.volume("taken", 96 * MIB, &csi::block()).await;
    let kept = lab.volume("kept", 96 * MIB, &csi::block()).await;

    let mut case = Case::new("LVM PV missing", "its drive unplugged, emulated SCSI");
    lab.machine.unplug("holds");
    case.strikes();
    let about = About {
        drives: &["holds"],
        volumes: &[&taken, &kept],
    };
    case.of_volume(&lab, &taken, "DriveMissing", about).await;
    lab.machine.plug("holds");
    case.back(&lab, &[&taken, &kept]).await;
    drop(case);

    let mut case = Case::new("LV removed by hand", "lvremove, emulated SCSI");
    let uuid = taken.id.split('@').next().unwrap().to_owned();
    let output = lab.guest().run("lvs --noheadings -o lv_full_name,lv_tags");
    let line = output
        .lines()
        .find(|line| line.contains(&uuid) || line.contains("taken"));
    let name = line.unwrap().split_whitespace().next().unwrap().to_owned();
    lab.guest().run(&format!("lvremove -q -y {name}"));
    case.strikes();
    lab.rescan().await;
    let about = About {
        drives: &[],
        volumes: &[&taken],
    };
    case.of_volume(&lab, &taken, "VolumeNotFound", about).await;
    case.stays("stays until deleted");
}
