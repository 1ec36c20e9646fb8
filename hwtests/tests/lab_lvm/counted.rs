//! The number of `lvm` processes of each call, which does not depend on time as a measurement would.

use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig, LvmStarts},
};

use super::helpers::repeated;

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn each_call_costs_no_more_lvm_processes_than_promised() {
    let lab = LabRig::with(vec![DriveSpec::scsi("only", 4 * GIB)], "lvm").await;
    let first = lab.volume("claims", 64 * MIB, &csi::block()).await;
    let none = Vec::<String>::new();
    let pid = lab.agent.pid();
    let watch = || LvmStarts::watch(lab.guest(), pid);

    let starts = watch();
    let files = lab.volume("files", 256 * MIB, &csi::mount("ext4")).await;
    assert_eq!(starts.finish(), ["lvcreate"], "create on a claimed drive");

    let starts = watch();
    let (id, staging) = (&files.id, &files.staging);
    let staged = async || lab.csi.stage(id, staging, &files.capability).await;
    repeated(staged).await;
    let commands = starts.finish();
    assert!(commands.len() <= 1, "first stage: {commands:?}");

    let starts = watch();
    for _ in 0..3 {
        lab.publish(&files).await;
        lab.csi.stats(id, &files.target).await.unwrap();
        lab.csi.list().await.unwrap();
        lab.csi.capacity().await.unwrap();
        lab.use_volume(&first).await;
        lab.csi.stats(&first.id, &first.target).await.unwrap();
    }
    lab.leave_volume(&files).await;
    lab.use_volume(&files).await;
    lab.leave_volume(&first).await;
    assert_eq!(
        starts.finish(),
        none,
        "publish, stats, list, capacity, stage again"
    );

    let starts = watch();
    lab.csi
        .expand(id, 2 * GIB, &files.capability)
        .await
        .unwrap();
    lab.csi
        .node_expand(id, &files.target, 2 * GIB)
        .await
        .unwrap();
    assert_eq!(starts.finish(), ["lvextend"], "expand");

    lab.leave_volume(&files).await;
    let starts = watch();
    repeated(async || lab.csi.delete(id).await).await;
    let commands = starts.so_far();
    // Large enough that the erase is still running.
    assert_eq!(commands, ["lvrename"], "delete, before the answer");
    lab.erased().await;
    assert_eq!(starts.finish(), ["lvrename", "lvremove"], "after the erase");
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn the_count_sees_a_claim() {
    // Control: the test above would also pass if no process were ever detected.
    let lab = LabRig::with(vec![DriveSpec::scsi("only", GIB)], "lvm").await;
    let starts = LvmStarts::watch(lab.guest(), lab.agent.pid());
    lab.volume("claims", 64 * MIB, &csi::block()).await;
    let commands = starts.finish();
    // LVM is tested before anything is written.
    assert_eq!(
        commands,
        ["version", "pvcreate", "vgcreate", "fullreport", "lvcreate"]
    );
}
