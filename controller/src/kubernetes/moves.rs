//! Which events are due of moves to another drive, of the claims whose volumes move. Pure.
//!
//! Each is created once: its name is derived from the time of the request, not from the reason for which the move waits. A move that
//! begins and ends between two passes has its event when it is completed, since its old place is kept for a while.

use drivebay_proto::{
    agent::{Drive, Volume, VolumePlace},
    condition::{NormalReason, Reason},
};

use super::notices::{Claimed, Notice, Object};
use drivebay_service::{catalog::exists, expected::ClaimedBy, peer_log::printable};

pub(super) fn due(node: &str, drives: &[Drive], volumes: &[Claimed]) -> Vec<Notice> {
    let claimed = volumes.iter().filter(|of| exists(&of.volume));
    let claimed = claimed.filter_map(|of| Some((&of.volume, of.claim.as_ref()?)));
    claimed
        .flat_map(|(volume, claim)| {
            let moved = moved(node, drives, volume, claim);
            conditions(node, volume, claim).into_iter().chain(moved)
        })
        .collect()
}

/// Returns the events of a move that is running, stopped by unreadable blocks or in doubt, and of a copy with unreadable blocks.
fn conditions(node: &str, volume: &Volume, claim: &ClaimedBy) -> Vec<Notice> {
    let mut notices = Vec::new();
    for condition in &volume.conditions {
        let since = condition.since.to_string();
        let of = [volume.id.as_str(), since.as_str()];
        let mut add = |reason: &'static str, is_warning| {
            let note = format!("on node {node}, {}", condition.message);
            let notice = Notice::new(Object::Claim(claim.clone()), reason, &note, &of);
            notices.push(Notice {
                is_warning,
                ..notice
            });
        };
        let moving = NormalReason::VolumeMoving.as_str();
        match NormalReason::parse(&condition.reason) {
            Some(NormalReason::VolumeMoving) => add(moving, false),
            // Still due: else it would be created a second time when a later attempt gets further.
            Some(stopped @ NormalReason::MoveUnreadable) => {
                add(moving, false);
                add(stopped.as_str(), true);
            }
            Some(loss @ NormalReason::CopiedWithLoss) => add(loss.as_str(), true),
            None if condition.reason == Reason::MoveInDoubt.as_str() => {
                add(Reason::MoveInDoubt.as_str(), true);
            }
            None => {}
        }
    }
    notices
}

/// Of a move that is completed, as long as its old place is there.
fn moved(node: &str, drives: &[Drive], volume: &Volume, claim: &ClaimedBy) -> Option<Notice> {
    if !volume.is_usable() {
        return None;
    }
    let is_old = |place: &&VolumePlace| match place.is.as_str() {
        "moved" => place.generation == volume.generation,
        // The source could not be written.
        "live" => place.generation < volume.generation,
        _ => false,
    };
    let old = volume.places.iter().find(is_old)?;
    let name = |id: &str| {
        let drive = drives.iter().find(|drive| drive.id == id);
        printable(&drive.map_or_else(|| id.to_owned(), Drive::named))
    };
    let note = format!(
        "the volume moved from drive {} to drive {} of node {node}; its old place is kept for a while: drivebay-controller moves --node {node}",
        name(&old.drive),
        name(&volume.drive)
    );
    let generation = volume.generation.to_string();
    let of = [
        volume.id.as_str(),
        generation.as_str(),
        &old.drive,
        &volume.drive,
    ];
    let notice = Notice::new(Object::Claim(claim.clone()), "VolumeMoved", &note, &of);
    Some(Notice {
        is_warning: false,
        ..notice
    })
}

#[cfg(test)]
mod tests {
    use drivebay_proto::agent::Condition;

    use super::*;

    fn drive(id: &str, kernel_name: &str) -> Drive {
        Drive {
            id: id.into(),
            kernel_name: kernel_name.into(),
            model: "ST4000".into(),
            serial: format!("S-{kernel_name}"),
            enclosure: "5000".into(),
            slot: "3".into(),
            ..Drive::default()
        }
    }

    fn claimed() -> Claimed {
        Claimed {
            volume: Volume {
                id: "00000000-0000-4000-8000-000000000001@n1".into(),
                drive: "wwn-b".into(),
                state: "ready".into(),
                generation: 2,
                ..Volume::default()
            },
            claim: Some(ClaimedBy {
                name: "shop/data".into(),
                uid: "u1".into(),
            }),
        }
    }

    fn with(reason: &str, message: &str, since: u64) -> Claimed {
        let mut of = claimed();
        of.volume.conditions = vec![Condition {
            abnormal: reason == "MoveInDoubt",
            reason: reason.into(),
            message: message.into(),
            since,
            ..Condition::default()
        }];
        of
    }

    fn notices_of(of: &Claimed) -> Vec<Notice> {
        let drives = [drive("wwn-a", "sda"), drive("wwn-b", "sdb")];
        due("n1", &drives, std::slice::from_ref(of))
    }

    fn reasons(of: &Claimed) -> Vec<(&'static str, bool)> {
        let notices = notices_of(of);
        notices
            .iter()
            .map(|one| (one.reason, one.is_warning))
            .collect()
    }

    #[test]
    fn a_move_is_reported_once_for_a_claim_whatever_it_waits_for() {
        let first = notices_of(&with("VolumeMoving", "it moves: in use", 7)).remove(0);
        assert_eq!((first.reason, first.is_warning), ("VolumeMoving", false));
        assert_eq!(first.note, "on node n1, it moves: in use");
        assert!(matches!(&first.object, Object::Claim(claim) if &*claim.uid == "u1"));
        let digest = |of: &Claimed| notices_of(of).remove(0).digest;
        assert_eq!(
            digest(&with("VolumeMoving", "it moves: copying", 7)),
            first.digest
        );
        assert_eq!(digest(&with("MoveUnreadable", "", 7)), first.digest);
        assert_ne!(digest(&with("VolumeMoving", "it moves", 8)), first.digest);
        assert_eq!(reasons(&with("DriveSuspect", "", 7)), []);
        // No event without a claim, or of a deleted volume.
        let mut none = with("VolumeMoving", "", 7);
        none.claim = None;
        assert_eq!(reasons(&none), []);
        let mut deleted = with("VolumeMoving", "", 7);
        deleted.volume.state = "erasing".into();
        assert_eq!(reasons(&deleted), []);
    }

    #[test]
    fn a_move_that_stands_still_or_is_in_doubt_is_a_warning() {
        assert_eq!(
            reasons(&with("MoveUnreadable", "", 7)),
            [("VolumeMoving", false), ("MoveUnreadable", true)]
        );
        assert_eq!(
            reasons(&with("MoveInDoubt", "", 7)),
            [("MoveInDoubt", true)]
        );
    }

    #[test]
    fn a_copy_that_is_not_whole_is_a_warning_of_its_claim_that_is_given_once() {
        let of = with("CopiedWithLoss", "it is not whole: 8 KiB", 7);
        let [notice] = notices_of(&of).try_into().unwrap();
        let is = (notice.reason, notice.is_warning, notice.note.as_str());
        let note = "on node n1, it is not whole: 8 KiB";
        assert_eq!(is, ("CopiedWithLoss", true, note));
        assert!(matches!(&notice.object, Object::Claim(claim) if &*claim.uid == "u1"));
        // The digest depends on the volume and on the start of the condition, not on the text.
        let again = with("CopiedWithLoss", "it is not whole: 12 KiB", 7);
        assert_eq!(notices_of(&again)[0].digest, notice.digest);
        let mut another = of.clone();
        another.volume.id = "00000000-0000-4000-8000-000000000002@n1".into();
        assert_ne!(notices_of(&another)[0].digest, notice.digest);
    }

    #[test]
    fn a_volume_that_has_moved_names_both_drives_until_its_old_place_is_erased() {
        let mut of = claimed();
        let place = |is: &str, generation| VolumePlace {
            drive: "wwn-a".into(),
            is: is.into(),
            generation,
        };
        assert_eq!(reasons(&of), []);
        of.volume.places = vec![place("moved", 2)];
        let notice = notices_of(&of).remove(0);
        assert_eq!((notice.reason, notice.is_warning), ("VolumeMoved", false));
        assert_eq!(
            notice.note,
            "the volume moved from drive sda (ST4000, serial S-sda, slot 3 of enclosure 5000) to drive sdb (ST4000, serial S-sdb, slot 3 of enclosure 5000) of node n1; its old place is kept for a while: drivebay-controller moves --node n1"
        );
        // Also when the source could not be written; the next move is another event.
        of.volume.places = vec![place("live", 1)];
        assert_eq!(notices_of(&of).remove(0).digest, notice.digest);
        of.volume.generation = 4;
        of.volume.places = vec![place("moved", 4)];
        assert_ne!(notices_of(&of).remove(0).digest, notice.digest);
        // A copy that is being made, and an old place that is read alone.
        of.volume.places = vec![place("incoming", 5)];
        assert_eq!(reasons(&of), []);
        of.volume.places = vec![place("moved", 4)];
        of.volume.state = "ambiguous".into();
        assert_eq!(reasons(&of), []);
    }
}
