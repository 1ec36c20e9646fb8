//! Lists of snapshots: pages, filters, and what is listed of nodes that are disconnected.

#![allow(clippy::unwrap_used)]

use drivebay_proto::agent::VolumeSnapshot;

use super::*;
use crate::{
    csi::test_nodes::{GIB, agents, disconnected, followed, id, key, member, snapshot, volume},
    page::parse_token,
};

/// Snapshots 1, 3 and 5 on n1, which is followed, and 2 and 4 on n3, which is disconnected. 6 is still being created: no CreateSnapshot
/// has returned its id.
fn nodes() -> Agents {
    let agents = agents();
    let of = |node: &str, all: &[(u128, &str)]| -> Vec<VolumeSnapshot> {
        let all = all.iter().map(|(n, state)| snapshot(*n, node, state));
        all.collect()
    };
    let one = of("n1", &[(5, "ready"), (1, "overflowed"), (6, "creating")]);
    let two = of("n1", &[(3, "ready")]);
    let volumes = vec![volume(11, "n1", one), volume(12, "n1", two)];
    followed(&agents, "n1", volumes);
    let away = of("n3", &[(2, "ready"), (4, "ready")]);
    disconnected(&agents, "n3", vec![volume(13, "n3", away)]);
    agents
}

fn list(
    agents: &Agents,
    request: &csi::ListSnapshotsRequest,
    max_entries: Option<usize>,
) -> Result<(Vec<csi::Snapshot>, String), Code> {
    let from = parse_token(&request.starting_token).unwrap();
    let listed = list_snapshots(agents, &key(), request, from.as_ref(), max_entries);
    let listed = listed.map_err(|error| error.code())?;
    let all = listed.entries.into_iter();
    let all = all.map(|entry| entry.snapshot.unwrap());
    Ok((all.collect(), listed.next_token))
}

fn ids(of: &[csi::Snapshot]) -> Vec<&str> {
    of.iter().map(|one| one.snapshot_id.as_str()).collect()
}

fn filtered(snapshot_id: String, source_volume_id: String) -> csi::ListSnapshotsRequest {
    csi::ListSnapshotsRequest {
        snapshot_id,
        source_volume_id,
        ..csi::ListSnapshotsRequest::default()
    }
}

#[test]
fn all_snapshots_are_listed_in_the_order_of_ids_those_of_a_disconnected_node_too() {
    let (all, token) = list(&nodes(), &Default::default(), None).unwrap();
    let expected = [
        id(1, "n1"),
        id(2, "n3"),
        id(3, "n1"),
        id(4, "n3"),
        id(5, "n1"),
    ];
    assert_eq!(ids(&all), expected);
    assert_eq!(token, "");
    let lost = &all[0];
    assert!(!lost.ready_to_use, "it overflowed");
    let away = &all[1];
    assert!(away.ready_to_use);
    assert_eq!(away.source_volume_id, id(13, "n3"));
    assert_eq!(away.size_bytes.unsigned_abs(), GIB);
    assert_eq!(away.creation_time.as_ref().unwrap().seconds, 1_800_000_000);
    assert_eq!(away.accessible_topology, [key().of("n3")]);
}

#[test]
fn snapshots_of_a_group_are_listed_with_its_id_once_it_was_answered() {
    let agents = agents();
    let of = |n, snapshot| volume(n, "n1", vec![snapshot]);
    let taken = of(11, member(1, "n1", "ready", 20, 1));
    let being_taken = of(12, member(2, "n1", "creating", 21, 1));
    let alone = of(13, snapshot(3, "n1", "ready"));
    followed(&agents, "n1", vec![taken, being_taken, alone]);
    let (all, _) = list(&agents, &Default::default(), None).unwrap();
    let groups = all.iter().map(|one| one.group_snapshot_id.as_str());
    let groups: Vec<&str> = groups.collect();
    assert_eq!(groups, [id(20, "n1").as_str(), ""]);
}

#[test]
fn pages_follow_one_another_while_snapshots_come_and_go() {
    let agents = nodes();
    let mut request = csi::ListSnapshotsRequest::default();
    let (first, token) = list(&agents, &request, Some(2)).unwrap();
    assert_eq!(ids(&first), [id(1, "n1"), id(2, "n3")]);
    // The one that the token names is gone, and so is the next.
    let left = vec![snapshot(5, "n1", "ready"), snapshot(9, "n1", "ready")];
    followed(&agents, "n1", vec![volume(11, "n1", left)]);
    disconnected(
        &agents,
        "n3",
        vec![volume(13, "n3", vec![snapshot(4, "n3", "ready")])],
    );
    request.starting_token = token;
    let (second, token) = list(&agents, &request, Some(1)).unwrap();
    assert_eq!(ids(&second), [id(4, "n3")]);
    request.starting_token = token;
    let (rest, token) = list(&agents, &request, None).unwrap();
    assert_eq!(ids(&rest), [id(5, "n1"), id(9, "n1")]);
    assert_eq!(token, "");
}

#[test]
fn filters_name_a_snapshot_a_volume_or_both() {
    let agents = nodes();
    let none = String::new;
    for (snapshot, volume, expected) in [
        (id(5, "n1"), none(), vec![id(5, "n1")]),
        (id(2, "n3"), none(), vec![id(2, "n3")]),
        (none(), id(11, "n1"), vec![id(1, "n1"), id(5, "n1")]),
        (none(), id(13, "n3"), vec![id(2, "n3"), id(4, "n3")]),
        (id(5, "n1"), id(11, "n1"), vec![id(5, "n1")]),
        (id(5, "n1"), id(12, "n1"), vec![]),
        (id(5, "n1"), "none".into(), vec![]),
        // Unknown for certain.
        ("none".into(), none(), vec![]),
        (none(), "none".into(), vec![]),
        (id(8, "n1"), none(), vec![]),
        (none(), id(8, "n1"), vec![]),
        (id(6, "n1"), none(), vec![]),
        (id(77, "n9"), none(), vec![]),
    ] {
        let request = filtered(snapshot, volume);
        let (listed, token) = list(&agents, &request, None).unwrap();
        assert_eq!(ids(&listed), expected, "{request:?}");
        assert_eq!(token, "");
    }
    let request = filtered(none(), id(13, "n3"));
    let (first, token) = list(&agents, &request, Some(1)).unwrap();
    assert_eq!(ids(&first), [id(2, "n3")]);
    let starting_token = token;
    let rest = csi::ListSnapshotsRequest {
        starting_token,
        ..request
    };
    let (rest, _) = list(&agents, &rest, None).unwrap();
    assert_eq!(ids(&rest), [id(4, "n3")]);
}

#[test]
fn what_may_be_on_a_node_that_is_not_connected_is_not_denied() {
    let agents = nodes();
    for (snapshot, volume) in [
        (id(8, "n3"), String::new()),
        (String::new(), id(8, "n3")),
        (id(8, "n4"), String::new()),
        (String::new(), id(8, "n4")),
    ] {
        let request = filtered(snapshot, volume);
        let refused = list(&agents, &request, None).map(drop);
        assert_eq!(refused, Err(Code::Unavailable), "{request:?}");
    }
}

#[test]
fn what_may_be_on_a_drive_that_is_missing_or_not_scanned_is_not_denied() {
    for state in ["missing", "not-scanned"] {
        let agents = agents();
        let read = volume(11, "n1", vec![snapshot(1, "n1", "ready")]);
        let mut unread = volume(12, "n1", Vec::new());
        unread.state = state.into();
        followed(&agents, "n1", vec![read, unread]);
        let of = |snapshot: &str, volume: &str| {
            let request = filtered(snapshot.into(), volume.into());
            list(&agents, &request, None).map(|(listed, _)| listed.len())
        };
        assert_eq!(of(&id(8, "n1"), ""), Err(Code::Unavailable), "{state}");
        assert_eq!(of("", &id(12, "n1")), Err(Code::Unavailable), "{state}");
        let group = agents.group_snapshot(&id(20, "n1")).unwrap_err();
        assert_eq!(group.code(), Code::Unavailable, "{group}");
        // A snapshot and a volume on a scanned drive, and an id that was never issued.
        assert_eq!(of(&id(1, "n1"), ""), Ok(1));
        assert_eq!(of("", &id(11, "n1")), Ok(1));
        assert_eq!(of("none", ""), Ok(0));
    }
}

#[test]
fn a_snapshot_whose_drive_was_moved_is_shown_under_the_requested_id() {
    let agents = nodes();
    let moved = volume(13, "n2", vec![snapshot(2, "n2", "ready")]);
    followed(&agents, "n2", vec![moved]);
    let request = filtered(id(2, "n3"), String::new());
    let (listed, _) = list(&agents, &request, None).unwrap();
    assert_eq!(ids(&listed), [id(2, "n3")]);
    assert_eq!(listed[0].accessible_topology, [key().of("n2")]);
    let request = filtered(id(2, "n3"), id(13, "n3"));
    assert_eq!(list(&agents, &request, None).unwrap().0.len(), 1);
}
