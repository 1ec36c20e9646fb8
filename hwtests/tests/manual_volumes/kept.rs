//! Persisted mounts: they are restored after a reboot, and a missing drive delays only its own.
//!
//! A real boot with systemd is tested in the lab; here the mounts are removed while no agent runs.

use std::{fs, time::Duration};

use drivebay_hwtests::{DriveSpec, MIB, Rig, csi, need, tree, wait};
use tonic::Code;

use super::helpers::{id_of, list, place, run};

#[tokio::test]
async fn a_persisted_mount_survives_the_agent_comes_back_after_a_boot_and_ends_with_unmount() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    rig.drive_is("a", "available").await;
    run(&rig, "volume create db --size 64MiB").ok();
    run(&rig, "volume create tmp --size 64MiB").ok();
    let (srv, tmp) = (place(&rig, "db"), place(&rig, "tmp"));
    let output = run(
        &rig,
        &format!(
            "volume mount db {} --persist --options noatime",
            srv.display()
        ),
    );
    assert!(output.ok().contains("after each start of the host"));
    run(&rig, &format!("volume mount tmp {}", tmp.display())).ok();
    fs::write(srv.join("letter"), "dear reader").unwrap();

    rig.agent.kill9();
    rig.start_again().await;
    let mounts = list(&rig)["mounts"].clone();
    assert_eq!(mounts.as_array().unwrap().len(), 2, "{mounts}");
    assert_eq!(mounts[0]["persist"], true, "{mounts}");
    assert_eq!(mounts[0]["mounted"], true, "{mounts}");

    // The state after a boot: nothing is mounted, and the agent starts.
    rig.agent.stop().unwrap();
    for at in [&srv, &tmp] {
        nix::mount::umount(at).unwrap();
    }
    rig.start_again().await;
    // The volume stays in manual use until an operator ends that.
    let (id, staging) = (id_of(&rig, "db"), rig.dir().join("kubelet/s"));
    let staged = rig.csi.stage(&id, &staging, &csi::mount("ext4")).await;
    let refused = staged.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    let output = run(&rig, "volume mount --persisted").ok();
    assert!(
        output.contains("volume db is mounted") && !output.contains("volume tmp"),
        "{output}"
    );
    assert_eq!(
        (tree::mounted_times(&srv), tree::mounted_times(&tmp)),
        (1, 0)
    );
    assert_eq!(
        fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );
    let row = tree::mounts()
        .into_iter()
        .find(|mount| mount.point == srv)
        .unwrap();
    assert!(row.options.contains("noatime"), "{row:?}");
    run(&rig, "volume mount db").ok();
    run(&rig, "volume mount --persisted").ok();
    assert_eq!(tree::mounted_times(&srv), 1);

    run(&rig, "volume unmount db").ok();
    let output = run(&rig, "volume mount --persisted").ok();
    assert!(output.contains("no volume is to be mounted"), "{output}");
    assert_eq!(tree::mounted_times(&srv), 0);
    // The mount of a deleted volume is forgotten, too.
    run(
        &rig,
        &format!("volume mount db {} --persist", srv.display()),
    )
    .ok();
    nix::mount::umount(&srv).unwrap();
    wait::until_async(
        Duration::from_secs(30),
        "it is seen unmounted",
        async || {
            let volume = rig.volume_of(&id_of(&rig, "db")).await.unwrap();
            (!volume.published).then_some(())
        },
    )
    .await;
    run(&rig, "volume delete db --confirm db").ok();
    let mounts = list(&rig)["mounts"].clone();
    assert!(!mounts.to_string().contains("\"db\""), "{mounts}");
}

#[tokio::test]
async fn a_missing_drive_fails_its_own_mount_softly_and_can_be_unmounted() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let drives = vec![
        DriveSpec::blank("a", 100 * MIB),
        DriveSpec::blank("b", 100 * MIB),
    ];
    let mut rig = Rig::with(drives).await;
    for name in ["one", "two"] {
        run(&rig, &format!("volume create {name} --size 80MiB")).ok();
        let at = place(&rig, name);
        run(
            &rig,
            &format!("volume mount {name} {} --persist", at.display()),
        )
        .ok();
    }
    let (one, two) = (place(&rig, "one"), place(&rig, "two"));
    let on_a = rig.drive("a").await.unwrap().id;
    let inventory = rig.inventory().await;
    let missing = inventory
        .volumes
        .iter()
        .find(|of| of.drive == on_a)
        .unwrap();
    let missing = missing.name.clone();
    rig.agent.stop().unwrap();
    for at in [&one, &two] {
        nix::mount::umount(at).unwrap();
    }
    rig.shelf.pull("a");
    rig.start_again().await;
    let output = run(&rig, "volume mount --persisted");
    output.refused(
        1,
        &[
            "1 of 2 volumes",
            &format!("volume {missing} at"),
            "cannot be reached",
        ],
    );
    let (there, gone) = match missing.as_str() {
        "one" => (&two, &one),
        _ => (&one, &two),
    };
    assert_eq!(
        (tree::mounted_times(there), tree::mounted_times(gone)),
        (1, 0)
    );
    // The mount is still persisted.
    let output = run(&rig, "volume list").ok();
    assert!(output.contains("persisted, not mounted now"), "{output}");
    rig.shelf.plug("a").unwrap();
    rig.drive_is("a", "claimed").await;
    run(&rig, &format!("volume mount {missing}")).ok();
    assert_eq!(tree::mounted_times(gone), 1);

    // Unplugged while mounted: the unmount sends no request to the drive.
    rig.shelf.unplug("a");
    run(&rig, &format!("volume unmount {missing}")).ok();
    assert_eq!(
        (tree::mounted_times(there), tree::mounted_times(gone)),
        (1, 0)
    );
    let mounts = list(&rig)["mounts"].clone();
    assert_eq!(mounts.as_array().unwrap().len(), 1, "{mounts}");
}
