use drivebay_proto::agent::Drive;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::*;
use drivebay_objects::{
    task::{Cordon, DriveTaskSpec, Evacuate, Replace},
    times::format_time,
};

const NOW: i64 = 1_800_000_000;

fn drive(id: &str) -> Drive {
    Drive {
        id: id.to_owned(),
        kernel_name: "sda".to_owned(),
        state: "claimed".to_owned(),
        ..Drive::default()
    }
}

/// A task that was created at this time.
fn task(name: &str, drive: &str, created: i64) -> DriveTask {
    let mut task = DriveTask::new(
        name,
        DriveTaskSpec {
            drive: drive.to_owned(),
            by: "ann".to_owned(),
            issued_at: format_time(created),
            cordon: Some(Cordon::default()),
            ..DriveTaskSpec::default()
        },
    );
    task.metadata.uid = Some(format!("uid-{name}"));
    let at = Timestamp::from_second(created).unwrap();
    task.metadata.creation_timestamp = Some(Time(at));
    task
}

fn evacuation(name: &str, drive: &str, created: i64) -> DriveTask {
    let mut task = task(name, drive, created);
    task.spec.cordon = None;
    task.spec.evacuate = Some(Evacuate::default());
    task
}

fn with(mut task: DriveTask, phase: &str, handled: i64) -> DriveTask {
    let status = task.status.get_or_insert_default();
    status.phase = phase.to_owned();
    status.handled_at = format_time(handled);
    task
}

/// Options of a plan; by default of this process, with nothing moving.
struct Plan<'a> {
    names: Names,
    is_settled: bool,
    moving: &'a [&'a str],
    max: usize,
    set_aside: BTreeSet<String>,
    deleted: BTreeMap<String, i64>,
}

impl Plan<'_> {
    fn new() -> Self {
        let one = [drive("wwn-1"), drive("wwn-2"), drive("wwn-3")];
        let two = [drive("wwn-4")];
        Self {
            names: Names::test(&[("n1", true, &one), ("n2", true, &two)]),
            is_settled: true,
            moving: &[],
            max: 4,
            set_aside: BTreeSet::new(),
            deleted: BTreeMap::new(),
        }
    }

    fn of(&self, tasks: &[DriveTask]) -> Vec<(String, Decision)> {
        let moving = self.moving.iter().map(|node| (*node).to_owned());
        let moving_nodes = moving.collect();
        let context = Context {
            controller: "me",
            now: NOW,
            names: &self.names,
            is_settled: self.is_settled,
            moving_nodes: &moving_nodes,
            max_evacuations: self.max,
            set_aside: &self.set_aside,
            deleted: &self.deleted,
        };
        let decisions = plan(tasks.iter(), &context).into_iter();
        let named = decisions.map(|(task, it)| (task.metadata.name.clone().unwrap(), it));
        named.collect()
    }

    fn one(&self, task: &DriveTask) -> Decision {
        let decisions = self.of(std::slice::from_ref(task));
        decisions
            .into_iter()
            .next()
            .map_or(Decision::Leave, |(_, it)| it)
    }
}

fn reason(decision: &Decision) -> &'static str {
    match decision {
        Decision::Leave => "leave",
        Decision::Wait { reason, .. } => reason,
        Decision::Start(_) => "start",
        Decision::Watch => "watch",
        Decision::Fail { reason, .. } => reason,
        Decision::Delete => "delete",
    }
}

#[test]
fn a_new_task_starts_on_the_node_of_its_drive() {
    let target = Target {
        node: "n2".to_owned(),
        drive: "wwn-4".to_owned(),
        to: Vec::new(),
    };
    let new = task("a", "wwn-4", NOW - 5);
    assert_eq!(Plan::new().one(&new), Decision::Start(target));
}

#[test]
fn an_order_that_is_first_seen_after_an_hour_is_refused_whatever_its_object_has() {
    let plan = Plan::new();
    assert_eq!(
        reason(&plan.one(&task("a", "wwn-1", NOW - TOO_OLD))),
        "start"
    );
    assert_eq!(
        reason(&plan.one(&task("a", "wwn-1", NOW - TOO_OLD - 1))),
        "Expired"
    );
    // A backup that creates objects again gives them a new time of creation.
    let mut restored = task("a", "wwn-1", NOW);
    restored.spec.issued_at = format_time(NOW - TOO_OLD - 1);
    assert_eq!(reason(&plan.one(&restored)), "Expired");
    // One of the whole cluster restores their status, too.
    let pending = with(task("a", "wwn-1", NOW - 90_000), "Pending", NOW - 86_400);
    assert_eq!(reason(&plan.one(&pending)), "Expired");
    let running = with(task("a", "wwn-1", NOW - 90_000), "Running", NOW - 86_400);
    assert_eq!(reason(&plan.one(&running)), "OutcomeUnknown");
    // An evacuation that waits for its turn is handled all the time.
    let queued = with(evacuation("a", "wwn-1", NOW - 90_000), "Pending", NOW - 60);
    assert_eq!(reason(&plan.one(&queued)), "start");
    let mut future = task("a", "wwn-1", NOW);
    future.spec.issued_at = format_time(NOW + SKEW + 1);
    assert_eq!(reason(&plan.one(&future)), "IssuedInFuture");
    future.spec.issued_at = "yesterday".to_owned();
    assert_eq!(reason(&plan.one(&future)), "Invalid");
}

#[test]
fn the_same_order_is_carried_out_once() {
    let first = task("a", "wwn-1", NOW - 60);
    let mut again = task("b", "wwn-1", NOW - 5);
    again.spec.issued_at.clone_from(&first.spec.issued_at);
    let decisions = Plan::new().of(&[again.clone(), first.clone()]);
    let reasons: Vec<_> = decisions
        .iter()
        .map(|(name, it)| (name.as_str(), reason(it)))
        .collect();
    assert_eq!(reasons, [("a", "start"), ("b", "AlreadyCarriedOut")]);
    // Also after the first one has ended, or was deleted.
    let ended = with(first.clone(), "Succeeded", NOW - 50);
    let decisions = Plan::new().of(&[again.clone(), ended]);
    assert_eq!(reason(&decisions[0].1), "AlreadyCarriedOut");
    let mut plan = Plan::new();
    plan.deleted.insert(key(&first), NOW - 30);
    assert_eq!(reason(&plan.one(&again)), "AlreadyCarriedOut");
    again.spec.issued_at = format_time(NOW - 4);
    assert_eq!(reason(&plan.one(&again)), "start");
}

#[test]
fn a_drive_that_no_node_reports_is_waited_for_only_while_a_node_is_missing() {
    let unknown = task("a", "wwn-9", NOW - 5);
    let mut plan = Plan::new();
    assert!(matches!(
        plan.one(&unknown),
        Decision::Fail {
            reason: "DriveNotFound",
            ..
        }
    ));
    plan.is_settled = false;
    assert!(matches!(
        plan.one(&unknown),
        Decision::Wait {
            reason: "DriveNotFound",
            ..
        }
    ));
    let mut late = with(task("a", "wwn-9", NOW - TOO_OLD - 1), "Pending", NOW - 60);
    let status = late.status.as_mut().unwrap();
    status.reason = "DriveNotFound".to_owned();
    status.since = format_time(NOW - TOO_OLD - 1);
    assert!(matches!(
        plan.one(&late),
        Decision::Fail {
            reason: "DriveNotFound",
            ..
        }
    ));
    plan.names = Names::test(&[("n1", false, &[drive("wwn-1")])]);
    let away = plan.one(&task("a", "wwn-1", NOW - 5));
    assert!(matches!(
        away,
        Decision::Wait {
            reason: "AgentDisconnected",
            ..
        }
    ));
}

#[test]
fn a_drive_of_two_nodes_is_that_of_the_one_that_uses_it_or_of_none() {
    let used = [drive("wwn-1")];
    let mut missing = drive("wwn-1");
    missing.state = "missing".to_owned();
    let missing = [missing];
    let node = |names: Names| match names.find("wwn-1") {
        Lookup::Found {
            node, is_connected, ..
        } => (node, is_connected),
        other => (format!("{other:?}"), false),
    };
    let both = Names::test(&[("n1", true, &missing), ("n2", true, &used)]);
    assert_eq!(node(both), ("n2".to_owned(), true));
    // It was moved from a node whose agent is not connected.
    let moved = Names::test(&[("n1", false, &used), ("n2", true, &used)]);
    assert_eq!(node(moved), ("n2".to_owned(), true));
    let mut plan = Plan::new();
    plan.names = Names::test(&[("n1", true, &used), ("n2", true, &used)]);
    let two = plan.one(&task("a", "wwn-1", NOW - 5));
    assert!(matches!(
        two,
        Decision::Fail {
            reason: "Conflict",
            ..
        }
    ));
}

#[test]
fn one_evacuation_runs_on_a_node_and_a_bounded_number_in_the_cluster() {
    let mut plan = Plan::new();
    let tasks = [
        evacuation("b", "wwn-2", NOW - 50),
        evacuation("a", "wwn-1", NOW - 60),
        evacuation("c", "wwn-4", NOW - 40),
        task("d", "wwn-3", NOW - 30),
    ];
    let reasons = |plan: &Plan<'_>, tasks: &[DriveTask]| {
        let decisions = plan.of(tasks);
        let reasons = decisions
            .iter()
            .map(|(name, it)| format!("{name} {}", reason(it)));
        reasons.collect::<Vec<_>>()
    };
    assert_eq!(
        reasons(&plan, &tasks),
        ["a start", "b WaitingForNode", "c start", "d start"]
    );
    plan.max = 1;
    assert_eq!(
        reasons(&plan, &tasks),
        [
            "a start",
            "b WaitingForNode",
            "c WaitingForCluster",
            "d start"
        ]
    );
    // Moves that were requested without a task, and a running one of another replica.
    plan.max = 4;
    plan.moving = &["n2"];
    let mut running = with(tasks[1].clone(), "Running", NOW - 3);
    running.status.as_mut().unwrap().node = "n1".to_owned();
    let tasks = [running, tasks[0].clone(), tasks[2].clone()];
    assert_eq!(
        reasons(&plan, &tasks),
        ["b WaitingForNode", "c WaitingForNode"]
    );
}

#[test]
fn tasks_of_one_drive_are_carried_out_in_the_order_of_their_creation() {
    let plan = Plan::new();
    let mut uncordon = task("a", "wwn-1", NOW - 60);
    uncordon.spec.cordon = None;
    uncordon.spec.uncordon = Some(Default::default());
    let later = [task("b", "wwn-1", NOW - 50), task("c", "wwn-2", NOW - 40)];
    let reasons = |first: &DriveTask| {
        let tasks = [later[1].clone(), later[0].clone(), first.clone()];
        let decisions = plan.of(&tasks);
        let reasons = decisions.iter();
        let reasons = reasons.map(|(name, it)| format!("{name} {}", reason(it)));
        reasons.collect::<Vec<_>>()
    };
    assert_eq!(
        reasons(&uncordon),
        ["a start", "b WaitingForDrive", "c start"]
    );
    // Requested, and not answered.
    let running = with(uncordon.clone(), "Running", NOW - 3);
    assert_eq!(reasons(&running), ["b WaitingForDrive", "c start"]);
    assert_eq!(
        reasons(&with(uncordon, "Succeeded", NOW - 3)),
        ["b start", "c start"]
    );
}

#[test]
fn volumes_move_only_to_drives_of_their_node() {
    let mut replace = task("a", "wwn-1", NOW - 5);
    replace.spec.cordon = None;
    let mut with = |name: &str| {
        replace.spec.replace = Some(Replace {
            with: name.to_owned(),
        });
        Plan::new().one(&replace)
    };
    let Decision::Start(target) = with("wwn-2") else {
        panic!("not started");
    };
    assert_eq!(target.to, ["wwn-2"]);
    assert_eq!(reason(&with("wwn-4")), "OtherNode");
    assert_eq!(reason(&with("wwn-9")), "DriveNotFound");
}

#[test]
fn a_running_task_is_left_to_its_controller_until_that_is_silent() {
    let plan = Plan::new();
    let running = |controller: &str, accepted: bool, ago: i64| {
        let mut task = with(evacuation("a", "wwn-1", NOW - 300), "Running", NOW - ago);
        let status = task.status.as_mut().unwrap();
        status.controller = controller.to_owned();
        status.accepted = accepted;
        (status.node, status.identity) = ("n1".to_owned(), "wwn-1".to_owned());
        reason(&plan.one(&task))
    };
    for (controller, accepted, ago, expected) in [
        ("me", true, POLL - 1, "leave"),
        ("me", true, POLL, "watch"),
        ("me", false, RETRY - 1, "leave"),
        ("me", false, RETRY, "start"),
        ("other", true, TAKEOVER - 1, "leave"),
        ("other", true, TAKEOVER, "watch"),
        ("other", false, TAKEOVER - 1, "leave"),
        ("other", false, TAKEOVER, "start"),
        // The moves go on without a controller, for however long.
        ("other", true, 90_000, "watch"),
    ] {
        let is = running(controller, accepted, ago);
        assert_eq!(is, expected, "{controller} {accepted} {ago}");
    }
}

#[test]
fn a_status_is_not_written_again_while_it_waits_for_the_same() {
    let mut plan = Plan::new();
    plan.moving = &["n1"];
    let new = evacuation("a", "wwn-1", NOW - 5);
    let Decision::Wait {
        reason: why,
        message,
    } = plan.one(&new)
    else {
        panic!("it does not wait");
    };
    let mut waiting = with(new, "Pending", NOW - 5);
    let status = waiting.status.as_mut().unwrap();
    (status.reason, status.message) = (why.to_owned(), message);
    assert_eq!(plan.one(&waiting), Decision::Leave);
    let status = waiting.status.as_mut().unwrap();
    status.handled_at = format_time(NOW - REFRESH);
    assert_eq!(reason(&plan.one(&waiting)), why);
}

#[test]
fn a_finished_task_goes_after_its_time() {
    let plan = Plan::new();
    let mut ended = with(task("a", "wwn-1", NOW - 700_000), "Failed", NOW - 700_000);
    ended.status.as_mut().unwrap().finished_at = format_time(NOW - DEFAULT_TTL + 1);
    assert_eq!(plan.one(&ended), Decision::Leave);
    ended.status.as_mut().unwrap().finished_at = format_time(NOW - DEFAULT_TTL);
    assert_eq!(plan.one(&ended), Decision::Delete);
    ended.spec.ttl_seconds_after_finished = Some(DEFAULT_TTL + 1);
    assert_eq!(plan.one(&ended), Decision::Leave);
}

#[test]
fn a_request_is_not_repeated_for_more_than_an_hour() {
    let plan = Plan::new();
    let requested = |since: i64| {
        let mut task = with(task("a", "wwn-1", NOW - 90_000), "Running", NOW - 60);
        let status = task.status.as_mut().unwrap();
        status.controller = "me".to_owned();
        status.started_at = format_time(NOW - since);
        // A change of the reason does not begin the hour again.
        status.since = format_time(NOW - 60);
        reason(&plan.one(&task))
    };
    assert_eq!(requested(TOO_OLD), "start");
    assert_eq!(requested(TOO_OLD + 1), "OutcomeUnknown");
}

#[test]
fn a_task_that_waited_for_its_turn_has_an_hour_for_its_agent() {
    let mut plan = Plan::new();
    plan.names = Names::test(&[("n1", false, &[drive("wwn-1")])]);
    let mut task = with(task("a", "wwn-1", NOW - 90_000), "Pending", NOW - 60);
    assert!(matches!(plan.one(&task), Decision::Wait { .. }));
    let status = task.status.as_mut().unwrap();
    status.reason = "AgentDisconnected".to_owned();
    status.since = format_time(NOW - TOO_OLD);
    assert!(matches!(plan.one(&task), Decision::Wait { .. }));
    task.status.as_mut().unwrap().since = format_time(NOW - TOO_OLD - 1);
    assert!(matches!(
        plan.one(&task),
        Decision::Fail {
            reason: "AgentDisconnected",
            ..
        }
    ));
    // One that may have been requested fails with a result that is not known.
    let mut task = with(task, "Running", NOW - TAKEOVER);
    assert_eq!(reason(&plan.one(&task)), "OutcomeUnknown");
    plan = Plan::new();
    task.spec.cordon = None;
    task.spec.replace = Some(Replace {
        with: "wwn-4".to_owned(),
    });
    assert_eq!(reason(&plan.one(&task)), "OutcomeUnknown");
}

#[test]
fn a_task_that_is_set_aside_holds_up_no_other_and_is_still_the_first_of_its_copies() {
    let mut plan = Plan::new();
    let first = evacuation("a", "wwn-1", NOW - 60);
    let mut copy = evacuation("c", "wwn-1", NOW - 40);
    copy.spec.issued_at.clone_from(&first.spec.issued_at);
    let tasks = [first, evacuation("b", "wwn-2", NOW - 50), copy];
    plan.set_aside = ["a".to_owned()].into();
    let decisions = plan.of(&tasks);
    let reasons: Vec<_> = decisions
        .iter()
        .map(|(name, it)| (name.as_str(), reason(it)))
        .collect();
    assert_eq!(reasons, [("b", "start"), ("c", "AlreadyCarriedOut")]);
}
