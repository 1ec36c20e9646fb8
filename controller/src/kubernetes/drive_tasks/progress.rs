//! Progress of the moves of an accepted evacuation, and its end.

use drivebay_common::units::{count, human_seconds, human_size};
use drivebay_objects::task::{DriveTaskStatus, WaitingVolume};
use drivebay_proto::{agent::Move, words::MovePhase};
use drivebay_service::{
    agents::Agents,
    call::CallError,
    peer_log::{printable, printable_sentence},
};

use super::agent_calls::{CallFailed, is_active, is_moved_by, is_requested, list, volumes_on};
use crate::kubernetes::drive_objects::DriveUse;

/// Most volumes that have not moved in a status.
const MAX_WAITING: usize = 16;

/// State of an evacuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// Moves are running or waiting; the status has them.
    Moving(Box<DriveTaskStatus>),
    /// No move is left, and no volume.
    Moved,
    /// No move is left, and these volumes, by their names, are still on the drive.
    Left(Vec<String>),
    /// No move is left. Which volumes the drive has is not known.
    NotSeen,
}

/// Polls the moves of an accepted evacuation. `status`: that of the task. `only`: names of the volumes that are to move; empty: all.
/// `by`: the operator, as in [`super::agent_calls::request`].
pub(super) async fn progress(
    agents: &Agents,
    status: &DriveTaskStatus,
    only: &[String],
    by: &str,
) -> Result<Progress, CallFailed> {
    let (node, drive) = (&status.node, &status.identity);
    let not_connected = || CallError::NotConnected { node: node.clone() };
    let agent = agents.get(node).ok_or_else(not_connected)?;
    let moves = list(&mut agent.client()?).await?;
    let (is_complete, reported) =
        agent.read_inventory(|inventory| (inventory.complete(), inventory.drive(drive)));
    let is_seen = is_complete && reported.is_some_and(|it| DriveUse::of(&it) == DriveUse::Used);
    let volumes: Vec<String> = volumes_on(agents.catalog(), &agent, drive)
        .into_iter()
        .map(|one| one.name)
        .collect();
    Ok(judge(status, &moves, is_seen.then_some(&volumes), only, by))
}

/// `volumes`: names of the drive's volumes; None if the drive is not seen, so that they are not known. Pure.
fn judge(
    status: &DriveTaskStatus,
    moves: &[Move],
    volumes: Option<&Vec<String>>,
    only: &[String],
    by: &str,
) -> Progress {
    let drive = &status.identity;
    let active = moves
        .iter()
        .filter(|one| one.from == *drive && is_active(one) && is_requested(only, &one.name));
    let active: Vec<&Move> = active.collect();
    if !active.is_empty() {
        return Progress::Moving(Box::new(moving(status, &active)));
    }
    let Some(volumes) = volumes else {
        // Of a drive that failed, the moves say which volumes have left it.
        let moved = moves.iter().filter(|one| is_moved_by(one, drive, by));
        let moved = i64::try_from(moved.count()).unwrap_or(i64::MAX);
        return match status.volumes > 0 && moved >= status.volumes {
            true => Progress::Moved,
            false => Progress::NotSeen,
        };
    };
    let left = volumes.iter().filter(|name| is_requested(only, name));
    let left: Vec<String> = left.cloned().collect();
    match left.is_empty() {
        true => Progress::Moved,
        false => Progress::Left(left),
    }
}

/// Returns the status of an evacuation with these moves left. Pure.
fn moving(status: &DriveTaskStatus, left: &[&Move]) -> DriveTaskStatus {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let left_count = signed(left.len() as u64);
    let volumes = status.volumes.max(left_count);
    let left_bytes: u64 = left
        .iter()
        .map(|one| one.total_bytes.saturating_sub(one.done_bytes))
        .sum();
    let bytes = status.bytes.max(signed(left_bytes));
    let copied = bytes.saturating_sub(signed(left_bytes));
    let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
    let rate: u64 = left.iter().map(|one| one.bytes_per_second).sum();
    let seconds = left.iter().map(|one| one.eta_seconds).max().unwrap_or(0);
    let mut progress = format!(
        "{} of {}, {} of {}",
        volumes - left_count,
        count(unsigned(volumes), "volume"),
        human_size(unsigned(copied)),
        human_size(unsigned(bytes)),
    );
    if rate > 0 {
        progress += &format!(", {}/s", human_size(rate));
    }
    if seconds > 0 {
        progress += &format!(", {} left", human_seconds(seconds));
    }
    let waiting = left.iter().take(MAX_WAITING).map(|one| WaitingVolume {
        name: printable(&one.name),
        phase: printable(&one.phase),
        message: printable_sentence(&one.waits_for),
    });
    let is_copying = left.iter().any(|one| {
        matches!(
            one.known_phase(),
            Some(MovePhase::Copying | MovePhase::Completing)
        )
    });
    let in_doubt = left
        .iter()
        .any(|one| one.known_phase() == Some(MovePhase::InDoubt));
    let (reason, message) = match (in_doubt, is_copying) {
        (true, _) => (
            "MoveInDoubt",
            "which place of a volume has the latest data is not known: see drivebay-agent moves, and volume prefer",
        ),
        (false, true) => ("Moving", "volumes are being copied"),
        (false, false) => (
            "WaitingForVolumes",
            "volumes in use are copied when no pod uses them",
        ),
    };
    DriveTaskStatus {
        reason: reason.to_owned(),
        message: message.to_owned(),
        progress,
        volumes,
        volumes_moved: volumes - left_count,
        bytes,
        bytes_copied: copied,
        waiting: waiting.collect(),
        ..status.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, phase: MovePhase, done: u64, total: u64) -> Move {
        Move {
            name: name.to_owned(),
            phase: phase.to_string(),
            done_bytes: done,
            total_bytes: total,
            ..Move::default()
        }
    }

    fn accepted() -> DriveTaskStatus {
        DriveTaskStatus {
            volumes: 3,
            bytes: 300 << 20,
            ..DriveTaskStatus::default()
        }
    }

    #[test]
    fn progress_counts_volumes_and_bytes_and_reports_what_is_left() {
        let mut copying = one("b", MovePhase::Copying, 40 << 20, 100 << 20);
        (copying.bytes_per_second, copying.eta_seconds) = (10 << 20, 6);
        let waiting = Move {
            waits_for: "it is in use".to_owned(),
            ..one("c", MovePhase::Waiting, 0, 100 << 20)
        };
        let status = moving(&accepted(), &[&copying, &waiting]);
        assert_eq!(
            status.progress,
            "1 of 3 volumes, 140 MiB of 300 MiB, 10 MiB/s, 6s left"
        );
        assert_eq!((status.volumes_moved, status.bytes_copied), (1, 140 << 20));
        assert_eq!(status.reason, "Moving");
        let names: Vec<&str> = status.waiting.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
        let status = moving(&accepted(), &[&waiting]);
        assert_eq!(status.reason, "WaitingForVolumes");
        assert_eq!(status.waiting[0].message, "it is in use");
        let doubt = one("b", MovePhase::InDoubt, 0, 1);
        assert_eq!(
            moving(&accepted(), &[&doubt, &copying]).reason,
            "MoveInDoubt"
        );
    }

    #[test]
    fn a_status_lists_few_volumes_and_never_counts_below_zero() {
        let many: Vec<Move> = (0..50)
            .map(|number| one(&number.to_string(), MovePhase::Waiting, 0, 1 << 30))
            .collect();
        let status = moving(&accepted(), &many.iter().collect::<Vec<_>>());
        assert_eq!(status.waiting.len(), MAX_WAITING);
        assert_eq!((status.volumes, status.volumes_moved), (50, 0));
        assert_eq!((status.bytes, status.bytes_copied), (50 << 30, 0));
    }

    #[test]
    fn a_drive_that_is_not_seen_is_empty_only_if_its_volumes_moved_by_this_task() {
        let status = DriveTaskStatus {
            identity: "wwn-1".to_owned(),
            volumes: 2,
            ..DriveTaskStatus::default()
        };
        let moved = |name: &str, by: &str| Move {
            from: "wwn-1".to_owned(),
            by: by.to_owned(),
            ..one(name, MovePhase::Moved, 1, 1)
        };
        let is = |moves: &[Move], volumes: Option<&[&str]>, only: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
            judge(
                &status,
                moves,
                volumes.map(texts).as_ref(),
                &texts(only),
                "ann",
            )
        };
        assert_eq!(is(&[], Some(&[]), &[]), Progress::Moved);
        assert_eq!(is(&[], Some(&["a"]), &["b"]), Progress::Moved);
        let left = Progress::Left(vec!["a".to_owned()]);
        assert_eq!(is(&[], Some(&["a"]), &[]), left);
        assert_eq!(is(&[], None, &[]), Progress::NotSeen);
        let both = [moved("a", "ann"), moved("b", "ann")];
        assert_eq!(is(&both, None, &[]), Progress::Moved);
        assert_eq!(is(&both[..1], None, &[]), Progress::NotSeen);
        let other = [moved("a", "ann"), moved("b", "ben")];
        assert_eq!(is(&other, None, &[]), Progress::NotSeen);
        let moving = Move {
            from: "wwn-1".to_owned(),
            ..one("b", MovePhase::InDoubt, 0, 1)
        };
        assert!(matches!(is(&[moving], Some(&[]), &[]), Progress::Moving(_)));
    }
}
