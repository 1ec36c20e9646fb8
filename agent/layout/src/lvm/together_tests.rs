use super::*;
use drivebay_model::{RecordState, samples, volume_snapshot::SnapshotGroup};

fn member(n: u128, origin: &str) -> Member {
    Member {
        uuid: Uuid::from_u128(n),
        origin: origin.to_owned(),
        snapshot: format!("LVM-snapshot{n}"),
        mapping: None,
    }
}

fn device(name: &str, minor: u32) -> DmStatus {
    DmStatus {
        kernel_name: format!("dm-{minor}"),
        dev: (254, minor),
        name: name.to_owned(),
        uuid: format!("LVM-{name}"),
        suspended: false,
    }
}

fn table(kind: &str, params: &str) -> Target {
    Target {
        sectors: 2048,
        kind: kind.to_owned(),
        params: params.to_owned(),
    }
}

fn devices() -> Devices {
    Devices {
        origin: device("pvc", 3),
        origin_table: table("snapshot-origin", "254:4"),
        mapping: Some(device("crypt", 7)),
        real: device("pvc-real", 4),
        snapshot: device("snap", 5),
        snapshot_table: table("snapshot", "254:4 254:6 P 128"),
        store: device("snap-cow", 6),
    }
}

#[test]
fn a_group_has_members_and_each_volume_once() {
    let why = |members: &[Member]| each_once(members).err().map(|error| error.to_string());
    assert_eq!(why(&[member(1, "LVM-a"), member(2, "LVM-b")]), None);
    assert!(why(&[]).is_some_and(|why| why.contains("no members")));
    let twice = why(&[member(1, "LVM-a"), member(2, "LVM-a")]);
    assert!(twice.is_some_and(|why| why.contains("more than once")));
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the sleep is the drive that is slow"
)]
fn all_drives_are_locked_within_one_limit() {
    let drives: Vec<DriveRef> = (0..3)
        .map(|n| DriveRef {
            id: DriveId(format!("wwn-{n}")),
            kernel_name: format!("sd{n}"),
            major: 8,
            minor: n,
            diskseq: 1,
            size_bytes: 0,
        })
        .collect();
    const EACH: Duration = Duration::from_millis(200);
    let slow = |_: &DriveRef, left: Duration| {
        std::thread::sleep(EACH);
        Ok(left)
    };
    let left = lock_all(&drives, 2 * EACH, slow).unwrap();
    assert!(*left[0] <= 2 * EACH && *left[0] > EACH);
    assert!(*left[1] <= EACH);
    assert_eq!(*left[2], Duration::ZERO);
}

#[test]
fn a_snapshot_that_is_complete_or_taken_alone_or_on_another_drive_never_begins_anew() {
    let group = SnapshotGroup {
        uuid: Uuid::from_u128(90),
        name: "group".into(),
        members: 2,
    };
    let mut placed = samples::placed(2, RecordState::Block);
    placed.dm_uuid = Some("LVM-a".into());
    for (n, is_complete, group) in [
        (1, false, Some(group.clone())),
        (2, true, Some(group)),
        (3, false, None),
    ] {
        let mut one = samples::snapshot(n, 2);
        one.dm_uuid = format!("LVM-snapshot{n}");
        one.record.is_complete = is_complete;
        one.record.group = group;
        placed.snapshots.push(one);
    }
    let incomplete_members = incomplete(&samples::contents(1, 1, vec![placed], 0));
    assert_eq!(
        incomplete_members,
        [(Uuid::from_u128(2), member(1, "LVM-a"))]
    );
    let begun = [member(1, "LVM-a")];
    assert!(all_begun(&[member(1, "LVM-a")], &begun).is_ok());
    for other in [
        member(2, "LVM-a"),
        member(3, "LVM-a"),
        member(4, "LVM-b"),
        // It is of another volume than the caller expects.
        member(1, "LVM-b"),
    ] {
        let why = all_begun(&[member(1, "LVM-a"), other], &begun).unwrap_err();
        assert!(why.to_string().contains("no incomplete snapshot"), "{why}");
    }
}

#[test]
fn a_snapshot_begins_anew_only_if_it_is_one_of_its_volume() {
    assert_eq!(devices().chunk_bytes(), Ok(64 << 10));
    let mut overflowing = devices();
    overflowing.snapshot_table.params = "254:4 254:6 PO 8 2 discard_zeroes_cow x".into();
    assert_eq!(overflowing.chunk_bytes(), Ok(4096));
    for change in [
        (|all: &mut Devices| all.origin_table.kind = "linear".into()) as fn(&mut Devices),
        |all| all.origin_table.params = "254:44".into(),
        |all| all.snapshot_table.kind = "error".into(),
        |all| all.snapshot_table.params = "254:9 254:6 P 128".into(),
        |all| all.snapshot_table.params = "254:4 254:9 P 128".into(),
        |all| all.snapshot_table.params = "254:4 254:6 N 128".into(),
        |all| all.snapshot_table.params = "254:4 254:6 P 0".into(),
        |all| all.snapshot_table.params = "254:4 254:6 P 2048".into(),
        |all| all.snapshot_table.params = "254:4 254:6 P".into(),
    ] {
        let mut other = devices();
        change(&mut other);
        let why = other.chunk_bytes().unwrap_err();
        assert!(why.contains("table"), "{why}");
    }
}

#[test]
fn what_another_program_has_suspended_is_left_to_it() {
    for change in [
        (|all: &mut Devices| all.origin.suspended = true) as fn(&mut Devices),
        |all| all.real.suspended = true,
        |all| all.snapshot.suspended = true,
        |all| all.store.suspended = true,
        |all| all.mapping.as_mut().unwrap().suspended = true,
    ] {
        let mut other = devices();
        change(&mut other);
        let why = other.chunk_bytes().unwrap_err();
        assert!(why.contains("is suspended by another program"), "{why}");
    }
}
