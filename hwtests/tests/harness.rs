//! The harness itself: it builds what is requested, and removes all of it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests run tools and fail loudly"
)]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use drivebay_hwtests::{DriveSpec, MIB, Shelf, digest, need, shelf, tools, tree};

#[test]
fn a_dropped_shelf_leaves_nothing_mounted_or_looped_behind() {
    need!(root, loop, tool "mkfs.ext4", fs "ext4");
    let mut shelf = Shelf::new().unwrap();
    let dir = shelf.dir().to_owned();
    let drive = shelf
        .add(DriveSpec::blank("a", 64 * MIB).holding(|file| {
            tools::run("mkfs.ext4", &["-q", "-F", &file.display().to_string()]).map(drop)
        }))
        .unwrap();
    shelf.add(DriveSpec::blank("b", 64 * MIB)).unwrap();
    let point = dir.join("mounted here");
    let again = dir.join("and here");
    for path in [&point, &again] {
        fs::create_dir(path).unwrap();
        let device = drive.device.display().to_string();
        tools::run("mount", &[&device, &path.display().to_string()]).unwrap();
    }
    assert_eq!(tree::mounted_times(&point), 1);
    assert_eq!(tree::leftovers(&dir).len(), 4);

    drop(shelf);
    assert!(tree::leftovers(&dir).is_empty());
    assert!(!dir.exists());
}

#[test]
fn partitions_that_were_added_one_by_one_go_with_their_drive() {
    need!(root, loop, tool "addpart");
    let mut shelf = Shelf::new().unwrap();
    let drive = shelf.add(DriveSpec::blank("a", 64 * MIB)).unwrap();
    let device = drive.device.display().to_string();
    tools::run("addpart", &[&device, "3", "2048", "4096"]).unwrap();
    let partition = format!("{}p3", drive.kernel_name);
    assert_eq!(
        tree::partitions(&drive.kernel_name),
        [(partition.clone(), 3)]
    );
    drop(shelf);
    assert!(!Path::new("/sys/class/block").join(partition).exists());
}

#[test]
fn a_drive_has_no_partitions_that_a_killed_run_left_on_its_number() {
    need!(root, loop, tool "addpart");
    let mut shelf = Shelf::new().unwrap();
    let file = shelf.dir().join("killed.img");
    fs::File::create(&file).unwrap().set_len(64 * MIB).unwrap();
    let node = tools::run("losetup", &["--find", "--show", file.to_str().unwrap()]).unwrap();
    let node = node.trim();
    tools::run("addpart", &[node, "2", "2048", "8192"]).unwrap();
    tools::run("losetup", &["--detach", node]).unwrap();
    assert_eq!(tree::partitions(&node.replace("/dev/", "")).len(), 1);

    // The lowest free number is assigned first.
    let drive = shelf.add(DriveSpec::blank("a", 64 * MIB)).unwrap();
    assert_eq!(drive.device, Path::new(node));
    assert_eq!(tree::partitions(&drive.kernel_name), []);
}

/// The kernel keeps an unplugged drive until its last user closes it, and never removes its partitions.
#[test]
fn partitions_of_a_drive_that_was_unplugged_in_use_go_with_the_shelf() {
    need!(root, loop, tool "addpart");
    let mut shelf = Shelf::new().unwrap();
    let drive = shelf.add(DriveSpec::blank("a", 64 * MIB)).unwrap();
    let node = drive.device.to_str().unwrap();
    tools::run("addpart", &[node, "2", "2048", "8192"]).unwrap();
    let used = fs::File::open(format!("{node}p2")).unwrap();
    shelf.unplug("a");
    drop(used);
    assert_eq!(tree::partitions(&drive.kernel_name).len(), 1);
    drop(shelf);
    assert_eq!(tree::partitions(&drive.kernel_name), []);
}

#[test]
fn a_drive_is_as_it_was_ordered() {
    need!(root, loop);
    let mut shelf = Shelf::new().unwrap();
    let wide = shelf
        .add(DriveSpec::blank("wide", 64 * MIB).sector(4096))
        .unwrap();
    let fixed = shelf
        .add(DriveSpec::blank("fixed", 64 * MIB).read_only())
        .unwrap();
    let full = shelf
        .add(DriveSpec::blank("full", 64 * MIB).holding(shelf::raw_data))
        .unwrap();
    let fact = |drive: &str, file: &str| {
        let path = Path::new("/sys/block").join(drive).join(file);
        fs::read_to_string(path).unwrap().trim().to_owned()
    };
    assert_eq!(fact(&wide.kernel_name, "queue/logical_block_size"), "4096");
    assert_eq!(fact(&fixed.kernel_name, "ro"), "1");
    assert_eq!(
        fact(&full.kernel_name, "size"),
        (64 * MIB / 512).to_string()
    );
    // Data without a signature: it must be refused although every probe finds nothing.
    let probe = Command::new(tools::find("blkid").unwrap())
        .args(["-p", "-o", "export"])
        .arg(&full.device)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(probe.status.code(), Some(2), "{probe:?}");
    assert_ne!(
        digest::of(&full.file).unwrap(),
        digest::of(&wide.file).unwrap()
    );
}

#[test]
fn a_byte_written_through_a_device_changes_the_shelfs_digests() {
    need!(root, loop);
    let mut shelf = Shelf::new().unwrap();
    let drive = shelf.add(DriveSpec::blank("a", 64 * MIB)).unwrap();
    let before = shelf.digests().unwrap();
    assert_eq!(shelf.digests().unwrap(), before);
    let node = fs::File::options().write(true).open(&drive.device).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&node, b"x", 20 * MIB).unwrap();
    drop(node);
    assert_ne!(shelf.digests().unwrap(), before);
}

#[test]
fn the_scripts_explain_how_to_get_rust_when_cargo_is_too_old_or_missing() {
    let dir = tempfile::tempdir().unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let need_cargo = |path: &str| {
        let script = ". hwtests/lib.sh; need_cargo";
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .env("PATH", path)
            .env("CARGO_HOME", dir.path().join("none"))
            .current_dir(&repository)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), stderr)
    };
    let system = "/usr/bin:/bin";
    let with = format!("{}:{system}", dir.path().display());
    for (version, fits) in [("1.63.0", false), ("1.9.0", false), ("99.0.1", true)] {
        stand_in(
            &dir.path().join("cargo"),
            &format!("echo 'cargo {version} (abc 2022-01-01)'"),
        );
        let (well, stderr) = need_cargo(&with);
        assert_eq!(well, fits, "{version}: {stderr}");
        assert!(
            fits || stderr.contains(version) && stderr.contains("rustup"),
            "{stderr}"
        );
    }
    if tools::find("cargo").is_none_or(|path| !path.starts_with("/usr")) {
        fs::remove_file(dir.path().join("cargo")).unwrap();
        let (well, stderr) = need_cargo(&with);
        assert!(!well && stderr.contains("rustup"), "{stderr}");
    }
}

/// Writes a script in place of a program.
fn stand_in(path: &Path, line: &str) {
    use std::os::unix::fs::PermissionsExt;

    fs::write(path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Writes a script in place of a tool of Debian that the build of the lab's guest calls.
fn instead(bin: &Path, name: &str, script: &str) {
    let path = bin.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn mounts_below(dir: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let below = format!("{}/", dir.display());
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.filter(|point| point.starts_with(&below));
    points.map(str::to_owned).collect()
}

#[test]
fn a_guest_build_that_fails_leaves_no_mount_and_the_next_one_reports_the_same() {
    need!(root, tool "unshare");
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().canonicalize().unwrap();
    let (bin, target) = (dir.join("bin"), dir.join("target"));
    fs::create_dir(&bin).unwrap();
    instead(&bin, "dpkg-query", "echo all installed");
    instead(&bin, "df", "echo Avail; echo 99999");
    // Interrupted by a full disk: /proc is mounted, and the root has files.
    instead(
        &bin,
        "mmdebstrap",
        "for arg; do case $arg in */root) root=$arg ;; esac; done\n\
         mkdir -p \"$root/proc\" \"$root/etc\"; echo x >\"$root/etc/passwd\"\n\
         mount -t proc proc \"$root/proc\" || exit 9\n\
         echo 'dpkg: error: No space left on device'; exit 1",
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let build = || {
        let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/guest/build"))
            .env("PATH", &path)
            .env("CARGO_TARGET_DIR", &target)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("No space left on device"), "{stderr}");
        assert_eq!(mounts_below(&dir), [""; 0], "{stderr}");
        assert!(!target.join("lab/.building").exists(), "{stderr}");
    };
    build();
    build();
    // An earlier one that left its mounts on the host.
    let left = target.join("lab/.building/root/proc");
    fs::create_dir_all(&left).unwrap();
    tools::must("mount", &["-t", "proc", "proc", left.to_str().unwrap()]);
    build();
}
