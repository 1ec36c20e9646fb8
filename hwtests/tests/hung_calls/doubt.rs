//! A creation whose answer never reached a caller, on a drive that is unreadable when the agent restarts.

use std::{fs, path::Path, time::Duration};

use drivebay_hwtests::{
    DriveSpec, GIB, MIB, Rig, csi,
    hang::{Hang, HungDrive, Kind, class_of},
    need, wait,
};

use tonic::Code;

use crate::{call::make, row::PROMPT};

const SIZE: u64 = 512 * MIB;

/// Makes both copies of a partition table invalid, or valid again.
fn toggle(drive: &HungDrive) {
    for header in [512, SIZE - 512] {
        let turned = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
        drive.alter(header, 92, turned).unwrap();
    }
}

/// Returns two drives of one class, an agent on them, and the number of requests of a creation up to the last flush, after which the volume
/// is durable. The first drive is the smaller one, so that it is chosen.
async fn two_drives() -> ([HungDrive; 2], Rig, u64) {
    let drives = [SIZE, 1200 * MIB].map(|size| HungDrive::new(size).unwrap());
    let rig = Rig::tuned(vec![DriveSpec::blank("healthy", GIB)], |settings| {
        settings.more = class_of("either", "partition", &drives);
    })
    .await;
    let how = csi::mount("ext4");
    make(&rig, "either", "claims", 64 * MIB, &how)
        .await
        .unwrap();
    drives[0].watch();
    make(&rig, "either", "counted", 64 * MIB, &how)
        .await
        .unwrap();
    let requests = drives[0].requests();
    let flushes = requests
        .iter()
        .filter(|request| request.kind == Kind::Flush);
    let durable = flushes.count() as u64;
    (drives, rig, durable)
}

/// The worker continues when its agent is killed, and makes the volume when the drive responds.
#[tokio::test]
async fn a_creation_that_an_earlier_agent_began_is_not_begun_elsewhere() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let (drives, mut rig, durable) = two_drives().await;
    let how = csi::mount("ext4");
    drives[0].hang_on(Hang::Flushed(durable));
    let (node, capability) = (rig.node.clone(), how.clone());
    let cut_off =
        tokio::spawn(async move { make(&node, "either", "cut-off", 64 * MIB, &capability).await });
    wait::until_async(PROMPT, "the creation hangs", async || {
        (drives[0].hanging() > 0).then_some(())
    })
    .await;
    rig.agent.kill9();
    cut_off.await.unwrap().unwrap_err();
    rig.start_again().await;
    let meanwhile = make(&rig, "either", "cut-off", 64 * MIB, &how).await;
    let refused = meanwhile.expect_err("it is made on the other drive");
    assert!(
        matches!(refused.code(), Code::Aborted | Code::Unavailable),
        "{refused}"
    );

    drives[0].resume();
    let made = wait::until_async(Duration::from_secs(90), "it is answered", async || {
        make(&rig, "either", "cut-off", 64 * MIB, &how).await.ok()
    })
    .await;
    let ids = rig.csi.ids().await.unwrap();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.contains(&made.volume_id));
}

#[tokio::test]
#[ignore = "takes minutes: hwtests/faults --long"]
async fn a_creation_in_doubt_outlives_the_agent_and_one_name_never_has_two_volumes() {
    need!(root, loop, layout "partition", tool "mkfs.ext4", fs "ext4");
    let (drives, mut rig, durable) = two_drives().await;
    let [first, _] = &drives;
    let file = rig.dir().join("state/known.json");
    let is_in_doubt = |file: &Path| fs::read_to_string(file).unwrap().contains("in_doubt");
    let how = csi::mount("ext4");
    assert!(!is_in_doubt(&file));

    // The volume is durable on the drive, and its worker never responds again.
    first.hang_on(Hang::Flushed(durable));
    let cut_off = make(&rig, "either", "cut-off", 64 * MIB, &how).await;
    cut_off.unwrap_err();
    let noted = Duration::from_secs(60);
    wait::until_async(noted, "that is noted", async || {
        is_in_doubt(&file).then_some(())
    })
    .await;
    rig.agent.kill9();
    // The drive still hangs, so that the next agent cannot find the volume before the drive is unplugged.
    rig.agent.start_again().await.unwrap();
    rig.agent.stop().unwrap();
    first.resume();
    toggle(first);
    rig.start_again().await;
    let elsewhere = make(&rig, "either", "cut-off", 64 * MIB, &how)
        .await
        .unwrap();

    toggle(first);
    wait::until_async(Duration::from_secs(60), "one volume is left", async || {
        rig.rescan().await;
        let volumes = rig.inventory().await.volumes;
        let named = |name: &str| volumes.iter().filter(|of| of.name == name).count();
        (named("claims") == 1 && named("cut-off") == 1).then_some(())
    })
    .await;
    let ids = rig.csi.ids().await.unwrap();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(ids.contains(&elsewhere.volume_id));
    assert!(!is_in_doubt(&file));
}
