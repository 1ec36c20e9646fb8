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

use super::helpers::{id_of, list, place, say};

#[tokio::test]
async fn a_volume_is_created_mounted_written_expanded_unmounted_deleted_and_its_drive_released() {
    need!(root, loop, tool "mkfs.xfs", fs "xfs");
    let rig = Rig::with(vec![DriveSpec::blank("a", 2 * GIB)]).await;
    rig.drive_is("a", "available").await;
    let said = say(&rig, "volume create db --size 400MiB --fs xfs").ok();
    assert!(
        said.contains("volume db is created: 400 MiB, xfs, class demo"),
        "{said}"
    );
    let srv = place(&rig, "db");
    let at = srv.display();
    let said = say(&rig, &format!("volume mount db {at}")).ok();
    assert!(
        said.contains(&format!("volume db is mounted at {at}")),
        "{said}"
    );
    assert_eq!(tree::mounted_times(&srv), 1);
    fs::write(srv.join("letter"), "dear reader").unwrap();

    let before = statvfs(&srv).unwrap().blocks();
    let said = say(&rig, "volume expand db --size 800MiB").ok();
    assert!(
        said.contains("is expanded: 800 MiB") && said.contains("fills it"),
        "{said}"
    );
    assert!(statvfs(&srv).unwrap().blocks() > before * 3 / 2);
    assert_eq!(
        fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );
    let said = say(&rig, "volume list -o wide").ok();
    assert!(
        said.contains("by hand") && said.contains(&at.to_string()),
        "{said}"
    );

    // Obstacles are reported before the required confirmation.
    for line in ["volume delete db", "volume delete db --confirm db"] {
        say(&rig, line).refused(1, &["in use", &at.to_string(), "volume unmount db"]);
    }
    let open = File::open(srv.join("letter")).unwrap();
    say(&rig, "volume unmount db").refused(1, &[&at.to_string()]);
    assert_eq!(tree::mounted_times(&srv), 1);
    drop(open);
    let said = say(&rig, &format!("volume unmount {at}")).ok();
    assert!(said.contains("volume db is unmounted"), "{said}");
    assert_eq!(tree::mounted_times(&srv), 0);
    assert!(srv.is_dir(), "the directory is the person's");

    say(&rig, "volume delete db").refused(2, &["volume delete db --confirm db"]);
    say(&rig, "volume delete db --confirm d").refused(2, &["nothing was changed"]);
    id_of(&rig, "db");
    let said = say(&rig, "volume delete db --confirm db").ok();
    assert!(said.contains("is being erased"), "{said}");
    rig.erased().await;

    let drive = rig.drive_is("a", "claimed").await;
    let said = say(&rig, &format!("drive release {}", drive.kernel_name));
    said.refused(2, &["--confirm", &drive.id]);
    rig.drive_is("a", "claimed").await;
    let line = format!("drive release {} --confirm {}", drive.kernel_name, drive.id);
    let said = say(&rig, &line).ok();
    assert!(said.contains("is released, and blank"), "{said}");
    rig.drive_is("a", "available").await;
    rig.shelf.flush().unwrap();
    let bytes = fs::read(rig.shelf.file("a")).unwrap();
    assert!(digest::is_zeros(&bytes), "not as blank as before the claim");

    // The drive is claimed again.
    say(&rig, "volume create again --size 400MiB --fs xfs").ok();
    rig.drive_is("a", "claimed").await;
}

#[tokio::test]
async fn a_raw_volume_is_given_to_a_file_and_taken_back() {
    need!(root, loop);
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    say(&rig, "volume create vm --size 64MiB --block").ok();
    let file = place(&rig, "vm").join("disk");
    let at = file.display();
    say(&rig, &format!("volume mount vm {at} --options noatime")).refused(1, &["raw volume"]);
    for _ in 0..2 {
        say(&rig, &format!("volume mount vm {at}")).ok();
    }
    assert!(fs::metadata(&file).unwrap().file_type().is_block_device());
    let node = File::options().read(true).write(true).open(&file).unwrap();
    node.write_all_at(&[0x5a; 4096], 0).unwrap();
    node.sync_all().unwrap();
    drop(node);
    say(&rig, "volume delete vm --confirm vm").refused(1, &["in use"]);
    let said = say(&rig, "volume expand vm --size 96MiB").ok();
    assert!(said.contains("96 MiB, raw block"), "{said}");
    say(&rig, "volume unmount vm").ok();
    assert!(!file.exists(), "its file is left");
    say(&rig, &format!("volume mount vm {at}")).ok();
    let mut back = [0; 4096];
    File::open(&file)
        .unwrap()
        .read_exact_at(&mut back, 0)
        .unwrap();
    assert!(back == [0x5a; 4096], "what was written is gone");
    say(&rig, "volume unmount vm").ok();
    say(&rig, "volume delete vm --confirm vm").ok();
}

#[tokio::test]
async fn a_repeated_command_changes_nothing_and_succeeds() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", GIB)]).await;
    rig.drive_is("a", "available").await;
    say(&rig, "volume create db --size 64MiB").ok();
    let id = id_of(&rig, "db");
    for line in [
        "volume create db --size 64MiB",
        "volume create db --size 32MiB --class demo --fs ext4",
    ] {
        let said = say(&rig, line).ok();
        assert!(said.contains("exists already"), "{said}");
    }
    assert_eq!(id_of(&rig, "db"), id);
    for line in [
        "volume create db --size 128MiB",
        "volume create db --size 64MiB --block",
        "volume create db --size 64MiB --mount-options noatime",
    ] {
        say(&rig, line).refused(1, &["a volume named \"db\" exists"]);
    }
    assert_eq!(list(&rig)["volumes"].as_array().unwrap().len(), 1);

    let (srv, other) = (place(&rig, "db"), place(&rig, "other"));
    let mount = format!("volume mount db {}", srv.display());
    say(&rig, &mount).ok();
    fs::write(srv.join("letter"), "dear reader").unwrap();
    say(&rig, &mount).ok();
    let uuid = id.split('@').next().unwrap();
    say(&rig, &format!("volume mount {uuid} {}", srv.display())).ok();
    assert_eq!(tree::mounted_times(&srv), 1);
    for other in ["--options noatime", "--options commit=30", "--read-only"] {
        say(&rig, &format!("{mount} {other}")).refused(1, &["is mounted already"]);
    }
    say(&rig, &mount).ok();
    say(&rig, &format!("volume mount db {}", other.display()))
        .refused(1, &["mounted by hand", &srv.display().to_string()]);
    say(&rig, "volume create db2 --size 64MiB").ok();
    say(&rig, &format!("volume mount db2 {}", srv.display())).refused(1, &["volume db's"]);
    assert_eq!(
        (tree::mounted_times(&srv), tree::mounted_times(&other)),
        (1, 0)
    );

    let said = say(&rig, "volume expand db --size 64MiB").ok();
    assert!(said.contains("was as large already"), "{said}");
    for _ in 0..2 {
        say(&rig, "volume unmount db").ok();
        say(&rig, &format!("volume unmount {}", srv.display())).ok();
    }
    say(&rig, &mount).ok();
    assert_eq!(
        fs::read_to_string(srv.join("letter")).unwrap(),
        "dear reader"
    );
    say(&rig, "volume unmount db").ok();
    say(&rig, "volume delete db --confirm db").ok();
    let said = say(&rig, "volume delete db --confirm db").ok();
    assert!(said.contains("nothing to delete"), "{said}");
}

#[tokio::test]
async fn wrong_names_and_places_and_a_full_drive_are_refused_in_words_and_leave_nothing() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let rig = Rig::with(vec![DriveSpec::blank("a", 256 * MIB)]).await;
    rig.drive_is("a", "available").await;
    say(&rig, "volume create db --size 1GiB").refused(1, &["has room", "largest"]);
    say(&rig, "volume create db --size 64MiB --class slow").refused(1, &["slow", "demo"]);
    say(&rig, "volume create db --size 64MiB --fs ntfs").refused(2, &["ntfs", "xfs"]);
    say(&rig, "volume create db --size 64G").refused(2, &["64GiB"]);
    rig.drive_is("a", "available").await;

    say(&rig, "volume create db --size 64MiB").ok();
    let srv = place(&rig, "db");
    for line in [
        format!("volume mount nothing {}", srv.display()),
        "volume expand nothing --size 1GiB".to_owned(),
        "volume unmount nothing".to_owned(),
    ] {
        say(&rig, &line).refused(6, &["nothing", "not exist"]);
    }
    say(&rig, "volume expand nothing2 --size 0").refused(2, &["more than 0"]);
    say(&rig, "volume expand db --size 1GiB").refused(1, &["cannot grow"]);
    say(&rig, "volume mount db").refused(1, &["name a directory"]);
    let missing = srv.join("missing");
    say(&rig, &format!("volume mount db {}", missing.display()))
        .refused(1, &[&missing.display().to_string()]);
    for place in ["/usr", "/usr/bin", "/run", "/etc/ssh"] {
        let line = format!("volume mount db {place}");
        say(&rig, &line).refused(1, &["belongs to the system"]);
    }
    for own in ["state", "run", ""] {
        let line = format!("volume mount db {}", rig.dir().join(own).display());
        say(&rig, &line).refused(1, &["which the agent or the kubelet uses"]);
    }
    say(
        &rig,
        &format!("volume mount db {}/kubelet/x", rig.dir().display()),
    )
    .refused(1, &["the kubelet uses"]);
    say(
        &rig,
        &format!("volume mount db {} --options loop", srv.display()),
    )
    .refused(1, &["loop"]);
    assert_eq!(
        list(&rig)["mounts"],
        serde_json::json!([]),
        "nothing is noted"
    );
    say(&rig, &format!("volume unmount {}", srv.display())).ok();
    say(&rig, "volume unmount /proc").refused(1, &["/proc"]);
    assert!(fs::exists("/proc/self").unwrap());
}

#[tokio::test]
async fn without_root_and_without_an_agent_the_commands_say_what_to_do() {
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
        let said = String::from_utf8(nobody.stderr).unwrap();
        assert_eq!(nobody.status.code(), Some(4), "{said}");
        assert!(said.contains("permission denied; run as root"), "{said}");
    }
    rig.agent.stop().unwrap();
    for line in [
        "volume create db --size 16MiB",
        "volume mount --persisted",
        "volume delete db",
        "drive release sda",
    ] {
        say(&rig, line).refused(3, &["no agent answers"]);
    }
}
