//! Limits of plans and statuses, and the number of writes.

use drivebay_proto::agent::{DriveHealth, Finding, Overridden, Volume};

use super::{
    fixture::{Replica, Server, T, drive, suspect},
    *,
};

fn names(planned: &Planned) -> Vec<&str> {
    let writes = planned.writes.iter();
    writes.map(|write| write.name.as_str()).collect()
}

fn fleet(count: usize) -> Vec<Drive> {
    (0..count).map(|n| drive(&format!("wwn-{n}"))).collect()
}

#[test]
fn a_plan_has_no_more_writes_than_its_limit_and_counts_those_left_out() {
    let (server, mut replica) = (Server::default(), Replica::new());
    replica.limit = 10;
    replica.sees("n1", 1, &fleet(100));
    let planned = replica.plan(&server, T);
    assert_eq!((planned.writes.len(), planned.over), (10, 90));
    replica.limit = 100;
    let planned = replica.plan(&server, T);
    assert_eq!((planned.writes.len(), planned.over), (100, 0));
}

#[test]
fn changes_and_deletions_count_as_left_out_too() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.sees("n1", 1, &fleet(100)).act(&mut server, T);
    replica.limit = 10;
    let all: Vec<Drive> = (0..100).map(|n| suspect(&format!("wwn-{n}"))).collect();
    let planned = replica.sees("n1", 2, &all).plan(&server, T + 5);
    assert_eq!((planned.writes.len(), planned.over), (10, 90));
    replica.sees("n1", 3, &[]).plan(&server, T + 10);
    let planned = replica.plan(&server, T + 10 + GRACE);
    assert_eq!((planned.writes.len(), planned.over), (10, 90));
}

#[test]
fn drives_in_trouble_are_written_first_from_whatever_node_they_are() {
    let (server, mut replica) = (Server::default(), Replica::new());
    replica.limit = 1;
    replica.sees("n1", 1, &fleet(100));
    replica.sees("n2", 1, &[suspect("wwn-suspect")]);
    let planned = replica.plan(&server, T);
    assert_eq!(names(&planned), ["wwn-suspect"]);
    assert_eq!(planned.over, 100);
}

#[test]
fn all_objects_are_written_by_several_plans() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    replica.limit = 30;
    replica.sees("n1", 1, &fleet(100));
    for written in [30, 60, 90, 100] {
        replica.act(&mut server, T + 5);
        assert_eq!(server.objects.len(), written);
    }
    assert_eq!(replica.plan(&server, T + 5).over, 0);
}

#[test]
fn objects_that_are_set_aside_do_not_take_the_place_of_others() {
    let (mut server, mut replica) = (Server::default(), Replica::new());
    let mut all: Vec<Drive> = (0..20).map(|n| suspect(&format!("wwn-bad{n}"))).collect();
    replica.set_aside = all.iter().map(|drive| drive.id.clone()).collect();
    all.extend(fleet(10));
    replica.limit = 10;
    replica.sees("n1", 1, &all);
    let planned = replica.plan(&server, T);
    let are_others = names(&planned).iter().all(|name| !name.contains("bad"));
    assert!(are_others && planned.writes.len() == 10, "{planned:?}");
    assert_eq!(planned.over, 0);
    assert_eq!(replica.act(&mut server, T), 10);
    // Deletions of objects that are set aside are left out, too.
    replica.set_aside.insert("wwn-0".into());
    replica.sees("n1", 2, &[]).act(&mut server, T + 5);
    replica.act(&mut server, T + 5 + GRACE);
    let left: Vec<&String> = server.objects.keys().collect();
    assert_eq!(left, ["wwn-0"]);
    replica.set_aside.clear();
    replica.act(&mut server, T + 10 + GRACE);
    assert!(server.objects.is_empty());
}

#[test]
fn a_status_is_bounded_whatever_the_agent_reports() {
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
    // Later revisions that change no field of a status.
    assert_eq!(minute(&mut server, 100, 0, T + 60), 0);
    assert_eq!(minute(&mut server, 200, 10, T + 120), 100);
    assert_eq!(minute(&mut server, 300, 10, T + 180), 0);
}
