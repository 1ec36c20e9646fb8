//! Watched objects, reduced to digests of their status and the fields that plans compare. A cluster may have more than a hundred
//! thousand, so that whole statuses would take too much memory.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest;

use drivebay_objects::{
    drive::{Condition, Drive, DriveStatus},
    times::parse_time,
};

/// First 16 bytes of a SHA-256 digest.
type Digest = [u8; 16];

/// Digests of a status. Two statuses with equal digests need no write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digests {
    /// Covers the status without `updated`, `observed` and `lastTransitionTime`.
    pub(super) whole: Digest,
    /// Covers the fields that are written at once: node, bay, state, health, codes and conditions, without messages, sizes and volumes.
    pub(super) urgent: Digest,
}

impl Digests {
    pub(super) fn of(status: &DriveStatus) -> Self {
        let mut compared = status.clone();
        compared.updated = String::new();
        compared.observed = Default::default();
        for condition in &mut compared.conditions {
            condition.last_transition_time = String::new();
        }
        let whole = digest_of(&compared);
        for condition in &mut compared.conditions {
            condition.message = String::new();
        }
        for finding in &mut compared.findings {
            finding.message = String::new();
        }
        (compared.volumes, compared.counts) = (Vec::new(), Vec::new());
        (compared.volume_count, compared.free, compared.size) = (0, String::new(), String::new());
        (
            compared.size_bytes,
            compared.usable_bytes,
            compared.free_bytes,
            compared.largest_free_bytes,
        ) = (0, 0, 0, 0);
        Self {
            whole,
            urgent: digest_of(&compared),
        }
    }
}

fn digest_of(status: &DriveStatus) -> Digest {
    // Serializing to memory a type with texts as its only keys cannot fail; if it did, the digest would equal no other status's.
    let text = serde_json::to_vec(status).unwrap_or_default();
    let sha256 = digest::digest(&digest::SHA256, &text);
    let mut truncated = Digest::default();
    for (to, from) in truncated.iter_mut().zip(sha256.as_ref()) {
        *to = *from;
    }
    truncated
}

/// Status of a condition and the time of its last transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transition {
    pub(super) type_: Box<str>,
    pub(super) status: Box<str>,
    /// `lastTransitionTime` as the object has it, RFC 3339; not parsed.
    pub(super) at: Box<str>,
}

impl Transition {
    fn of(condition: Condition) -> Self {
        Self {
            type_: condition.type_.into(),
            status: condition.status.into(),
            at: condition.last_transition_time.into(),
        }
    }
}

/// Last watched version of an object. About 1 kB with its name and allocations, by calculation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchedObject {
    pub(super) uid: Box<str>,
    /// `metadata.resourceVersion` of this version; empty if the object has none.
    pub(super) version: Box<str>,
    pub(super) node: Box<str>,
    pub(super) other_nodes: Vec<Box<str>>,
    pub(super) digests: Digests,
    pub(super) instance: Box<str>,
    pub(super) revision: i64,
    /// Seconds since 1970; 0 if `status.updated` is not RFC 3339.
    pub(super) updated: i64,
    pub(super) transitions: Vec<Transition>,
}

impl WatchedObject {
    /// Reduces an object; returns its name, too.
    pub(super) fn of(drive: Drive) -> (String, Self) {
        let name = drive.metadata.name.unwrap_or_default();
        let status = drive.status.unwrap_or_default();
        let digests = Digests::of(&status);
        let watched = Self {
            uid: drive.metadata.uid.unwrap_or_default().into(),
            version: drive.metadata.resource_version.unwrap_or_default().into(),
            node: status.node.into(),
            other_nodes: status.other_nodes.into_iter().map(Into::into).collect(),
            digests,
            instance: status.observed.instance.into(),
            revision: status.observed.revision,
            updated: parse_time(&status.updated).unwrap_or(0),
            transitions: status.conditions.into_iter().map(Transition::of).collect(),
        };
        (name, watched)
    }

    /// True if the object's condition of this type has this status.
    pub(super) fn has(&self, type_: &str, status: &str) -> bool {
        let mut all = self.transitions.iter();
        all.any(|one| &*one.type_ == type_ && &*one.status == status)
    }

    /// Returns the seconds since the last write. An object whose time is in the future by more than clocks of replicas may differ counts
    /// as old, so that a false time does not block writes.
    pub(super) fn age(&self, now: i64) -> i64 {
        /// Most that clocks of replicas are expected to differ, seconds.
        const SKEW: i64 = 120;
        match now.saturating_sub(self.updated) {
            age if age < -SKEW => i64::MAX,
            age => age.max(0),
        }
    }
}

/// All objects of the API server, as listed and watched.
#[derive(Debug, Default)]
pub(super) struct WatchedObjects {
    all: BTreeMap<String, WatchedObject>,
    listing: BTreeSet<String>,
    // Nodes whose objects have changed since the last `take_changed_nodes`.
    changed_nodes: BTreeSet<Box<str>>,
    is_complete: bool,
}

impl WatchedObjects {
    pub(super) fn get(&self, name: &str) -> Option<&WatchedObject> {
        self.all.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &WatchedObject)> {
        self.all.iter()
    }

    /// True after the first complete list. Before that, an object that is not here may exist.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn begin_list(&mut self) {
        self.listing.clear();
    }

    pub(super) fn put_listed(&mut self, drive: Drive) {
        let name = self.put(drive);
        self.listing.insert(name);
    }

    pub(super) fn end_list(&mut self) {
        let listed = std::mem::take(&mut self.listing);
        let deleted = self.all.extract_if(.., |name, _| !listed.contains(name));
        self.changed_nodes
            .extend(deleted.map(|(_, object)| object.node));
        self.is_complete = true;
    }

    /// Adds or replaces an object; returns its name.
    pub(super) fn put(&mut self, drive: Drive) -> String {
        let (name, object) = WatchedObject::of(drive);
        self.changed_nodes.insert(object.node.clone());
        if let Some(before) = self.all.insert(name.clone(), object) {
            self.changed_nodes.insert(before.node);
        }
        name
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(object) = self.all.remove(name) {
            self.changed_nodes.insert(object.node);
        }
    }

    pub(super) fn take_changed_nodes(&mut self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut self.changed_nodes)
    }
}
