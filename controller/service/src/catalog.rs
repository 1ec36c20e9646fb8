//! The volumes of all nodes in one order, for pages, for names and for what is on another node than its id says.
//!
//! A cluster may have a million volumes, so each is kept as bytes, without its id, which the order holds already, and
//! decoded when it is shown.

mod node;
mod packed;
mod snapshots;

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::RandomState},
    hash::BuildHasher,
    ops::Bound,
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use drivebay_proto::{
    VolumeId,
    agent::Volume,
    condition::{NormalReason, Reason},
    words::VolumeState,
};
use prost::Message;
use uuid::{Uuid, fmt::Hyphenated};

pub use self::{
    node::Node,
    snapshots::{SnapshotPlace, is_answered},
};
use self::{
    packed::{Kinds, Packed},
    snapshots::SnapshotIndex,
};
use drivebay_csi::health::{self, Whereabouts};

/// Entries taken in one go, a page of CSI's and a few more; updates get their turn in between.
const STRIDE: usize = 1024;

/// A volume's place: by its uuid, then by the node it is on. Ids in text have the same order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Random uuid of the volume; a volume that is created again has another one.
    pub uuid: Uuid,
    /// The node whose agent reports it.
    pub node: Node,
}

impl Key {
    /// Returns the volume id in its parts.
    pub fn id(&self) -> VolumeId {
        VolumeId {
            uuid: self.uuid,
            node: self.node.to_string(),
        }
    }

    /// The volume id as text.
    pub fn id_text(&self) -> String {
        let mut text = String::with_capacity(Hyphenated::LENGTH + 1 + self.node.len());
        text.push_str(
            self.uuid
                .as_hyphenated()
                .encode_lower(&mut [0; Hyphenated::LENGTH]),
        );
        text.push('@');
        text.push_str(&self.node);
        text
    }
}

impl From<&VolumeId> for Key {
    fn from(id: &VolumeId) -> Self {
        Self {
            uuid: id.uuid,
            node: id.node.as_str().into(),
        }
    }
}

/// Properties of a volume that are known without decoding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// False for a deleted volume, also while it is erased.
    pub exists: bool,
    /// Exists for CSI: not deleted, and not a copy that is still being made.
    pub listed: bool,
    /// Exists and has snapshots.
    pub snapshots: bool,
    /// Has a condition that CSI reports as abnormal.
    pub troubled: bool,
}

/// A volume as it is kept. Cheap to clone: shared with whoever looks at it, so that nothing is decoded while updates wait.
#[derive(Debug, Clone)]
pub struct Entry {
    packed: Packed,
    pub marks: Marks,
}

/// The fields of a [`Volume`] that a list has of a volume without conditions. Only these are decoded.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Brief {
    #[prost(string, tag = "3")]
    pub class: String,
    #[prost(uint64, tag = "5")]
    pub size_bytes: u64,
    /// Staged or published on its node.
    #[prost(bool, tag = "10")]
    pub published: bool,
    /// Made by hand on its node.
    #[prost(bool, tag = "21")]
    pub manual: bool,
    /// The id of the snapshot that it is a copy of.
    #[prost(string, tag = "29")]
    pub source_snapshot: String,
    /// The same of a volume.
    #[prost(string, tag = "30")]
    pub source_volume: String,
}

impl Entry {
    /// The most used of it.
    pub fn brief(&self) -> Brief {
        self.packed.part()
    }

    /// All of it, with the id of its place.
    pub fn decode(&self, key: &Key) -> Volume {
        let mut volume = self.packed.volume();
        volume.id = key.id_text();
        volume
    }
}

#[derive(Debug, Default)]
struct Tables {
    volumes: BTreeMap<Key, Entry>,
    // Uuids by a hash of the CSI name, which others may have too; only of volumes that exist, wherever they are.
    names: BTreeSet<(u32, Uuid)>,
    snapshots: SnapshotIndex,
    kinds: Kinds,
}

impl Tables {
    /// Returns the volumes of this uuid on all nodes, deleted ones among them, in the order of their nodes.
    fn at(&self, uuid: Uuid) -> impl Iterator<Item = (&Key, &Entry)> {
        let first = Key {
            uuid,
            node: "".into(),
        };
        self.volumes
            .range(first..)
            .take_while(move |(key, _)| key.uuid == uuid)
    }
}

/// Every volume that any agent has reported.
#[derive(Debug, Default)]
pub struct Catalog {
    tables: RwLock<Tables>,
    hasher: RandomState,
}

/// True unless the volume is deleted; a deleted volume stays in the catalog until it is erased.
pub fn exists(volume: &Volume) -> bool {
    !volume.is_deleted()
}

/// True if the volume is on a drive that its node reads. False: the drive is missing, does not read, or was not scanned, so that another node
/// may have it.
pub fn is_read(volume: &Volume) -> bool {
    !matches!(
        volume.known_state(),
        Some(VolumeState::Missing | VolumeState::NotScanned)
    )
}

/// True for a copy that is still being made. It has its name and can be deleted, but no CreateVolume has returned its id.
pub fn is_copying(volume: &Volume) -> bool {
    volume.known_state() == Some(VolumeState::Copying)
}

/// True if events of moves and copies can be due for the volume: it has an old place or a condition of a move, or is a copy with
/// unreadable blocks (`CopiedWithLoss`).
pub fn has_move(volume: &Volume) -> bool {
    let is_of_move = |reason: &str| {
        NormalReason::parse(reason).is_some() || reason == Reason::MoveInDoubt.as_str()
    };
    let mut conditions = volume.conditions.iter();
    !volume.places.is_empty() || conditions.any(|one| is_of_move(&one.reason))
}

/// The marks of a volume.
pub fn marks(volume: &Volume) -> Marks {
    let exists = exists(volume);
    Marks {
        exists,
        listed: exists && !is_copying(volume),
        snapshots: exists && !volume.snapshots.is_empty(),
        troubled: !health::entries(volume, Whereabouts::Here).is_empty(),
    }
}

impl Catalog {
    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, name: &str) -> u32 {
        // The lower half of it.
        self.hasher.hash_one(name) as u32
    }

    /// Takes in what changed on one node: volumes new or changed, and volumes gone.
    pub fn change(&self, node: &Node, put: Vec<(Uuid, Volume)>, removed: &[Uuid]) {
        let put: Vec<_> = put
            .into_iter()
            .map(|(uuid, volume)| {
                let marks = marks(&volume);
                let name = self.hash(&volume.name);
                let snapshots = match marks.snapshots {
                    true => self.indexed(node, &volume.snapshots),
                    false => Vec::new(),
                };
                let packed = Packed::of(volume);
                (uuid, name, snapshots, Entry { packed, marks })
            })
            .collect();
        let key = |uuid: Uuid| Key {
            uuid,
            node: node.clone(),
        };
        let mut tables = self.write();
        for uuid in removed {
            self.take(&mut tables, &key(*uuid));
        }
        for (uuid, name, snapshots, mut entry) in put {
            let key = key(uuid);
            self.take(&mut tables, &key);
            tables.kinds.take_in(&mut entry.packed);
            if entry.marks.exists {
                tables.names.insert((name, uuid));
            }
            tables.snapshots.put(uuid, snapshots);
            tables.volumes.insert(key, entry);
        }
    }

    fn take(&self, tables: &mut Tables, key: &Key) {
        let Some(old) = tables.volumes.remove(key) else {
            return;
        };
        tables.kinds.release(&old.packed);
        if old.marks.snapshots {
            let snapshots = self.indexed(&key.node, &old.snapshots());
            tables.snapshots.take(key.uuid, snapshots);
        }
        if old.marks.exists {
            let name = old.decode(key).name;
            let elsewhere = tables
                .at(key.uuid)
                .any(|(key, entry)| entry.marks.exists && entry.decode(key).name == name);
            if !elsewhere {
                let name = self.hash(&name);
                tables.names.remove(&(name, key.uuid));
            }
        }
    }

    /// The volume at this place, deleted or not.
    pub fn get(&self, key: &Key) -> Option<Volume> {
        self.read().volumes.get(key).map(|entry| entry.decode(key))
    }

    /// The same as an encoded [`Volume`].
    pub fn encoded(&self, key: &Key) -> Option<Vec<u8>> {
        let entry = self.read().volumes.get(key).cloned();
        entry.map(|entry| entry.packed.encode(key.id_text()))
    }

    /// The volumes of this CSI name that exist, wherever they are.
    pub fn named(&self, name: &str) -> Vec<(Key, Volume)> {
        let hash = self.hash(name);
        let tables = self.read();
        tables
            .names
            .range((hash, Uuid::nil())..)
            .take_while(|(other, _)| *other == hash)
            .flat_map(|(_, uuid)| tables.at(*uuid))
            .filter(|(_, entry)| entry.marks.exists)
            .filter_map(|(key, entry)| {
                let volume = entry.decode(key);
                (volume.name == name).then(|| (key.clone(), volume))
            })
            .collect()
    }

    /// Names that more than one uuid has; of some of them, only by the hash.
    pub fn shared_names(&self) -> BTreeSet<String> {
        let mut shared = BTreeSet::new();
        let mut from = (0, Uuid::nil());
        let mut last: Option<(u32, Uuid)> = None;
        loop {
            let tables = self.read();
            let rest = tables
                .names
                .range((Bound::Excluded(from), Bound::Unbounded));
            let stride: Vec<(u32, Uuid)> = rest.take(STRIDE).copied().collect();
            for next in &stride {
                if last.is_some_and(|last| last.0 == next.0) {
                    let there = tables.at(next.1).filter(|(_, entry)| entry.marks.exists);
                    shared.extend(there.map(|(key, entry)| entry.decode(key).name));
                }
                last = Some(*next);
            }
            match stride.last() {
                Some(last) => from = *last,
                None => return shared,
            }
        }
    }

    /// Every place at which a volume of this uuid exists: more than one when its drive was moved.
    pub fn places(&self, uuid: Uuid) -> Vec<Key> {
        self.read()
            .at(uuid)
            .filter(|(_, entry)| entry.marks.exists)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Uuids that more than one node has.
    pub fn shared_uuids(&self) -> BTreeSet<Uuid> {
        let mut shared = BTreeSet::new();
        let (mut from, mut last) = (None::<Key>, None::<Uuid>);
        loop {
            let stride = self.stride(from.as_ref());
            for (key, _) in stride.iter().filter(|(_, entry)| entry.marks.exists) {
                if last.replace(key.uuid) == Some(key.uuid) {
                    shared.insert(key.uuid);
                }
            }
            if stride.len() < STRIDE {
                return shared;
            }
            from = stride.last().map(|(key, _)| key.clone());
        }
    }

    /// The first volumes after this place, in order, that `keep` wants: at most `most`.
    ///
    /// `keep` is called while the catalog is not locked: it may lock inventories. A change of an inventory locks that
    /// inventory first, then the catalog.
    pub fn after(
        &self,
        after: Option<&Key>,
        most: usize,
        mut keep: impl FnMut(&Key, Marks) -> bool,
    ) -> Vec<(Key, Entry)> {
        let mut entries = Vec::new();
        let mut from = after.cloned();
        loop {
            let stride = self.stride(from.as_ref());
            let last = stride.len() < STRIDE;
            from = stride.last().map(|(key, _)| key.clone());
            for (key, entry) in stride {
                if entries.len() == most {
                    return entries;
                }
                if keep(&key, entry.marks) {
                    entries.push((key, entry));
                }
            }
            if last || entries.len() == most {
                return entries;
            }
        }
    }

    fn stride(&self, after: Option<&Key>) -> Vec<(Key, Entry)> {
        let bound = after.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.read();
        let rest = tables.volumes.range::<Key, _>((bound, Bound::Unbounded));
        rest.take(STRIDE)
            .map(|(key, entry)| (key.clone(), entry.clone()))
            .collect()
    }

    /// Number of volumes, deleted ones included.
    pub fn len(&self) -> usize {
        self.read().volumes.len()
    }

    /// True if there is no volume, not even a deleted one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn volume(name: &str, state: &str) -> Volume {
        Volume {
            id: "given".into(),
            name: name.into(),
            state: state.into(),
            ..Volume::default()
        }
    }

    fn key(n: u128, node: &str) -> Key {
        Key {
            uuid: Uuid::from_u128(n),
            node: node.into(),
        }
    }

    #[test]
    fn a_volume_comes_back_as_it_was_put_in_with_the_id_of_its_place() {
        let catalog = Catalog::default();
        let mut given = volume("v", "ready");
        given.parameters.insert("a".into(), "b".into());
        catalog.change(&"n".into(), vec![(Uuid::from_u128(7), given.clone())], &[]);
        given.id = key(7, "n").id().to_string();
        assert_eq!(catalog.get(&key(7, "n")), Some(given.clone()));
        assert_eq!(catalog.named("v"), [(key(7, "n"), given)]);
        assert!(catalog.named("w").is_empty());
    }

    #[test]
    fn the_brief_form_equals_the_decoded_volume() {
        let catalog = Catalog::default();
        let given = Volume {
            class: "bulk".into(),
            size_bytes: u64::MAX,
            published: true,
            drive: "wwn-a".into(),
            conditions: vec![Default::default()],
            mounts: vec!["/m".into()],
            ..volume("v", "ready")
        };
        catalog.change(&"n".into(), vec![(Uuid::from_u128(7), given.clone())], &[]);
        let (key, entry) = catalog.after(None, 1, |_, _| true).remove(0);
        let brief = entry.brief();
        assert_eq!(
            (brief.class, brief.size_bytes, brief.published),
            (given.class, given.size_bytes, given.published)
        );
        assert_eq!(entry.decode(&key).drive, "wwn-a");
    }

    #[test]
    fn a_copy_that_is_being_made_has_its_name_and_is_not_listed() {
        let catalog = Catalog::default();
        let uuid = Uuid::from_u128(7);
        for (state, listed) in [("copying", 0), ("new", 1)] {
            catalog.change(&"n".into(), vec![(uuid, volume("v", state))], &[]);
            assert_eq!(catalog.named("v").len(), 1);
            assert_eq!(catalog.places(uuid).len(), 1);
            assert_eq!(catalog.after(None, 9, |_, marks| marks.exists).len(), 1);
            let in_lists = catalog.after(None, 9, |_, marks| marks.listed);
            assert_eq!(in_lists.len(), listed, "{state}");
        }
    }

    #[test]
    fn a_deleted_volume_keeps_neither_its_name_nor_its_place_among_those_that_exist() {
        let catalog = Catalog::default();
        let node: Node = "n".into();
        let uuid = Uuid::from_u128(7);
        catalog.change(&node, vec![(uuid, volume("v", "ready"))], &[]);
        for state in ["erasing", "quarantined"] {
            catalog.change(&node, vec![(uuid, volume("v", state))], &[]);
            assert!(catalog.named("v").is_empty());
            assert!(catalog.places(uuid).is_empty());
            assert_eq!(catalog.len(), 1);
        }
        catalog.change(&node, vec![], &[uuid]);
        assert!(catalog.is_empty());
        assert_eq!(catalog.read().kinds.len(), 0);
    }

    #[test]
    fn a_renamed_volume_is_found_under_its_new_name_only() {
        let catalog = Catalog::default();
        let uuid = Uuid::from_u128(7);
        catalog.change(&"n".into(), vec![(uuid, volume("v", "ready"))], &[]);
        catalog.change(&"n".into(), vec![(uuid, volume("w", "ready"))], &[]);
        assert!(catalog.named("v").is_empty());
        assert_eq!(catalog.named("w").len(), 1);
    }

    #[test]
    fn one_uuid_on_two_nodes_is_two_places() {
        let catalog = Catalog::default();
        let uuid = Uuid::from_u128(7);
        for node in ["b", "a"] {
            catalog.change(&node.into(), vec![(uuid, volume("v", "ready"))], &[]);
        }
        assert_eq!(catalog.places(uuid), [key(7, "a"), key(7, "b")]);
        // Others are not shared: one that is deleted on the other node, and those of the next strides.
        for (node, state) in [("a", "ready"), ("b", "erasing")] {
            let deleted = (Uuid::from_u128(8), volume("w", state));
            catalog.change(&node.into(), vec![deleted], &[]);
        }
        let many = (100..100 + STRIDE as u128).map(|n| (Uuid::from_u128(n), volume("x", "ready")));
        catalog.change(&"a".into(), many.collect(), &[]);
        assert_eq!(catalog.shared_uuids(), [uuid].into());
        let last = Uuid::from_u128(99 + STRIDE as u128);
        catalog.change(&"b".into(), vec![(last, volume("x", "ready"))], &[]);
        assert_eq!(catalog.shared_uuids(), [uuid, last].into());
    }

    #[test]
    fn a_name_stays_as_long_as_the_volume_is_anywhere() {
        let catalog = Catalog::default();
        let uuid = Uuid::from_u128(7);
        for node in ["a", "b"] {
            catalog.change(&node.into(), vec![(uuid, volume("v", "ready"))], &[]);
        }
        catalog.change(&"c".into(), vec![(uuid, volume("w", "ready"))], &[]);
        catalog.change(&"a".into(), vec![], &[uuid]);
        let [(key, _)] = catalog.named("v").try_into().unwrap();
        assert_eq!(&*key.node, "b");
        catalog.change(&"b".into(), vec![(uuid, volume("v", "erasing"))], &[]);
        assert!(catalog.named("v").is_empty());
        assert_eq!(catalog.named("w").len(), 1);
        catalog.change(&"c".into(), vec![], &[uuid]);
        assert!(catalog.read().names.is_empty());
    }

    #[test]
    fn more_volumes_than_one_stride_are_all_listed_in_order() {
        let catalog = Catalog::default();
        let count = STRIDE as u128 * 2 + 10;
        let all = (0..count)
            .map(|n| (Uuid::from_u128(n), volume("v", "ready")))
            .collect();
        catalog.change(&"n".into(), all, &[]);
        let every = catalog.after(None, usize::MAX, |_, _| true);
        assert_eq!(every.len(), count as usize);
        assert!(every.is_sorted_by(|(a, _), (b, _)| a < b));
        let last = key(count - 1, "n");
        let entries = catalog.after(Some(&key(5, "n")), 1, |key, _| *key == last);
        assert_eq!(entries.len(), 1);
    }

    // A change of an inventory locks the inventory, then the catalog: a reader that locked an inventory with the catalog locked
    // would deadlock.
    #[test]
    fn changes_go_on_while_a_reader_inspects_an_entry() {
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let catalog = Catalog::default();
            let node: Node = "n".into();
            let put = |n| vec![(Uuid::from_u128(n), volume("v", "ready"))];
            catalog.change(&node, put(1), &[]);
            let entries = catalog.after(None, 10, |_, _| {
                catalog.change(&node, put(2), &[]);
                true
            });
            done.send(entries.len()).unwrap();
        });
        let count = finished.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(count, Ok(1));
    }

    proptest! {
        #[test]
        fn places_have_the_order_of_ids_in_text(
            a: u128, b: u128, m in "[a-z0-9]{1,4}", n in "[a-z0-9]{1,4}", same: bool,
        ) {
            let (one, other) = (key(a, &m), key(if same { a } else { b }, &n));
            prop_assert_eq!(one.cmp(&other), one.id().to_string().cmp(&other.id().to_string()));
            prop_assert_eq!(one.id_text(), one.id().to_string());
        }
    }
}
