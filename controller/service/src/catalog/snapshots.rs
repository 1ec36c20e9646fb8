//! Where the snapshots of all nodes are. Each is kept in its volume; here is what finds it there, and the order of lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use drivebay_proto::{
    VolumeId,
    agent::{Volume, VolumeSnapshot},
    words::SnapshotState,
};
use prost::Message;
use uuid::Uuid;

use super::{Catalog, Entry, Key, Node, Tables};

/// Of a [`Volume`], its snapshots alone.
#[derive(Clone, PartialEq, Message)]
struct Snapshots {
    #[prost(message, repeated, tag = "28")]
    snapshots: Vec<VolumeSnapshot>,
}

impl Entry {
    pub(super) fn snapshots(&self) -> Vec<VolumeSnapshot> {
        self.packed.part::<Snapshots>().snapshots
    }
}

/// A snapshot's place, by the snapshot's uuid, with the volume that it is of. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SnapshotPlace {
    pub key: Key,
    /// Its volume's place, on the same node.
    pub volume: Key,
    entry: Entry,
}

impl SnapshotPlace {
    /// The snapshot.
    pub fn snapshot(&self) -> Option<VolumeSnapshot> {
        let id = self.key.id_text();
        let mut all = self.entry.snapshots().into_iter();
        all.find(|snapshot| snapshot.id == id)
    }

    /// All that is known of its volume.
    pub fn decode_volume(&self) -> Volume {
        self.entry.decode(&self.volume)
    }
}

/// Whether it exists for CSI: one that is still being created was answered to nobody, and goes if that fails.
pub fn is_answered(snapshot: &VolumeSnapshot) -> bool {
    snapshot.known_state() != Some(SnapshotState::Creating)
}

/// What is kept of a snapshot besides its place.
#[derive(Debug, Clone, Copy)]
struct Of {
    volume: Uuid,
    answered: bool,
}

/// The snapshots of volumes that exist.
#[derive(Debug, Default)]
pub(super) struct SnapshotIndex {
    places: BTreeMap<Key, Of>,
    // By a hash of the CSI name, which others may have too.
    names: BTreeSet<(u32, Key)>,
}

/// A snapshot that is put into the index, or taken out of it.
pub(super) struct Indexed {
    key: Key,
    name: u32,
    answered: bool,
}

impl SnapshotIndex {
    pub(super) fn put(&mut self, volume: Uuid, snapshots: Vec<Indexed>) {
        for Indexed {
            key,
            name,
            answered,
        } in snapshots
        {
            self.names.insert((name, key.clone()));
            self.places.insert(key, Of { volume, answered });
        }
    }

    pub(super) fn take(&mut self, volume: Uuid, snapshots: Vec<Indexed>) {
        for Indexed { key, name, .. } in snapshots {
            if self.places.get(&key).is_some_and(|of| of.volume == volume) {
                self.places.remove(&key);
                self.names.remove(&(name, key));
            }
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.places.is_empty() && self.names.is_empty()
    }
}

impl Tables {
    fn snapshot_place(&self, key: &Key, of: Of) -> Option<SnapshotPlace> {
        let volume = Key {
            uuid: of.volume,
            node: key.node.clone(),
        };
        let entry = self.volumes.get(&volume)?.clone();
        Some(SnapshotPlace {
            key: key.clone(),
            volume,
            entry,
        })
    }
}

impl Catalog {
    /// Those of a volume on this node whose ids are of this node.
    pub(super) fn indexed(&self, node: &Node, snapshots: &[VolumeSnapshot]) -> Vec<Indexed> {
        let snapshots = snapshots.iter().filter_map(|snapshot| {
            let id = snapshot.id.parse::<VolumeId>().ok()?;
            (id.node == **node).then(|| Indexed {
                key: Key {
                    uuid: id.uuid,
                    node: node.clone(),
                },
                name: self.hash(&snapshot.name),
                answered: is_answered(snapshot),
            })
        });
        snapshots.collect()
    }

    /// The snapshot at this place, whatever its state.
    pub fn snapshot(&self, key: &Key) -> Option<SnapshotPlace> {
        let tables = self.read();
        let (key, of) = tables.snapshots.places.get_key_value(key)?;
        tables.snapshot_place(key, *of)
    }

    /// Every place at which there is a snapshot of this uuid, whatever its state: more than one when its drive was moved.
    pub fn snapshot_places(&self, uuid: Uuid) -> Vec<SnapshotPlace> {
        let first = Key {
            uuid,
            node: "".into(),
        };
        let tables = self.read();
        let all = tables.snapshots.places.range(first..);
        all.take_while(|(key, _)| key.uuid == uuid)
            .filter_map(|(key, of)| tables.snapshot_place(key, *of))
            .collect()
    }

    /// The snapshots of this CSI name, wherever they are, whatever their states.
    pub fn snapshots_named(&self, name: &str) -> Vec<SnapshotPlace> {
        let hash = self.hash(name);
        let first = Key {
            uuid: Uuid::nil(),
            node: "".into(),
        };
        let tables = self.read();
        let alike: Vec<SnapshotPlace> = tables
            .snapshots
            .names
            .range((hash, first)..)
            .take_while(|(other, _)| *other == hash)
            .filter_map(|(_, key)| {
                let of = tables.snapshots.places.get(key)?;
                tables.snapshot_place(key, *of)
            })
            .collect();
        drop(tables);
        let is_its = |place: &SnapshotPlace| place.snapshot().is_some_and(|one| one.name == name);
        alike.into_iter().filter(is_its).collect()
    }

    /// The first snapshots after this place that exist for CSI, in the order of their ids: at most `most`.
    pub fn snapshots_after(&self, after: Option<&Key>, most: usize) -> Vec<SnapshotPlace> {
        let bound = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.read();
        let rest = tables
            .snapshots
            .places
            .range::<Key, _>((bound, Bound::Unbounded));
        rest.filter(|(_, of)| of.answered)
            .filter_map(|(key, of)| tables.snapshot_place(key, *of))
            .take(most)
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn key(n: u128, node: &str) -> Key {
        Key {
            uuid: Uuid::from_u128(n),
            node: node.into(),
        }
    }

    fn snapshot(n: u128, node: &str, state: &str) -> VolumeSnapshot {
        VolumeSnapshot {
            id: key(n, node).id_text(),
            name: format!("s{n}"),
            state: state.into(),
            ..VolumeSnapshot::default()
        }
    }

    fn put(catalog: &Catalog, node: &str, volume: u128, state: &str, snapshots: &[VolumeSnapshot]) {
        let given = Volume {
            name: format!("v{volume}"),
            state: state.into(),
            snapshots: snapshots.to_vec(),
            ..Volume::default()
        };
        catalog.change(&node.into(), vec![(Uuid::from_u128(volume), given)], &[]);
    }

    fn listed(catalog: &Catalog) -> Vec<Key> {
        let all = catalog.snapshots_after(None, usize::MAX);
        all.into_iter().map(|place| place.key).collect()
    }

    #[test]
    fn a_snapshot_is_found_by_its_place_and_by_its_name_with_its_volume() {
        let catalog = Catalog::default();
        let (one, other) = (snapshot(7, "n", "ready"), snapshot(5, "n", "overflowed"));
        put(&catalog, "n", 1, "ready", &[one.clone(), other.clone()]);
        let place = catalog.snapshot(&key(7, "n")).unwrap();
        assert_eq!(place.snapshot(), Some(one));
        assert_eq!(place.volume, key(1, "n"));
        assert_eq!(place.decode_volume().name, "v1");
        let [place] = catalog.snapshots_named("s5").try_into().unwrap();
        assert_eq!(place.snapshot(), Some(other));
        assert!(catalog.snapshots_named("s6").is_empty());
        assert!(catalog.snapshot(&key(7, "m")).is_none());
        assert_eq!(listed(&catalog), [key(5, "n"), key(7, "n")]);
        let rest = catalog.snapshots_after(Some(&key(5, "n")), 1);
        assert_eq!(rest.first().map(|place| &place.key), Some(&key(7, "n")));
    }

    #[test]
    fn one_that_nobody_was_answered_is_in_no_list_and_has_its_name() {
        let catalog = Catalog::default();
        let creating = snapshot(7, "n", "creating");
        put(
            &catalog,
            "n",
            1,
            "ready",
            &[creating, snapshot(8, "n", "ready")],
        );
        assert_eq!(listed(&catalog), [key(8, "n")]);
        assert_eq!(catalog.snapshots_named("s7").len(), 1);
        put(&catalog, "n", 1, "ready", &[snapshot(7, "n", "ready")]);
        assert_eq!(listed(&catalog), [key(7, "n")]);
        assert!(catalog.snapshots_named("s8").is_empty());
    }

    #[test]
    fn snapshots_go_with_their_volume_and_with_its_deletion() {
        let catalog = Catalog::default();
        let changes: [fn(&Catalog); 3] = [
            |catalog| put(catalog, "n", 1, "erasing", &[snapshot(7, "n", "ready")]),
            |catalog| put(catalog, "n", 1, "ready", &[]),
            |catalog| catalog.change(&"n".into(), Vec::new(), &[Uuid::from_u128(1)]),
        ];
        for change in changes {
            put(&catalog, "n", 1, "ready", &[snapshot(7, "n", "ready")]);
            assert_eq!(listed(&catalog), [key(7, "n")]);
            change(&catalog);
            assert!(listed(&catalog).is_empty());
            assert!(catalog.read().snapshots.is_empty());
        }
    }

    #[test]
    fn one_of_another_node_is_left_out_and_one_uuid_on_two_nodes_is_two_places() {
        let catalog = Catalog::default();
        put(&catalog, "n", 1, "ready", &[snapshot(7, "m", "ready")]);
        assert!(catalog.read().snapshots.is_empty());
        for node in ["b", "a"] {
            put(&catalog, node, 1, "ready", &[snapshot(7, node, "ready")]);
        }
        let places = catalog.snapshot_places(Uuid::from_u128(7));
        let places: Vec<Key> = places.into_iter().map(|place| place.key).collect();
        assert_eq!(places, [key(7, "a"), key(7, "b")]);
        put(&catalog, "a", 1, "ready", &[]);
        assert_eq!(listed(&catalog), [key(7, "b")]);
    }
}
