//! Events that follow from two successive inventories of a node.

use drivebay_proto::agent::SnapshotGroup;

use super::*;

const WEEK: u64 = 7 * 86_400;

/// A snapshot created at 1000, seconds since 1970.
fn snapshot(n: u8, state: &str, expires_at: u64) -> VolumeSnapshot {
    VolumeSnapshot {
        id: format!("00000000-0000-4000-8000-0000000000a{n}@n1"),
        name: format!("snapshot-{n}"),
        created_at: 1000,
        state: state.into(),
        reserve_bytes: 20 << 30,
        expires_at,
        ..VolumeSnapshot::default()
    }
}

fn of_group(mut one: VolumeSnapshot) -> VolumeSnapshot {
    one.group = Some(SnapshotGroup {
        name: "groupsnapshot-7".into(),
        members: 2,
        ..SnapshotGroup::default()
    });
    one
}

fn volume(n: u8, state: &str, snapshots: Vec<VolumeSnapshot>) -> Claimed {
    Claimed {
        volume: Volume {
            id: format!("00000000-0000-4000-8000-00000000000{n}@n1"),
            state: state.into(),
            snapshots,
            ..Volume::default()
        },
        claim: Some(ClaimedBy {
            name: format!("shop/data-{n}").into(),
            uid: format!("u{n}").into(),
        }),
    }
}

/// Returns of each event: true for a warning, its reason, and the UID of the claim (or the name of the Node) that it is about.
fn summaries(notices: &[Notice]) -> Vec<(bool, &'static str, String)> {
    let of = |notice: &Notice| {
        let about = match &notice.object {
            Object::Claim(claim) => claim.uid.to_string(),
            Object::Node(name) => name.clone(),
        };
        (notice.is_warning, notice.reason, about)
    };
    notices.iter().map(of).collect()
}

/// Returns the events that are due after the inventory `before` at time 2000, followed by `now` at time `at`.
fn between(before: &[Claimed], now: &[Claimed], at: u64) -> Vec<Notice> {
    let mut limits = AgeLimits::default();
    limits.follow("n1", before, 2000);
    assert_eq!(limits.due(), []);
    limits.follow("n1", now, at);
    limits.due().to_vec()
}

#[test]
fn a_lost_snapshot_is_a_warning_that_names_it_its_reserve_and_what_to_do() {
    let lost = snapshot(1, "overflowed", 0);
    let volumes = [
        volume(1, "ready", vec![lost.clone(), snapshot(2, "ready", 0)]),
        volume(2, "ready", vec![of_group(snapshot(3, "overflowed", 0))]),
        volume(3, "erasing", vec![snapshot(4, "overflowed", 0)]),
    ];
    let notices = due("n1", &volumes);
    let lost_of = |uid: &str| (true, "SnapshotLost", uid.to_owned());
    assert_eq!(summaries(&notices), [lost_of("u1"), lost_of("u2")]);
    assert_eq!(
        notices[0].note,
        "snapshot snapshot-1 on node n1 is lost: more was written to the volume than the reserve of 20 GiB had room for, or the reserve could not be written. The volume is not affected. Delete the snapshot, and take another one with a larger reserve"
    );
    let member = &notices[1].note;
    assert!(
        member.starts_with("snapshot snapshot-3 of group groupsnapshot-7 on node n1 is lost")
            && member.contains("Delete the group, and take"),
        "{member}"
    );
    // The events are the same in the next pass; a volume without a claim has none.
    assert_eq!(due("n1", &volumes), notices);
    let mut unclaimed = volume(1, "ready", vec![lost]);
    unclaimed.claim = None;
    assert_eq!(due("n1", &[unclaimed]), []);
}

#[test]
fn a_snapshot_that_went_after_its_age_limit_has_expired_and_each_member_of_a_group_has() {
    let end = 1000 + WEEK;
    let before = [
        volume(1, "ready", vec![of_group(snapshot(1, "ready", end))]),
        volume(2, "new", vec![of_group(snapshot(2, "overflowed", end))]),
    ];
    let now = [volume(1, "ready", vec![]), volume(2, "new", vec![])];
    let notices = between(&before, &now, end);
    let expired_of = |uid: &str| (false, "SnapshotExpired", uid.to_owned());
    assert_eq!(summaries(&notices), [expired_of("u1"), expired_of("u2")]);
    assert_eq!(
        notices[0].note,
        "snapshot snapshot-1 of group groupsnapshot-7 on node n1 was deleted because it was older than 7d, its age limit. To keep others longer, set maxAge in the parameters of their class"
    );
}

#[test]
fn a_snapshot_that_was_deleted_before_its_age_limit_or_had_none_has_not_expired() {
    let before = [volume(
        1,
        "ready",
        vec![snapshot(1, "ready", 1000 + WEEK), snapshot(2, "ready", 0)],
    )];
    let now = [volume(1, "ready", vec![])];
    assert_eq!(between(&before, &now, 1000 + WEEK - 1), []);
    // Deleted early: no event follows when its age limit passes.
    let mut limits = AgeLimits::default();
    limits.follow("n1", &before, 2000);
    limits.follow("n1", &now, 3000);
    limits.follow("n1", &now, 1000 + 2 * WEEK);
    assert_eq!(limits.due(), []);
    assert_eq!(limits.volumes().count(), 0);
}

#[test]
fn nothing_follows_from_a_volume_that_is_not_there_until_it_is_back_without_its_snapshot() {
    let (end, later) = (1000 + WEEK, 1000 + 2 * WEEK);
    let before = [volume(1, "ready", vec![snapshot(1, "ready", end)])];
    for state in ["missing", "not-scanned", "ambiguous"] {
        let unknown = [volume(1, state, vec![])];
        let mut limits = AgeLimits::default();
        limits.follow("n1", &before, 2000);
        limits.follow("n1", &unknown, later);
        assert_eq!(limits.due(), [], "{state}");
        assert_eq!(limits.volumes().count(), 1, "{state}");
        // The snapshot returns with its drive, and expires afterwards.
        limits.follow("n1", &before, later);
        assert_eq!(limits.due(), [], "{state}");
        limits.follow("n1", &[volume(1, "ready", vec![])], later);
        assert_eq!(limits.due().len(), 1, "{state}");
    }
    // Deleted with its volume, or moved to another node with its drive.
    for now in [vec![volume(1, "erasing", vec![])], vec![]] {
        assert_eq!(between(&before, &now, later), []);
    }
}

#[test]
fn what_was_never_seen_is_not_missed() {
    let now = [volume(1, "ready", vec![])];
    assert_eq!(between(&[], &now, 1000 + 2 * WEEK), []);
    let missing = [volume(1, "missing", vec![snapshot(1, "ready", 1000)])];
    assert_eq!(between(&missing, &now, 1000 + 2 * WEEK), []);
}

#[test]
fn an_expired_snapshot_is_due_until_it_was_reported_and_a_flood_is_cut() {
    let end = 1000 + WEEK;
    let many: Vec<VolumeSnapshot> = (0..MAX_WAITING + 50)
        .map(|n| VolumeSnapshot {
            id: format!("00000000-0000-4000-8000-{n:012}@n1"),
            ..snapshot(1, "ready", end)
        })
        .collect();
    let mut limits = AgeLimits::default();
    limits.follow("n1", &[volume(1, "ready", many)], 2000);
    for _ in 0..2 {
        limits.follow("n1", &[volume(1, "ready", vec![])], end);
        assert_eq!(limits.due().len(), MAX_WAITING);
    }
    let digests: BTreeSet<String> = limits.due().iter().map(|one| one.digest.clone()).collect();
    assert_eq!(digests.len(), MAX_WAITING);
    limits.forget(&digests);
    assert_eq!(limits.due(), []);
}
