use drivebay_proto::agent::{
    Cordon, DriveHealth, Finding, Overridden, Reading, SmartReport, Volume,
};
use kube::api::ObjectMeta;

use super::*;
use crate::kubernetes::drive_objects::object::{Drive as Object, NoSpec, moment};

const T: i64 = 1_764_288_000;
const LIVE: Standing = Standing::Live;
const SILENT: Standing = Standing::Silent { lost: None };

fn drive(id: &str) -> Drive {
    Drive {
        id: id.into(),
        kernel_name: "sda".into(),
        model: "ST4000".into(),
        slot: "3".into(),
        state: "claimed".into(),
        verdict: "GOOD".into(),
        class: "bulk".into(),
        size_bytes: 4 << 40,
        usable_bytes: 4 << 40,
        free_bytes: 1 << 40,
        largest_free_bytes: 1 << 40,
        media: "hdd".into(),
        transport: "sata".into(),
        ..Drive::default()
    }
}

fn suspect(id: &str) -> Drive {
    let mut drive = drive(id);
    drive.verdict = "SUSPECT".into();
    drive.health = Some(DriveHealth {
        findings: vec![Finding {
            code: "PendingSectors".into(),
            message: "8 pending sectors".into(),
            since: 7,
            acknowledged: false,
        }],
        ..DriveHealth::default()
    });
    drive
}

fn in_state(id: &str, state: &str) -> Drive {
    Drive {
        state: state.into(),
        ..drive(id)
    }
}

/// The API server: what one replica wrote is what all of them watch.
#[derive(Default)]
struct Server {
    objects: BTreeMap<String, Object>,
    writes: u64,
}

impl Server {
    fn known(&self) -> Objects {
        let mut known = Objects::default();
        known.begin_list();
        for object in self.objects.values() {
            known.put_listed(object.clone());
        }
        known.end_list();
        known
    }

    fn status(&self, name: &str) -> &DriveStatus {
        self.objects[name].status.as_ref().unwrap()
    }

    fn condition(&self, name: &str, type_: &str) -> (&str, &str) {
        let mut all = self.status(name).conditions.iter();
        let one = all.find(|one| one.type_ == type_).unwrap();
        (&one.status, &one.reason)
    }

    fn since(&self, name: &str, type_: &str) -> &str {
        let mut all = self.status(name).conditions.iter();
        &all.find(|one| one.type_ == type_)
            .unwrap()
            .last_transition_time
    }
}

/// A replica, and what it sees.
struct Replica {
    shown: Shown,
    nodes: BTreeMap<&'static str, (Standing, Observed, Vec<Drive>)>,
    volumes: BTreeMap<String, Volumes>,
    absences: BTreeMap<String, i64>,
}

impl Replica {
    fn new() -> Self {
        Self {
            shown: Shown::All,
            nodes: BTreeMap::new(),
            volumes: BTreeMap::new(),
            absences: BTreeMap::new(),
        }
    }

    fn sees(&mut self, node: &'static str, revision: i64, drives: &[Drive]) -> &mut Self {
        let observed = Observed {
            instance: format!("agent-of-{node}"),
            revision,
        };
        self.nodes.insert(node, (LIVE, observed, drives.to_vec()));
        self
    }

    fn stands(&mut self, node: &'static str, standing: Standing) -> &mut Self {
        let entry = self.nodes.entry(node).or_insert_with(|| {
            let none = Observed::default();
            (standing, none, Vec::new())
        });
        entry.0 = standing;
        self
    }

    fn plan(&mut self, server: &Server, now: i64) -> Vec<Action> {
        let objects = server.known();
        let standing = |node: &str| {
            self.nodes
                .get(node)
                .map_or(SILENT, |(standing, ..)| *standing)
        };
        let live: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, (standing, ..))| *standing == LIVE)
            .map(|(node, (_, observed, drives))| (Arc::from(*node), observed, drives))
            .collect();
        let mut places = Places::default();
        for (node, _, drives) in &live {
            places.add(node, &places_of(node, drives));
        }
        let mut plan = Plan {
            shown: self.shown,
            now,
            standing: &standing,
            actions: Vec::new(),
        };
        let mut unwanted = BTreeSet::new();
        for (node, observed, drives) in &live {
            let view = NodeView {
                node,
                observed: (*observed).clone(),
                drives,
                volumes: self.volumes.clone(),
            };
            unwanted.extend(plan.write(view, &places, &objects).unwanted);
        }
        let is_unwanted = |name: &str| unwanted.contains(name);
        plan.remove(&places, &is_unwanted, &objects, &mut self.absences);
        plan.ordered(1)
    }

    /// Plans, and carries that out; returns how many writes there were.
    fn act(&mut self, server: &mut Server, now: i64) -> u64 {
        let before = server.writes;
        for action in self.plan(server, now) {
            server.writes += 1;
            let object = match action.act {
                Act::Delete(_) => {
                    server.objects.remove(&action.name);
                    continue;
                }
                Act::Write { status, .. } => *status,
                Act::Disconnect(_) => {
                    let mut status = server.status(&action.name).clone();
                    for one in &mut status.conditions {
                        if one.type_ == AGENT_CONNECTED {
                            one.status = "False".into();
                        }
                    }
                    status.updated = moment(now);
                    status
                }
            };
            let metadata = ObjectMeta {
                name: Some(action.name.clone()),
                uid: Some("u".into()),
                resource_version: Some(server.writes.to_string()),
                ..ObjectMeta::default()
            };
            let object = Object {
                metadata,
                spec: NoSpec {},
                status: Some(object),
            };
            server.objects.insert(action.name, object);
        }
        server.writes - before
    }
}

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
    assert_eq!(server.since("wwn-a", "Healthy"), moment(T + 100));
    assert_eq!(server.since("wwn-a", "Present"), moment(T));
    let mut more = suspect("wwn-a");
    more.cordon = Some(Cordon::default());
    replica.sees("n1", 3, &[more]).act(&mut server, T + 200);
    assert_eq!(server.status("wwn-a").updated, moment(T + 200));
    assert_eq!(server.since("wwn-a", "Healthy"), moment(T + 100));
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
fn deleted_objects_return() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a"), suspect("wwn-b")]);
    assert_eq!(replica.act(&mut server, T), 2);
    server.objects.clear();
    assert_eq!(replica.act(&mut server, T + 5), 2);
    assert_eq!(server.objects.len(), 2);
}

#[test]
fn an_object_goes_when_its_drive_was_absent_for_the_grace_and_not_before() {
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
    replica.stands("n1", SILENT).act(&mut server, T + 200);
    replica.sees("n1", 3, &[]).act(&mut server, T + 100 + GRACE);
    assert!(server.objects.contains_key("wwn-a"));
}

#[test]
fn nothing_goes_while_an_agent_is_not_connected_until_its_node_is_forgotten() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    let silent = Standing::Silent { lost: Some(T + 60) };
    replica.stands("n1", silent);
    for now in [T + 60, T + 100 * GRACE] {
        replica.act(&mut server, now);
        assert_eq!(server.condition("wwn-a", AGENT_CONNECTED).0, "False");
        assert_eq!(server.status("wwn-a").health, "GOOD");
    }
    // Nor those of a node that this replica has never seen.
    let mut other = Replica::new();
    assert_eq!(other.act(&mut server, T + 200 * GRACE), 0);
    replica.stands("n1", Standing::Forgotten);
    assert_eq!(replica.act(&mut server, T + 200 * GRACE), 1);
    assert!(server.objects.is_empty());
}

#[test]
fn replicas_that_see_the_same_write_once() {
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
fn a_replica_that_is_behind_does_not_write_what_was() {
    let (mut server, mut ahead, mut behind) = (Server::default(), Replica::new(), Replica::new());
    ahead.sees("n1", 7, &[suspect("wwn-a")]).act(&mut server, T);
    behind.sees("n1", 6, &[drive("wwn-a")]);
    assert_eq!(behind.act(&mut server, T + 5), 0);
    // Of an earlier agent process, as long as its session may last.
    behind.nodes.get_mut("n1").unwrap().1.instance = "earlier".into();
    assert_eq!(behind.act(&mut server, T + HANDOVER - 1), 0);
    // A revision that no agent has sent does not block writes of an object.
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
fn a_replica_without_the_agent_does_not_fight_with_one_that_has_it() {
    let (mut server, mut with, mut without) = (Server::default(), Replica::new(), Replica::new());
    with.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    without.stands("n1", Standing::Silent { lost: Some(T + 60) });
    let mut writes = 0;
    for now in (T + 120..T + 7200).step_by(5) {
        writes += without.act(&mut server, now);
        writes += with.act(&mut server, now + 2);
    }
    // It says once that the agent is not connected, which the other one corrects.
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
    // The node stays, whoever comes later and whatever its name is.
    assert_eq!(
        (&*status.node, &status.other_nodes[..]),
        ("n2", &["n1".to_owned()][..])
    );
    // Another replica does not see one of them, and leaves that.
    let mut partial = Replica::new();
    partial.sees("n2", 1, &[drive("wwn-a")]);
    let writes = partial.act(&mut server, T + 70) + replica.act(&mut server, T + 75);
    assert!(writes <= 2, "{writes}");
    replica.sees("n1", 2, &[]).act(&mut server, T + 200);
    assert_eq!(server.condition("wwn-a", "Conflict"), ("False", "OneNode"));
}

#[test]
fn replicas_that_see_one_node_each_of_a_conflict_agree() {
    let (mut server, mut one, mut other) = (Server::default(), Replica::new(), Replica::new());
    one.sees("n1", 1, &[drive("wwn-a")]);
    other.sees("n2", 1, &[drive("wwn-a")]);
    let mut writes = 0;
    for now in (T..T + 3600).step_by(5) {
        writes += one.act(&mut server, now) + other.act(&mut server, now + 2);
    }
    assert!(writes <= 3600 / 300, "{writes}");
    assert_eq!(server.condition("wwn-a", "Conflict").0, "Unknown");
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
fn only_drives_with_something_to_report_have_objects_if_asked_for() {
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
    // What is over is shown until the grace is over.
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
fn an_object_that_somebody_made_or_changed_is_put_right() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    let made = Object {
        metadata: ObjectMeta {
            name: Some("mine".into()),
            ..ObjectMeta::default()
        },
        spec: NoSpec {},
        status: None,
    };
    server.objects.insert("mine".into(), made);
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
fn drives_in_trouble_are_written_first_and_replicas_begin_at_different_ones() {
    let drives: Vec<Drive> = (0..100).map(|n| drive(&format!("wwn-{n}"))).collect();
    let mut all = drives;
    all.push(suspect("wwn-ill"));
    let (server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &all);
    let actions = replica.plan(&server, T);
    assert_eq!(actions[0].name, "wwn-ill");
    let order = |seed| {
        let plan = Plan {
            shown: Shown::All,
            now: T,
            standing: &|_| LIVE,
            actions: actions.clone(),
        };
        let names = plan.ordered(seed).into_iter().map(|action| action.name);
        names.collect::<Vec<_>>()
    };
    assert_eq!(order(1), order(1));
    let same = order(1).into_iter().zip(order(2));
    let same = same.skip(1).filter(|(a, b)| a == b).count();
    assert!(same < 20, "{same}");
}

#[test]
fn a_status_is_bounded_whatever_the_agent_says() {
    let long = "\u{1b}\"x".repeat(2000);
    let finding = Finding {
        code: long.clone(),
        message: long.clone(),
        ..Finding::default()
    };
    let mut hostile = drive("wwn-a");
    hostile.health = Some(DriveHealth {
        findings: vec![finding; 500],
        overridden: Some(Overridden::default()),
        ..DriveHealth::default()
    });
    hostile.verdict = "BAD".into();
    for text in [
        &mut hostile.model,
        &mut hostile.serial,
        &mut hostile.slot,
        &mut hostile.class,
        &mut hostile.trouble,
    ] {
        text.clone_from(&long);
    }
    let mut volumes = Volumes::default();
    for _ in 0..5000 {
        let volume = Volume {
            name: long.clone(),
            state: long.clone(),
            ..Volume::default()
        };
        volumes.add(&volume, &long);
    }
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.volumes.insert("wwn-a".into(), volumes);
    replica.sees("n1", 1, &[hostile]).act(&mut server, T);
    let status = server.status("wwn-a");
    assert_eq!((status.volume_count, status.volumes.len()), (5000, 32));
    assert_eq!(status.findings.len(), 16);
    assert!(status.more_findings >= 484, "{}", status.more_findings);
    let text = serde_json::to_string(status).unwrap();
    assert!(text.len() < 128 << 10, "{} bytes", text.len());
    assert!(
        !text.contains('\u{1b}') && !text.contains("\\u001b"),
        "{text}"
    );
    assert_eq!(server.condition("wwn-a", "Healthy").0, "False");
}

#[test]
fn volumes_with_abnormal_conditions_are_listed_first() {
    let mut volumes = Volumes::default();
    for n in 0..100 {
        let mut volume = Volume {
            name: format!("pvc-{n:03}"),
            state: "ready".into(),
            ..Volume::default()
        };
        if n == 99 {
            volume.conditions.push(drivebay_proto::agent::Condition {
                abnormal: true,
                reason: "DriveSuspect".into(),
                ..Default::default()
            });
        }
        volumes.add(&volume, "shop/data");
    }
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.volumes.insert("wwn-a".into(), volumes);
    replica.sees("n1", 1, &[drive("wwn-a")]).act(&mut server, T);
    let first = &server.status("wwn-a").volumes[0];
    assert_eq!(
        [&first.name, &first.claim, &first.reason],
        ["pvc-099", "shop/data", "DriveSuspect"]
    );
}

#[test]
fn a_quiet_fleet_of_a_thousand_drives_writes_nothing_and_a_hundred_suspect_ones_a_hundred_times() {
    const NODES: [&str; 10] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"];
    let fleet = |replica: &mut Replica, revision: i64, suspects: usize| {
        for (number, node) in NODES.into_iter().enumerate() {
            let drives: Vec<Drive> = (0..100)
                .map(|n| (n, format!("wwn-{number}x{n}")))
                .map(|(n, id)| {
                    if n < suspects {
                        suspect(&id)
                    } else {
                        drive(&id)
                    }
                })
                .collect();
            replica.sees(node, revision, &drives);
        }
    };
    let mut server = Server::default();
    let mut replicas = [Replica::new(), Replica::new()];
    let mut minute = |server: &mut Server, revision: i64, suspects: usize, begin: i64| {
        let mut writes = 0;
        for now in (begin..begin + 60).step_by(20) {
            for (replica, late) in replicas.iter_mut().zip([0, 2]) {
                fleet(replica, revision + (now - begin) / 5, suspects);
                writes += replica.act(server, now + late);
            }
        }
        writes
    };
    assert_eq!(minute(&mut server, 1, 0, T), 1000);
    // Revisions go on, and nothing that is shown changes.
    assert_eq!(minute(&mut server, 100, 0, T + 60), 0);
    assert_eq!(minute(&mut server, 200, 10, T + 120), 100);
    assert_eq!(minute(&mut server, 300, 10, T + 180), 0);
}
