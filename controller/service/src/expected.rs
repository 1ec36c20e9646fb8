//! The volumes and nodes that an orchestrator expects: volumes that PersistentVolumes name, and nodes on which an agent is registered.
//!
//! An agent's inventory takes precedence. Expected volumes are listed for nodes whose agent has not reported to this process, so
//! that they stay listed over any restart, and are reported as unreachable.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use drivebay_proto::{VolumeId, agent::Volume};
use uuid::Uuid;

/// State of a volume that is known only from its PersistentVolume.
pub const EXPECTED: &str = "expected";

/// The claim to which a PersistentVolume is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedBy {
    /// Namespace and name of the claim, NAMESPACE/NAME.
    pub name: Box<str>,
    /// UID of the claim, which distinguishes it from a later claim of that name.
    pub uid: Box<str>,
}

/// The kept part of a volume's PersistentVolume. There may be a million, so nothing else is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedVolume {
    /// Name of the PersistentVolume, which the provisioner makes the volume's CSI name, too.
    pub pv: Box<str>,
    pub claim: Option<ClaimedBy>,
}

impl ExpectedVolume {
    /// Returns the volume as its agent would report it, with unknown fields empty. A size of 0 means unknown.
    pub fn as_reported(&self, uuid: Uuid, node: &str) -> Volume {
        Volume {
            id: VolumeId {
                uuid,
                node: node.to_owned(),
            }
            .to_string(),
            name: self.pv.to_string(),
            state: EXPECTED.to_owned(),
            ..Volume::default()
        }
    }
}

/// Expected volumes of one node.
pub type Volumes = BTreeMap<Uuid, ExpectedVolume>;

/// All expected volumes and nodes.
#[derive(Debug, Default)]
pub struct Expected {
    volumes: BTreeMap<Arc<str>, Volumes>,
    nodes: BTreeSet<Arc<str>>,
    // Keys of `volumes`, by uuid first.
    named: BTreeSet<(Uuid, Arc<str>)>,
    // Both lists were read whole.
    complete: bool,
}

impl Expected {
    /// True if both lists were read whole once: then a volume or node that is not here is not expected.
    pub fn complete(&self) -> bool {
        self.complete
    }

    pub fn set_complete(&mut self) {
        self.complete = true;
    }

    /// Replaces all volumes. Returns the nodes that had or have any, whose volumes may have changed.
    pub fn replace_volumes(&mut self, all: Vec<(VolumeId, ExpectedVolume)>) -> BTreeSet<Arc<str>> {
        let before = std::mem::take(&mut self.volumes);
        self.named.clear();
        for (id, volume) in all {
            self.put_volume(&id, volume);
        }
        before
            .into_keys()
            .chain(self.volumes.keys().cloned())
            .collect()
    }

    /// Replaces all nodes. Returns the new ones.
    pub fn replace_nodes(&mut self, all: BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        let before = std::mem::replace(&mut self.nodes, all);
        self.nodes.difference(&before).cloned().collect()
    }

    /// Adds or replaces a volume. Returns true if that changed anything.
    pub fn put_volume(&mut self, id: &VolumeId, volume: ExpectedVolume) -> bool {
        let node: Arc<str> = id.node.as_str().into();
        self.named.insert((id.uuid, node.clone()));
        let of_node = self.volumes.entry(node).or_default();
        match of_node.entry(id.uuid) {
            Entry::Occupied(entry) if *entry.get() == volume => false,
            Entry::Occupied(mut entry) => {
                entry.insert(volume);
                true
            }
            Entry::Vacant(entry) => {
                entry.insert(volume);
                true
            }
        }
    }

    /// Removes the volume if this PersistentVolume names it. If another one does, it stays.
    pub fn remove_volume(&mut self, id: &VolumeId, pv: &str) {
        if let Some(of_node) = self.volumes.get_mut(id.node.as_str()) {
            if of_node
                .get(&id.uuid)
                .is_some_and(|volume| *volume.pv == *pv)
            {
                of_node.remove(&id.uuid);
                self.named.remove(&(id.uuid, id.node.as_str().into()));
            }
            if of_node.is_empty() {
                self.volumes.remove(id.node.as_str());
            }
        }
    }

    pub fn put_node(&mut self, node: &str) {
        self.nodes.insert(node.into());
    }

    pub fn remove_node(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// True if an agent is registered on the node, or a PersistentVolume names a volume on it.
    pub fn has_node(&self, node: &str) -> bool {
        self.nodes.contains(node) || self.volumes.contains_key(node)
    }

    /// Returns all nodes that are expected to exist.
    pub fn nodes(&self) -> BTreeSet<Arc<str>> {
        self.nodes
            .iter()
            .chain(self.volumes.keys())
            .cloned()
            .collect()
    }

    pub fn volumes_of(&self, node: &str) -> Option<&Volumes> {
        self.volumes.get(node)
    }

    /// True if a PersistentVolume names this volume, on any node: its drive may have been moved from there.
    pub fn names(&self, uuid: Uuid) -> bool {
        let mut from = self.named.range((uuid, "".into())..);
        from.next().is_some_and(|(first, _)| *first == uuid)
    }

    /// Returns the name of the PersistentVolume that names this volume, on any node: its drive may have been moved from there.
    pub fn named_by(&self, uuid: Uuid) -> Option<&str> {
        let (first, node) = self.named.range((uuid, "".into())..).next()?;
        let volume = self.volumes.get(node)?.get(&uuid);
        volume.filter(|_| *first == uuid).map(|volume| &*volume.pv)
    }

    /// Returns what is expected of this volume on the node in its id.
    pub fn volume(&self, id: &VolumeId) -> Option<&ExpectedVolume> {
        self.volumes.get(id.node.as_str())?.get(&id.uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> VolumeId {
        VolumeId {
            uuid: Uuid::from_u128(n),
            node: "n1".into(),
        }
    }

    fn volume(pv: &str) -> ExpectedVolume {
        ExpectedVolume {
            pv: pv.into(),
            claim: None,
        }
    }

    #[test]
    fn a_volume_is_expected_until_the_persistent_volume_that_named_it_is_gone() {
        let mut expected = Expected::default();
        assert!(expected.put_volume(&id(1), volume("a")));
        assert!(!expected.put_volume(&id(1), volume("a")));
        // A second, manually created PersistentVolume of the same volume replaces the first.
        assert!(expected.put_volume(&id(1), volume("b")));
        expected.remove_volume(&id(1), "a");
        assert!(expected.names(id(1).uuid) && !expected.names(id(2).uuid));
        assert_eq!(expected.volume(&id(1)).map(|of| &*of.pv), Some("b"));
        assert!(expected.has_node("n1"));
        expected.remove_volume(&id(1), "b");
        assert!(expected.volume(&id(1)).is_none() && !expected.has_node("n1"));
        assert!(!expected.names(id(1).uuid));
    }

    #[test]
    fn a_list_that_was_read_anew_returns_which_nodes_changed() {
        let mut expected = Expected::default();
        let changed = expected.replace_volumes(vec![(id(1), volume("a"))]);
        assert_eq!(changed, ["n1".into()].into());
        assert_eq!(expected.replace_volumes(Vec::new()), changed);
        assert_eq!(
            expected.replace_nodes(["n2".into()].into()),
            ["n2".into()].into()
        );
        assert!(expected.replace_nodes(["n2".into()].into()).is_empty());
        assert!(expected.has_node("n2") && !expected.has_node("n1"));
    }
}
