//! Space of a VG: the host's commands and the agent agree on it, its free segments are used together, and all of it can be used.

use drivebay_common::units::size_beside;
use drivebay_hwtests::{
    GIB, MIB, csi,
    lab::{DriveSpec, LabRig},
};
use tonic::Code;

use super::helpers::{host, host_agrees, number};

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn the_hosts_own_commands_agree_with_the_agent_all_along() {
    let drives = ["left", "right"].map(|name| DriveSpec::nvme(name, GIB));
    let lab = LabRig::with(drives.into(), "lvm").await;
    let mut volumes = Vec::new();
    for (at, name) in [
        "pvc-0b5d-plain",
        "with a blank",
        "-dash",
        "snapshot",
        "x.y_z+1",
    ]
    .iter()
    .enumerate()
    {
        let capability = if at % 2 == 0 {
            csi::mount("ext4")
        } else {
            csi::block()
        };
        volumes.push(lab.volume(name, 96 * MIB + at as u64, &capability).await);
        if name.starts_with("pvc") || name.contains('.') {
            host_agrees(&lab).await;
        }
    }
    // On a second drive, since the first has no space for it.
    volumes.push(lab.volume("wide", 900 * MIB, &csi::block()).await);
    host_agrees(&lab).await;
    lab.use_volume(&volumes[0]).await;
    for volume in &volumes[..2] {
        let size = 200 * MIB;
        lab.csi
            .expand(&volume.id, size, &volume.capability)
            .await
            .unwrap();
        host_agrees(&lab).await;
    }
    for volume in &volumes[1..3] {
        lab.csi.delete(&volume.id).await.unwrap();
        lab.erased().await;
        host_agrees(&lab).await;
    }
    lab.leave_volume(&volumes[0]).await;
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn pieces_are_used_together_to_the_last_extent_and_no_room_names_the_largest_that_would_fit()
{
    let lab = LabRig::with(vec![DriveSpec::scsi("only", 256 * MIB)], "lvm").await;
    let whole = u64::try_from(lab.csi.capacity().await.unwrap()).unwrap();
    let row = |columns: &str| host(lab.guest(), "vgs", columns).remove(0);
    // Every second volume of a full drive is deleted.
    let (piece, names) = (24 * MIB, ["a-1", "b-2", "c-3", "d-4", "e-5", "f-6"]);
    let mut made = Vec::new();
    for name in names {
        made.push(lab.volume(name, piece, &csi::block()).await);
    }
    let rest = lab.volume("rest", whole - 6 * piece, &csi::block()).await;
    assert_eq!(lab.csi.capacity().await.unwrap(), 0);
    assert_eq!(number(&row("vg_free_count"), "vg_free_count"), 0);
    for volume in [&made[0], &made[2], &made[4]] {
        lab.csi.delete(&volume.id).await.unwrap();
    }
    lab.erased().await;

    let free = 3 * piece;
    lab.csi.capacity_is(free as i64).await;
    for size in [free + 1, free + MIB, whole] {
        let refused = lab
            .csi
            .create("more", size, &csi::block())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        let fits = size_beside(free, size.next_multiple_of(MIB));
        assert!(refused.message().contains(&fits), "{fits}: {refused:?}");
    }
    let all = lab.volume("all", free, &csi::block()).await;
    assert_eq!(all.bytes, free);
    assert_eq!(lab.csi.capacity().await.unwrap(), 0);
    assert_eq!(number(&row("vg_free_count"), "vg_free_count"), 0);
    let segments = host(lab.guest(), "lvs", "lv_name,seg_count");
    let mine = segments.iter().find(|row| row["lv_name"] == "all").unwrap();
    assert_eq!(number(mine, "seg_count"), 3);
    // Every MiB can be written and read, and the neighbours are unchanged.
    lab.use_volume(&rest).await;
    lab.use_volume(&all).await;
    let (device, beside) = (all.target.display(), rest.target.display());
    lab.guest().run(&format!(
        "set -e; before=$(sha256sum <{beside})
         seq 100000000 | head -c {free} >{device}; sync {device}; echo 3 >/proc/sys/vm/drop_caches
         seq 100000000 | head -c {free} | cmp - {device}
         test \"$before\" = \"$(sha256sum <{beside})\""
    ));
    lab.leave_volume(&all).await;
    lab.leave_volume(&rest).await;
    lab.csi.delete(&all.id).await.unwrap();
    lab.erased().await;
    lab.csi.capacity_is(free as i64).await;
}
