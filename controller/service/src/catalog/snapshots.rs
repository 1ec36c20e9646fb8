//! Index of the snapshots of all nodes. Each is stored in its volume; the index finds it there, and defines the order of lists.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use drivebay_proto::{
    VolumeId,
    agent::{SnapshotGroup, Volume, VolumeSnapshot},
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
    /// Place of the snapshot's volume, on the same node.
    pub volume: Key,
    entry: Entry,
}

impl SnapshotPlace {
    /// The snapshot as it was when its place was looked up. None: the volume does not list it, which an agent that reports
    /// consistently never causes.
    pub fn snapshot(&self) -> Option<VolumeSnapshot> {
        let id = self.key.id_text();
        let mut all = self.entry.snapshots().into_iter();
        all.find(|snapshot| snapshot.id == id)
    }

    /// The volume in full, as it was when the place was looked up. Decodes all of it: once, and not in a loop over a list.
    pub fn decode_volume(&self) -> Volume {
        self.entry.decode(&self.volume)
    }
}

/// True if the snapshot exists for CSI. One that is still being created does not: no caller has its id, and it is removed if creating
/// it fails.
pub fn is_answered(snapshot: &VolumeSnapshot) -> bool {
    snapshot.known_state() != Some(SnapshotState::Creating)
}

/// Returns the uuid in the group's id; None: no agent issues such an id.
fn group_uuid(group: &SnapshotGroup) -> Option<Uuid> {
    group.id.parse().ok().map(|id: VolumeId| id.uuid)
}

#[derive(Debug, Clone, Copy)]
struct Of {
    volume: Uuid,
    answered: bool,
}

/// The snapshots of volumes that exist.
#[derive(Debug, Default)]
pub(super) struct SnapshotIndex {
    places: BTreeMap<Key, Of>,
    // Keyed by a hash of the snapshot's and of its group's CSI name. Other names can have the same hash.
    names: BTreeSet<(u32, Key)>,
    // Keyed by the uuid of the group.
    groups: BTreeSet<(Uuid, Key)>,
}

/// A snapshot that is put into the index, or taken out of it.
pub(super) struct Indexed {
    key: Key,
    names: Vec<u32>,
    group: Option<Uuid>,
    answered: bool,
}

impl SnapshotIndex {
    pub(super) fn put(&mut self, volume: Uuid, snapshots: Vec<Indexed>) {
        for Indexed {
            key,
            names,
            group,
            answered,
        } in snapshots
        {
            let names = names.into_iter().map(|name| (name, key.clone()));
            self.names.extend(names);
            let group = group.map(|group| (group, key.clone()));
            self.groups.extend(group);
            self.places.insert(key, Of { volume, answered });
        }
    }

    pub(super) fn take(&mut self, volume: Uuid, snapshots: Vec<Indexed>) {
        for Indexed {
            key, names, group, ..
        } in snapshots
        {
            if self.places.get(&key).is_some_and(|of| of.volume == volume) {
                self.places.remove(&key);
                for name in names {
                    self.names.remove(&(name, key.clone()));
                }
                if let Some(group) = group {
                    self.groups.remove(&(group, key));
                }
            }
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.places.is_empty() && self.names.is_empty() && self.groups.is_empty()
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

    /// Returns the snapshots under this value of an index, ordered by id.
    fn snapshots_under<T: Ord>(&self, index: &BTreeSet<(T, Key)>, value: T) -> Vec<SnapshotPlace> {
        let first = Key {
            uuid: Uuid::nil(),
            node: "".into(),
        };
        let from = (value, first);
        let under = index.range(&from..);
        under
            .take_while(|(value, _)| *value == from.0)
            .filter_map(|(_, key)| self.snapshot_place(key, *self.snapshots.places.get(key)?))
            .collect()
    }
}

impl Catalog {
    /// Those of a volume on this node whose ids are of this node.
    pub(super) fn indexed(&self, node: &Node, snapshots: &[VolumeSnapshot]) -> Vec<Indexed> {
        let snapshots = snapshots.iter().filter_map(|snapshot| {
            let id = snapshot.id.parse::<VolumeId>().ok()?;
            let group = snapshot.group.as_ref();
            let names = [Some(&snapshot.name), group.map(|group| &group.name)];
            (id.node == **node).then(|| Indexed {
                key: Key {
                    uuid: id.uuid,
                    node: node.clone(),
                },
                names: names
                    .into_iter()
                    .flatten()
                    .map(|name| self.hash(name))
                    .collect(),
                group: group.and_then(group_uuid),
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
        self.alike(name, |snapshot| snapshot.name == name)
    }

    /// Returns the snapshots in groups of this CSI name, on all nodes and in any state.
    pub fn members_of_groups_named(&self, name: &str) -> Vec<SnapshotPlace> {
        self.alike(name, |snapshot| {
            let group = snapshot.group.as_ref();
            group.is_some_and(|group| group.name == name)
        })
    }

    /// Returns the snapshots in the group of this uuid, on all nodes and in any state, ordered by id.
    pub fn members(&self, group: Uuid) -> Vec<SnapshotPlace> {
        let tables = self.read();
        tables.snapshots_under(&tables.snapshots.groups, group)
    }

    /// Returns the snapshots for which `is_it` is true among those whose name, or group's name, has the same hash as `name`.
    fn alike(&self, name: &str, is_it: impl Fn(&VolumeSnapshot) -> bool) -> Vec<SnapshotPlace> {
        let hash = self.hash(name);
        let tables = self.read();
        let mut alike = tables.snapshots_under(&tables.snapshots.names, hash);
        // Decoding does not need the lock.
        drop(tables);
        alike.retain(|place| place.snapshot().is_some_and(|one| is_it(&one)));
        alike
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
    fn members_of_a_group_are_found_by_its_uuid_and_its_name_until_they_go() {
        let catalog = Catalog::default();
        let member = |n, state: &str| VolumeSnapshot {
            group: Some(SnapshotGroup {
                id: key(9, "n").id_text(),
                name: "g".into(),
                members: 2,
            }),
            ..snapshot(n, "n", state)
        };
        let keys = |places: Vec<SnapshotPlace>| -> Vec<Key> {
            places.into_iter().map(|place| place.key).collect()
        };
        let alone = snapshot(6, "n", "ready");
        put(&catalog, "n", 1, "ready", &[member(8, "ready"), alone]);
        put(&catalog, "n", 2, "ready", &[member(7, "creating")]);
        let both = [key(7, "n"), key(8, "n")];
        assert_eq!(keys(catalog.members(Uuid::from_u128(9))), both);
        let mut named = keys(catalog.members_of_groups_named("g"));
        named.sort();
        assert_eq!(named, both);
        assert_eq!(keys(catalog.snapshots_named("s8")), [key(8, "n")]);
        for not_a_group in [8, 10] {
            assert!(catalog.members(Uuid::from_u128(not_a_group)).is_empty());
        }
        assert!(catalog.members_of_groups_named("s8").is_empty());
        put(&catalog, "n", 1, "ready", &[]);
        assert_eq!(keys(catalog.members(Uuid::from_u128(9))), [key(7, "n")]);
        put(&catalog, "n", 2, "ready", &[]);
        assert!(catalog.read().snapshots.is_empty());
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
