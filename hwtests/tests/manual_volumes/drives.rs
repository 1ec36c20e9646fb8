//! Manual commands for drives: releasing one without volumes, and wiping one while no agent runs.

use std::fs;

use drivebay_hwtests::{DriveSpec, MIB, Rig, digest, need, shelf, tools};

use super::helpers::{CommandOutput, place, run};

fn print(rig: &Rig, name: &str) -> u64 {
    rig.shelf.flush().unwrap();
    digest::of(&rig.shelf.file(name)).unwrap()
}

#[tokio::test]
async fn a_drive_with_a_volume_or_an_unfinished_erase_is_not_released() {
    need!(root, loop);
    let rig = Rig::tuned(vec![DriveSpec::blank("a", 256 * MIB)], |settings| {
        settings.erase_rate = "1MiB".to_owned();
    })
    .await;
    let available = rig.drive_is("a", "available").await;
    let line = format!("drive release {0} --confirm {0}", available.id);
    run(&rig, &line).refused(1, &["is not released", "available"]);
    run(&rig, "drive release sdnone").refused(6, &["no drive"]);
    run(&rig, "volume create db --size 128MiB --block").ok();
    rig.zeroed().await;
    let before = print(&rig, "a");
    for line in [format!("drive release {}", available.id), line.clone()] {
        let message = run(&rig, &line).refused(1, &["db (", "volume delete"]);
        assert!(!message.contains("--confirm"), "refused first: {message}");
    }
    assert_eq!(print(&rig, "a"), before);
    run(&rig, "volume delete db --confirm db").ok();
    run(&rig, &line).refused(1, &["not erased yet", "db"]);
    rig.drive_is("a", "claimed").await;
}

#[tokio::test]
async fn a_drive_whose_label_does_not_read_is_not_released() {
    need!(root, loop, layout "partition");
    let rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    rig.drive_is("a", "available").await;
    run(&rig, "volume create db --size 64MiB --block").ok();
    run(&rig, "volume delete db --confirm db").ok();
    rig.erased().await;
    let drive = rig.drive_is("a", "claimed").await;
    // Overwrites both copies of the label after the agent's last scan.
    let file = fs::File::options()
        .write(true)
        .open(&rig.shelf.drives()[0].device)
        .unwrap();
    let noise = vec![0xa5; 4 * MIB as usize];
    std::os::unix::fs::FileExt::write_all_at(&file, &noise, MIB).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let before = print(&rig, "a");
    let line = format!("drive release {0} --confirm {0}", drive.id);
    let output = run(&rig, &line);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert_eq!(print(&rig, "a"), before, "it was written to");
}

/// Runs `drive wipe` with the configuration of the rig's agent, which does not run.
fn wipe(rig: &Rig, words: &str) -> CommandOutput {
    let config = rig.agent.settings().config();
    run(
        rig,
        &format!("drive wipe {words} --config {}", config.display()),
    )
}

#[tokio::test]
async fn a_drive_is_wiped_without_an_agent_and_none_can_start_meanwhile() {
    need!(root, loop);
    let drives = vec![
        DriveSpec::blank("raw", 200 * MIB).holding(shelf::raw_data),
        DriveSpec::blank("used", 200 * MIB),
    ];
    let mut rig = Rig::with(drives).await;
    let raw = rig.drive_is("raw", "rejected").await;
    run(&rig, "volume create db --size 64MiB --block").ok();
    let used = rig.drive_is("used", "claimed").await;
    let settings = rig.agent.settings();
    // An agent runs, and the command has another socket path: the lock decides.
    let elsewhere = rig.dir().join("no.sock").display().to_string();
    let config = settings.config().display().to_string();
    let output = std::process::Command::new(rig.agent.program())
        .args(["drive", "wipe", &raw.id, "--confirm", &raw.id])
        .args(["--socket", &elsewhere, "--config", &config])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("another drivebay-agent"), "{stderr}");

    rig.agent.stop().unwrap();
    let before = [print(&rig, "raw"), print(&rig, "used")];
    // Reports obstacles first, with their remedies; then the confirmation that is required.
    let message = wipe(&rig, &used.id).refused(1, &["db (", "volume delete"]);
    assert!(!message.contains("To wipe it"), "{message}");
    wipe(&rig, &raw.kernel_name).refused(2, &["no agent runs", "--confirm", &raw.id]);
    wipe(&rig, &format!("{} --confirm loop-other", raw.id)).refused(2, &["loop-other"]);
    wipe(&rig, &format!("{0} --confirm {0}", used.id)).refused(1, &["is not wiped"]);
    run(
        &rig,
        &format!("drive wipe {} --config /nowhere.toml", raw.id),
    )
    .refused(3, &["no agent answers", "/nowhere.toml", "--config"]);
    assert_eq!([print(&rig, "raw"), print(&rig, "used")], before);

    let message = wipe(&rig, &format!("{0} --confirm {0}", raw.id)).ok();
    assert!(message.contains("is blank"), "{message}");
    rig.shelf.flush().unwrap();
    let bytes = fs::read(rig.shelf.file("raw")).unwrap();
    assert!(digest::is_zeros(&bytes), "not all is zeros");
    assert_eq!(
        print(&rig, "used"),
        before[1],
        "another drive was written to"
    );
    rig.start_again().await;
    rig.drive_is("raw", "available").await;
    rig.drive_is("used", "claimed").await;
}

#[tokio::test]
async fn a_mounted_drive_is_refused_with_what_to_do_before_its_identity_is_required() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let ext4 = DriveSpec::blank("a", 256 * MIB)
        .holding(|file| tools::run("mkfs.ext4", &["-Fq", &file.display().to_string()]).map(drop));
    let mut rig = Rig::with(vec![ext4]).await;
    let drive = rig.drive_is("a", "rejected").await;
    let at = place(&rig, "elsewhere");
    let node = rig.shelf.drives()[0].device.display().to_string();
    tools::run("mount", &["-o", "ro", &node, &at.display().to_string()]).unwrap();
    assert!(rig.agent.run_command(&["rescan"]).unwrap().status.success());
    let by_agent = run(&rig, &format!("drive wipe {}", drive.id));
    rig.agent.stop().unwrap();
    let without = wipe(&rig, &drive.id);
    for output in [by_agent, without] {
        let message = output.refused(1, &["Mounted", "unmount it"]);
        assert!(!message.contains("--confirm"), "{message}");
    }
    tools::run("umount", &[&at.display().to_string()]).unwrap();
    wipe(&rig, &format!("{0} --confirm {0}", drive.id)).ok();
}
