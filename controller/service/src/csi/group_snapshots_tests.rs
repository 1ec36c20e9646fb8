//! Group snapshots: the node that is called, requests refused before that, checks of the response, and lookups of a group.

#![allow(clippy::unwrap_used)]

use drivebay_csi::{Reserve, status::HasCode};
use tonic::Code;

use super::*;
use crate::csi::{
    existing_groups::{delete_group, get_group},
    test_nodes::{agents, disconnected, followed, id, key, member, snapshot, volume},
};

/// Group 20 of volumes 1 and 2 on n1, which is followed, with a third volume; group 30 of volume 5 on n3, which is disconnected.
fn nodes() -> Agents {
    let agents = agents();
    let volumes = vec![
        volume(1, "n1", vec![member(11, "n1", "ready", 20, 2)]),
        volume(2, "n1", vec![member(12, "n1", "ready", 20, 2)]),
        volume(3, "n1", vec![snapshot(13, "n1", "ready")]),
    ];
    followed(&agents, "n1", volumes);
    followed(&agents, "n2", vec![volume(4, "n2", Vec::new())]);
    let away = vec![volume(5, "n3", vec![member(15, "n3", "ready", 30, 1)])];
    disconnected(&agents, "n3", away);
    agents
}

fn requested(name: &str, volume_ids: &[String]) -> NewGroupSnapshot {
    NewGroupSnapshot {
        name: name.into(),
        volume_ids: volume_ids.to_vec(),
        reserve: Reserve::default(),
        max_age: None,
    }
}

async fn create(agents: &Agents, name: &str, volume_ids: &[String]) -> CreateGroupError {
    let requested = requested(name, volume_ids);
    let created = create_group(agents.clone(), key(), Pending::default(), requested);
    created.await.unwrap_err()
}

#[tokio::test]
async fn a_group_is_requested_from_the_one_node_of_its_volumes() {
    let agents = nodes();
    for (name, volumes, expected) in [
        // Sent to the node, which has no session here.
        ("new", vec![id(1, "n1"), id(3, "n1")], Code::Unavailable),
        ("new", vec![id(5, "n3")], Code::Unavailable),
        ("g20", vec![id(2, "n1"), id(1, "n1")], Code::Unavailable),
        // The agent compares the volumes, and knows whether a snapshot of the group was deleted.
        (
            "g20",
            vec![id(1, "n1"), id(2, "n1"), id(3, "n1")],
            Code::Unavailable,
        ),
        // Volumes of two nodes.
        (
            "new",
            vec![id(1, "n1"), id(4, "n2")],
            Code::FailedPrecondition,
        ),
        ("new", vec![id(1, "n1"), id(9, "n1")], Code::NotFound),
        ("new", vec![id(1, "n1"), "none".into()], Code::NotFound),
        // A snapshot is no volume.
        ("new", vec![id(11, "n1")], Code::NotFound),
        ("new", vec![id(1, "n1"), id(77, "n9")], Code::NotFound),
        ("new", vec![id(1, "n1"), id(77, "n4")], Code::Unavailable),
        // A group of other volumes has the name, on a connected node or a disconnected one.
        ("g20", vec![id(1, "n1"), id(3, "n1")], Code::AlreadyExists),
        ("g30", vec![id(1, "n1")], Code::AlreadyExists),
        // The name of a snapshot is not that of a group.
        ("s13", vec![id(1, "n1")], Code::Unavailable),
    ] {
        let refused = create(&agents, name, &volumes).await;
        assert_eq!(refused.code(), expected, "{name} {volumes:?}: {refused}");
    }
    let scattered = create(&agents, "new", &[id(1, "n1"), id(4, "n2")]).await;
    let placed = format!(
        "volume {} is on node n1, volume {} is on node n2",
        id(1, "n1"),
        id(4, "n2")
    );
    assert!(scattered.to_string().contains(&placed), "{scattered}");
    let other = create(&agents, "g30", &[id(1, "n1")]).await.to_string();
    assert!(other.contains(&id(30, "n3")), "{other}");
    assert!(other.contains(&id(5, "n3")), "{other}");
}

#[tokio::test]
async fn a_name_is_requested_once_at_a_time() {
    let (agents, pending) = (nodes(), Pending::default());
    let guard = pending.enter("new").unwrap();
    let create = || {
        let requested = requested("new", &[id(1, "n1")]);
        create_group(agents.clone(), key(), pending.clone(), requested)
    };
    assert_eq!(create().await.unwrap_err().code(), Code::Aborted);
    drop(guard);
    assert_eq!(create().await.unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_group_is_ready_while_all_of_it_is_there_and_ready() {
    let agents = nodes();
    let get = |group: &str| get_group(&agents, &key(), group, &[]);
    let whole = get(&id(20, "n1")).unwrap();
    assert!(whole.ready_to_use);
    assert_eq!(whole.group_snapshot_id, id(20, "n1"));
    assert_eq!(whole.creation_time.unwrap().seconds, 1_800_000_000);
    let members = whole.snapshots.iter();
    let ids: Vec<&str> = members.map(|one| one.snapshot_id.as_str()).collect();
    assert_eq!(ids, [id(11, "n1"), id(12, "n1")]);
    for one in &whole.snapshots {
        assert_eq!(one.group_snapshot_id, id(20, "n1"));
    }
    assert_eq!(whole.snapshots[1].source_volume_id, id(2, "n1"));
    // A group of a disconnected node is returned as last reported.
    assert!(get(&id(30, "n3")).unwrap().ready_to_use);
    for second in [
        Vec::new(),
        vec![member(12, "n1", "overflowed", 20, 2)],
        vec![member(12, "n1", "creating", 20, 2)],
    ] {
        let first = volume(1, "n1", vec![member(11, "n1", "ready", 20, 2)]);
        let second = volume(2, "n1", second);
        followed(&agents, "n1", vec![first, second]);
        let group = get(&id(20, "n1")).unwrap();
        assert!(!group.ready_to_use, "{group:?}");
    }
    for (id, expected) in [
        (id(21, "n1"), Code::NotFound),
        ("fake-vol-id".to_owned(), Code::NotFound),
        // The id of a snapshot.
        (id(11, "n1"), Code::NotFound),
        (id(77, "n9"), Code::NotFound),
        (id(21, "n3"), Code::Unavailable),
        (id(21, "n4"), Code::Unavailable),
    ] {
        assert_eq!(get(&id).unwrap_err().code(), expected, "{id}");
    }
}

#[tokio::test]
async fn the_ids_that_a_caller_names_are_those_of_the_group_or_of_what_is_gone() {
    let agents = nodes();
    for (named, is_good) in [
        (vec![], true),
        (vec![id(11, "n1"), id(12, "n1")], true),
        (vec![id(12, "n1"), id(11, "n1"), id(12, "n1")], true),
        (vec![id(11, "n1"), id(12, "n1"), id(99, "n1")], true),
        (vec![id(11, "n1")], false),
        (vec![id(99, "n1")], false),
        (vec![id(11, "n1"), id(12, "n1"), id(13, "n1")], false),
        (vec![id(11, "n1"), id(12, "n1"), id(15, "n3")], false),
        (vec![id(11, "n1"), id(12, "n1"), "none".into()], false),
        (vec![id(11, "n1"), id(12, "n1"), String::new()], false),
    ] {
        let got = get_group(&agents, &key(), &id(20, "n1"), &named);
        let code = got.map_or_else(|error| error.code(), |_| Code::Ok);
        let expected = match is_good {
            true => Code::Ok,
            false => Code::InvalidArgument,
        };
        assert_eq!(code, expected, "{named:?}");
        let deleted = delete_group(&agents, id(20, "n1"), &named).await;
        let expected = match is_good {
            // Sent to the node, which has no session here.
            true => Code::Unavailable,
            false => Code::InvalidArgument,
        };
        assert_eq!(deleted.unwrap_err().code(), expected, "{named:?}");
    }
    let partly = get_group(&agents, &key(), &id(20, "n1"), &[id(11, "n1")]);
    let refused = partly.unwrap_err().to_string();
    let unnamed = format!("{} is not named", id(12, "n1"));
    assert!(refused.contains(&unnamed), "{refused}");
}

#[tokio::test]
async fn what_was_never_made_or_was_forgotten_is_deleted_and_a_disconnected_node_is_waited_for() {
    let agents = nodes();
    for (group, expected) in [
        ("fake-vol-id".to_owned(), Code::Ok),
        (id(77, "n9"), Code::Ok),
        // Sent to the agent, which decides; it has no session here.
        (id(20, "n1"), Code::Unavailable),
        (id(21, "n1"), Code::Unavailable),
        (id(30, "n3"), Code::Unavailable),
        (id(30, "n4"), Code::Unavailable),
    ] {
        let deleted = delete_group(&agents, group.clone(), &[]).await;
        let code = deleted.map_or_else(|error| error.code(), |()| Code::Ok);
        assert_eq!(code, expected, "{group}");
    }
    // Snapshot ids are not checked if the group does not exist.
    let deleted = delete_group(&agents, id(21, "n1"), &[id(13, "n1")]).await;
    assert_eq!(deleted.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_group_whose_drives_were_moved_is_shown_under_its_former_id_and_not_deleted_under_it() {
    let agents = nodes();
    let moved = volume(5, "n2", vec![member(15, "n2", "ready", 30, 1)]);
    followed(&agents, "n2", vec![moved]);
    let former = id(30, "n3");
    let group = get_group(&agents, &key(), &former, &[id(15, "n3")]).unwrap();
    assert!(group.ready_to_use);
    assert_eq!(group.group_snapshot_id, former);
    let [one] = group.snapshots.try_into().unwrap();
    assert_eq!(one.snapshot_id, id(15, "n3"));
    assert_eq!(one.group_snapshot_id, former);
    assert_eq!(one.accessible_topology, [key().of("n2")]);
    let refused = delete_group(&agents, former, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.to_string().contains(&id(30, "n2")), "{refused}");
    let refused = create(&agents, "new", &[id(5, "n3")]).await;
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.to_string().contains(&id(5, "n2")), "{refused}");
    // A repeat with the volume's new id is not refused: volumes are compared by uuid.
    let repeated = create(&agents, "g30", &[id(5, "n2")]).await;
    assert_eq!(repeated.code(), Code::Unavailable, "{repeated}");
}

#[test]
fn an_answer_that_is_not_of_the_group_and_its_volumes_is_not_believed() {
    type Change = fn(&mut agent::CreateGroupSnapshotResponse);
    fn second(answer: &mut agent::CreateGroupSnapshotResponse) -> &mut VolumeSnapshot {
        answer.members[1].snapshot.as_mut().unwrap()
    }
    let rows: [(bool, Change); 12] = [
        (true, |_| {}),
        (true, |r| r.members.reverse()),
        (true, |r| second(r).state = "overflowed".into()),
        (false, |r| r.group = None),
        (false, |r| r.group.as_mut().unwrap().id = id(20, "n2")),
        (false, |r| r.group.as_mut().unwrap().name = "g21".into()),
        (false, |r| drop(r.members.pop())),
        (false, |r| r.members[1].snapshot = None),
        (false, |r| r.members[1].volume_id = id(1, "n1")),
        (false, |r| r.members[1].volume_id = id(3, "n1")),
        (false, |r| second(r).id = id(12, "n2")),
        (false, |r| second(r).group = None),
    ];
    for (at, (is_believed, change)) in rows.into_iter().enumerate() {
        let of = |n| agent::GroupMember {
            snapshot: Some(member(10 + n, "n1", "ready", 20, 2)),
            volume_id: id(n, "n1"),
        };
        let mut answer = agent::CreateGroupSnapshotResponse {
            group: member(11, "n1", "ready", 20, 2).group,
            members: vec![of(1), of(2)],
            revision: 1,
        };
        change(&mut answer);
        let checked = check_answer("g20", &[id(1, "n1"), id(2, "n1")], "n1", answer);
        assert_eq!(checked.is_ok(), is_believed, "{at}");
    }
}
