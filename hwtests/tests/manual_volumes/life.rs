//! The whole life of a volume, repeated commands, and refused ones.

use std::{
    fs::{self, File},
    os::unix::{
        fs::{FileExt, FileTypeExt, PermissionsExt},
        process::CommandExt,
    },
    process::{Command, Stdio},
};

use drivebay_hwtests::{DriveSpec, GIB, MIB, Rig, digest, need, tree};
use nix::sys::statvfs::statvfs;

use super::helpers::{id_of, list, place, run};

#[tokio::test]
async fn a_volume_is_created_mounted_written_expanded_unmounted_deleted_and_its_drive_released() {
    need!(root, loop, tool "mkfs.xfs", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.drive_is("a", "available").await;
    let output = run(&rig, "volume create db --size 400MiB --fs xfs").ok();
    assert!(
        output.contains("volume db is created: 400 MiB, xfs, class demo"),
        "{output}"
    );
    let srv = place(&rig, "db");
    let at = srv.display();
    let output = run(&rig, &format!("volume mount db {at}")).ok();
    assert!(
        output.contains(&format!("volume db is mounted at {at}")),
        "{output}"
    );
    assert_eq!(tree::mounted_times(&srv), 1);
    fs::write(srv.join("letter"), "dear reader").unwrap();

    let before = statvfs(&srv).unwrap().blocks();
    let output = run(&rig, "volume expand db --size 800MiB").ok();
    assert!(
        output.contains("is expanded: 800 MiB") && output.contains("fills it"),
        "{output}"
    );
    assert!(statvfs(&srv).unwrap().blocks() > before * 3 / 2);
    assert_eq!(
        fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );
    let output = run(&rig, "volume list -o wide").ok();
    assert!(
        output.contains("by hand") && output.contains(&at.to_string()),
        "{output}"
    );

    // Obstacles are reported before the required confirmation.
    for line in ["volume delete db", "volume delete db --confirm db"] {
        run(&rig, line).refused(1, &["in use", &at.to_string(), "volume unmount db"]);
    }
    let open = File::open(srv.join("letter")).unwrap();
    run(&rig, "volume unmount db").refused(1, &[&at.to_string()]);
    assert_eq!(tree::mounted_times(&srv), 1);
    drop(open);
    let output = run(&rig, &format!("volume unmount {at}")).ok();
    assert!(output.contains("volume db is unmounted"), "{output}");
    assert_eq!(tree::mounted_times(&srv), 0);
    assert!(srv.is_dir(), "the directory is the person's");

    run(&rig, "volume delete db").refused(2, &["volume delete db --confirm db"]);
    run(&rig, "volume delete db --confirm d").refused(2, &["nothing was changed"]);
    id_of(&rig, "db");
    let output = run(&rig, "volume delete db --confirm db").ok();
    assert!(output.contains("is being erased"), "{output}");
    rig.erased().await;

    let drive = rig.drive_is("a", "claimed").await;
    let output = run(&rig, &format!("drive release {}", drive.kernel_name));
    output.refused(2, &["--confirm", &drive.id]);
    rig.drive_is("a", "claimed").await;
    let line = format!("drive release {} --confirm {}", drive.kernel_name, drive.id);
    let output = run(&rig, &line).ok();
    assert!(output.contains("is released, and blank"), "{output}");
    rig.drive_is("a", "available").await;
    rig.shelf.flush().unwrap();
    let bytes = fs::read(rig.shelf.file("a")).unwrap();
    assert!(digest::is_zeros(&bytes), "not as blank as before the claim");

    // The drive is claimed again.
    run(&rig, "volume create again --size 400MiB --fs xfs").ok();
    rig.drive_is("a", "claimed").await;
}

#[tokio::test]
async fn a_raw_volume_is_given_to_a_file_and_taken_back() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    run(&rig, "volume create vm --size 64MiB --block").ok();
    let file = place(&rig, "vm").join("disk");
    let at = file.display();
    run(&rig, &format!("volume mount vm {at} --options noatime")).refused(1, &["raw volume"]);
    for _ in 0..2 {
        run(&rig, &format!("volume mount vm {at}")).ok();
    }
    assert!(fs::metadata(&file).unwrap().file_type().is_block_device());
    let node = File::options().read(true).write(true).open(&file).unwrap();
    node.write_all_at(&[0x5a; 4096], 0).unwrap();
    node.sync_all().unwrap();
    drop(node);
    run(&rig, "volume delete vm --confirm vm").refused(1, &["in use"]);
    let output = run(&rig, "volume expand vm --size 96MiB").ok();
    assert!(output.contains("96 MiB, raw block"), "{output}");
    run(&rig, "volume unmount vm").ok();
    assert!(!file.exists(), "its file is left");
    run(&rig, &format!("volume mount vm {at}")).ok();
    let mut back = [0; 4096];
    File::open(&file)
        .unwrap()
        .read_exact_at(&mut back, 0)
        .unwrap();
    assert!(back == [0x5a; 4096], "what was written is gone");
    run(&rig, "volume unmount vm").ok();
    run(&rig, "volume delete vm --confirm vm").ok();
}

#[tokio::test]
async fn a_repeated_command_changes_nothing_and_succeeds() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    run(&rig, "volume create db --size 64MiB").ok();
    let id = id_of(&rig, "db");
    for line in [
        "volume create db --size 64MiB",
        "volume create db --size 32MiB --class demo --fs ext4",
    ] {
        let output = run(&rig, line).ok();
        assert!(output.contains("exists already"), "{output}");
    }
    assert_eq!(id_of(&rig, "db"), id);
    for line in [
        "volume create db --size 128MiB",
        "volume create db --size 64MiB --block",
        "volume create db --size 64MiB --mount-options noatime",
    ] {
        run(&rig, line).refused(1, &["a volume named \"db\" exists"]);
    }
    assert_eq!(list(&rig)["volumes"].as_array().unwrap().len(), 1);

    let (srv, other) = (place(&rig, "db"), place(&rig, "other"));
    let mount = format!("volume mount db {}", srv.display());
    run(&rig, &mount).ok();
    fs::write(srv.join("letter"), "dear reader").unwrap();
    run(&rig, &mount).ok();
    let uuid = id.split('@').next().unwrap();
    run(&rig, &format!("volume mount {uuid} {}", srv.display())).ok();
    assert_eq!(tree::mounted_times(&srv), 1);
    for other in ["--options noatime", "--options commit=30", "--read-only"] {
        run(&rig, &format!("{mount} {other}")).refused(1, &["is mounted already"]);
    }
    run(&rig, &mount).ok();
    run(&rig, &format!("volume mount db {}", other.display()))
        .refused(1, &["mounted by hand", &srv.display().to_string()]);
    run(&rig, "volume create db2 --size 64MiB").ok();
    run(&rig, &format!("volume mount db2 {}", srv.display())).refused(1, &["volume db's"]);
    assert_eq!(
        (tree::mounted_times(&srv), tree::mounted_times(&other)),
        (1, 0)
    );

    let output = run(&rig, "volume expand db --size 64MiB").ok();
    assert!(output.contains("was as large already"), "{output}");
    for _ in 0..2 {
        run(&rig, "volume unmount db").ok();
        run(&rig, &format!("volume unmount {}", srv.display())).ok();
    }
    run(&rig, &mount).ok();
    assert_eq!(
        fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );
    run(&rig, "volume unmount db").ok();
    run(&rig, "volume delete db --confirm db").ok();
    let output = run(&rig, "volume delete db --confirm db").ok();
    assert!(output.contains("nothing to delete"), "{output}");
}

#[tokio::test]
async fn wrong_names_and_places_and_a_full_drive_are_refused_in_words_and_leave_nothing() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    rig.drive_is("a", "available").await;
    run(&rig, "volume create db --size 1GiB").refused(1, &["has room", "largest"]);
    run(&rig, "volume create db --size 64MiB --class slow").refused(1, &["slow", "demo"]);
    run(&rig, "volume create db --size 64MiB --fs ntfs").refused(2, &["ntfs", "xfs"]);
    run(&rig, "volume create db --size 64G").refused(2, &["64GiB"]);
    rig.drive_is("a", "available").await;

    run(&rig, "volume create db --size 64MiB").ok();
    let srv = place(&rig, "db");
    for line in [
        format!("volume mount nothing {}", srv.display()),
        "volume expand nothing --size 1GiB".to_owned(),
        "volume unmount nothing".to_owned(),
    ] {
        run(&rig, &line).refused(6, &["nothing", "not exist"]);
    }
    run(&rig, "volume expand nothing2 --size 0").refused(2, &["more than 0"]);
    run(&rig, "volume expand db --size 1GiB").refused(1, &["cannot grow"]);
    run(&rig, "volume mount db").refused(1, &["name a directory"]);
    let missing = srv.join("missing");
    run(&rig, &format!("volume mount db {}", missing.display()))
        .refused(1, &[&missing.display().to_string()]);
    for place in ["/usr", "/usr/bin", "/run", "/etc/ssh"] {
        let line = format!("volume mount db {place}");
        run(&rig, &line).refused(1, &["belongs to the system"]);
    }
    for own in ["state", "run", ""] {
        let line = format!("volume mount db {}", rig.dir().join(own).display());
        run(&rig, &line).refused(1, &["which the agent or the kubelet uses"]);
    }
    run(
        &rig,
        &format!("volume mount db {}/kubelet/x", rig.dir().display()),
    )
    .refused(1, &["the kubelet uses"]);
    run(
        &rig,
        &format!("volume mount db {} --options loop", srv.display()),
    )
    .refused(1, &["loop"]);
    assert_eq!(
        list(&rig)["mounts"],
        serde_json::json!([]),
        "nothing is noted"
    );
    run(&rig, &format!("volume unmount {}", srv.display())).ok();
    run(&rig, "volume unmount /proc").refused(1, &["/proc"]);
    assert!(fs::exists("/proc/self").unwrap());
}

#[tokio::test]
async fn without_root_and_without_an_agent_the_commands_report_what_to_do() {
    need!(root, loop);
    let mut rig = Rig::with(vec![DriveSpec::blank("a", 128 * MIB)]).await;
    rig.drive_is("a", "available").await;
    // Available without root.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("drivebay-agent");
    fs::copy(rig.agent.program(), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let socket = rig.agent.settings().agent_socket();
    let lines: [&[&str]; 3] = [
        &["volume", "create", "db", "--size", "16MiB"],
        &["volume", "unmount", "db"],
        &["drive", "wipe", "sda"],
    ];
    for line in lines {
        let nobody = Command::new(&program)
            .args(line)
            .arg("--socket")
            .arg(&socket)
            .current_dir("/")
            .uid(65534)
            .gid(65534)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8(nobody.stderr).unwrap();
        assert_eq!(nobody.status.code(), Some(4), "{stderr}");
        assert!(
            stderr.contains("permission denied; run as root"),
            "{stderr}"
        );
    }
    rig.agent.stop().unwrap();
    for line in [
        "volume create db --size 16MiB",
        "volume mount --persisted",
        "volume delete db",
        "drive release sda",
    ] {
        run(&rig, line).refused(3, &["no agent answers"]);
    }
}
