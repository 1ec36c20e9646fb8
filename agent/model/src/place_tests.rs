//! Table of every combination of two drives' records of a volume that moves, and of the agent's note, with its outcome; executed and
//! printed.

use std::fmt::Write as _;

use super::*;

fn peer(n: u128) -> Peer {
    Peer {
        label: Uuid::from_u128(n),
        drive: DriveId(if n == 1 { "S" } else { "T" }.into()),
    }
}

fn live(generation: u64, from: Option<Peer>) -> PlaceState {
    PlaceState::Live { generation, from }
}

/// Records that the source can have; the volume was live there with generation 1.
fn of_source() -> Vec<(&'static str, Option<PlaceState>)> {
    let to = || peer(2);
    vec![
        ("not read, or not on it", None),
        ("live 1", Some(live(1, None))),
        (
            "leaving 2",
            Some(PlaceState::Leaving {
                generation: 2,
                to: to(),
            }),
        ),
        (
            "moved 2",
            Some(PlaceState::Moved {
                generation: 2,
                to: to(),
            }),
        ),
        ("live 3", Some(live(3, None))),
    ]
}

fn of_target() -> Vec<(&'static str, Option<PlaceState>)> {
    let from = || peer(1);
    vec![
        ("not read, or not on it", None),
        (
            "incoming 2",
            Some(PlaceState::Incoming {
                generation: 2,
                from: from(),
            }),
        ),
        ("live 2", Some(live(2, Some(from())))),
        (
            "leaving 3 to S",
            Some(PlaceState::Leaving {
                generation: 3,
                to: peer(1),
            }),
        ),
    ]
}

fn outcome(places: &[ObservedPlace<'_>], note: Option<&CommitNote>) -> String {
    let name = |index: usize| match places[index].label.as_u128() {
        1 => "S",
        _ => "T",
    };
    match judge(places, note, None) {
        Judgement::Serve {
            index,
            revert: false,
        } => format!("{} is served", name(index)),
        Judgement::Serve {
            index,
            revert: true,
        } => {
            format!("{} is live again, then served", name(index))
        }
        Judgement::InDoubt(Doubt::TargetNotSeen(to)) => {
            format!(
                "in doubt: {} may have it, and was not read with it",
                to.drive
            )
        }
        Judgement::InDoubt(Doubt::TargetNotCommitted(to)) => {
            format!("in doubt: {} lost a write that it had confirmed", to.drive)
        }
        Judgement::InDoubt(Doubt::CommitIssued(to)) => {
            format!("in doubt: a commit to {} was issued", to.drive)
        }
        Judgement::InDoubt(Doubt::SeveralLive(n)) => format!("in doubt: several live {n}"),
        Judgement::OnlyIncoming(from) => format!("missing, with {}", from.drive),
        Judgement::Nowhere => "not on a drive that was read".into(),
    }
}

fn table() -> String {
    let note = |unfenced| CommitNote {
        generation: 2,
        from: peer(1),
        to: peer(2),
        unfenced,
    };
    let mut text = String::from(
        "| source S | target T | agent noted the commit | outcome |\n|---|---|---|---|\n",
    );
    for (source, s) in of_source() {
        for (target, t) in of_target() {
            for (noted, note) in [("no", None), ("yes", Some(note(false)))] {
                let mut places = Vec::new();
                for (label, state) in [(1, &s), (2, &t)] {
                    places.extend(state.as_ref().map(|state| ObservedPlace {
                        label: Uuid::from_u128(label),
                        state,
                    }));
                }
                let outcome = outcome(&places, note.as_ref());
                let _ = writeln!(text, "| {source} | {target} | {noted} | {outcome} |");
            }
        }
    }
    text
}

#[test]
fn a_new_volume_that_was_filled_is_one_that_never_moved() {
    let from = Peer {
        label: Uuid::from_u128(9),
        drive: DriveId("wwn-source".into()),
    };
    let filling = PlaceState::Incoming {
        generation: 1,
        from: from.clone(),
    };
    assert!(filling.is_filling());
    assert!(filling.may_become(&PlaceState::default()));
    let of_a_move = PlaceState::Live {
        generation: 1,
        from: Some(from),
    };
    assert!(!filling.may_become(&of_a_move));
}

#[test]
fn every_combination_of_two_drives_and_the_note_has_the_printed_outcome() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/place_table.md");
    let now = table();
    if std::env::var_os("DRIVEBAY_UPDATE").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    assert_eq!(now, std::fs::read_to_string(path).unwrap());
}

#[test]
fn the_reference_of_moves_has_the_printed_table() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/docs/reference/moves.md"
    );
    let (begin, end) = (
        "<!-- place table -->\n\n",
        "\n<!-- end of the place table -->\n",
    );
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(begin).unwrap();
    let (documented, after) = rest.split_once(end).unwrap();
    let now = table();
    if std::env::var_os("DRIVEBAY_UPDATE").is_some() {
        std::fs::write(path, [before, begin, &now, end, after].concat()).unwrap();
        return;
    }
    assert_eq!(now, documented);
}

#[test]
fn a_copy_is_never_served_before_its_commit_and_never_two_places() {
    for (_, s) in of_source() {
        for (_, t) in of_target() {
            let places: Vec<_> = [(1, &s), (2, &t)]
                .into_iter()
                .filter_map(|(label, state)| {
                    let state = state.as_ref()?;
                    let label = Uuid::from_u128(label);
                    Some(ObservedPlace { label, state })
                })
                .collect();
            let Judgement::Serve { index, revert } = judge(&places, None, None) else {
                continue;
            };
            let served = places[index].state;
            assert!(!matches!(
                served,
                PlaceState::Incoming { .. } | PlaceState::Moved { .. }
            ));
            assert_eq!(revert, !served.is_live());
            // No record that was read has a higher generation as live.
            let generation = match served {
                PlaceState::Leaving { generation, .. } => generation - 1,
                other => other.generation(),
            };
            let higher = places.iter().filter(|place| match place.state {
                PlaceState::Live { generation: n, .. }
                | PlaceState::Moved { generation: n, .. } => *n > generation,
                _ => false,
            });
            assert_eq!(higher.count(), 0, "{places:?}");
        }
    }
}

#[test]
fn a_record_only_goes_the_way_of_a_move_or_back_above_what_may_be_live() {
    let (s, t) = (peer(1), peer(2));
    let leaving = |generation| PlaceState::Leaving {
        generation,
        to: t.clone(),
    };
    let moved = |generation| PlaceState::Moved {
        generation,
        to: t.clone(),
    };
    let incoming = PlaceState::Incoming {
        generation: 2,
        from: s.clone(),
    };
    assert!(live(1, None).may_become(&leaving(2)));
    assert!(!live(1, None).may_become(&leaving(3)));
    assert!(leaving(2).may_become(&moved(2)));
    assert!(!leaving(2).may_become(&moved(3)));
    assert!(leaving(2).may_become(&live(1, None)));
    assert!(leaving(2).may_become(&live(3, None)));
    assert!(!leaving(2).may_become(&live(2, None)));
    assert!(incoming.may_become(&live(2, Some(s.clone()))));
    assert!(!incoming.may_become(&live(2, None)));
    assert!(!incoming.may_become(&live(3, Some(s))));
    assert!(moved(2).may_become(&live(3, None)));
    assert!(!moved(2).may_become(&live(2, None)));
    assert!(live(1, None).may_become(&moved(2)), "unfenced");
    assert!(!live(2, None).may_become(&moved(2)));
}

#[test]
fn a_place_is_in_doubt_while_a_drive_that_was_not_read_had_a_later_one() {
    let state = live(1, None);
    let places = [ObservedPlace {
        label: Uuid::from_u128(1),
        state: &state,
    }];
    let at = |generation| (generation, peer(2));
    let judged = |remembered: (u64, Peer)| judge(&places, None, Some(&remembered));
    let served = Judgement::Serve {
        index: 0,
        revert: false,
    };
    assert_eq!(
        judged(at(2)),
        Judgement::InDoubt(Doubt::TargetNotSeen(peer(2)))
    );
    assert_eq!(judged(at(1)), served, "a copy of the drive is no move");
}
