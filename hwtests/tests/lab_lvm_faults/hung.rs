//! A drive that hangs, with a volume in use, does not delay calls for other drives; not even while the host's own LVM commands are in D
//! state on it and hold LVM's locks.

use std::time::{Duration, Instant};

use drivebay_hwtests::{
    GIB, MIB, Node, csi,
    lab::{DriveSpec, LabRig},
    wait,
};

/// Time limit of a call: it takes a second or two in an idle emulated machine, and ten times that in a busy one. A call that waits for the
/// hung drive, or for a lock that is held because of it, takes longer and returns an error.
const LIMIT: Duration = Duration::from_secs(30);
const EVENT_LIMIT: Duration = Duration::from_secs(60);

/// Runs `work`, and panics if it takes [LIMIT] or longer.
async fn promptly<T>(what: &str, work: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let done = work.await;
    let took = start.elapsed();
    eprintln!("  {what}: {:.2} s", took.as_secs_f64());
    assert!(took < LIMIT, "{what} took {took:?} beside a hung drive");
    done
}

/// Runs the life of a volume on a drive that does not hang; each call must be within the limit.
async fn life(node: &Node, name: &str, bytes: u64) {
    let capability = csi::mount("ext4");
    let volume = promptly("create", node.volume(name, bytes, &capability)).await;
    let (id, staging) = (&volume.id, &volume.staging);
    let staged = promptly("stage", node.csi.stage(id, staging, &capability)).await;
    staged.unwrap();
    promptly("publish", node.publish(&volume)).await;
    let stats = promptly("stats", node.csi.stats(id, &volume.target)).await;
    stats.unwrap();
    let grown = node.csi.expand(id, bytes + 64 * MIB, &capability);
    promptly("expand", grown).await.unwrap();
    let grown = node.csi.node_expand(id, &volume.target, bytes + 64 * MIB);
    promptly("node expand", grown).await.unwrap();
    promptly("list", node.csi.list()).await.unwrap();
    promptly("capacity", node.csi.capacity()).await.unwrap();
    promptly("unpublish and unstage", node.leave_volume(&volume)).await;
    promptly("delete", node.csi.delete(id)).await.unwrap();
}

#[tokio::test]
#[ignore = "needs the lab: hwtests/lab"]
async fn a_hung_drive_delays_no_other_even_with_lvm_commands_stuck_on_it() {
    let mut lab = LabRig::with(vec![DriveSpec::scsi("hangs", GIB).served()], "lvm").await;
    // All of the space, so that the next volumes are placed on other drives.
    let all = u64::try_from(lab.csi.capacity().await.unwrap()).unwrap();
    let stuck = lab.volume("stuck", all, &csi::mount("ext4")).await;
    lab.use_volume(&stuck).await;
    let file = stuck.target.join("file").display().to_string();
    lab.guest()
        .run(&format!("echo before >{file} && sync {file}"));
    for name in ["well", "blank"] {
        lab.machine.add(DriveSpec::scsi(name, 2 * GIB));
        let here = |drive: &drivebay_proto::agent::Drive| drive.serial == name;
        lab.drive_where_is(name, "available", here).await;
    }
    // Claims another drive.
    lab.volume("claims", 64 * MIB, &csi::block()).await;
    eprintln!("before");
    life(&lab, "before", 256 * MIB).await;
    lab.erased().await;

    lab.machine.drive("hangs").nbd().hang();
    // A process that uses the volume, and an administrator who lists all of LVM.
    let background = |name: &str, script: &str| {
        lab.guest().run(&format!(
            "({script}; echo $? >/run/{name}.code) >/run/{name}.said 2>&1 </dev/null &"
        ));
    };
    background("writer", &format!("echo after >>{file} && sync {file}"));
    assert!(
        lab.machine
            .drive("hangs")
            .nbd()
            .wait_pending(1, EVENT_LIMIT)
    );
    background("lvs", "lvs");
    background("vgs", "vgs -o +devices");
    background("pvscan", "pvscan --cache -aay");
    lab.guest()
        .wait_until(EVENT_LIMIT, "three commands wait for the drive", |guest| {
            let waiting = guest.ran("ps -C lvs,vgs,pvscan -o pid= | wc -l");
            (waiting.stdout.trim() == "3").then_some(())
        });
    eprintln!("beside a hung drive, with lvs, vgs and pvscan stuck on it");
    life(&lab, "beside", 256 * MIB).await;
    // Larger than the claimed drive, so that it claims another.
    let claims = promptly("claim", lab.volume("claims too", 1990 * MIB, &csi::block())).await;
    promptly("publish raw", lab.use_volume(&claims)).await;
    // An agent that is started now reports that drive unresponsive, and the others usable.
    lab.agent.kill9();
    promptly("start", lab.start_again()).await;
    life(&lab, "after a start", 256 * MIB).await;
    let ran = lab
        .guest()
        .ran("cat /run/lvs.code /run/vgs.code /run/pvscan.code");
    assert_eq!(ran.stdout, "", "an LVM command was not stuck after all");

    lab.machine.drive("hangs").nbd().resume();
    for name in ["writer", "lvs", "vgs", "pvscan"] {
        let code = lab.guest().wait_until(EVENT_LIMIT, name, |guest| {
            let ran = guest.ran(&format!("cat /run/{name}.code"));
            ran.ok().then_some(ran.stdout)
        });
        assert_eq!(code, "0\n", "{name}");
    }
    let well = |drive: &drivebay_proto::agent::Drive| drive.serial == "hangs";
    lab.drive_where_is("hangs", "claimed", well).await;
    lab.volume_is(&stuck.id, "ready").await;
    let stats = wait::until_async(
        EVENT_LIMIT,
        "stats of the volume that was stuck",
        async || lab.csi.stats(&stuck.id, &stuck.target).await.ok(),
    );
    let condition = stats.await.volume_condition.unwrap();
    assert!(!condition.abnormal, "{condition:?}");
    assert_eq!(lab.guest().run(&format!("cat {file}")), "before\nafter\n");
    lab.leave_volume(&stuck).await;
    lab.csi.delete(&stuck.id).await.unwrap();
    lab.erased().await;
}
