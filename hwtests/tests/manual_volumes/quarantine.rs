//! An operator ends a quarantine; a quarantined volume in use is a finding, and can be unmounted.

use std::{path::Path, time::Duration};

use drivebay_hwtests::{DriveSpec, MIB, Rig, csi, need, rig::Placed, wait};
use nix::mount::{MsFlags, mount};

use super::helpers::{place, run};

/// Returns a volume with a file that was deleted while its drive was missing, and whose drive is present again.
async fn quarantined(rig: &mut Rig, name: &str) -> Placed {
    let volume = rig.volume(name, 64 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    std::fs::write(volume.target.join("letter"), name).unwrap();
    rig.leave_volume(&volume).await;
    rig.shelf.pull("a");
    rig.drive_is("a", "missing").await;
    rig.csi.delete(&volume.id).await.unwrap();
    rig.shelf.plug("a").unwrap();
    rig.drive_is("a", "claimed").await;
    rig.volume_is(&volume.id, "quarantined").await;
    volume
}

async fn finding(rig: &Rig) -> Option<String> {
    let findings = rig.inventory().await.findings;
    let in_use = findings
        .into_iter()
        .find(|one| one.code == "QuarantinedInUse");
    in_use.map(|one| one.message)
}

#[tokio::test]
async fn a_quarantined_volume_is_given_back_with_its_data_or_erased_at_once() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    rig.drive_is("a", "available").await;
    let volume = quarantined(&mut rig, "db").await;
    run(&rig, "volume restore db").refused(2, &["volume restore db --confirm db"]);
    run(&rig, "volume restore db --confirm d").refused(2, &["nothing was changed"]);
    run(&rig, "volume erase-now db").refused(2, &["volume erase-now db --confirm db"]);
    rig.volume_is(&volume.id, "quarantined").await;
    let output = run(&rig, "volume restore db --confirm db").ok();
    assert!(output.contains("volume db is restored"), "{output}");
    for _ in 0..2 {
        assert_eq!(rig.csi.ids().await.unwrap(), [volume.id.as_str()]);
        rig.use_volume(&volume).await;
        let letter = std::fs::read_to_string(volume.target.join("letter")).unwrap();
        assert_eq!(letter, "db");
        rig.leave_volume(&volume).await;
        let output = run(&rig, "volume restore db --confirm db").ok();
        assert!(output.contains("nothing to restore"), "{output}");
        run(&rig, "volume erase-now db --confirm db").refused(1, &["volume delete db"]);
        // Durable.
        rig.agent.kill9();
        rig.start_again().await;
    }
    rig.csi.delete(&volume.id).await.unwrap();
    rig.erased().await;

    let volume = quarantined(&mut rig, "log").await;
    let output = run(&rig, "volume erase-now log --confirm log").ok();
    assert!(output.contains("is being erased"), "{output}");
    rig.erased().await;
    assert!(rig.volume_of(&volume.id).await.is_none());
    let output = run(&rig, "volume erase-now log --confirm log").ok();
    assert!(output.contains("nothing to erase"), "{output}");
    run(&rig, "volume restore log --confirm log").refused(6, &["not exist"]);
}

#[tokio::test]
async fn a_quarantined_volume_in_use_is_a_finding_and_keeps_nobody_from_unmounting_it() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 512 * MIB)]).await;
    rig.drive_is("a", "available").await;
    let volume = quarantined(&mut rig, "db").await;
    assert_eq!(finding(&rig).await, None);
    // The kernel adds its partition again a little later.
    let limit = Duration::from_secs(20);
    let device = wait::until_async(limit, "the volume's device", async || {
        let device = rig.volume_of(&volume.id).await?.device;
        (!device.is_empty()).then_some(device)
    })
    .await;
    let srv = place(&rig, "kubelet");
    let at: &Path = &srv;
    let node = Path::new("/dev").join(device);
    mount(
        Some(&node),
        at,
        Some("ext4"),
        MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    let message = wait::until_async(Duration::from_secs(20), "the finding", async || {
        finding(&rig).await
    })
    .await;
    assert!(message.contains("volume restore"), "{message}");
    run(&rig, "volume erase-now db --confirm db").refused(1, &["in use"]);
    // The quarantine has expired, and the volume stays.
    rig.agent.stop().unwrap();
    let mut settings = rig.agent.settings().clone();
    settings.quarantine = "1s".to_owned();
    rig.agent = drivebay_hwtests::Agent::start(settings).await.unwrap();
    rig.csi = rig.agent.csi().await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(finding(&rig).await, Some(message));
    rig.volume_is(&volume.id, "quarantined").await;
    let log = std::fs::read_to_string(rig.dir().join("agent.log")).unwrap();
    assert!(
        !log.contains("cannot delete a volume after its quarantine"),
        "{log}"
    );
    rig.csi.unstage(&volume.id, at).await.unwrap();
    rig.erased().await;
    assert_eq!(finding(&rig).await, None);
}
