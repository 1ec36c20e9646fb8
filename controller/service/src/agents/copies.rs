//! One volume on two nodes: a copied drive, or one of the two drives of a move that another node adopted.
//!
//! Each node decides by the records and the notes that it has which of its places is served; that of another node it cannot see.
//! Here both are seen. Nothing is refused: each id names one node, and is answered with what that node has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use drivebay_proto::{
    agent::{Drive, Volume},
    words::VolumeState,
};
use uuid::Uuid;

use super::Agents;
use crate::{
    catalog::{Key, Node},
    peer_log::{printable, printable_sentence},
};

/// Nodes that are named; a message has room for some.
const NAMED: usize = 4;

/// How often the volume has moved, and one. Agents of versions before moves do not say.
pub fn generation(volume: &Volume) -> u64 {
    volume.generation.max(1)
}

/// What one node has of the volume.
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

/// What is to be known of a volume that these nodes have, and done. None: there is one copy. A node that does not read it now is one
/// whose drive was moved to another node, unless what it had was newer than what is read elsewhere. Pure.
fn judge(copies: &[Copy]) -> Option<String> {
    let newest_read = copies.iter().filter(|copy| copy.is_read).map(Copy::rank);
    let newest_read = newest_read.max()?;
    let counts = |copy: &&Copy| copy.is_read || copy.generation() > newest_read.0;
    let mut copies: Vec<&Copy> = copies.iter().filter(counts).collect();
    copies.sort_by_key(|copy| std::cmp::Reverse(copy.rank()));
    let (newest, second) = (copies.first()?, copies.get(1)?);
    let what = match (newest.rank() == second.rank(), newest.is_read) {
        (true, _) => "neither is newer by its generation, so one drive is a copy of the other: find out which one was written last, and detach the other".to_owned(),
        (false, true) => format!(
            "that of node {} is the newer: use no other, and detach the drive of the older, or attach it to node {0}, which then knows that it is old; volume prefer is not for it",
            newest.node
        ),
        (false, false) => format!(
            "that of node {} is the newer, and is not read now: attach its drive before the older is used, which lacks what was written since. If that drive is gone for good, what it had is lost, and the older can be used",
            newest.node
        ),
    };
    let named: Vec<String> = copies
        .iter()
        .take(NAMED)
        .map(|one| one.describe())
        .collect();
    Some(printable_sentence(&format!(
        "{} nodes have this volume: {}; {what}",
        copies.len(),
        named.join("; ")
    )))
}

/// Whether its agent reads it on its drive, whatever it makes of it.
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
        let places = self.catalog().places(uuid);
        if places.len() < 2 {
            return None;
        }
        let copies = places.into_iter().filter_map(|key| self.copy(key));
        judge(&copies.collect::<Vec<_>>())
    }

    fn copy(&self, key: Key) -> Option<Copy> {
        let volume = self.catalog().get(&key)?;
        let agent = self.get(&key.node)?;
        let (is_there, drive) = agent.look(|inventory| {
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

    /// How many volumes two nodes had when they were last looked for.
    pub fn volumes_on_two_nodes(&self) -> usize {
        let copies = self.inner.copies.0.lock();
        copies.unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Looks for volumes that two nodes have, and logs those that were not found before.
    pub fn find_copies(&self) {
        let shared = self.catalog().shared_uuids().into_iter();
        let found = shared.filter_map(|uuid| Some((uuid, self.other_copy(uuid)?)));
        let found: BTreeMap<Uuid, String> = found.collect();
        let before = {
            let copies = self.inner.copies.0.lock();
            let mut copies = copies.unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *copies, found.keys().copied().collect())
        };
        for (uuid, details) in found.iter().filter(|(uuid, _)| !before.contains(*uuid)) {
            tracing::warn!(volume = %uuid, details, "volume is on two nodes");
        }
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
