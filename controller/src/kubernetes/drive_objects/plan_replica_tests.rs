//! Several replicas that plan the same objects, and nodes that report the same drive.

use super::{
    fixture::{Replica, Server, T, drive, suspect},
    *,
};
use crate::kubernetes::drive_objects::queue::PlannedWrite;

#[test]
fn replicas_that_watch_each_others_writes_write_once() {
    let (mut server, mut one, mut other) = (Server::default(), Replica::new(), Replica::new());
    for replica in [&mut one, &mut other] {
        replica.sees("n1", 1, &[drive("wwn-a")]);
    }
    assert_eq!(one.act(&mut server, T) + other.act(&mut server, T + 1), 1);
    for replica in [&mut one, &mut other] {
        replica.sees("n1", 2, &[suspect("wwn-a")]);
    }
    assert_eq!(
        other.act(&mut server, T + 9) + one.act(&mut server, T + 10),
        1
    );
}

#[test]
fn replicas_that_create_an_object_at_once_both_write_it() {
    let (server, mut one, mut other) = (Server::default(), Replica::new(), Replica::new());
    for replica in [&mut one, &mut other] {
        let writes = replica
            .sees("n1", 1, &[drive("wwn-a")])
            .plan(&server, T)
            .writes;
        // A creation names no version, so that the API server cannot answer with a conflict.
        let is_creation = |write: &PlannedWrite| {
            matches!(&write.operation, Operation::Apply { replaces: None, .. })
        };
        assert!(writes.len() == 1 && is_creation(&writes[0]), "{writes:?}");
    }
}

#[test]
fn a_replica_with_an_earlier_revision_does_not_write() {
    let (mut server, mut ahead, mut behind) = (Server::default(), Replica::new(), Replica::new());
    ahead.sees("n1", 7, &[suspect("wwn-a")]).act(&mut server, T);
    behind.sees("n1", 6, &[drive("wwn-a")]);
    assert_eq!(behind.act(&mut server, T + 5), 0);
    // The same with an earlier agent process, whose session may last that long.
    behind.nodes.get_mut("n1").unwrap().1.instance = "earlier".into();
    assert_eq!(behind.act(&mut server, T + HANDOVER - 1), 0);
    // A revision that no agent has sent does not block the object.
    let status = server.objects.get_mut("wwn-a").unwrap().status.as_mut();
    status.unwrap().observed.revision = i64::MAX;
    assert_eq!(
        ahead
            .sees("n1", 8, &[drive("wwn-a")])
            .act(&mut server, T + STALE),
        1
    );
}

#[test]
fn a_lost_session_costs_two_writes_while_another_replica_has_the_agent() {
    let (mut server, mut with, mut without) = (Server::default(), Replica::new(), Replica::new());
    with.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    without.set_state("n1", NodeState::NotReporting { lost: Some(T + 60) });
    let mut writes = 0;
    for now in (T + 120..T + 7200).step_by(5) {
        writes += without.act(&mut server, now);
        writes += with.act(&mut server, now + 2);
    }
    // One write marks the agent as disconnected, and one of the other replica corrects that.
    assert_eq!(writes, 2);
    assert_eq!(server.condition("wwn-a", AGENT_CONNECTED).0, "True");
}

#[test]
fn two_nodes_that_use_one_drive_are_a_conflict_until_one_is_left() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n2", 1, &[drive("wwn-a")]).act(&mut server, T);
    replica
        .sees("n1", 1, &[drive("wwn-a")])
        .act(&mut server, T + 5);
    assert_eq!(
        server.condition("wwn-a", "Conflict"),
        ("True", "ClaimedByTwoNodes")
    );
    let status = server.status("wwn-a");
    // The object keeps its node, whatever the name of the second one is.
    assert_eq!(
        (&*status.node, &status.other_nodes[..]),
        ("n2", &["n1".to_owned()][..])
    );
    // A replica that does not see one of them keeps its name.
    let mut partial = Replica::new();
    partial.sees("n2", 1, &[drive("wwn-a")]);
    let writes = partial.act(&mut server, T + 70) + replica.act(&mut server, T + 75);
    assert!(writes <= 2, "{writes}");
    replica.sees("n1", 2, &[]).act(&mut server, T + 200);
    assert_eq!(server.condition("wwn-a", "Conflict"), ("False", "OneNode"));
}

#[test]
fn replicas_that_see_one_node_each_replace_each_others_status_every_ten_minutes() {
    let (mut server, mut one, mut other) = (Server::default(), Replica::new(), Replica::new());
    one.sees("n1", 1, &[drive("wwn-a")]);
    other.sees("n2", 1, &[drive("wwn-a")]);
    let mut nodes = Vec::new();
    for now in (T..T + 3600).step_by(5) {
        for (replica, late) in [(&mut one, 0), (&mut other, 2)] {
            if replica.act(&mut server, now + late) > 0 {
                nodes.push((now - T, server.status("wwn-a").node.clone()));
            }
        }
    }
    let gaps = nodes.windows(2).map(|pair| pair[1].0 - pair[0].0);
    // The first two writes make the object known to both.
    assert!(gaps.skip(1).all(|gap| gap >= STALE - 10), "{nodes:?}");
    assert!((5..=8).contains(&nodes.len()), "{nodes:?}");
    assert_eq!(server.condition("wwn-a", "Conflict").0, "Unknown");
}
