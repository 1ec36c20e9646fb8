//! Events for the claims of volumes whose snapshot is lost (more was written to the volume than its reserve holds, or the reserve could
//! not be written), or was deleted at its age limit. Pure.
//!
//! A lost snapshot is listed in that state. An expired one is no longer listed, which is observed and never assumed: it was in an
//! inventory of its node, and a later one has the volume, usable, without it. A disconnected node or a missing drive causes no event.

use std::collections::{BTreeMap, BTreeSet};

use drivebay_common::units::{human_seconds, human_size};
use drivebay_proto::{
    VolumeId,
    agent::{Volume, VolumeSnapshot},
    words::SnapshotState,
};
use uuid::Uuid;

use super::notices::{Claimed, Notice, Object};
use drivebay_service::{
    catalog::{exists, is_answered},
    expected::ClaimedBy,
    peer_log::printable,
};

/// Largest number of queued events of expired snapshots of one node. Further ones are dropped; the node's log and metric have all.
const MAX_WAITING: usize = 200;

/// Returns the events for overflowed snapshots of claimed volumes that exist. They stay due until the snapshot is deleted.
pub(super) fn due(node: &str, volumes: &[Claimed]) -> Vec<Notice> {
    let claimed = volumes.iter().filter(|of| exists(&of.volume));
    let claimed = claimed.filter_map(|of| Some((&of.volume, of.claim.as_ref()?)));
    claimed
        .flat_map(|(volume, claim)| {
            let lost = volume.snapshots.iter().filter(|one| is_lost(one));
            lost.map(move |one| lost_notice(node, one, claim))
        })
        .collect()
}

fn is_lost(snapshot: &VolumeSnapshot) -> bool {
    snapshot.known_state() == Some(SnapshotState::Overflowed)
}

fn lost_notice(node: &str, snapshot: &VolumeSnapshot, claim: &ClaimedBy) -> Notice {
    let delete = match snapshot.group {
        Some(_) => "group",
        None => "snapshot",
    };
    let note = format!(
        "{} on node {node} is lost: more was written to the volume than the reserve of {} had room for, or the reserve could not be written. The volume is not affected. Delete the {delete}, and take another one with a larger reserve",
        named(snapshot),
        human_size(snapshot.reserve_bytes)
    );
    let object = Object::Claim(claim.clone());
    Notice::new(object, "SnapshotLost", &note, &[snapshot.id.as_str()])
}

fn expired_notice(node: &str, snapshot: &VolumeSnapshot, claim: &ClaimedBy) -> Notice {
    let limit = snapshot.expires_at.saturating_sub(snapshot.created_at);
    let note = format!(
        "{} on node {node} was deleted because it was older than {}, its age limit. To keep others longer, set maxAge in the parameters of their class",
        named(snapshot),
        human_seconds(limit)
    );
    let object = Object::Claim(claim.clone());
    let notice = Notice::new(object, "SnapshotExpired", &note, &[snapshot.id.as_str()]);
    Notice {
        is_warning: false,
        ..notice
    }
}

/// Returns the CSI names of a snapshot and its group, which csi-snapshotter makes from the UIDs of its objects.
fn named(snapshot: &VolumeSnapshot) -> String {
    let name = printable(&snapshot.name);
    match &snapshot.group {
        Some(group) => format!("snapshot {name} of group {}", printable(&group.name)),
        None => format!("snapshot {name}"),
    }
}

/// Returns the snapshots in `before` that expired: their age limit has passed at `at`, and they are not in `now`. All of `before` must
/// have an age limit.
fn expired<'a>(
    before: &'a [VolumeSnapshot],
    now: &[VolumeSnapshot],
    at: u64,
) -> Vec<&'a VolumeSnapshot> {
    let is_there = |one: &VolumeSnapshot| now.iter().any(|other| other.id == one.id);
    let passed = before.iter().filter(|one| one.expires_at <= at);
    passed.filter(|one| !is_there(one)).collect()
}

/// Returns the volume's snapshots with an age limit, except those still being created, which can be deleted for other reasons.
fn limited(volume: &Volume) -> Vec<VolumeSnapshot> {
    let answered = volume.snapshots.iter().filter(|one| is_answered(one));
    let limited = answered.filter(|one| one.expires_at > 0);
    limited.cloned().collect()
}

/// Compares successive inventories of one node, and queues an event for each expired snapshot.
#[derive(Debug, Default)]
pub(super) struct AgeLimits {
    // Snapshots with an age limit, by volume id, from the last inventory in which the volume was usable.
    latest: BTreeMap<String, Vec<VolumeSnapshot>>,
    waiting: Vec<Notice>,
}

impl AgeLimits {
    /// Returns the volumes that had snapshots with an age limit. The next [`follow`](Self::follow) must get those that still exist.
    pub(super) fn volumes(&self) -> impl Iterator<Item = Uuid> {
        let ids = self.latest.keys();
        ids.filter_map(|id| Some(id.parse::<VolumeId>().ok()?.uuid))
    }

    /// Queues events for the snapshots that expired since the last call. The inventory must be from a connected agent that has scanned
    /// every drive; `volumes` has at least the volumes with snapshots, and those of [`volumes`](Self::volumes) that still exist. `at`:
    /// now, seconds since 1970.
    pub(super) fn follow(&mut self, node: &str, volumes: &[Claimed], at: u64) {
        let there: BTreeMap<&str, &Claimed> = volumes
            .iter()
            .map(|of| (of.volume.id.as_str(), of))
            .collect();
        // No event for snapshots that were deleted with their volume, or moved to another node with their drive.
        self.latest.retain(|id, _| {
            let of = there.get(id.as_str());
            of.is_some_and(|of| exists(&of.volume))
        });
        for Claimed { volume, claim } in volumes.iter().filter(|of| of.volume.is_usable()) {
            let before = self.latest.remove(&volume.id).unwrap_or_default();
            let gone = expired(&before, &volume.snapshots, at);
            if let Some(claim) = claim {
                let notices = gone.into_iter().map(|one| expired_notice(node, one, claim));
                let room = MAX_WAITING.saturating_sub(self.waiting.len());
                self.waiting.extend(notices.take(room));
            }
            let now = limited(volume);
            if !now.is_empty() {
                self.latest.insert(volume.id.clone(), now);
            }
        }
    }

    /// Returns the queued events, oldest first.
    pub(super) fn due(&self) -> &[Notice] {
        &self.waiting
    }

    /// Removes the events with these digests from the queue.
    pub(super) fn forget(&mut self, reported: &BTreeSet<String>) {
        self.waiting
            .retain(|notice| !reported.contains(&notice.digest));
    }
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod tests;
