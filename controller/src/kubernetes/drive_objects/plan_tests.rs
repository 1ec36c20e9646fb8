use drivebay_proto::agent::{Cordon, DriveHealth, Reading, SmartReport};
use kube::api::ObjectMeta;

use super::{
    fixture::{NOT_REPORTING, Replica, Server, T, drive, in_state, suspect},
    *,
};
use drivebay_objects::{
    drive::{Drive as Object, NoSpec},
    times::format_time,
};

#[test]
fn a_drive_has_an_object_and_a_quiet_one_is_written_once() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]);
    assert_eq!(replica.act(&mut server, T), 1);
    let status = server.status("wwn-a");
    assert_eq!(
        [
            &status.node,
            &status.bay,
            &status.model,
            &status.size,
            &status.free
        ],
        ["n1", "slot 3", "ST4000", "4 TiB", "1 TiB"]
    );
    assert_eq!(
        (&*status.class, &*status.health, &*status.reason),
        ("bulk", "GOOD", "")
    );
    // Another revision, another poll and another temperature are no change.
    let mut warmer = drive("wwn-a");
    warmer.health = Some(DriveHealth {
        smart: Some(SmartReport {
            readings: vec![Reading {
                name: "temperature-celsius".into(),
                value: 51,
            }],
            ..SmartReport::default()
        }),
        ..DriveHealth::default()
    });
    replica.sees("n1", 9, &[warmer]);
    assert_eq!(replica.act(&mut server, T + 3600), 0);
}

#[test]
fn a_verdict_is_written_at_once_and_free_space_at_most_once_a_minute() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    let mut fuller = drive("wwn-a");
    fuller.free_bytes = 1 << 30;
    replica.sees("n1", 2, &[fuller]);
    assert_eq!(replica.act(&mut server, T + MINOR - 1), 0);
    assert_eq!(replica.act(&mut server, T + MINOR), 1);
    assert_eq!(server.status("wwn-a").free, "1 GiB");
    replica.sees("n1", 3, &[suspect("wwn-a")]);
    assert_eq!(replica.act(&mut server, T + MINOR + 1), 1);
    let status = server.status("wwn-a");
    assert_eq!(
        (&*status.health, &*status.reason),
        ("SUSPECT", "PendingSectors")
    );
    assert_eq!(status.findings[0].since, "1970-01-01T00:00:07Z");
    assert_eq!(
        server.condition("wwn-a", "Healthy"),
        ("False", "PendingSectors")
    );
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    replica
        .sees("n1", 2, &[suspect("wwn-a")])
        .act(&mut server, T + 100);
    assert_eq!(server.since("wwn-a", "Healthy"), format_time(T + 100));
    assert_eq!(server.since("wwn-a", "Present"), format_time(T));
    let mut more = suspect("wwn-a");
    more.cordon = Some(Cordon::default());
    replica.sees("n1", 3, &[more]).act(&mut server, T + 200);
    assert_eq!(server.status("wwn-a").updated, format_time(T + 200));
    assert_eq!(server.since("wwn-a", "Healthy"), format_time(T + 100));
    assert_eq!(
        server.condition("wwn-a", "AcceptingVolumes"),
        ("False", "Cordoned")
    );
}

#[test]
fn a_missing_drive_keeps_its_object() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    replica.sees("n1", 2, &[in_state("wwn-a", "missing")]);
    for now in [T + 60, T + 10 * GRACE] {
        replica.act(&mut server, now);
        assert_eq!(
            server.condition("wwn-a", "Present"),
            ("False", "DriveMissing")
        );
        assert_eq!(server.condition("wwn-a", "Healthy").0, "Unknown");
        assert_eq!(server.status("wwn-a").reason, "DriveMissing");
    }
}

#[test]
fn a_last_known_verdict_of_a_drive_that_was_not_scanned_is_not_shown_as_health() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    let mut last_known = in_state("wwn-a", "not-scanned");
    last_known.verdict = "GOOD".into();
    replica.sees("n1", 1, &[last_known]).act(&mut server, T);
    for type_ in ["Present", "Healthy"] {
        assert_eq!(server.condition("wwn-a", type_), ("Unknown", "NotScanned"));
    }
}

#[test]
fn deleted_objects_return() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a"), suspect("wwn-b")]);
    assert_eq!(replica.act(&mut server, T), 2);
    server.objects.clear();
    assert_eq!(replica.act(&mut server, T + 5), 2);
    assert_eq!(server.objects.len(), 2);
}

#[test]
fn an_object_is_deleted_when_its_drive_was_absent_for_the_grace_and_not_before() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    replica.sees("n1", 2, &[]).act(&mut server, T + 100);
    replica.act(&mut server, T + 100 + GRACE - 1);
    assert!(server.objects.contains_key("wwn-a"));
    replica.act(&mut server, T + 100 + GRACE);
    assert!(server.objects.is_empty());
}

#[test]
fn an_absence_that_was_interrupted_begins_anew() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    replica.sees("n1", 2, &[]).act(&mut server, T + 100);
    replica
        .set_state("n1", NOT_REPORTING)
        .act(&mut server, T + 200);
    replica.sees("n1", 3, &[]).act(&mut server, T + 100 + GRACE);
    assert!(server.objects.contains_key("wwn-a"));
}

#[test]
fn objects_of_a_disconnected_node_stay_until_it_is_forgotten() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    let lost = NodeState::NotReporting { lost: Some(T + 60) };
    replica.set_state("n1", lost);
    for now in [T + 60, T + 100 * GRACE] {
        replica.act(&mut server, now);
        assert_eq!(server.condition("wwn-a", AGENT_CONNECTED).0, "False");
        assert_eq!(server.status("wwn-a").health, "GOOD");
    }
    // Nor those of a node that this replica has never seen.
    let mut other = Replica::new();
    assert_eq!(other.act(&mut server, T + 200 * GRACE), 0);
    replica.set_state("n1", NodeState::Forgotten);
    assert_eq!(replica.act(&mut server, T + 200 * GRACE), 1);
    assert!(server.objects.is_empty());
}

#[test]
fn a_drive_that_was_moved_is_shown_at_its_new_node() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    replica.sees("n1", 2, &[in_state("wwn-a", "missing")]);
    replica.sees("n2", 5, &[in_state("wwn-a", "rejected")]);
    replica.act(&mut server, T + 100);
    let status = server.status("wwn-a");
    assert_eq!((&*status.node, &*status.state), ("n2", "rejected"));
    assert_eq!(
        server.condition("wwn-a", "Conflict"),
        ("False", "SeenByOtherNode")
    );
}

#[test]
fn with_findings_only_drives_with_something_to_report_have_objects() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.shown = Shown::Findings;
    let mut cordoned = drive("wwn-c");
    cordoned.cordon = Some(Cordon::default());
    let missing = in_state("wwn-d", "missing");
    replica.sees(
        "n1",
        1,
        &[drive("wwn-a"), suspect("wwn-b"), cordoned, missing],
    );
    replica.act(&mut server, T);
    let names: Vec<&str> = server.objects.keys().map(String::as_str).collect();
    assert_eq!(names, ["wwn-b", "wwn-c", "wwn-d"]);
    // A drive that recovered is shown until the grace is over.
    replica
        .sees("n1", 2, &[drive("wwn-b")])
        .act(&mut server, T + 100);
    assert_eq!(server.status("wwn-b").health, "GOOD");
    replica.act(&mut server, T + 100 + GRACE);
    assert!(server.objects.is_empty());
}

#[test]
fn partitions_and_loop_devices_in_no_class_have_no_objects() {
    let mut loop_device = in_state("loop-1", "rejected");
    loop_device.transport = "loop".into();
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[loop_device]);
    assert_eq!(replica.act(&mut server, T), 0);
}

#[test]
fn changes_by_other_clients_are_reverted_and_their_objects_deleted() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    let foreign = Object {
        metadata: ObjectMeta {
            name: Some("mine".into()),
            ..ObjectMeta::default()
        },
        spec: NoSpec {},
        status: None,
    };
    server.objects.insert("mine".into(), foreign);
    let status = server.objects.get_mut("wwn-a").unwrap().status.as_mut();
    let status = status.unwrap();
    status.health = "BAD".into();
    status.updated = "9999-01-01T00:00:00Z".into();
    replica.act(&mut server, T + 5);
    assert_eq!(server.status("wwn-a").health, "GOOD");
    replica.act(&mut server, T + 5 + GRACE);
    assert_eq!(server.objects.len(), 1);
}

#[test]
fn names_of_nodes_that_do_not_report_stay_whoever_wrote_them() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    let status = server.objects.get_mut("wwn-a").unwrap().status.as_mut();
    status.unwrap().other_nodes = vec!["absent".into()];
    let mut foreign = server.objects["wwn-a"].clone();
    foreign.metadata.name = Some("mine".into());
    foreign.status.as_mut().unwrap().node = "absent".into();
    server.objects.insert("mine".into(), foreign);
    for now in [T + MINOR, T + 10 * GRACE] {
        replica.act(&mut server, now);
        assert_eq!(server.status("wwn-a").other_nodes, ["absent"]);
        assert_eq!(server.status("mine").node, "absent");
    }
    replica.set_state("absent", NodeState::Forgotten);
    replica.act(&mut server, T + 20 * GRACE);
    assert!(server.status("wwn-a").other_nodes.is_empty());
    replica.act(&mut server, T + 21 * GRACE);
    assert!(!server.objects.contains_key("mine"));
}
