//! Tests on real mounts, in a namespace of the test's thread, with mountinfo as the reference. Skipped without root.

use std::{
    ffi::OsStr,
    fs,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::*;

/// Enters a namespace of this thread, with an empty tmpfs to mount in; None without permission.
fn namespace() -> Option<PathBuf> {
    if !nix::unistd::geteuid().is_root() || !statmount::is_supported() {
        return None;
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    let dir = PathBuf::from("/mnt");
    tmpfs(&dir, MsFlags::empty());
    Some(dir)
}

fn tmpfs(at: &Path, flags: MsFlags) {
    mount(Some("some where"), at, Some("tmpfs"), flags, None::<&str>).unwrap();
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

fn change(at: &Path, flags: MsFlags) {
    mount(None::<&str>, at, None::<&str>, flags, None::<&str>).unwrap();
}

fn made(path: PathBuf) -> PathBuf {
    fs::create_dir_all(&path).unwrap();
    path
}

fn entries(table: &Table) -> Vec<MountEntry> {
    let all = table.entries().into_iter();
    all.map(|entry| (*entry).clone()).collect()
}

/// Numbers of mounts that were read, that are new or changed, and that are gone or changed.
fn counts(change: &Change) -> [usize; 3] {
    [change.read, change.new.len(), change.gone.len()]
}

/// Mounts as a host may have them: nested, stacked, bound, read-only in both ways, propagated, of deleted directories, with unusual names.
fn mounts_of_every_kind(dir: &Path) -> Vec<PathBuf> {
    let odd = made(dir.join(OsStr::from_bytes(b"a b\tc\nd\\040e#f\xff\xc3")));
    tmpfs(
        &odd,
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
    );
    let nested = made(odd.join("nested"));
    tmpfs(&nested, MsFlags::MS_NOATIME | MsFlags::MS_NODIRATIME);
    let stacked = made(dir.join("stacked"));
    for flags in [
        MsFlags::empty(),
        MsFlags::MS_RDONLY,
        MsFlags::MS_SYNCHRONOUS,
    ] {
        tmpfs(&stacked, flags);
    }
    let bound = made(dir.join("bound"));
    bind(&made(odd.join("of this")), &bound);
    change(
        &bound,
        MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY,
    );
    let whole = made(dir.join("whole"));
    tmpfs(&whole, MsFlags::MS_STRICTATIME);
    change(&whole, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY);
    let deleted = made(dir.join("deleted"));
    let source = made(dir.join("source"));
    bind(&source, &deleted);
    fs::remove_dir(&source).unwrap();
    let file = dir.join("file");
    fs::write(&file, "").unwrap();
    bind(Path::new("/dev/null"), &file);
    let shared = made(dir.join("shared"));
    tmpfs(&shared, MsFlags::empty());
    change(&shared, MsFlags::MS_SHARED);
    let slave = made(dir.join("slave"));
    bind(&shared, &slave);
    change(&slave, MsFlags::MS_SLAVE);
    let both = made(dir.join("both"));
    bind(&slave, &both);
    change(&both, MsFlags::MS_SHARED);
    let lonely = made(dir.join("lonely"));
    tmpfs(&lonely, MsFlags::empty());
    change(&lonely, MsFlags::MS_UNBINDABLE);
    vec![
        odd, nested, stacked, bound, whole, deleted, file, shared, slave, both, lonely,
    ]
}

#[test]
fn single_mounts_are_read_as_mountinfo_lists_them() {
    let Some(dir) = namespace() else { return };
    let paths = mounts_of_every_kind(&dir);
    let reference = read().unwrap();
    let mut table = Table::default();
    table.read_all().unwrap();
    assert_eq!(entries(&table), reference);
    let not_mounted = [made(dir.join("plain")), dir.join("no/such")];
    for path in paths.iter().chain(&not_mounted).chain([&dir, &"/".into()]) {
        let expected: Vec<_> = mounts_at(&reference, path).into_iter().cloned().collect();
        assert_eq!(at(path).unwrap(), expected, "{}", path.display());
    }
    assert_eq!(at(&paths[2]).unwrap().len(), 3);
}

#[test]
fn a_mount_that_another_one_hides_is_not_at_its_path() {
    let Some(dir) = namespace() else { return };
    let hidden = made(dir.join("above/hidden"));
    tmpfs(&hidden, MsFlags::empty());
    tmpfs(&dir.join("above"), MsFlags::empty());
    assert_eq!(at(&hidden).unwrap(), []);
    made(hidden.clone());
    assert_eq!(at(&hidden).unwrap(), []);
    assert_eq!(mounts_at(&read().unwrap(), &hidden).len(), 1);
}

#[test]
fn a_refresh_reads_what_is_new_alone() {
    let Some(dir) = namespace() else { return };
    for number in 0..300 {
        tmpfs(&made(dir.join(number.to_string())), MsFlags::empty());
    }
    let mut table = Table::default();
    assert!(table.refresh().unwrap().read > 300);
    let refreshed = |table: &mut Table, new, gone| {
        assert_eq!(counts(&table.refresh().unwrap()), [new, new, gone]);
        assert_eq!(entries(table), super::read().unwrap());
    };
    refreshed(&mut table, 0, 0);
    tmpfs(&made(dir.join("new")), MsFlags::empty());
    refreshed(&mut table, 1, 0);
    tmpfs(&dir.join("new"), MsFlags::empty());
    umount2(&dir.join("7"), MntFlags::empty()).unwrap();
    umount2(&dir.join("299"), MntFlags::empty()).unwrap();
    refreshed(&mut table, 1, 2);
    // Another mount at the same path.
    umount2(&dir.join("new"), MntFlags::empty()).unwrap();
    tmpfs(&dir.join("new"), MsFlags::MS_RDONLY);
    refreshed(&mut table, 1, 1);

    for name in ["8", "9"] {
        change(&dir.join(name), MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY);
    }
    assert!(table.refresh().unwrap().is_empty());
    let wanted = |entry: &MountEntry| entry.mount_point == dir.join("8");
    assert_eq!(counts(&table.reread(wanted).unwrap()), [1, 1, 1]);
    assert_eq!(counts(&table.reread(wanted).unwrap()), [1, 0, 0]);
    let is_read_only = |table: &Table, name: &str| {
        let entries = table.entries();
        mounts_at(&entries, &dir.join(name))[0].super_read_only()
    };
    assert!(is_read_only(&table, "8") && !is_read_only(&table, "9"));
    let all = entries(&table).len();
    assert_eq!(counts(&table.read_all().unwrap()), [all, 1, 1]);
    assert_eq!(entries(&table), super::read().unwrap());
}

#[test]
fn one_mount_is_taken_in_and_let_go_without_reading_the_others() {
    let Some(dir) = namespace() else { return };
    let mut table = Table::default();
    table.refresh().unwrap();
    let (one, other) = (made(dir.join("one")), made(dir.join("other")));
    tmpfs(&other, MsFlags::empty());
    tmpfs(&one, MsFlags::empty());
    let id = unique_id(fs::File::open(&one).unwrap().as_fd()).unwrap();
    let change = table.take_in_one(id).unwrap();
    assert_eq!(counts(&change), [0, 1, 0]);
    assert_eq!(*change.new[0], *at(&one).unwrap().last().unwrap());
    assert_eq!(counts(&table.take_in_one(id).unwrap()), [0, 0, 0]);
    assert_eq!((table.count_at(&one), table.count_at(&other)), (1, 0));

    // Still mounted.
    assert!(table.drop_gone_at(&one).unwrap().is_empty());
    // Another mount in its place, without a notification.
    umount2(&one, MntFlags::empty()).unwrap();
    tmpfs(&one, MsFlags::empty());
    let change = table.drop_gone_at(&one).unwrap();
    assert_eq!(counts(&change), [0, 0, 1]);
    assert_eq!(table.count_at(&one), 0);
    assert!(table.take_in_one(id).unwrap().is_empty());
    // `refresh` finds mounts that were not taken in singly.
    assert_eq!(counts(&table.refresh().unwrap()), [2, 2, 0]);
    assert_eq!(entries(&table), super::read().unwrap());
}

#[test]
fn thousands_of_mounts_are_all_in_the_table() {
    let Some(dir) = namespace() else { return };
    let one = made(dir.join("one"));
    for _ in 0..IDS_AND_MORE {
        bind(&one, &one);
    }
    let mut table = Table::default();
    table.refresh().unwrap();
    let stacked = mounts_at(&table.entries(), &one).len();
    assert_eq!(stacked, IDS_AND_MORE);
    umount2(&dir, MntFlags::MNT_DETACH).unwrap();
}

/// More ids than one listmount(2) returns.
const IDS_AND_MORE: usize = 4200;
