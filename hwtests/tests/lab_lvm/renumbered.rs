//! An administrator deactivates and activates LVs: the kernel assigns their device names and numbers to others.

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig},
};

use super::helpers::repeated;

/// Lists UUID and minor number of each LV's device, ordered by UUID.
const NUMBERS: &str = "dmsetup info -c --noheadings --separator ' ' -o uuid,minor | sort";

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_raw_volume_is_published_as_itself_after_its_device_has_become_anothers() {
    let lab = LabRig::with(vec![DriveSpec::scsi("shared", GIB)], "lvm").await;
    let one = lab.volume("one", 96 * MIB, &csi::block()).await;
    let two = lab.volume("two", 96 * MIB, &csi::block()).await;
    for (name, volume) in [("one", &one), ("two", &two)] {
        lab.use_volume(volume).await;
        let target = volume.target.display();
        lab.guest().run(&format!(
            "printf {name} | dd of={target} conv=fsync status=none"
        ));
        lab.leave_volume(volume).await;
        let (staging, capability) = (&volume.staging, &volume.capability);
        lab.csi
            .stage(&volume.id, staging, capability)
            .await
            .unwrap();
    }
    let before = lab.guest().run(NUMBERS);
    // Otherwise the agent would activate them first.
    lab.guest().run("pkill -STOP -x drivebay-agent");
    lab.guest().run(
        "lvs=$(lvs --noheadings -o lv_full_name --sort lv_kernel_minor) && \
         lvchange -an $lvs && for lv in $(echo $lvs | tac -s ' '); do lvchange -ay $lv; done && udevadm settle",
    );
    lab.guest().run("pkill -CONT -x drivebay-agent");
    let after = lab.guest().run(NUMBERS);
    assert_ne!(before, after, "the LVs have the devices that they had");

    for (name, volume) in [("one", &one), ("two", &two)] {
        let (staging, target) = (&volume.staging, &volume.target);
        lab.csi
            .publish(&volume.id, staging, target, &volume.capability, false)
            .await
            .unwrap();
        let read = format!("head -c 3 {}", target.display());
        assert_eq!(lab.guest().run(&read).trim(), name, "{before} {after}");
    }
    for volume in [&one, &two] {
        lab.leave_volume(volume).await;
        repeated(async || lab.csi.delete(&volume.id).await).await;
    }
}
