//! Snapshots through the Controller service: the agent that is called, requests refused without a call, and invalid answers of an agent.

#![allow(clippy::unwrap_used)]

use drivebay_csi::{Reserve, status::HasCode};
use tonic::Code;

use super::*;
use crate::csi::test_nodes::{agents, disconnected, followed, id, key, member, snapshot, volume};

/// Volume 1 with snapshot 7 on n1, which is followed; volume 3 with snapshot 6 on n3, which is disconnected.
fn nodes() -> Agents {
    let agents = agents();
    let of = |n, snapshots, node: &str| vec![volume(n, node, snapshots)];
    followed(&agents, "n1", of(1, vec![snapshot(7, "n1", "ready")], "n1"));
    followed(&agents, "n2", Vec::new());
    disconnected(&agents, "n3", of(3, vec![snapshot(6, "n3", "ready")], "n3"));
    agents
}

async fn create(
    agents: &Agents,
    name: &str,
    volume_id: String,
    node: Option<&str>,
) -> CreateSnapshotError {
    let requested = NewSnapshot {
        name: name.into(),
        volume_id,
        reserve: Reserve::default(),
        max_age: None,
    };
    let topology = node.map(|node| key().only(node));
    let pending = Pending::default();
    let created = create_snapshot(agents.clone(), key(), pending, requested, topology);
    created.await.unwrap_err()
}

#[tokio::test]
async fn a_snapshot_is_requested_from_the_volumes_node_unless_it_cannot_be() {
    let agents = nodes();
    for (name, volume, node, expected) in [
        // They reach the node, which has no session here.
        ("new", id(1, "n1"), None, Code::Unavailable),
        ("new", id(1, "n1"), Some("n1"), Code::Unavailable),
        ("s7", id(1, "n1"), None, Code::Unavailable),
        ("new", id(1, "n1"), Some("n2"), Code::ResourceExhausted),
        ("new", id(2, "n1"), None, Code::NotFound),
        ("new", "none".into(), None, Code::NotFound),
        // A snapshot is no volume.
        ("new", id(7, "n1"), None, Code::NotFound),
        ("new", id(77, "n9"), None, Code::NotFound),
        ("new", id(3, "n3"), None, Code::Unavailable),
        ("new", id(77, "n4"), None, Code::Unavailable),
        // One on another volume has the name, on a node that is disconnected or connected.
        ("s6", id(1, "n1"), None, Code::AlreadyExists),
        ("s7", id(3, "n3"), None, Code::AlreadyExists),
    ] {
        let refused = create(&agents, name, volume.clone(), node).await;
        assert_eq!(refused.code(), expected, "{name} {volume}: {refused}");
    }
    let refused = create(&agents, "s6", id(1, "n1"), None).await.to_string();
    assert!(refused.contains(&id(6, "n3")), "{refused}");
    assert!(refused.contains(&id(3, "n3")), "{refused}");
}

#[tokio::test]
async fn a_volume_whose_drive_was_moved_is_named_by_its_id_there() {
    let agents = nodes();
    let moved = volume(3, "n2", vec![snapshot(6, "n2", "ready")]);
    followed(&agents, "n2", vec![moved]);
    let refused = create(&agents, "new", id(3, "n3"), None).await;
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.to_string().contains(&id(3, "n2")), "{refused}");
    // The same volume on two nodes has one snapshot of the name.
    let repeated = create(&agents, "s6", id(3, "n2"), None).await;
    assert_eq!(repeated.code(), Code::Unavailable, "{repeated}");
    let refused = delete_snapshot(&agents, id(6, "n3")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.to_string().contains(&id(6, "n2")), "{refused}");
}

#[tokio::test]
async fn a_name_is_requested_once_at_a_time() {
    let (agents, pending) = (nodes(), Pending::default());
    let guard = pending.enter("new").unwrap();
    let requested = NewSnapshot {
        name: "new".into(),
        volume_id: id(1, "n1"),
        reserve: Reserve::default(),
        max_age: None,
    };
    let create = || {
        create_snapshot(
            agents.clone(),
            key(),
            pending.clone(),
            requested.clone(),
            None,
        )
    };
    assert_eq!(create().await.unwrap_err().code(), Code::Aborted);
    drop(guard);
    assert_eq!(create().await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn what_was_never_made_or_was_forgotten_is_deleted_and_a_disconnected_node_is_waited_for() {
    let agents = nodes();
    for (id, expected) in [
        ("fake-snapshot-id".to_owned(), Code::Ok),
        (id(77, "n9"), Code::Ok),
        // The agent's word counts, and it has no session here.
        (id(7, "n1"), Code::Unavailable),
        (id(8, "n1"), Code::Unavailable),
        (id(6, "n3"), Code::Unavailable),
        (id(6, "n4"), Code::Unavailable),
    ] {
        let deleted = delete_snapshot(&agents, id.clone()).await;
        let code = deleted.map_or_else(|error| error.code(), |()| Code::Ok);
        assert_eq!(code, expected, "{id}");
    }
}

#[tokio::test]
async fn a_snapshot_of_a_group_is_deleted_with_the_group_alone() {
    let agents = nodes();
    let of_group = vec![member(7, "n1", "ready", 20, 1)];
    followed(&agents, "n1", vec![volume(1, "n1", of_group)]);
    let refused = delete_snapshot(&agents, id(7, "n1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let refused = refused.to_string();
    assert!(refused.contains(&id(20, "n1")), "{refused}");
    assert!(refused.contains("\"g20\""), "{refused}");
    // The group's id names the node in the requested id, also the former one of a moved drive.
    let reported = agents.snapshot(&id(7, "n1")).unwrap();
    let shown = shown_as(&id(7, "n1"), reported, &key());
    assert_eq!(shown.group_snapshot_id, id(20, "n1"));
    let reported = agents.snapshot(&id(7, "n3")).unwrap();
    let shown = shown_as(&id(7, "n3"), reported, &key());
    assert_eq!(shown.group_snapshot_id, id(20, "n3"));
}

#[test]
fn an_answer_that_is_of_another_snapshot_or_volume_is_not_believed() {
    type Change = fn(&mut agent::CreateSnapshotResponse);
    let rows: [(bool, Change); 6] = [
        (true, |_| {}),
        (true, |r| {
            r.snapshot.as_mut().unwrap().state = "overflowed".into()
        }),
        (false, |r| r.snapshot = None),
        (false, |r| r.snapshot.as_mut().unwrap().id = id(7, "n2")),
        (false, |r| r.snapshot.as_mut().unwrap().name = "s8".into()),
        (false, |r| r.volume_id = id(2, "n1")),
    ];
    for (at, (is_believed, change)) in rows.into_iter().enumerate() {
        let mut answer = agent::CreateSnapshotResponse {
            snapshot: Some(snapshot(7, "n1", "ready")),
            volume_id: id(1, "n1"),
            revision: 1,
        };
        change(&mut answer);
        let checked = check_answer("s7", &id(1, "n1"), "n1", answer);
        assert_eq!(checked.is_ok(), is_believed, "{at}");
    }
}

#[test]
fn an_older_agent_is_refused_for_good_so_that_a_person_upgrades_it() {
    let outdated = CallError::Outdated { node: "n1".into() };
    assert_eq!(outdated.code(), Code::FailedPrecondition);
    let outdated = CreateSnapshotError::from(outdated);
    assert!(outdated.to_string().contains("node n1 runs an older agent"));
}
