//! Copies of a volume in use, and copies during which the agent was killed.

use drivebay_hwtests::{
    MIB, csi,
    lab::{Writer, letters::LAB_LIMIT},
    long, wait,
};
use drivebay_proto::agent::VolumeCopy;
use tonic::Code;

use super::helpers::{
    configured, copies, copy, delete, delete_snapshot, digest, fs_uuid, lab, lines,
    nothing_is_left, snapshot, synced, volume,
};

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_clone_of_a_volume_in_use_has_what_was_synced_and_leaves_no_snapshot() {
    long!();
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    for (fs_type, mib) in [("ext4", 64), ("xfs", 320), ("btrfs", 320)] {
        let how = csi::mount(fs_type);
        let first = volume(lab, &format!("{fs_type}-used"), mib * MIB, &how).await;
        lab.serve(&first).await;
        let letter = lab.put_letter(&first, 512);
        let writer = Writer::start(lab.guest(), &format!("cloned-{fs_type}"), &first.target);
        let before = synced(&writer);
        let source = csi::from_volume(&first.id);
        let second = copy(lab, &format!("{fs_type}-clone"), first.bytes, &how, &source).await;
        writer.advances();
        // The temporary snapshot that it was copied from was never listed, and is removed.
        let listed = lab.csi.list_snapshots(&first.id).await.unwrap();
        assert!(listed.is_empty(), "{listed:?}");
        nothing_is_left(lab).await;
        lab.serve(&second).await;
        assert_eq!(lab.letter(&second), letter, "{fs_type}");
        lines(lab, &second.target, before);
        assert_ne!(fs_uuid(lab, &first).await, fs_uuid(lab, &second).await);
        let cloned = lab.volume_of(&second.id).await.unwrap();
        assert_eq!(cloned.source_volume, first.id);
        writer.finish();
        delete(lab, &first).await;
        delete(lab, &second).await;
        lab.all_erased().await;
    }
}

/// The agent is killed during a restore, which still completes. The copy has the data that was overwritten in the source meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_restore_goes_on_and_completes_after_the_agent_was_killed() {
    long!();
    const BYTES: u64 = 64 * MIB;
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    let how = csi::block();
    let first = volume(lab, "killed-first", BYTES, &how).await;
    lab.serve(&first).await;
    let target = first.target.display().to_string();
    lab.guest().run(&format!(
        "dd if=/dev/urandom of={target} bs=1M count=64 oflag=direct conv=notrunc,fsync status=none"
    ));
    let written = digest(lab, &first, BYTES);
    let taken = snapshot(lab, "killed", &first, &[("reserve", "100%")]).await;
    // The first part is copied from what the snapshot has stored.
    lab.guest().run(&format!(
        "dd if=/dev/zero of={target} bs=1M count=16 oflag=direct conv=notrunc,fsync status=none"
    ));
    lab.agent.stop();
    configured(lab, "[moves]\nmax-bytes-per-second = \"8MiB\"\n").await;
    let source = csi::from_snapshot(&taken.snapshot_id);
    let (client, capability, of) = (lab.csi.clone(), how.clone(), source.clone());
    let begun = tokio::spawn(async move {
        client
            .try_create_from("killed-second", BYTES, &capability, &of)
            .await
    });
    let copying = wait::until_async(LAB_LIMIT, "it is copied", async || {
        let all = copies(lab).await;
        all.into_iter().find(|one| one.done_bytes > 0)
    })
    .await;
    assert_eq!(copying.source_snapshot, taken.snapshot_id);
    assert!(copying.done_bytes < BYTES, "{copying:?}");
    lab.agent.kill9();
    assert!(begun.await.unwrap().is_err());
    configured(lab, "").await;
    // The copy continues without a call, and a repeated call returns the same volume.
    wait::until_async(LAB_LIMIT, "it is copied without a call", async || {
        let volume = lab.volume_of(&copying.volume_id).await?;
        (volume.state != "copying").then_some(())
    })
    .await;
    let second = copy(lab, "killed-second", BYTES, &how, &source).await;
    assert_eq!(second.id, copying.volume_id, "it was begun anew");
    lab.serve(&second).await;
    assert_eq!(digest(lab, &second, BYTES), written);
    assert_ne!(digest(lab, &first, BYTES), written);
    delete(lab, &second).await;
    delete_snapshot(lab, &taken.snapshot_id).await;
    delete(lab, &first).await;
    nothing_is_left(lab).await;
}

/// The data copied so far may be right, but the rest is lost: no volume is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_snapshot_that_overflows_during_its_restore_makes_no_volume() {
    long!();
    const BYTES: u64 = 64 * MIB;
    let mut lab = lab().await;
    let lab = lab.as_mut().unwrap();
    lab.agent.stop();
    configured(lab, "[moves]\nmax-bytes-per-second = \"4MiB\"\n").await;
    let how = csi::block();
    let first = volume(lab, "overflown-first", BYTES, &how).await;
    lab.serve(&first).await;
    let target = first.target.display().to_string();
    // Overwrites blocks that are already copied, and blocks that are not.
    for (name, place) in [("behind", "seek=0"), ("ahead", "seek=40")] {
        lab.guest().run(&format!(
            "dd if=/dev/urandom of={target} bs=1M count=64 oflag=direct conv=notrunc,fsync status=none"
        ));
        // The smallest possible reserve: 8 MiB.
        let taken = snapshot(lab, name, &first, &[("reserve", "1%")]).await;
        let source = csi::from_snapshot(&taken.snapshot_id);
        let (client, capability, of) = (lab.csi.clone(), how.clone(), source.clone());
        let copied = format!("{name}-copy");
        let called = copied.clone();
        let call =
            tokio::spawn(async move { client.create_from(&called, BYTES, &capability, &of).await });
        wait::until_async(LAB_LIMIT, "a quarter is copied", async || {
            let all = copies(lab).await;
            let is_far = |one: &&VolumeCopy| one.name == copied && one.done_bytes >= BYTES / 4;
            all.iter().find(is_far).map(drop)
        })
        .await;
        lab.guest().run(&format!(
            "dd if=/dev/zero of={target} bs=1M count=16 {place} oflag=direct conv=notrunc,fsync status=none"
        ));
        let written = digest(lab, &first, BYTES);
        let refused = call.await.unwrap().unwrap_err();
        assert_eq!(
            refused.code(),
            Code::FailedPrecondition,
            "{name}: {refused}"
        );
        let why = "its reserve was full";
        assert!(refused.message().contains(why), "{name}: {refused}");
        lab.all_erased().await;
        let volumes = lab.inventory().await.volumes;
        assert!(volumes.iter().all(|one| one.name != copied), "{volumes:#?}");
        assert_eq!(digest(lab, &first, BYTES), written, "{name}");
        delete_snapshot(lab, &taken.snapshot_id).await;
    }
    delete(lab, &first).await;
    nothing_is_left(lab).await;
    lab.agent.stop();
    configured(lab, "").await;
}
