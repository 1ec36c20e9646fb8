//! Each rule of automatic evacuations: a case in which nothing else is in the way.

use super::*;
use crate::state::moves::Recent;
use drivebay_model::{
    Cordon, DriveState, Finding, RecordState, VolumeState,
    health::{Acknowledged, Overridden},
    samples,
};
use uuid::Uuid;

const GIB: u64 = 1 << 30;
const DELAY: Duration = Duration::from_secs(600);

fn id(name: &str) -> DriveId {
    samples::facts(name).id
}

/// A node on which drive `sda`, BAD and with volumes 1 and 2 of 1 GiB, is to be evacuated onto `sdb` and `sdc`.
struct Node {
    snapshot: Snapshot,
    classes: Vec<ClassConfig>,
    saved: Moves,
    drives_per_day: u32,
    held: Duration,
}

impl Node {
    fn new() -> Self {
        let mut snapshot = Snapshot {
            ready: true,
            ..Snapshot::default()
        };
        for (n, name) in ["sda", "sdb", "sdc"].into_iter().enumerate() {
            let volumes = match name {
                "sda" => [1, 2]
                    .map(|n| samples::placed(n, RecordState::Block))
                    .into(),
                _ => Vec::new(),
            };
            let contents = samples::contents(n as u128 + 1, 1, volumes, 2 * GIB);
            let drive = samples::drive(name, DriveState::Claimed, Some(contents.clone()));
            for placed in contents.volumes {
                let volume = samples::volume(&drive, placed);
                snapshot.volumes.insert(volume.uuid, volume);
            }
            snapshot.drives.insert(drive.id.clone(), drive);
        }
        let mut node = Self {
            snapshot,
            classes: vec![ClassConfig {
                evacuate: Evacuation::Bad,
                ..samples::class("bulk")
            }],
            saved: Moves::default(),
            drives_per_day: 1,
            held: DELAY,
        };
        node.fails("sda", Verdict::Bad);
        node
    }

    fn drive(&mut self, name: &str) -> &mut Drive {
        self.snapshot.drives.get_mut(&id(name)).unwrap()
    }

    fn fails(&mut self, name: &str, verdict: Verdict) {
        let health = &mut self.drive(name).health;
        health.verdict = verdict;
        health.findings = vec![Finding::new("PendingSectors", "replace it")];
    }

    /// Another drive that is listed and in no class.
    fn add(&mut self, name: &str, state: DriveState, verdict: Verdict) {
        let mut drive = samples::drive(name, state, None);
        drive.class = None;
        drive.health.verdict = verdict;
        self.snapshot.drives.insert(drive.id.clone(), drive);
    }

    /// Volume `n` is being moved.
    fn moving(&mut self, n: u128, from: &str, to: &str, automatic: bool) {
        let record = MoveRecord {
            name: format!("pvc-{n}"),
            automatic,
            by: "evacuate = bad".into(),
            ..MoveRecord::sample(
                id(from),
                id(to),
                crate::state::moves::MoveProgress::Requested,
            )
        };
        self.saved.moves.insert(Uuid::from_u128(n), record);
    }

    fn decide(&self) -> Decision {
        let start = Instant::now();
        let mut held = Held::default();
        held.observe(&self.snapshot, &self.classes, start);
        let basis = Basis {
            snapshot: &self.snapshot,
            classes: &self.classes,
            saved: &self.saved,
            node: "n",
            bounds: AutomaticConfig {
                drives_per_day: self.drives_per_day,
                delay: DELAY,
            },
        };
        decide(basis, &held, start + self.held)
    }

    /// The drive that is evacuated and its targets.
    fn begins(&self) -> Option<(DriveId, Vec<String>)> {
        let evacuate = self.decide().evacuate?;
        Some((evacuate.drive, evacuate.request.to))
    }

    fn obstacle(&self, name: &str) -> Obstacle {
        let decision = self.decide();
        assert_eq!(decision.evacuate, None);
        let [(drive, obstacle)] = decision.refused.as_slice() else {
            panic!("{decision:?}")
        };
        assert_eq!(*drive, id(name));
        obstacle.clone()
    }

    /// Nothing is evacuated, and there is no reason to.
    fn is_quiet(&self) {
        assert_eq!(self.decide(), Decision::default());
    }
}

fn targets(names: &[&str]) -> Option<(DriveId, Vec<String>)> {
    let names = names.iter().map(|name| id(name).0);
    Some((id("sda"), names.collect()))
}

#[test]
fn a_drive_that_has_been_bad_for_long_enough_is_evacuated_as_a_whole_in_the_name_of_its_class() {
    let node = Node::new();
    let evacuate = node.decide().evacuate.unwrap();
    let scope = MoveScope::Drive {
        name: id("sda").0,
        only: Vec::new(),
    };
    assert_eq!(
        (&evacuate.drive, evacuate.verdict),
        (&id("sda"), Verdict::Bad)
    );
    assert_eq!(
        (evacuate.request.scope, evacuate.request.hold),
        (scope, false)
    );
    assert_eq!(evacuate.request.by, "evacuate = bad");
    assert_eq!(node.begins(), targets(&["sdb", "sdc"]));
}

#[test]
fn the_class_sets_the_verdict_at_which_an_evacuation_begins() {
    for (evacuate, verdict, begins) in [
        (Evacuation::Manual, Verdict::Bad, false),
        (Evacuation::Bad, Verdict::Suspect, false),
        (Evacuation::Suspect, Verdict::Suspect, true),
        (Evacuation::Suspect, Verdict::Bad, true),
        (Evacuation::Suspect, Verdict::Good, false),
        (Evacuation::Suspect, Verdict::Unknown, false),
    ] {
        let mut node = Node::new();
        node.classes[0].evacuate = evacuate;
        node.fails("sda", verdict);
        assert_eq!(node.begins().is_some(), begins, "{evacuate:?} {verdict}");
        if !begins {
            node.is_quiet();
        }
    }
    let mut in_no_class = Node::new();
    in_no_class.drive("sda").class = Some("other".into());
    in_no_class.is_quiet();
}

#[test]
fn nothing_is_decided_before_the_first_scan_nor_for_a_drive_without_volumes_to_move() {
    let mut starting = Node::new();
    starting.snapshot.ready = false;
    starting.is_quiet();
    let mut empty = Node::new();
    empty.snapshot.volumes.clear();
    empty.is_quiet();
    let mut moving = Node::new();
    moving.moving(1, "sda", "sdb", false);
    moving.moving(2, "sda", "sdb", false);
    moving.is_quiet();
    let mut deleted = Node::new();
    for volume in deleted.snapshot.volumes.values_mut() {
        volume.state = VolumeState::Erasing;
    }
    deleted.is_quiet();
}

#[test]
fn a_verdict_that_has_not_held_long_enough_moves_nothing() {
    let mut node = Node::new();
    node.held = DELAY - Duration::from_secs(1);
    assert_eq!(node.obstacle("sda"), Obstacle::TooRecent(DELAY));
}

#[test]
fn a_verdict_that_was_left_in_between_is_counted_from_its_return() {
    let (bad, mut good, mut starting) = (Node::new(), Node::new(), Node::new());
    good.fails("sda", Verdict::Good);
    starting.snapshot.ready = false;
    let start = Instant::now();
    let minutes = |n: u64| start + Duration::from_secs(60 * n);
    for other in [&good, &starting] {
        let mut held = Held::default();
        held.observe(&bad.snapshot, &bad.classes, start);
        held.observe(&bad.snapshot, &bad.classes, minutes(5));
        assert_eq!(held.since(&id("sda"), minutes(5)), Duration::from_secs(300));
        held.observe(&other.snapshot, &bad.classes, minutes(6));
        held.observe(&bad.snapshot, &bad.classes, minutes(7));
        assert_eq!(held.since(&id("sda"), minutes(8)), Duration::from_secs(60));
    }
}

#[test]
fn only_a_verdict_from_evidence_that_this_agent_saw_and_nobody_acknowledged_counts() {
    let mut last_known = Node::new();
    last_known.drive("sda").health.poll = PollState::LastKnown;
    assert_eq!(last_known.obstacle("sda"), Obstacle::NotObserved);

    for takes_new_volumes in [false, true] {
        let mut acknowledged = Node::new();
        let health = &mut acknowledged.drive("sda").health;
        health.findings[0].acknowledged = true;
        health.acknowledged = Some(Acknowledged {
            takes_new_volumes,
            ..Acknowledged::default()
        });
        assert_eq!(acknowledged.obstacle("sda"), Obstacle::Acknowledged);
        // Something else is found.
        let health = &mut acknowledged.drive("sda").health;
        health.findings.push(Finding::new("KernelIoError", ""));
        assert!(acknowledged.begins().is_some());
    }

    for (otherwise, begins) in [(Verdict::Suspect, false), (Verdict::Bad, true)] {
        let mut overridden = Node::new();
        overridden.drive("sda").health.overridden = Some(Overridden {
            reason: "recalled".into(),
            until: None,
            otherwise,
        });
        assert_eq!(overridden.begins().is_some(), begins, "{otherwise}");
        if !begins {
            let expected = Obstacle::Overridden(otherwise);
            assert_eq!(overridden.obstacle("sda"), expected);
        }
    }
}

#[test]
fn a_drive_is_not_begun_again_within_a_day_nor_after_an_operator_cancelled() {
    for (recent, expected) in [
        (
            Recent {
                begun_seconds: Some(86_399),
                cancelled_seconds: None,
            },
            Obstacle::Begun,
        ),
        (
            Recent {
                begun_seconds: None,
                cancelled_seconds: Some(86_399),
            },
            Obstacle::Cancelled,
        ),
    ] {
        let mut node = Node::new();
        node.drives_per_day = 2;
        node.saved.automatic.insert(id("sda"), recent);
        assert_eq!(node.obstacle("sda"), expected);
        node.saved.age(1);
        assert!(node.begins().is_some());
    }
}

#[test]
fn the_budget_of_a_day_counts_the_drives_that_were_begun() {
    let mut node = Node::new();
    let begun = Recent {
        begun_seconds: Some(5),
        cancelled_seconds: None,
    };
    node.saved.automatic.insert(id("sdx"), begun);
    let expected = Obstacle::Budget {
        begun: 1,
        budget: 1,
    };
    assert_eq!(node.obstacle("sda"), expected);
    node.drives_per_day = 2;
    assert!(node.begins().is_some());
    node.drives_per_day = 0;
    node.saved.automatic.clear();
    let expected = Obstacle::Budget {
        begun: 0,
        budget: 0,
    };
    assert_eq!(node.obstacle("sda"), expected);
    // An operator's cancelled move was not begun by the agent.
    node.drives_per_day = 1;
    let cancelled = Recent {
        begun_seconds: None,
        cancelled_seconds: Some(5),
    };
    node.saved.automatic.insert(id("sdx"), cancelled);
    assert!(node.begins().is_some());
}

#[test]
fn nothing_is_begun_while_more_than_one_drive_of_the_node_is_bad() {
    for state in [
        DriveState::Rejected,
        DriveState::Missing,
        DriveState::Claimed,
    ] {
        let mut node = Node::new();
        node.add("sdx", state, Verdict::Bad);
        let Obstacle::SeveralBad(names) = node.obstacle("sda") else {
            panic!("{state}")
        };
        assert_eq!(names, "wwn-sda, wwn-sdx");
    }
    // Two paths to one drive, and one that is only SUSPECT.
    let mut node = Node::new();
    node.add("sdx", DriveState::Rejected, Verdict::Bad);
    node.add("sdy", DriveState::Rejected, Verdict::Suspect);
    node.drive("sdx").facts.id = id("sda");
    assert!(node.begins().is_some());
}

#[test]
fn one_drive_at_a_time_is_evacuated_without_a_request() {
    let mut node = Node::new();
    node.moving(9, "sdx", "sdc", true);
    assert_eq!(node.obstacle("sda"), Obstacle::OneAtATime(id("sdx")));
    // An operator's moves and completed ones are no obstacle.
    node.moving(9, "sdx", "sdc", false);
    assert!(node.begins().is_some());
    node.moving(9, "sdx", "sdc", true);
    let record = node.saved.moves.get_mut(&Uuid::from_u128(9)).unwrap();
    record.progress = crate::state::moves::MoveProgress::Moved {
        note: None,
        kept_seconds: 0,
        used: false,
        now: false,
    };
    assert!(node.begins().is_some());
}

#[test]
fn of_two_failing_drives_the_worse_one_is_first() {
    let mut node = Node::new();
    node.classes[0].evacuate = Evacuation::Suspect;
    node.fails("sda", Verdict::Suspect);
    node.fails("sdb", Verdict::Bad);
    let sdb = node.drive("sdb").clone();
    let mut volume = samples::volume(&sdb, samples::placed(3, RecordState::Block));
    volume.uuid = Uuid::from_u128(3);
    node.snapshot.volumes.insert(volume.uuid, volume);
    assert_eq!(node.begins().unwrap().0, id("sdb"));
}

#[test]
fn a_drive_is_evacuated_only_if_all_its_volumes_can_be_moved() {
    let mut full = Node::new();
    for name in ["sdb", "sdc"] {
        full.drive(name).contents.as_mut().unwrap().free[0].len = GIB / 2;
    }
    assert!(matches!(full.obstacle("sda"), Obstacle::NotPossible(_)));
    full.drive("sdb").contents.as_mut().unwrap().free[0].len = GIB;
    // Room for one of two.
    assert!(matches!(full.obstacle("sda"), Obstacle::NotPossible(_)));
    full.drive("sdb").contents.as_mut().unwrap().free[0].len = 2 * GIB;
    assert!(full.begins().is_some());

    let mut ambiguous = Node::new();
    let volume = ambiguous.snapshot.volumes.get_mut(&Uuid::from_u128(1));
    volume.unwrap().state = VolumeState::Ambiguous;
    assert!(matches!(
        ambiguous.obstacle("sda"),
        Obstacle::NotPossible(_)
    ));

    let mut silent = Node::new();
    silent.drive("sda").trouble = Some("it is stuck".into());
    assert!(matches!(silent.obstacle("sda"), Obstacle::NotPossible(_)));
    let mut missing = Node::new();
    missing.drive("sda").state = DriveState::Missing;
    assert!(matches!(missing.obstacle("sda"), Obstacle::NotPossible(_)));
}

#[test]
fn a_drive_that_fails_is_cordoned_silent_or_acknowledged_is_no_target() {
    let cordon = |drive: &mut Drive| {
        drive.contents.as_mut().unwrap().label.cordon = Some(Cordon {
            at: 0,
            by: "ann".into(),
            reason: String::new(),
        });
    };
    let acknowledge = |drive: &mut Drive| {
        let health = &mut drive.health;
        health.verdict = Verdict::Suspect;
        health.findings = vec![Finding {
            acknowledged: true,
            ..Finding::new("KernelIoError", "")
        }];
        health.acknowledged = Some(Acknowledged {
            takes_new_volumes: true,
            ..Acknowledged::default()
        });
        // An operator's move may go there.
        assert!(drive.is_fit());
    };
    type Change<'a> = &'a dyn Fn(&mut Drive);
    let cases: [(&str, Change<'_>); 6] = [
        ("cordoned", &cordon),
        ("acknowledged", &acknowledge),
        ("suspect", &|drive| drive.health.verdict = Verdict::Suspect),
        ("worn out", &|drive| drive.health.worn_out = true),
        ("silent", &|drive| drive.trouble = Some("stuck".into())),
        ("missing", &|drive| drive.state = DriveState::Missing),
    ];
    for (what, change) in cases {
        let mut node = Node::new();
        change(node.drive("sdb"));
        assert_eq!(node.begins(), targets(&["sdc"]), "{what}");
        change(node.drive("sdc"));
        assert_eq!(node.obstacle("sda"), Obstacle::NoTarget, "{what}");
    }
    let mut blank = Node::new();
    blank.drive("sdb").state = DriveState::Available;
    assert_eq!(blank.begins(), targets(&["sdb", "sdc"]));
}

#[test]
fn a_drive_that_an_operator_cordoned_is_evacuated_all_the_same() {
    let mut node = Node::new();
    let contents = node.drive("sda").contents.as_mut().unwrap();
    contents.label.cordon = Some(Cordon {
        at: 0,
        by: "ann".into(),
        reason: "ticket-4711".into(),
    });
    assert_eq!(node.begins(), targets(&["sdb", "sdc"]));
}

#[test]
fn volumes_are_spread_over_the_targets_as_new_ones_would_be() {
    let node = Node::new();
    let request = node.decide().evacuate.unwrap().request;
    let plan = plan::plan(
        &node.snapshot,
        &node.classes,
        &BTreeMap::new(),
        "n",
        &request,
    );
    let to: BTreeSet<&DriveId> = plan.moves.iter().map(|one| &one.to).collect();
    assert_eq!((plan.moves.len(), to.len()), (2, 2));
}
