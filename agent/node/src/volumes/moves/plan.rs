//! Decides whether volumes may be moved, and where to, and collects every reason against it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_proto::VolumeId;
use uuid::Uuid;

use super::{MovePlan, MoveRequest, MoveScope, PlannedMove};
use crate::{
    inventory::takes_no_copy,
    inventory::{assemble::is_live, is_reachable},
    state::moves::MoveRecord,
    volumes::{
        placement::{self, Group, InFlight, Need},
        wipe::named,
    },
};
use drivebay_model::{
    ClassConfig, DriveId, DriveState, Placement, Snapshot, Volume, VolumeState, units::human_sizes,
};

/// Plans a request. `moves`: earlier requests; a volume that moves to where it would be moved is left out.
pub(super) fn plan(
    snapshot: &Snapshot,
    classes: &[ClassConfig],
    moves: &BTreeMap<Uuid, MoveRecord>,
    node: &str,
    request: &MoveRequest,
) -> MovePlan {
    let mut plan = MovePlan::default();
    let targets = targets(snapshot, request, &mut plan.refusals);
    let volumes = scope(snapshot, node, request, &mut plan);
    // Volumes that are being moved there count as allocated.
    let mut in_flight: Vec<InFlight> = moves
        .iter()
        .filter_map(|(uuid, one)| in_flight(snapshot, *uuid, one))
        .collect();
    for volume in volumes {
        match of_volume(snapshot, classes, moves, volume, &targets, &in_flight) {
            Ok(None) => {}
            Ok(Some(planned)) => {
                let record = &volume.placed.record;
                in_flight.push(InFlight {
                    drive: planned.to.clone(),
                    bytes: record.extent.len,
                    group: Group::of(&record.parameters).map(|group| group.name),
                });
                plan.moves.push(planned);
            }
            Err(why) => plan.refusals.push(why),
        }
    }
    plan
}

/// Returns the drives that were named as targets; empty: any.
fn targets(
    snapshot: &Snapshot,
    request: &MoveRequest,
    refusals: &mut Vec<String>,
) -> BTreeSet<DriveId> {
    let mut targets = BTreeSet::new();
    for name in &request.to {
        match named(snapshot, name) {
            Err(error) => refusals.push(error.to_string()),
            Ok(drive) => {
                if let Some(why) = takes_no_copy(drive) {
                    refusals.push(format!("drive {} takes no copies: {why}", drive.id));
                }
                targets.insert(drive.id.clone());
            }
        }
    }
    targets
}

/// Returns the volumes that the request covers.
fn scope<'a>(
    snapshot: &'a Snapshot,
    node: &str,
    request: &MoveRequest,
    plan: &mut MovePlan,
) -> Vec<&'a Volume> {
    let by_id = |id: &str| {
        let parsed: Option<VolumeId> = id.parse().ok();
        let parsed = parsed.filter(|parsed| parsed.node == node);
        parsed.and_then(|parsed| snapshot.volumes.get(&parsed.uuid))
    };
    match &request.scope {
        MoveScope::Volume(id) => match by_id(id).filter(|volume| is_live(volume.state)) {
            Some(volume) => vec![volume],
            None => {
                plan.refusals.push(format!("no volume {id} on this node"));
                Vec::new()
            }
        },
        MoveScope::Drive { name, only } => {
            let drive = match named(snapshot, name) {
                Ok(drive) => drive,
                Err(error) => {
                    plan.refusals.push(error.to_string());
                    return Vec::new();
                }
            };
            plan.drive = Some(drive.id.clone());
            if !is_reachable(drive) {
                plan.refusals.push(format!(
                    "drive {} is {} and cannot be read now",
                    drive.id, drive.state
                ));
                return Vec::new();
            }
            let on_it = |volume: &&Volume| volume.drive == drive.id && is_live(volume.state);
            let mut volumes: Vec<&Volume> = snapshot.volumes.values().filter(on_it).collect();
            if !only.is_empty() {
                let wanted: Vec<Uuid> = only
                    .iter()
                    .filter_map(|id| by_id(id))
                    .map(|volume| volume.uuid)
                    .collect();
                for id in only {
                    if !by_id(id)
                        .is_some_and(|volume| volumes.iter().any(|one| one.uuid == volume.uuid))
                    {
                        plan.refusals
                            .push(format!("volume {id} is not on drive {}", drive.id));
                    }
                }
                volumes.retain(|volume| wanted.contains(&volume.uuid));
            }
            // The largest first, while there is room for it.
            volumes.sort_by(|a, b| {
                let size = |volume: &Volume| volume.placed.record.extent.len;
                size(b).cmp(&size(a)).then(a.uuid.cmp(&b.uuid))
            });
            volumes
        }
    }
}

/// Plans the move of one volume. None: it is there, or is being moved there already.
fn of_volume(
    snapshot: &Snapshot,
    classes: &[ClassConfig],
    moves: &BTreeMap<Uuid, MoveRecord>,
    volume: &Volume,
    targets: &BTreeSet<DriveId>,
    in_flight: &[InFlight],
) -> Result<Option<PlannedMove>, String> {
    let record = &volume.placed.record;
    let name = &record.name;
    let refuse = |why: String| Err(format!("volume {name} ({}): {why}", volume.uuid));
    if !matches!(volume.state, VolumeState::New | VolumeState::Ready) {
        return refuse(format!("it is {}", volume.state));
    }
    let snapshots = &volume.placed.snapshots;
    if !snapshots.is_empty() {
        let names: Vec<&str> = snapshots
            .iter()
            .map(|one| one.record.name.as_str())
            .collect();
        return refuse(format!(
            "it has snapshots, which do not move: {}; delete them first",
            names.join(", ")
        ));
    }
    match moves.get(&volume.uuid) {
        Some(one) if !one.has_moved() => {
            if targets.is_empty() || targets.contains(&one.to) {
                return Ok(None);
            }
            return refuse(format!(
                "it is being moved to drive {}; cancel that first",
                one.to
            ));
        }
        // Its note would be lost.
        Some(one) if one.note().is_some() => {
            return refuse(format!(
                "its old place on drive {} could not be marked as old; attach that drive, or forget that place with volume prefer {} --drive {}",
                one.from, volume.uuid, volume.drive
            ));
        }
        Some(one) if one.has_moved() && !volume.copies.is_empty() => {
            return refuse(format!(
                "its old place on drive {} is still kept; drive retire {} has it erased now",
                one.from, one.from
            ));
        }
        _ => {}
    }
    if !volume.copies.is_empty() {
        return refuse("it has another place, which is not erased yet".to_owned());
    }
    if targets.len() == 1 && targets.contains(&volume.drive) {
        // Already there.
        return Ok(None);
    }
    let class = classes.iter().find(|class| class.name == record.class);
    let group = Group::of(&record.parameters);
    let need = Need {
        class: &record.class,
        bytes: record.extent.len,
        placement: class.map_or(Placement::default(), |class| class.placement),
        group: group.as_ref(),
    };
    let excluded = |id: &DriveId| {
        *id == volume.drive
            || (!targets.is_empty() && !targets.contains(id))
            || is_partly_there(snapshot, id, volume.uuid)
            || sector(snapshot, id) > sector(snapshot, &volume.drive)
    };
    let choice = placement::choose_for_copy(snapshot, need, in_flight, excluded);
    let Some(first) = choice.candidates.first() else {
        let where_to = match targets.is_empty() {
            true => format!("no other drive of class {}", record.class),
            false => "none of the named drives".to_owned(),
        };
        let (largest, on) = placement::largest(snapshot, &record.class);
        let [size, largest] = human_sizes([record.extent.len, largest]);
        return refuse(format!(
            "{where_to} has room for its {size} in sectors that are no larger than its drive's; the largest free piece of its class is {largest}{on}"
        ));
    };
    let claims = snapshot
        .drives
        .get(&first.drive)
        .is_some_and(|drive| drive.state == DriveState::Available);
    Ok(Some(PlannedMove {
        uuid: volume.uuid,
        name: name.clone(),
        from: volume.drive.clone(),
        to: first.drive.clone(),
        size_bytes: record.extent.len,
        in_use: volume.in_use,
        claims,
    }))
}

/// Returns the logical sector size of a drive, in bytes: a filesystem that was made on smaller sectors may not be
/// mounted on larger ones.
fn sector(snapshot: &Snapshot, id: &DriveId) -> u32 {
    let drive = snapshot.drives.get(id);
    drive.map_or(0, |drive| drive.facts.logical_sector)
}

/// True if a drive has any place of the volume, such as one that is being erased.
fn is_partly_there(snapshot: &Snapshot, id: &DriveId, uuid: Uuid) -> bool {
    let contents = snapshot
        .drives
        .get(id)
        .and_then(|drive| drive.contents.as_ref());
    contents.is_some_and(|contents| contents.volume(uuid).is_some())
}

/// Returns the space that a move will take on its target, if it has none there yet.
fn in_flight(snapshot: &Snapshot, uuid: Uuid, one: &MoveRecord) -> Option<InFlight> {
    if one.has_moved() || is_partly_there(snapshot, &one.to, uuid) {
        return None;
    }
    let record = &snapshot.volumes.get(&uuid)?.placed.record;
    Some(InFlight {
        drive: one.to.clone(),
        bytes: record.extent.len,
        group: Group::of(&record.parameters).map(|group| group.name),
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
