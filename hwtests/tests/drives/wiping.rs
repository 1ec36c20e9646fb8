//! A drive is wiped after its identity is confirmed, never otherwise, and never while it is in use.

use std::fs;

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, csi, digest, need, shelf, tools};

use super::helpers::{codes, letter, print, read_letter, wipe};

#[tokio::test]
async fn a_wipe_needs_the_identity_spelled_out_and_makes_the_drive_blank_and_available() {
    need!(root, loop);
    let drives = vec![DriveSpec::blank("raw", 200 * MIB).holding(shelf::raw_data)];
    let rig = Rig::with(drives).await;
    let drive = rig.drive_is("raw", "rejected").await;
    assert_eq!(codes(&drive), ["NotBlank"]);
    let before = print(&rig, "raw");

    let (code, output) = wipe(&rig, &[&drive.kernel_name]);
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains(&drive.id), "{output}");
    assert!(output.contains("--confirm"), "{output}");
    let (code, output) = wipe(&rig, &[&drive.kernel_name, "--confirm", "loop-other"]);
    assert_eq!(code, Some(2), "{output}");
    let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.kernel_name]);
    assert_eq!(code, Some(2), "{output}");
    let (code, output) = wipe(&rig, &["loop-other", "--confirm", "loop-other"]);
    assert_eq!(code, Some(6), "{output}");
    assert_eq!(print(&rig, "raw"), before, "nothing was confirmed");

    let (code, output) = wipe(&rig, &[&drive.kernel_name, "--confirm", &drive.id]);
    assert_eq!(code, Some(0), "{output}");
    rig.shelf.flush().unwrap();
    let bytes = fs::read(rig.shelf.file("raw")).unwrap();
    assert!(digest::is_zeros(&bytes), "not all is zeros");
    rig.drive_is("raw", "available").await;
    let volume = rig.volume("first", 64 * MIB, &csi::block()).await;
    rig.use_volume(&volume).await;
    rig.leave_volume(&volume).await;
}

#[tokio::test]
async fn the_agent_itself_refuses_a_wipe_with_another_identity() {
    need!(root, loop);
    let drives = vec![DriveSpec::blank("raw", 200 * MIB).holding(shelf::raw_data)];
    let rig = Rig::with(drives).await;
    let drive = rig.drive_is("raw", "rejected").await;
    let before = print(&rig, "raw");
    let socket = rig.agent.settings().agent_socket();
    let channel = csi::channel(&socket).await.unwrap();
    let mut client = drivebay_proto::agent::agent_client::AgentClient::new(channel);
    for confirm in ["", "loop-other", drive.kernel_name.as_str()] {
        let request = drivebay_proto::agent::WipeDriveRequest {
            drive: drive.id.clone(),
            confirm: confirm.to_owned(),
        };
        // Refused at once, or as the first message of the stream.
        let refused = match client.wipe_drive(request).await {
            Err(status) => status,
            Ok(stream) => stream.into_inner().message().await.unwrap_err(),
        };
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    }
    assert_eq!(print(&rig, "raw"), before);
}

#[tokio::test]
async fn a_drive_with_live_volumes_is_not_wiped() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    let volume = letter(&rig, "kept").await;
    let drive = rig.drive_is("a", "claimed").await;
    let before = print(&rig, "a");
    // Refused before the identity is required.
    let (code, output) = wipe(&rig, &[&drive.id]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("kept"), "the volume is not shown: {output}");
    assert!(!output.contains("--confirm"), "{output}");
    let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("volumes"), "{output}");
    assert_eq!(print(&rig, "a"), before);
    read_letter(&rig, &volume, "kept").await;
}

#[tokio::test]
async fn a_mounted_drive_is_not_wiped() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let ext4 = DriveSpec::blank("a", 256 * MIB)
        .holding(|file| tools::run("mkfs.ext4", &["-Fq", &file.display().to_string()]).map(drop));
    let rig = Rig::with(vec![ext4]).await;
    let drive = rig.drive_is("a", "rejected").await;
    // Mounted without the agent: its last scan is outdated, the worker's check decides.
    let point = rig.dir().join("elsewhere");
    fs::create_dir(&point).unwrap();
    let node = rig.shelf.drives()[0].device.display().to_string();
    let at = point.display().to_string();
    tools::run("mount", &["-o", "ro", &node, &at]).unwrap();
    let before = print(&rig, "a");
    let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
    assert_eq!(code, Some(1), "{output}");
    assert_eq!(print(&rig, "a"), before);
    tools::run("umount", &[&at]).unwrap();
    // Unmounting causes no event of the drive: the operator requests a scan.
    assert!(rig.agent.run_command(&["rescan"]).unwrap().status.success());
    let (code, output) = wipe(&rig, &[&drive.id, "--confirm", &drive.id]);
    assert_eq!(code, Some(0), "{output}");
    rig.drive_is("a", "available").await;
}
