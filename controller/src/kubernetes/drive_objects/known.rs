//! What is kept of the objects in the API server: enough to decide about each without its status. There may be more than a hundred
//! thousand.

use std::collections::{BTreeMap, BTreeSet};

use ring::digest;

use super::object::{Condition, Drive, DriveStatus, seconds};

/// Digest of contents.
type Digest = [u8; 16];

/// Digests of a status, by which writes are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digests {
    /// Of all that is compared: everything but times of writing, the position in the agent's reports and times of transitions.
    pub(super) whole: Digest,
    /// Of what is written at once: place, state, health, codes and conditions, without texts, sizes and volumes.
    pub(super) urgent: Digest,
}

impl Digests {
    pub(super) fn of(status: &DriveStatus) -> Self {
        let mut part = status.clone();
        part.updated = String::new();
        part.observed = Default::default();
        for condition in &mut part.conditions {
            condition.last_transition_time = String::new();
        }
        let whole = digest_of(&part);
        for condition in &mut part.conditions {
            condition.message = String::new();
        }
        for finding in &mut part.findings {
            finding.message = String::new();
        }
        part.volumes = Vec::new();
        (part.volume_count, part.free, part.size) = (0, String::new(), String::new());
        (part.size_bytes, part.free_bytes, part.largest_free_bytes) = (0, 0, 0);
        Self {
            whole,
            urgent: digest_of(&part),
        }
    }
}

fn digest_of(status: &DriveStatus) -> Digest {
    // Serializing to memory a type with texts as its only keys cannot fail; if it did, the digest would equal no other status's.
    let text = serde_json::to_vec(status).unwrap_or_default();
    let whole = digest::digest(&digest::SHA256, &text);
    let mut short = Digest::default();
    for (to, from) in short.iter_mut().zip(whole.as_ref()) {
        *to = *from;
    }
    short
}

/// Since when a condition has its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Transition {
    pub(super) type_: Box<str>,
    pub(super) status: Box<str>,
    /// As it was written.
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

/// An object as it is in the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) uid: Box<str>,
    /// Its resource version.
    pub(super) version: Box<str>,
    pub(super) node: Box<str>,
    pub(super) other_nodes: Vec<Box<str>>,
    pub(super) digests: Digests,
    pub(super) instance: Box<str>,
    pub(super) revision: i64,
    /// Seconds since 1970; 0 if that cannot be read.
    pub(super) updated: i64,
    pub(super) transitions: Vec<Transition>,
}

impl Known {
    /// Returns the object's name and what is kept of it.
    pub(super) fn of(drive: Drive) -> (String, Self) {
        let name = drive.metadata.name.unwrap_or_default();
        let status = drive.status.unwrap_or_default();
        let digests = Digests::of(&status);
        let known = Self {
            uid: drive.metadata.uid.unwrap_or_default().into(),
            version: drive.metadata.resource_version.unwrap_or_default().into(),
            node: status.node.into(),
            other_nodes: status.other_nodes.into_iter().map(Into::into).collect(),
            digests,
            instance: status.observed.instance.into(),
            revision: status.observed.revision,
            updated: seconds(&status.updated).unwrap_or(0),
            transitions: status.conditions.into_iter().map(Transition::of).collect(),
        };
        (name, known)
    }

    /// True if the object's condition of this type has this status.
    pub(super) fn has(&self, type_: &str, status: &str) -> bool {
        let mut all = self.transitions.iter();
        all.any(|one| &*one.type_ == type_ && &*one.status == status)
    }

    /// Seconds since it was written. A time that is in the future by more than clocks differ is no time: the object counts as old.
    pub(super) fn age(&self, now: i64) -> i64 {
        /// Most that clocks of replicas are expected to differ, seconds.
        const SKEW: i64 = 120;
        match now.saturating_sub(self.updated) {
            age if age < -SKEW => i64::MAX,
            age => age.max(0),
        }
    }
}

/// All objects, as listed and watched.
#[derive(Debug, Default)]
pub(super) struct Objects {
    all: BTreeMap<String, Known>,
    listing: BTreeSet<String>,
    // Nodes whose objects changed, since this was last taken.
    touched: BTreeSet<Box<str>>,
    is_complete: bool,
}

impl Objects {
    pub(super) fn get(&self, name: &str) -> Option<&Known> {
        self.all.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.all.iter()
    }

    /// True after the first complete list: an object that is not here does not exist.
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
        let gone = self.all.extract_if(.., |name, _| !listed.contains(name));
        self.touched.extend(gone.map(|(_, known)| known.node));
        self.is_complete = true;
    }

    /// Adds or replaces an object; returns its name.
    pub(super) fn put(&mut self, drive: Drive) -> String {
        let (name, known) = Known::of(drive);
        self.touched.insert(known.node.clone());
        if let Some(before) = self.all.insert(name.clone(), known) {
            self.touched.insert(before.node);
        }
        name
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(known) = self.all.remove(name) {
            self.touched.insert(known.node);
        }
    }

    pub(super) fn take_touched(&mut self) -> BTreeSet<Box<str>> {
        std::mem::take(&mut self.touched)
    }
}
