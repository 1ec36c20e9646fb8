use std::{collections::BTreeSet, fs};

use super::*;

/// Red Hat's distributions have neither btrfs nor its tools.
const NOT_IN_RPM: &str = "btrfs-progs";

fn repository(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).expect(&path)
}

/// Returns the whole words of the lines with one of these beginnings.
fn words<'a>(text: &'a str, beginnings: &[&str]) -> BTreeSet<&'a str> {
    let lines = text.lines().filter(|line| {
        let begins = |beginning: &&str| line.trim_start().starts_with(*beginning);
        beginnings.iter().any(begins)
    });
    lines
        .flat_map(|line| line.split([' ', ',', '(', ')']))
        .collect()
}

#[test]
fn each_filesystem_is_in_its_own_row() {
    for fs_type in FsType::ALL {
        assert_eq!(of(fs_type).facts().mkfs.name, format!("mkfs.{fs_type}"));
    }
}

#[test]
fn packages_of_all_filesystems_are_installed_with_the_agent() {
    let lists = [
        ("deploy/image-packages", &[""][..]),
        (
            "deploy/packages/debian/control",
            &["Depends:", "Recommends:"],
        ),
        (
            "deploy/packages/drivebay.spec",
            &["Requires:", "Recommends:"],
        ),
        ("deploy/docs/install-host.md", &["apt-get install"]),
        ("hwtests/lib.sh", &["RUN_PACKAGES="]),
        ("CONTRIBUTING.md", &["No `protoc` is needed. To run:"]),
    ];
    for (file, beginnings) in lists {
        let text = repository(file);
        let listed = words(&text, beginnings);
        for package in super::all().map(|fs| fs.facts().mkfs.package) {
            let exempt = file.ends_with(".spec") && package == NOT_IN_RPM;
            assert!(listed.contains(package) || exempt, "{file}: {package}");
        }
    }
}

#[test]
fn a_check_sees_a_mount_meanwhile() {
    for fs in super::all() {
        let facts = fs.facts();
        assert!(!facts.changed_by_mount.is_empty(), "{}", facts.mkfs.name);
        let is_aligned = |offset: &u64| offset.is_multiple_of(4096);
        assert!(facts.changed_by_mount.iter().all(is_aligned));
    }
}

#[test]
fn only_mounts_of_btrfs_are_identified_by_their_source() {
    assert!(has_anonymous_device("btrfs"));
    for fs_type in ["ext4", "xfs", "nfs", "overlay", ""] {
        assert!(!has_anonymous_device(fs_type), "{fs_type}");
    }
}
