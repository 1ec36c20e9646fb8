#![allow(clippy::unwrap_used)]

use super::*;
use drivebay_model::{
    DriveState, RecordState, Volume,
    samples::{drive, placed, volume},
};

const STAGING: &str = "/k/plugins/kubernetes.io/csi/d/h/globalmount";
const TARGET: &str = "/k/pods/u/volumes/kubernetes.io~csi/pv/mount";

fn snapshot(dev: Option<(u32, u32)>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut placed = placed(7, RecordState::New);
    placed.dev = dev;
    let volume = Volume {
        in_use: true,
        ..volume(&drive("sda", DriveState::Claimed, None), placed)
    };
    snapshot.volumes.insert(volume.uuid, volume);
    snapshot
}

fn expected(read_only: bool) -> Expected {
    let expected = Expected::default();
    let volume = Uuid::from_u128(7);
    expected.expect(
        STAGING.into(),
        volume,
        Role::Staging,
        read_only,
        RequestedMount::default(),
    );
    expected.expect(
        TARGET.into(),
        volume,
        Role::Target,
        read_only,
        RequestedMount::default(),
    );
    expected
}

#[test]
fn pods_are_known_until_their_mount_is_taken_back() {
    let expected = Expected::default();
    let volume = Uuid::from_u128(7);
    let pod = |name: &str| RequestedMount {
        pod: Some(format!("shop/{name}")),
        ..RequestedMount::default()
    };
    expected.expect(
        STAGING.into(),
        volume,
        Role::Staging,
        false,
        RequestedMount::default(),
    );
    expected.expect("/a".into(), volume, Role::Target, false, pod("db-0"));
    expected.expect("/b".into(), volume, Role::Target, false, pod("copy"));
    assert_eq!(expected.pods()[&volume], ["shop/db-0", "shop/copy"]);
    expected.forget("/a".as_ref());
    assert_eq!(expected.pods()[&volume], ["shop/copy"]);
    expected.forget("/b".as_ref());
    assert!(expected.pods().is_empty());
}

fn is_of(mount: &MountEntry, placed: &Placed) -> bool {
    Some(mount.dev) == placed.dev
}

fn reasons(places: &Places, rows: &str, dev: Option<(u32, u32)>) -> Vec<String> {
    let mounts = mountinfo::parse(rows.as_bytes()).unwrap();
    let conditions = judge(places, places, &mounts, &snapshot(dev), is_of);
    conditions
        .into_values()
        .flatten()
        .map(|condition| format!("{} {}", condition.status, condition.reason))
        .collect()
}

fn row(id: u32, parent: u32, dev: &str, at: &str, own: &str, of_all: &str) -> String {
    format!("{id} {parent} {dev} / {at} {own} - ext4 /dev/sda2 {of_all}\n")
}

#[test]
fn each_fault_of_a_mount_raises_its_own_condition() {
    let dev = Some((8, 2));
    let staged = row(5, 1, "8:2", STAGING, "rw", "rw");
    let published = row(6, 1, "8:2", TARGET, "rw", "rw");
    let at_target = |own: &str, of_all: &str| row(6, 1, "8:2", TARGET, own, of_all);
    let over = row(9, 6, "8:9", TARGET, "rw", "rw");
    for (rows, reported) in [
        (staged.clone() + &published, &[][..]),
        (published.clone(), &["INACCESSIBLE StagingMountMissing"]),
        (staged.clone(), &["INACCESSIBLE TargetMountMissing"]),
        (
            String::new(),
            &[
                "INACCESSIBLE StagingMountMissing",
                "INACCESSIBLE TargetMountMissing",
            ],
        ),
        // Another device is mounted over it, or in its place.
        (
            staged.clone() + &published + &over,
            &["INACCESSIBLE WrongDevice"],
        ),
        (staged.clone() + &over, &["INACCESSIBLE WrongDevice"]),
        (
            staged.clone() + &at_target("ro", "rw"),
            &["DEGRADED ReadOnly"],
        ),
        (
            staged.clone() + &at_target("rw", "ro"),
            &["DEGRADED ReadOnly"],
        ),
        (
            staged.clone() + &at_target("rw", "rw,emergency_ro"),
            &["DEGRADED ReadOnly"],
        ),
        (
            staged.clone() + &published + &row(9, 1, "8:9", "/elsewhere", "ro", "ro"),
            &[],
        ),
    ] {
        assert_eq!(
            reasons(&expected(false).now(), &rows, dev),
            reported,
            "{rows}"
        );
    }
}

#[test]
fn a_mount_requested_read_only_may_be_so_and_a_missing_drive_is_not_compared() {
    let rows = row(5, 1, "8:2", STAGING, "ro", "ro") + &row(6, 1, "8:2", TARGET, "ro", "ro");
    assert_eq!(reasons(&expected(true).now(), &rows, Some((8, 2))), [""; 0]);
    assert_eq!(reasons(&expected(true).now(), &rows, None), [""; 0]);
    assert_eq!(reasons(&expected(true).now(), "", None).len(), 2);
    // Its drive came back as another device; these mounts are still of the old one.
    assert_eq!(
        reasons(&expected(true).now(), &rows, Some((8, 18))),
        ["INACCESSIBLE WrongDevice"]
    );
}

#[test]
fn a_bound_device_that_is_gone_is_reported_but_not_while_its_drive_is_missing() {
    let staged = row(5, 1, "8:2", STAGING, "rw", "rw");
    let node = format!("6 1 0:6 /sda2//deleted {TARGET} rw - devtmpfs udev rw\n");
    let rows = staged + &node;
    let gone = ["INACCESSIBLE DeviceGone"];
    assert_eq!(reasons(&expected(false).now(), &rows, Some((8, 2))), gone);
    assert_eq!(reasons(&expected(false).now(), &rows, None), [""; 0]);
}

#[test]
fn what_our_own_calls_change_while_the_table_is_read_is_no_trouble() {
    let count = |before: &Places, after: &Places| {
        judge(
            before,
            after,
            &[] as &[MountEntry],
            &snapshot(Some((8, 2))),
            is_of,
        )
        .len()
    };
    let expected = expected(false);
    let before = expected.now();
    assert_eq!(count(&before, &before), 1);
    // Published after the table was read.
    assert_eq!(count(&Places::new(), &before), 0);
    // Being unmounted, unmounted meanwhile, and unmounted and mounted again.
    for path in [STAGING, TARGET] {
        expected.begin_unmount(Path::new(path));
    }
    assert_eq!(count(&before, &expected.now()), 0);
    assert_eq!(count(&expected.now(), &expected.now()), 0);
    for path in [STAGING, TARGET] {
        expected.forget(Path::new(path));
    }
    assert_eq!(count(&before, &expected.now()), 0);
    for path in [STAGING, TARGET] {
        expected.expect(
            path.into(),
            Uuid::from_u128(7),
            Role::Target,
            false,
            RequestedMount::default(),
        );
    }
    assert_eq!(count(&before, &expected.now()), 0);
}

#[test]
fn mounts_of_an_earlier_agent_are_known_by_the_kubelets_layout_unless_they_are_unmounted() {
    let other = "/k/pods/u/volumes/kubernetes.io~csi/other/mount";
    let rows = row(5, 1, "8:2", STAGING, "rw", "rw")
        + &row(6, 1, "8:2", TARGET, "ro", "rw")
        + &row(7, 1, "8:3", other, "rw", "rw")
        + &row(8, 1, "8:2", "/mnt", "rw", "rw");
    let mounts = mountinfo::parse(rows.as_bytes()).unwrap();
    let snapshot = snapshot(Some((8, 2)));
    let expected = Expected::default();
    expected.begin(Places::new(), &mounts, Path::new("/k"));
    assert_eq!(expected.now(), Places::new());
    expected.settle(|| Arc::new(snapshot.clone()), is_of);
    let places = expected.now();
    let recorded: Vec<_> = places
        .iter()
        .map(|(path, place)| (path.to_str().unwrap(), place.role, place.read_only))
        .collect();
    assert_eq!(
        recorded,
        [
            (STAGING, Role::Staging, false),
            (TARGET, Role::Target, true)
        ]
    );
    let volume = Uuid::from_u128(7);
    assert_eq!(expected.path_of(volume), Some(STAGING.into()));
    assert_eq!(expected.role(volume, Path::new(TARGET)), Some(Role::Target));

    let expected = Expected::default();
    expected.begin(Places::new(), &mounts, Path::new("/k"));
    expected.forget(Path::new(TARGET));
    expected.settle(|| Arc::new(snapshot.clone()), is_of);
    assert_eq!(expected.now().len(), 1);

    // One whose unmount failed still keeps other targets out.
    let expected = Expected::default();
    expected.begin(Places::new(), &mounts, Path::new("/k"));
    expected.begin_unmount(Path::new(TARGET));
    expected.settle(|| Arc::new(snapshot.clone()), is_of);
    assert_eq!(expected.targets(volume, true), [PathBuf::from(TARGET)]);
    assert_eq!(expected.role(volume, Path::new(TARGET)), None);
}

#[test]
fn what_is_remembered_of_a_volume_that_is_gone_goes_with_it() {
    let expected = expected(false);
    expected.settle(Arc::default, is_of);
    assert_eq!(expected.now(), Places::new());
}

#[test]
fn many_paths_are_named_by_the_first_few() {
    let paths: Vec<PathBuf> = (0..5).map(|n| format!("/target/{n}").into()).collect();
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let message = condition(MountFault::TargetMissing, &paths).message;
    assert!(
        message.contains("/target/0, /target/1, /target/2, others"),
        "{message}"
    );
}
