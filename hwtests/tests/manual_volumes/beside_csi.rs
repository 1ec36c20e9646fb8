//! Volumes of an operator and of an orchestrator on one host: neither takes volumes of the other.

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, tree};
use serde_json::Value;
use tonic::Code;

use super::helpers::{id_of, list, place, run};

#[tokio::test]
async fn a_volume_mounted_by_csi_is_refused_by_hand_and_the_reverse() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    let volume = rig.volume("pvc-1", 64 * MIB, &csi::mount("ext4")).await;
    let srv = place(&rig, "rescue");
    rig.use_volume(&volume).await;
    let staging = volume.staging.display().to_string();
    let mount = format!("volume mount pvc-1 {}", srv.display());
    run(&rig, &mount).refused(1, &["is mounted at", "delete the pod"]);
    run(&rig, &format!("volume mount pvc-1 {staging}")).refused(1, &["the kubelet uses"]);
    for what in ["pvc-1", &staging] {
        run(&rig, &format!("volume unmount {what}")).refused(1, &["mounted"]);
    }
    run(&rig, "volume delete pvc-1 --confirm pvc-1").refused(1, &["in use"]);
    assert_eq!(tree::mounted_times(&volume.staging), 1);
    std::fs::write(volume.target.join("letter"), "dear reader").unwrap();
    rig.leave_volume(&volume).await;

    // Mounted manually, to inspect it; an orchestrator waits meanwhile, also under the next agent.
    run(&rig, &mount).ok();
    assert_eq!(
        std::fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );
    rig.agent.kill9();
    rig.start_again().await;
    let staged = rig
        .csi
        .stage(&volume.id, &volume.staging, &volume.capability);
    let refused = staged.await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("volume unmount"), "{refused:?}");
    let unstaged = rig.csi.unstage(&volume.id, &srv).await.unwrap_err();
    assert_eq!(unstaged.code(), Code::FailedPrecondition, "{unstaged:?}");
    let deleted = rig.csi.delete(&volume.id).await.unwrap_err();
    assert_eq!(deleted.code(), Code::FailedPrecondition, "{deleted:?}");
    assert_eq!(tree::mounted_times(&srv), 1);
    run(&rig, "volume unmount pvc-1").ok();
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;

    // Unmounted without the agent: the manual use ends, unless it was persisted.
    run(&rig, &mount).ok();
    nix::mount::umount(&srv).unwrap();
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn a_volume_made_by_hand_is_listed_by_csi_and_taken_over_by_nobody() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    run(&rig, "volume create scratch --size 64MiB").ok();
    let id = id_of(&rig, "scratch");
    assert_eq!(rig.csi.ids().await.unwrap(), [id.as_str()]);
    let made = rig
        .csi
        .create("scratch", 64 * MIB, &csi::mount("ext4"))
        .await;
    let refused = made.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused:?}");
    assert!(refused.message().contains("by hand"), "{refused:?}");
    rig.volume("pvc-1", 64 * MIB, &csi::mount("ext4")).await;
    run(&rig, "volume create pvc-1 --size 64MiB").refused(1, &["through CSI"]);

    // The mark is stored on the drive.
    rig.agent.stop().unwrap();
    let state = rig.dir().join("state");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    rig.start_again().await;
    let list = list(&rig);
    for volume in list["volumes"].as_array().unwrap() {
        assert_eq!(volume["manual"], volume["name"] == "scratch", "{list}");
        assert!(volume["parameters"].get("byHand").is_none(), "{list}");
    }

    let output = run(
        &rig,
        "volume pv scratch --pvc shop/data-db-0 --storage-class fast",
    );
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.err.contains("kubectl"), "{output:?}");
    let pv: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(pv["kind"], "PersistentVolume");
    assert_eq!(pv["metadata"]["name"], "scratch");
    assert_eq!(pv["spec"]["csi"]["volumeHandle"], id.as_str());
    assert_eq!(pv["spec"]["csi"]["driver"], "csi.drivebay.io");
    assert_eq!(pv["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    assert_eq!(pv["spec"]["claimRef"]["name"], "data-db-0");
    let term = &pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0];
    assert_eq!(term["matchExpressions"][0]["key"], "csi.drivebay.io/node");
    assert_eq!(term["matchExpressions"][0]["values"][0], "node1");
    // With this option an orchestrator can use the volume.
    let volume = rig.place(
        &drivebay_proto::csi::Volume {
            volume_id: id.clone(),
            ..Default::default()
        },
        "scratch",
        &csi::mount("ext4"),
    );
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;
    rig.csi.delete(&id).await.unwrap();
}

#[tokio::test]
async fn a_volume_persisted_by_hand_and_not_mounted_now_is_neither_deleted_nor_expanded_by_csi() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    let ext4 = csi::mount("ext4");
    let volume = rig.volume("pvc-1", 64 * MIB, &ext4).await;
    let srv = place(&rig, "db");
    run(
        &rig,
        &format!("volume mount pvc-1 {} --persist", srv.display()),
    )
    .ok();
    std::fs::write(srv.join("letter"), "dear reader").unwrap();
    // The state after a boot, before drivebay-mounts.service has run; and under the next agent.
    for _ in 0..2 {
        if tree::mounted_times(&srv) > 0 {
            nix::mount::umount(&srv).unwrap();
        }
        let refused = [
            rig.csi.delete(&volume.id).await.err(),
            rig.csi.expand(&volume.id, 96 * MIB, &ext4).await.err(),
            rig.csi.node_expand(&volume.id, &srv, 64 * MIB).await.err(),
        ];
        for error in refused {
            let error = error.expect("refused");
            assert_eq!(error.code(), Code::FailedPrecondition, "{error:?}");
            assert!(error.message().contains("volume unmount"), "{error:?}");
        }
        let list = list(&rig);
        assert_eq!(list["volumes"][0]["size_bytes"], 64 * MIB, "{list}");
        run(&rig, "volume mount pvc-1").ok();
        let letter = std::fs::read_to_string(srv.join("letter")).unwrap();
        assert_eq!(letter, "dear reader");
        rig.agent.kill9();
        rig.start_again().await;
    }
    // An operator may, and `volume unmount` ends the manual use.
    nix::mount::umount(&srv).unwrap();
    run(&rig, "volume expand pvc-1 --size 96MiB").ok();
    run(&rig, "volume unmount pvc-1").ok();
    rig.csi.expand(&volume.id, 128 * MIB, &ext4).await.unwrap();
    rig.csi.delete(&volume.id).await.unwrap();
}
