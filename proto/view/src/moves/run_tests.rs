//! Commands against a fake agent with scripted answers.

use std::{collections::VecDeque, future::pending};

use drivebay_proto::agent::PlannedMove;

use super::{super::progress::tests::awaited, *};

/// Returns the scripted lists in order, then the last one again.
#[derive(Debug, Default)]
struct Fake {
    planned: MoveVolumesResponse,
    lists: VecDeque<Vec<Move>>,
    requests: Vec<MoveVolumesRequest>,
    cancelled: CancelMovesResponse,
}

impl MovesClient for Fake {
    async fn move_volumes(
        &mut self,
        request: MoveVolumesRequest,
    ) -> Result<MoveVolumesResponse, QueryError> {
        self.requests.push(request);
        Ok(self.planned.clone())
    }

    async fn cancel_moves(
        &mut self,
        request: CancelMovesRequest,
    ) -> Result<CancelMovesResponse, QueryError> {
        assert_eq!(request.by, "ann");
        Ok(self.cancelled.clone())
    }

    async fn list_moves(&mut self) -> Result<ListMovesResponse, QueryError> {
        let moves = match self.lists.len() {
            0 | 1 => self.lists.front().cloned().unwrap_or_default(),
            _ => self.lists.pop_front().unwrap_or_default(),
        };
        Ok(ListMovesResponse {
            moves,
            ..ListMovesResponse::default()
        })
    }
}

fn of(name: &str, phase: &str) -> Move {
    awaited(name, phase, 0).it
}

fn planned(names: &[(&str, bool)]) -> MoveVolumesResponse {
    let moves = names.iter().map(|(name, in_use)| PlannedMove {
        volume_id: format!("{name}@n"),
        name: (*name).into(),
        in_use: *in_use,
        ..PlannedMove::default()
    });
    MoveVolumesResponse {
        drive: "wwn-a".into(),
        moves: moves.collect(),
        ..MoveVolumesResponse::default()
    }
}

fn order(verb: Verb<'static>) -> Order<'static> {
    let volume = match verb {
        Verb::MoveVolume => "db@n",
        _ => "",
    };
    Order {
        verb,
        volume: volume.into(),
        drive: if volume.is_empty() { "wwn-a" } else { "" }.into(),
        only: Vec::new(),
        to: Vec::new(),
        hold: false,
        abort_on_error: false,
        plan: false,
        cancel: false,
        wait: true,
        by: Some("ann"),
        devices: Devices::default(),
        program: "drivebay-agent",
        node: None,
        terminal: Terminal::NONE,
    }
}

async fn answer_to(order: &Order<'_>, planned: MoveVolumesResponse, lists: &[&[Move]]) -> Answer {
    let mut fake = Fake {
        planned,
        lists: lists.iter().map(|list| list.to_vec()).collect(),
        ..Fake::default()
    };
    run(&mut fake, order).await.unwrap()
}

const BOTH: [(&str, bool); 2] = [("db", false), ("web", false)];

#[tokio::test(start_paused = true)]
async fn an_evacuation_ends_when_all_is_moved_and_reports_what_comes_next() {
    let lists: &[&[Move]] = &[
        &[of("db", "waiting"), of("web", "waiting")],
        &[of("db", "copying"), of("web", "waiting")],
        &[of("db", "moved"), of("web", "completing")],
        // The old place of the other one is erased already.
        &[of("db", "moved")],
    ];
    let answer = answer_to(&order(Verb::Evacuate), planned(&BOTH), lists).await;
    assert_eq!(
        answer.text,
        "\
2 volumes moved off drive wwn-a
`drivebay-agent drive retire wwn-a` says whether it may be taken out
"
    );
    assert_eq!(answer.code, 0);
    let verb = Verb::Replace { new: "wwn-b" };
    let answer = answer_to(&order(verb), planned(&BOTH), lists).await;
    assert!(
        answer
            .text
            .starts_with("2 volumes moved from drive wwn-a to drive wwn-b\n"),
        "{}",
        answer.text
    );
    let lists: &[&[Move]] = &[&[of("db", "moved")]];
    let answer = answer_to(&order(Verb::MoveVolume), planned(&BOTH[..1]), lists).await;
    assert_eq!(answer.text, "db: moved to drive wwn-b\n");
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_being_unstaged_is_reported_and_not_waited_for() {
    let mut held = of("web", "waiting");
    held.waits_for = "pod shop/web-0 uses it".into();
    let planned = planned(&[("db", false), ("web", true)]);
    let lists: &[&[Move]] = &[
        &[of("db", "copying"), held.clone()],
        &[of("db", "moved"), held],
    ];
    let began = Instant::now();
    let answer = answer_to(&order(Verb::Evacuate), planned, lists).await;
    assert!(began.elapsed() < SETTLE);
    assert_eq!(
        answer.text,
        "\
1 of 2 volumes moved
moved by themselves once they are unstaged:
  web: pod shop/web-0 uses it
`drivebay-agent moves` shows them, `drivebay-agent drive evacuate wwn-a --cancel` ends those that are not completed
"
    );
    assert_eq!(answer.code, LEFT_WAITING);
}

#[tokio::test(start_paused = true)]
async fn a_gap_between_two_volumes_is_waited_for_and_a_standstill_is_not() {
    let mut failing = of("web", "waiting");
    failing.waits_for = "drive wwn-b does not answer".into();
    let gap = [of("db", "moved"), of("web", "waiting")];
    let lists: &[&[Move]] = &[
        &[of("db", "copying"), of("web", "waiting")],
        &gap,
        &gap,
        &[of("db", "moved"), of("web", "copying")],
        &[of("db", "moved"), failing],
    ];
    let began = Instant::now();
    let answer = answer_to(&order(Verb::Evacuate), planned(&BOTH), lists).await;
    assert!(began.elapsed() >= SETTLE && began.elapsed() < SETTLE * 2);
    assert!(
        answer
            .text
            .contains("still waiting:\n  web: drive wwn-b does not answer\n"),
        "{}",
        answer.text
    );
    assert_eq!(answer.code, LEFT_WAITING);
}

#[tokio::test(start_paused = true)]
async fn doubt_and_moves_that_somebody_ended_are_failures() {
    let lists: &[&[Move]] = &[
        &[of("db", "copying"), of("web", "copying")],
        &[of("db", "in-doubt")],
    ];
    let answer = answer_to(&order(Verb::Evacuate), planned(&BOTH), lists).await;
    for part in [
        "0 of 2 volumes moved\n",
        "in doubt, and not served; `drivebay-agent volume prefer` decides:\n  db\n",
        "not moved: their moves were ended by another command:\n  web\n",
    ] {
        assert!(answer.text.contains(part), "{part}: {}", answer.text);
    }
    assert_eq!(answer.code, WRONG);
    let mut unfenced = of("db", "moved");
    unfenced.unfenced = true;
    let lists: &[&[Move]] = &[&[of("db", "copying")], &[unfenced]];
    let answer = answer_to(&order(Verb::Evacuate), planned(&[]), lists).await;
    assert!(
        answer.text.contains("could not be written"),
        "{}",
        answer.text
    );
    assert_eq!(answer.code, 0, "the volume has moved");
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_leaves_the_moves_and_reports_how_to_see_and_end_them() {
    let mut fake = Fake {
        lists: [vec![of("db", "copying")]].into(),
        ..Fake::default()
    };
    let mut order = order(Verb::Evacuate);
    order.node = Some("n7");
    order.program = "drivebay-controller";
    let shown = || Shown {
        progress: Progress::begin(),
        log: Log::default(),
    };
    let interrupt = tokio::time::sleep(TICK * 3);
    let (how, moves) = follow(&mut fake, &order, BTreeMap::new(), shown(), interrupt)
        .await
        .unwrap();
    let answer = order.ended(how, &moves);
    assert_eq!(answer.code, INTERRUPTED);
    assert!(
        answer.text.ends_with(
            "the moves go on without this command: `drivebay-controller moves --node n7` shows them, `drivebay-controller drive evacuate wwn-a --node n7 --cancel` ends those that are not completed\n"
        ),
        "{}",
        answer.text
    );
    // Interrupted before anything was listed.
    let at_once = std::future::ready(());
    let (how, moves) = follow(&mut fake, &order, BTreeMap::new(), shown(), at_once)
        .await
        .unwrap();
    let answer = order.ended(how, &moves);
    assert!(
        answer.text.starts_with("the moves go on"),
        "{}",
        answer.text
    );
    let never = follow(&mut fake, &order, BTreeMap::new(), shown(), pending());
    let waited = tokio::time::timeout(SETTLE * 10, never).await;
    assert!(waited.is_err(), "a copy is waited for as long as it takes");
}

#[tokio::test(start_paused = true)]
async fn a_repeat_waits_for_what_an_earlier_command_began_and_not_for_what_it_finished() {
    let mut elsewhere = of("log", "copying");
    elsewhere.from = "wwn-z".into();
    let old = of("old", "moved");
    let lists: &[&[Move]] = &[
        &[of("db", "copying"), elsewhere.clone(), old.clone()],
        &[of("db", "moved"), elsewhere, old],
    ];
    let answer = answer_to(&order(Verb::Evacuate), planned(&[]), lists).await;
    assert!(
        answer.text.starts_with("1 volume moved off drive wwn-a\n"),
        "{}",
        answer.text
    );
    let answer = answer_to(&order(Verb::Evacuate), planned(&[]), &[&[]]).await;
    assert!(
        answer
            .text
            .starts_with("drive wwn-a is cordoned; no volume is left"),
        "{}",
        answer.text
    );
    assert_eq!(answer.code, 0);
}

#[tokio::test]
async fn without_waiting_it_reports_what_is_recorded_and_how_to_see_it() {
    let mut order = order(Verb::Replace { new: "wwn-b" });
    order.wait = false;
    let answer = answer_to(&order, planned(&BOTH), &[]).await;
    assert_eq!(
        answer.text,
        "drive wwn-a is cordoned, and 2 volumes will be moved from it to drive wwn-b; `drivebay-agent moves` shows them, `drivebay-agent drive evacuate wwn-a --cancel` ends those that are not completed\n"
    );
    assert_eq!(answer.code, 0);
}

#[tokio::test]
async fn a_plan_changes_nothing_and_has_the_exit_code_of_what_it_foresees() {
    let mut order = order(Verb::Evacuate);
    (order.plan, order.by) = (true, None);
    let mut fake = Fake {
        planned: planned(&BOTH),
        ..Fake::default()
    };
    let answer = run(&mut fake, &order).await.unwrap();
    assert_eq!(answer.code, 0);
    assert!(fake.requests.iter().all(|request| request.plan));
    fake.planned.refusals.push("there is no room".into());
    let answer = run(&mut fake, &order).await.unwrap();
    assert_eq!(answer.code, WRONG);
    assert!(
        answer.text.contains("  - there is no room\n"),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn a_cancelled_move_is_distinguished_from_one_that_was_completed() {
    let mut order = order(Verb::Evacuate);
    order.cancel = true;
    let mut fake = Fake {
        lists: [vec![of("db", "copying"), of("web", "moved")]].into(),
        cancelled: CancelMovesResponse {
            cancelled: vec!["db@n".into()],
            too_late: vec!["web@n".into()],
        },
        ..Fake::default()
    };
    let answer = run(&mut fake, &order).await.unwrap();
    assert_eq!(
        answer.text,
        "\
the move of db is ended; it stays on drive wwn-a
web has moved already, or is just completing it; nothing was changed
"
    );
    assert_eq!(answer.code, 0);
    fake.cancelled = CancelMovesResponse::default();
    let answer = run(&mut fake, &order).await.unwrap();
    assert_eq!(
        answer.text,
        "there is no move to end; nothing was changed\n"
    );
}
