//! One volume on two nodes: a copied drive, or one of the two drives of a move that another node adopted.
//!
//! Each node decides by the records and the notes that it has which of its places is served; that of another node it cannot see.
//! Here both are seen. Nothing is refused: each id names one node, and is answered with what that node has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use drivebay_proto::{
    VolumeId,
    agent::{Drive, Volume},
    words::VolumeState,
};
use uuid::Uuid;

use super::Agents;
use crate::{
    catalog::{Key, Node},
    expected::ExpectedVolume,
    peer_log::{printable, printable_sentence},
};

/// Nodes that are named; a message has room for some.
const NAMED: usize = 4;

/// Returns the number of the volume's moves plus one; 1 for an agent of a version without moves, which reports none.
pub fn generation(volume: &Volume) -> u64 {
    volume.generation.max(1)
}

/// The volume as one node reports it.
#[derive(Debug, Clone)]
struct Copy {
    node: Node,
    volume: Volume,
    /// In words by which a person finds it.
    drive: String,
    /// The agent is connected, and reads the volume on the drive now.
    is_read: bool,
}

impl Copy {
    fn generation(&self) -> u64 {
        generation(&self.volume)
    }

    /// One that its node does not serve is not newer than one of the same generation that is served.
    fn rank(&self) -> (u64, bool) {
        (self.generation(), self.volume.is_usable())
    }

    fn describe(&self) -> String {
        let is = match self.is_read {
            true => printable(&self.volume.state),
            false => "not read now".to_owned(),
        };
        format!(
            "node {} on drive {}, generation {}, {is}",
            self.node,
            self.drive,
            self.generation()
        )
    }
}

/// A volume of which several nodes have a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedVolume {
    pub uuid: Uuid,
    /// Node, identity of the drive, and generation of each copy; at least two, in the order of nodes.
    pub copies: Vec<(Node, String, u64)>,
    /// Node of the newest copy; None: the two newest have the same generation, and both or neither are usable.
    pub newer: Option<Node>,
    /// Message for an operator: nodes, drives and generations, which copy is the newer, and what to do.
    pub details: String,
}

/// Decides which of several nodes has the newest copy of a volume, and what to do. None if there is only one copy: a copy that is not read
/// now counts only if its generation is above those that are read, since else its drive was moved to another node. Pure.
fn judge(uuid: Uuid, copies: &[Copy]) -> Option<SharedVolume> {
    let newest_read = copies.iter().filter(|copy| copy.is_read).map(Copy::rank);
    let newest_read = newest_read.max()?;
    let counts = |copy: &&Copy| copy.is_read || copy.generation() > newest_read.0;
    let mut copies: Vec<&Copy> = copies.iter().filter(counts).collect();
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.rank()));
    let (newest, second) = (copies.first()?, copies.get(1)?);
    let is_newer = newest.rank() != second.rank();
    let what = match (is_newer, newest.is_read) {
        (false, _) => "neither is newer by its generation, so one drive is a copy of the other: find out which one was written last, and detach the other".to_owned(),
        (true, true) => format!(
            "that of node {} is the newer: use no other, and detach the drive of the older, or attach it to node {0}, which then knows that it is old; volume prefer is not for it",
            newest.node
        ),
        (true, false) => format!(
            "that of node {} is the newer, and is not read now: attach its drive before the older is used, which lacks what was written since. If that drive is gone for good, what it had is lost, and the older can be used",
            newest.node
        ),
    };
    let named: Vec<String> = copies
        .iter()
        .take(NAMED)
        .map(|one| one.describe())
        .collect();
    let details = format!(
        "{} nodes have this volume: {}; {what}",
        copies.len(),
        named.join("; ")
    );
    let place = |copy: &&Copy| {
        (
            copy.node.clone(),
            copy.volume.drive.clone(),
            copy.generation(),
        )
    };
    let mut places: Vec<_> = copies.iter().map(place).collect();
    places.sort_unstable();
    Some(SharedVolume {
        uuid,
        copies: places,
        newer: is_newer.then(|| newest.node.clone()),
        details: printable_sentence(&details),
    })
}

/// True if the agent reads the volume's record on its drive, even if it cannot be served.
fn is_read(volume: &Volume) -> bool {
    volume.is_usable() || volume.known_state() == Some(VolumeState::Ambiguous)
}

/// Volumes that two nodes have, as they were last looked for.
#[derive(Debug, Default)]
pub(super) struct Copies(Mutex<BTreeSet<Uuid>>);

impl Agents {
    /// That other nodes have this volume, too, with their drives and generations, which is the newer, and what to do. None: no other
    /// node has it.
    pub fn other_copy(&self, uuid: Uuid) -> Option<String> {
        Some(self.shared_volume(uuid)?.details)
    }

    fn shared_volume(&self, uuid: Uuid) -> Option<SharedVolume> {
        let places = self.catalog().places(uuid);
        if places.len() < 2 {
            return None;
        }
        let copies = places.into_iter().filter_map(|key| self.copy(key));
        judge(uuid, &copies.collect::<Vec<_>>())
    }

    fn copy(&self, key: Key) -> Option<Copy> {
        let volume = self.catalog().get(&key)?;
        let agent = self.get(&key.node)?;
        let (is_there, drive) = agent.read_inventory(|inventory| {
            let drive = inventory.drive(&volume.drive);
            (inventory.complete(), drive)
        });
        let drive = drive.map_or_else(|| volume.drive.clone(), |drive| Drive::named(&drive));
        Some(Copy {
            node: key.node,
            is_read: is_there && is_read(&volume),
            drive: printable(&drive),
            volume,
        })
    }

    /// Number of volumes that the last [`find_copies`](Self::find_copies) found on several nodes.
    pub fn volumes_on_two_nodes(&self) -> usize {
        let copies = self.inner.copies.0.lock();
        copies.unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the volumes that the last [`find_copies`](Self::find_copies) found on several nodes, and that still are.
    pub fn shared_volumes(&self) -> Vec<SharedVolume> {
        let uuids: Vec<Uuid> = {
            let copies = self.inner.copies.0.lock();
            let copies = copies.unwrap_or_else(PoisonError::into_inner);
            copies.iter().copied().collect()
        };
        let shared = uuids.into_iter();
        shared.filter_map(|uuid| self.shared_volume(uuid)).collect()
    }

    /// Returns the PersistentVolumes that name one of the volume's copies, each with the volume id in it.
    pub fn expected_copies(&self, volume: &SharedVolume) -> Vec<(VolumeId, ExpectedVolume)> {
        let expected = self.expected();
        let ids = volume.copies.iter().map(|(node, ..)| VolumeId {
            uuid: volume.uuid,
            node: node.to_string(),
        });
        ids.filter_map(|id| Some((id.clone(), expected.volume(&id)?.clone())))
            .collect()
    }

    /// Looks for volumes that two nodes have, and logs those that were not found before.
    pub fn find_copies(&self) {
        let shared = self.catalog().shared_uuids().into_iter();
        let entries = shared.filter_map(|uuid| Some((uuid, self.other_copy(uuid)?)));
        let entries: BTreeMap<Uuid, String> = entries.collect();
        let before = {
            let copies = self.inner.copies.0.lock();
            let mut copies = copies.unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *copies, entries.keys().copied().collect())
        };
        for (uuid, details) in entries.iter().filter(|(uuid, _)| !before.contains(*uuid)) {
            tracing::warn!(volume = %uuid, details, "volume is on two nodes");
        }
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
