//! Decides separately whether a drive may be taken out, and whether it may leave the building. Pure.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Retirement;
use crate::{
    inventory::{assemble::is_live, is_reachable},
    state::moves::MoveRecord,
};
use drivebay_model::{
    Drive, ErasePolicy, RecordState, Snapshot, VolumeState, Zeroing, units::human_size,
};

/// Collects the reasons against taking this drive out, and what is left on it. `erases_signatures`: deleting volumes of
/// its class leaves their bytes.
pub(super) fn retirement(
    snapshot: &Snapshot,
    drive: &Drive,
    moves: &BTreeMap<Uuid, MoveRecord>,
    erases_signatures: bool,
) -> Retirement {
    let mut of = Retirement {
        drive: drive.id.clone(),
        serial: drive.facts.serial.clone(),
        bay: drive.facts.bay.describe(),
        keeps: Vec::new(),
        erasing_bytes: 0,
        not_erased: Vec::new(),
    };
    for volume in snapshot.volumes.values() {
        let name = &volume.placed.record.name;
        if !is_live(volume.state) {
            continue;
        }
        if volume.drive == drive.id {
            of.keeps
                .push(format!("volume {name} lives on it ({})", volume.state));
        } else if volume.state == VolumeState::Ambiguous
            && volume.copies.iter().any(|copy| copy.drive == drive.id)
        {
            of.keeps.push(format!(
                "volume {name} is in doubt, and what is on it may be its latest data"
            ));
        }
    }
    for one in moves.values().filter(|one| !one.has_moved()) {
        if one.to == drive.id {
            of.keeps
                .push(format!("volume {} is being moved to it", one.name));
        }
    }
    if drive.cordon().is_none() && drive.contents.is_some() {
        of.keeps.push("it is not cordoned, so that new volumes may be put on it; drive evacuate or drive cordon".to_owned());
    }
    let Some(contents) = drive.contents.as_ref().filter(|_| is_reachable(drive)) else {
        of.not_erased.push(format!(
            "it is {} and cannot be read now, so that nothing on it can be erased",
            drive.state
        ));
        return of;
    };
    let is_quarantined = |uuid: Uuid| {
        let volume = snapshot.volumes.get(&uuid);
        volume.is_some_and(|volume| volume.state == VolumeState::Quarantined)
    };
    for placed in &contents.volumes {
        let record = &placed.record;
        let bytes = record.extent.len;
        let size = human_size(bytes);
        let what = match record.is_deleted() || is_quarantined(record.uuid) {
            true => format!("deleted volume {}", record.name),
            false => format!("old place of volume {}", record.name),
        };
        match &record.state {
            _ if placed.ambiguous.is_some() => of.not_erased.push(format!(
                "{what}: its record does not fit, and it is not touched"
            )),
            RecordState::Erasing { .. } if contents.space.zeroing == Zeroing::Fails => {
                of.not_erased.push(format!(
                    "{what}, {size}: the drive does not keep zeros that are written to it"
                ));
            }
            _ if record.erase == ErasePolicy::Signatures => {
                of.not_erased.push(format!(
                    "{what}, {size}: its class erases signatures only"
                ));
            }
            RecordState::Erasing { done_bytes, .. } => {
                of.erasing_bytes += bytes.saturating_sub(*done_bytes);
            }
            _ if is_quarantined(record.uuid) => of.not_erased.push(format!(
                "{what}, {size}: it is in quarantine; `drivebay-agent volume erase-now {}` ends it",
                record.uuid
            )),
            // A live volume is among the reasons already.
            _ if record.place.is_live()
                && snapshot
                    .volumes
                    .get(&record.uuid)
                    .is_none_or(|volume| volume.drive == drive.id) => {}
            _ if record.place.is_live() => of.not_erased.push(format!(
                "{what}, {size}: the drive refused to record that it has moved, so that it cannot be erased here"
            )),
            _ => of.erasing_bytes += bytes,
        }
    }
    match contents.unerased_bytes() {
        0 => {}
        bytes if contents.space.zeroing == Zeroing::Fails => of.not_erased.push(format!(
            "deleted snapshots, {}: the drive does not keep zeros that are written to it",
            human_size(bytes)
        )),
        bytes => of.erasing_bytes += bytes,
    }
    let free: u64 = contents.unzeroed().iter().map(|run| run.len).sum();
    if erases_signatures && free > 0 {
        of.not_erased.push(format!(
            "{} of free space: deleted volumes of class {} leave their bytes there; drive wipe zeroes all of it",
            human_size(free),
            contents.label.class
        ));
    }
    for (name, run) in &contents.strangers {
        let size = human_size(run.len);
        of.not_erased
            .push(format!("{name}, {size}: it is not Drivebay's"));
    }
    of
}

#[cfg(test)]
#[path = "retire_tests.rs"]
mod tests;
