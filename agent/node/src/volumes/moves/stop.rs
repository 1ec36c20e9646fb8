//! Decides when an automatic evacuation is ended before all its volumes have moved. Pure.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::automatic::several_bad;
use crate::state::moves::{MoveProgress, MoveRecord};
use drivebay_model::{DriveId, Snapshot, Verdict};

/// Reason for which an automatic evacuation is ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stop {
    #[error("a move failed at its target drive {0}")]
    TargetErred(DriveId),
    #[error("the verdict of target drive {0} is {1}")]
    TargetVerdict(DriveId, Verdict),
    #[error("more than one drive of the node is BAD: {0}")]
    SeveralBad(String),
}

/// Returns the automatic evacuations to end, by drive. `erred`: the target at which a move off the drive has failed.
pub(super) fn stops(
    snapshot: &Snapshot,
    moves: &BTreeMap<Uuid, MoveRecord>,
    erred: &BTreeMap<DriveId, DriveId>,
) -> BTreeMap<DriveId, Stop> {
    let open = moves.values().filter(|one| one.is_automatic_and_open());
    let stop = |one: &MoveRecord| {
        if let Some(target) = erred.get(&one.from) {
            return Some(Stop::TargetErred(target.clone()));
        }
        let verdict = snapshot.drives.get(&one.to)?.health.verdict;
        if !verdict.takes_new_volumes() {
            return Some(Stop::TargetVerdict(one.to.clone(), verdict));
        }
        several_bad(snapshot).map(Stop::SeveralBad)
    };
    open.filter_map(|one| Some((one.from.clone(), stop(one)?)))
        .collect()
}

/// Returns the moves that end with an evacuation: those that no task works on (`busy`) and whose commit was not issued.
pub(super) fn ended_by(
    drive: &DriveId,
    moves: &BTreeMap<Uuid, MoveRecord>,
    busy: &BTreeSet<Uuid>,
) -> Vec<Uuid> {
    let moves = moves.iter().filter(|(uuid, one)| {
        one.automatic
            && one.from == *drive
            && one.progress == MoveProgress::Requested
            && !busy.contains(uuid)
    });
    moves.map(|(uuid, _)| *uuid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drivebay_model::{DriveState, samples};

    fn id(name: &str) -> DriveId {
        samples::facts(name).id
    }

    fn snapshot(drives: &[(&str, Verdict)]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (name, verdict) in drives {
            let mut drive = samples::drive(name, DriveState::Claimed, None);
            drive.health.verdict = *verdict;
            snapshot.drives.insert(drive.id.clone(), drive);
        }
        snapshot
    }

    /// Volumes 1 and 2 move from `a` to `b` and `c`.
    fn moves(automatic: bool) -> BTreeMap<Uuid, MoveRecord> {
        let record = |to: &str| MoveRecord {
            name: "pvc".into(),
            automatic,
            by: "evacuate = bad".into(),
            ..MoveRecord::sample(id("a"), id(to), MoveProgress::Requested)
        };
        BTreeMap::from([
            (Uuid::from_u128(1), record("b")),
            (Uuid::from_u128(2), record("c")),
        ])
    }

    #[test]
    fn an_automatic_evacuation_stops_when_a_target_fails_or_a_second_drive_is_bad() {
        use Verdict::{Bad, Good, Suspect};
        let none = BTreeMap::new();
        let well = snapshot(&[("a", Bad), ("b", Good), ("c", Good)]);
        assert_eq!(stops(&well, &moves(true), &none), BTreeMap::new());
        let erred = BTreeMap::from([(id("a"), id("b"))]);
        let stop = stops(&well, &moves(true), &erred);
        assert_eq!(
            stop,
            BTreeMap::from([(id("a"), Stop::TargetErred(id("b")))])
        );
        let ill = snapshot(&[("a", Bad), ("b", Good), ("c", Suspect)]);
        let stop = stops(&ill, &moves(true), &none);
        let expected = Stop::TargetVerdict(id("c"), Suspect);
        assert_eq!(stop, BTreeMap::from([(id("a"), expected)]));
        let several = snapshot(&[("a", Bad), ("b", Good), ("c", Good), ("d", Bad)]);
        let stop = stops(&several, &moves(true), &none);
        assert!(matches!(stop[&id("a")], Stop::SeveralBad(_)), "{stop:?}");
        // An operator's moves continue.
        for snapshot in [&ill, &several] {
            assert_eq!(stops(snapshot, &moves(false), &erred), BTreeMap::new());
        }
    }

    #[test]
    fn moves_that_are_worked_on_committed_or_requested_by_an_operator_do_not_end_with_it() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let ended = |moves: &BTreeMap<Uuid, MoveRecord>, busy: &[Uuid]| {
            ended_by(&id("a"), moves, &busy.iter().copied().collect())
        };
        assert_eq!(ended(&moves(true), &[]), [one, two]);
        assert_eq!(ended(&moves(true), &[one]), [two]);
        assert!(ended(&moves(false), &[]).is_empty());
        assert!(ended_by(&id("b"), &moves(true), &BTreeSet::new()).is_empty());
        let mut moved = moves(true);
        if let Some(record) = moved.get_mut(&one) {
            record.progress = MoveProgress::Moved {
                note: None,
                kept_seconds: 0,
                used: false,
                now: false,
            };
        }
        assert_eq!(ended(&moved, &[]), [two]);
    }
}
