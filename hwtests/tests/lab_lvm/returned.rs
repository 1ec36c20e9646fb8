//! A drive that is unplugged under its pods and returns: the old devices of its volumes are removed with their last user.

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig},
};
use tonic::Code;

use super::helpers::repeated;

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_returned_drives_volumes_are_used_again_without_a_rescan() {
    let mut lab = LabRig::with(vec![DriveSpec::scsi("pulled", GIB)], "lvm").await;
    let is_it = |drive: &drivebay_proto::agent::Drive| drive.serial == "pulled";
    let files = lab.volume("files", 96 * MIB, &csi::mount("ext4")).await;
    let raw = lab.volume("raw", 96 * MIB, &csi::block()).await;
    lab.use_volume(&files).await;
    lab.use_volume(&raw).await;
    let file = files.target.join("file").display().to_string();
    lab.guest()
        .run(&format!("echo before >{file} && sync {file}"));
    let target = raw.target.display().to_string();
    lab.guest().run(&format!(
        "printf before | dd of={target} conv=fsync status=none"
    ));
    // Stands for a container: the bind mount of the node alone does not keep the device open.
    lab.guest().run(&format!(
        "systemd-run --quiet --collect --unit=holder sh -c 'exec 9<{target}; exec sleep infinity'"
    ));

    lab.machine.unplug("pulled");
    lab.drive_where_is("pulled", "missing", is_it).await;
    lab.machine.plug("pulled");
    lab.drive_where_is("pulled", "claimed", is_it).await;
    // The devices from before remain as long as they are in use.
    for volume in [&files, &raw] {
        let refused = lab
            .csi
            .stage(&volume.id, &volume.staging, &volume.capability)
            .await;
        let status = refused.expect_err("staged while its old device is in use");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(
            status.message().contains("unmount the volume"),
            "{status:?}"
        );
    }
    lab.guest().run("systemctl stop holder");
    for volume in [&files, &raw] {
        lab.leave_volume(volume).await;
        lab.use_volume(volume).await;
    }
    assert_eq!(lab.guest().run(&format!("cat {file}")).trim(), "before");
    let read = format!("head -c 6 {target}");
    assert_eq!(lab.guest().run(&read).trim(), "before");
    for volume in [&files, &raw] {
        lab.leave_volume(volume).await;
        repeated(async || lab.csi.delete(&volume.id).await).await;
    }
}
