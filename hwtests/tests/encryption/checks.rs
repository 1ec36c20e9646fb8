//! Filesystems of encrypted volumes are frozen for snapshots, and checked on them.

use std::{
    fs::{self, File},
    io::Write,
    process::Command,
    time::{Duration, Instant},
};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, need, node::Placed, tools};

use crate::{
    KEY, SECRET, copies::copied, encrypted, encrypted_in, holds, keys::done, mapped, put, stage,
    use_it,
};

/// Names of the devices that decrypt snapshots of checks.
fn decrypted() -> Vec<String> {
    let all = fs::read_dir("/sys/class/block").unwrap();
    let names =
        all.filter_map(|entry| fs::read_to_string(entry.unwrap().path().join("dm/name")).ok());
    names
        .filter(|name| name.starts_with("drivebay-check-crypt-"))
        .collect()
}

#[tokio::test]
async fn the_filesystem_of_an_encrypted_volume_is_frozen_for_its_snapshot() {
    need!(root, loop, crypt, layout "lvm", tool "cryptsetup", fs "ext4", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    let mut group = Vec::new();
    for (name, bytes) in [("ext4", 64 * MIB), ("xfs", 320 * MIB)] {
        let volume = encrypted(&rig, name, bytes, &csi::mount(name)).await;
        use_it(&rig, &volume).await;
        // Not synced: nothing of it is on the drive, unless the filesystem was frozen.
        let mut file = File::create(volume.target.join("letter")).unwrap();
        file.write_all(&crate::WORDS.repeat(1000)).unwrap();
        drop(file);
        let taken = rig
            .csi
            .create_snapshot(name, &volume.id, &[])
            .await
            .unwrap();
        let from = csi::from_snapshot(&taken.snapshot_id);
        let copy = copied(&rig, &format!("{name}-copy"), &volume, bytes, &from).await;
        use_it(&rig, &copy).await;
        assert!(holds(&copy), "{name}");
        rig.leave_volume(&copy).await;
        rig.csi.delete_snapshot(&taken.snapshot_id).await.unwrap();
        group.push((volume, copy));
    }
    // The same for several volumes at once, one of them without encryption.
    let plain = rig.volume("plain", 64 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&plain).await;
    let mut volumes: Vec<&Placed> = group.iter().map(|(volume, _)| volume).collect();
    volumes.push(&plain);
    for volume in &volumes {
        let mut file = File::create(volume.target.join("letter")).unwrap();
        file.write_all(&crate::WORDS.repeat(1000)).unwrap();
    }
    let ids: Vec<&str> = volumes.iter().map(|volume| volume.id.as_str()).collect();
    let taken = rig
        .csi
        .create_group_snapshot("together", &ids, &[])
        .await
        .unwrap();
    assert_eq!(taken.snapshots.len(), 3, "{taken:?}");
    for (volume, _) in &group {
        let member = taken.snapshots.iter();
        let mut member = member.filter(|one| one.source_volume_id == volume.id);
        let from = csi::from_snapshot(&member.next().unwrap().snapshot_id);
        let name = format!("{}-together", volume.id);
        let copy = copied(&rig, &name, volume, volume.bytes, &from).await;
        use_it(&rig, &copy).await;
        assert!(holds(&copy), "{name}");
        rig.leave_volume(&copy).await;
    }
    // Nothing was left suspended.
    for volume in volumes {
        put(volume);
        rig.leave_volume(volume).await;
    }
}

#[tokio::test]
async fn a_mounted_encrypted_filesystem_is_checked_on_a_snapshot_and_damage_is_reported() {
    need!(root, loop, crypt, layout "lvm", tool "cryptsetup", tool "debugfs", fs "ext4", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 4 * GIB)]).await;
    for (name, bytes) in [("ext4", 64 * MIB), ("xfs", 320 * MIB)] {
        let volume = encrypted(&rig, name, bytes, &csi::mount(name)).await;
        use_it(&rig, &volume).await;
        put(&volume);
        let checked = done(&rig, &format!("volume check {name}"));
        assert!(checked.contains("clean (snapshot"), "{checked}");
        assert_eq!(decrypted(), [""; 0], "{name}");
        if name == "ext4" {
            fs::create_dir(volume.target.join("d3")).unwrap();
            tools::must("sync", &["-f", volume.target.to_str().unwrap()]);
            let [device] = mapped().try_into().unwrap();
            tools::must(
                "debugfs",
                &["-w", "-R", "clri d3", device.to_str().unwrap()],
            );
            tools::must("blockdev", &["--flushbufs", device.to_str().unwrap()]);
            let (code, out, err) = crate::keys::run(&rig, &format!("volume check {name}"));
            assert_eq!(code, Some(1), "{out}{err}");
            let reasons = rig.reasons(&volume).await;
            assert!(
                reasons.contains(&"FilesystemCorrupted".to_owned()),
                "{reasons:?}"
            );
        }
        rig.leave_volume(&volume).await;
        let (code, out, err) = crate::keys::run(&rig, &format!("volume check {name}"));
        assert_ne!(code, Some(0), "{out}{err}");
        assert!(format!("{out}{err}").contains("not open"), "{out}{err}");
    }
}

#[tokio::test]
async fn a_decrypted_device_that_was_left_suspended_is_resumed_at_the_next_start() {
    need!(root, loop, crypt, tool "cryptsetup", tool "dmsetup", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let volume = encrypted(&rig, "files", 64 * MIB, &csi::mount("ext4")).await;
    use_it(&rig, &volume).await;
    rig.agent.kill9();
    let [device] = mapped().try_into().unwrap();
    tools::must("dmsetup", &["suspend", device.to_str().unwrap()]);
    rig.start_again().await;
    // Would not end while it is suspended.
    put(&volume);
    assert!(
        rig.agent
            .log()
            .contains("resumed volumes that were left suspended")
    );
    rig.leave_volume(&volume).await;
}

/// An agent that is killed in the middle of a check leaves nothing that keeps the volume from being used, or its drive.
#[tokio::test]
async fn nothing_of_a_check_of_an_encrypted_volume_outlives_a_killed_agent() {
    need!(root, loop, crypt, layout "lvm", tool "cryptsetup", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    let volume = encrypted_in(&rig, "demo", "files", 512 * MIB, &csi::mount("ext4")).await;
    use_it(&rig, &volume).await;
    put(&volume);
    let mut interrupted = 0;
    for _ in 0..3 {
        let mut check = Command::new(rig.agent.program())
            .args(["volume", "check", "files", "--socket"])
            .arg(rig.agent.settings().agent_socket())
            .spawn()
            .unwrap();
        let limit = Instant::now() + Duration::from_secs(30);
        while decrypted().is_empty() && check.try_wait().unwrap().is_none() {
            assert!(Instant::now() < limit, "no check begins");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        interrupted += u32::from(!decrypted().is_empty());
        rig.agent.kill9();
        check.wait().unwrap();
        rig.start_again().await;
        stage(&rig, &volume, &[(KEY, SECRET)]).await.unwrap();
        let checked = done(&rig, "volume check files");
        assert!(checked.contains("snapshot"), "{checked}");
        assert_eq!(decrypted(), [""; 0]);
    }
    assert!(interrupted > 0, "no check was running");
    rig.leave_volume(&volume).await;
    rig.csi.delete(&volume.id).await.unwrap();
    rig.erased().await;
}
