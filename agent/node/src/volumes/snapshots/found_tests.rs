//! Tests of `found`: which group is the answer to a request, and what is left of a failed one.

use super::*;
use drivebay_model::{DriveState, Encryption, Mapping, RecordState, samples};

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn ids(numbers: &[u128]) -> BTreeSet<Uuid> {
    numbers.iter().copied().map(id).collect()
}

/// Adds a member of the group of this number, named "g", of two: the snapshot has ten times the number of its volume.
fn put(node: &mut Snapshot, group: u128, volume: u128, is_complete: bool) {
    let drive = samples::drive("sda", DriveState::Claimed, None);
    let mut one = samples::snapshot(10 * volume, volume);
    one.record.is_complete = is_complete;
    one.record.group = Some(SnapshotGroup {
        uuid: id(group),
        name: "g".into(),
        members: 2,
    });
    let of = node.volumes.entry(id(volume));
    let of =
        of.or_insert_with(|| samples::volume(&drive, samples::placed(volume, RecordState::Block)));
    of.placed.snapshots.push(one);
}

fn node(members: &[(u128, u128, bool)]) -> Snapshot {
    let mut node = Snapshot::default();
    for (group, volume, is_complete) in members {
        put(&mut node, *group, *volume, *is_complete);
    }
    node
}

fn compared(node: &Snapshot, wanted: &[u128]) -> Result<Existing, BTreeSet<Uuid>> {
    compare(groups(node, |group| group.name == "g"), &ids(wanted))
}

#[test]
fn a_group_is_whole_while_all_its_complete_members_are_there() {
    let whole = |members: &[(u128, u128, bool)]| {
        let matching = groups(&node(members), |group| group.uuid == id(77));
        matching.first().map(FoundGroup::is_whole)
    };
    assert_eq!(whole(&[(77, 1, true), (77, 2, true)]), Some(true));
    assert_eq!(whole(&[(77, 1, true), (77, 2, false)]), Some(false));
    assert_eq!(whole(&[(77, 1, true), (78, 2, true)]), Some(false));
    assert_eq!(whole(&[(78, 1, true)]), None);
}

#[test]
fn a_repeated_request_finds_its_group_also_beside_what_an_earlier_attempt_left() {
    let node = node(&[(76, 1, false), (77, 1, true), (77, 2, true)]);
    let group = match compared(&node, &[2, 1]) {
        Ok(Existing::Whole(group)) => group,
        other => panic!("{other:?}"),
    };
    assert_eq!(group.group.uuid, id(77));
    let volumes: BTreeSet<Uuid> = group.members.keys().copied().collect();
    assert_eq!(volumes, ids(&[1, 2]));
}

#[test]
fn a_group_of_other_volumes_that_may_have_been_answered_is_never_touched() {
    let whole = node(&[(77, 1, true), (77, 2, true)]);
    for wanted in [&[1, 3][..], &[1], &[1, 2, 3], &[3, 4]] {
        assert_eq!(compared(&whole, wanted), Err(ids(&[1, 2])), "{wanted:?}");
    }
    // The drive of the other member may be missing.
    let half = node(&[(77, 1, true)]);
    assert_eq!(compared(&half, &[2, 3]), Err(ids(&[1])));
}

#[test]
fn what_a_failed_attempt_left_is_deleted_before_the_next_one() {
    let left = |node: &Snapshot, wanted: &[u128]| match compared(node, wanted) {
        Ok(Existing::Leftovers(left)) => left,
        other => panic!("{other:?}"),
    };
    assert!(left(&Snapshot::default(), &[1, 2]).is_empty());
    let half = node(&[(77, 1, true), (77, 2, false)]);
    assert_eq!(
        left(&half, &[1, 2]),
        [(id(1), id(10)), (id(2), id(20))],
        "also what is complete: it was not answered, or its group is not whole"
    );
    // Nothing is deleted here of a volume that is not guarded.
    let incomplete = node(&[(77, 1, false), (77, 2, false)]);
    assert_eq!(left(&incomplete, &[1, 3]), [(id(1), id(10))]);
    let mut ambiguous = node(&[(77, 1, false)]);
    for volume in ambiguous.volumes.values_mut() {
        volume.placed.snapshots[0].ambiguous = Some("two of its uuid".into());
    }
    assert!(left(&ambiguous, &[1, 2]).is_empty());
}

#[test]
fn a_member_names_the_devices_of_its_volume_and_snapshot() {
    let drive = samples::drive("sda", DriveState::Claimed, None);
    let mut volume = samples::volume(&drive, samples::placed(1, RecordState::Block));
    let snapshot = samples::snapshot(10, 1);
    assert!(devices(&volume, &snapshot).is_err());
    volume.placed.dm_uuid = Some("LVM-origin".into());
    let member = devices(&volume, &snapshot).unwrap();
    let expected = Member {
        uuid: id(10),
        origin: "LVM-origin".into(),
        snapshot: "LVM-10".into(),
        mapping: None,
    };
    assert_eq!(member, expected);
    // The filesystem of an encrypted volume is on its mapped device, which is suspended, too.
    let encryption = Encryption { header: id(5) };
    encryption.keep(&mut volume.placed.record.parameters);
    volume.placed.mapping = Some(Mapping {
        device: "dm-9".into(),
        dev: (254, 9),
    });
    let member = devices(&volume, &snapshot).unwrap();
    assert_eq!(member.mapping, Some(encryption.dm_uuid()));
}
