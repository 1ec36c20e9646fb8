//! A volume that is unmounted on the host and held by another process is not deleted, and the error names the process.

use std::process::{Child, Command, Stdio};

use drivebay_hwtests::{DriveSpec, MIB, Rig, csi, need, wait};
use tonic::Code;

/// Starts a process in a private mount namespace, a copy of the present mounts.
fn in_a_copy_of_the_mounts() -> Child {
    Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sleep", "60"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn who_holds_a_volume_that_is_to_be_deleted_is_named() {
    need!(root, loop, tool "mkfs.ext4", tool "unshare", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    let volume = rig.volume("held", 64 * MIB, &csi::mount("ext4")).await;
    rig.use_volume(&volume).await;
    let mut holder = in_a_copy_of_the_mounts();
    let pid = holder.id();
    let has_begun = || {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        (name.trim() == "sleep").then_some(())
    };
    let limit = std::time::Duration::from_secs(10);
    wait::until(limit, "the holder has its namespace", has_begun);
    rig.leave_volume(&volume).await;
    let refused = rig.csi.delete(&volume.id).await.unwrap_err();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let named = format!("sleep (pid {pid})");
    assert!(refused.message().contains(&named), "{refused:?}");
    wait::until_async(limit, "the volume is deleted", async || {
        rig.csi.delete(&volume.id).await.ok()
    })
    .await;
}
